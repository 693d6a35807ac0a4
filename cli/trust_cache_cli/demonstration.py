"""The command demo."""

from pathlib import Path
from typing import Annotated

import typer

from trust_cache_cli.certificates import show_certification
from trust_cache_cli.options import Log, Verbose
from trust_cache_cli.output import console, note, say, warn
from trust_cache_cli.training import show_run, training_bars

EXAMPLES = """
**Example**

    trust-cache demo --out demo/
"""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog=EXAMPLES)(demo)


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to put it (0.3 GB).")] = Path("demo"),
    cases: Annotated[
        int | None, typer.Option(metavar="N", help="A smaller cohort of N cases. [NLBS's own size]")
    ] = None,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Go the whole way on an invented cohort: features, heads, scores, certificates.

    What an earlier start left whole is used again.
    """
    from trust_cache.service.demo import run_demo

    with training_bars() as (_, on_epoch):
        shown = run_demo(out, cases=cases, on_step=note, on_epoch=on_epoch)
    warn(shown.certification.warnings)
    show_run(shown.run)
    show_certification(shown.certification, shown.certified)
    screen = console()
    holds = "agrees" if shown.verification.holds else "does not agree"
    say(screen, f"\nVerified: {shown.verification.certificate} {holds} with the scores of {shown.run}.")
    say(
        screen,
        "This cohort is invented; the figures mean nothing clinically. Look at"
        f" {shown.certified}/table.md, then try your own scores:"
        " trust-cache certify scores.csv --out certified/",
    )
