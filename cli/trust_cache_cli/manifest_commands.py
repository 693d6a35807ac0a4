"""The commands of `manifest`, one per data set of the registry."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from trust_cache.base.errors import InputError
from trust_cache.manifest.datasets.known_datasets import KNOWN_DATASETS, KnownDataset
from trust_cache_cli.options import AsJson, command, command_group
from trust_cache_cli.output import note, say, show_json, warn

if TYPE_CHECKING:
    from trust_cache.manifest.build_manifest import BuiltManifest

FILES_MISSING = 1
Tags: TypeAlias = Annotated[
    bool,
    typer.Option("--tags", help="Add columns of machine and exposure from the headers, for certify --by."),
]
Overwrite: TypeAlias = Annotated[
    bool, typer.Option("--overwrite", help="Replace a different manifest of that name.")
]
app, manifests = command_group(), command_group()
app.add_typer(manifests, name="manifest", help="Build a checked manifest from a data set's metadata.")


def _register(known: KnownDataset) -> None:
    default = "required" if known.images_required else "the folder of METADATA"

    def build(
        metadata: Annotated[list[Path], typer.Argument(metavar="METADATA...", help=known.metadata_help)],
        out: Annotated[Path, typer.Option(metavar="FILE", help="The manifest to write.")],
        images: Annotated[
            str | None,
            typer.Option(metavar="DIR", help=f"The folder or URL prefix of the image files. [{default}]"),
        ] = None,
        no_files: Annotated[
            bool, typer.Option("--no-files", help="Do not look for the image files.")
        ] = False,
        tags: Tags = False,
        overwrite: Overwrite = False,
        json: AsJson = False,
        **options: str | None,
    ) -> None:
        if images is None and known.images_required and not no_files:
            raise InputError(
                "--images: expected the folder or URL prefix of the image files, found none; --no-files makes"
                " the manifest without them"
            )
        from trust_cache.api.data_functions import build_manifest

        made = build_manifest(
            known.name,
            metadata,
            out,
            images=images,
            look=not no_files,
            overwrite=overwrite,
            tags=tags,
            **options,
        )
        _show(made, json=json)

    build.__doc__ = (
        f"{known.help}\n\nPrints warnings to stderr. If files are missing, lists them in a file in the"
        " manifest's folder; the exit code is then 1."
    )
    build.__signature__ = _with_options(build, known)  # type: ignore[attr-defined]
    command(manifests, *(f"manifest {known.name} {words}" for words in known.examples), name=known.name)(
        build
    )


def _with_options(build: Any, known: KnownDataset) -> inspect.Signature:
    """Return the signature of a command with the options that only this data set has."""
    own = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=Annotated[
                str | None, typer.Option(option.flag, metavar="|".join(option.choices), help=option.help)
            ],
        )
        for option in known.options
    ]
    common = [item for item in inspect.signature(build).parameters.values() if item.name != "options"]
    return inspect.Signature([*common, *own])


for _known in KNOWN_DATASETS:
    _register(_known)


@command(
    manifests,
    "manifest dicom dicoms/ --out manifest.csv",
    "manifest dicom dicoms/ --labels labels.csv --tags --out manifest.csv",
)
def dicom(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of DICOM files.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The manifest to write.")],
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A table with label (0/1), one of path, case_id, patient_id, and laterality if labels are of"
            " single breasts. [default: no labels]",
        ),
    ] = None,
    tags: Tags = False,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Build a manifest from the headers of a folder of DICOM files, as `triage` reads them.

    A case is a StudyInstanceUID; a patient is named by the least of them. `triage` takes a manifest without
    labels, `fit-heads` needs them. Images without a label in the table are left out and counted.
    """
    from trust_cache.api.data_functions import build_manifest

    made = build_manifest("dicom", folder, out, labels=labels, tags=tags, overwrite=overwrite)
    _show(made, json=json)


def _show(built: "BuiltManifest", *, json: bool) -> None:
    from trust_cache.manifest.cases import count_incomplete
    from trust_cache.manifest.data_terms import label_warnings, terms_of
    from trust_cache.manifest.manifest_checks import counted

    terms = terms_of(built.manifest.table)
    warn(str(found) for found in built.findings)
    warn(label_warnings(terms))
    if built.entries is not None:
        note(built.entries)
    if built.warnings_file is not None:
        note(f"Every case and image with a warning is listed in {built.warnings_file}.")
    if json:
        show_json(built.as_document())
    else:
        counts = built.counts
        positive = (
            f"positive are {counted(counts.positive_images, 'image')}"
            f" of {counted(counts.positive_cases, 'case')}"
        )
        if built.manifest.table["label"].is_null().all():
            positive = "without labels: for triage, not for training"
        say(
            f"Written to {built.manifest.path}: {counted(counts.images, 'image')}"
            f" of {counted(counts.cases, 'case')}; {positive}."
        )
        for meaning in (text for item in terms for text in item.labels):
            say(f"Positive: {meaning}.")
    if built.missing:
        table = built.manifest.table
        usable = ~table["image_id"].is_in([file.image_id for file in built.missing]).to_numpy()
        warn([f"{built.manifest.path}: {count_incomplete(table, usable).sentence(str(built.missing_file))}"])
        raise typer.Exit(FILES_MISSING)
