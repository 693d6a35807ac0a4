"""Group images into cases: a case's label, its patient, its score, and whether it may be dismissed at all.

A case is positive if one of its images is, whether or not that image could be read. Its score is that of its
images by the configuration's aggregation, the maximum for all of the paper's. A case that does not fulfil the
protocol is incomplete: it is reviewed whatever its score. `certify` and `triage` both decide that by
`case_problems`, and both score cases by `aggregate`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.manifest.manifest_checks import counted
from trust_cache.manifest.picture_checks import SEPARATOR, finding
from trust_cache.manifest.protocol import Protocol

Number = TypeVar("Number", bound=np.generic)
# How the scores of a case's images become its own: the highest; per breast the mean of its projections, then
# the highest breast; 1 - product of (1 - score); the mean of the two highest.
Aggregation = Literal["maximum", "breast-mean", "noisy-or", "top-two"]
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)
MAXIMUM: Aggregation = "maximum"
NEEDS_SIDES: Aggregation = "breast-mean"
# A case scores at least as much as each of its images: dismissing it dismisses all of them.
ABOVE_IMAGES: tuple[Aggregation, ...] = ("maximum", "noisy-or")
LATERALITY = "laterality"
PATIENT = "patient_id"
# The label of the whole case. `cache subset` adds it, so that leaving out images changes no label.
CASE_LABEL = "case_label"
WARNING = "warning"  # what preprocessing warned of, in a picture folder's manifest
# In a run's manifest: the share of images like the fitting ones that are as far from them.
FEATURE_TAIL = "feature_tail"
NO_SCORE = "it has no score"
_RAREST = 1e-6
_MISSING = "Add the image, or use a protocol without it"
_UNKNOWN = "Name side and projection in a manifest (--manifest)"
_UNEXPECTED = "Review it with the case, or use a protocol with it"


@dataclass(frozen=True)
class Cases:
    """Cases sorted by case_id, their labels and patients, and the position of each image's case."""

    case_ids: pl.Series
    labels: NDArray[np.int64]
    of_image: NDArray[np.int64]
    # The number of each case's patient, in the order of their first cases. A case without one is its own.
    patients: NDArray[np.int64]
    breasts: NDArray[np.int64] | None = None  # the number of each image's breast; None: sides are not known

    def score(self, images: NDArray[Number], aggregation: Aggregation = MAXIMUM) -> NDArray[Number]:
        """Return the case scores [..., case] of image scores [..., image]; NaN where an image has none."""
        return aggregate(images, self.of_image, aggregation, self.breasts)

    @property
    def repeated_patients(self) -> bool:
        """Whether a patient has several cases."""
        return int(np.max(self.patients, initial=-1)) + 1 < self.patients.size


def find_cases(images: pl.DataFrame) -> Cases:
    """Return the cases of a table with the columns case_id and label, one row per image.

    The columns patient_id and case_label are used where they are.
    """
    case_ids = images["case_id"].unique().sort()
    position = case_ids.to_frame().with_row_index("case")
    joined = images.select("case_id").join(position, on="case_id", how="left", maintain_order="left")
    of_image = joined["case"].cast(pl.Int64).to_numpy()
    labels = images["label"].cast(pl.Int64).to_numpy()
    if CASE_LABEL in images.columns:
        labels = np.maximum(labels, _read_case_labels(images))
    breasts = number_breasts(images[LATERALITY], of_image) if LATERALITY in images.columns else None
    patients = _number_patients(images, case_ids)
    return Cases(case_ids, case_maxima(labels, of_image), of_image, patients, breasts)


def _read_case_labels(images: pl.DataFrame) -> NDArray[np.int64]:
    """Return the labels of whole cases, 0 where a cell is empty; anything but 0 and 1 is refused."""
    text = texts(images[CASE_LABEL])
    numbers = text.cast(pl.Float64, strict=False)
    wrong = text.is_not_null() & ~numbers.is_in([0.0, 1.0]).fill_null(value=False)
    if wrong.any():
        case_id, found = images["case_id"].filter(wrong)[0], text.filter(wrong)[0]
        raise InputError(f"case {case_id}: expected a {CASE_LABEL} of 0, 1 or nothing, found {found!r}")
    return numbers.fill_null(0.0).cast(pl.Int64).to_numpy()


def texts(column: pl.Series) -> pl.Series:
    """Return a column as text, null where a cell is empty, blank or not a number."""
    column = column.fill_nan(None) if column.dtype.is_float() else column
    text = column.cast(pl.String).str.strip_chars()
    return text.set(text == "", None)


def _number_patients(images: pl.DataFrame, case_ids: pl.Series) -> NDArray[np.int64]:
    if PATIENT not in images.columns:
        return np.arange(case_ids.len())
    known = images.select("case_id", texts(images[PATIENT]).alias(PATIENT)).drop_nulls().unique()
    twice = known.filter(pl.col("case_id").is_duplicated()).sort("case_id", PATIENT)
    if twice.height:
        case_id, first = twice.row(0)
        raise InputError(f"case {case_id}: expected one {PATIENT}, found {first} and {twice.row(1)[1]}")
    patients = case_ids.to_frame().join(known, on="case_id", how="left", maintain_order="left")[PATIENT]
    numbers: dict[tuple[str, str], int] = {}
    pairs = zip(case_ids, patients, strict=True)
    keys = (("case", case) if patient is None else (PATIENT, patient) for case, patient in pairs)
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def merge_names(groups: Iterable[Sequence[str]]) -> dict[str, str]:
    """Return the name that stands for each other name of its patient; names in one group are one patient's.

    Groups that share a name, directly or through others, are of one patient.
    """
    same: dict[str, str] = {}

    def first(name: str) -> str:
        while name in same:
            name = same[name]
        return name

    for names in groups:
        for name in names[1:]:
            one, other = first(names[0]), first(name)
            if one != other:
                same[other] = one
    return {name: first(name) for name in same}


def case_maxima(images: NDArray[Number], of_image: NDArray[Any]) -> NDArray[Number]:
    """Aggregate image values [..., image] to cases 0, 1, ...: the maximum over each case's images.

    One NaN among a case's images makes the case NaN.
    """
    order = np.argsort(of_image, kind="stable")
    grouped = of_image[order]
    starts = np.flatnonzero(np.append(True, grouped[1:] != grouped[:-1])[: grouped.size])
    return np.asarray(np.maximum.reduceat(images[..., order], starts, axis=-1))


def aggregate(
    images: NDArray[Any],
    of_image: NDArray[Any],
    aggregation: Aggregation = MAXIMUM,
    breasts: NDArray[np.int64] | None = None,
) -> NDArray[Any]:
    """Aggregate image scores [..., image] to cases 0, 1, ...; one NaN among its images makes a case NaN.

    The result does not depend on the order of the images, bit for bit.
    """
    if aggregation == MAXIMUM:
        return case_maxima(images, of_image)
    if aggregation == NEEDS_SIDES and breasts is None:
        raise InputError(f"aggregation {NEEDS_SIDES}: expected the column {LATERALITY}, found none")
    if images.ndim > 1:
        return np.stack([aggregate(row, of_image, aggregation, breasts) for row in images])
    highest = case_maxima(images, of_image)
    if aggregation == "noisy-or":
        if np.any((images < 0) | (images > 1)):
            raise InputError("aggregation noisy-or: expected scores from 0 to 1, found others")
        found = 1.0 - _reduced(np.multiply, 1.0 - images, of_image)
        found = np.maximum(found, highest)  # rounding may take it below an image
        found = np.where(np.unique(of_image, return_counts=True)[1] == 1, highest, found)
    elif aggregation == "top-two":
        order = np.lexsort((images, of_image))
        ends = np.flatnonzero(np.append(of_image[order][1:] != of_image[order][:-1], True))
        second = np.maximum(ends - 1, 0)
        alone = of_image[order][second] != of_image[order][ends]
        found = 0.5 * (images[order][ends] + images[order][np.where(alone, ends, second)])
    else:
        _, first, of_breast = np.unique(np.asarray(breasts), return_index=True, return_inverse=True)
        means = _reduced(np.add, images, of_breast) / np.bincount(of_breast)
        found = case_maxima(means, of_image[first])
    return np.asarray(np.where(np.isnan(highest), highest, found), dtype=images.dtype)


def _reduced(operation: np.ufunc, values: NDArray[Any], group: NDArray[Any]) -> NDArray[Any]:
    """Add or multiply the values of groups 0, 1, ... from the smallest value on."""
    order = np.lexsort((values, group))
    starts = np.flatnonzero(np.append(True, group[order][1:] != group[order][:-1])[: group.size])
    return np.asarray(operation.reduceat(values[order], starts))


def number_breasts(laterality: pl.Series, of_image: NDArray[Any]) -> NDArray[np.int64]:
    """Number the breasts of images by case and side; an image of an unknown side is a breast of its own."""
    sides = texts(laterality).str.to_uppercase().to_list()
    numbers: dict[tuple[int, str | int], int] = {}
    keys = (
        (case, number if side is None else side)
        for number, (case, side) in enumerate(zip(of_image.tolist(), sides, strict=True))
    )
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def highest_images(scores: NDArray[np.floating], of_image: NDArray[Any]) -> NDArray[np.int64]:
    """Return for each case the image that sets its score."""
    order = np.lexsort((scores, of_image))
    last = np.append(of_image[order][1:] != of_image[order][:-1], True)
    return np.asarray(order[last], dtype=np.int64)


def deciding_image(scores: Mapping[str, float], aggregation: Aggregation = MAXIMUM) -> str | None:
    """Return the highest image of one case, the first by name among equals.

    None without images, and where another image could decide as well.
    """
    if aggregation not in ABOVE_IMAGES:
        return None
    return max(sorted(scores), key=scores.__getitem__, default=None)


def score_case(
    scores: Mapping[str, float], sides: Mapping[str, str | None], aggregation: Aggregation
) -> float | None:
    """Return the score of one case from its images' scores and sides by name; None without images."""
    if not scores:
        return None
    values, of_image = np.array(list(scores.values())), np.zeros(len(scores), dtype=np.int64)
    breasts = number_breasts(pl.Series([sides.get(name) for name in scores], dtype=pl.String), of_image)
    return float(aggregate(values, of_image, aggregation, breasts)[0])


def add_warnings(images: pl.DataFrame, found: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Return the table with these warnings about pictures, by image, added to the column `warning`."""
    given = images[WARNING].fill_null("") if WARNING in images.columns else [""] * images.height
    cells = [
        SEPARATOR.join(dict.fromkeys((*filter(None, text.split(SEPARATOR)), *found.get(image, ()))))
        for image, text in zip(images["image_id"], given, strict=True)
    ]
    return images.with_columns(pl.Series(WARNING, cells, dtype=pl.String))


@dataclass(frozen=True)
class CaseImage:
    """What a protocol looks at in an image of a case."""

    image_id: str
    laterality: str | None
    projection: str | None
    failures: tuple[str, ...] = ()  # why it has no score
    warnings: tuple[str, ...] = ()  # about its picture
    feature_tail: float | None = None  # None: not known

    @property
    def sided_projection(self) -> str:
        """The projection with its side, such as L-CC; a question mark for an unknown part."""
        return f"{self.laterality or '?'}-{self.projection or '?'}"


def case_problems(images: Sequence[CaseImage], protocol: Protocol) -> tuple[str, ...]:
    """Return everything that keeps a case from being dismissed; nothing for a complete case.

    Several images of one projection are allowed: each has its score.
    """
    problems = [f"image {image.image_id}: {text}" for image in images for text in image.failures]
    problems += [
        f"image {image.image_id}: {text}"
        for image in images
        for text in (*filter(protocol.stops, image.warnings), *_feature_findings(image, protocol))
    ]
    # Where no image could be read, nothing is known about projections.
    if protocol.projections and (not images or not all(image.failures for image in images)):
        found = [image.sided_projection for image in images]
        problems += [
            f"missing projection {name}. {_MISSING}" for name in protocol.projections if name not in found
        ]
        problems += [
            f"{'unknown' if '?' in name else 'unexpected'} projection {name}: image {image.image_id}."
            f" {_UNKNOWN if '?' in name else _UNEXPECTED}"
            for image, name in zip(images, found, strict=True)
            if name not in protocol.projections
        ]
    return tuple(dict.fromkeys(problems))


def _feature_findings(image: CaseImage, protocol: Protocol) -> list[str]:
    """Return what the feature gate says about an image."""
    tail = image.feature_tail
    if tail is None or tail >= protocol.feature_tail:
        return []
    value = "fewer than 1 of 1,000,000" if tail < _RAREST else f"1 of {1 / tail:,.0f}"
    words = (
        f"{value} fitting images is as unusual to the encoder, limit 1 of {1 / protocol.feature_tail:,.0f}"
    )
    return [text for text in (finding("feature-gate", words),) if protocol.counts(text)]


def find_problems(
    images: pl.DataFrame, cases: Cases, scored: NDArray[np.bool_], protocol: Protocol
) -> dict[int, tuple[str, ...]]:
    """Return the problems of each incomplete case by its position; `scored` tells which images have a score.

    A protocol with projections needs the columns laterality and projection; warnings are read where there is
    such a column.
    """
    if protocol.projections:
        absent = [name for name in ("laterality", "projection") if name not in images.columns]
        if absent:
            raise InputError(
                f"protocol {protocol.name}: expected the columns laterality and projection, found no"
                f" {' and no '.join(absent)}"
            )
    every = np.arange(cases.labels.size)
    looked_at = every if protocol.examines_pictures else np.unique(cases.of_image[~scored])
    chosen = np.isin(cases.of_image, looked_at)
    wanted = ("image_id", "laterality", "projection", WARNING, FEATURE_TAIL)
    names = [name for name in wanted if name in images.columns]
    rows = images.select(texts(images[name]).alias(name) for name in names).filter(pl.Series(chosen))
    by_case: dict[int, list[CaseImage]] = {int(case): [] for case in looked_at}
    seen = rows.iter_rows(named=True)
    for row, case, has_score in zip(seen, cases.of_image[chosen].tolist(), scored[chosen], strict=True):
        by_case[case].append(
            CaseImage(
                row.get("image_id") or "(no id)",
                (row.get("laterality") or "").upper() or None,
                (row.get("projection") or "").upper() or None,
                () if has_score else (NO_SCORE,),
                tuple(row[WARNING].split(SEPARATOR)) if row.get(WARNING) else (),
                float(row[FEATURE_TAIL]) if row.get(FEATURE_TAIL) else None,
            )
        )
    found = {case: case_problems(members, protocol) for case, members in by_case.items()}
    return {case: problems for case, problems in found.items() if problems}


@dataclass(frozen=True)
class IncompleteCases:
    """How many images have failed, and how many cases are incomplete because of them."""

    failed_images: int
    images: int
    incomplete: int
    incomplete_positives: int
    cases: int

    def sentence(self, listed: str) -> str:
        """Return the warning of every command that meets failed images; `listed` is the place of the list."""
        verb = "is" if self.incomplete == 1 else "are"
        return (
            f"{self.failed_images:,} of {counted(self.images, 'image')} failed: {self.incomplete:,} of"
            f" {counted(self.cases, 'case')} {verb} incomplete, {self.incomplete_positives:,} of them"
            f" positive; an incomplete case keeps its label and is always reviewed. List: {listed}"
        )


def count_incomplete(images: pl.DataFrame, usable: NDArray[np.bool_]) -> IncompleteCases:
    """Count the cases that lack an image; `usable` tells which images have a picture, features or a score."""
    cases = find_cases(images)
    incomplete = np.unique(cases.of_image[~usable])
    return IncompleteCases(
        failed_images=int(np.count_nonzero(~usable)),
        images=images.height,
        incomplete=int(incomplete.size),
        incomplete_positives=int(cases.labels[incomplete].sum()),
        cases=int(cases.labels.size),
    )
