"""A comparison as tables of text, for terminal and Markdown."""

from trust_cache.base.text_tables import NO_NUMBER, Table, percent, whole_percent
from trust_cache.studies.compare.results import Comparison, Contrast, Standing
from trust_cache.studies.compare.settings import ALPHA
from trust_cache.studies.compare.words import p_value, points


def all_tables(comparison: Comparison) -> list[Table]:
    """Return the comparisons, and each configuration by itself."""
    return [contrast_table(comparison), standing_table(comparison)]


def contrast_table(comparison: Comparison) -> Table:
    """Return a row a comparison: difference, interval, test, verdict, noise."""
    title = (
        f"{comparison.reference} minus each other configuration, in points of dismissal at the same recall:"
        f" {comparison.cases:,} cases, {comparison.positives:,} positive"
    )
    header = (
        "Other", "Recall", "Difference", "95 % interval", "p", "p adjusted", "Verdict",
        "Over trainings", "Over single splits (5-95 %)",
    )  # fmt: skip
    legend = _legend(comparison)
    return Table(title, header, tuple(_contrast_row(item) for item in comparison.contrasts), legend)


def _legend(comparison: Comparison) -> str:
    settings = comparison.settings
    parts = [
        f"Interval: {settings.resamples:,} resamples within class. p: {settings.swaps:,} random swaps of the"
        " two configurations' ranks within cases; adjusted by Holm's method for"
        f" {len(comparison.contrasts)} comparisons. different: adjusted p at most {ALPHA} and no zero in the"
        " interval."
    ]
    if comparison.repeats > 1:
        parts.append(f"Over trainings: lowest to highest of {comparison.repeats} repeats.")
    if settings.resplits:
        parts.append(
            f"Over single splits: of {settings.resplits} search/evaluation splits, with the share that has"
            " the opposite sign."
        )
    return " ".join(parts)


def standing_table(comparison: Comparison) -> Table:
    """Return a row a configuration and target: counts, and how often a split misses the target."""
    header = (
        "Configuration", "Recall", "τ", "Dismissed", "Positives dismissed", "Dismissal",
        "Over trainings", "Splits that miss the target", "Expected by the Beta-binomial law",
    )  # fmt: skip
    rows = tuple(_standing_row(item) for item in comparison.standings)
    return Table("Each configuration, threshold and dismissal on all cases", header, rows)


def _contrast_row(item: Contrast) -> tuple[str, ...]:
    interval = (
        "not resolvable"
        if item.low is None or item.high is None
        else f"{points(item.low)} to {points(item.high)}"
    )
    trainings, splits = item.training_noise, item.split_noise
    return (
        item.other,
        whole_percent(item.target),
        points(item.difference),
        interval,
        p_value(item.p),
        p_value(item.p_adjusted),
        item.verdict,
        NO_NUMBER if trainings is None else f"{points(trainings.lowest)} to {points(trainings.highest)}",
        NO_NUMBER
        if splits is None
        else f"{points(splits.q05)} to {points(splits.q95)} ({percent(splits.opposite_share, 0)} opposite)",
    )


def _standing_row(item: Standing) -> tuple[str, ...]:
    several = len(item.repeats) > 1
    missed = f"{item.resplits_missed} of {item.resplits} ({percent(item.resplits_missed_share, 0)})"
    return (
        item.configuration,
        whole_percent(item.target),
        f"{item.tau:.6g}",
        f"{item.dismissed:,} of {item.cases:,}",
        f"{item.positives_dismissed:,} of {item.positives:,}",
        percent(item.dismissal),
        f"{percent(min(item.repeats), 1)} to {percent(max(item.repeats), 1)}" if several else NO_NUMBER,
        missed if item.resplits else NO_NUMBER,
        percent(item.resplits_missed_expected, 0),
    )
