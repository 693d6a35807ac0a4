"""Examinations from a folder of DICOM files, put together by what their headers say.

Only what tells examinations and views apart is read. The patient's id is compared within an examination and
never kept.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trust_cache.base.errors import InputError
from trust_cache.images.errors import ImageError
from trust_cache.images.process import tagged_laterality
from trust_cache.images.reading import read_header
from trust_cache.service.triage.examinations import Examination, Picture, group_pictures

ELEMENTS = (
    "SOPClassUID",
    "SOPInstanceUID",
    "StudyInstanceUID",
    "PatientID",
    "ImageLaterality",
    "Laterality",
    "ViewPosition",
)
_DIRECTORY = "1.2.840.10008.1.3.10"  # Media Storage Directory: DICOMDIR, a list of files
_IMAGE_SUFFIXES = ("", ".dcm", ".dicom", ".dic", ".ima")
_SNIFFED = 1024


@dataclass(frozen=True)
class Scan:
    """What a folder holds: examinations, unreadable files among them, and how many files are no images."""

    examinations: tuple[Examination, ...]
    passed_over: int


@dataclass(frozen=True)
class _File:
    """A file with the header's words, or why there are none."""

    path: Path
    image_id: str
    study: str | None = None
    instance: str | None = None
    patient: str | None = None  # a digest
    laterality: str | None = None
    projection: str | None = None
    problem: str | None = None


def scan_folder(folder: Path) -> Scan:
    """Find the examinations of a folder by StudyInstanceUID; case_id is that UID.

    A file that belongs to no examination is a row of its own, and counts against every examination with
    files in its folder; where that has none, against the one examination of the nearest folder above.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: expected a folder of DICOM files or a manifest (.csv), found neither")
    read = [_read(path, folder) for path in _files(folder)]
    files = _distinct([file for file in read if file is not None], folder)
    if not files:
        raise InputError(f"{folder}: expected DICOM files, found none among {len(read)} files")
    known = [file for file in files if file.study is not None]
    strays = [file for file in files if file.study is None]
    examinations = group_pictures((str(file.study), _picture(file)) for file in known)
    problems = _contradictions(known)
    places = _places(known, folder)
    for stray in strays:
        for study in _suspects(stray, places):
            problems[study].append(
                f"a file that cannot be told to which examination it belongs lies with it: {stray.image_id}"
            )
    made = [replace(item, problems=tuple(problems[item.case_id])) for item in examinations]
    made += [Examination(stray.image_id, (_picture(stray),)) for stray in strays]
    return Scan(tuple(sorted(made, key=lambda item: item.case_id)), len(read) - len(files))


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


def _distinct(files: Sequence[_File], folder: Path) -> list[_File]:
    """Keep the endings in the names of files that would otherwise have one, such as `1` and `1.dcm`."""
    names = Counter(file.image_id for file in files)
    return [
        file
        if names[file.image_id] == 1
        else replace(file, image_id=file.path.relative_to(folder).as_posix())
        for file in files
    ]


def _read(path: Path, folder: Path) -> _File | None:
    """Read a file's header; None where it is no image file at all."""
    relative = path.relative_to(folder).as_posix()
    file = _File(path, relative.removesuffix(".dcm"))
    try:
        header = read_header(path, ELEMENTS)
        if header.file_meta.get("MediaStorageSOPClassUID") == _DIRECTORY:
            return None
        words = {name: str(header.get(name) or "").strip() for name in ELEMENTS}
        side = tagged_laterality(header)
    except ImageError as error:
        return None if _is_something_else(path) else replace(file, problem=f"{error.stage}: {error.reason}")
    except Exception as error:  # elements are converted when they are looked at
        return replace(file, problem=f"read: the header is damaged ({type(error).__name__})")
    study = words["StudyInstanceUID"] or None
    patient = words["PatientID"]
    return replace(
        file,
        study=study,
        instance=words["SOPInstanceUID"] or None,
        patient=hashlib.sha256(patient.encode(errors="replace")).hexdigest() if patient else None,
        laterality=side,
        projection=words["ViewPosition"].upper() or None,
        problem=None if study else "read: the header names no examination (StudyInstanceUID)",
    )


def _is_something_else(path: Path) -> bool:
    """Tell whether an unreadable file is a table, a text or a picture rather than a broken DICOM file."""
    suffix = path.suffix.lower()
    if suffix and suffix not in _IMAGE_SUFFIXES and not suffix[1:].isdigit():  # 1.2.840.1234 ends in .1234
        return True
    if suffix:
        return False
    try:
        with path.open("rb") as file:
            text = file.read(_SNIFFED).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return bool(text) and all(character.isprintable() or character.isspace() for character in text)


def _picture(file: _File) -> Picture:
    return Picture(file.image_id, str(file.path), file.laterality, file.projection, file.problem)


def _contradictions(files: Sequence[_File]) -> dict[str, list[str]]:
    """Return for each examination what its headers contradict each other in."""
    problems: dict[str, list[str]] = defaultdict(list)
    patients: dict[str, set[str | None]] = defaultdict(set)
    instances: dict[str, list[_File]] = defaultdict(list)
    for file in files:
        patients[str(file.study)].add(file.patient)
        if file.instance is not None:
            instances[file.instance].append(file)
    for study, found in patients.items():
        if len(found) > 1:
            problems[study].append("its files name different patients")
    for copies in instances.values():
        if len(copies) > 1:
            names = ", ".join(copy.image_id for copy in copies)
            for study in {str(copy.study) for copy in copies}:
                problems[study].append(f"files that claim to be the same image: {names}")
    return problems


def _suspects(stray: _File, places: "_Places") -> list[str]:
    """Return the examinations that a file without one may belong to."""
    beside = places.directly.get(stray.path.parent)
    if beside:
        return sorted(beside)
    for place in (stray.path.parent, *stray.path.parent.parents):
        below = places.below.get(place)
        if below:
            return sorted(below) if len(below) == 1 else []
    return []


@dataclass(frozen=True)
class _Places:
    """Which examinations have files in a folder: directly, and anywhere below it."""

    directly: dict[Path, set[str]]
    below: dict[Path, set[str]]


def _places(files: Sequence[_File], folder: Path) -> _Places:
    directly: dict[Path, set[str]] = defaultdict(set)
    below: dict[Path, set[str]] = defaultdict(set)
    for file in files:
        directly[file.path.parent].add(str(file.study))
        for place in file.path.parents:
            below[place].add(str(file.study))
            if place == folder:
                break
    return _Places(directly, below)
