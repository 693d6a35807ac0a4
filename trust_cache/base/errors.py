"""Expected errors, each with the exit code of the command line, and the commonest checks."""

from collections.abc import Sequence
from datetime import date
from difflib import get_close_matches

_NAMES_SHOWN = 5


class TrustCacheError(Exception):
    """Base of all expected errors: the message says what was expected, found, where, what to do."""

    exit_code = 70


class InputError(TrustCacheError, ValueError):
    """Wrong use or bad input; nothing was written."""

    exit_code = 2


class StoppedError(TrustCacheError):
    """The work stopped early (a full disk, a lost cluster) and can be resumed."""

    exit_code = 3


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known one, if any is near."""
    nearest = get_close_matches(name, known, n=1, cutoff=0.4)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def shown(names: Sequence[str]) -> str:
    """Return the first few names for a message."""
    return ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")


def check_least(name: str, value: float, least: int = 0) -> None:
    """Refuse a value below `least`."""
    if value < least:
        raise InputError(f"{name}: expected {least} or more, found {value}")


def check_fraction(name: str, value: float) -> None:
    """Refuse a value that is not strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise InputError(f"{name}: expected a fraction strictly between 0 and 1, found {value}")


def parse_day(text: str, name: str) -> date:
    """Read a date as YYYY-MM-DD."""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{name}: expected a date as YYYY-MM-DD, found {text!r}") from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class."""
    return (str(error).splitlines() or [type(error).__name__])[0]
