"""Folders of results that are either whole or absent, whatever happens while they are written."""

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from uuid import uuid4

from trust_cache.base.durable import refusals_in_words, sync, sync_tree, write_durably
from trust_cache.base.errors import InputError

_NAMES_SHOWN = 3


def write_folder(
    out: Path, files: Mapping[str, bytes], *, own: Collection[str], keep: bool = True
) -> Path | None:
    """Make `out` hold exactly `files` (relative name -> content), all of them or none.

    An `out` that already holds the same is left as it is. Other results of this command (top-level
    names in `own`) are kept: the folder moves to the returned name (without `keep` it is then removed).
    Anything else is refused.
    """
    refuse_foreign(out, own=own)
    out = out.resolve() if out.is_symlink() else out  # a link stays, what it names is written
    scratch = out.with_name(f".{out.name}.{uuid4().hex}")
    try:
        with refusals_in_words(str(out)):
            _write_all(scratch, files)
            kept = _put_in_place(scratch, out)
            if kept is not None and not keep:
                shutil.rmtree(kept)
                return None
            return kept
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_file(path: Path, content: bytes) -> None:
    """Write one file, whole or not at all, in the place of an earlier one."""
    with refusals_in_words(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, [content])


def write_keeping(path: Path, content: bytes) -> Path | None:
    """Write one file; a file with other content in its place is kept under the name returned."""
    kept = None
    with refusals_in_words(str(path)):
        if path.is_file() and path.read_bytes() != content:
            kept = _free_name(path)
            path.rename(kept)
    write_file(path, content)
    return kept


def refuse_current(out: Path) -> None:
    """Refuse to put results in the place of the folder that the user is in."""
    if Path.cwd().is_relative_to(out.resolve()):
        raise InputError(f"{out}: is the folder you are in or one above it; name a new folder")


def refuse_foreign(out: Path, *, own: Collection[str]) -> None:
    """Refuse an output folder with files in it that are not ours to replace."""
    refuse_current(out)
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"{out}: expected a folder for the results, found a file; choose another name")
    foreign = sorted(path.name for path in out.iterdir() if path.name not in own)
    if foreign:
        shown = ", ".join(foreign[:_NAMES_SHOWN]) + (", ..." if foreign[_NAMES_SHOWN:] else "")
        raise InputError(
            f"{out}: expected a new or empty folder, found files that this command does not write"
            f" ({shown}); choose another --out"
        )


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    sync_tree(folder)


def _put_in_place(scratch: Path, out: Path) -> Path | None:
    kept = None
    if out.exists():
        if _content(out) == _content(scratch):
            return None
        if any(out.iterdir()):
            kept = _free_name(out)
            out.rename(kept)
        else:
            out.rmdir()
    scratch.rename(out)
    sync(out.parent)
    return kept


def _content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def _free_name(path: Path) -> Path:
    number = 1
    while (candidate := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return candidate
