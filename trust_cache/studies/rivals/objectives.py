"""What the rivals' linear models minimise, each with its gradient by hand.

A model is one vector: weights w, then the bias b; its logit is z = w.x' + b, high where cancer is likely, and
its score sigmoid(z). Features come in as float32 matrices, what follows the logits is float64.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from trust_cache.heads.losses import cross_entropy

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

    The selection head g = sigmoid(-z) says whom to dismiss. With the prediction fixed, its 0/1 loss is the
    label, and the selective risk sum(g y) / sum(g) is the (soft) cancer rate among the dismissed, here in
    units of the part's own rate; penalty * max(0, coverage - mean(g))^2 keeps it from dismissing nobody.
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


def highest_images(logits: Floats, case: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the image with the highest logit of every case, cases in order."""
    order = np.lexsort((logits, case))
    last = np.append(case[order][1:] != case[order][:-1], True)
    return np.asarray(order[last], dtype=np.int64)


def _positive_cases(part: Part) -> NDArray[np.bool_]:
    positive = np.zeros(int(part.case.max()) + 1, dtype=np.bool_)
    positive[part.case[part.labels == 1]] = True
    return positive
