"""Fit the head `tuned`: an average of logistic regressions on LayerNorm's features, in two scalings.

Everything is chosen inside the images that it is given, by cross-validation over their patients:

1. Each image's features are divided by their standard deviation, as in LayerNorm. LayerNorm also subtracts
   their mean, and beside a few huge features that would drown all others. Here the mean stays, and the
   weights of a regression add up to 0, so that they cancel it: that is all that a head can represent.
   A ridge penalty weighs the features in one of two scalings: `standardised`, all with variance 1, or
   `natural`, with the variances that they have. Where faint features are noise, as in many embeddings, the
   second is much better; where they carry the signal, the first is.
2. In each scaling, logistic regressions with a range of penalties are solved on four fifths of the patients
   at a time and score the remaining fifth. Positive and negative images weigh the same in all: cross-entropy
   then bends to where the two meet, near the lowest positives, and not to the few highest scores.
3. Their criterion is that cross-entropy on the held-out images, after the slope and the intercept that fit
   best: the scale of the logits does not change who is dismissed. It is smooth, while the dismissal at one
   recall hangs on two or three cases. A regression's weight is its held-out likelihood, counted as if there
   were as many negative images as positive ones: those as good as the best share it.
4. The regressions with a weight are solved again on all given images. Each logit is brought to one scale, on
   which the held-out scores of negative images have mean 0 and standard deviation 1, and they are averaged.

That scale makes the scores of the five folds comparable: only their pooled order decides a dismissal.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.heads.bank import HeadParameters
from trust_cache.heads.folds import FOLDS, deal_patients
from trust_cache.heads.head_settings import NATURAL, STANDARDISED, TunedChoice
from trust_cache.heads.losses import cross_entropy, sigmoid
from trust_cache.heads.tuned.logistic_path import Floats, Singles, Solutions, find_metric, solve
from trust_cache.manifest.cases import Aggregation, aggregate, case_maxima
from trust_cache.statistics.auroc import auroc

# Ridge penalties, in units of the curvature of the loss along a feature: at 1 it halves such a weight.
# The lower half is tried only with at most as many features as positive images, and while the lowest penalty
# is the best: with more features a lower one dismissed no more, and it takes long to solve.
PENALTIES = tuple(float(value) for value in 10.0 ** np.arange(-3.0, 3.01, 0.5))
_FIRST, _LOWER = 6, 2  # the place of the lowest penalty tried at first, and how many more each time
_USUAL_PENALTY = 7  # its place where no patient can be held out
_CURVATURE = 0.25  # of the loss in a logit of 0
_SLOPE_PENALTY = 1e-3  # of a calibration: it stays finite where the scores separate the classes
# How far to solve: inner regressions only set the weights and the scale.
_ROUGH, _FINE = 1e-5, 1e-7
_LEAST_WEIGHT = 0.02
# Of a feature, as a share of what is subtracted from it: below, a score in single precision has only rounding
# errors of it. A constant one stays out as well.
_LEAST_DEVIATION = 2.0**-20
# Scores are probabilities if positive images lie this many standard deviations above the negative ones (an
# AUROC of 0.86). It is a constant, so that folds stay comparable: an estimate would differ between them.
_SEPARATION = 1.5


@dataclass(frozen=True)
class FittingImages:
    """The images to fit on: features [image, feature], labels, cases and patients by number.

    The features are those of `normalised_features` with or without their mean.
    """

    features: Singles
    labels: NDArray[np.int64]
    cases: NDArray[np.int64]
    patients: NDArray[np.int64]
    breasts: NDArray[np.int64] | None = None

    @property
    def class_weights(self) -> Floats:
        """The weight of each image: half of all for each class, shared alike."""
        counts = np.bincount(self.labels, minlength=2)
        return np.asarray(0.5 / counts[self.labels])


@dataclass(frozen=True)
class TunedHead:
    """A fitted head and what it chose."""

    parameters: HeadParameters
    choice: TunedChoice


def fit_tuned(
    images: FittingImages,
    aggregations: Sequence[Aggregation],
    seed: int,
    stopped: Callable[[], bool] = lambda: False,
) -> list[TunedHead]:
    """Fit the head, the same for each aggregation to cases; the features are standardised in place."""
    for label, word in ((1, "positive"), (0, "negative")):
        if not np.any(images.labels == label):
            raise InputError(f"tuned: expected {word} images to fit on, found none")
    standard = _Standard.of(images.features)
    held_out = _hold_out(images, seed)
    wanted = {STANDARDISED: np.ones(standard.scale.size)}
    if held_out is not None:
        wanted[NATURAL] = _natural_factors(standard.scale)
    scalings = {name: _Scaling(images, factors, stopped) for name, factors in wanted.items()}
    places = np.array([_USUAL_PENALTY])
    logits: dict[str, Floats] = {}
    losses: dict[str, Floats] = {}
    weights = {STANDARDISED: np.ones(1)}
    if held_out is not None:
        places, logits, losses = _hold_out_regressions(scalings, held_out)
        weights = _weights(losses, 2 * int(images.labels.sum()))
    solved = [scalings[name].solve_all(places[weights[name] > 0]) for name in weights]
    kept = np.hstack(
        [images.features @ part.weights + part.intercepts for part in solved]
        if held_out is None  # the scale is then that of the fitted images
        else [logits[name][:, weights[name] > 0] for name in weights]
    )
    shares = np.concatenate([part[part > 0] for part in weights.values()])
    average = _Average.of(kept, shares, images.labels)
    parameters = average.head(solved, standard)
    best = max(weights, key=lambda name: float(weights[name].max()))
    choice = TunedChoice(
        scaling=best,
        best=PENALTIES[places[int(np.argmax(weights[best]))]],
        penalties=tuple(PENALTIES[place] for place in places),
        weights={name: tuple(part.tolist()) for name, part in weights.items()},
        cross_entropy={name: tuple(part.tolist()) for name, part in losses.items()},
        auroc=0.0,
        images=int(images.labels.size),
        positive_images=int(images.labels.sum()),
        patients=int(np.unique(images.patients).size),
        iterations=max(part.iterations for part in solved),
    )
    scores = sigmoid(average.logits(kept))
    by_kind = {kind: _case_auroc(images, kind, scores) for kind in set(aggregations)}
    return [TunedHead(parameters, structs.replace(choice, auroc=by_kind[kind])) for kind in aggregations]


class _Scaling:
    """The features in one scaling, and the regressions on them."""

    def __init__(self, images: FittingImages, factors: Floats, stopped: Callable[[], bool]) -> None:
        self.images, self.factors, self.stopped = images, factors.astype(np.float32), stopped
        self.penalties = _CURVATURE * np.array(PENALTIES)
        with self.scaled():
            self.metric = find_metric(images.features)

    @contextmanager
    def scaled(self) -> Iterator[Singles]:
        """Scale the standardised features in place meanwhile."""
        features = self.images.features
        features *= self.factors
        yield features
        features /= self.factors

    def held_out_logits(self, held_out: NDArray[np.int64], places: NDArray[np.int64]) -> Floats:
        """Return the logit [image, penalty] of each image by the regressions that were solved without it."""
        number = places.size
        logits = np.empty((held_out.size, number))
        given = (held_out[:, None] != np.arange(FOLDS)).astype(np.float64)
        with self.scaled() as features:
            solved = self._solve(features, given, places, _ROUGH)
            for fold in range(FOLDS):
                columns, rows = slice(fold * number, (fold + 1) * number), held_out == fold
                products = features[rows] @ solved.weights[:, columns].astype(np.float32)
                logits[rows] = products + solved.intercepts[columns]
        return logits

    def solve_all(self, places: NDArray[np.int64]) -> Solutions:
        """Solve these penalties on all images; the weights are those of the standardised features."""
        if not places.size:
            return Solutions(np.empty((self.factors.size, 0)), np.empty(0), 0, np.empty(0))
        with self.scaled() as features:
            solved = self._solve(features, np.ones((self.images.labels.size, 1)), places, _FINE)
        return replace(solved, weights=solved.weights * self.factors[:, None])

    def _solve(
        self, features: Singles, given: Floats, places: NDArray[np.int64], tolerance: float
    ) -> Solutions:
        """Solve the penalties at these places for each column of weights of the images."""
        columns = np.repeat(given * self.images.class_weights[:, None], places.size, axis=1)
        penalties = np.tile(self.penalties[places], given.shape[1])
        return solve(
            features, self.images.labels, columns, penalties, self.metric,
            tolerance=tolerance, stopped=self.stopped,
        )  # fmt: skip


def _hold_out_regressions(
    scalings: Mapping[str, _Scaling], held_out: NDArray[np.int64]
) -> tuple[NDArray[np.int64], dict[str, Floats], dict[str, Floats]]:
    """Return the places of the penalties tried; by scaling, held-out logits [image, penalty] and losses."""
    places = np.empty(0, dtype=np.int64)
    logits = {name: np.empty((held_out.size, 0)) for name in scalings}
    losses = {name: np.empty(0) for name in scalings}
    further = np.arange(_FIRST, len(PENALTIES))
    images = next(iter(scalings.values())).images
    least = 0 if images.features.shape[1] <= images.labels.sum() else _FIRST
    while further.size:
        for name, scaling in scalings.items():
            found = scaling.held_out_logits(held_out, further)
            logits[name] = np.hstack([found, logits[name]])
            losses[name] = np.concatenate([_calibrated_losses(found, images), losses[name]])
        places = np.concatenate([further, places])
        best = int(np.argmin(np.min(list(losses.values()), axis=0)))
        further = np.arange(max(least, places[0] - _LOWER), places[0]) if best == 0 else places[:0]
    return places, logits, losses


def _natural_factors(scale: Floats) -> Floats:
    """Return what gives standardised features their own deviations back, in units of the mean deviation.

    A variance would be that of a few huge features, which some networks have: others would be shrunk away.
    """
    used = np.isfinite(scale)
    return np.where(used, scale / np.mean(scale, where=used), 1.0) if used.any() else np.ones(scale.size)


def _calibrated_losses(logits: Floats, images: FittingImages) -> Floats:
    """Return the cross-entropy of each column, both classes alike, with its best slope and intercept.

    0.69, the logarithm of 2, is that of logits that tell nothing.
    """
    found = np.empty(logits.shape[1])
    weights = images.class_weights[:, None]
    for column, values in enumerate(logits.T):
        spread = float(values.std())
        scaled = ((values - values.mean()) / (spread if spread > 0 else 1.0)).astype(np.float32)[:, None]
        penalties = np.array([_SLOPE_PENALTY])
        line = solve(scaled, images.labels, weights, penalties, find_metric(scaled), tolerance=_ROUGH)
        slope = max(0.0, float(line.weights[0, 0]))
        fitted = slope * scaled[:, 0] + (float(line.intercepts[0]) if slope > 0 else 0.0)
        found[column] = images.class_weights @ cross_entropy(fitted, images.labels == 1).value
    return found


def _weights(losses: dict[str, Floats], count: int) -> dict[str, Floats]:
    """Return the weight of each regression: its held-out likelihood; small ones are left out."""
    lowest = min(float(part.min()) for part in losses.values())
    found = {name: np.exp(-count * (part - lowest)) for name, part in losses.items()}
    for least in (_LEAST_WEIGHT, 0.0):
        total = sum(float(part.sum()) for part in found.values())
        found = {name: np.where(part >= least * total, part / total, 0.0) for name, part in found.items()}
    return found


@dataclass(frozen=True)
class _Standard:
    """What standardises features: their means and deviations, and the direction that is taken out after.

    Along it a weight changes with the mean of an image's features.
    """

    centre: Floats
    scale: Floats  # infinite: the feature stays out
    lost: Floats

    @classmethod
    def of(cls, features: Singles) -> "_Standard":
        """Bring every feature to mean 0 and variance 1 over the images, in place."""
        level = np.sqrt(np.mean(np.square(features.mean(axis=1, dtype=np.float64))))
        centre = features.mean(axis=0, dtype=np.float64)
        features -= centre.astype(np.float32)
        scale = np.sqrt(np.mean(np.square(features, dtype=np.float32), axis=0, dtype=np.float64))
        scale = np.where(scale > _LEAST_DEVIATION * np.maximum(level, np.abs(centre)), scale, np.inf)
        features /= scale.astype(np.float32)
        lost = np.zeros(scale.size)
        if np.isfinite(scale).any():
            lost = scale.min() / scale
            lost /= np.linalg.norm(lost)
            features -= (features @ lost.astype(np.float32))[:, None] * lost.astype(np.float32)
        return cls(centre, scale, lost)

    def head(self, weight: Floats, bias: float) -> HeadParameters:
        """Return a regression on such features as a head: the means and deviations are LayerNorm's own."""
        used = np.isfinite(self.scale)
        gamma = np.where(used, 1.0 / self.scale, 0.0)
        rows = {
            "gamma": gamma,
            "beta": np.where(used, -self.centre * gamma, 0.0),
            "weight": weight - self.lost * float(self.lost @ weight),
        }
        return HeadParameters(
            **{name: part[None].astype(np.float32) for name, part in rows.items()},
            bias=np.array([bias], dtype=np.float32),
        )


def _hold_out(images: FittingImages, seed: int) -> NDArray[np.int64] | None:
    """Return the inner fold that holds each image out, all of a patient together.

    None where an inner fold would leave no positive or no negative image to fit on.
    """
    _, first, of_image = np.unique(images.cases, return_index=True, return_inverse=True)
    labels, patients = case_maxima(images.labels, of_image), images.patients[first]
    held_out = np.asarray(deal_patients(labels, patients, seed)[of_image])
    for fold in range(FOLDS):
        if np.unique(images.labels[held_out != fold]).size < 2:  # noqa: PLR2004
            return None
    return held_out


def _case_auroc(images: FittingImages, aggregation: Aggregation, scores: Floats) -> float:
    _, of_image = np.unique(images.cases, return_inverse=True)
    by_case = aggregate(scores, of_image, aggregation, images.breasts)
    return float(auroc(by_case, case_maxima(images.labels, of_image)) or 0.0)


def _negative_scale(labels: NDArray[np.int64], logits: Floats) -> tuple[Floats, Floats]:
    negative = logits[labels == 0]
    spread = negative.std(axis=0)
    return negative.mean(axis=0), np.where(spread > 0, spread, 1.0)


@dataclass(frozen=True)
class _Average:
    """The average of regressions: logit = sum of shares (logit - centre) / spread, on one scale."""

    factors: Floats  # of each regression's logit
    shift: float

    @classmethod
    def of(cls, held_out: Floats, shares: Floats, labels: NDArray[np.int64]) -> "_Average":
        """Bring each column of held-out logits, and then their average, to the scale of negative images."""
        _, spreads = _negative_scale(labels, held_out)
        factors = shares / spreads
        ((mean,), (spread,)) = _negative_scale(labels, (held_out @ factors)[:, None])
        share = float(np.mean(labels))
        odds = float(np.log(share / (1.0 - share)))
        shift = odds - _SEPARATION * (0.5 * _SEPARATION + float(mean) / float(spread))
        return cls(_SEPARATION * factors / spread, shift)

    def logits(self, columns: Floats) -> Floats:
        """Return the average of these logits [image, regression]."""
        return np.asarray(columns @ self.factors + self.shift)

    def head(self, solved: Sequence[Solutions], standard: _Standard) -> HeadParameters:
        """Return the average as one head."""
        weight = np.hstack([part.weights for part in solved]) @ self.factors
        bias = np.concatenate([part.intercepts for part in solved]) @ self.factors + self.shift
        return standard.head(weight, float(bias))
