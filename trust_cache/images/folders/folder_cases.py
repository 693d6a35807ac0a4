"""Find the cases of a folder of DICOM files by their headers, and list what is wrong with each.

`triage` and `manifest dicom` both take the cases of a folder from here.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trust_cache.base.errors import InputError
from trust_cache.base.executor import LocalWorkers
from trust_cache.images.folders.folder_scan import FolderCounts, FolderEntry, count_entries, list_entries
from trust_cache.manifest.cases import CaseImage
from trust_cache.manifest.dicom_headers import ImageHeader, disagreements
from trust_cache.manifest.picture_checks import check_of

_UNEXPLAINED = "Remove it from the folder, or list the images in a manifest (--manifest)"
_OF_VIEW = frozenset({"view-modifier", "image-kind", "body-part"})  # checks that a raw copy shares


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

    def with_findings(self, header: ImageHeader | None, together: Sequence[str]) -> "IncomingImage":
        """Return it with what is wrong beside the case's other images.

        What is wrong in its own header is found when it is decoded, so an image that is not decoded gets it
        here: it may say why the side is not known.
        """
        own = () if header is None or self.decodable else header.findings
        return replace(self, findings=(*own, *together))

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


@dataclass(frozen=True)
class FolderFile:
    """One file of a folder as an image, with its header where it has one."""

    path: Path
    name: str  # with its suffix
    image: IncomingImage
    header: ImageHeader | None

    @property
    def case_id(self) -> str:
        """The StudyInstanceUID, empty if there is no valid one."""
        return self.header.study if self.header else ""


@dataclass(frozen=True)
class ScannedFolder:
    """The images of a folder, and the entries without a case, with the cases that each may belong to."""

    files: tuple[FolderFile, ...]
    strays: tuple[FolderFile, ...]
    beside: Mapping[str, tuple[str, ...]]  # case_ids by the image_id of a stray
    counts: FolderCounts

    def case_of(self, stray: FolderFile) -> str:
        """Return the case_id of a stray as a case of its own, which is its name.

        One that has the name of a study, such as a link to its folder, is told from the study's case.
        """
        name = stray.image.image_id
        return f"./{name}" if any(file.case_id == name for file in self.files) else name


def scan_folder(
    folder: Path, own: Collection[Path] = (), workers: LocalWorkers | None = None
) -> IncomingCases:
    """Find the cases of a folder by StudyInstanceUID, which becomes the case_id.

    Every entry is accounted for. One that cannot be explained, or that has no StudyInstanceUID, becomes a
    case of its own. It is also a problem of every case that it may belong to.
    """
    scanned = scan_files(folder, own, workers)
    problems: dict[str, list[str]] = defaultdict(list)
    for stray in scanned.strays:
        name, why = stray.image.image_id, stray.image.problem
        for case_id in scanned.beside[name]:
            problems[case_id].append(f"unassignable entry in the same folder: {name} ({why})")
    cases = group_cases([(file.case_id, file.image) for file in scanned.files], problems)
    cases += [IncomingCase(scanned.case_of(stray), (stray.image,)) for stray in scanned.strays]
    return IncomingCases(tuple(sorted(cases, key=lambda case: case.case_id)), scanned.counts)


def scan_files(
    folder: Path, own: Collection[Path] = (), workers: LocalWorkers | None = None
) -> ScannedFolder:
    """Read the headers of a folder and decide which entries are images, and of which case.

    A stray may belong to every case with files in the same folder; if there is none, to the case below the
    nearest parent folder, if there is only one.
    """
    if not folder.is_dir():
        other = "another file; give the folder that it is in" if folder.exists() else "neither"
        raise InputError(f"{folder}: expected a folder of DICOM files or a manifest (.csv), found {other}")
    entries = list_entries(folder, own, workers)
    files = _with_distinct_ids(
        [_file_of(entry) for entry in entries if entry.what == "unexplained" or _is_image(entry)]
    )
    if not files:
        raise InputError(
            f"{folder}: expected DICOM files, found none; the folder has {count_entries(entries, 0).sentence}"
        )
    known = [file for file in files if file.header is not None and file.header.study]
    strays = tuple(file for file in files if file not in known)
    known, copies = _without_raw_copies(known)
    found = disagreements(
        {file.image.image_id: (file.case_id, file.header) for file in known if file.header}, named=True
    )
    judged = tuple(
        replace(file, image=file.image.with_findings(file.header, found.get(file.image.image_id, ())))
        for file in known
    )
    return ScannedFolder(judged, strays, _cases_beside(known, strays), count_entries(entries, copies))


def group_cases(
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
        twice = [
            f"the same file twice: {place}. Remove the copy" for place, count in copies.items() if count > 1
        ]
        known = (problems or {}).get(case_id, ())
        ordered = tuple(sorted(members, key=lambda image: image.image_id))
        found.append(IncomingCase(case_id, ordered, (*known, *twice)))
    return found


def _is_image(entry: FolderEntry) -> bool:
    return entry.header is not None and entry.header.kind != "harmless"


def _file_of(entry: FolderEntry) -> FolderFile:
    header, problem = entry.header, entry.problem
    if header is not None and not header.study:
        problem = f"read: the header has no valid StudyInstanceUID. {_UNEXPLAINED}"
    elif problem is not None:
        problem = f"{problem}. {_UNEXPLAINED}"
    side, projection = (header.side, header.projection) if header else (None, None)
    name = entry.name.removesuffix(".dcm")
    place = str(entry.path) if entry.openable else ""
    image = IncomingImage(name, place, side, projection, problem)
    return FolderFile(entry.path, entry.name, image, header)


def _with_distinct_ids(files: Sequence[FolderFile]) -> list[FolderFile]:
    """Keep the suffix in image_ids that would otherwise be equal, such as those of `1` and `1.dcm`."""
    names = Counter(file.image.image_id for file in files)
    return [
        file
        if names[file.image.image_id] == 1
        else replace(file, image=replace(file.image, image_id=file.name))
        for file in files
    ]


def _without_raw_copies(files: Sequence[FolderFile]) -> tuple[list[FolderFile], int]:
    """Leave out each FOR PROCESSING image that has its FOR PRESENTATION image in the case; count them.

    The two have one patient, one side, one projection and one modification of the view. There may be no
    more raw images than FOR PRESENTATION ones of a kind: one more could be of an exposure whose other image
    is lost.
    """
    keys = {file.name: _view_of(file) for file in files}
    raw = Counter(keys[file.name] for file in files if file.header and file.header.kind == "raw")
    shown = Counter(keys[file.name] for file in files if file.header and file.header.kind == "image")
    copies = {
        file.name
        for file in files
        if file.header and file.header.kind == "raw" and raw[keys[file.name]] <= shown[keys[file.name]]
    }
    return [file for file in files if file.name not in copies], len(copies)


def _view_of(file: FolderFile) -> tuple[object, ...]:
    """Return what a raw image and the one made from it have in common; unlike all else where unknown."""
    image = file.image
    if file.header is None or image.laterality is None or image.projection is None:
        return (file.name,)
    modified = tuple(text for text in file.header.findings if check_of(text) in _OF_VIEW)
    return (file.case_id, file.header.patient, image.laterality, image.projection, modified)


def _cases_beside(known: Sequence[FolderFile], strays: Sequence[FolderFile]) -> dict[str, tuple[str, ...]]:
    """Return the cases that each entry without one may belong to."""
    directly: dict[Path, set[str]] = defaultdict(set)
    below: dict[Path, set[str]] = defaultdict(set)
    for file in known:
        directly[file.path.parent].add(file.case_id)
        for place in file.path.parents:
            below[place].add(file.case_id)
    found = {}
    for stray in strays:
        nearest = next((below[place] for place in stray.path.parents if place in below), set())
        cases = directly.get(stray.path.parent) or (nearest if len(nearest) == 1 else set())
        found[stray.image.image_id] = tuple(sorted(cases))
    return found
