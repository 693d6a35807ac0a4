"""The commands preprocess and images show, synthesize."""

from pathlib import Path
from typing import Annotated

import typer

from trust_cache_cli.options import (
    AllowUrls,
    AsJson,
    ClusterOptions,
    Decoder,
    Like,
    Seed,
    Workers,
    command,
    command_group,
)
from trust_cache_cli.output import bar, say, show_json, warn

SOME_FAILED = 1
_WARNINGS_SHOWN = 5
app, images = command_group(), command_group()
app.add_typer(images, name="images", help="Show the steps of an image; make synthetic DICOMs.")


@command(
    app,
    "preprocess manifest.csv --out png/ --sheet sheet.png",
    "preprocess s3://bucket/manifest.csv --out s3://bucket/png --scheduler tcp://host:8786",
    kept="finished pictures are kept in {out}; the same command resumes",
)
def preprocess(
    manifest: Annotated[str, typer.Argument(help="A manifest of DICOM files; a path or a URL.")],
    out: Annotated[str, typer.Option(metavar="DIR", help="The folder of PNGs to write; a path or a URL.")],
    cluster: ClusterOptions,
    workers: Workers = None,
    sheet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a contact sheet of the results.")
    ] = None,
    decoder: Decoder = "imagecodecs",
    allow_urls: AllowUrls = False,
) -> None:
    """Convert every DICOM of a manifest to a canonical 16-bit breast PNG.

    Resumes an interrupted run: a picture whose DICOM file, laterality and bytes are as recorded is kept,
    anything else is made again. An image that fails keeps its row in the manifest of the pictures, with its
    label and an empty path; failures.csv lists the reasons, and the exit code is then 1. warnings.csv lists
    warnings about pictures.
    """
    from trust_cache.api.image_functions import preprocess as preprocess_all
    from trust_cache.base.places import join
    from trust_cache.images.image_failures import FAILURES, WARNINGS
    from trust_cache.manifest.manifest_checks import counted

    with bar("preprocessing") as shown:
        run = preprocess_all(
            manifest,
            out,
            workers=cluster.cluster() or workers,
            sheet=sheet,
            decoder=decoder,
            allow_urls=allow_urls,
            on_start=shown.start,
            advance=shown.advance,
        )
    warn(map(str, run.warnings[:_WARNINGS_SHOWN]))
    if len(run.warnings) > _WARNINGS_SHOWN:
        more = len(run.warnings) - _WARNINGS_SHOWN
        warn([f"and {counted(more, 'more warning')}; {join(out, WARNINGS)} lists all"])
    good = run.images - len(run.failures)
    changed = f" {run.changed:,} of them changed: made again." if run.changed else ""
    say(
        f"Written to {out}: {good:,} of {counted(run.images, 'image')},"
        f" {run.reused:,} of them before.{changed}"
    )
    if run.failures:
        warn([f"{out}: {run.incomplete.sentence(join(out, FAILURES))}"])
        raise typer.Exit(SOME_FAILED)


@command(images, "images show image.dcm --out steps.png")
def show(
    file: Annotated[Path, typer.Argument(help="A DICOM mammogram.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The picture to write (.png).")],
    laterality: Annotated[
        str | None, typer.Option(metavar="L|R", help="Which breast it is. [from the header, else L]")
    ] = None,
) -> None:
    """Write the steps of one image side by side with titles: decoded, breast found, picture.

    Of an image that fails, the picture shows the steps that it reached and the reason; the exit code is then
    2.
    """
    from trust_cache.api.image_functions import show_image

    drawn = show_image(file, out, laterality=laterality)
    warn(drawn.warnings)
    rows, columns = drawn.shape
    say(f"Written to {out}: decoded, mask and crop ({rows} x {columns}), by {drawn.decoder}.")


@command(
    images,
    "images synthesize --like rsna --cases 150 --out synthetic/",
    "images synthesize --like nlbs --cases 20 --out synthetic/ --size full --broken 0.1",
    kept="finished files are kept in {out}; the same command resumes",
)
def synthesize(
    like: Like,
    cases: Annotated[
        int, typer.Option(metavar="N", help="The number of cases, each with four or more images.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the files and their metadata.")],
    seed: Seed = 0,
    size: Annotated[
        str, typer.Option(metavar="small|full", help="Images of about 280x220 pixels, or of the real sizes.")
    ] = "small",
    prevalence: Annotated[float, typer.Option(metavar="P", help="The share of cases with a lesion.")] = 0.3,
    contrast: Annotated[
        float, typer.Option(metavar="C", help="How much brighter than tissue a lesion is, 0 to 1.")
    ] = 0.35,
    broken: Annotated[
        float, typer.Option(metavar="P", help="The share of files broken on purpose, listed in broken.csv.")
    ] = 0.0,
    workers: Workers = None,
    json: AsJson = False,
) -> None:
    """Make synthetic mammograms as DICOM files, in the layout of a public data set."""
    from trust_cache.api.image_functions import synthesize_images
    from trust_cache.manifest.manifest_checks import counted

    with bar("drawing") as shown:
        cohort = synthesize_images(
            like, cases, out, workers=workers, on_start=shown.start, advance=shown.advance, seed=seed,
            size=size, prevalence=prevalence, lesion_contrast=contrast, broken=broken,
        )  # fmt: skip
    positive = len({image.case_id for image in cohort.images if image.label})
    if json:
        show_json(
            {
                "folder": str(cohort.folder),
                "metadata": str(cohort.metadata),
                "images": len(cohort.images),
                "cases": cases,
                "positive_cases": positive,
                "broken": cohort.broken,
            }
        )
        return
    broken_files = counted(len(cohort.broken), "broken file")
    damaged = f" {broken_files}: see {out / 'broken.csv'}." if cohort.broken else ""
    say(
        f"Written to {out}: {counted(len(cohort.images), 'image')} of {counted(cases, 'case')},"
        f" {positive:,} of them with a"
        f" lesion.{damaged}"
    )
    say(
        "Synthetic images: results from them have no clinical meaning. Next:"
        f" trust-cache manifest {like} {cohort.metadata} --images {out} --out manifest.csv"
    )
