"""The commands of `manifest`, one per data set of the registry."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache.base.errors import InputError
from trust_cache.manifest.datasets.known_datasets import KNOWN_DATASETS, KnownDataset
from trust_cache_cli.options import AsJson, command, command_group
from trust_cache_cli.output import note, say, show_json, warn

if TYPE_CHECKING:
    from trust_cache.manifest.build_manifest import BuiltManifest

FILES_MISSING = 1
app, manifests = command_group(), command_group()
app.add_typer(manifests, name="manifest", help="Build a checked manifest from a data set's metadata.")


def _register(known: KnownDataset) -> None:
    default = "required" if known.images_required else "the folder of METADATA"

    def build(
        metadata: Annotated[Path, typer.Argument(metavar="METADATA", help=known.metadata_help)],
        out: Annotated[Path, typer.Option(metavar="FILE", help="The manifest to write.")],
        images: Annotated[
            str | None,
            typer.Option(metavar="DIR", help=f"The folder or URL prefix of the image files. [{default}]"),
        ] = None,
        no_files: Annotated[
            bool, typer.Option("--no-files", help="Do not look for the image files.")
        ] = False,
        overwrite: Annotated[
            bool, typer.Option("--overwrite", help="Replace a different manifest of that name.")
        ] = False,
        json: AsJson = False,
    ) -> None:
        if images is None and known.images_required and not no_files:
            raise InputError(
                "--images: expected the folder or URL prefix of the image files, found none; --no-files makes"
                " the manifest without them"
            )
        from trust_cache.manifest.build_manifest import build_manifest

        made = build_manifest(
            known.name, metadata, out, images=images, look=not no_files, overwrite=overwrite
        )
        _show(made, json=json)

    build.__doc__ = (
        f"{known.help}\n\nPrints warnings to stderr. If files are missing, lists them in a file in the"
        " manifest's folder; the exit code is then 1."
    )
    command(manifests, *(f"manifest {known.name} {words}" for words in known.examples), name=known.name)(
        build
    )


for _known in KNOWN_DATASETS:
    _register(_known)


def _show(built: "BuiltManifest", *, json: bool) -> None:
    from trust_cache.manifest.cases import count_incomplete
    from trust_cache.manifest.manifest_checks import counted

    warn(str(found) for found in built.findings)
    if built.warnings_file is not None:
        note(f"Every case and image with a warning is listed in {built.warnings_file}.")
    if json:
        show_json(built.as_document())
    else:
        counts = built.counts
        say(
            f"Written to {built.manifest.path}: {counted(counts.images, 'image')}"
            f" of {counted(counts.cases, 'case')}; positive are {counted(counts.positive_images, 'image')}"
            f" of {counted(counts.positive_cases, 'case')}."
        )
    if built.missing:
        table = built.manifest.table
        usable = ~table["image_id"].is_in([file.image_id for file in built.missing]).to_numpy()
        warn([f"{built.manifest.path}: {count_incomplete(table, usable).sentence(str(built.missing_file))}"])
        raise typer.Exit(FILES_MISSING)
