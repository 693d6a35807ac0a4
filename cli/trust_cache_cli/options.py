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
