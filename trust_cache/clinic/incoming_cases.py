"""Find the cases to triage in a folder of DICOM files or in a manifest, and list what is wrong with each."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from trust_cache.base.errors import InputError
from trust_cache.base.executor import ItemOutcome
from trust_cache.base.limited_workers import map_limited, problem_of
from trust_cache.images.dicom_file import read_dataset
from trust_cache.images.image_failures import ImageError
from trust_cache.images.picture import tagged_laterality
from trust_cache.manifest.cases import CaseImage
from trust_cache.manifest.manifest_file import read_unlabelled

ELEMENTS = (
    "SOPClassUID", "SOPInstanceUID", "StudyInstanceUID", "PatientID", "ImageLaterality", "Laterality",
    "ViewPosition",
)  # fmt: skip
_DIRECTORY = "1.2.840.10008.1.3.10"  # Media Storage Directory: DICOMDIR, a list of files
_IMAGE_SUFFIXES = (".dcm", ".dicom", ".dic", ".ima")
_SNIFFED = 1024  # bytes


@dataclass(frozen=True)
class IncomingImage:
    """One image file of a case; `problem` is what is wrong with it before it is decoded."""

    image_id: str
    location: str
    laterality: str | None
    projection: str | None
    problem: str | None = None

    def described(self, failures: Sequence[str] = (), warnings: Sequence[str] = ()) -> CaseImage:
        """Return it as a protocol sees it, with what was found while it was scored."""
        known = () if self.problem is None else (self.problem,)
        return CaseImage(
            self.image_id, self.laterality, self.projection, (*known, *failures), tuple(warnings)
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
    """The cases of a folder or manifest, sorted by case_id, and the number of files that are not images."""

    cases: tuple[IncomingCase, ...]
    skipped: int = 0


def find_incoming(source: Path, manifest: Path | None) -> IncomingCases:
    """Return the cases of a folder, of a manifest, or of a manifest of files in a folder."""
    if manifest is not None:
        return read_case_list(manifest, source)
    if source.suffix.lower() == ".csv" and not source.is_dir():
        return read_case_list(source)
    return scan_folder(source)


def read_case_list(manifest: Path, folder: Path | None = None) -> IncomingCases:
    """Read the cases of a manifest; relative paths start at `folder`, by default at the manifest's own.

    An empty cell is a problem of its case. Only a row without a case_id is refused.
    """
    images = []
    for row in read_unlabelled(manifest, folder):
        problem = "the manifest has no path" if row.location is None else row.refused
        place = "" if row.refused or row.location is None else row.location
        image = IncomingImage(row.image_id, place, row.laterality, row.projection, problem)
        images.append((row.case_id, image))
    return IncomingCases(tuple(_grouped(images)))


def scan_folder(folder: Path) -> IncomingCases:
    """Find the cases of a folder by StudyInstanceUID, which becomes the case_id.

    A file without a StudyInstanceUID becomes a case of its own. It is also a problem of every case with files
    in the same folder; if there is none, of the case below the nearest parent folder, if there is only one.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: expected a folder of DICOM files or a manifest (.csv), found neither")
    paths = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    outcomes = map_limited(partial(_read, folder=folder), paths)
    found = [file for outcome in outcomes if (file := _file_of(outcome, folder))]
    files = _with_distinct_ids(found, folder)
    if not files:
        raise InputError(f"{folder}: expected DICOM files, found none among {len(paths)} files")
    known = [file for file in files if file.case_id]
    strays = [file for file in files if not file.case_id]
    problems = _contradictions(known)
    _note_strays(problems, known, strays)
    cases = _grouped(((file.case_id, file.image) for file in known), problems)
    cases += [IncomingCase(stray.image.image_id, (stray.image,)) for stray in strays]
    return IncomingCases(tuple(sorted(cases, key=lambda case: case.case_id)), len(paths) - len(files))


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
    image: IncomingImage
    case_id: str = ""  # the StudyInstanceUID
    instance: str = ""  # the SOPInstanceUID
    patient: str = ""  # a digest


def _file_of(outcome: ItemOutcome[Path, _File | None], folder: Path) -> _File | None:
    """Return what a worker read; a header that ended or filled its process is a problem of its file."""
    if outcome.error is None:
        return outcome.value
    image = _unread(outcome.item, folder)
    return _File(outcome.item, replace(image, problem=f"read: the header: {problem_of(outcome.error)}"))


def _unread(path: Path, folder: Path) -> IncomingImage:
    name = path.relative_to(folder).as_posix().removesuffix(".dcm")
    return IncomingImage(name, str(path), laterality=None, projection=None)


def _read(path: Path, folder: Path) -> _File | None:
    """Read a file's header; None if it is not an image file."""
    image = _unread(path, folder)
    try:
        header = read_dataset(path, ELEMENTS, pixels=False)
        if header.file_meta.get("MediaStorageSOPClassUID") == _DIRECTORY:
            return None
        values = {name: str(header.get(name) or "").strip() for name in ELEMENTS}
        side = tagged_laterality(header)
    except ImageError as error:
        broken = replace(image, problem=f"{error.stage}: {error.reason}")
        return None if _is_not_dicom(path) else _File(path, broken)
    except MemoryError:
        raise
    except Exception as error:  # pydicom converts an element when it is first used
        return _File(path, replace(image, problem=f"read: the header is damaged ({type(error).__name__})"))
    case_id, patient = values["StudyInstanceUID"], values["PatientID"]
    problem = None if case_id else "read: the header has no StudyInstanceUID"
    digest = hashlib.sha256(patient.encode(errors="replace")).hexdigest() if patient else ""
    image = replace(
        image, laterality=side, projection=values["ViewPosition"].upper() or None, problem=problem
    )
    return _File(path, image, case_id, values["SOPInstanceUID"], digest)


def _is_not_dicom(path: Path) -> bool:
    """Return whether an unreadable file is a table, a text or a picture rather than a broken DICOM file."""
    suffix = path.suffix.lower()
    if suffix:
        return suffix not in _IMAGE_SUFFIXES and not suffix[1:].isdigit()  # 1.2.840.1234 ends in .1234
    try:
        with path.open("rb") as file:
            text = file.read(_SNIFFED).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return bool(text) and all(character.isprintable() or character.isspace() for character in text)


def _with_distinct_ids(files: Sequence[_File], folder: Path) -> list[_File]:
    """Keep the suffix in image_ids that would otherwise be equal, such as those of `1` and `1.dcm`."""
    names = Counter(file.image.image_id for file in files)
    return [
        file
        if names[file.image.image_id] == 1
        else replace(file, image=replace(file.image, image_id=file.path.relative_to(folder).as_posix()))
        for file in files
    ]


def _contradictions(files: Sequence[_File]) -> dict[str, list[str]]:
    """Return the problems of cases whose headers contradict each other."""
    problems: dict[str, list[str]] = defaultdict(list)
    patients: dict[str, set[str]] = defaultdict(set)
    instances: dict[str, list[_File]] = defaultdict(list)
    for file in files:
        patients[file.case_id].add(file.patient)
        if file.instance:
            instances[file.instance].append(file)
    for case_id, found in patients.items():
        if len(found) > 1:
            problems[case_id].append("its files name different patients")
    for copies in instances.values():
        if len(copies) > 1:
            names = ", ".join(copy.image.image_id for copy in copies)
            for case_id in {copy.case_id for copy in copies}:
                problems[case_id].append(f"files with the same SOPInstanceUID: {names}")
    return problems


def _note_strays(problems: dict[str, list[str]], known: Sequence[_File], strays: Sequence[_File]) -> None:
    """Add each file without a StudyInstanceUID to the problems of the cases that it may belong to."""
    directly: dict[Path, set[str]] = defaultdict(set)
    below: dict[Path, set[str]] = defaultdict(set)
    for file in known:
        directly[file.path.parent].add(file.case_id)
        for place in file.path.parents:
            below[place].add(file.case_id)
    for stray in strays:
        nearest = next((below[place] for place in stray.path.parents if place in below), set())
        for case_id in sorted(directly.get(stray.path.parent) or (nearest if len(nearest) == 1 else ())):
            problems[case_id].append(f"unassignable file in the same folder: {stray.image.image_id}")
