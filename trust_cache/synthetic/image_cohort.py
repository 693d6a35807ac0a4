"""Write cohorts of synthetic mammograms in the layout of a public data set, with its metadata file."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from math import ceil
from pathlib import Path

import cv2
import numpy as np
from numpy.random import SFC64, Generator, SeedSequence

from trust_cache.base.csv_tables import write_rows
from trust_cache.base.documents import json_bytes
from trust_cache.base.errors import InputError
from trust_cache.base.executor import run_items
from trust_cache.base.files import refuse_unknown, write_file
from trust_cache.synthetic import phantom as phantoms
from trust_cache.synthetic.phantom import LATERALITIES, PROJECTIONS, Anatomy, PhantomSettings
from trust_cache.synthetic.synthetic_dicom import (
    BROKEN_KINDS,
    Encoding,
    Identity,
    Tags,
    broken_bytes,
    mammogram_bytes,
)

SIZES = ("small", "full")
METADATA = {"rsna": "train.csv", "nlbs": "NLBSD_Metadata.csv"}
RECORD = "synthesis.json"  # the settings of a folder: another run must have the same
BROKEN = "broken.csv"
MOST_CASES = 9_000  # NLBS numbers its cases with four digits
RSNA_COLUMNS = (
    *("site_id", "patient_id", "image_id", "laterality", "view", "age", "cancer", "biopsy", "invasive"),
    *("BIRADS", "implant", "density", "machine_id", "difficult_negative_case"),
)
NLBS_COLUMNS = (
    *("File Path", "Anode Target Material", "Energy Settings", "Exam Date", "Image Laterality"),
    *("View Position", "Age", "Window Center", "Window Width", "Collimator Shape"),
    *("Collimator Left Vertical Edge", "Collimator Right Vertical Edge"),
    *("Collimator Upper Horizontal Edge", "Collimator Lower Horizontal Edge"),
    *("Cancer", "Hard to State Negative"),
)
COLUMNS = {"rsna": RSNA_COLUMNS, "nlbs": NLBS_COLUMNS}
_OTHER_VIEWS = {"AT": "CC", "LM": "MLO", "ML": "MLO", "LMO": "MLO"}  # and the projection each is drawn as
_PIXELS_PER_WORKER = 10_000_000  # below, starting another process takes longer than it saves
_STRUCTURE, _ANATOMY, _IMAGE = range(3)  # kinds of random streams


@dataclass(frozen=True)
class CohortSettings:
    """The cohort to draw. The default prevalence is far above screening's: few cases, enough positives."""

    like: str
    cases: int
    seed: int = 0
    size: str = "small"
    prevalence: float = 0.3
    lesion_contrast: float = 0.35
    text_share: float = 0.5  # images with a text mark
    strip_share: float = 0.03  # images with a bright strip along the far edge
    broken: float = 0.0  # share of images whose files are broken on purpose
    broken_kinds: tuple[str, ...] = BROKEN_KINDS
    identity: Identity | None = None  # planted in every header

    def __post_init__(self) -> None:
        phantoms.require_one_of("like", self.like, tuple(METADATA))
        phantoms.require_one_of("size", self.size, SIZES)
        for name, least, most in (("cases", 1, MOST_CASES), ("seed", 0, 2**63)):
            if not least <= getattr(self, name) <= most:
                raise InputError(f"{name}: expected {least} to {most}, found {getattr(self, name)}")
        for name in ("prevalence", "text_share", "strip_share", "broken", "lesion_contrast"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name}: expected a share from 0 to 1, found {getattr(self, name)}")
        unknown = [kind for kind in self.broken_kinds if kind not in BROKEN_KINDS]
        if unknown or not self.broken_kinds:
            raise InputError(f"broken kinds: expected some of {', '.join(BROKEN_KINDS)}, found {unknown}")


@dataclass(frozen=True)
class SyntheticImage:
    """One planned file: its path, what it shows, how it is stored, its row of the metadata."""

    image_id: str
    case_id: str
    label: int
    path: str  # relative to the cohort's folder, separated by /
    phantom: PhantomSettings
    seed: tuple[int, ...]
    encoding: Encoding
    tags: Tags
    row: dict[str, object]
    broken: str | None = None  # the kind of damage


@dataclass(frozen=True)
class SyntheticCohort:
    """A written cohort; `images` has the truth about every file."""

    folder: Path
    metadata: Path
    images: tuple[SyntheticImage, ...]

    @property
    def broken(self) -> dict[str, str]:
        """The kind of damage of each broken image."""
        return {image.image_id: image.broken for image in self.images if image.broken is not None}


@dataclass(frozen=True)
class _Machine:
    """A mammography unit: the size of its images and how it stores them."""

    number: int
    share: float  # of the cases
    rows: int
    columns: int
    encoding: Encoding


@dataclass(frozen=True)
class _Case:
    """One case, and its images: laterality and projection of each."""

    affected: str | None  # the side with the lesion
    age: int | None
    anatomy: Anatomy
    machine: _Machine
    views: tuple[tuple[str, str], ...]


_INVERTED = Encoding(16, "MONOCHROME1", "jpeg-2000", "SIGMOID", windows=4, padding="dark")
_RSNA_MACHINES = (
    _Machine(29, 0.17, 5355, 4915, _INVERTED),
    _Machine(49, 0.38, 3062, 2394, Encoding(12, syntax="jpeg-2000")),
    _Machine(48, 0.20, 2294, 1914, Encoding(12, syntax="jpeg-lossless", windows=2)),
    _Machine(21, 0.15, 4096, 3328, Encoding(10, syntax="jpeg-lossless")),
    _Machine(216, 0.10, 5928, 4728, Encoding(16, syntax="jpeg-2000", windows=0)),
)
_GE = Encoding(12, window_function="SIGMOID", windows=3, voi_luts=3)
_NLBS_MACHINES = (
    _Machine(1, 0.50, 3062, 2394, _GE),
    _Machine(2, 0.30, 2294, 1914, replace(_GE, syntax="implicit")),
    _Machine(3, 0.15, 2294, 1914, replace(_GE, windows=1, voi_luts=0)),
    _Machine(4, 0.05, 3062, 2394, replace(_GE, windows=0, voi_luts=0)),
)


def synthesize_cohort(
    settings: CohortSettings,
    out: Path,
    *,
    workers: int | None = None,
    advance: Callable[[], None] = lambda: None,
) -> SyntheticCohort:
    """Write a cohort into a new folder, or resume one with the same settings.

    By default all cores work if there are enough images. `advance` is called after each file.
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers: expected at least 1, found {workers}")
    images = plan_cohort(settings)
    _claim(out, settings)
    _write_images(images, out, workers, advance)
    if damaged := [image for image in images if image.broken]:
        rows = ({"image_id": image.image_id, "path": image.path, "kind": image.broken} for image in damaged)
        write_file(out / BROKEN, write_rows(("image_id", "path", "kind"), rows))
    metadata = out / METADATA[settings.like]
    write_file(metadata, write_rows(COLUMNS[settings.like], (image.row for image in images)))
    return SyntheticCohort(out, metadata, images)


def plan_cohort(settings: CohortSettings) -> tuple[SyntheticImage, ...]:
    """Plan every image of a cohort without drawing any; the plan depends on the settings alone."""
    sequence = SeedSequence((*_entropy(settings), _STRUCTURE))
    generator = Generator(SFC64(sequence))
    images = {"rsna": _plan_rsna, "nlbs": _plan_nlbs}[settings.like](settings, generator)
    broken = generator.choice(len(images), _count(settings.broken, len(images)), replace=False)
    for turn, position in enumerate(broken):
        kind = settings.broken_kinds[turn % len(settings.broken_kinds)]
        images[position] = replace(images[position], broken=kind)
    return tuple(images)


def _entropy(settings: CohortSettings) -> tuple[int, ...]:
    return (settings.seed, *settings.like.encode())


def _draw_cases(
    settings: CohortSettings, machines: Sequence[_Machine], repeats: Sequence[str], generator: Generator
) -> list[_Case]:
    """Draw cases: an exact number of positives, the four standard images and some further ones."""
    positives = _count(settings.prevalence, settings.cases)
    positive = generator.permutation(np.arange(settings.cases) < positives)
    shares = np.array([machine.share for machine in machines])
    cases = []
    for number, ill in enumerate(positive):
        further = min(10, generator.geometric(0.65) - 1)  # RSNA has 4.6 images per case, NLBS 4.5
        sides, names = generator.choice(LATERALITIES, further), generator.choice(repeats, further)
        views = (*product(LATERALITIES, PROJECTIONS), *zip(sides.tolist(), names.tolist(), strict=True))
        affected, age = str(generator.choice(LATERALITIES)), int(np.clip(generator.normal(58, 10), 35, 89))
        known_age = None if _happens(0.01, generator) else age
        anatomy = phantoms.draw_anatomy((*_entropy(settings), _ANATOMY, number))
        machine = machines[generator.choice(len(machines), p=shares / shares.sum())]
        cases.append(_Case(affected if ill else None, known_age, anatomy, machine, views))
    return cases


def _count(share: float, total: int) -> int:
    return max(int(share > 0), round(share * total))


def _happens(share: float, generator: Generator) -> bool:
    return bool(generator.random() < share)


def _phantom_settings(
    settings: CohortSettings, case: _Case, laterality: str, view: str, generator: Generator
) -> PhantomSettings:
    rows, columns = case.machine.rows, case.machine.columns
    if settings.size == "small":  # 245 to 318 rows, different for different machines
        rows, columns = 200 + rows // 50, (200 + rows // 50) * columns // rows
    return PhantomSettings(
        rows=rows,
        columns=columns,
        laterality=laterality,
        projection=_OTHER_VIEWS.get(view, view),
        anatomy=case.anatomy,
        lesion_contrast=settings.lesion_contrast if laterality == case.affected else 0.0,
        text=f"{laterality} {view}" if _happens(settings.text_share, generator) else None,
        strip="far" if _happens(settings.strip_share, generator) else None,
        unexposed=case.machine.encoding.padding != "none",
    )


def _plan_rsna(settings: CohortSettings, generator: Generator) -> list[SyntheticImage]:
    repeats = ("CC",) * 8 + ("MLO",) * 8 + tuple(_OTHER_VIEWS)
    cases = _draw_cases(settings, _RSNA_MACHINES, repeats, generator)
    patients = generator.choice(60_000, settings.cases, replace=False)
    total = sum(len(case.views) for case in cases)
    identifiers = iter(generator.choice(2**31 - 1, total, replace=False).tolist())
    images: list[SyntheticImage] = []
    for number, case in zip(patients.tolist(), cases, strict=True):
        patient = str(number + 5)
        facts = {side: _rsna_facts(case, patient, side, generator) for side in LATERALITIES}
        for laterality, view in case.views:
            image_id, label = str(next(identifiers)), int(laterality == case.affected)
            phantom = _phantom_settings(settings, case, laterality, view, generator)
            encoding = case.machine.encoding
            if encoding.photometric == "MONOCHROME1":  # the pixel maximum differs from image to image
                encoding = replace(encoding, maximum=round(generator.uniform(0.6, 1.0), 4))
            tags = Tags(
                # The tag is not always the folder's name.
                patient_id=f"{patient}0" if _happens(0.02, generator) else patient,
                laterality=laterality,
                modality=None,
                age=case.age,
                unique=(f"rsna-{settings.seed}-{patient}", image_id),
                identity=settings.identity,
            )
            row = facts[laterality] | {"image_id": image_id, "laterality": laterality, "view": view}
            path, seed = f"{patient}/{image_id}.dcm", (*_entropy(settings), _IMAGE, len(images))
            images.append(SyntheticImage(image_id, patient, label, path, phantom, seed, encoding, tags, row))
    return images


def _rsna_facts(case: _Case, patient: str, laterality: str, generator: Generator) -> dict[str, object]:
    """Return the columns that all images of a breast share."""
    site, cancer = 1 + case.machine.number % 2, laterality == case.affected
    difficult = not cancer and _happens(0.12, generator)
    return {
        "site_id": site,
        "patient_id": patient,
        "age": None if case.age is None else float(case.age),
        "cancer": int(cancer),
        "biopsy": int(cancer or (difficult and _happens(0.2, generator))),
        "invasive": int(cancer and _happens(0.7, generator)),
        "BIRADS": 0.0 if cancer or difficult else float(generator.integers(1, 3)),
        "implant": 0,
        "density": "ABCD"[int((case.anatomy.density - 0.2) / 0.2001 * 4)] if site == 1 else None,
        "machine_id": case.machine.number,
        "difficult_negative_case": str(difficult),
    }


def _plan_nlbs(settings: CohortSettings, generator: Generator) -> list[SyntheticImage]:
    cases = _draw_cases(settings, _NLBS_MACHINES, PROJECTIONS, generator)
    numbers = 1 + generator.choice(9_999, settings.cases, replace=False)
    images: list[SyntheticImage] = []
    for number, case in zip(numbers.tolist(), cases, strict=True):
        case_id, encoding = f"p_{number:04d}", case.machine.encoding
        negative = "False Positive" if _happens(0.15, generator) else "normal"
        category = "abnormal" if case.affected else negative
        series = int(generator.integers(100, 104))
        for position, (laterality, view) in enumerate(case.views):
            label = int(laterality == case.affected)
            side = ("left" if laterality == "L" else "right") + ("-c" if label else "")
            parts = (category, case_id, side, view, f"IM-{series:04d}-{position + 1:04d}-0001.dcm")
            path, seed = "/".join(parts), (*_entropy(settings), _IMAGE, len(images))
            phantom = _phantom_settings(settings, case, laterality, view, generator)
            tags = Tags(
                patient_id=case_id,
                laterality=laterality,
                view_position=view,
                age=case.age,
                model="Phantom, after Senographe Essential",
                unique=(f"nlbs-{settings.seed}-{case_id}", parts[-1]),
                identity=settings.identity,
            )
            row = _nlbs_row(parts, laterality, case.age, phantom, encoding)
            image_id = path.removesuffix(".dcm")
            images.append(SyntheticImage(image_id, case_id, label, path, phantom, seed, encoding, tags, row))
    return images


def _nlbs_row(
    parts: Sequence[str], laterality: str, age: int | None, phantom: PhantomSettings, encoding: Encoding
) -> dict[str, object]:
    cells = ["nan", "nan"]  # as in the data set: `[[2797, 2851, 2683]]`, `[820]` or nan
    if windows := encoding.window_values:
        centres_and_widths = map(list, zip(*windows, strict=True))
        cells = [str([numbers] if len(numbers) > 1 else numbers) for numbers in centres_and_widths]
    values = (
        *("\\".join(parts), "RHODIUM", "nan", "nan", laterality, parts[3], "nan" if age is None else age),
        *(*cells, "RECTANGULAR"),
        *(0, phantom.columns, 0, phantom.rows),
        *(int(parts[2].endswith("-c")), int(parts[0] == "False Positive")),
    )
    return dict(zip(NLBS_COLUMNS, values, strict=True))


def _claim(out: Path, settings: CohortSettings) -> None:
    """Write the record of a new folder, or check that of an earlier one."""
    document = asdict(settings)
    document["identity"] = settings.identity is not None  # the name must be in headers only
    record = json_bytes({"schema": 1, "settings": document})
    path = out / RECORD
    if not path.is_file():
        refuse_unknown(out, own=())
        write_file(path, record)
    elif path.read_bytes() != record:
        raise InputError(f"{out}: has a cohort with other settings ({path}); choose another --out")


def _write_images(
    images: Sequence[SyntheticImage], out: Path, workers: int | None, advance: Callable[[], None]
) -> None:
    pixels = sum(image.phantom.rows * image.phantom.columns for image in images)
    workers = workers or min(os.cpu_count() or 1, ceil(pixels / _PIXELS_PER_WORKER))
    if workers == 1:
        for image in images:
            _write(image, out)
            advance()
        return
    for outcome in run_items(partial(_write, out=out, threads=1), images, workers):
        if outcome.error is not None:
            raise outcome.error
        advance()


def _write(image: SyntheticImage, out: Path, threads: int | None = None) -> None:
    """Write one file unless it exists (files are written atomically) or is to be missing."""
    if threads is not None:
        cv2.setNumThreads(threads)
    if (path := out / image.path).exists():
        return
    phantom = phantoms.draw_phantom(image.phantom, image.seed)
    if image.broken is not None:
        content = broken_bytes(image.broken, phantom, image.encoding, image.tags)
    else:
        content = mammogram_bytes(phantom, image.encoding, image.tags)
    if content is not None:
        write_file(path, content)
