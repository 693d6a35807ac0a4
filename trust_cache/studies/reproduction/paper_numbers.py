"""Every published number beside ours, and what it is: arithmetic, sampling, or impossible to reproduce."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trust_cache.base.documents import Document
from trust_cache.certificate.points import Point
from trust_cache.certificate.resplits import Spread
from trust_cache.statistics.bounds import clopper_pearson_upper
from trust_cache.studies.reproduction.level_spreads import LevelSpread
from trust_cache.studies.reproduction.published import PublishedPoint, PublishedSetting, published

Quantity = Literal[
    "evaluation cases", "evaluation positives", "case dismissal", "CPU99", "case AUROC", "image dismissal"
]
Nature = Literal["arithmetic", "sampling", "not reproducible"]
PAPER_DELTA = 0.01  # of CPU99
_ROUNDING = 0.0051  # of a printed percentage


@dataclass(frozen=True)
class SettingResult:
    """What was found in one of the paper's settings."""

    key: str
    points: tuple[Point, ...]
    spreads: tuple[Spread, ...]
    levels: tuple[LevelSpread, ...] = ()

    @property
    def configurations(self) -> list[str]:
        """The names of the configurations, in order."""
        return list(dict.fromkeys(str(point.configuration) for point in self.points))

    def point(self, configuration: str, target: float) -> Point | None:
        """Return the point of a configuration at a target."""
        named = (item for item in self.points if item.configuration == configuration)
        return next((point for point in named if point.target == target), None)

    def spread(self, configuration: str, target: float) -> Spread | None:
        """Return the spread of a configuration at a target over other splits."""
        named = (item for item in self.spreads if item.configuration == configuration)
        return next((spread for spread in named if spread.target == target), None)

    def level(self, configuration: str) -> LevelSpread | None:
        """Return how far the case AUROC and the image level of a configuration range over other splits."""
        return next((level for level in self.levels if level.configuration == configuration), None)


class PaperNumber(Document, frozen=True):
    """One published number: what it is, what its own counts give, what was found here.

    Rates are percentages, as the paper prints them. `published` is None where the paper prints N/A, `here`
    where nothing was found (no cache, or N/A). `low` and `high` are the 5 % and 95 % quantiles of other
    splits, met or not.
    """

    table: int
    setting: str
    configuration: str | None
    target: float | None
    quantity: Quantity
    nature: Nature
    published: float | None
    recomputed: float | None = None  # from the published integers
    here: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""

    @property
    def agrees(self) -> bool | None:
        """Whether it follows from its own integers, or is the count found here; None where it has neither."""
        if self.quantity.startswith("evaluation"):
            return None if self.here is None else self.here == self.published
        if self.published is None or self.recomputed is None:
            return None
        return abs(self.published - self.recomputed) < _ROUNDING

    @property
    def within(self) -> bool | None:
        """Whether the published number is in the range of other splits; None where there is no range."""
        if self.published is None or self.low is None or self.high is None:
            return None
        rounding = _ROUNDING / 100 if self.quantity == "case AUROC" else _ROUNDING
        return self.low - rounding < self.published < self.high + rounding

    def row(self) -> dict[str, Any]:
        """Return it with both verdicts, ready for a table."""
        return self.as_document() | {"agrees": self.agrees, "within": self.within}


def paper_numbers(results: Sequence[SettingResult]) -> tuple[PaperNumber, ...]:
    """Return every number of the paper's tables 1 to 3, in order; table 4 repeats some of them."""
    found = {result.key: result for result in results}
    return tuple(
        number
        for key, setting in published().settings.items()
        for number in _numbers_of(key, setting, found.get(key))
    )


def _numbers_of(key: str, setting: PublishedSetting, result: SettingResult | None) -> Iterator[PaperNumber]:
    first = None if result is None else result.points[0]
    of_cohort: tuple[tuple[Quantity, int, int | None], ...] = (
        ("evaluation cases", setting.cases, None if first is None else first.cases),
        ("evaluation positives", setting.positives, None if first is None else first.positives),
    )
    for quantity, printed, here in of_cohort:
        yield PaperNumber(
            table=setting.table,
            setting=key,
            configuration=None,
            target=None,
            quantity=quantity,
            nature="arithmetic",
            published=printed,
            here=here,
        )
    for configuration, head in setting.heads.items():
        level = None if result is None else result.level(configuration)
        for printed_point in head.points:
            target = printed_point.target
            point = None if result is None else result.point(configuration, target)
            spread = None if result is None else result.spread(configuration, target)
            of_images = None if level is None else level.at(target)
            yield from _of_point(key, setting, configuration, printed_point, point, spread, of_images)
        point = None if result is None else result.point(configuration, head.points[0].target)
        yield PaperNumber(
            table=setting.table,
            setting=key,
            configuration=configuration,
            target=None,
            quantity="case AUROC",
            nature="sampling",
            published=head.auroc,
            here=None if point is None else point.auroc_case,
            low=None if level is None else level.auroc_case["q05"],
            high=None if level is None else level.auroc_case["q95"],
        )


def _of_point(
    key: str,
    setting: PublishedSetting,
    configuration: str,
    printed: PublishedPoint,
    point: Point | None,
    spread: Spread | None,
    of_images: Mapping[str, float] | None,
) -> Iterator[PaperNumber]:
    def number(quantity: Quantity, nature: Nature, value: float | None, **more: object) -> PaperNumber:
        return PaperNumber(
            table=setting.table,
            setting=key,
            configuration=configuration,
            target=printed.target,
            quantity=quantity,
            nature=nature,
            published=value,
            **more,  # type: ignore[arg-type]
        )

    met = point is not None and bool(point.met)
    counts = printed.dismissed, printed.positives_dismissed
    dismissed, missed = (None, None) if None in counts else counts
    of_dismissal = {} if spread is None else _range(spread.dismissal)
    of_bound = {} if spread is None else _range(spread.bound)
    why = "N/A in the paper: the target was not met" if printed.dismissal is None else ""
    yield number(
        "case dismissal",
        "sampling",
        printed.dismissal,
        recomputed=None if dismissed is None else 100 * dismissed / setting.cases,
        here=_percent(point.dismissal) if met and point else None,
        note=why,
        **of_dismissal,
    )
    yield number(
        "CPU99",
        "arithmetic",
        printed.bound,
        recomputed=None if dismissed is None or missed is None else _bound_of(missed, dismissed),
        here=_percent(point.bound) if met and point else None,
        note=why,
        **of_bound,
    )
    if printed.image_dismissal is None:
        return
    least = printed.image_dismissal_at_least
    yield number(
        "image dismissal",
        "sampling" if least is None else "not reproducible",
        printed.image_dismissal,
        here=_percent(point.image_dismissal) if point else None,
        note=""
        if least is None
        else f"at least {least:.2f}% by the published number of dismissed cases, over every possible split",
        **({} if of_images is None else _range(of_images)),
    )


def _bound_of(missed: int, dismissed: int) -> float:
    return 100 * float(clopper_pearson_upper(missed, dismissed, PAPER_DELTA))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _range(quantiles: Mapping[str, float]) -> dict[str, float]:
    return {"low": 100 * quantiles["q05"], "high": 100 * quantiles["q95"]}
