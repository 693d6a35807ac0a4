"""Fit the linear rivals of one fold, each with the ridge that its own loss prefers on the calibration part.

The calibration part is where the closed loop chooses its threshold. No test case is used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from trust_cache.heads.losses import sigmoid
from trust_cache.statistics.rules import Allowance, allowance
from trust_cache.studies.rivals.corner_search import ENOUGH, FLAT, minimise_with_corners
from trust_cache.studies.rivals.rival_objectives import (
    ConformalTerms,
    SelectiveModel,
    SelectiveTerms,
    ValueAndGradient,
    conformal_risk,
    logistic_loss,
    ridge,
    selective_loss,
    selective_ridge,
)
from trust_cache.studies.rivals.rival_parts import Floats, Part

Objective = Callable[[Floats], ValueAndGradient]


@dataclass(frozen=True)
class LinearSettings:
    """The constants of the linear rivals, recorded with the results.

    Coverage, conformal weight and temperature were chosen by docs/rivals_models.py, on cohorts of other laws
    and truths than those on which the models are compared.
    """

    draws: int = 8  # of each cancer image: an augmented view and a dropout mask
    dropout: float = 0.3  # the paper's
    ridges: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03, 0.01)
    coverage: float = 0.3  # SelectiveNet: the share to select
    penalty: float = 32.0  # SelectiveNet's lambda, as published
    auxiliary: float = 0.5  # SelectiveNet's 1 - alpha, as published
    conformal_weight: float = 0.03
    temperature: float = 0.5  # of the soft share, in logits
    iterations: int = 500  # at most, of any fit


@dataclass(frozen=True)
class Fitted:
    """A fitted rival, the strength of ridge that was chosen, and whether it converged."""

    score: Callable[[Part], Floats]  # of a part's images
    model: Floats
    strength: float
    converged: bool


def fit_logistic_regression(fit: Part, calibrate: Part, settings: LinearSettings) -> Fitted:
    """Fit with each ridge; keep the lowest cross-entropy on calibration."""
    start = np.zeros(fit.features.shape[1] + 1)
    found = []
    for strength in settings.ridges:
        objective = _sum(lambda m: logistic_loss(m, fit), lambda m, s=strength: ridge(m, s))  # type: ignore[misc]
        found.append(_linear(*converge(objective, start, settings.iterations), strength))
        start = found[-1].model
    return _best(found, calibrate, lambda model: logistic_loss(model, calibrate)[0])


def fit_selective_net(fit: Part, calibrate: Part, settings: LinearSettings) -> Fitted:
    """Minimise SelectiveNet's loss with each ridge; keep the lowest on calibration."""
    terms = SelectiveTerms(settings.coverage, settings.penalty, settings.auxiliary)
    start = SelectiveModel.start(fit.features.shape[1])
    found = []
    for strength in settings.ridges:
        objective = _sum(
            lambda m: selective_loss(m, fit, terms),
            lambda m, s=strength: selective_ridge(m, s),  # type: ignore[misc]
        )
        model, converged = converge(objective, start, settings.iterations)
        found.append(Fitted(SelectiveModel.of(model).score, model, strength, converged))
        start = model
    return _best(found, calibrate, lambda model: selective_loss(model, calibrate, terms)[0])


def fit_conformal_risk(start: Fitted, fit: Part, target: float, settings: LinearSettings) -> Fitted:
    """Train a logistic regression further, with the gradient through the threshold of conformal risk control.

    With too few positive cases for the rule, the threshold is their lowest score: the promise is made
    later, by conformal risk control on the search subset.
    """
    if not (positives := int(np.count_nonzero(fit.positive_cases))):
        return start
    misses = conformal_misses(positives, target).misses or 0
    terms = ConformalTerms(misses, settings.conformal_weight, settings.temperature)
    objective = _sum(lambda m: conformal_risk(m, fit, terms), lambda m: ridge(m, start.strength))
    model, converged = minimise_with_corners(objective, start.model, settings.iterations)
    return _linear(model, converged, start.strength)


def conformal_misses(positives: int, target: float) -> Allowance:
    """Return what conformal risk control allows among this number of positive cases."""
    return allowance("crc", positives, target, delta=0.5)  # it bounds an expectation: delta is not used


def converge(objective: Objective, start: Floats, iterations: int) -> tuple[Floats, bool]:
    """Minimise a smooth objective by L-BFGS; return the lowest point and whether a minimum was reached.

    The search starts again where it stopped, until a start gains next to nothing.
    """
    model, lowest, left = start, objective(start)[0], iterations
    while left > 0:
        options = {"maxiter": left, "ftol": FLAT}
        found = minimize(objective, model, jac=True, method="L-BFGS-B", options=options)
        left -= max(1, int(found.nit))
        gain, model = lowest - float(found.fun), np.asarray(found.x, dtype=np.float64)
        lowest = float(found.fun)
        if gain <= ENOUGH * abs(lowest):
            return model, True
    return model, False


def _linear(model: Floats, converged: bool, strength: float) -> Fitted:
    return Fitted(lambda part: sigmoid(part.logits(model)), model, strength, converged)


def _best(found: Sequence[Fitted], calibrate: Part, loss: Callable[[Floats], float]) -> Fitted:
    """Return the fit with the lowest loss on calibration; the first where it has no cancer."""
    if not np.any(calibrate.labels == 1):
        return found[0]
    return min(found, key=lambda item: loss(item.model))


def _sum(one: Objective, other: Objective) -> Objective:
    def both(model: Floats) -> ValueAndGradient:
        value, gradient = one(model)
        more, slope = other(model)
        return value + more, gradient + slope

    return both
