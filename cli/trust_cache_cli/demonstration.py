"""The command demo."""

from pathlib import Path
from typing import Annotated

import typer

from trust_cache_cli.certificates import show_certification
from trust_cache_cli.options import Log, Verbose
from trust_cache_cli.output import console, say, warn

EXAMPLES = """
**Example**

    trust-cache demo --out demo/
"""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog=EXAMPLES)(demo)


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to put it.")] = Path("demo"),
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Certify synthetic scores in the shape of a screening cohort, to see what comes out."""
    from trust_cache.service.demo import run_demo

    shown = run_demo(out)
    warn(shown.certification.warnings)
    show_certification(shown.certification, shown.certified)
    screen = console()
    holds = "agrees" if shown.verification.holds else "does not agree"
    say(screen, f"\nVerified: {shown.verification.certificate} {holds} with {shown.scores}.")
    say(
        screen,
        "These scores are invented; the figures mean nothing clinically. Look at"
        f" {shown.certified}/table.md, then try your own scores:"
        " trust-cache certify scores.csv --out certified/",
    )
