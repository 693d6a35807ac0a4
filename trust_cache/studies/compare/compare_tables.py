"""The tables of a comparison: differences in dismissal, differences in AUROC, configurations."""

from collections.abc import Callable

from trust_cache.base.text_tables import NO_NUMBER, Table, percent, whole_percent
from trust_cache.studies.compare.comparison_results import (
    ALPHA,
    AurocContrast,
    ComparedPair,
    Comparison,
    Contrast,
    Standing,
    TrainingNoise,
)
from trust_cache.studies.compare.verdicts import auroc_gap, p_value, points, trainings_above

_MINUS = "\u2212"


def sides(pair: ComparedPair) -> tuple[str, ...]:
    """Name a pair of columns: `b5 - b2`, `closed-loop`; or `b5`, `closed-loop - ce`; of one run, `ce`."""
    if pair.reference_run is None:
        return (pair.other,)
    if pair.between_runs:
        return (f"{pair.reference_run} {_MINUS} {pair.other_run}", pair.reference)
    return (pair.reference_run, f"{pair.reference} {_MINUS} {pair.other}")


def all_tables(comparison: Comparison) -> list[Table]:
    """Return the tables of the differences in dismissal, of those in AUROC, and of the configurations."""
    header = (
        *(("Run", "Encoder") if comparison.several else ()), "Configuration", "Recall", "τ", "Dismissed",
        "Positives dismissed", "Incomplete", "Dismissal", "Over trainings", "Splits that miss the target",
        "Expected by the Beta-binomial law",
    )  # fmt: skip
    encoders = {run.name: (run.name, run.encoder or NO_NUMBER) for run in comparison.runs}
    rows = tuple((*encoders.get(item.run or "", ()), *_standing_row(item)) for item in comparison.standings)
    title = "Each configuration, threshold and dismissal on all cases"
    return [_contrast_table(comparison), _auroc_table(comparison), Table(title, header, rows)]


def _sides_header(comparison: Comparison) -> tuple[str, ...]:
    return ("Run", "Configuration") if comparison.several else ("Other",)


def _contrast_table(comparison: Comparison) -> Table:
    settings = comparison.settings
    what = (
        "Between the runs and within each"
        if comparison.several
        else f"{comparison.reference} minus each other configuration"
    )
    title = (
        f"{what}, in points of dismissal at the same recall:"
        f" {comparison.cases:,} cases, {comparison.positives:,} positive"
    )
    header = (
        *_sides_header(comparison), "Recall", "Difference", "95 % interval", "p", "p adjusted", "Verdict",
        f"Not inferior at {settings.margin_points:g}", "Incomplete", "Over trainings",
        "Over single splits (5-95 %)",
    )  # fmt: skip
    drawn = "whole patients" if comparison.patients < comparison.cases else "within class"
    swapped = "patients" if comparison.patients < comparison.cases else "cases"
    parts = [
        f"Interval: {settings.resamples:,} resamples {drawn}. p: {settings.swaps:,} random swaps of the"
        f" two configurations' ranks within {swapped}; adjusted by Holm's method for"
        f" {len(comparison.contrasts)} comparisons. different: adjusted p at most {ALPHA}, no zero in the"
        " interval, and the same sign in every training. Not inferior: the interval is above"
        f" -{settings.margin_points:g} points. Incomplete: cases reviewed in both configurations."
    ]
    if comparison.repeats > 1:
        parts.append(
            f"Over trainings: lowest to highest of {comparison.repeats} repeats, and how many have the run's"
            " own sign. In brackets behind yes: the trainings whose difference is above that margin."
        )
    if settings.resplits:
        parts.append(
            f"Over single splits: of {settings.resplits} search/evaluation splits, with the share that has"
            " the opposite sign."
        )
    rows = tuple((*sides(item), *_contrast_row(item)) for item in comparison.contrasts)
    return Table(title, header, rows, " ".join(parts))


def _contrast_row(item: Contrast) -> tuple[str, ...]:
    interval = (
        "not resolvable"
        if item.low is None or item.high is None
        else f"{points(item.low)} to {points(item.high)}"
    )
    trainings, splits = item.training_noise, item.split_noise
    return (
        whole_percent(item.target),
        points(item.difference),
        interval,
        p_value(item.p),
        p_value(item.p_adjusted),
        item.verdict,
        _margin_cell(item),
        f"{item.incomplete:,}",
        _trainings_cell(trainings, points),
        NO_NUMBER
        if splits is None
        else f"{points(splits.q05)} to {points(splits.q95)} ({percent(splits.opposite_share, 0)} opposite)",
    )


def _margin_cell(item: Contrast) -> str:
    if item.not_inferior is None:
        return NO_NUMBER
    if not item.not_inferior:
        return "not shown"
    noise = item.training_noise
    return (
        "yes" if noise is None else f"yes ({trainings_above(noise, item.margin)} of {len(noise.differences)})"
    )


def _trainings_cell(noise: TrainingNoise | None, write: Callable[[float], str]) -> str:
    if noise is None:
        return NO_NUMBER
    return f"{write(noise.lowest)} to {write(noise.highest)} ({noise.same_sign} of {len(noise.differences)})"


def _auroc_table(comparison: Comparison) -> Table:
    rows = comparison.auroc_contrasts
    one = ", one of each patient" if comparison.patients < comparison.cases else ""
    title = (
        "Case AUROCs between the runs and within each, first minus second"
        if comparison.several
        else f"Case AUROC of {comparison.reference} minus that of each other configuration"
    )
    header = (
        *_sides_header(comparison), "Cases", "AUROC", "Other's AUROC", "Difference", "95 % interval", "p",
        "p adjusted", "Verdict", "Over trainings",
    )  # fmt: skip
    legend = (
        f"Interval and p: DeLong's, paired, on cases complete in both{one}; p adjusted by Holm's method for"
        f" {len(rows)} comparisons. different: adjusted p at most {ALPHA}, and the same sign in every"
        " training."
    )
    cells = tuple((*sides(item), *_auroc_row(item)) for item in rows)
    return Table(title, header, cells, legend)


def _auroc_row(item: AurocContrast) -> tuple[str, ...]:
    if item.difference is None or item.low is None or item.high is None:
        numbers = (NO_NUMBER,) * 6
    else:
        numbers = (
            f"{item.auroc_reference:.4f}",
            f"{item.auroc_other:.4f}",
            auroc_gap(item.difference),
            f"{auroc_gap(item.low)} to {auroc_gap(item.high)}",
            NO_NUMBER if item.p is None else p_value(item.p),
            NO_NUMBER if item.p_adjusted is None else p_value(item.p_adjusted),
        )
    cell = _trainings_cell(item.training_noise, auroc_gap)
    return (f"{item.cases:,}", *numbers, item.verdict, cell)


def _standing_row(item: Standing) -> tuple[str, ...]:
    several = len(item.repeats) > 1
    missed = f"{item.resplits_missed} of {item.resplits} ({percent(item.resplits_missed_share, 0)})"
    return (
        item.configuration,
        whole_percent(item.target),
        f"{item.tau:.6g}",
        f"{item.dismissed:,} of {item.cases:,}",
        f"{item.positives_dismissed:,} of {item.positives:,}",
        f"{item.incomplete:,}",
        percent(item.dismissal),
        f"{percent(min(item.repeats), 1)} to {percent(max(item.repeats), 1)}" if several else NO_NUMBER,
        missed if item.resplits else NO_NUMBER,
        percent(item.resplits_missed_expected, 0),
    )
