"""Options that every command has: how much to say, and where to keep a record of it."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache.base.errors import InputError

if TYPE_CHECKING:
    from trust_cache.base.work import Cluster

_LOGGER = logging.getLogger("trust_cache")


def _verbose(value: bool) -> bool:
    if value:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        handler.setLevel(logging.INFO)
        _listen(handler)
    return value


def _log(value: Path | None) -> Path | None:
    if value is not None:
        try:
            handler = logging.FileHandler(value, encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(f"{value}: cannot write there ({error.strerror})") from error
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        _listen(handler)
    return value


def _listen(handler: logging.Handler) -> None:
    _LOGGER.setLevel(logging.DEBUG)
    _LOGGER.addHandler(handler)


Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say what is being done.", callback=_verbose)]
Log = Annotated[
    Path | None,
    typer.Option("--log", metavar="FILE", help="Keep a detailed record in FILE.", callback=_log),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Work on the Dask cluster of this scheduler, such as tcp://host:8786."
    ),
]
Resources = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="What a worker of the cluster must offer, such as GPU=1."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]

# How heads are trained, wherever they are.
Epochs = Annotated[int, typer.Option(help="Epochs of training.")]
Views = Annotated[int | None, typer.Option(metavar="K", help="Train on the first K augmented views. [all]")]
Repeats = Annotated[int, typer.Option(metavar="R", help="Train R times with other folds and batches.")]
Folds = Annotated[Path | None, typer.Option(metavar="FILE", help="Reuse the folds of an earlier splits.csv.")]
Threads = Annotated[int | None, typer.Option(help="Processor threads. [all cores]")]
LowMemory = Annotated[bool, typer.Option("--low-memory", help="Map the features instead of loading them.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")]

# How points are certified, wherever they are.
Targets = Annotated[
    list[float] | None,
    typer.Option("--target", metavar="R", help="A recall to keep; may be repeated. [0.98 and 0.95]"),
]
Delta = Annotated[float, typer.Option(help="One minus the confidence of the bounds.")]
SplitFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Reuse the split of an earlier split.csv.")
]
Prevalence = Annotated[
    float | None,
    typer.Option(metavar="P", help="Also bound the false omission rate at this prevalence."),
]
Resplits = Annotated[int, typer.Option(metavar="R", help="Repeat over R other splits: what is one worth?")]
Rule = Annotated[
    str, typer.Option(help="How the threshold is chosen on the search subset: recall, crc or ltt.")
]


def cluster_of(scheduler: str | None, resources: str | None = None) -> "Cluster | None":
    """Return the cluster that --scheduler and --resources mean, if any."""
    from trust_cache.base.work import Cluster

    if scheduler is None:
        if resources is not None:
            raise InputError("--resources: expected --scheduler with it, found none")
        return None
    wanted: dict[str, float] = {}
    for item in (resources or "").split(","):
        name, _, amount = item.partition("=")
        if not item.strip():
            continue
        try:
            wanted[name.strip()] = float(amount or 1)
        except ValueError as error:
            raise InputError(f"--resources: expected NAME=NUMBER, found {item!r}") from error
    return Cluster(scheduler, wanted)
