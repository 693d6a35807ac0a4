"""The shape of a simulated cohort: cases, images of their two breasts, labels; no features yet."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import brentq

from trust_cache.base.errors import InputError
from trust_cache.manifest.descriptions import ExpectedCounts, describe_data_set

STANDARD_IMAGES = 4  # CC and MLO of both breasts
BREAST_IMAGES = 2
MOST_EXTRAS = 10  # RSNA has 4 to 14 images a case
FEWEST_CASES = 10


@dataclass(frozen=True)
class CohortLaw:
    """How cases come about: cancer or not, images beyond the standard four, and on which side those lie.

    A cancer is in one breast and all images of that breast are positive, as in the real sets (RSNA has
    492 positive breasts in 486 cases). Extra images gather on the affected side with `affected_share`.
    """

    prevalence: float
    extra_images: float  # mean per case
    affected_share: float


@dataclass(frozen=True)
class CaseShapes:
    """For each case: its label and its extra images on one side (the affected one) and on the other."""

    positive: NDArray[np.bool_]
    extras_here: NDArray[np.int64]
    extras_there: NDArray[np.int64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The images of each case."""
        return STANDARD_IMAGES + self.extras_here + self.extras_there


@dataclass(frozen=True)
class ImageShapes:
    """For each image: its case, whether it shows the side that is affected in a positive case, its label."""

    case: NDArray[np.int64]
    number: NDArray[np.int64]  # within the case
    here: NDArray[np.bool_]
    label: NDArray[np.bool_]


def counts_of(like: str, cases: int | None = None) -> ExpectedCounts:
    """Return the counts of a data set, or of a smaller cohort of the same proportions."""
    full = describe_data_set(like).expected
    if cases is None:
        return full
    if cases < FEWEST_CASES:
        raise InputError(f"cases: expected at least {FEWEST_CASES}, found {cases}")
    positive_cases = max(2, round(cases * full.positive_cases / full.cases))
    return ExpectedCounts(
        images=round(cases * full.images / full.cases),
        cases=cases,
        positive_cases=positive_cases,
        positive_images=round(positive_cases * full.positive_images / full.positive_cases),
    )


def law_of(like: str) -> CohortLaw:
    """Return the law under which a data set's counts are what one expects."""
    full = describe_data_set(like).expected
    extra = full.images / full.cases - STANDARD_IMAGES
    on_affected = full.positive_images / full.positive_cases - BREAST_IMAGES
    return CohortLaw(full.positive_cases / full.cases, extra, on_affected / extra)


def draw_cases(
    law: CohortLaw, cases: int, generator: np.random.Generator, positives: int | None = None
) -> CaseShapes:
    """Draw independent cases, with a given or a binomial number of positives."""
    if positives is None:
        positive = generator.random(cases) < law.prevalence
    else:
        positive = generator.permutation(np.arange(cases) < positives)
    extras = generator.choice(MOST_EXTRAS + 1, size=cases, p=_geometric(law.extra_images))
    share = np.where(positive, law.affected_share, 0.5)
    here = generator.binomial(extras, share)
    return CaseShapes(positive, here, extras - here)


def draw_exact_cases(law: CohortLaw, counts: ExpectedCounts, generator: np.random.Generator) -> CaseShapes:
    """Draw cases and add or take single images at random until all counts are exact."""
    shapes = draw_cases(law, counts.cases, generator, counts.positive_cases)
    positive = shapes.positive
    extras = shapes.extras_here + shapes.extras_there
    total = counts.images - STANDARD_IMAGES * counts.cases
    extras = _with_total(extras, total, generator)
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
    """Lay the images of all cases out: one side's two, the other's two, then the extra ones."""
    sizes = shapes.sizes
    case = np.repeat(np.arange(sizes.size), sizes)
    number = np.arange(case.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    extra = number - STANDARD_IMAGES
    here = np.where(extra < 0, number < BREAST_IMAGES, extra < shapes.extras_here[case])
    return ImageShapes(case, number, here, here & shapes.positive[case])


def manifest_of(like: str, images: ImageShapes, generator: np.random.Generator) -> pl.DataFrame:
    """Return the manifest of a simulated cohort; its ids say that it is one."""
    cases = int(images.case.max()) + 1
    side_here = generator.random(cases) < 0.5  # noqa: PLR2004  # the left breast as often as the right
    left = side_here[images.case] == images.here
    site = generator.integers(1, 3, size=cases)[images.case]
    table = pl.DataFrame(
        {
            "case": images.case,
            "number": images.number + 1,
            "label": images.label.astype(np.int8),
            "laterality": np.where(left, "L", "R"),
            "projection": np.where(images.number % 2 == 0, "CC", "MLO"),
            "site": site,
        }
    )
    case_id = pl.format("sim-{}-{}", pl.lit(like), pl.col("case").cast(pl.String).str.zfill(6))
    image_id = pl.format("{}-{}", case_id, pl.col("number").cast(pl.String).str.zfill(2))
    return table.select(
        image_id.alias("image_id"),
        case_id.alias("case_id"),
        "label",
        "laterality",
        "projection",
        pl.lit(None, dtype=pl.String).alias("path"),
        pl.col("site").cast(pl.String),
    )


def _geometric(mean: float) -> NDArray[np.float64]:
    """Return a geometric law on 0..MOST_EXTRAS with this mean: most cases have no extra image."""
    numbers = np.arange(MOST_EXTRAS + 1)

    def law(ratio: float) -> NDArray[np.float64]:
        weights = ratio**numbers
        return np.asarray(weights / weights.sum())

    ratio = brentq(lambda value: float(law(value) @ numbers) - mean, 1e-9, 1.0)
    return law(ratio)


def _with_total(
    values: NDArray[np.int64],
    total: int,
    generator: np.random.Generator,
    most: NDArray[np.int64] | int = MOST_EXTRAS,
) -> NDArray[np.int64]:
    """Change as few values as possible by one at a time, at random, until they sum to `total`."""
    values = values.copy()
    while (short := total - int(values.sum())) != 0:
        open_to_change = np.flatnonzero(values < most) if short > 0 else np.flatnonzero(values > 0)
        chosen = generator.choice(open_to_change, min(abs(short), open_to_change.size), replace=False)
        values[chosen] += np.sign(short)
    return values
