"""Compiling the kernels, with the machine code kept for the next start where there is a place for it."""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import numba

log = logging.getLogger(__name__)

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function, *, reorder: bool = False) -> _Function:
    """Compile a function that runs without the interpreter's lock: threads train folds side by side."""
    fast = {"contract", "reassoc", "nsz"} if reorder else {"contract"}
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fast}
    try:
        return numba.njit(cache=True, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError as error:  # no folder to write to: a read-only install without HOME
        log.info("%s is compiled anew at each start: %s", function.__name__, error)
        return numba.njit(**options)(function)  # type: ignore[no-any-return]


def reordered(function: _Function) -> _Function:
    """Compile a function whose plain sums may be taken in the order that vectors like."""
    return compiled(function, reorder=True)
