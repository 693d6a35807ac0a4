"""The command fit-heads."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache_cli.options import (
    Epochs,
    Folds,
    Log,
    LowMemory,
    Overwrite,
    Repeats,
    Resume,
    Threads,
    Verbose,
    Views,
)
from trust_cache_cli.output import console, note, say, show_table, warn, work_bars

if TYPE_CHECKING:
    from trust_cache.heads.training import EpochReport

EXAMPLES = """
**Examples**

    trust-cache fit-heads cache.zarr --out run/

    trust-cache fit-heads cache.zarr --out run/ --configurations ce,closed-loop --repeats 5

    trust-cache fit-heads cache.zarr --out run/ --configurations mine.toml --low-memory --resume
"""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("fit-heads", epilog=EXAMPLES)(fit_heads)


def fit_heads(
    cache: Annotated[str, typer.Argument(help="A cache of features: a .zarr folder or an .h5 file.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The run folder to write.")],
    configurations: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Presets by name, separated by commas, and .toml files with more. [the paper's five]",
        ),
    ] = None,
    epochs: Epochs = 20,
    seed: Annotated[int, typer.Option(help="The seed of folds, batches and masks.")] = 0,
    views: Views = None,
    splits: Folds = None,
    repeats: Repeats = 1,
    threads: Threads = None,
    low_memory: LowMemory = False,
    resume: Resume = False,
    overwrite: Overwrite = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Train the heads on cached features over five folds, with the closed-loop threshold.

    Writes out-of-fold scores, thresholds by epoch, the heads and all that is needed to repeat it. Feed the
    folder to `trust-cache certify`.
    """
    from trust_cache.heads.fit import fit_heads as fit
    from trust_cache.heads.settings import choose_configurations

    with training_bars() as (on_shard, on_epoch):
        run = fit(
            cache,
            out,
            configurations=choose_configurations(configurations) if configurations else None,
            epochs=epochs,
            seed=seed,
            views=views,
            splits=splits,
            repeats=repeats,
            threads=threads,
            low_memory=low_memory,
            resume=resume,
            overwrite=overwrite,
            on_shard=on_shard,
            on_epoch=on_epoch,
        )
    warn(run.warnings)
    if run.resumed_folds:
        note(f"{run.resumed_folds} folds were finished before and reused")
    if run.kept is not None:
        note(f"{out} held an earlier run: it is kept in {run.kept}")
    show_run(out)
    screen = console()
    parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in run.seconds.items())
    say(screen, f"Written to {out} ({parts}). Next: trust-cache certify {out} --out certified/")


def show_run(out: Path) -> None:
    """Print how well each configuration of a run ranks."""
    from trust_cache.heads.summary import summarise_run

    show_table(console(), summarise_run(out))


@contextmanager
def training_bars() -> Iterator[tuple[Callable[[int, int], None], Callable[["EpochReport"], None]]]:
    """Show people the shards while they load, then epochs with the latest tau and the time left."""
    with work_bars("training epochs") as (on_shard, on_work):

        def on_epoch(report: "EpochReport") -> None:
            taus = ", ".join(f"tau {tau:.4f} ({name})" for name, tau in list(report.taus.items())[:1])
            on_work(report.done, report.epochs, f"fold {report.fold} epoch {report.epoch} {taus}")

        yield on_shard, on_epoch
