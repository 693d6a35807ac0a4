"""The commands sweep, compare and rivals."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache_cli.options import (
    TARGETS,
    AsJson,
    CacheArgument,
    ClusterOptions,
    ColumnOptions,
    Delta,
    Epochs,
    Folds,
    Limit,
    LowMemory,
    OutFolder,
    Overwrite,
    ProtocolOption,
    Repeats,
    Seed,
    SplitFile,
    Targets,
    Threads,
    TrainingOptions,
    command,
    command_group,
    names,
)
from trust_cache_cli.output import bar, bars, note, say, show_json, show_list, show_table, warn

if TYPE_CHECKING:
    from trust_cache.studies.rivals.rivals import RivalsStudy
    from trust_cache.studies.sweep.sweep import Sweep
    from trust_cache.studies.sweep.sweep_training import HeadsReport


SOME_DIVERGED = 1
app = command_group()
NOTES = """
An axis is `name=value,value,...`. `name=low..high:count` (evenly spaced) and `name=low..high:log:count` mean
that many values; a range without a count needs --random. A file has the same as `[grid]`: `margin = [0.05,
0.1]`, `lr = { low = 1e-5, high = 1e-3, scale = "log" }`, and above it `base = "closed-loop"`, `random = 50`.
With --resume an interrupted sweep continues, and with more values it trains only the new settings.
"""


@dataclass(frozen=True)
class SpaceOptions:
    """The settings to train."""

    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AXIS",
            help="A setting and its values; may be repeated: lambda_brier, lambda_focal, focal_gamma,"
            " lambda_dismiss, margin, tau (a number or closed-loop), loop_level, loop_delta, lr,"
            " weight_decay, clip.",
        ),
    ] = None
    file: Annotated[Path | None, typer.Option(metavar="TOML", help="A file with a table of axes.")] = None
    base: Annotated[
        str | None, typer.Option(metavar="NAME", help="The configuration that the axes change. [closed-loop]")
    ] = None
    random: Annotated[
        int | None, typer.Option(metavar="N", help="Draw N settings from the axes instead of the whole grid.")
    ] = None


@command(
    app,
    "sweep cache.zarr --grid lambda_dismiss=0,0.05 --grid margin=0.05,0.1 --out sweep/",
    "sweep cache.zarr --grid lr=1e-5..1e-3:log:5 --grid tau=closed-loop,0.05 --repeats 3 --out s/",
    "sweep cache.zarr --grid lr=1e-5..1e-3:log --grid margin=0..0.3 --random 50 --out sweep/",
    "sweep cache.zarr --file sweep.toml --out sweep/ --scheduler tcp://host:8786",
    notes=NOTES,
    kept="finished heads are kept in {out}; continue with the same command and --resume",
)
def sweep(
    cache: CacheArgument,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to write.")],
    space: SpaceOptions,
    training: TrainingOptions,
    cluster: ClusterOptions,
    repeats: Repeats = 1,
    target: Targets = None,
    delta: Delta = 0.01,
    limit: Limit = None,
    protocol: ProtocolOption = "paper",
    show_evaluation: Annotated[
        bool,
        typer.Option(
            "--show-evaluation",
            help="Fill and mark the evaluation columns of every setting; permanently recorded.",
        ),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the sweep in the folder, or extend it by new settings.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Start a large grid without asking.")] = False,
    json: AsJson = False,
) -> None:
    """Train many settings of a head, and certify the one that wins on the search subset.

    The winner for each target is the setting that dismisses most search cases at its own search threshold. It
    alone is certified, once, on the evaluation cases; the evaluation columns of the others stay empty.
    """
    from trust_cache.api.training_functions import sweep as run
    from trust_cache.manifest.manifest_checks import counted

    with _sweep_bars() as (on_shard, on_heads):
        done = run(
            cache,
            out,
            space.grid or (),
            file=space.file,
            base=space.base,
            random=space.random,
            repeats=repeats,
            targets=tuple(target or TARGETS),
            delta=delta,
            limit=limit,
            protocol=protocol,
            cluster=cluster.cluster(),
            show_evaluation=show_evaluation,
            yes=yes,
            resume=resume,
            on_shard=on_shard,
            on_heads=on_heads,
            **vars(training),
        )
    warn(done.warnings)
    if done.reused:
        note(
            f"trained before and reused: {counted(done.reused, 'head')}; new: {counted(done.trained, 'head')}"
        )
    show_json(done.document.as_document()) if json else _show_sweep(done)
    if done.counts.diverged:
        warn([f"diverged: {counted(done.counts.diverged, 'setting')}, named in {out / 'failures.csv'}"])
        raise typer.Exit(SOME_DIVERGED)


def _show_sweep(done: "Sweep") -> None:
    from trust_cache.studies.sweep.sweep_summary import cautions, reasons, winners_table

    show_table(winners_table(done))
    show_list("Not certified", reasons(done))
    show_list("What this does not say", cautions(done))
    say(f"Written to {done.folder}. A third party recomputes a winner's certificate with")
    for winner in done.winners.values():
        say(f"  trust-cache verify {done.folder / winner.certificate} --scores {done.folder / winner.scores}")


@contextmanager
def _sweep_bars() -> Iterator[tuple[Callable[[int, int], None], Callable[["HeadsReport"], None]]]:
    """Show the shards while they load, then the heads with heads per second."""
    begin = time.monotonic()
    with bars("loading shards", "training heads") as (shards, heads):

        def on_shard(done: int, of: int) -> None:
            nonlocal begin
            begin = time.monotonic()  # training begins after the last shard
            shards.show(done, of)

        def on_heads(report: "HeadsReport") -> None:
            seconds = max(time.monotonic() - begin, 1e-9)
            rate = (report.done - report.reused) / seconds
            heads.show(report.done, report.heads, f"{rate:.1f} heads/s")

        yield on_shard, on_heads


@command(
    app,
    "compare run/ --out compare/",
    "compare scores.csv --out compare/ --reference fixed-tau --target 0.95",
    "compare run/ --out compare/ --margin-points 2 --swaps 20000 --resamples 20000 --json",
    "compare run_b5/ run_b2/ --out compare/ --names b5,b2",
)
def compare(
    scores: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="A run folder (fit-heads, external), or a table with configuration, case_id, label, score;"
            " or several, on caches of the same cases.",
        ),
    ],
    out: OutFolder,
    columns: ColumnOptions,
    run_names: Annotated[
        str | None,
        typer.Option(
            "--names", metavar="NAMES", help="Names of the runs, separated by commas. [their encoders]"
        ),
    ] = None,
    target: Targets = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The configuration that the others are compared with. [closed-loop, else the first]",
        ),
    ] = None,
    resamples: Annotated[
        int, typer.Option(metavar="B", help="Resamples of the cases, for the interval.")
    ] = 2_000,
    swaps: Annotated[int, typer.Option(metavar="B", help="Random swaps, for the test.")] = 2_000,
    seed: Seed = 0,
    resplits: Annotated[
        int, typer.Option(metavar="R", help="Random search/evaluation splits, to count missed targets.")
    ] = 200,
    margin_points: Annotated[
        float,
        typer.Option(metavar="POINTS", help="Margin of non-inferiority, in percentage points of dismissal."),
    ] = 1.0,
    protocol: ProtocolOption = "paper",
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Test whether one configuration dismisses more than another at the same recall.

    Prints a test and an interval on all cases, whether the sign holds in every repeat of the training, the
    spread over single splits, and DeLong's test of the case AUROCs. The data often cannot decide: that is a
    result. Several runs, on caches of the same cases by several encoders and with the same folds, are also
    compared with each other, configuration by configuration.
    """
    from trust_cache.api.study_functions import compare as compare_scores
    from trust_cache.studies.compare.compare_folder import sentences
    from trust_cache.studies.compare.compare_tables import all_tables

    with bar("resplits", resplits) as shown:
        found = compare_scores(
            scores,
            out,
            names=names(run_names),
            targets=tuple(target or TARGETS),
            reference=reference,
            resamples=resamples,
            swaps=swaps,
            seed=seed,
            resplits=resplits,
            margin_points=margin_points,
            protocol=protocol,
            overwrite=overwrite,
            **columns.given(),
            advance=shown.advance,
        )
    comparison = found.comparison
    warn(comparison.warnings)
    if json:
        show_json(comparison.as_document())
        return
    for table in all_tables(comparison):
        show_table(table)
    show_list("In words", sentences(comparison))
    show_list("What this does not say", comparison.limits)
    say(f"Written to {out}.")


@command(
    app,
    "rivals cache.zarr --out rivals/",
    "rivals cache.zarr --out rivals/ --models ce,closed-loop,selectivenet --level 0.02",
    "rivals --scores run/ --out rivals/ --target 0.95 --rules recall,crc,ltt --json",
)
def rivals(
    out: OutFolder,
    columns: ColumnOptions,
    cache: Annotated[
        str | None, typer.Argument(help="A cache of features: a .zarr folder or URL, or an .h5 file.")
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Instead of a cache: a run folder or a table of scores; nothing is trained."
        ),
    ] = None,
    target: Targets = None,
    level: Annotated[
        float, typer.Option(metavar="P", help="The cancer rate among the dismissed to stay below.")
    ] = 0.01,
    delta: Delta = 0.01,
    limit: Limit = None,
    protocol: ProtocolOption = "paper",
    seed: Seed = 0,
    split: SplitFile = None,
    folds: Folds = None,
    models: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Score models, separated by commas. [all]")
    ] = None,
    rules: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Threshold rules, separated by commas. [all]")
    ] = None,
    epochs: Epochs = 20,
    threads: Threads = None,
    low_memory: LowMemory = False,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Compare score models and threshold rules on the same cases, folds and split.

    Score models: the paper's ce and closed-loop heads, logistic regression, SelectiveNet, conformal risk
    training. Rules: the paper's, conformal risk control, RCPS, Learn then Test, SGR. A rule
    that finds no threshold prints how many positives or dismissed cases it needs; that is a result.
    """
    from trust_cache.api.study_functions import rivals as study_rivals
    from trust_cache.studies.rivals.rivals_folder import as_document

    with bar("fitting score models") as shown:
        study = study_rivals(
            cache, out, scores=scores, targets=tuple(target or TARGETS), level=level, delta=delta,
            limit=limit, protocol=protocol, seed=seed, split=split, folds=folds, models=names(models),
            rules=names(rules), epochs=epochs, threads=threads, low_memory=low_memory, overwrite=overwrite,
            on_start=shown.start, advance=shown.advance, **columns.given(),
        )  # fmt: skip
    warn(study.warnings)
    show_json(as_document(study)) if json else _show_study(study, out)


def _show_study(study: "RivalsStudy", out: Path) -> None:
    from trust_cache.studies.rivals.rivals_folder import promises, rivals_table

    show_table(rivals_table(study))
    show_list("What each rule promises", promises(study))
    show_list("What this does not say", study.limits)
    say(f"Written to {out}.")
