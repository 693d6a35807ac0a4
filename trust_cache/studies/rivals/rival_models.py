"""The linear rivals of one fold: logistic regression, SelectiveNet's selection head, conformal risk training.

All are linear in the output of a head's LayerNorm and fitted on the clean views of a fold's fitting images.
The strength of the ridge is chosen on the calibration images, where the closed loop chooses its threshold.
No test case is used.
"""

import ctypes
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from trust_cache.cache.feature_rows import FeatureRows
from trust_cache.heads.losses import cross_entropy, sigmoid
from trust_cache.manifest.cases import case_maxima, highest_images
from trust_cache.statistics.rules import Allowance, allowance

Floats = NDArray[np.float64]
Features = NDArray[np.floating]
ValueAndGradient = tuple[float, Floats]


@dataclass(frozen=True)
class Part:
    """Images of one part of a fold: features, labels, and each image's case, numbered from 0."""

    features: Features
    labels: NDArray[np.int64]
    case: NDArray[np.int64]

    def logits(self, model: Floats) -> Floats:
        """Return z of every image."""
        products = self.features @ model[:-1].astype(self.features.dtype)
        return np.asarray(products + model[-1], dtype=np.float64)

    def pull_back(self, slopes: Floats) -> Floats:
        """Return the gradient by the model, given the derivative by each logit."""
        by_weights = np.asarray(slopes.astype(self.features.dtype) @ self.features, dtype=np.float64)
        return np.append(by_weights, slopes.sum())


def selective_risk(model: Floats, part: Part, coverage: float, penalty: float) -> ValueAndGradient:
    """SelectiveNet's selective loss (Geifman and El-Yaniv 2019) where the prediction is "no cancer".

    The selection head g = sigmoid(-z) chooses the cases to dismiss. With the prediction fixed, its 0/1 loss
    is the label, and the selective risk sum(g y) / sum(g) is the (soft) cancer rate among the dismissed,
    here in units of the part's own rate; penalty * max(0, coverage - mean(g))^2 enforces the coverage.
    """
    selection = expit(-part.logits(model))
    positive = part.labels == 1
    rate = float(np.mean(positive))
    total = float(selection.sum())
    risk = float(selection[positive].sum()) / total
    lacking = max(0.0, coverage - total / selection.size)
    value = risk / rate + penalty * lacking**2
    by_selection = (positive - risk) / (total * rate) - 2 * penalty * lacking / selection.size
    return value, part.pull_back(-by_selection * selection * (1.0 - selection))


@dataclass(frozen=True)
class ConformalTerms:
    """What conformal risk training adds: misses allowed, weight and softness of the share not dismissed."""

    misses: int
    weight: float
    temperature: float


def conformal_risk(model: Floats, fit: Part, calibrate: Part, terms: ConformalTerms) -> ValueAndGradient:
    """Cross-entropy, and the share of negative cases that the conformal threshold does not dismiss.

    tau is the (misses + 1)-th smallest score of the positive calibration *cases*, as conformal risk control
    would choose it there; it moves with the one image that sets it, and the gradient goes through it. The
    share above tau is soft: the mean of sigmoid((z - tau) / temperature) over the negative fitting cases.
    """
    z_fit, z_calibrate = fit.logits(model), calibrate.logits(model)
    loss = cross_entropy(z_fit, fit.labels == 1)
    slopes = loss.slope / z_fit.size
    setter = threshold_image(z_calibrate, calibrate, terms.misses)
    highest = highest_images(z_fit, fit.case)
    negative = highest[~_positive_cases(fit)]
    above = expit((z_fit[negative] - z_calibrate[setter]) / terms.temperature)
    pull = terms.weight * above * (1.0 - above) / (terms.temperature * negative.size)
    slopes[negative] += pull
    through_tau = np.zeros(z_calibrate.size)
    through_tau[setter] = -pull.sum()
    value = float(loss.value.mean()) + terms.weight * float(above.mean())
    return value, fit.pull_back(slopes) + calibrate.pull_back(through_tau)


def ridge(model: Floats, strength: float) -> ValueAndGradient:
    """Return strength / 2 |w|^2, the bias free."""
    gradient = strength * model
    gradient[-1] = 0.0
    return 0.5 * float(gradient[:-1] @ model[:-1]), gradient


def threshold_image(logits: Floats, part: Part, misses: int) -> int:
    """Return the image that sets the threshold: the highest of the (misses + 1)-th lowest positive case."""
    highest = highest_images(logits, part.case)[_positive_cases(part)]
    return int(highest[np.argsort(logits[highest], kind="stable")[misses]])


def _positive_cases(part: Part) -> NDArray[np.bool_]:
    return np.asarray(case_maxima(part.labels, part.case) == 1)


@dataclass(frozen=True)
class LinearSettings:
    """The constants of the linear rivals, recorded with the results."""

    inverse_ridges: tuple[float, ...] = (1e-3, 1e-2, 1e-1)  # scikit-learn's C
    iterations: int = 100  # at most, of the logistic regression
    coverage: float = 0.5  # SelectiveNet: the share to dismiss
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
            warnings.simplefilter("ignore", ConvergenceWarning)  # the study reports it in a sentence
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
    start = np.zeros(fit.features.shape[1] + 1)  # where the selection is the same for all cases
    options = {"maxiter": settings.selective_iterations}
    for strength in settings.selective_ridges:
        objective = _with_ridge(lambda m: risk(m, fit), strength)
        solved = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        found.append(Fitted(np.asarray(solved.x, dtype=np.float64), strength))
    if not np.any(calibrate.labels == 1):
        return found[0]
    return min(found, key=lambda item: risk(item.model, calibrate)[0])


def conformal_misses(positives: int, target: float) -> Allowance:
    """Return what conformal risk control allows among the positive training-calibration cases."""
    return allowance("crc", positives, target, delta=0.5)  # it bounds an expectation: delta is not used


def fit_conformal_risk(
    start: Fitted, fit: Part, calibrate: Part, target: float, settings: LinearSettings
) -> Fitted:
    """Train further from a logistic regression, with the gradient through the calibration cases' threshold.

    With too few positive cases for the rule, the threshold is their lowest score: the promise is made
    later, by conformal risk control on the search subset.
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


def _adam(objective: Callable[[Floats], ValueAndGradient], start: Floats, steps: int, size: float) -> Floats:
    """Take Adam's steps (Kingma and Ba 2015); the objective has corners that stop a line search."""
    model = start.copy()
    first, second = np.zeros_like(model), np.zeros_like(model)
    for step in range(1, steps + 1):
        _, gradient = objective(model)
        first += 0.1 * (gradient - first)
        second += 0.001 * (gradient**2 - second)
        scale = np.sqrt(second / (1.0 - 0.999**step)) + 1e-8
        model -= size * (first / (1.0 - 0.9**step)) / scale
    return model


_EPSILON = 1e-5  # LayerNorm's
_TOGETHER = 1024  # images


def normalised_features(rows: FeatureRows, images: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return x' [image, dim] of the images' clean views: mean 0 and variance 1 over each image's features."""
    out = np.empty((images.size, rows.dim), dtype=np.float32)
    row = ctypes.c_uint16 * rows.dim
    for first in range(0, images.size, _TOGETHER):
        block = out[first : first + _TOGETHER]
        for target, image in zip(block, images[first : first + _TOGETHER], strict=True):
            target[:] = np.ctypeslib.as_array(row.from_address(int(rows.addresses[image]))).view(np.float16)
        block -= block.mean(axis=1, keepdims=True, dtype=np.float64)
        variance = np.mean(block * block, axis=1, keepdims=True, dtype=np.float64)
        block /= np.sqrt(variance + _EPSILON)
    return out
