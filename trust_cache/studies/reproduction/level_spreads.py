"""How far case AUROCs and image-level dismissals range over random splits of the same scores."""

from collections.abc import Sequence

import numpy as np

from trust_cache.base.documents import Document
from trust_cache.certificate.points import Terms, choose_threshold
from trust_cache.certificate.resplits import QUANTILES
from trust_cache.certificate.score_table import Cohort
from trust_cache.certificate.split import Split, draw_split
from trust_cache.manifest.cases import ABOVE_IMAGES
from trust_cache.statistics.auroc import auroc

Quantiles = dict[str, float]


class LevelSpread(Document, frozen=True, kw_only=True):
    """Quantiles of a configuration over random splits; the image level is by target.

    There is none without images, and where the case threshold says nothing about an image.
    """

    configuration: str | None
    auroc_case: Quantiles
    image_dismissal: dict[str, Quantiles]  # by target, as text

    def at(self, target: float) -> Quantiles | None:
        """Return the quantiles of the image-level dismissal at a target's threshold."""
        return self.image_dismissal.get(f"{target:g}")


class LevelSpreads(Document, frozen=True):
    """The content of levels.json."""

    schema: int
    spreads: tuple[LevelSpread, ...]


def level_spreads(
    cohort: Cohort, targets: Sequence[float], terms: Terms, *, seed: int, resplits: int
) -> tuple[LevelSpread, ...]:
    """Measure every configuration on the splits that `certify --resplits` draws."""
    splits = [draw_split(cohort, seed, resplit=number) for number in range(resplits)]
    return tuple(
        _spread(cohort, splits, index, targets, terms)
        for index in range(len(cohort.configurations))
        if splits
    )


def _spread(
    cohort: Cohort, splits: Sequence[Split], index: int, targets: Sequence[float], terms: Terms
) -> LevelSpread:
    complete = cohort.complete(index)
    images = cohort.images[index] if cohort.aggregation(index) in ABOVE_IMAGES else None
    areas: list[float] = []
    shares: dict[str, list[float]] = {f"{target:g}": [] for target in targets}
    for split in splits:
        members = split.evaluation & complete
        area = auroc(cohort.scores[index][members], cohort.labels[members])
        areas.append(np.nan if area is None else area)
        if images is None:
            continue
        evaluated = split.evaluation[images.case]
        for target in targets:
            tau = choose_threshold(cohort, split, index, target, terms).tau
            below = 0 if tau is None else int(np.count_nonzero(images.scores[evaluated] < tau))
            shares[f"{target:g}"].append(below / images.scores[evaluated].size)
    return LevelSpread(
        configuration=cohort.configurations[index],
        auroc_case=_quantiles(areas),
        image_dismissal={name: _quantiles(values) for name, values in shares.items() if values},
    )


def _quantiles(values: list[float]) -> Quantiles:
    found = np.nanquantile(values, list(QUANTILES.values()))
    return dict(zip(QUANTILES, found.tolist(), strict=True))
