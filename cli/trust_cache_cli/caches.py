"""The commands simulate and cache info, verify, convert, subset, import."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache.base.errors import InputError
from trust_cache_cli.options import AsJson, Log, Verbose
from trust_cache_cli.output import console, say, show_json, show_list

if TYPE_CHECKING:
    from trust_cache.cache.reading import Cache

DAMAGED = 1

SIMULATE_EXAMPLES = """
**Examples**

    trust-cache simulate --like nlbs --out nlbs.zarr

    trust-cache simulate --like rsna --out rsna.h5 --views 4 --seed 1
"""
INFO_EXAMPLES = "**Example**\n\n    trust-cache cache info cache.zarr"
VERIFY_EXAMPLES = "**Example**\n\n    trust-cache cache verify cache.zarr"
CONVERT_EXAMPLES = "**Example**\n\n    trust-cache cache convert cache.zarr --out cache.h5"
SUBSET_EXAMPLES = (
    "**Example**\n\n    trust-cache cache subset cache.zarr --out left.zarr --where laterality=L"
)
IMPORT_EXAMPLES = (
    "**Example**\n\n    trust-cache cache import features.npz --manifest manifest.csv --out cache.zarr"
)

Source = Annotated[str, typer.Argument(metavar="CACHE", help="A .zarr folder or an .h5 file.")]
Out = Annotated[str, typer.Option(metavar="CACHE", help="The cache to write: .zarr or .h5.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog=SIMULATE_EXAMPLES)(simulate)
    caches = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
    caches.command(epilog=INFO_EXAMPLES)(info)
    caches.command(epilog=VERIFY_EXAMPLES)(verify)
    caches.command(epilog=CONVERT_EXAMPLES)(convert)
    caches.command(epilog=SUBSET_EXAMPLES)(subset)
    caches.command("import", epilog=IMPORT_EXAMPLES)(import_)
    app.add_typer(caches, name="cache", help="Look at caches of features, check them, make new ones of them.")


def simulate(
    like: Annotated[str, typer.Option(metavar="SET", help="The data set to resemble: nlbs or rsna.")],
    out: Out,
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

    _say_written(simulate_cache(like, out, views=views, seed=seed, truth_seed=truth_seed, cases=cases))
    say(
        console(),
        f"Invented: the figures mean nothing clinically. Next: trust-cache fit-heads {out} --out run/",
    )


def info(cache: Source, json: AsJson = False, _verbose: Verbose = False, _log: Log = None) -> None:
    """Say what a cache holds and what its features were made by."""
    from trust_cache.cache.information import cache_info
    from trust_cache.cache.reading import open_cache, shown

    found = asdict(cache_info(open_cache(cache)))
    if json:
        show_json(found)
        return
    fingerprint, lacking = found.pop("fingerprint"), found.pop("lacking")
    found["lacking"] = f"{len(lacking)} images ({shown(list(lacking))})" if lacking else "no images"
    show_list(console(), cache, (f"{name}: {value}" for name, value in found.items()))
    show_list(console(), "made by", (f"{name}: {value}" for name, value in fingerprint.items()))


def verify(cache: Source, json: AsJson = False, _verbose: Verbose = False, _log: Log = None) -> None:
    """Read a whole cache and name everything that is not as it was written; exit code 1 if anything is."""
    from trust_cache.cache.verification import verify_cache

    problems = verify_cache(cache)
    if json:
        show_json([asdict(problem) for problem in problems])
    elif problems:
        show_list(console(), f"{cache} is not whole:", (problem.sentence for problem in problems))
    else:
        say(console(), f"{cache} is as it was written.", style="green")
    if problems:
        raise typer.Exit(DAMAGED)


def convert(cache: Source, out: Out, _verbose: Verbose = False, _log: Log = None) -> None:
    """Copy a cache to another place or format, bit for bit."""
    from trust_cache.cache.copies import convert_cache

    _say_written(convert_cache(cache, out))


def subset(
    cache: Source,
    out: Out,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Keep images with this value; may be repeated."),
    ] = None,
    present: Annotated[
        bool, typer.Option("--present", help="Leave out images that have no features.")
    ] = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Make a cache of some of the images."""
    from trust_cache.cache.copies import subset_cache

    pairs = dict(_pair(word) for word in where or [])
    _say_written(subset_cache(cache, out, pairs, present_only=present))


def import_(
    features: Annotated[
        Path,
        typer.Argument(help="A .npy file, or a .npz with `features`: [image, dim] or [image, view, dim]."),
    ],
    manifest: Annotated[
        Path, typer.Option(metavar="FILE", help="The manifest, its rows in the order of the features.")
    ],
    out: Out,
    encoder: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What made them: equal names may be evaluated externally."),
    ] = None,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Make a cache of features that were made elsewhere."""
    from trust_cache.cache.importing import import_features

    _say_written(import_features(features, manifest, out, encoder=encoder))


def _pair(word: str) -> tuple[str, str]:
    column, equals, value = word.partition("=")
    if not equals:
        raise InputError(f"where: expected COLUMN=VALUE, found {word!r}")
    return column, value


def _say_written(cache: "Cache") -> None:
    cases = cache.manifest["case_id"].n_unique()
    say(
        console(),
        f"Written to {cache.source}: {cache.images:,} images of {cases:,} cases, {cache.views} views,"
        f" {cache.dim} features.",
    )
