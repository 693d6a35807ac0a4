"""Where an image lies: cells of the path column on Linux, macOS and Windows, and for URLs."""

import os
import re
from pathlib import Path, PureWindowsPath
from urllib.parse import quote

from trust_cache.base.errors import InputError
from trust_cache.base.places import is_url

_QUOTED = re.compile(r"https?://", re.IGNORECASE)


def is_absolute(cell: str) -> bool:
    """Tell whether a path starts at a root, of this system or another: /x, C:\\x, \\\\server\\share."""
    return cell.startswith("/") or PureWindowsPath(cell).is_absolute()


def with_slashes(cell: str) -> str:
    """Return a path with / between its parts, which all systems read; a URL stays as it is.

    A backslash is always a separator: metadata written on Windows must work elsewhere.
    """
    return cell if is_url(cell) else cell.replace("\\", "/")


def resolve_path(manifest_path: Path | str, cell: str | None) -> str:
    """Return where an image of a manifest lies: a URL, or a path that the system opens.

    A relative path starts from the manifest's folder (or from the URL's, if the manifest has one).
    """
    if cell is None or not cell:
        raise InputError(f"{manifest_path}: an image has no path; expected one in the column path")
    cell = with_slashes(cell)
    if is_url(cell) or is_absolute(cell):
        return cell
    if is_url(str(manifest_path)):
        return join_url(str(manifest_path).rsplit("/", 1)[0], cell)
    return str(Path(manifest_path).parent / cell)


def join_url(prefix: str, relative: str) -> str:
    """Put a relative path under a URL; http quotes what other schemes take literally (a space, say)."""
    return _with_end(prefix) + (quote(relative) if _QUOTED.match(prefix) else relative)


def images_prefix(images: str, manifest_path: Path) -> str:
    """Return what precedes the paths of a manifest whose images lie under `images`: "" or a text ending in /.

    A URL or an absolute folder stays as given. A relative folder is meant from where the user is and
    becomes relative to the manifest's folder: both can move together.
    """
    images = with_slashes(images)
    if is_url(images) or is_absolute(images):
        return _with_end(images)
    # The system follows links before it goes up by "..": only real folders may be compared as text.
    start = os.path.realpath(manifest_path.parent)
    target = Path(os.path.realpath(images)) if ".." in Path(images).parts else Path(images).absolute()
    try:
        relative = os.path.relpath(target, start)
    except ValueError:  # another drive of Windows
        return _with_end(target.as_posix())
    return "" if relative == "." else _with_end(Path(relative).as_posix())


def place_under(prefix: str, cell: str | None) -> str | None:
    """Return the manifest's cell of an image whose metadata say `cell`, under a prefix of `images_prefix`."""
    if cell is None:
        return None
    cell = with_slashes(cell)
    if is_url(cell) or is_absolute(cell):
        return cell
    cell = cell.removeprefix("./")
    return join_url(prefix, cell) if is_url(prefix) else prefix + cell


def _with_end(prefix: str) -> str:
    return prefix if prefix.endswith("/") else f"{prefix}/"
