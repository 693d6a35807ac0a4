"""The paper's four tables and its economic estimate, each published row with ours below it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trust_cache.base.text_tables import NO_NUMBER, Table, percent, whole_percent
from trust_cache.certificate.point_tables import NOT_AVAILABLE, target_header
from trust_cache.certificate.points import Point
from trust_cache.studies.reproduction.paper_numbers import PaperNumber, SettingResult
from trust_cache.studies.reproduction.published import (
    EXTERNAL,
    PROPOSED,
    PublishedHead,
    PublishedPoint,
    PublishedSetting,
    published,
)

TARGETS = (0.98, 0.95)
PAPER, HERE = "paper", "here"
NO_CACHE = "no cache of this setting was given"
_BOUND = "CPU99"

Reasons = dict[tuple[str, str], str]  # why a cell is N/A, by its row and target


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables with ours in it, and why its cells are N/A."""

    key: str
    table: Table
    reasons: Reasons


def setting_table(key: str, setting: PublishedSetting, result: SettingResult | None) -> PaperTable:
    """Return table 1, 2 or 3: for each configuration the published row, ours, and the range over splits."""
    image_level = key != EXTERNAL
    header = ["Configuration", *_target_columns(), "Case AUROC", "Image AUROC"]
    header += [f"Image dismissal at τ{100 * target:.6g}" for target in TARGETS]
    rows: list[tuple[str, ...]] = []
    reasons: Reasons = {}
    ours = [] if result is None else result.configurations
    for name in dict.fromkeys([*setting.heads, *ours]):
        if name in setting.heads:
            rows.append(_published_row(name, setting.heads[name]))
            reasons |= _published_reasons(name, setting.heads[name])
        if result is not None and name in ours:
            points = [result.point(name, target) for target in TARGETS]
            rows.append(_our_row(name, points))
            reasons |= {
                (f"{name}, {HERE}", whole_percent(point.target)): point.reason
                for point in points
                if point is not None and point.reason is not None
            }
            if any(result.spread(name, target) for target in TARGETS):
                rows.append(_spread_row(name, result))
    title = f"Table {setting.table}. {setting.title}: published, evaluation on {_cases(setting)}; here, "
    title += NO_CACHE if result is None else f"on {_cases(result.points[0])}"
    names = "; ".join(f"{name}: {published().names[name]}" for name in setting.heads)
    legend = f"{PAPER}: as printed. {names}."
    if result is not None:
        legend += (
            f" {HERE}: this run, its one split. splits: median and 5-95 % range over other random splits"
        )
        legend += " of the same scores, met or not."
    if not image_level:
        legend += " The paper prints no image level here."
    return PaperTable(f"table-{setting.table}", Table(title, tuple(header), tuple(rows), legend), reasons)


def summary_table(results: Mapping[str, SettingResult]) -> PaperTable:
    """Return table 4: the best alternative and the proposed model in each setting."""
    rows: list[tuple[str, ...]] = []
    reasons: Reasons = {}
    for key, setting in published().settings.items():
        printed = {name: head for name, head in setting.heads.items() if name != PROPOSED}
        best = [_best_published(printed, target) for target in TARGETS]
        alternative = _named([name for name, _ in best])
        row = f"{setting.title}: {alternative}, {PAPER}"
        rows.append((row, *_published_cells([point for _, point in best])))
        reasons |= {(row, whole_percent(target)): _NOT_MET for target in TARGETS}
        row = f"{setting.title}: {PROPOSED}, {PAPER}"
        rows.append((row, *_published_cells(setting.heads[PROPOSED].points)))
        if (result := results.get(key)) is None:
            rows.append((f"{setting.title}: {HERE}, {NO_CACHE}", *(NO_NUMBER,) * 4))
            continue
        ours = [_best_found(result, setting, target) for target in TARGETS]
        row = f"{setting.title}: {_named([_name(point) for point in ours])}, {HERE}"
        rows.append((row, *_our_cells(ours)))
        reasons |= {(row, whole_percent(target)): "no alternative met the target" for target in TARGETS}
        proposed = [result.point(PROPOSED, target) for target in TARGETS]
        row = f"{setting.title}: {PROPOSED}, {HERE}"
        rows.append((row, *_our_cells(proposed)))
        reasons |= {
            (row, whole_percent(point.target)): point.reason for point in proposed if point and point.reason
        }
    legend = (
        "Best alternative: of the paper's configurations other than closed-loop that met the target, the one"
        " with the largest dismissal; in the external setting there is only ce. Choosing it by its evaluation"
        " result favours it."
    )
    table = Table(
        "Table 4. Summary over the three settings", ("Setting", *_target_columns()), tuple(rows), legend
    )
    return PaperTable("table-4", table, reasons)


def numbers_table(numbers: Sequence[PaperNumber]) -> Table:
    """Return every published number with what it is and what was found here."""
    rows = []
    for item in numbers:
        write = _writer(item)
        agrees = {None: NO_NUMBER, True: "agrees", False: "does not agree"}[item.agrees]
        recomputed = NO_NUMBER if item.recomputed is None else write(item.recomputed)
        span = NO_NUMBER
        if item.low is not None and item.high is not None:
            inside = {True: "inside", False: "outside", None: NO_NUMBER}[item.within]
            span = f"{write(item.low)} to {write(item.high)} ({inside})"
        name = item.setting if item.configuration is None else f"{item.setting} {item.configuration}"
        target = NO_NUMBER if item.target is None else whole_percent(item.target)
        printed = NOT_AVAILABLE if item.published is None else write(item.published)
        here = NO_NUMBER if item.here is None else write(item.here)
        cells = (name, target, item.quantity, item.nature, printed, recomputed, agrees, here, span, item.note)
        rows.append(cells)
    header = (
        "Setting", "Target", "Number", "What it is", "Published", "From its own counts", "Arithmetic", "Here",
        "Here, 5-95 % of splits", "Note",
    )  # fmt: skip
    legend = (
        "arithmetic: follows from integers and must agree exactly. sampling: depends on folds, batches, draws"
        " of views and the split; the range over splits says how far, and whether the published value is"
        " inside. not reproducible: contradicts the published case-level result. Splits: met or not."
    )
    return Table("Every published number", header, tuple(rows), legend, keys=3)


_NOT_MET = "the paper reports that the target was not met"


def _target_columns() -> list[str]:
    return [name for target in TARGETS for name in (target_header(whole_percent(target)), _BOUND)]


def _cases(counted: PublishedSetting | Point) -> str:
    return f"{counted.cases:,} cases, {counted.positives:,} positive"


def _published_row(name: str, head: PublishedHead) -> tuple[str, ...]:
    points = [head.point(target) for target in TARGETS]
    images = [NO_NUMBER if point is None else _printed(point.image_dismissal) for point in points]
    return (f"{name}, {PAPER}", *_published_cells(points), f"{head.auroc:.4f}", NO_NUMBER, *images)


def _published_reasons(name: str, head: PublishedHead) -> Reasons:
    return {
        (f"{name}, {PAPER}", whole_percent(point.target)): _NOT_MET
        for point in head.points
        if point.dismissal is None
    }


def _published_cells(points: Sequence[PublishedPoint | None]) -> list[str]:
    cells = []
    for point in points:
        if point is None or point.dismissal is None:
            cells += [NOT_AVAILABLE, NO_NUMBER]
        else:
            cells += [_printed(point.dismissal), _printed(point.bound)]
    return cells


def _our_row(name: str, points: Sequence[Point | None]) -> tuple[str, ...]:
    first = next((point for point in points if point is not None), None)
    aurocs = [None, None] if first is None else [first.auroc_case, first.auroc_image]
    return (
        f"{name}, {HERE}",
        *_our_cells(points),
        *(NO_NUMBER if value is None else f"{value:.4f}" for value in aurocs),
        *(NO_NUMBER if point is None else percent(point.image_dismissal) for point in points),
    )


def _our_cells(points: Sequence[Point | None]) -> list[str]:
    cells = []
    for point in points:
        if point is None or not point.met:
            cells += [NOT_AVAILABLE, NO_NUMBER]
        else:
            cells += [percent(point.dismissal), percent(point.bound)]
    return cells


def _spread_row(name: str, result: SettingResult) -> tuple[str, ...]:
    level = result.level(name)
    cells: list[str] = []
    for target in TARGETS:
        spread = result.spread(name, target)
        cells += map(_ranging, (None, None) if spread is None else (spread.dismissal, spread.bound))
    area = NO_NUMBER
    if level is not None:
        low, middle, high = (f"{level.auroc_case[quantile]:.3f}" for quantile in ("q05", "q50", "q95"))
        area = f"{middle} ({low}-{high})"
    images = (_ranging(None if level is None else level.at(target)) for target in TARGETS)
    return (f"{name}, splits", *cells, area, NO_NUMBER, *images)


def _ranging(quantiles: Mapping[str, float] | None) -> str:
    if quantiles is None:
        return NO_NUMBER
    low, middle, high = (f"{100 * quantiles[name]:.1f}" for name in ("q05", "q50", "q95"))
    return f"{middle} ({low}-{high})%"


def _best_published(heads: Mapping[str, PublishedHead], target: float) -> tuple[str, PublishedPoint | None]:
    points = {name: head.point(target) for name, head in heads.items()}
    met = {name: point for name, point in points.items() if point is not None and point.dismissal is not None}
    if not met:
        return next(iter(heads)), None
    name = max(met, key=lambda name: met[name].dismissal or 0.0)
    return name, met[name]


def _best_found(result: SettingResult, setting: PublishedSetting, target: float) -> Point | None:
    others = [name for name in setting.heads if name != PROPOSED]
    met = [
        point
        for point in result.points
        if point.target == target and point.configuration in others and point.met
    ]
    return max(met, key=lambda point: point.dismissal or 0.0, default=None)


def _name(point: Point | None) -> str:
    return NO_NUMBER if point is None else str(point.configuration)


def _named(names: Sequence[str]) -> str:
    different = [name for name in dict.fromkeys(names) if name != NO_NUMBER]
    return f"best alternative ({' and '.join(different) or 'none met a target'})"


def _printed(value: float | None) -> str:
    return NO_NUMBER if value is None else f"{value:.2f}%"


def _writer(item: PaperNumber):  # type: ignore[no-untyped-def]
    if item.quantity == "case AUROC":
        return "{:.4f}".format
    return "{:,.0f}".format if item.quantity.startswith("evaluation") else "{:.2f}%".format
