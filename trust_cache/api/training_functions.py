"""The functions of the commands fit-heads, external, sweep and trajectories."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from trust_cache.api.certificate_functions import SHOWN, TARGETS, describe_point, point_table
from trust_cache.api.result import PlottedResult, lifted
from trust_cache.base.errors import InputError
from trust_cache.base.executor import Cluster
from trust_cache.cache.cache_reader import Cache
from trust_cache.certificate.certification import CertifySettings
from trust_cache.certificate.evidence import evidence_of
from trust_cache.certificate.score_table import read_scores
from trust_cache.heads.fit import OnEpoch, Run
from trust_cache.heads.fit import fit_heads as fit
from trust_cache.heads.head_settings import HeadSettings, choose_configurations
from trust_cache.heads.run_folder import RunFolder, summarise_run
from trust_cache.manifest.protocol import PAPER, Protocol, find_protocol
from trust_cache.studies.external import External, evaluate_externally
from trust_cache.studies.sweep.sweep import Sweep
from trust_cache.studies.sweep.sweep import sweep as run_sweep
from trust_cache.studies.sweep.sweep_folder import read_sweep
from trust_cache.studies.sweep.sweep_request import describe_space
from trust_cache.studies.sweep.sweep_training import OnHeads

if TYPE_CHECKING:
    import altair as alt

    from trust_cache.figures.figure import Figure

Configurations = Mapping[str, HeadSettings] | Sequence[str] | None
OnShard = Callable[[int, int], None]


def _silent(_done: int, _of: int) -> None:
    """Report nothing."""


def chosen_configurations(configurations: Configurations) -> Mapping[str, HeadSettings] | None:
    """Return configurations by name; names are presets or .toml files."""
    if configurations is None or isinstance(configurations, Mapping):
        return configurations
    return choose_configurations([configurations] if isinstance(configurations, str) else configurations)


@dataclass(frozen=True, repr=False)
class RunResult(PlottedResult, Run):
    """A finished run: its folder, warnings and the seconds it took."""

    @property
    def scores(self) -> pl.DataFrame:
        """The out-of-fold scores, one row per configuration and image."""
        return read_scores(self.folder).table

    def to_polars(self) -> pl.DataFrame:
        """Return one row per configuration: its AUROCs and the range of its last thresholds."""
        table = summarise_run(self.folder)
        return pl.DataFrame(table.rows, schema=list(table.header), orient="row")

    def _lines(self) -> Iterator[str]:
        table = summarise_run(self.folder)
        yield f"Run {self.folder}"
        yield table.title
        yield from (f"{name}: case AUROC {value}" for name, value, *_ in table.rows)

    def plot(self) -> "alt.TopLevelMixin":
        """Return tau and the score quantiles of each class by epoch, as an Altair chart."""
        return trajectories(self.folder)


def fit_heads(
    cache: Cache | Path | str,
    out: Path | str,
    *,
    configurations: Configurations = None,
    epochs: int = 20,
    lr: float | None = None,
    weight_decay: float | None = None,
    clip: float | None = None,
    batch_positives: int = 20,
    batch_negatives: int = 60,
    dropout: float = 0.3,
    seed: int = 0,
    views: int | None = None,
    folds: Path | str | None = None,
    repeats: int = 1,
    threads: int | None = None,
    low_memory: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    on_epoch: OnEpoch = lambda _: None,
    on_shard: OnShard = _silent,
) -> RunResult:
    """Train heads on a cache over five folds and write the run folder, with out-of-fold scores.

    `configurations` are names of presets, .toml files or settings by name; by default the paper's five. `lr`,
    `weight_decay` and `clip` replace those of every configuration; `batch_positives` and `batch_negatives`
    are images per batch, `dropout` is the share of features dropped. The same seed gives the same scores,
    byte for byte, on any number of threads. `views` limits training to the first augmented views, `folds`
    reuses a folds.csv. A folder that exists is refused unless `resume` or `overwrite` is set.

    Examples:
        >>> import trust_cache as tc
        >>> cache = tc.simulate("nlbs", "small.zarr", cases=200, views=1)
        >>> run = tc.fit_heads(cache, "run", configurations=["ce", "closed-loop"], epochs=2)
        >>> run.to_polars().columns
        ['Configuration', 'Case AUROC', 'Image AUROC', 'τ of the last epoch, by fold']
    """
    options: dict[str, Any] = {
        "epochs": epochs, "lr": lr, "weight_decay": weight_decay, "clip": clip,
        "batch_positives": batch_positives, "batch_negatives": batch_negatives, "dropout": dropout,
        "seed": seed, "views": views, "folds": folds, "repeats": repeats, "threads": threads,
        "low_memory": low_memory, "resume": resume, "overwrite": overwrite, "on_epoch": on_epoch,
        "on_shard": on_shard,
    }  # fmt: skip
    return lifted(RunResult, fit(cache, out, configurations=chosen_configurations(configurations), **options))


@dataclass(frozen=True, repr=False)
class ExternalResult(PlottedResult, External):
    """An external evaluation: `certification`, `rankings`, the folder and the warnings."""

    def to_polars(self) -> pl.DataFrame:
        """Return one row per point, with the columns of points.csv."""
        return point_table(self.certification.points)

    def _shown(self) -> pl.DataFrame:
        return self.to_polars().select(SHOWN)

    def _lines(self) -> Iterator[str]:
        cohort = self.certification.cohort
        yield f"External evaluation on {cohort.cases:,} cases, {cohort.positives:,} positive"
        yield from map(describe_point, self.certification.points)
        yield f"written to {self.folder}"

    def _figure(self) -> "Figure":
        from trust_cache.figures.curve_figures import recall_figure

        return recall_figure(evidence_of(self.certification))


def external(
    train_cache: Cache | Path | str,
    test_cache: Cache | Path | str,
    out: Path | str,
    *,
    configurations: Configurations = None,
    targets: Sequence[float] = TARGETS,
    delta: float = 0.01,
    seed: int = 0,
    rule: str = "recall",
    by: str | Sequence[str] | None = None,
    prevalence: float | None = None,
    resplits: int = 0,
    limit: float | None = None,
    protocol: Protocol | Path | str = PAPER,
    band: bool = False,
    split: Path | str | None = None,
    folds: Path | str | None = None,
    **training: Any,
) -> ExternalResult:
    """Train on all of one cache, freeze the heads, and certify them on another.

    The run folder has the single fold `external`, with the certificates in certified/ inside it. Thresholds
    come from a search subset of the test cache, bounds from the rest. `by` are columns to group by; by
    default a column of several sites. `training` are the arguments of `fit_heads`: epochs, lr, weight_decay,
    clip, batch_positives, batch_negatives, dropout, views, threads, low_memory, resume, overwrite, on_epoch,
    on_shard.

    Examples:
        >>> import trust_cache as tc
        >>> train = tc.simulate("rsna", "train.zarr", cases=200, views=1)
        >>> test = tc.simulate("nlbs", "test.zarr", cases=400, views=0)
        >>> found = tc.external(train, test, "external", epochs=2)
        >>> found.certified.name
        'certified'
    """
    terms = CertifySettings(
        targets=tuple(targets), delta=delta, seed=seed, rule=rule, prevalence=prevalence,
        by=(by,) if isinstance(by, str) else tuple(by or ()), resplits=resplits, limit=limit,
        protocol=find_protocol(protocol), band=band,
    )  # fmt: skip
    found = evaluate_externally(
        train_cache,
        test_cache,
        out,
        configurations=chosen_configurations(configurations),
        folds=None if folds is None else Path(folds),
        split=None if split is None else Path(split),
        seed=seed,
        terms=terms,
        **training,
    )
    return lifted(ExternalResult, found)


@dataclass(frozen=True, repr=False)
class SweepResult(PlottedResult, Sweep):
    """A finished sweep: `winners` by target, `counts`, the folder and the warnings."""

    def to_polars(self) -> pl.DataFrame:
        """Return the table of all settings (results.csv); evaluation columns only of winners."""
        return read_sweep(self.folder).results

    def _lines(self) -> Iterator[str]:
        yield f"Sweep of {self.counts.settings:,} settings, {self.counts.heads:,} heads"
        yield from (f"{winner.setting}: {describe_point(winner.point)}" for winner in self.winners.values())
        yield f"written to {self.folder}"

    def _figure(self) -> "Figure":
        from trust_cache.figures.sweep_figures import sweep_figure

        read = read_sweep(self.folder)
        figure = sweep_figure(read.document.axes, read.results, read.fold_results)
        if figure is None:
            raise InputError(f"{self.folder}: expected one axis or more to draw, found a single setting")
        return figure


def sweep(
    cache: Cache | Path | str,
    out: Path | str,
    grid: Mapping[str, Sequence[Any]] | Sequence[str] = (),
    *,
    file: Path | str | None = None,
    base: str | None = None,
    random: int | None = None,
    targets: Sequence[float] = TARGETS,
    delta: float = 0.01,
    limit: float | None = None,
    protocol: Protocol | Path | str = PAPER,
    epochs: int = 20,
    seed: int = 0,
    views: int | None = None,
    repeats: int = 1,
    threads: int | None = None,
    low_memory: bool = False,
    cluster: Cluster | None = None,
    show_evaluation: bool = False,
    yes: bool = False,
    resume: bool = False,
    on_shard: OnShard = _silent,
    on_heads: OnHeads = lambda _: None,
) -> SweepResult:
    """Train many settings of a head, and certify the one that wins on the search subset.

    `grid` gives the values of each setting, as a mapping or in the words of the command line
    (`"lr=1e-5..1e-3:log:5"`). `random` draws that many settings from the grid. A sweep that is already in
    `out` is refused, or with `resume` continued and extended.

    Examples:
        >>> import trust_cache as tc
        >>> cache = tc.simulate("nlbs", "swept.zarr", cases=300, views=1)
        >>> found = tc.sweep(cache, "sweep", {"margin": [0.05, 0.1]}, epochs=2)
        >>> found.counts.settings
        2
    """
    words = (
        [f"{name}={','.join(map(str, values))}" for name, values in grid.items()]
        if isinstance(grid, Mapping)
        else grid
    )
    space = describe_space(words, None if file is None else Path(file), base, random)
    options: dict[str, Any] = {
        "epochs": epochs, "seed": seed, "views": views, "repeats": repeats, "targets": tuple(targets),
        "delta": delta, "limit": limit, "protocol": protocol, "threads": threads, "low_memory": low_memory,
        "cluster": cluster, "show_evaluation": show_evaluation, "yes": yes, "resume": resume,
        "on_shard": on_shard, "on_heads": on_heads,
    }  # fmt: skip
    return lifted(SweepResult, run_sweep(cache, out, space, **options))


def trajectories(
    run: Path | str, out: Path | str | None = None, configurations: Sequence[str] | None = None
) -> "alt.TopLevelMixin":
    """Draw tau and the score quantiles of each class by epoch; with `out`, also write the figure.

    Examples:
        >>> import trust_cache as tc
        >>> cache = tc.simulate("nlbs", "drawn.zarr", cases=200, views=1)
        >>> run = tc.fit_heads(cache, "drawn", configurations=["closed-loop"], epochs=2)
        >>> type(tc.trajectories("drawn", "drawn.svg")).__name__
        'ConcatChart'
    """
    from trust_cache.figures.chart_style import require_chart_name, save_chart, with_rows
    from trust_cache.figures.training_figures import trajectory_chart

    if out is not None:
        require_chart_name(Path(out))
    folder = RunFolder(Path(run))
    chart = trajectory_chart(folder.trajectories(), folder.thresholds(), configurations)
    if out is not None:
        save_chart(chart, Path(out))
    return with_rows(chart)
