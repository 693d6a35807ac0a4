"""The commands report and show."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from trust_cache_cli.options import Log, Prevalence, SplitFile, Targets, Verbose
from trust_cache_cli.output import console, note, progress, say, show_list, show_table, warn

REPORT_EXAMPLES = """
**Examples**

    trust-cache report run/ --out report.html

    trust-cache report run/ certified/ external/ sweep/ compare/ --out report.html --figures figures/

    trust-cache report run/ --out report.html --by site --prevalence 0.005
"""
SHOW_EXAMPLES = """
**Examples**

    trust-cache show run/

    trust-cache show run/ certified/
"""

Delta = Annotated[float | None, typer.Option(help="One minus the confidence of the bounds. [0.01]")]
Seed = Annotated[int | None, typer.Option(help="The seed of the search/evaluation split. [0]")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog=REPORT_EXAMPLES)(report)
    app.command(epilog=SHOW_EXAMPLES)(show)


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [FOLDER]...",
            help="A run folder (or a CSV of scores), and what else is to stand on the page: folders of"
            " certify, external, sweep, compare, in any order.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The HTML page to write.")],
    figures: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Also write every figure as SVG and PNG, every table as md, tex and csv."
        ),
    ] = None,
    configuration: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The configuration to lead with. [closed-loop, else by search]"),
    ] = None,
    target: Targets = None,
    delta: Delta = None,
    seed: Seed = None,
    split: SplitFile = None,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Also bounds for each group of a column.")
    ] = None,
    prevalence: Prevalence = None,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Make one page of a run that works offline: the result, an explorer, figures, tables, provenance.

    With a certified folder the page shows its very points and certificates; without, the run is certified
    as `certify` would by these options.
    """
    from trust_cache.base.errors import InputError
    from trust_cache.base.files import refuse_foreign
    from trust_cache.report.evidence import Options
    from trust_cache.report.report import make_report
    from trust_cache.report.writing import OWN, named_figures, write_figures, write_report

    if out.suffix.lower() not in {".html", ".htm"}:
        raise InputError(f"--out: expected the name of an .html file, found {out}")
    if out.is_dir():
        raise InputError(f"--out: expected the name of an .html file, found the folder {out}")
    if figures is not None:
        refuse_foreign(figures, own=OWN)
    options = Options(_targets(target), delta, seed, split, by, prevalence, configuration)
    made = make_report(folders, options, sys.argv[2:])
    size = write_report(made, out)
    warn(made.evidences[0].certification.warnings)
    screen = console()
    say(screen, f"Written to {out} ({size / 1e6:.1f} MB). It needs no network: open it in any browser.")
    if figures is None:
        return
    with progress("figures", len(named_figures(made))) as advance:
        kept = write_figures(made, figures, advance)
    if kept is not None:
        note(f"{figures} held other results: they are kept in {kept}")
    say(screen, f"Figures and tables for a paper: {figures}")


def show(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [CERTIFIED]", help="A run folder or a CSV of scores, and its certified folder."
        ),
    ],
    target: Targets = None,
    delta: Delta = None,
    seed: Seed = None,
    split: SplitFile = None,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Print the essentials of a run: verdicts, what they mean, and how tau moved during training."""
    from trust_cache.report.evidence import Options, gather
    from trust_cache.report.folders import sort_folders
    from trust_cache.report.terminal import essentials

    screen = console()
    options = Options(_targets(target), delta, seed, split)
    for evidence in gather(sort_folders(folders), options):
        found = essentials(evidence)
        warn(found.warnings)
        say(screen, found.title, style="bold")
        show_table(screen, found.table)
        for title, items in (
            ("In words", found.sentences),
            ("Why N/A", found.reasons),
            ("Tau by epoch", found.courses),
            ("What this does not say", found.limits),
        ):
            if items:
                show_list(screen, title, items)


def _targets(target: list[float] | None) -> tuple[float, ...] | None:
    return None if target is None else tuple(target)
