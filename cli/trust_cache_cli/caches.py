"""The command simulate."""

from pathlib import Path
from typing import Annotated

import typer

from trust_cache_cli.options import Log, Verbose
from trust_cache_cli.output import console, say

EXAMPLES = """
**Examples**

    trust-cache simulate --like nlbs --out nlbs.zarr

    trust-cache simulate --like rsna --out rsna.h5 --views 4 --seed 1
"""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog=EXAMPLES)(simulate)


def simulate(
    like: Annotated[str, typer.Option(metavar="SET", help="The data set to resemble: nlbs or rsna.")],
    out: Annotated[Path, typer.Option(metavar="CACHE", help="The cache to write: .zarr or .h5.")],
    views: Annotated[int, typer.Option(metavar="K", help="Augmented views of each image.")] = 8,
    seed: Annotated[int, typer.Option(help="The seed of the cohort.")] = 0,
    truth_seed: Annotated[
        int, typer.Option(help="The seed of the true direction, which cohorts may share.")
    ] = 0,
    cases: Annotated[
        int | None, typer.Option(metavar="N", help="A smaller cohort of N cases. [the set's own size]")
    ] = None,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Write a cache of invented features with a known truth, in the shape of a public data set."""
    from trust_cache.cache.simulate import simulate_cache

    cache = simulate_cache(like, out, views=views, seed=seed, truth_seed=truth_seed, cases=cases)
    manifest = cache.manifest
    say(
        console(),
        f"Written to {out}: {cache.images:,} images of {manifest['case_id'].n_unique():,} cases,"
        f" {cache.views} views, {cache.dim} features. Invented: the figures mean nothing clinically."
        f" Next: trust-cache fit-heads {out} --out run/",
    )
