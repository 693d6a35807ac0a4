"""The commands simulate and cache info, verify, convert, subset, import, export."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache.base.errors import InputError
from trust_cache_cli.options import (
    AsJson,
    AugmentedViews,
    CacheArgument,
    Like,
    OutCache,
    Seed,
    command,
    command_group,
)
from trust_cache_cli.output import say, show_json, show_list, warn

if TYPE_CHECKING:
    from trust_cache.cache.cache_reader import Cache


DAMAGED = 1
app, caches = command_group(), command_group()
app.add_typer(caches, name="cache", help="Inspect, verify, copy, import and export caches of features.")


@command(
    app,
    "simulate --like nlbs --out nlbs.zarr",
    "simulate --like rsna --out rsna.h5 --views 4 --seed 1",
    "simulate --like nlbs --out benign.zarr --cases 300 --preset benign",
    kept="{out} is unfinished; delete it and run the same command again",
)
def simulate(
    like: Like,
    out: OutCache,
    views: AugmentedViews = 8,
    seed: Seed = 0,
    truth_seed: Annotated[
        int, typer.Option(help="Seed of the true direction, which several cohorts may share.")
    ] = 0,
    cases: Annotated[
        int | None, typer.Option(metavar="N", help="The number of cases. [as in the data set]")
    ] = None,
    patients: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of patients with two or three cases, which are alike. [as in the preset]",
        ),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The law of the features: plain, subtypes, hard-positives, benign, heavy-tails, sites,"
            " view-noise, correlated, patients or mixed.",
        ),
    ] = "plain",
) -> None:
    """Write a cache of synthetic features with a known truth, in the shape of a public data set."""
    from trust_cache.synthetic.feature_cohort import simulate_cache

    made = simulate_cache(
        like,
        out,
        views=views,
        seed=seed,
        truth_seed=truth_seed,
        cases=cases,
        patients=patients,
        preset=preset,
    )
    _say_written(made)
    say(f"Synthetic data: the results have no clinical meaning. Next: trust-cache fit-heads {out} --out run/")


@command(caches, "cache info cache.zarr")
def info(cache: CacheArgument, json: AsJson = False) -> None:
    """Print what a cache contains and how its features were made."""
    from trust_cache.base.errors import shown
    from trust_cache.cache.cache_reader import open_cache
    from trust_cache.cache.verify_cache import cache_info
    from trust_cache.manifest.data_terms import label_warnings, terms_of
    from trust_cache.manifest.manifest_checks import counted

    opened = open_cache(cache)
    found = asdict(cache_info(opened))
    _warn_of_failed(opened)
    warn(label_warnings(terms_of(opened.manifest)))
    if json:
        show_json(found)
        return
    fingerprint, failed = found.pop("fingerprint"), found.pop("failed")
    found["failed"] = f"{counted(len(failed), 'image')} ({shown(list(failed))})" if failed else "no images"
    show_list(cache, (f"{name}: {value}" for name, value in found.items()))
    show_list("made by", (f"{name}: {value}" for name, value in fingerprint.items()))


@command(caches, "cache verify cache.zarr")
def verify(cache: CacheArgument, json: AsJson = False) -> None:
    """Verify all checksums of a cache and list mismatches; exit code 1 if there are any.

    Pending images are a mismatch. Failed images are not: they were tried, and only a warning counts them.
    """
    from trust_cache.cache.cache_reader import open_cache
    from trust_cache.cache.known_stores import require_place
    from trust_cache.cache.verify_cache import verify_cache

    require_place(cache)
    problems = verify_cache(cache)
    opens = all(problem.kind == "unfinished" for problem in problems)
    if json:
        show_json([asdict(problem) for problem in problems])
    elif problems:
        state = "unfinished" if opens else "damaged"
        show_list(f"{cache} is {state}:", (problem.sentence for problem in problems))
    else:
        say(f"{cache} is intact: all checksums match.", style="green")
    if opens:
        _warn_of_failed(open_cache(cache))
    if problems:
        raise typer.Exit(DAMAGED)


@command(
    caches,
    "cache convert cache.zarr --out cache.h5",
    kept="{out} is unfinished; delete it and run the same command again",
)
def convert(cache: CacheArgument, out: OutCache) -> None:
    """Copy a cache to another place or format, bit for bit."""
    from trust_cache.cache.copy_cache import convert_cache

    _say_written(convert_cache(cache, out))


@command(
    caches,
    "cache subset cache.zarr --out left.zarr --where laterality=L",
    kept="{out} is unfinished; delete it and run the same command again",
)
def subset(
    cache: CacheArgument,
    out: OutCache,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Keep images with this value; may be repeated."),
    ] = None,
) -> None:
    """Copy some of the images of a cache into a new one.

    The column case_label keeps the label of each image's whole case. Failed images stay rows without
    features.
    """
    from trust_cache.cache.copy_cache import subset_cache

    pairs = dict(_pair(word) for word in where or [])
    _say_written(subset_cache(cache, out, pairs))


@command(
    caches,
    "cache import features.parquet --manifest manifest.csv --out cache.zarr --encoder dinov2",
    "cache import features.npz --array features --manifest manifest.csv --out cache.h5 --encoder b2",
    name="import",
    kept="{out} is unfinished; delete it and run the same command again",
)
def import_(
    features: Annotated[
        Path,
        typer.Argument(
            help="A Parquet or Arrow file with image_id and features, a row for each image (and view); or a"
            " .npy or .npz file of [image, dim] or [image, view, dim] in the manifest's order, or in that"
            " of the array image_id of an .npz file."
        ),
    ],
    out: OutCache,
    manifest: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The manifest of the images. [the columns of the table]"),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The encoder that made them; `external` needs two caches of the same encoder.",
        ),
    ] = None,
    array: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The column of the table (or the start of the names of its numbered columns), or the array"
            " of the .npz file, that holds the features.",
        ),
    ] = "features",
) -> None:
    """Make a cache of features that another program made.

    A row whose features are empty is a failed image: it stays a row without features, and its case is
    reviewed. An image of the manifest that has no row is refused.
    """
    from trust_cache.api.data_functions import import_features

    _say_written(import_features(features, manifest, out, encoder=encoder, array=array))


@command(
    caches,
    "cache export cache.zarr --out features.parquet",
    "cache export cache.zarr --out features.arrow --views 0",
)
def export(
    cache: CacheArgument,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The file: .parquet, .arrow or .feather, .npy or .npz."),
    ],
    views: Annotated[
        int | None, typer.Option(metavar="K", help="Augmented views; 0 is the clean view alone. [all]")
    ] = None,
) -> None:
    """Write the features of a cache to one file for other programs.

    A Parquet or Arrow file has a row for each image and view, with the manifest's columns, the number of the
    view, and the features as float32, empty for a failed image. A .npy or .npz file has float16 features
    [image, view, dim], NaN for a failed image, and the manifest beside it.
    """
    from trust_cache.api.data_functions import export_features

    made = export_features(cache, out, views=views)
    beside = "" if made.manifest is None else f", the manifest to {made.manifest}"
    say(f"Written to {out}{beside}: {made.images:,} images, {made.views} views, {made.dim} features.")
    if made.failed:
        warn([f"{made.failed:,} images have no features: theirs are empty in {out}"])
    warn(made.warnings)


def _pair(word: str) -> tuple[str, str]:
    column, equals, value = word.partition("=")
    if not equals:
        raise InputError(f"where: expected COLUMN=VALUE, found {word!r}")
    return column, value


def _warn_of_failed(cache: "Cache") -> None:
    from trust_cache.cache.cache_reader import failed_warning

    warning = failed_warning(cache)
    warn([] if warning is None else [warning])


def _say_written(cache: "Cache") -> None:
    from trust_cache.base.text_tables import describe_views
    from trust_cache.manifest.manifest_checks import counted

    cases = counted(cache.manifest["case_id"].n_unique(), "case")
    say(
        f"Written to {cache.source}: {counted(cache.images, 'image')} of {cases},"
        f" {describe_views(cache.views - 1)}, {cache.dim} features."
    )
    _warn_of_failed(cache)
