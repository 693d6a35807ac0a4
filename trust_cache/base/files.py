"""Write files and folders of results atomically and durably: complete, or not at all."""

import errno
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import BinaryIO, Literal
from uuid import uuid4

from trust_cache.base.errors import InputError, StoppedError

PARTIAL = ".partial"  # suffix of an unfinished file; a killed process may leave one
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NAMES_SHOWN = 3
_UNFINISHED = re.compile(rf"(.+)\.[0-9a-f]{{32}}{re.escape(PARTIAL)}")
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP}  # some network file systems, for folders


def write_durably(path: Path, parts: Iterable[bytes | memoryview], *, private: bool = False) -> None:
    """Replace `path` by a file of these parts, synced to the disk, or leave it untouched.

    A new file that is `private` has mode 0600; one that was there keeps its mode.
    """
    scratch = path.with_name(f"{path.name}.{uuid4().hex}{PARTIAL}")
    try:
        with open_private(scratch, "xb") if private else scratch.open("xb") as file:
            if private and path.exists():
                scratch.chmod(stat.S_IMODE(path.stat().st_mode))
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    sync(path.parent)


def open_private(path: Path, mode: Literal["ab", "xb"]) -> BinaryIO:
    """Open a file to write or append; a new one can be read and written by this user only (0600)."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


def sync(path: Path) -> None:
    """Sync a file or a folder to the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open folders
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Sync a folder and all its content to the disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def kernel_folder() -> Path:
    """Return the folder for compiled kernels: NUMBA_CACHE_DIR, else one of the user's own."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    return Path(given) if given else Path.home() / ".cache" / "trust-cache" / "numba"


def claim_private(folder: Path) -> None:
    """Make a folder that only this user can write to (0700); OSError where that is impossible.

    An existing one is refused if others can write to it or replace it: they could put code there.
    """
    folder = folder.absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.name == "nt":
        return  # rights are not modes there
    for place in (folder, *folder.resolve().parents):
        found = place.stat()
        # A user's own group has the user's number. The sticky bit keeps others from replacing a folder.
        writable = found.st_mode & (0o002 if found.st_gid == found.st_uid else 0o022)
        sticky = place != folder and found.st_mode & stat.S_ISVTX
        if (writable and not sticky) or found.st_uid not in (os.geteuid(), 0):
            raise PermissionError(errno.EPERM, "others can write to it", str(place))


@contextmanager
def refusals_in_words(source: str) -> Iterator[None]:
    """Turn an error of the operating system on writing into an error of this project."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise StoppedError(
                f"{source}: no space left on the disk; earlier files are unchanged."
                " Free some space and run the same command again"
            ) from error
        raise InputError(f"{source}: cannot write there ({error.strerror or error})") from error


def write_folder(
    out: Path, files: Mapping[str, bytes], *, own: Collection[str], keep: bool = True
) -> Path | None:
    """Make `out` hold exactly `files` (relative name -> content), all of them or none.

    An `out` with the same content is left as it is. Other results of this command (top-level names in
    `own`) are kept: the folder is renamed to the returned name (without `keep` it is then removed). A
    folder with any other file is refused.
    """
    refuse_unknown(out, own=own)
    out = out.resolve() if out.is_symlink() else out  # write to what a link points to
    scratch = out.with_name(f".{out.name}.{uuid4().hex}")
    try:
        with refusals_in_words(str(out)):
            scratch.mkdir(parents=True)
            for name, content in files.items():
                path = scratch / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            sync_tree(scratch)
            kept = _put_in_place(scratch, out)
            if kept is not None and not keep:
                shutil.rmtree(kept)
                return None
            return kept
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_results(out: Path, files: Mapping[str, bytes], *, own: Collection[str], overwrite: bool) -> None:
    """Write the folder of a command's results by the rule of `refuse_existing`."""
    refuse_existing(out, own=own, overwrite=overwrite)
    write_folder(out, files, own=own, keep=False)


def refuse_existing(out: Path, *, own: Collection[str], overwrite: bool, resume: str = "") -> None:
    """Refuse a folder that exists, unless it is to be replaced and holds only files in `own`.

    This is the one rule for outputs: commands call it before their work. `resume` says how to continue what
    is there, for the message.
    """
    refuse_unknown(out, own=own)
    if not overwrite and out.exists() and any(out.iterdir()):
        raise InputError(
            f"{out}: exists already; choose another --out, or {resume or 'replace it with --overwrite'}"
        )


def write_file(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write one file atomically, replacing an earlier one; see `write_durably` for `private`."""
    with refusals_in_words(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, [content], private=private)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a name to write to; at the end that file replaces `path`, after an error `path` is as it was."""
    scratch = path.with_name(f"{path.name}.{uuid4().hex}{PARTIAL}")
    with refusals_in_words(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield scratch
            sync(scratch)
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)
        sync(path.absolute().parent)


def write_keeping(path: Path, content: bytes, *, private: bool = False) -> Path | None:
    """Write one file; an earlier file with other content is kept under the returned name."""
    if not path.is_file() or path.read_bytes() == content:
        write_file(path, content, private=private)
        return None
    new = path.with_name(f"{path.name}.{uuid4().hex}{PARTIAL}")
    with refusals_in_words(str(path)):
        try:
            write_durably(new, [content], private=private)
            kept = _replace_keeping(new, path)
        finally:
            new.unlink(missing_ok=True)
        sync(path.absolute().parent)
    return kept


def refuse_current(out: Path) -> None:
    """Refuse to replace the current folder or one above it."""
    if Path.cwd().is_relative_to(out.resolve()):
        raise InputError(f"{out}: is the folder you are in or one above it; name a new folder")


def refuse_unknown(out: Path, *, own: Collection[str]) -> None:
    """Refuse an output folder with files that this command does not write."""
    refuse_current(out)
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"{out}: expected a folder for the results, found a file; choose another name")
    unknown = sorted(path.name for path in out.iterdir() if _finished_name(path.name) not in own)
    if unknown:
        shown = ", ".join(unknown[:_NAMES_SHOWN]) + (", ..." if unknown[_NAMES_SHOWN:] else "")
        raise InputError(
            f"{out}: expected a new or empty folder, found files that this command does not write"
            f" ({shown}); choose another --out"
        )


def _finished_name(name: str) -> str:
    """Return the name that an unfinished file would have got; any other name as it is."""
    found = _UNFINISHED.fullmatch(name)
    return name if found is None else found[1]


def _put_in_place(scratch: Path, out: Path) -> Path | None:
    if out.exists():
        if _content(out) == _content(scratch):
            return None
        if any(out.iterdir()):
            kept = _replace_keeping(scratch, out)
            sync(out.parent)
            return kept
        out.rmdir()
    scratch.rename(out)
    sync(out.parent)
    return None


def _replace_keeping(new: Path, out: Path) -> Path:
    """Rename `out` to a free name, which is returned, and `new` to `out`: both or neither."""
    kept = _free_name(out)
    out.rename(kept)
    try:
        new.rename(out)
    except BaseException:
        kept.rename(out)
        raise
    return kept


def _content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def _free_name(path: Path) -> Path:
    candidates = (path.with_name(f"{path.name}.{number}") for number in count(1))
    return next(candidate for candidate in candidates if not candidate.exists())
