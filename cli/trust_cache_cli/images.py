"""The commands preprocess and images show, synthesize."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from trust_cache.base.errors import InputError
from trust_cache_cli.options import Log, Resources, Scheduler, Verbose, cluster_of
from trust_cache_cli.output import console, say, warn
from trust_cache_cli.synthesis import SYNTHESIZE_EXAMPLES, synthesize

SOME_FAILED = 1
_WARNINGS_SHOWN = 5

PREPROCESS_EXAMPLES = """
**Examples**

    trust-cache preprocess manifest.csv --out png/ --sheet sheet.png

    trust-cache preprocess s3://bucket/manifest.csv --out s3://bucket/png --scheduler tcp://host:8786
"""
SHOW_EXAMPLES = """
**Example**

    trust-cache images show image.dcm --out steps.png
"""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog=PREPROCESS_EXAMPLES)(preprocess)
    images = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
    images.command(epilog=SHOW_EXAMPLES)(show)
    images.command(epilog=SYNTHESIZE_EXAMPLES)(synthesize)
    app.add_typer(images, name="images", help="Look at the steps of an image; make synthetic DICOMs.")


def preprocess(
    manifest: Annotated[str, typer.Argument(help="A manifest of DICOM files; a path or a URL.")],
    out: Annotated[str, typer.Option(metavar="DIR", help="The folder of PNGs to write; a path or a URL.")],
    workers: Annotated[int | None, typer.Option(metavar="N", help="Processes. [all cores]")] = None,
    sheet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a contact sheet of the results.")
    ] = None,
    scheduler: Scheduler = None,
    resources: Resources = None,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Turn every DICOM of a manifest into a canonical 16-bit breast PNG.

    Goes on where an earlier start stopped. Images that fail are listed in failures.csv, and the exit code
    is then 1; the others are done all the same.
    """
    from trust_cache.base.places import join, list_names
    from trust_cache.images.preprocess import preprocess as preprocess_all
    from trust_cache.images.sheet import write_sheet

    with _bar() as (on_start, advance):
        run = preprocess_all(
            manifest,
            out,
            workers=cluster_of(scheduler, resources) or workers or os.cpu_count() or 1,
            on_start=on_start,
            advance=advance,
        )
    warn(run.warnings[:_WARNINGS_SHOWN])
    if len(run.warnings) > _WARNINGS_SHOWN:
        warn([f"and {len(run.warnings) - _WARNINGS_SHOWN} more such remarks"])
    if sheet is not None:
        write_sheet([join(out, name) for name in sorted(list_names(out)) if name.endswith(".png")], sheet)
    good = run.images - len(run.failures)
    say(console(), f"Written to {out}: {good:,} of {run.images:,} images, {run.reused:,} of them before.")
    if run.failures:
        say(console(), f"{len(run.failures):,} failed: {join(out, 'failures.csv')} says why.")
        raise typer.Exit(SOME_FAILED)


def show(
    file: Annotated[Path, typer.Argument(help="A DICOM mammogram.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The picture to write (.png).")],
    laterality: Annotated[
        str | None, typer.Option(metavar="L|R", help="Which breast it is. [what the header says, else L]")
    ] = None,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Write the steps of one image side by side: decoded, mask, crop."""
    from trust_cache.base.files import write_file
    from trust_cache.images.errors import ImageError
    from trust_cache.images.png import encode_png
    from trust_cache.images.process import cut_breast, prepare_image, tagged_laterality
    from trust_cache.images.reading import read_dataset
    from trust_cache.images.settings import ImageSettings
    from trust_cache.images.steps import draw_steps

    settings = ImageSettings()
    try:
        dataset = read_dataset(file)
        prepared = prepare_image(dataset, laterality or tagged_laterality(dataset) or "L", settings)
    except ImageError as error:
        raise InputError(f"{file}: {error}") from error
    warn(prepared.warnings)
    try:
        processed = cut_breast(prepared, settings)
    except ImageError as error:
        write_file(out, encode_png(draw_steps(prepared, None)))
        raise InputError(f"{file}: {error}; {out} shows the decoded image") from error
    write_file(out, encode_png(draw_steps(prepared, processed)))
    rows, columns = processed.png_pixels.shape
    say(console(), f"Written to {out}: decoded, mask and crop ({rows} x {columns}), by {processed.decoder}.")


@contextmanager
def _bar() -> Iterator[tuple[Callable[[int, int], None], Callable[[], None]]]:
    """Show people the images done, the rate and the time left."""
    out = console(error=True)
    if not out.is_terminal:
        yield (lambda _images, _reused: None), (lambda: None)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("preprocessing"), BarColumn(), MofNCompleteColumn(), TextColumn("images"),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=out, transient=True) as progress:
        task = progress.add_task("", total=None, rate="")

        def on_start(images: int, reused: int) -> None:
            progress.update(task, total=images, completed=reused)

        def advance() -> None:
            progress.advance(task)
            speed = progress.tasks[0].speed
            progress.update(task, rate=f"{speed:.1f}/s" if speed else "")

        yield on_start, advance
