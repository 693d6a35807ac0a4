"""The linear rivals on one fold: logistic regression, SelectiveNet's selection head, conformal risk training.

All are linear on the features that a head's LayerNorm gives, fitted on the clean views of a fold's fitting
images; their one free number, the strength of the ridge, is chosen on the training-calibration images, as the
closed loop chooses its threshold there. No test case has a part in any of it.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from trust_cache.heads.losses import cross_entropy, sigmoid
from trust_cache.statistics.rules import Allowance, allowance
from trust_cache.studies.rivals.objectives import (
    ConformalTerms,
    Floats,
    Part,
    ValueAndGradient,
    conformal_risk,
    ridge,
    selective_risk,
)


@dataclass(frozen=True)
class LinearSettings:
    """The constants of the linear rivals, recorded with the results."""

    inverse_ridges: tuple[float, ...] = (1e-3, 1e-2, 1e-1)  # scikit-learn's C
    iterations: int = 100  # at most, of the logistic regression
    coverage: float = 0.5  # SelectiveNet: the share that the selection head is to dismiss
    penalty: float = 32.0  # SelectiveNet's lambda, as published
    selective_ridges: tuple[float, ...] = (1.0, 1e-1, 1e-2)
    selective_iterations: int = 50
    conformal_weight: float = 1.0
    temperature: float = 0.5  # of the soft share, in logits
    steps: int = 30  # of Adam, from the logistic regression on
    step_size: float = 3e-4


@dataclass(frozen=True)
class Fitted:
    """A fitted linear model and the strength of ridge that was chosen, per image and in mean losses."""

    model: Floats
    strength: float
    converged: bool = True

    def score(self, part: Part) -> Floats:
        """Return the scores of a part's images."""
        return sigmoid(part.logits(self.model))


def fit_logistic_regression(fit: Part, calibrate: Part, settings: LinearSettings) -> Fitted:
    """Fit scikit-learn's logistic regression for each C; keep the lowest cross-entropy on calibration."""
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415 - a second to import
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    found = []
    for inverse in settings.inverse_ridges:
        # tol: the gradient of a mean loss over thousands of images, far below what a choice of C changes.
        estimator = LogisticRegression(C=inverse, max_iter=settings.iterations, tol=1e-3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the study says it in a sentence
            estimator.fit(fit.features, fit.labels)
        model = np.append(estimator.coef_[0], estimator.intercept_[0]).astype(np.float64)
        converged = int(estimator.n_iter_[0]) < settings.iterations
        found.append(Fitted(model, 1.0 / (inverse * fit.labels.size), converged))
    return min(found, key=lambda item: _cross_entropy(item.model, calibrate))


def fit_selective_head(fit: Part, calibrate: Part, settings: LinearSettings) -> Fitted:
    """Minimise the selective risk with each ridge; keep the lowest selective risk on calibration."""

    def risk(model: Floats, part: Part) -> ValueAndGradient:
        return selective_risk(model, part, settings.coverage, settings.penalty)

    found = []
    for strength in settings.selective_ridges:
        model = _minimise(_with_ridge(lambda m: risk(m, fit), strength), fit, settings.selective_iterations)
        found.append(Fitted(model, strength))
    if not np.any(calibrate.labels == 1):
        return found[0]
    return min(found, key=lambda item: risk(item.model, calibrate)[0])


def conformal_misses(positives: int, target: float) -> Allowance:
    """Return what conformal risk control allows among the positive training-calibration cases."""
    return allowance("crc", positives, target, delta=0.5)  # an expectation: delta has no part in it


def fit_conformal_risk(
    start: Fitted, fit: Part, calibrate: Part, target: float, settings: LinearSettings
) -> Fitted:
    """Go on from a logistic regression with the gradient through the calibration cases' threshold.

    Where too few positive cases are there for the rule, the threshold is their lowest score: the promise is
    made later, by conformal risk control on the search subset.
    """
    positives = int(np.unique(calibrate.case[calibrate.labels == 1]).size)
    if not positives:
        return start
    terms = ConformalTerms(
        conformal_misses(positives, target).misses or 0, settings.conformal_weight, settings.temperature
    )
    objective = _with_ridge(lambda m: conformal_risk(m, fit, calibrate, terms), start.strength)
    return Fitted(_adam(objective, start.model, settings.steps, settings.step_size), start.strength)


def _cross_entropy(model: Floats, part: Part) -> float:
    return float(cross_entropy(part.logits(model), part.labels == 1).value.mean())


def _with_ridge(
    objective: Callable[[Floats], ValueAndGradient], strength: float
) -> Callable[[Floats], ValueAndGradient]:
    def both(model: Floats) -> ValueAndGradient:
        value, gradient = objective(model)
        more, slope = ridge(model, strength)
        return value + more, gradient + slope

    return both


def _minimise(objective: Callable[[Floats], ValueAndGradient], part: Part, iterations: int) -> Floats:
    """Minimise from zero: a selection that is the same for all, so that the first step ranks."""
    start = np.zeros(part.features.shape[1] + 1)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": iterations})
    return np.asarray(found.x, dtype=np.float64)


def _adam(objective: Callable[[Floats], ValueAndGradient], start: Floats, steps: int, size: float) -> Floats:
    """Take Adam's steps (Kingma and Ba 2015) on the whole objective, whose corners stop a line search."""
    model = start.copy()
    first, second = np.zeros_like(model), np.zeros_like(model)
    for step in range(1, steps + 1):
        _, gradient = objective(model)
        first += 0.1 * (gradient - first)
        second += 0.001 * (gradient**2 - second)
        scale = np.sqrt(second / (1.0 - 0.999**step)) + 1e-8
        model -= size * (first / (1.0 - 0.9**step)) / scale
    return model
