"""Find the cases to triage in a folder of DICOM files or in a manifest, and list what is wrong with each."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trust_cache.base.errors import InputError
from trust_cache.base.limited_workers import map_limited
from trust_cache.clinic.folder_scan import FolderCounts, FolderEntry, count_entries, list_entries
from trust_cache.images.dicom_file import read_header
from trust_cache.images.image_failures import ImageError
from trust_cache.manifest.cases import CaseImage
from trust_cache.manifest.dicom_headers import ImageHeader, disagreements
from trust_cache.manifest.manifest_file import read_unlabelled

_UNEXPLAINED = "Remove it from the folder, or list the images in a manifest (--manifest)"


@dataclass(frozen=True)
class IncomingImage:
    """One image file of a case; `problem` is why it cannot be decoded."""

    image_id: str
    location: str
    laterality: str | None
    projection: str | None
    problem: str | None = None
    findings: tuple[str, ...] = ()  # about its header beside those of the case's other images

    def described(
        self, failures: Sequence[str] = (), warnings: Sequence[str] = (), feature_tail: float | None = None
    ) -> CaseImage:
        """Return it as a protocol sees it, with what was found while it was scored."""
        known = () if self.problem is None else (self.problem,)
        return CaseImage(
            self.image_id,
            self.laterality,
            self.projection,
            (*known, *failures),
            (*self.findings, *warnings),
            feature_tail,
        )

    @property
    def decodable(self) -> bool:
        """Whether it can be decoded: a right breast is mirrored, so its side must be known."""
        return self.problem is None and self.laterality is not None


@dataclass(frozen=True)
class IncomingCase:
    """The images of one case, and what is wrong with them together."""

    case_id: str
    images: tuple[IncomingImage, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class IncomingCases:
    """The cases of a folder or manifest, sorted by case_id, and how the folder's entries were counted."""

    cases: tuple[IncomingCase, ...]
    counts: FolderCounts | None = None  # None for a manifest


def find_incoming(source: Path, manifest: Path | None, own: Collection[Path] = ()) -> IncomingCases:
    """Return the cases of a folder, of a manifest, or of a manifest of files in a folder."""
    if manifest is not None:
        return read_case_list(manifest, source)
    if source.suffix.lower() == ".csv" and not source.is_dir():
        return read_case_list(source)
    return scan_folder(source, own)


def read_case_list(manifest: Path, folder: Path | None = None) -> IncomingCases:
    """Read the cases of a manifest; relative paths start at `folder`, by default at the manifest's own.

    An empty cell is a problem of its case. Only a row without a case_id is refused. The headers of a case's
    files must agree with each other.
    """
    images: dict[str, tuple[str, IncomingImage]] = {}
    for row in read_unlabelled(manifest, folder):
        problem = "the manifest has no path" if row.location is None else row.refused
        place = "" if row.refused or row.location is None else row.location
        image = IncomingImage(row.image_id, place, row.laterality, row.projection, problem)
        images[row.image_id] = (row.case_id, image)
    readable = [name for name, (_, image) in images.items() if image.location]
    outcomes = map_limited(_header_of, [images[name][1].location for name in readable])
    headers = {
        name: (images[name][0], outcome.value)
        for name, outcome in zip(readable, outcomes, strict=True)
        if outcome.value is not None
    }
    found = disagreements(headers, named=False)
    pairs = [(case, replace(image, findings=found.get(name, ()))) for name, (case, image) in images.items()]
    return IncomingCases(tuple(_grouped(pairs)))


def _header_of(place: str) -> ImageHeader | None:
    """Return the header of a file; None if it cannot be read, which decoding it says in words."""
    try:
        return read_header(place)
    except ImageError:
        return None


def scan_folder(folder: Path, own: Collection[Path] = ()) -> IncomingCases:
    """Find the cases of a folder by StudyInstanceUID, which becomes the case_id.

    Every entry is accounted for. One that cannot be explained, or that has no StudyInstanceUID, becomes a
    case of its own. It is also a problem of every case with files in the same folder; if there is none, of
    the case below the nearest parent folder, if there is only one.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: expected a folder of DICOM files or a manifest (.csv), found neither")
    entries = list_entries(folder, own)
    files = [_file_of(entry) for entry in entries if entry.what == "unexplained" or _is_image(entry)]
    if not files:
        raise InputError(f"{folder}: expected DICOM files, found none among {len(entries)} files")
    known = [file for file in files if file.header is not None and file.header.study]
    strays = [file for file in files if file not in known]
    known, copies = _without_raw_copies(_with_distinct_ids(known))
    problems: dict[str, list[str]] = defaultdict(list)
    _note_strays(problems, known, strays)
    found = disagreements(
        {file.image.image_id: (file.case_id, file.header) for file in known if file.header}, named=True
    )
    pairs = [
        (file.case_id, replace(file.image, findings=found.get(file.image.image_id, ()))) for file in known
    ]
    cases = _grouped(pairs, problems)
    cases += [IncomingCase(stray.image.image_id, (stray.image,)) for stray in strays]
    counts = count_entries(entries, copies)
    return IncomingCases(tuple(sorted(cases, key=lambda case: case.case_id)), counts)


def _grouped(
    images: Iterable[tuple[str, IncomingImage]], problems: Mapping[str, Sequence[str]] | None = None
) -> list[IncomingCase]:
    """Return the cases of (case_id, image) pairs, sorted by case_id and image_id, with known problems.

    A file that is there twice is a problem too: the case was put together by mistake.
    """
    cases: dict[str, list[IncomingImage]] = defaultdict(list)
    for case_id, image in images:
        cases[case_id].append(image)
    found = []
    for case_id, members in sorted(cases.items()):
        copies = Counter(image.location for image in members if image.problem is None)
        twice = [f"the same file twice: {place}" for place, count in copies.items() if count > 1]
        known = (problems or {}).get(case_id, ())
        ordered = tuple(sorted(members, key=lambda image: image.image_id))
        found.append(IncomingCase(case_id, ordered, (*known, *twice)))
    return found


@dataclass(frozen=True)
class _File:
    path: Path
    name: str  # with its suffix
    image: IncomingImage
    header: ImageHeader | None

    @property
    def case_id(self) -> str:
        return self.header.study if self.header else ""


def _is_image(entry: FolderEntry) -> bool:
    return entry.header is not None and entry.header.kind != "harmless"


def _file_of(entry: FolderEntry) -> _File:
    header, problem = entry.header, entry.problem
    if header is not None and not header.study:
        problem = f"read: the header has no valid StudyInstanceUID. {_UNEXPLAINED}"
    elif problem is not None:
        problem = f"{problem}. {_UNEXPLAINED}"
    side, projection = (header.side, header.projection) if header else (None, None)
    name = entry.name.removesuffix(".dcm")
    place = str(entry.path) if entry.openable else ""
    image = IncomingImage(name, place, side, projection, problem)
    return _File(entry.path, entry.name, image, header)


def _with_distinct_ids(files: Sequence[_File]) -> list[_File]:
    """Keep the suffix in image_ids that would otherwise be equal, such as those of `1` and `1.dcm`."""
    names = Counter(file.image.image_id for file in files)
    return [
        file
        if names[file.image.image_id] == 1
        else replace(file, image=replace(file.image, image_id=file.name))
        for file in files
    ]


def _without_raw_copies(files: Sequence[_File]) -> tuple[list[_File], int]:
    """Leave out each FOR PROCESSING image that has its FOR PRESENTATION image in the case; count them.

    There may be no more of them than there are FOR PRESENTATION images of the projection: one more could be
    of an exposure whose other image is lost.
    """
    key = {file.name: (file.case_id, file.image.laterality, file.image.projection) for file in files}
    raw = Counter(key[file.name] for file in files if file.header and file.header.kind == "raw")
    shown = Counter(key[file.name] for file in files if file.header and file.header.kind == "image")
    kept = [
        file
        for file in files
        if file.header is None
        or file.header.kind != "raw"
        or None in key[file.name]
        or raw[key[file.name]] > shown[key[file.name]]
    ]
    return kept, len(files) - len(kept)


def _note_strays(problems: dict[str, list[str]], known: Sequence[_File], strays: Sequence[_File]) -> None:
    """Add each entry that cannot be explained to the problems of the cases that it may belong to."""
    directly: dict[Path, set[str]] = defaultdict(set)
    below: dict[Path, set[str]] = defaultdict(set)
    for file in known:
        directly[file.path.parent].add(file.case_id)
        for place in file.path.parents:
            below[place].add(file.case_id)
    for stray in strays:
        nearest = next((below[place] for place in stray.path.parents if place in below), set())
        for case_id in sorted(directly.get(stray.path.parent) or (nearest if len(nearest) == 1 else ())):
            problems[case_id].append(
                f"unassignable entry in the same folder: {stray.image.image_id} ({stray.image.problem})"
            )
