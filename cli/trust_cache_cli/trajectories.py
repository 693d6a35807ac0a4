"""The command trajectories."""

from pathlib import Path
from typing import Annotated

import typer

from trust_cache_cli.options import Log, Verbose
from trust_cache_cli.output import console, say

EXAMPLES = """
**Examples**

    trust-cache trajectories run/ --out trajectories.svg

    trust-cache trajectories run/ --out trajectories.html --configurations fixed-tau,closed-loop
"""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog=EXAMPLES)(trajectories)


def trajectories(
    run: Annotated[Path, typer.Argument(help="A run folder of fit-heads or external.")],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The figure: .svg, .png, .html or .json (Vega-Lite).")
    ],
    configurations: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these, separated by commas. [all]")
    ] = None,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Draw how training went: tau and the score quantiles of either class by epoch."""
    from trust_cache.studies.charts import require_chart_name, save_chart
    from trust_cache.studies.trajectories import choose, read_trajectories, trajectory_chart

    require_chart_name(out)
    found = read_trajectories(run)
    if configurations is not None:
        found = choose(found, [name.strip() for name in configurations.split(",")])
    save_chart(trajectory_chart(found), out)
    say(console(), f"Written to {out}.")
