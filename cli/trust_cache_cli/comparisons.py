"""The command compare."""

from pathlib import Path
from typing import Annotated

import typer

from trust_cache_cli.options import AsJson, Log, Verbose
from trust_cache_cli.output import console, note, progress, say, show_json, show_list, show_table, warn

EXAMPLES = """
**Examples**

    trust-cache compare run/ --out compare/

    trust-cache compare scores.csv --out compare/ --reference fixed-tau --target 0.95

    trust-cache compare run/ --out compare/ --swaps 20000 --resamples 20000 --json
"""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog=EXAMPLES)(compare)


def compare(
    scores: Annotated[
        Path,
        typer.Argument(
            help="A run folder (fit-heads, external), or a CSV with configuration, case_id, label, score."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to write.")],
    target: Annotated[
        list[float] | None,
        typer.Option(metavar="R", help="A recall to compare at; may be repeated. [0.98 and 0.95]"),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The configuration that all others are compared with. [closed-loop, else the first]",
        ),
    ] = None,
    resamples: Annotated[
        int, typer.Option(metavar="B", help="Resamples of the cases, for the interval.")
    ] = 2_000,
    swaps: Annotated[int, typer.Option(metavar="B", help="Random swaps, for the test.")] = 2_000,
    seed: Annotated[int, typer.Option(help="The seed of swaps, resamples and resplits.")] = 0,
    resplits: Annotated[
        int, typer.Option(metavar="R", help="Search/evaluation splits: how often is a target missed?")
    ] = 200,
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Tell whether one configuration really dismisses more than another at the same recall.

    A test and an interval on all cases; the spread over the run's repeats and over single splits stands
    beside them. The data often cannot tell: that is a result.
    """
    from trust_cache.base.files import refuse_foreign
    from trust_cache.studies.compare.compare import compare as compare_scores
    from trust_cache.studies.compare.folder import OWN, as_document, write_comparison
    from trust_cache.studies.compare.tables import all_tables

    refuse_foreign(out, own=OWN)
    with progress("resplits", resplits) as advance:
        comparison = compare_scores(
            scores,
            targets=tuple(target or (0.98, 0.95)),
            reference=reference,
            resamples=resamples,
            swaps=swaps,
            seed=seed,
            resplits=resplits,
            advance=advance,
        )
    kept = write_comparison(comparison, out)
    if kept is not None:
        note(f"{out} held other results: they are kept in {kept}")
    warn(comparison.warnings)
    if json:
        show_json(as_document(comparison))
        return
    screen = console()
    for table in all_tables(comparison):
        show_table(screen, table)
    show_list(screen, "In words", (item.sentence for item in comparison.contrasts))
    show_list(screen, "What this does not say", comparison.limits)
    say(screen, f"Written to {out}.")
