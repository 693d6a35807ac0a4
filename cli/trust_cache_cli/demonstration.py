"""The command demo."""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache_cli.options import Log, Verbose
from trust_cache_cli.output import console, note, say, show_list, show_table, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trust_cache.service.demo.steps import Listener
    from trust_cache.service.demo.whole import Demonstration

EXAMPLES = """
**Example**

    trust-cache demo --out demo/
"""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog=EXAMPLES)(demo)


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to put it (1 GB).")] = Path("demo"),
    cases: Annotated[
        int | None, typer.Option(metavar="N", help="A smaller cohort of features, of N cases. [NLBS's size]")
    ] = None,
    image_cases: Annotated[
        int | None, typer.Option(metavar="N", help="A cohort of images of N cases. [150]")
    ] = None,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Go the whole way on invented data: DICOMs, pictures, features, heads, certificates, pages.

    What an earlier start left whole is used again. Needs `trust-cache[extract]`.
    """
    from trust_cache.base.errors import InputError

    try:
        from trust_cache.service.demo.from_images import CASES
        from trust_cache.service.demo.whole import run_demo
    except ImportError as error:
        raise InputError(
            f"the demonstration encodes images and {error.name} is missing: install trust-cache[extract]"
        ) from error
    with _bar() as listen:
        made = run_demo(out, listen, image_cases=image_cases or CASES, feature_cases=cases)
    _show_images(made)
    _show_features(made)
    show_list(console(), "Look at", _places(made))
    show_list(console(), "Try next", _next(made))
    say(console(), "Everything here is invented: the figures mean nothing clinically.", style="bold")


def _show_images(made: "Demonstration") -> None:
    part = made.images
    warn(part.warnings)
    ranks = "not defined" if part.auroc is None else f"{part.auroc:.2f}"
    say(
        console(),
        f"\nFrom images: {part.images - part.failed} of {part.images} files were usable (some are broken on"
        f" purpose). With random weights, small images and long training the case AUROC is {ranks}.",
    )


def _show_features(made: "Demonstration") -> None:
    from trust_cache.certificate.tables import paper_table, sentences

    part = made.features
    warn(part.certification.warnings)
    show_table(console(), paper_table(part.certification))
    show_list(console(), "In words", sentences(part.certification))
    holds = "agrees" if part.verification.holds else "does not agree"
    say(
        console(),
        f"Verified: {part.verification.certificate} {holds} with the scores of {part.folders['run']}.\n",
    )


def _places(made: "Demonstration") -> tuple[str, ...]:
    return (
        f"{made.features.report}: the page of the full-size cohort, with all studies",
        f"{made.images.report}: the page of the small cohort",
        f"{made.images.sheet}: its pictures",
        f"{made.features.folders['certified']}/table.md: the table above, and the certificates beside it",
    )


def _next(made: "Demonstration") -> tuple[str, ...]:
    return (
        f"trust-cache show {made.features.folders['run']} {made.features.folders['certified']}",
        f"trust-cache sweep {made.features.cache} --grid lr=1e-5,3e-5,1e-4 --out lr/",
        "trust-cache certify scores.csv --out certified/   (your own: case_id, label, score)",
        "trust-cache manifest rsna train.csv --images train_images/ --out manifest.csv   (your own images)",
    )


@contextmanager
def _bar() -> "Iterator[Listener]":
    """Say each step, and show people how far the one under way is."""
    from trust_cache.service.demo.steps import Listener

    out = console(error=True)
    if not out.is_terminal:
        yield Listener(step=note)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("  "), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out, transient=True) as progress:
        task = progress.add_task("", total=None)

        def step(title: str) -> None:
            progress.console.print(title, style="dim", markup=False, highlight=False)
            progress.reset(task, total=None)

        yield Listener(step=step, part=lambda done, of: progress.update(task, completed=done, total=of))
