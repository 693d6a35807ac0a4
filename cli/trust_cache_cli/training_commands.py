"""The commands fit-heads, external and trajectories."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache_cli.certify_commands import show_certification
from trust_cache_cli.options import (
    TARGETS,
    AsJson,
    CacheArgument,
    CertifyOptions,
    Folds,
    HeadOptions,
    OutRun,
    Repeats,
    RunArgument,
    RunOptions,
    TrainingOptions,
    command,
    command_group,
    names,
)
from trust_cache_cli.output import bars, note, say, show_json, show_table, warn

if TYPE_CHECKING:
    from trust_cache.heads.fit import EpochReport
    from trust_cache.studies.external import External


app = command_group()


def _configurations(default: str) -> object:
    return typer.Option(
        metavar="NAMES",
        help=f"Presets by name, separated by commas, and .toml files with others. [{default}]",
    )


@command(
    app,
    "fit-heads cache.zarr --out run/",
    "fit-heads cache.zarr --out run/ --configurations ce,closed-loop --repeats 5",
    "fit-heads cache.zarr --out run/ --configurations paper,tuned",
    "fit-heads cache.zarr --out run/ --lr 1e-3 --epochs 40 --weight-decay 0.01",
    "fit-heads cache.zarr --out run/ --configurations mine.toml --low-memory --resume",
    name="fit-heads",
    kept="finished folds are kept beside {out}; continue with the same command and --resume, or start over"
    " with --overwrite",
)
def fit_heads(
    cache: CacheArgument,
    out: OutRun,
    training: TrainingOptions,
    heads: HeadOptions,
    run_options: RunOptions,
    configurations: Annotated[list[str] | None, _configurations("the paper's five")] = None,
    folds: Folds = None,
    repeats: Repeats = 1,
) -> None:
    """Train the heads on a cache over five folds, with the closed-loop threshold.

    Writes out-of-fold scores, thresholds by epoch, the heads and everything needed to repeat the run. Pass
    the folder to `trust-cache certify`.
    """
    from trust_cache.api.training_functions import fit_heads as fit
    from trust_cache.heads.run_folder import summarise_run
    from trust_cache.manifest.manifest_checks import counted

    with training_bars() as (on_shard, on_epoch):
        run = fit(
            cache,
            out,
            configurations=configurations or None,
            folds=folds,
            repeats=repeats,
            on_shard=on_shard,
            on_epoch=on_epoch,
            **vars(training),
            **vars(heads),
            **vars(run_options),
        )
    warn(run.warnings)
    if run.resumed_folds:
        note(f"finished before and reused: {counted(run.resumed_folds, 'fold')}")
    show_table(summarise_run(out))
    say(f"Written to {out} ({_durations(run.seconds)}). Next: trust-cache certify {out} --out certified/")


@command(
    app,
    "external rsna.zarr nlbs.zarr --out external/",
    "external rsna.zarr nlbs.zarr --out external/ --target 0.95 --prevalence 0.005 --by none",
    "external rsna.zarr nlbs.zarr --out external/ --protocol screening --limit 0.01",
    "external rsna.zarr nlbs.zarr --out external/ --configurations ce,closed-loop,mine.toml --json",
    kept="what was finished is kept beside {out}; continue with the same command and --resume, or start over"
    " with --overwrite",
)
def external(
    train_cache: Annotated[
        str, typer.Argument(metavar="TRAIN_CACHE", help="The cache to train on, all of it.")
    ],
    test_cache: Annotated[
        str, typer.Argument(metavar="TEST_CACHE", help="The cache to certify on, of the same encoder.")
    ],
    out: OutRun,
    training: TrainingOptions,
    heads: HeadOptions,
    run_options: RunOptions,
    terms: CertifyOptions,
    configurations: Annotated[list[str] | None, _configurations("ce,closed-loop")] = None,
    folds: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Reuse the fit and calibration cases of an external run's folds.csv."
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Certify the same thresholds for each group of a column of TEST_CACHE (age=50,60,70: bands"
            " of numbers); may be repeated; none: no groups. [site_id or site, if there are several]",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Train on all of one data set, freeze the heads, and certify them on another.

    Writes a run folder with the single fold `external`, and the certificates in certified/ inside it. The
    thresholds come from a search subset of TEST_CACHE (20 %), the bounds from the other 80 %.
    """
    from trust_cache.api.training_functions import external as evaluate_externally

    settings = dict(vars(terms))
    settings |= {"targets": settings.pop("target") or TARGETS, "protocol": terms.protocol or "paper"}
    with training_bars() as (on_shard, on_epoch):
        result = evaluate_externally(
            train_cache,
            test_cache,
            out,
            configurations=configurations or None,
            folds=folds,
            by=by,
            **settings,
            on_shard=on_shard,
            on_epoch=on_epoch,
            **vars(training),
            **vars(heads),
            **vars(run_options),
        )
    _show_external(result, as_json=json)


def _show_external(result: "External", *, as_json: bool) -> None:
    from trust_cache.studies.ranking import ranking_table

    if result.resumed:
        note("the heads were trained before and reused")
    if as_json:
        show_json(result.as_document())
    else:
        if result.rankings:
            show_table(ranking_table(result.rankings))
        show_certification(result.certification, result.certified)
        say(f"The run is {result.folder} ({_durations(result.seconds)}).")
    warn(result.warnings)  # last, where they are read


@command(
    app,
    "trajectories run/ --out trajectories.svg",
    "trajectories run/ --out trajectories.html --configurations fixed-tau,closed-loop",
)
def trajectories(
    run: RunArgument,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The figure: .svg, .png, .html or .json (Vega-Lite).")
    ],
    configurations: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these, separated by commas. [all]")
    ] = None,
) -> None:
    """Draw tau and the score quantiles of each class by epoch."""
    from trust_cache.api.training_functions import trajectories as draw

    draw(run, out, names(configurations))
    say(f"Written to {out}.")


def _durations(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())


@contextmanager
def training_bars() -> Iterator[tuple[Callable[[int, int], None], Callable[["EpochReport"], None]]]:
    """Show the shards while they load, then the epochs with the latest tau."""
    with bars("loading shards", "training epochs") as (shards, epochs):

        def on_epoch(report: "EpochReport") -> None:
            taus = ", ".join(f"tau {tau:.4f} ({name})" for name, tau in list(report.taus.items())[:1])
            epochs.show(report.done, report.epochs, f"fold {report.fold} epoch {report.epoch} {taus}")

        yield shards.show, on_epoch
