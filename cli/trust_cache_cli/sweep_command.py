"""The command sweep."""

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
    Delta,
    Limit,
    ProtocolOption,
    Repeats,
    Targets,
    TrainingOptions,
    command,
    command_group,
)
from trust_cache_cli.output import bars, note, say, show_json, show_list, show_table, warn

if TYPE_CHECKING:
    from trust_cache.studies.sweep.sweep import Sweep
    from trust_cache.studies.sweep.sweep_training import HeadsReport


SOME_DIVERGED = 1
app = command_group()
NOTES = """
An axis is `name=value,value,...`. `name=low..high:count` (evenly spaced) and `name=low..high:log:count` mean
that many values; a range without a count needs --random. A file has the same as `[grid]`: `margin = [0.05,
0.1]`, `lr = { low = 1e-5, high = 1e-3, scale = "log" }`, and above it `base = "closed-loop"`, `random = 50`.
The same command resumes an interrupted sweep; with more values it trains only the new settings.
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
)
def sweep(
    cache: CacheArgument,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to write, resume or extend.")],
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
    yes: Annotated[bool, typer.Option("--yes", help="Start a large grid without asking.")] = False,
    json: AsJson = False,
) -> None:
    """Train many settings of a head, and certify the one that wins on the search subset.

    The winner for each target is the setting that dismisses most search cases at its own search threshold. It
    alone is certified, once, on the evaluation cases; the evaluation columns of the others stay empty.
    """
    from trust_cache.api.training_functions import sweep as run

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
            on_shard=on_shard,
            on_heads=on_heads,
            **vars(training),
        )
    warn(done.warnings)
    if done.reused:
        note(f"{done.reused:,} heads were trained before and reused, {done.trained:,} are new")
    show_json(done.document.as_document()) if json else _show_sweep(done)
    if done.counts.diverged:
        warn([f"{done.counts.diverged:,} settings diverged; {out / 'failures.csv'} names them"])
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
