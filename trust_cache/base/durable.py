"""Files that are on the disk once a call returns, and disk errors in words."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from trust_cache.base.errors import InputError, StoppedError

PARTIAL = ".partial"  # ends the name of a file under way; a kill may leave it behind
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP}  # some network file systems, for folders


def write_durably(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Replace `path` by a file of these parts: whole and synced with its folder, or untouched."""
    scratch = path.with_name(f"{path.name}.{uuid4().hex}{PARTIAL}")
    try:
        with scratch.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Force a file or a folder to the disk: a rename is only as durable as what it names."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Force a folder with all that is in it to the disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


@contextmanager
def refusals_in_words(source: str) -> Iterator[None]:
    """Turn an operating system's refusal to write into an error of ours."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise StoppedError(
                f"{source}: no room left on the disk; what was there before is unchanged."
                " Make room and run the same command again"
            ) from error
        raise InputError(f"{source}: cannot write there ({error.strerror or error})") from error
