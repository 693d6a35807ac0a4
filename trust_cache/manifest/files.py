"""Looking for the image files of a manifest: which are missing, empty, or in another folder."""

import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from trust_cache.base.errors import InputError
from trust_cache.base.places import is_url
from trust_cache.manifest.findings import Findings, Item, Severity, counted, finding
from trust_cache.manifest.table import ManifestImage

_THREADS = 8  # a network's file system answers each question late, several at once
_AT_ONCE = 500
_MISSING = "missing"


@dataclass(frozen=True)
class MissingFile:
    """An image without a usable file, and why."""

    image_id: str
    case_id: str
    path: str
    reason: str


def look_for_files(images: Iterable[ManifestImage], folder: Path | None) -> list[MissingFile]:
    """Return the images of local paths that have no file with anything in it, in their order.

    What is not where it should be is looked for under `folder`, the user's folder of images, if there is
    one; if nothing at all is where it should be, that folder is the wrong one: an error.
    """
    looked = [(image, image.location) for image in images if image.location and not is_url(image.location)]
    chunks = [looked[first : first + _AT_ONCE] for first in range(0, len(looked), _AT_ONCE)]
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(lambda chunk: [_state(location) for _, location in chunk], chunks)
        states = [state for part in found for state in part]
    wrong = [(image, state) for (image, _), state in zip(looked, states, strict=True) if state]
    absent = [image for image, state in wrong if state == _MISSING]
    elsewhere: dict[str, tuple[str, ...]] = {}
    if absent and folder is not None:
        elsewhere = _find(folder, {_name(image) for image in absent})
        if len(absent) == len(looked):
            _refuse_none(absent, folder, elsewhere.get(_name(absent[0]), ()))
    return [
        MissingFile(image.image_id, image.case_id, str(image.path), _reason(image, state, elsewhere))
        for image, state in wrong
    ]


def files_present(missing: Sequence[MissingFile]) -> Findings:
    """Every image has a file with something in it."""
    items = [Item(file.case_id, file.image_id, file.reason) for file in missing]
    summary = f"{counted(len(items), 'image')} without a usable file"
    return finding("files-present", Severity.FAILURE, summary, items)


def _state(location: str) -> str:
    """Return what is wrong with a file, or nothing."""
    try:
        found = os.stat(location)  # noqa: PTH116  (half the time of Path.stat, for tens of thousands)
    except (FileNotFoundError, NotADirectoryError):
        return _MISSING
    except (OSError, ValueError) as error:  # no permission; a NUL in the name
        return f"cannot be looked at ({getattr(error, 'strerror', None) or error})"
    if not stat.S_ISREG(found.st_mode):
        return "not a file"
    return "" if found.st_size else "zero bytes"


def _name(image: ManifestImage) -> str:
    return str(image.path).rsplit("/", 1)[-1]


def _find(folder: Path, names: set[str]) -> dict[str, tuple[str, ...]]:
    """Return where files of these names lie under the folder, with / between the parts."""
    places: dict[str, list[str]] = defaultdict(list)
    for place, _, files in os.walk(folder):
        for name in names.intersection(files):
            places[name].append(Path(place, name).relative_to(folder).as_posix())
    return {name: tuple(sorted(found)) for name, found in places.items()}


def _reason(image: ManifestImage, state: str, elsewhere: Mapping[str, tuple[str, ...]]) -> str:
    places = elsewhere.get(_name(image), ())
    # Only a name that occurs once tells: NLBS has the same file names in many folders.
    if state == _MISSING and len(places) == 1:
        return f"{_MISSING}; a file of that name lies at {places[0]}"
    return state


def _refuse_none(absent: Sequence[ManifestImage], folder: Path, places: Sequence[str]) -> None:
    hint = f"; a file of that name lies at {folder / places[0]}" if places else ""
    raise InputError(
        f"{folder}: expected the images there, found none of {counted(len(absent), 'file')}"
        f" (the first is {absent[0].location}{hint})."
        " Give their folder by --images, or --no-files to make the manifest without looking"
    )
