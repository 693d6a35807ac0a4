"""Read the headers and technical tags of many files, in worker processes of limited memory."""

from collections.abc import Sequence

from trust_cache.base.executor import LocalWorkers
from trust_cache.base.limited_workers import map_limited
from trust_cache.images.dicom_file import quiet_pydicom, read_dataset, read_header
from trust_cache.images.image_failures import ImageError
from trust_cache.manifest.dicom_headers import ImageHeader
from trust_cache.manifest.technical_tags import TAG_ELEMENTS, TagValues, tags_of


def read_headers(places: Sequence[str], workers: LocalWorkers | None = None) -> list[ImageHeader | None]:
    """Return the header of each file; None where it cannot be read, which decoding it says in words."""
    return [outcome.value for outcome in map_limited(_header, places, workers=workers)]


def read_tags(places: Sequence[str]) -> list[TagValues]:
    """Return the technical tags of each file; none where it cannot be read."""
    return [outcome.value or {} for outcome in map_limited(_tags, places)]


class HeaderFiles:
    """Reads headers and tags for `build_manifest`, which is to the left of `images`."""

    headers = staticmethod(read_headers)
    tags = staticmethod(read_tags)


def _header(place: str) -> ImageHeader | None:
    try:
        return read_header(place)
    except ImageError:
        return None


def _tags(place: str) -> TagValues:
    try:
        dataset = read_dataset(place, TAG_ELEMENTS, pixels=False)
    except ImageError:
        return {}
    found = {}
    with quiet_pydicom():
        for name in TAG_ELEMENTS:
            try:
                found[name] = str(dataset.get(name) or "")
            except Exception:  # noqa: S112 - pydicom converts an element when it is first used; a damaged one is absent
                continue
    return tags_of(found)
