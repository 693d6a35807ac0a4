"""Find the cases to triage in a folder of DICOM files or in a manifest, and list what is wrong with each."""

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from trust_cache.base.errors import shown
from trust_cache.base.executor import LocalWorkers
from trust_cache.images.folders.folder_cases import IncomingCases, IncomingImage, group_cases, scan_folder
from trust_cache.images.folders.header_files import read_headers
from trust_cache.manifest.dicom_headers import disagreements
from trust_cache.manifest.manifest_file import read_unlabelled

NO_PATH = "the manifest has no path. Add the path of its file"


def count_files(source: Path, most: int) -> int:
    """Return how many files a folder or a manifest has, from 1 to `most`; no more of them are counted."""
    with suppress(OSError):  # `find_incoming` says why in words
        if source.is_dir():
            return max(1, sum(1 for _ in islice(_files_below(source), most)))
        with source.open("rb") as lines:
            return max(1, sum(1 for _ in islice(lines, most + 1)) - 1)  # the first is the header
    return 1


def _files_below(folder: Path) -> Iterator[Path]:
    return (Path(place, name) for place, _, names in os.walk(folder) for name in names)


def unlisted_files(folder: Path, incoming: IncomingCases, own: Collection[Path] = ()) -> tuple[str, ...]:
    """Return a warning about the files of a folder that its manifest does not list: nobody looks at them."""
    listed = {Path(image.location).resolve() for case in incoming.cases for image in case.images}
    listed |= {path.resolve() for path in own}
    found = (path for path in _files_below(folder) if path.resolve() not in listed)
    unlisted = sorted(path.relative_to(folder).as_posix() for path in found)
    if not unlisted:
        return ()
    number = "1 file" if len(unlisted) == 1 else f"{len(unlisted):,} files"
    return (f"{folder}: {number} not in the manifest, not looked at ({shown(unlisted)})",)


def find_incoming(
    source: Path,
    manifest: Path | None,
    own: Collection[Path] = (),
    workers: LocalWorkers | None = None,
) -> IncomingCases:
    """Return the cases of a folder, of a manifest, or of a manifest of files in a folder."""
    if manifest is not None:
        return read_case_list(manifest, source, workers)
    if source.suffix.lower() == ".csv" and not source.is_dir():
        return read_case_list(source, workers=workers)
    return scan_folder(source, own, workers)


def read_case_list(
    manifest: Path, folder: Path | None = None, workers: LocalWorkers | None = None
) -> IncomingCases:
    """Read the cases of a manifest; relative paths start at `folder`, by default at the manifest's own.

    An empty cell is a problem of its case. Only a row without a case_id is refused. The headers of a case's
    files must agree with each other.
    """
    images: dict[str, tuple[str, IncomingImage]] = {}
    for row in read_unlabelled(manifest, folder):
        problem = NO_PATH if row.location is None else row.refused
        place = "" if row.refused or row.location is None else row.location
        image = IncomingImage(row.image_id, place, row.laterality, row.projection, problem)
        images[row.image_id] = (row.case_id, image)
    readable = [name for name, (_, image) in images.items() if image.location]
    read = read_headers([images[name][1].location for name in readable], workers)
    headers = {
        name: (images[name][0], header)
        for name, header in zip(readable, read, strict=True)
        if header is not None
    }
    found = disagreements(headers, named=False)
    pairs = [
        (case, image.with_findings(headers[name][1] if name in headers else None, found.get(name, ())))
        for name, (case, image) in images.items()
    ]
    return IncomingCases(tuple(group_cases(pairs)))
