"""Options that every command has: how much to say, and where to keep a record of it."""

import logging
from pathlib import Path
from typing import Annotated

import typer

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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
