"""The command sweep."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache_cli.options import (
    AsJson,
    Delta,
    Epochs,
    Log,
    LowMemory,
    Repeats,
    Resources,
    Scheduler,
    Targets,
    Threads,
    Verbose,
    Views,
    cluster_of,
)
from trust_cache_cli.output import console, note, say, show_json, show_list, show_table, warn, work_bars

if TYPE_CHECKING:
    from trust_cache.studies.sweep.run import Sweep
    from trust_cache.studies.sweep.training import HeadsReport

EXAMPLES = """
**Examples**

    trust-cache sweep cache.zarr --grid lambda_dismiss=0,0.05 --grid margin=0.05,0.1 --out sweep/

    trust-cache sweep cache.zarr --grid lr=1e-5..1e-3:log:5 --grid tau=closed-loop,0.05 --repeats 3 --out s/

    trust-cache sweep cache.zarr --grid lr=1e-5..1e-3:log --grid margin=0..0.3 --random 50 --out sweep/

    trust-cache sweep cache.zarr --file sweep.toml --out sweep/ --scheduler tcp://host:8786

An axis is `name=value,value,...`; `name=low..high:count` (evenly) or `name=low..high:log:count` are that many
values; without a count a range is for --random. A file has the same as `[grid]`: `margin = [0.05, 0.1]`,
`lr = { low = 1e-5, high = 1e-3, scale = "log" }`, and `base = "closed-loop"`, `random = 50` above it.
The same command again goes on where it stopped; with more values it trains only what is new.
"""
FAILED = 1


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog=EXAMPLES)(sweep)


def sweep(
    cache: Annotated[str, typer.Argument(help="A cache of features: a .zarr folder or URL, or an .h5 file.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to write, go on with or extend.")],
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AXIS",
            help="A setting and its values; may be repeated: lambda_brier, lambda_focal, gamma,"
            " lambda_dismiss, margin, tau (a number or closed-loop), level, delta, lr, weight_decay, clip.",
        ),
    ] = None,
    file: Annotated[Path | None, typer.Option(metavar="TOML", help="A file with a table of axes.")] = None,
    base: Annotated[
        str | None, typer.Option(metavar="NAME", help="The configuration that the axes change. [closed-loop]")
    ] = None,
    random: Annotated[
        int | None, typer.Option(metavar="N", help="Draw N settings from the axes instead of the whole grid.")
    ] = None,
    epochs: Epochs = 20,
    seed: Annotated[int, typer.Option(help="The seed of folds, batches, masks, split and draws.")] = 0,
    views: Views = None,
    repeats: Repeats = 1,
    target: Targets = None,
    delta: Delta = 0.01,
    threads: Threads = None,
    low_memory: LowMemory = False,
    show_evaluation: Annotated[
        bool,
        typer.Option(
            "--show-evaluation",
            help="Fill every setting's evaluation columns, and mark them; recorded for good.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Start a large grid without asking.")] = False,
    json: AsJson = False,
    scheduler: Scheduler = None,
    resources: Resources = None,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Train many settings of a head as banks, and certify the one that wins on the search subset.

    The winner for each target is the setting that dismisses most search cases at its own search threshold. It
    alone is certified, once, on the evaluation cases; the others' evaluation columns stay empty.
    """
    from trust_cache.studies.sweep.description import describe_space
    from trust_cache.studies.sweep.run import sweep as run

    space = describe_space(grid or (), file, base, random)
    with sweep_bars() as (on_shard, on_heads):
        done = run(
            cache,
            out,
            space,
            epochs=epochs,
            seed=seed,
            views=views,
            repeats=repeats,
            targets=tuple(target or (0.98, 0.95)),
            delta=delta,
            threads=threads,
            low_memory=low_memory,
            cluster=cluster_of(scheduler, resources),
            show_evaluation=show_evaluation,
            yes=yes,
            on_shard=on_shard,
            on_heads=on_heads,
        )
    warn(done.warnings)
    if done.reused:
        note(f"{done.reused:,} heads were trained before and reused, {done.trained:,} are new")
    if json:
        show_json(done.document)
    else:
        show_sweep(done)
    if done.diverged:
        warn([f"{done.diverged:,} settings diverged; {out / 'failures.csv'} names them"])
        raise typer.Exit(FAILED)


def show_sweep(done: "Sweep") -> None:
    """Print the winners and what they do not say."""
    from trust_cache.studies.sweep.summary import cautions, reasons, winners_table

    screen = console()
    show_table(screen, winners_table(done))
    if why := reasons(done):
        show_list(screen, "Why N/A", why)
    show_list(screen, "What this does not say", cautions(done))
    say(screen, f"Written to {done.folder}. A third party recomputes a winner's certificate with")
    for winner in done.winners.values():
        say(
            screen,
            f"  trust-cache verify {done.folder / winner.certificate_file}"
            f" --scores {done.folder / winner.scores_file}",
        )


@contextmanager
def sweep_bars() -> Iterator[tuple[Callable[[int, int], None], Callable[["HeadsReport"], None]]]:
    """Show people the shards while they load, then heads with heads/s and the time left."""
    begin = time.monotonic()
    with work_bars("training heads") as (show_shard, on_work):

        def on_shard(done: int, of: int) -> None:
            nonlocal begin
            begin = time.monotonic()  # of the training, once the last shard is there
            show_shard(done, of)

        def on_heads(report: "HeadsReport") -> None:
            seconds = max(time.monotonic() - begin, 1e-9)
            rate = (report.done - report.reused) / seconds
            on_work(report.done, report.heads, f"{rate:.1f} heads/s")

        yield on_shard, on_heads
