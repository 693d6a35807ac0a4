"""The command triage."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache.base.errors import InputError
from trust_cache_cli.options import AsJson, Log, Verbose
from trust_cache_cli.output import console, note, say, show_json, warn

if TYPE_CHECKING:
    from trust_cache.service.triage.triage import Triage

SOME_FAILED = 1
DISCLAIMER = "Research tool, not a medical device: no decision about a person may rest on this list."

EXAMPLES = """
**Examples**

    trust-cache triage dicoms/ --model model/ --weights encoder.safetensors --out worklist.csv

    trust-cache triage new.csv --model model/ --weights encoder.safetensors --out worklist.csv

    trust-cache triage dicoms/ --model model/ --out worklist.csv --uncertified --device cpu --json
"""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog=EXAMPLES)(triage)


def triage(
    dicoms: Annotated[
        Path,
        typer.Argument(
            help="A folder of DICOM files, put together by StudyInstanceUID, laterality and ViewPosition;"
            " or a manifest of them (.csv) with case_id, laterality, projection, path."
        ),
    ],
    model: Annotated[Path, typer.Option(metavar="DIR", help="A model folder of export-model.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The worklist to write (.csv).")],
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The encoder's weights, the very ones of the model. [random, if the model's are]",
        ),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Take cases and views from this table; paths start from DICOMS."),
    ] = None,
    require: Annotated[
        str, typer.Option(metavar="VIEWS", help="The views that make an examination complete.")
    ] = "L-CC,L-MLO,R-CC,R-MLO",
    uncertified: Annotated[
        bool,
        typer.Option(
            "--uncertified", help="Dismiss with a model that has no certificate; every row says so."
        ),
    ] = False,
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto, cpu or cuda; auto is what the model was made on.")
    ] = "auto",
    workers: Annotated[int | None, typer.Option(metavar="N", help="Decoding processes. [all cores]")] = None,
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Score new examinations with a model and write a worklist: dismiss or review.

    **A research tool, not a medical device.** An examination with any failed, missing or unexpected image is
    never dismissed; the column reason says why. Without a certificate everything is review, unless
    --uncertified. Another encoder or preprocessing than the model's, and a model folder with any changed
    byte, are refused. Goes on where an earlier start stopped. Exit code 1 if some examinations could not be
    scored.
    """
    try:
        from trust_cache.service.triage.examinations import parse_required
        from trust_cache.service.triage.triage import TriageSettings
        from trust_cache.service.triage.triage import triage as triage_all
    except ModuleNotFoundError as error:
        raise InputError(
            f'triage: needs the package {error.name}; install with pip install "trust-cache[extract]"'
        ) from error

    settings = TriageSettings(
        weights=weights,
        required=parse_required(require),
        uncertified=uncertified,
        device=device,
        workers=workers if workers is not None else os.cpu_count() or 1,
    )
    note(DISCLAIMER)
    with _bar() as (on_start, advance):
        done = triage_all(dicoms, model, out, settings, manifest=manifest, on_start=on_start, advance=advance)
    if done.kept is not None:
        note(f"{out} held another worklist: it is kept in {done.kept}")
    if done.resumed:
        note(f"{done.resumed:,} examinations were finished before and reused")
    warn(done.warnings)
    if json:
        show_json(_document(done))
    else:
        _show(done)
    if done.failed:
        raise typer.Exit(SOME_FAILED)


def _document(done: "Triage") -> dict[str, object]:
    from dataclasses import asdict

    return {
        "worklist": str(done.out),
        **_counts(done),
        "drift": asdict(done.drift),
        "warnings": list(done.warnings),
        "rows": [asdict(row) for row in done.rows],
    }


def _counts(done: "Triage") -> dict[str, int]:
    return {
        "examinations": len(done.rows),
        "dismissed": sum(row.decision == "dismiss" for row in done.rows),
        "incomplete": sum(not row.complete for row in done.rows),
        "failed": done.failed,
    }


def _show(done: "Triage") -> None:
    counts, screen = _counts(done), console()
    say(
        screen,
        f"Written to {done.out}: {counts['examinations']:,} examinations, {counts['dismissed']:,} dismiss,"
        f" {counts['examinations'] - counts['dismissed']:,} review.",
    )
    if counts["incomplete"]:
        say(
            screen,
            f"{counts['incomplete']:,} are not complete and therefore review ({counts['failed']:,} with an"
            " image that could not be scored): the column reason says why.",
        )
    if done.rows and not done.rows[0].certified:
        dismissed = "dismissed without a certificate" if counts["dismissed"] else "everything is review"
        say(screen, f"The model has no certificate: {dismissed}.")
    say(screen, DISCLAIMER)


@contextmanager
def _bar() -> Iterator[tuple[Callable[[int, int], None], Callable[[], None]]]:
    """Show people the examinations done and the time left."""
    out = console(error=True)
    if not out.is_terminal:
        yield (lambda _examinations, _resumed: None), (lambda: None)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("examinations"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield (
            lambda examinations, resumed: bar.update(task, total=examinations, completed=resumed),
            lambda: bar.advance(task),
        )
