"""Look for the image files of a manifest: which are missing, empty, or in another folder."""

import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from trust_cache.base.errors import InputError
from trust_cache.base.places import is_url
from trust_cache.manifest.manifest_checks import Findings, Item, Severity, counted, finding
from trust_cache.manifest.manifest_file import ManifestImage

_THREADS = 8  # a network file system answers slowly, but several requests at once
_CHUNK = 500
_MISSING = "missing"


@dataclass(frozen=True)
class MissingFile:
    """An image without a usable file, and why."""

    image_id: str
    case_id: str
    path: str
    reason: str


def look_for_files(images: Iterable[ManifestImage], folder: Path | None) -> list[MissingFile]:
    """Return the images of local paths that have no file, or an empty one, in their order.

    A missing file is searched for by name under `folder`, the user's folder of images. If no file at all
    is in its place, the folder is the wrong one: an error.
    """
    looked = [(image, image.location) for image in images if image.location and not is_url(image.location)]
    chunks = [looked[first : first + _CHUNK] for first in range(0, len(looked), _CHUNK)]
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(lambda chunk: [_state(location) for _, location in chunk], chunks)
        states = [state for part in found for state in part]
    wrong = [(image, state) for (image, _), state in zip(looked, states, strict=True) if state]
    absent = [image for image, state in wrong if state == _MISSING]
    same_name: dict[str, list[str]] = {}
    if absent and folder is not None:
        same_name = _find(folder, {_name(image) for image in absent})
        if len(absent) == len(looked):
            raise _none_found(absent, folder, same_name.get(_name(absent[0]), ()))
    missing = []
    for image, state in wrong:
        places = same_name.get(_name(image), ())
        # A name that occurs several times is no hint: NLBS has the same file names in many folders.
        hint = f"; a file of that name is at {places[0]}" if state == _MISSING and len(places) == 1 else ""
        missing.append(MissingFile(image.image_id, image.case_id, str(image.path), state + hint))
    return missing


def files_present(missing: Sequence[MissingFile]) -> Findings:
    """Every image has a file that is not empty."""
    items = [Item(file.case_id, file.image_id, file.reason) for file in missing]
    summary = f"{counted(len(items), 'image')} without a usable file"
    return finding("files-present", summary, items, Severity.FAILURE)


def _state(location: str) -> str:
    try:
        found = os.stat(location)  # noqa: PTH116  (half the time of Path.stat, for tens of thousands)
    except (FileNotFoundError, NotADirectoryError):
        return _MISSING
    except (OSError, ValueError) as error:  # no permission; a NUL in the name
        return f"not accessible ({getattr(error, 'strerror', None) or error})"
    if not stat.S_ISREG(found.st_mode):
        return "not a file"
    return "" if found.st_size else "zero bytes"


def _name(image: ManifestImage) -> str:
    return str(image.path).rsplit("/", 1)[-1]


def _find(folder: Path, names: set[str]) -> dict[str, list[str]]:
    """Return the places of files of these names under the folder, with / between the parts."""
    places: dict[str, list[str]] = defaultdict(list)
    for place, _, files in os.walk(folder):
        for name in names.intersection(files):
            places[name].append(Path(place, name).relative_to(folder).as_posix())
    return {name: sorted(found) for name, found in places.items()}


def _none_found(absent: Sequence[ManifestImage], folder: Path, places: Sequence[str]) -> InputError:
    hint = f"; a file of that name is at {folder / places[0]}" if places else ""
    return InputError(
        f"{folder}: expected the images there, found none of {counted(len(absent), 'file')}"
        f" (the first is {absent[0].location}{hint})."
        " Give their folder by --images, or --no-files to make the manifest without looking for them"
    )
