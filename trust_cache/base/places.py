"""Read, write and list files by path or by URL; errors of a store become one sentence."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from trust_cache.base.errors import InputError, StoppedError, TrustCacheError, first_line
from trust_cache.base.files import refusals_in_words, write_file

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


SCHEMES = ("s3", "gs", "gcs", "az", "abfs", "abfss", "http", "https", "file", "memory")
# Two letters at least: C:// is a drive.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]*\]")
# Their errors are about bytes that were read; any other library's are about the store.
_READERS = {*sys.stdlib_module_names, "numcodecs", "numpy", "polars", "zarr"}
_NO_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError"}
_INVALID_NAME = {"ParamValidationError"}
# A path object turns :// into :/. A password may hold a slash, but host:8080/ is a port.
_USER = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/+(?P<user>(?!\[)[^\s/@]*:(?!\d+/)[^\s@]*|[^\s/@]+)@"
)
_CONTAINERS = ("abfs", "abfss", "az")  # abfs://container@account: what precedes the @ is no secret
_NAMES = r"(?:auth|credential|key|keyid|passwd|password|pwd|secret|sig|signature|token)"
_QUERY = re.compile(rf"(?P<name>[?&][^\s=&]*{_NAMES}=)(?:\*{{3}}|[^\s&'\")]+)", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(r"(?:KEY|SECRET|TOKEN|PASSWORD|CONNECTION_STRING)$", re.IGNORECASE)
_SHORTEST_SECRET = 8  # characters; a shorter value could be any word of a message
_HIDDEN = "***"


class RefusedError(InputError):
    """A store that refuses access: wrong credentials or missing rights."""


def is_url(place: str | os.PathLike[str]) -> bool:
    """Tell whether a place is a URL (https://, s3://, file://) rather than a path."""
    return _URL.match(os.fspath(place)) is not None


def redacted(text: str) -> str:
    """Hide the credentials in a message: those inside URLs, and the environment's secrets."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST_SECRET and _SECRET_VARIABLE.search(name):
            text = text.replace(value, _HIDDEN)
    return redacted_urls(text)


def redacted_urls(text: str) -> str:
    """Hide the credentials inside URLs; the same text on every machine."""
    return _QUERY.sub(rf"\g<name>{_HIDDEN}", _USER.sub(_without_user, text))


def refuse_credentials(place: str | os.PathLike[str]) -> None:
    """Refuse a place with a user, a password or a token in its URL: it would be written to records."""
    text = os.fspath(place)
    if any(not _names_container(match) for match in _USER.finditer(text)) or _QUERY.search(text):
        raise InputError(
            f"{redacted_urls(text)}: expected a URL without credentials, found some; give them in the"
            " environment or in the store's own configuration"
        )


def refuse_place(place: str | os.PathLike[str]) -> None:
    """Refuse a URL that may not be opened: of another scheme than SCHEMES, chained, or with credentials."""
    text = os.fspath(place)
    if not is_url(text):
        return
    refuse_credentials(text)
    scheme = text.partition("://")[0].lower()
    if scheme not in SCHEMES:
        known = ", ".join(SCHEMES)
        raise InputError(f"{text}: expected a path or a URL of {known}, found a URL of {scheme}")
    if "::" in _IPV6.sub("", text):
        raise InputError(
            f"{text}: expected the URL of one place, found :: between two; name the place itself"
        )


def join(folder: str, name: str) -> str:
    """Return the place of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}" if is_url(folder) else str(Path(folder) / name)


def absolute(place: str) -> str:
    """Return a place that is independent of the current folder."""
    return place if is_url(place) or not place else str(Path(place).absolute())


def read_bytes(place: str) -> bytes:
    """Read a file; a missing one raises FileNotFoundError."""
    if not is_url(place):
        return Path(place).read_bytes()
    with answers_in_words(place):
        system, path = _system_of(place)
        return bytes(system.cat_file(path))


def write_bytes(place: str, content: bytes) -> None:
    """Write a file atomically, replacing an earlier one."""
    if not is_url(place):
        write_file(Path(place), content)
        return
    with answers_in_words(place):
        system, path = _system_of(place)
        if getattr(system, "auto_mkdir", None) is False:  # file://
            system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        try:
            system.pipe_file(path, content)
        except FileNotFoundError as error:
            raise InputError(redacted(f"{place}: cannot write there ({first_line(error)})")) from error


def remove_file(place: str) -> None:
    """Remove a file; one that is not there is no error."""
    if not is_url(place):
        with refusals_in_words(place):
            Path(place).unlink(missing_ok=True)
        return
    with answers_in_words(place), suppress(FileNotFoundError):
        system, path = _system_of(place)
        system.rm_file(path)


def list_names(folder: str) -> set[str]:
    """Return the names of the files and folders in a folder; none if it does not exist."""
    if not is_url(folder):
        with refusals_in_words(folder):
            return {path.name for path in Path(folder).iterdir()} if Path(folder).is_dir() else set()
    with answers_in_words(folder):
        system, path = _system_of(folder)
        try:
            system.invalidate_cache()  # another process may have written since
            return {item.rstrip("/").rsplit("/", 1)[-1] for item in system.ls(path, detail=False)}
        except (FileNotFoundError, NotADirectoryError):
            return set()


@contextmanager
def answers_in_words(place: str) -> Iterator[None]:
    """Turn errors of a store into errors of this project; a missing file stays FileNotFoundError."""
    try:
        yield
    except (TrustCacheError, FileNotFoundError, MemoryError):
        raise
    except PermissionError as error:
        raise _refused(place, error) from error
    except ImportError as error:
        raise InputError(
            f'{place}: such URLs need another package ({error}); for s3: pip install "trust-cache[cluster]"'
        ) from error
    except ValueError as error:  # a name that is invalid in the store
        raise _invalid(place, error) from error
    except Exception as error:  # each store's library has errors of its own
        if type(error).__name__ in _NO_CREDENTIALS:
            raise _refused(place, error) from error
        if type(error).__name__ in _INVALID_NAME:
            raise _invalid(place, error) from error
        found = redacted(f"{place}: the store does not answer ({type(error).__name__}: {first_line(error)})")
        raise StoppedError(
            f"{found}; finished work is kept. Run the same command again when it does"
        ) from error


def is_of_a_store(error: Exception) -> bool:
    """Tell whether an error is the store's (refused, unreachable) rather than about the bytes read."""
    if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
        return False
    package = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError | ImportError) or package not in _READERS


def _names_container(match: re.Match[str]) -> bool:
    user = match["user"]
    return match["scheme"].lower() in _CONTAINERS and ":" not in user and user != _HIDDEN


def _without_user(match: re.Match[str]) -> str:
    return match[0] if _names_container(match) else f"{match['scheme']}://{_HIDDEN}@"


def _refused(place: str, error: Exception) -> RefusedError:
    found = redacted(f"{place}: the store refuses access ({first_line(error)})")
    return RefusedError(f"{found}; check the credentials and their rights")


def _invalid(place: str, error: Exception) -> InputError:
    return InputError(redacted(f"{place}: not a place that can be opened ({first_line(error)})"))


def _system_of(place: str) -> "tuple[AbstractFileSystem, str]":
    from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra; a laptop has paths

    refuse_place(place)
    system, path = url_to_fs(place)
    return system, path
