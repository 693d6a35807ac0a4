"""The commands manifest rsna, nlbs and csv."""

from pathlib import Path
from typing import Annotated

import typer

from trust_cache_cli.options import AsJson, Log, Verbose
from trust_cache_cli.output import console, note, say, show_json, warn

FILES_MISSING = 1

RSNA_EXAMPLES = """
**Examples**

    trust-cache manifest rsna train.csv --images train_images/ --out manifest.csv

    trust-cache manifest rsna train.csv --images s3://bucket/train_images --out manifest.csv
"""
NLBS_EXAMPLES = """
**Examples**

    trust-cache manifest nlbs NLBSD_Metadata.csv --images NLBSD/ --out manifest.csv

    trust-cache manifest nlbs NLBSD_Metadata.csv --images /mnt/nlbs --out manifest.csv --no-files
"""
CSV_EXAMPLES = """
**Examples**

    trust-cache manifest csv images.csv --out manifest.csv

    trust-cache manifest csv images.csv --images dicoms/ --out manifest.csv --json
"""

Metadata = Annotated[Path, typer.Argument(help="The metadata file as it was downloaded.")]
Table = Annotated[
    Path,
    typer.Argument(
        metavar="METADATA",
        help="A CSV file with image_id, case_id, label (0/1) and, for images, laterality, projection, path.",
    ),
]
Images = Annotated[
    str, typer.Option(metavar="DIR", help="The folder (or URL prefix) that the image files lie under.")
]
TableImages = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Where relative paths start from. [the folder of METADATA]"),
]
Out = Annotated[Path, typer.Option(metavar="FILE", help="The manifest to write.")]
NoFiles = Annotated[bool, typer.Option("--no-files", help="Do not look for the image files.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace another manifest of that name.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    manifests = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
    manifests.command(epilog=RSNA_EXAMPLES)(rsna)
    manifests.command(epilog=NLBS_EXAMPLES)(nlbs)
    manifests.command(epilog=CSV_EXAMPLES)(csv)
    app.add_typer(manifests, name="manifest", help="Turn a data set's metadata into a checked manifest.")


def rsna(
    metadata: Metadata,
    images: Images,
    out: Out,
    no_files: NoFiles = False,
    overwrite: Overwrite = False,
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Make a manifest of RSNA's train.csv, whose files are DIR/patient_id/image_id.dcm.

    Oddities are named on stderr. Exit code 1 where files are missing; they are listed beside the manifest.
    """
    _make("rsna", metadata, images, out, look=not no_files, overwrite=overwrite, json=json)


def nlbs(
    metadata: Metadata,
    images: Images,
    out: Out,
    no_files: NoFiles = False,
    overwrite: Overwrite = False,
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Make a manifest of NLBS's NLBSD_Metadata.csv; DIR holds the folders normal, False Positive, abnormal.

    Oddities are named on stderr. Exit code 1 where files are missing; they are listed beside the manifest.
    """
    _make("nlbs", metadata, images, out, look=not no_files, overwrite=overwrite, json=json)


def csv(
    metadata: Table,
    out: Out,
    images: TableImages = None,
    no_files: NoFiles = False,
    overwrite: Overwrite = False,
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Make a manifest of a table of your own, and check it.

    Oddities are named on stderr. Exit code 1 where files are missing; they are listed beside the manifest.
    """
    _make("csv", metadata, images, out, look=not no_files, overwrite=overwrite, json=json)


def _make(
    kind: str, metadata: Path, images: str | None, out: Path, *, look: bool, overwrite: bool, json: bool
) -> None:
    from trust_cache.manifest.build import as_document, make_manifest, missing_file, oddities_file
    from trust_cache.manifest.findings import counted

    built = make_manifest(kind, metadata, out, images=images, look=look, overwrite=overwrite)
    warn(str(found) for found in built.findings)
    if oddities_file(out).exists():
        note(f"Every odd case and image is listed in {oddities_file(out)}.")
    if json:
        show_json(as_document(built))
    else:
        counts = built.counts
        say(
            console(),
            f"Written to {out}: {counted(counts.images, 'image')} of {counted(counts.cases, 'case')};"
            f" positive are {counted(counts.positive_images, 'image')}"
            f" of {counted(counts.positive_cases, 'case')}.",
        )
        if built.missing:
            say(console(), f"Images without a usable file: {len(built.missing):,}, in {missing_file(out)}.")
    if built.missing:
        raise typer.Exit(FILES_MISSING)
