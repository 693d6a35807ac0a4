"""Verdicts on differences, and the sentences and limits that report them."""

import math
from collections.abc import Callable

from trust_cache.base.text_tables import percent, whole_percent
from trust_cache.statistics.auroc import PairedAurocs
from trust_cache.statistics.thresholds import exact_share
from trust_cache.studies.compare.comparison_results import (
    ALPHA,
    AUROC_TRAININGS,
    RESOLVED_FROM,
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
_PATIENTS = (
    "Some patients have several cases here. Swaps and resamples take whole patients, and the AUROCs use one"
    " case of each, drawn at random."
)
_RUNS = (
    "Each configuration is compared between the runs, and the reference with the others within each run; no"
    " other pair is. The p-values are adjusted for all of these comparisons together. A case that is"
    " incomplete in one run is reviewed in all of them. A difference between runs is one of their caches:"
    " encoder, weights, input size and precision together."
)


def points(share: float) -> str:
    """Write a difference of shares in percentage points: 3.1, -0.4."""
    written = f"{100 * share:.1f}"
    return "0.0" if written == "-0.0" else written


def p_value(p: float) -> str:
    """Write a p-value with two digits."""
    return f"{p:.2g}" if p < 1 else "1"


def judge(
    reference: Standing,
    other: Standing,
    interval: DifferenceInterval | None,
    p_adjusted: float,
    noise: TrainingNoise | None,
) -> tuple[Verdict, str]:
    """Return the verdict and its reason; different needs the adjusted test, the interval and every training.

    The test alone finds columns that are not exchangeable, also where their dismissal at this recall is
    the same (curves that cross); the interval alone is not adjusted for the number of comparisons. Both are
    about these trained models: a difference whose sign changes with the seed is one of seeds.
    """
    rejected = p_adjusted <= ALPHA
    if interval is None:
        return "not resolvable", _too_few(reference, other)
    if rejected and interval.excludes_zero:
        return _over_trainings("the interval excludes zero and the adjusted test rejects", noise)
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


def judge_auroc(
    found: PairedAurocs | None, p_adjusted: float | None, noise: TrainingNoise | None
) -> tuple[Verdict, str]:
    """Return the verdict on a difference of AUROCs and its reason."""
    if found is None or p_adjusted is None:
        return "not resolvable", "a class has fewer than two complete cases"
    if p_adjusted > ALPHA:
        return "cannot tell", "the adjusted test does not reject"
    trainings = 1 if noise is None else len(noise.differences)
    if trainings < AUROC_TRAININGS:
        return "cannot tell", (
            f"the adjusted test rejects, but training noise alone often does that: expected {AUROC_TRAININGS}"
            f" trainings or more (fit-heads --repeats), found {trainings}"
        )
    return _over_trainings("the adjusted test rejects", noise)


def _over_trainings(reason: str, noise: TrainingNoise | None) -> tuple[Verdict, str]:
    """Return the verdict on a difference that the cases show, by its sign in every training."""
    if noise is None:
        return "different", f"{reason}; training noise was not looked at"
    held = f"the sign holds in {noise.same_sign} of {len(noise.differences)} trainings"
    if noise.same_sign == len(noise.differences):
        return "different", f"{reason}, and {held}"
    return "cannot tell", f"{reason}, but {held}"


def _too_few(reference: Standing, other: Standing) -> str:
    fewest = min((reference, other), key=lambda item: item.positives_dismissed)
    allowed = 1 - exact_share(reference.target)
    needed = f"; {math.ceil(RESOLVED_FROM / allowed)} positives would do" if allowed else ""
    if fewest.positives_dismissed >= RESOLVED_FROM:
        return (
            f"the positives below a threshold belong to fewer than {RESOLVED_FROM} patients, and an interval"
            f" needs {RESOLVED_FROM}"
        )
    return (
        f"{fewest.positives_dismissed} of {fewest.positives} positives are below the threshold of"
        f" {fewest.label}, and an interval needs {RESOLVED_FROM}{needed}"
    )


def sentence(
    reference: Standing,
    other: Standing,
    interval: DifferenceInterval | None,
    p_adjusted: float,
    compared: int,
    verdict: Verdict,
    noise: TrainingNoise | None,
    margin: float,
) -> str:
    """Return one comparison in plain words."""
    difference = (reference.dismissed - other.dismissed) / reference.cases
    word = "more" if difference > 0 else "less"
    more = f"{points(abs(difference))} points {word} than" if difference else "as much as"
    start = (
        f"At {whole_percent(reference.target)} recall {reference.label} dismisses {more}"
        f" {other.label} ({percent(reference.dismissal)} against {percent(other.dismissal)}"
        f" of {reference.cases:,} cases)"
    )
    test = _test_words(p_adjusted, compared)
    if interval is None:
        middle = (
            f", but these data have too few positives to say more: {_too_few(reference, other)} ({test})."
        )
    else:
        found = f"95 % interval {points(interval.low)} to {points(interval.high)} points, {test}"
        middle = _verdict_words(verdict, found, noise, shown=interval.excludes_zero and p_adjusted <= ALPHA)
        middle += _margin_words(interval, margin, noise)
    return start + middle + _noise_words(verdict, noise, points, " points")


def auroc_sentence(
    names: tuple[str, str],
    found: PairedAurocs | None,
    p_adjusted: float | None,
    compared: int,
    verdict: Verdict,
    noise: TrainingNoise | None,
) -> str:
    """Return one comparison of AUROCs in plain words."""
    reference, other = names
    if found is None or p_adjusted is None:
        return (
            f"The case AUROCs of {reference} and {other} cannot be compared: a class has fewer than two"
            " complete cases."
        )
    gap = found.difference.value
    word = "higher" if gap > 0 else "lower"
    more = f"{auroc_gap(abs(gap))} {word} than" if gap else "the same as"
    interval = f"95 % interval {auroc_gap(found.difference.lower)} to {auroc_gap(found.difference.upper)}"
    words = f"{interval}, {_test_words(p_adjusted, compared)}"
    return (
        f"The case AUROC of {reference} is {more} that of {other} ({found.first:.4f} against"
        f" {found.second:.4f})"
        + _verdict_words(verdict, words, noise, shown=p_adjusted <= ALPHA)
        + _noise_words(verdict, noise, auroc_gap, "")
    )


def auroc_gap(difference: float) -> str:
    """Write a difference of AUROCs: 0.0123, -0.0040."""
    written = f"{difference:.4f}"
    return "0.0000" if written == "-0.0000" else written


def _test_words(p_adjusted: float, compared: int) -> str:
    test = f"p = {p_value(p_adjusted)}"
    return f"{test} after adjustment for {compared} comparisons" if compared > 1 else test


def _verdict_words(verdict: Verdict, found: str, noise: TrainingNoise | None, *, shown: bool) -> str:
    """Say what the verdict is; `shown` is whether the cases alone show a difference."""
    if verdict == "different":
        return f"; the difference is real on cases like these: {found}."
    if shown:
        turned = noise is not None and noise.same_sign < len(noise.differences)
        doubt = (
            "training again changes the sign"
            if turned
            else f"only {AUROC_TRAININGS} trainings or more can show that it is no training noise"
            " (`fit-heads --repeats 5`)"
        )
        return f"; these trained models differ ({found}), but {doubt}."
    return f", but the data cannot tell whether that is a real difference: {found}."


def _margin_words(interval: DifferenceInterval, margin: float, noise: TrainingNoise | None) -> str:
    number = f"{100 * margin:g}"
    width = f"{number} point" if number == "1" else f"{number} points"
    if interval.low <= -margin:
        return f" Non-inferiority at a margin of {width} is not shown."
    if noise is None or (kept := trainings_above(noise, margin)) == len(noise.differences):
        return f" It is not inferior at a margin of {width}."
    return (
        f" By this training's interval it is not inferior at a margin of {width}, but only {kept} of"
        f" {len(noise.differences)} trainings are above that margin."
    )


def trainings_above(noise: TrainingNoise, margin: float) -> int:
    """Count the trainings whose difference is above minus the margin."""
    return sum(difference > -margin for difference in noise.differences)


def _noise_words(
    verdict: Verdict, noise: TrainingNoise | None, write: Callable[[float], str], unit: str
) -> str:
    if noise is None:
        missing = " Training noise was not looked at: there is one training (`fit-heads --repeats 5`)."
        return missing if verdict == "different" else ""
    number = len(noise.differences)
    return (
        f" Over {number} trainings it ranged from {write(noise.lowest)} to {write(noise.highest)}{unit}"
        f" (training noise); the sign held in {noise.same_sign} of {number}, where equal configurations keep"
        f" it in all {number} with a chance of {percent(noise.chance, 1)}."
    )


def limits(kind: str, repeats: int, *, runs: int = 1, patients: bool = False) -> tuple[str, ...]:
    """Return what a comparison does not say, for scores of this kind; `patients` have several cases."""
    noise = (
        f"Training noise is seen over {repeats} trainings. It is a spread, not a confidence interval, and"
        " is never divided by the root of their number."
        if repeats > 1
        else "Training noise was not looked at: there is one training. `fit-heads --repeats 5` shows it. A"
        " verdict from one training is about these trained models."
    )
    return (
        *((_PATIENTS,) if patients else ()),
        *((_RUNS,) if runs > 1 else ()),
        "The difference is in the share dismissed at the same recall, with threshold and dismissal on the"
        " same cases. It is not a certificate: `certify` bounds the cancer rate among the dismissed.",
        _KINDS[kind],
        noise,
        "A single search/evaluation split adds noise, usually more than the difference: do not judge"
        " configurations by the table of one split.",
        "No detected difference is no proof of equality: see how wide the interval is. Non-inferiority means"
        " something only for a margin chosen before seeing the result; it is not adjusted for the number of"
        " comparisons.",
    )
