"""Verdicts on differences, and the sentences, limits and tables that report them."""

import math

from trust_cache.base.text_tables import NO_NUMBER, Table, percent, whole_percent
from trust_cache.statistics.thresholds import exact_share
from trust_cache.studies.compare.comparison_results import (
    ALPHA,
    RESOLVED_FROM,
    Comparison,
    Contrast,
    Standing,
    TrainingNoise,
    Verdict,
)
from trust_cache.studies.compare.paired_tests import DifferenceInterval

_KINDS = {
    "external": "The models are fixed and never saw these cases: only the cases are a sample.",
    "out-of-fold": (
        "The statement is about these fold models on further cases. Training again gives other models;"
        " that spread is not part of the interval."
    ),
    "unknown": "The statement is about these scores' models on further cases, as if they never saw these.",
}


def points(share: float) -> str:
    """Write a difference of shares in percentage points: 3.1, -0.4."""
    written = f"{100 * share:.1f}"
    return "0.0" if written == "-0.0" else written


def p_value(p: float) -> str:
    """Write a p-value with two digits."""
    return f"{p:.2g}" if p < 1 else "1"


def judge(
    reference: Standing, other: Standing, interval: DifferenceInterval | None, p_adjusted: float
) -> tuple[Verdict, str]:
    """Return the verdict and its reason; different needs the adjusted test and the interval.

    The test alone finds columns that are not exchangeable, also where their dismissal at this recall is
    the same (curves that cross); the interval alone is not adjusted for the number of comparisons.
    """
    rejected = p_adjusted <= ALPHA
    if interval is None:
        return "not resolvable", _too_few(reference, other)
    if rejected and interval.excludes_zero:
        return "different", "the interval excludes zero and the adjusted test rejects"
    if rejected:
        return "cannot tell", (
            "the test finds the two score columns different, but the interval of the dismissal at this"
            " recall includes zero (curves that cross do that)"
        )
    if interval.excludes_zero:
        return "cannot tell", (
            "the interval excludes zero, but the test does not reject once adjusted for the number of"
            " comparisons"
        )
    return "cannot tell", "the interval includes zero and the adjusted test does not reject"


def _too_few(reference: Standing, other: Standing) -> str:
    fewest = min((reference, other), key=lambda item: item.positives_dismissed)
    allowed = 1 - exact_share(reference.target)
    needed = f"; {math.ceil(RESOLVED_FROM / allowed)} positives would do" if allowed else ""
    return (
        f"{fewest.positives_dismissed} of {fewest.positives} positives are below the threshold of"
        f" {fewest.configuration}, and an interval needs {RESOLVED_FROM}{needed}"
    )


def sentence(
    reference: Standing,
    other: Standing,
    interval: DifferenceInterval | None,
    p_adjusted: float,
    compared: int,
    verdict: Verdict,
    noise: TrainingNoise | None,
) -> str:
    """Return one comparison in plain words."""
    difference = (reference.dismissed - other.dismissed) / reference.cases
    word = "more" if difference > 0 else "less"
    more = f"{points(abs(difference))} points {word} than" if difference else "as much as"
    start = (
        f"At {whole_percent(reference.target)} recall {reference.configuration} dismisses {more}"
        f" {other.configuration} ({percent(reference.dismissal)} against {percent(other.dismissal)}"
        f" of {reference.cases:,} cases)"
    )
    test = f"p = {p_value(p_adjusted)}"
    if compared > 1:
        test += f" after adjustment for {compared} comparisons"
    if interval is None:
        middle = (
            f", but these data have too few positives to say more: {_too_few(reference, other)} ({test})."
        )
    else:
        found = f"95 % interval {points(interval.low)} to {points(interval.high)} points, {test}"
        middle = (
            f"; the difference is real on cases like these: {found}."
            if verdict == "different"
            else f", but the data cannot tell whether that is a real difference: {found}."
        )
    return start + middle + _noise_words(noise)


def _noise_words(noise: TrainingNoise | None) -> str:
    if noise is None:
        return ""
    number = len(noise.differences)
    return (
        f" Over {number} trainings it ranged from {points(noise.lowest)} to {points(noise.highest)} points"
        f" (training noise; {noise.same_sign} of {number} have the first one's sign)."
    )


def limits(kind: str, repeats: int) -> tuple[str, ...]:
    """Return what a comparison does not say, for scores of this kind."""
    noise = (
        f"Training noise is seen over {repeats} trainings. It is a spread, not a confidence interval, and"
        " is never divided by the root of their number."
        if repeats > 1
        else "Training noise is unknown: there is one training. `fit-heads --repeats 5` shows it."
    )
    return (
        "The difference is in the share dismissed at the same recall, with threshold and dismissal on the"
        " same cases. It is not a certificate: `certify` bounds the cancer rate among the dismissed.",
        _KINDS[kind],
        noise,
        "A single search/evaluation split adds noise, usually more than the difference: do not judge"
        " configurations by the table of one split.",
        "No detected difference is no proof of equality: see how wide the interval is.",
    )


def all_tables(comparison: Comparison) -> list[Table]:
    """Return one row per comparison, then one row per configuration and target."""
    header = (
        "Configuration", "Recall", "τ", "Dismissed", "Positives dismissed", "Dismissal",
        "Over trainings", "Splits that miss the target", "Expected by the Beta-binomial law",
    )  # fmt: skip
    rows = tuple(map(_standing_row, comparison.standings))
    title = "Each configuration, threshold and dismissal on all cases"
    return [_contrast_table(comparison), Table(title, header, rows)]


def _contrast_table(comparison: Comparison) -> Table:
    settings = comparison.settings
    title = (
        f"{comparison.reference} minus each other configuration, in points of dismissal at the same recall:"
        f" {comparison.cases:,} cases, {comparison.positives:,} positive"
    )
    header = (
        "Other", "Recall", "Difference", "95 % interval", "p", "p adjusted", "Verdict",
        "Over trainings", "Over single splits (5-95 %)",
    )  # fmt: skip
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
    rows = tuple(_contrast_row(item) for item in comparison.contrasts)
    return Table(title, header, rows, " ".join(parts))


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
