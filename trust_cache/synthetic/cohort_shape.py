"""Draw the shape of a synthetic cohort: its cases, the images of their two breasts, and labels."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.optimize import brentq

from trust_cache.base.errors import InputError
from trust_cache.manifest.datasets.dataset import describe_dataset
from trust_cache.manifest.manifest_checks import DatasetCounts

STANDARD_IMAGES = 4  # CC and MLO of both breasts
BREAST_IMAGES = 2
MOST_EXTRAS = 10  # RSNA has 4 to 14 images per case
FEWEST_CASES = 10
MOST_CASES = 3  # of a patient, where patients have several


@dataclass(frozen=True)
class CohortLaw:
    """The distribution of cases: the prevalence, and the images beyond the standard four.

    A cancer is in one breast and all images of that breast are positive, as in the real sets (RSNA has
    492 positive breasts in 486 cases). An extra image is on the affected side with `affected_share`.
    """

    prevalence: float
    extra_images: float  # mean per case
    affected_share: float


@dataclass(frozen=True)
class CaseShapes:
    """For each case: its label and its extra images on one side (the affected one) and the other."""

    positive: NDArray[np.bool_]
    extras_here: NDArray[np.int64]
    extras_there: NDArray[np.int64]


@dataclass(frozen=True)
class ImageShapes:
    """For each image: its case, whether it shows the (possibly) affected side, its label."""

    case: NDArray[np.int64]
    number: NDArray[np.int64]  # within the case
    here: NDArray[np.bool_]
    label: NDArray[np.bool_]


def counts_of(like: str, cases: int | None = None) -> DatasetCounts:
    """Return the counts of a data set, or of a smaller cohort of the same proportions."""
    full = describe_dataset(like).counts
    if cases is None:
        return full
    if cases < FEWEST_CASES:
        raise InputError(f"cases: expected at least {FEWEST_CASES}, found {cases}")
    positive_cases = max(2, round(cases * full.positive_cases / full.cases))
    return DatasetCounts(
        images=round(cases * full.images / full.cases),
        cases=cases,
        positive_cases=positive_cases,
        positive_images=round(positive_cases * full.positive_images / full.positive_cases),
    )


def law_of(like: str) -> CohortLaw:
    """Return the distribution whose expected counts are those of a data set."""
    full = describe_dataset(like).counts
    extra = full.images / full.cases - STANDARD_IMAGES
    on_affected = full.positive_images / full.positive_cases - BREAST_IMAGES
    return CohortLaw(full.positive_cases / full.cases, extra, on_affected / extra)


def draw_cases(law: CohortLaw, cases: int, generator: Generator, positives: int | None = None) -> CaseShapes:
    """Draw independent cases, with a given or a binomial number of positives."""
    if positives is None:
        positive = generator.random(cases) < law.prevalence
    else:
        positive = generator.permutation(np.arange(cases) < positives)
    extras = generator.choice(MOST_EXTRAS + 1, size=cases, p=_geometric(law.extra_images))
    here = generator.binomial(extras, np.where(positive, law.affected_share, 0.5))
    return CaseShapes(positive, here, extras - here)


def draw_exact_cases(law: CohortLaw, counts: DatasetCounts, generator: Generator) -> CaseShapes:
    """Draw cases, then add or remove single images at random until all counts are exact."""
    shapes = draw_cases(law, counts.cases, generator, counts.positive_cases)
    positive = shapes.positive
    total = counts.images - STANDARD_IMAGES * counts.cases
    extras = _with_total(shapes.extras_here + shapes.extras_there, total, generator)
    on_affected = min(total, counts.positive_images - BREAST_IMAGES * counts.positive_cases)
    while (short := on_affected - int(extras[positive].sum())) > 0:  # only in very small cohorts
        given, taken = np.flatnonzero(positive), np.flatnonzero(~positive & (extras > 0))
        moved = min(short, given.size, taken.size)
        extras[generator.choice(given, moved, replace=False)] += 1
        extras[generator.choice(taken, moved, replace=False)] -= 1
    here = np.minimum(shapes.extras_here, extras)
    here[positive] = _with_total(here[positive], on_affected, generator, most=extras[positive])
    return CaseShapes(positive, here, extras - here)


def images_of(shapes: CaseShapes) -> ImageShapes:
    """List the images of all cases: two of one side, two of the other, then the extra ones."""
    sizes = STANDARD_IMAGES + shapes.extras_here + shapes.extras_there
    case = np.repeat(np.arange(sizes.size), sizes)
    number = np.arange(case.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    extra = number - STANDARD_IMAGES
    here = np.where(extra < 0, number < BREAST_IMAGES, extra < shapes.extras_here[case])
    return ImageShapes(case, number, here, here & shapes.positive[case])


def assign_patients(cases: int, share: float, generator: Generator) -> NDArray[np.int64]:
    """Return the patient of each case: this share of the patients has two or three cases, the others one."""
    several = generator.random(cases) < share
    sizes = np.where(several, generator.integers(2, MOST_CASES + 1, size=cases), 1)
    numbers = np.repeat(np.arange(cases), sizes)[:cases]
    return np.asarray(generator.permutation(numbers), dtype=np.int64)


def manifest_of(
    like: str, images: ImageShapes, generator: Generator, patients: NDArray[np.int64] | None = None
) -> pl.DataFrame:
    """Return the manifest of a synthetic cohort; its ids start with `sim-`."""
    cases = int(images.case.max()) + 1
    side_here = generator.random(cases) < 0.5  # noqa: PLR2004  # the left breast as often as the right
    left = side_here[images.case] == images.here
    site = generator.integers(1, 3, size=cases)[images.case]
    numbers = pl.DataFrame({"case": images.case, "number": images.number + 1, "site": site}).cast(pl.String)
    case_id = pl.format("sim-{}-{}", pl.lit(like), pl.col("case").str.zfill(6))
    manifest = numbers.select(
        image_id=pl.format("{}-{}", case_id, pl.col("number").str.zfill(2)),
        case_id=case_id,
        label=pl.Series(images.label.astype(np.int8)),
        laterality=pl.Series(np.where(left, "L", "R")),
        projection=pl.Series(np.where(images.number % 2 == 0, "CC", "MLO")),
        path=pl.lit(None, dtype=pl.String),
        site="site",
    )
    if patients is None:
        return manifest
    of_images = pl.Series(patients[images.case]).cast(pl.String).str.zfill(6)
    return manifest.with_columns(patient_id=pl.format("sim-{}-patient-{}", pl.lit(like), of_images))


def _geometric(mean: float) -> NDArray[np.float64]:
    """Return a geometric distribution on 0..MOST_EXTRAS with this mean."""
    numbers = np.arange(MOST_EXTRAS + 1)

    def law(ratio: float) -> NDArray[np.float64]:
        weights = ratio**numbers
        return np.asarray(weights / weights.sum())

    ratio = brentq(lambda value: float(law(value) @ numbers) - mean, 1e-9, 1.0)
    return law(ratio)


def _with_total(
    values: NDArray[np.int64], total: int, generator: Generator, most: NDArray[np.int64] | int = MOST_EXTRAS
) -> NDArray[np.int64]:
    """Change random values by one until they sum to `total`."""
    values = values.copy()
    while (short := total - int(values.sum())) != 0:
        open_to_change = np.flatnonzero(values < most) if short > 0 else np.flatnonzero(values > 0)
        chosen = generator.choice(open_to_change, min(abs(short), open_to_change.size), replace=False)
        values[chosen] += np.sign(short)
    return values
