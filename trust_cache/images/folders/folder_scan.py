"""Account for every entry of a folder of DICOM files: an image, a known harmless object, or unexplained.

Headers are read in worker processes of limited memory: nobody knows yet what the files are.
"""

import os
import stat
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trust_cache.base.executor import LocalWorkers
from trust_cache.base.limited_workers import map_limited, problem_of
from trust_cache.images.dicom_file import read_header
from trust_cache.images.image_failures import ImageError
from trust_cache.manifest.dicom_headers import ImageHeader

_IMAGE_SUFFIXES = (".dcm", ".dicom", ".dic", ".ima")
_LITTER = frozenset({".DS_Store", "Thumbs.db", "desktop.ini", ".directory", ".gitkeep"})  # of file managers
_APPLE_DOUBLE = b"\x00\x05\x16\x07"
_PDF = b"%PDF-"
_SNIFFED = 1024  # bytes
_SPECIAL = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

What = Literal["folder", "dicom", "other", "own", "unexplained"]


@dataclass(frozen=True)
class FolderEntry:
    """One entry of a folder, by its path below it; `problem` is why it cannot be explained."""

    path: Path
    name: str
    what: What
    header: ImageHeader | None = None
    problem: str | None = None
    openable: bool = True  # opening a pipe or a device waits for ever


@dataclass(frozen=True)
class _Unread:
    """A file whose header is not read yet."""

    path: Path
    name: str


@dataclass(frozen=True)
class FolderCounts:
    """How the entries of a folder were accounted for; the parts add up to `entries`."""

    entries: int = 0
    folders: int = 0
    images: int = 0  # that belong to cases
    raw_copies: int = 0  # FOR PROCESSING beside FOR PRESENTATION
    harmless: dict[str, int] = field(default_factory=dict)  # DICOM objects without an image, by kind
    other_files: int = 0  # texts, PDFs and files of file managers
    own: int = 0  # the worklist and its journal
    unexplained: int = 0  # each is a row of its own, and a reason for review of the cases beside it

    def __post_init__(self) -> None:
        parts = self.folders + self.images + self.raw_copies + self.other_files + self.own + self.unexplained
        if parts + sum(self.harmless.values()) != self.entries:
            raise AssertionError(f"{self.entries} entries were not accounted for: {self}")

    @property
    def sentence(self) -> str:
        """The counts in one line."""
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in sorted(self.harmless.items()))
        harmless = sum(self.harmless.values())
        used = _listed((self.folders, "folder", "folders"), (self.images, "image", "images"))
        ignored = _listed(
            (self.raw_copies, "raw image (FOR PROCESSING)", "raw images (FOR PROCESSING)"),
            (harmless, f"harmless object ({kinds})", f"harmless objects ({kinds})"),
            (self.other_files, "other file", "other files"),
            (self.own, "file of the worklist", "files of the worklist"),
        )
        parts = (
            used,
            f"ignored: {ignored}" if ignored else "",
            f"not explained: {self.unexplained:,}" if self.unexplained else "",
        )
        total = "1 entry" if self.entries == 1 else f"{self.entries:,} entries"
        return f"{total}: {'; '.join(filter(None, parts)) or 'none'}"


def _listed(*parts: tuple[int, str, str]) -> str:
    """List numbers with their nouns, of one and of several; none of zero."""
    return ", ".join(f"{number:,} {one if number == 1 else more}" for number, one, more in parts if number)


def list_entries(
    folder: Path, own: Collection[Path] = (), workers: LocalWorkers | None = None
) -> list[FolderEntry]:
    """Return every entry below a folder, sorted; `own` are files and folders of this program."""
    found = list(_entries(folder, folder, {path.absolute() for path in own}))
    known = [entry for entry in found if isinstance(entry, FolderEntry)]
    files = [entry for entry in found if isinstance(entry, _Unread)]
    return sorted([*known, *_inspect_all(files, workers)], key=lambda entry: entry.name)


def _inspect_all(files: Sequence[_Unread], workers: LocalWorkers | None) -> Iterator[FolderEntry]:
    """Yield what each file is; a header that ended or filled its process is a problem of its file."""
    for outcome in map_limited(_inspect, files, workers=workers):
        if outcome.value is not None:
            yield outcome.value
        elif outcome.error is not None:
            why = f"read: the header: {problem_of(outcome.error)}"
            yield FolderEntry(outcome.item.path, outcome.item.name, "unexplained", problem=why)


def count_entries(entries: Collection[FolderEntry], raw_copies: int) -> FolderCounts:
    """Count entries by what they are; `raw_copies` of the images are ignored."""
    counts = Counter(entry.what for entry in entries)
    without_study = sum(
        entry.header is not None and entry.header.kind != "harmless" and not entry.header.study
        for entry in entries
    )
    harmless = Counter(
        entry.header.name for entry in entries if entry.header is not None and entry.header.kind == "harmless"
    )
    return FolderCounts(
        entries=len(entries),
        folders=counts["folder"],
        images=counts["dicom"] - harmless.total() - raw_copies - without_study,
        raw_copies=raw_copies,
        harmless=dict(harmless),
        other_files=counts["other"],
        own=counts["own"],
        unexplained=counts["unexplained"] + without_study,
    )


def _entries(folder: Path, top: Path, own: Collection[Path]) -> Iterator[FolderEntry | _Unread]:
    try:
        with os.scandir(folder) as found:
            paths = sorted(Path(entry.path) for entry in found)
    except OSError as error:
        name = "." if folder == top else _name_below(top, folder)
        why = f"the folder cannot be read ({_words(error)})"
        yield FolderEntry(folder, name, "unexplained", problem=why, openable=False)
        return
    for path in paths:
        name = _name_below(top, path)
        if path.absolute() in own:
            yield FolderEntry(path, name, "own")
            continue
        problem, is_folder = _kind(path)
        if is_folder:
            below = list(_entries(path, top, own))
            unreadable = below and below[0].path == path
            # An unreadable folder is one entry, and it is unexplained.
            yield from below if unreadable else (FolderEntry(path, name, "folder"), *below)
        elif problem is not None:
            yield FolderEntry(path, name, "unexplained", problem=problem, openable=False)
        else:
            yield _Unread(path, name)


def _name_below(top: Path, path: Path) -> str:
    """Return the path of an entry below the folder; bytes that are not UTF-8 are escaped."""
    return path.relative_to(top).as_posix().encode(errors="backslashreplace").decode()


def _kind(path: Path) -> tuple[str | None, bool]:
    """Return why an entry cannot be opened, if so, and whether it is a folder to look into."""
    try:
        link, mode = path.is_symlink(), path.stat().st_mode
    except FileNotFoundError:
        return "a link to nothing", False
    except OSError as error:
        return f"it cannot be opened ({_words(error)})", False
    if stat.S_ISDIR(mode):
        # A link may lead anywhere, also back here.
        return ("a link to a folder, which is not followed", False) if link else (None, True)
    if not stat.S_ISREG(mode):
        return f"{_SPECIAL.get(stat.S_IFMT(mode), 'a special file')}, not a file", False
    return None, False


def _inspect(file: _Unread) -> FolderEntry:
    """Read the header of one file and return what the file is."""
    path, name = file.path, file.name
    try:
        return FolderEntry(path, name, "dicom", read_header(path))
    except ImageError as error:
        if _is_harmless(path):
            return FolderEntry(path, name, "other")
        return FolderEntry(path, name, "unexplained", problem=str(error))


def _is_harmless(path: Path) -> bool:
    """Return whether a file that is not DICOM is a text, a PDF or a file manager's own file."""
    if path.name in _LITTER:
        return True
    suffix = path.suffix.lower()
    if suffix in _IMAGE_SUFFIXES:
        return False
    try:
        with path.open("rb") as file:
            start = file.read(_SNIFFED)
    except OSError:
        return False
    if start.startswith((_APPLE_DOUBLE, _PDF)):
        return True
    text = start.decode("utf-8", errors="ignore")  # a cut character at the end is dropped
    whole = len(text.encode()) >= len(start) - 3
    return bool(text) and whole and all(sign.isprintable() or sign.isspace() for sign in text)


def _words(error: OSError) -> str:
    return error.strerror or "input error"
