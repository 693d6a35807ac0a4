"""Verdicts and sentences: what may be said of a difference, and what may not."""

import math

from trust_cache.base.text_tables import percent, whole_percent
from trust_cache.statistics.thresholds import exact_share
from trust_cache.studies.compare.interval import RESOLVED_FROM, Interval
from trust_cache.studies.compare.results import Standing, TrainingNoise, Verdict
from trust_cache.studies.compare.settings import ALPHA

_KINDS = {
    "external": "The models are fixed and never saw these cases: only the cases are a sample.",
    "out-of-fold": (
        "The statement is about these fold models on further cases. Training again gives other models;"
        " that spread is no part of the interval."
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
    reference: Standing, other: Standing, interval: Interval | None, p_adjusted: float
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
        f"{fewest.positives_dismissed} of {fewest.positives} positives lie below the threshold of"
        f" {fewest.configuration}, and an interval needs {RESOLVED_FROM}{needed}"
    )


def sentence(
    reference: Standing,
    other: Standing,
    interval: Interval | None,
    p_adjusted: float,
    compared: int,
    verdict: Verdict,
    noise: TrainingNoise | None,
) -> str:
    """Say in plain words what one comparison found."""
    difference = (reference.dismissed - other.dismissed) / reference.cases
    more = "as much as" if not difference else f"{points(abs(difference))} points {_more(difference)} than"
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


def _more(difference: float) -> str:
    return "more" if difference > 0 else "less"


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
        "The difference is in the share dismissed at the same recall, threshold and dismissal on the same"
        " cases; it is no certificate. `certify` bounds the cancer rate among the dismissed.",
        _KINDS[kind],
        noise,
        "One search/evaluation split adds noise of its own, usually more than the difference: do not judge"
        " configurations by one split's table.",
        "Not being told apart is no proof of being the same: see how wide the interval is.",
    )
