"""File locks of the operating system, which end with their process; the file names the holder."""

import errno
import json
import logging
import os
import socket
import sys
import time
from pathlib import Path
from typing import Self
from weakref import WeakSet

from trust_cache.base.errors import InputError
from trust_cache.base.files import refusals_in_words

_HELD: set[int] = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}
_UNSUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}  # some network file systems
_TRIES, _PAUSE = 100, 0.05  # seconds; for locks that others hold for milliseconds
_logger = logging.getLogger(__name__)

if sys.platform == "win32":
    import msvcrt

    # A locked byte cannot be read on Windows: lock one far behind the text.
    _FAR = 1 << 30

    def _take(handle: int) -> None:
        os.lseek(handle, _FAR, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        os.lseek(handle, 0, os.SEEK_SET)

else:
    import fcntl

    def _take(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


class FileLock:
    """An exclusive lock on `path`, taken at once or refused with the holder's name; a context manager.

    `what` names the locked thing in messages. The lock ends with its process; the file is removed with the
    lock where the system permits.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self.what = what
        self._handle: int | None = None

    def acquire(self) -> Self:
        """Take the lock, or raise an error that names the holder."""
        while self._handle is None:
            try:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                raise InputError(f"{self.what}: cannot write there ({error.strerror or error})") from error
            if not self._lock(handle):
                os.close(handle)
                raise InputError(
                    f"{self.what}: is being written by {self._holder()}; wait until it has finished"
                )
            # Another holder may have removed the file between our opening and our locking it.
            if self._is_current(handle):
                self._handle = handle
            else:
                os.close(handle)
        _HELD_LOCKS.add(self)
        try:
            with refusals_in_words(self.what):
                os.truncate(self._handle, 0)
                holder = {"pid": os.getpid(), "host": socket.gethostname()}
                os.write(self._handle, json.dumps(holder).encode())
        except BaseException:
            self.release()
            raise
        return self

    def wait(self) -> Self:
        """Take the lock; wait a few seconds while another process holds it."""
        for _ in range(_TRIES):
            try:
                return self.acquire()
            except InputError:
                time.sleep(_PAUSE)
        return self.acquire()

    def release(self) -> None:
        """Release the lock if it is held."""
        if self._handle is None:
            return
        if sys.platform != "win32":  # there an open file cannot be removed
            self.path.unlink(missing_ok=True)
        self._close()

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, *_error: object) -> None:
        self.release()

    def _lock(self, handle: int) -> bool:
        try:
            _take(handle)
        except OSError as error:
            if error.errno in _HELD:
                return False
            if error.errno not in _UNSUPPORTED:
                os.close(handle)
                raise
            _logger.warning(
                "%s: this file system has no locks; make sure that no other process writes there", self.what
            )
        return True

    def _is_current(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), self.path.stat())
        except FileNotFoundError:
            return False

    def _holder(self) -> str:
        try:
            holder = json.loads(self.path.read_bytes())
            return f"process {int(holder['pid'])} on {holder['host']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"

    def _close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)
        _HELD_LOCKS.discard(self)


_HELD_LOCKS: WeakSet[FileLock] = WeakSet()


def _drop_inherited() -> None:
    # A forked worker shares the lock: its copy would keep the lock after the holder was killed.
    for lock in list(_HELD_LOCKS):
        lock._close()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_drop_inherited)
