"""What the linear rivals minimise: logistic regression, SelectiveNet, conformal risk training.

All are linear in the output of a head's LayerNorm. Rows are weighted, so that cancer images have the share
that they have in a batch of the paper's heads.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from trust_cache.heads.losses import cross_entropy
from trust_cache.manifest.cases import highest_images
from trust_cache.studies.rivals.rival_parts import Part

Floats = NDArray[np.float64]
ValueAndGradient = tuple[float, Floats]
OUTPUTS = 3  # of SelectiveNet: prediction, selection, auxiliary


def logistic_loss(model: Floats, part: Part) -> ValueAndGradient:
    """Cross-entropy, weighted."""
    loss = cross_entropy(part.logits(model), part.labels == 1)
    return float(part.weights @ loss.value), part.pull_back(part.weights * loss.slope)


@dataclass(frozen=True)
class SelectiveTerms:
    """SelectiveNet's constants: coverage asked for, its penalty, the share of the auxiliary head."""

    coverage: float
    penalty: float
    auxiliary: float


@dataclass(frozen=True)
class SelectiveModel:
    """SelectiveNet on frozen features: a scale of each feature that three linear heads share."""

    scale: Floats  # [dim]
    weights: Floats  # [output, dim]: prediction, selection, auxiliary
    biases: Floats  # [output]

    @classmethod
    def of(cls, flat: Floats) -> "SelectiveModel":
        """Return the model of a flat vector."""
        dim = (flat.size - OUTPUTS) // (OUTPUTS + 1)
        middle = flat[dim : dim * (OUTPUTS + 1)]
        return cls(flat[:dim], middle.reshape(OUTPUTS, dim), flat[dim * (OUTPUTS + 1) :])

    @classmethod
    def start(cls, dim: int) -> Floats:
        """Return the flat vector where the selection is the same for all images."""
        return np.concatenate([np.ones(dim), np.zeros(OUTPUTS * dim + OUTPUTS)])

    def logits(self, part: Part) -> Floats:
        """Return z [output, row]."""
        directions = (self.scale * self.weights).astype(part.features.dtype)
        return np.asarray(directions @ part.features.T, dtype=np.float64) + self.biases[:, np.newaxis]

    def score(self, part: Part) -> Floats:
        """Return one minus the chance that an image is selected and predicted to be normal."""
        prediction, selection = expit(self.logits(part)[:2])
        return np.asarray(1.0 - selection * (1.0 - prediction))


def selective_loss(flat: Floats, part: Part, terms: SelectiveTerms) -> ValueAndGradient:
    """SelectiveNet's loss (Geifman and El-Yaniv 2019), with cross-entropy as the loss of a prediction.

    The selective risk is sum(g l(f)) / sum(g); penalty * max(0, coverage - mean(g))^2 enforces the coverage;
    the auxiliary head h is trained on all images, so that what the heads share is.
    """
    model, positive = SelectiveModel.of(flat), part.labels == 1
    f, g, h = model.logits(part)
    of_prediction, of_auxiliary = cross_entropy(f, positive), cross_entropy(h, positive)
    selection = expit(g)
    chosen = part.weights * selection
    coverage = float(chosen.sum())
    risk = float(chosen @ of_prediction.value) / coverage
    lacking = max(0.0, terms.coverage - coverage)
    share = 1.0 - terms.auxiliary
    value = share * (risk + terms.penalty * lacking**2)
    value += terms.auxiliary * float(part.weights @ of_auxiliary.value)
    by_selection = (of_prediction.value - risk) / coverage - 2 * terms.penalty * lacking
    slopes = np.stack(
        [
            share * chosen / coverage * of_prediction.slope,
            share * chosen * (1.0 - selection) * by_selection,
            terms.auxiliary * part.weights * of_auxiliary.slope,
        ]
    )
    pulled = np.asarray(slopes.astype(part.features.dtype) @ part.features, dtype=np.float64)
    by_scale = (model.weights * pulled).sum(axis=0)
    return value, np.concatenate([by_scale, (model.scale * pulled).ravel(), slopes.sum(axis=1)])


def selective_ridge(flat: Floats, strength: float) -> ValueAndGradient:
    """Return strength / 2 (|weights|^2 + |scale - 1|^2), the biases free."""
    moved = flat.copy()
    moved[: SelectiveModel.of(flat).scale.size] -= 1.0
    moved[-OUTPUTS:] = 0.0
    return 0.5 * strength * float(moved @ moved), strength * moved


@dataclass(frozen=True)
class ConformalTerms:
    """What conformal risk training adds: misses allowed, weight and softness of the share not dismissed."""

    misses: int
    weight: float
    temperature: float


def conformal_risk(model: Floats, fit: Part, terms: ConformalTerms) -> ValueAndGradient:
    """Cross-entropy, and the share of normal cases that the conformal threshold does not dismiss.

    tau is the (misses + 1)-th smallest score of the positive cases, as conformal risk control would choose it
    on them; there is one tau for each draw of their images. It moves with the image that sets it, and the
    gradient goes through it. The share above tau is soft: the mean of sigmoid((z - tau) / temperature) over
    the normal cases and the draws.
    """
    z = fit.logits(model)
    loss = cross_entropy(z, fit.labels == 1)
    value, slopes = float(fit.weights @ loss.value), fit.weights * loss.slope
    negative = highest_images(z, fit.case)[~fit.positive_cases]
    draws = fit.draws_of_positives
    for rows, case in draws:
        setter = int(rows[threshold_image(z[rows], case, terms.misses)])
        above = expit((z[negative] - z[setter]) / terms.temperature)
        pull = above * (1.0 - above) * terms.weight / (terms.temperature * negative.size * len(draws))
        slopes[negative] += pull
        slopes[setter] -= pull.sum()
        value += terms.weight * float(above.mean()) / len(draws)
    return value, fit.pull_back(slopes)


def threshold_image(logits: Floats, case: NDArray[np.int64], misses: int) -> int:
    """Return the image that sets the threshold: the highest of the (misses + 1)-th lowest case."""
    highest = highest_images(logits, case)
    return int(highest[np.argsort(logits[highest], kind="stable")[misses]])


def ridge(model: Floats, strength: float) -> ValueAndGradient:
    """Return strength / 2 |w|^2, the bias free."""
    gradient = strength * model
    gradient[-1] = 0.0
    return 0.5 * float(gradient[:-1] @ model[:-1]), gradient
