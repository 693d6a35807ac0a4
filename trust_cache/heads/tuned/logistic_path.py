"""Solve logistic regressions with ridge penalties, one column for each penalty and inner fold.

A column minimises sum_i a_i loss(z_i, y_i) + penalty / 2 |w|^2 with z = X w + b, weights a of the images
that sum to 1, and a free intercept b. All columns share the two matrix products of an iteration, which is
what makes a whole path over several inner folds cheap. The steps are L-BFGS (Nocedal 1980) in the metric of
the features' covariance. The logits are linear in the step, so a line search needs no further product.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
_MEMORY = 8  # pairs of steps and gradients that L-BFGS keeps
_HALVINGS = 30
_ARMIJO = 1e-4
_PRECONDITION_ROWS = 8192  # images that the metric is estimated from
_ALL_DIRECTIONS = 512  # features up to which it has all directions
_LEADING, _SUBSPACE_PASSES = 128, 2  # directions of more features, and how often they are improved


@dataclass(frozen=True)
class Solutions:
    """The minimisers: weights [feature, column], intercepts [column], and how the iterations ended."""

    weights: Floats
    intercepts: Floats
    iterations: int
    decrements: Floats  # an estimate of twice the distance to the least objective, by column

    def converged(self, tolerance: float) -> bool:
        """Whether every column reached the tolerance."""
        return bool(np.all(self.decrements <= tolerance))


@dataclass(frozen=True)
class Metric:
    """Eigenvalues and eigenvectors of the features' second moments, to precondition with."""

    values: Floats
    vectors: Singles  # [feature, eigenvalue]
    rest: float = 0.0  # the mean of the other eigenvalues, where there are more features

    def apply(self, gradient: Floats, curvature: Floats, penalties: Floats) -> Floats:
        """Return the gradient [feature, column] divided by the curvature."""
        scales = 1.0 / (curvature * self.values[:, None] + penalties)
        inside = self.vectors.T @ gradient.astype(np.float32)
        if self.values.size == gradient.shape[0]:
            return np.asarray(self.vectors @ (inside * scales).astype(np.float32), dtype=np.float64)
        outside = 1.0 / (curvature * self.rest + penalties)
        moved = self.vectors @ (inside * (scales - outside)).astype(np.float32)
        return np.asarray(gradient * outside + moved, dtype=np.float64)


def find_metric(features: Singles) -> Metric:
    """Return the metric of the features [image, feature], from evenly spaced images where there are many.

    Of many features only the leading directions are found. That changes how many iterations a solution needs,
    not the solution.
    """
    rows, dim = features.shape
    if rows > _PRECONDITION_ROWS:
        features = features[np.linspace(0, rows - 1, _PRECONDITION_ROWS).astype(np.int64)]
        rows = _PRECONDITION_ROWS
    if rows >= dim > _ALL_DIRECTIONS:
        return _leading_directions(features)
    if rows >= dim:
        values, vectors = np.linalg.eigh((features.T @ features) / np.float32(rows))
        return Metric(np.maximum(values.astype(np.float64), 0.0), np.ascontiguousarray(vectors))
    values, sides = np.linalg.eigh((features @ features.T) / np.float32(rows))
    kept = values > values[-1] * 1e-5
    values, sides = values[kept], sides[:, kept]
    vectors = (features.T @ sides) / np.sqrt(values * np.float32(rows))
    return Metric(values.astype(np.float64), np.ascontiguousarray(vectors, dtype=np.float32))


def _leading_directions(features: Singles) -> Metric:
    """Return the metric by subspace iteration (Halko et al. 2011): a tenth of the work of all directions."""
    rows, dim = features.shape
    start = np.random.default_rng(0).standard_normal((dim, _LEADING))
    basis = np.linalg.qr(start.astype(np.float32))[0]
    for _ in range(_SUBSPACE_PASSES):
        basis = np.linalg.qr(features.T @ (features @ basis))[0]
    inside = features @ basis
    values, turned = np.linalg.eigh((inside.T @ inside) / np.float32(rows))
    total = float(np.einsum("ij,ij->j", features, features).sum(dtype=np.float64)) / rows
    values = np.maximum(values.astype(np.float64), 0.0)
    rest = max(total - float(values.sum()), 0.0) / (dim - _LEADING)
    return Metric(values, np.ascontiguousarray(basis @ turned), rest)


def solve(
    features: Singles,
    labels: NDArray[np.int64],
    sample_weights: Floats,
    penalties: Floats,
    metric: Metric,
    *,
    tolerance: float = 1e-7,
    iterations: int = 200,
    stopped: Callable[[], bool] = lambda: False,
) -> Solutions:
    """Solve every column of `sample_weights` [image, column] with its penalty to this decrement.

    A column also ends where rounding in single precision allows no further step.
    """
    shares = (sample_weights / sample_weights.sum(axis=0)).astype(np.float32)
    signs = np.where(labels == 1, 1.0, -1.0).astype(np.float32)[:, None]
    positive = np.asarray((shares * (signs > 0)).sum(axis=0), dtype=np.float64)
    problem = _Problem(features, signs, shares, penalties, metric, positive * (1.0 - positive))
    model = np.zeros((features.shape[1] + 1, penalties.size))
    model[-1] = np.log(positive) - np.log1p(-positive)
    course = _Course(problem, model)
    found, decrements = model.copy(), np.full(penalties.size, np.inf)
    active = np.arange(penalties.size)
    done = 0
    while True:
        decrements[active] = course.decrements()
        going = (decrements[active] > tolerance) & ~course.stuck
        if not going.all():
            found[:, active[~going]] = course.model[:, ~going]
            active, course = active[going], course.only(going)
        if not active.size or done == iterations or stopped():
            break
        course.step()
        done += 1
    found[:, active] = course.model
    return Solutions(found[:-1], found[-1], done, decrements)


class _Step(NamedTuple):
    """A step that L-BFGS remembers, by column."""

    taken: Floats
    change: Floats  # of the gradient
    natural: Floats  # that change divided by the curvature
    inverse: Floats  # of taken times change; 0 where that is not positive


class _Course:
    """The columns still in work: their models, and what L-BFGS remembers of its steps."""

    def __init__(self, problem: "_Problem", model: Floats) -> None:
        self.problem, self.model = problem, model
        self.margins = problem.moves(model)
        self.value = problem.objective(model, self.margins)
        self.gradient = problem.slope(model, self.margins)
        self.natural = problem.precondition(self.gradient)
        self.memory: list[_Step] = []
        self.stuck = np.zeros(model.shape[1], dtype=np.bool_)

    def only(self, columns: NDArray[np.bool_]) -> "_Course":
        """Keep some of the columns."""
        self.problem = self.problem.only(columns)
        self.model, self.margins = self.model[:, columns], self.margins[:, columns]
        self.value, self.gradient = self.value[columns], self.gradient[:, columns]
        self.natural = self.natural[:, columns]
        self.memory = [_Step(*(part[..., columns] for part in step)) for step in self.memory]
        self.stuck = self.stuck[columns]
        return self

    def decrements(self) -> Floats:
        """Return the squared length of the gradient in the metric, by column."""
        return _products(self.gradient, self.natural)

    def step(self) -> None:
        """Take one step in every column."""
        problem = self.problem
        step = -_two_loops(self.gradient, self.natural, self.memory)
        moved = problem.moves(step)
        length, self.value = problem.search(self.model, self.margins, step, moved, self.value, self.gradient)
        self.stuck = length == 0.0
        self.model = self.model + length * step
        self.margins = self.margins + length.astype(np.float32) * moved
        after = problem.slope(self.model, self.margins)
        natural = problem.precondition(after)
        taken, change = length * step, after - self.gradient
        product = _products(taken, change)
        inverse = np.where(product > 0, 1.0 / np.where(product > 0, product, 1.0), 0.0)
        newest = _Step(taken, change, natural - self.natural, inverse)
        self.memory = [*self.memory[-_MEMORY + 1 :], newest]
        self.gradient, self.natural = after, natural


def _products(left: Floats, right: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->j", left, right), dtype=np.float64)


@dataclass(frozen=True)
class _Problem:
    """The columns still in work."""

    features: Singles
    signs: Singles  # [image, 1], +1 or -1
    shares: Singles  # [image, column]
    penalties: Floats
    metric: Metric
    curvature: Floats

    def only(self, columns: NDArray[np.bool_]) -> "_Problem":
        """Return the problem with some of the columns."""
        return _Problem(
            self.features, self.signs, self.shares[:, columns], self.penalties[columns], self.metric,
            self.curvature[columns],
        )  # fmt: skip

    def slope(self, model: Floats, margins: Singles) -> Floats:
        """Return the gradient of each column's objective, given the margins y z."""
        from scipy.special import expit  # noqa: PLC0415 - 0.1 s that most starts save

        slopes = -self.signs * self.shares * expit(-margins)
        gradient = np.empty_like(model)
        gradient[:-1] = self.features.T @ slopes
        gradient[:-1] += self.penalties * model[:-1]
        gradient[-1] = slopes.sum(axis=0, dtype=np.float64)
        return gradient

    def objective(self, model: Floats, margins: Singles) -> Floats:
        """Return the objective of each column."""
        losses = np.einsum("ij,ij->j", self.shares, np.logaddexp(np.float32(0), -margins), dtype=np.float64)
        return np.asarray(losses + 0.5 * self.penalties * _products(model[:-1], model[:-1]))

    def moves(self, step: Floats) -> Singles:
        """Return by how much a step moves the margins."""
        single = step.astype(np.float32)
        return np.asarray(self.signs * (self.features @ single[:-1] + single[-1]))

    def precondition(self, gradient: Floats) -> Floats:
        """Return the gradient divided by the curvature at the start."""
        inside = self.metric.apply(gradient[:-1], self.curvature, self.penalties)
        return np.vstack([inside, gradient[-1:] / self.curvature])

    def search(
        self, model: Floats, margins: Singles, step: Floats, moved: Singles, value: Floats, gradient: Floats
    ) -> tuple[Floats, Floats]:
        """Halve each column's step until its objective falls enough; return lengths and objectives.

        The length is 0 where rounding allows no fall.
        """
        slope = _products(gradient, step)
        length = np.ones(value.size)
        for _ in range(_HALVINGS):
            tried = self.objective(model + length * step, margins + length.astype(np.float32) * moved)
            bad = tried > value + _ARMIJO * length * slope + 1e-9 * np.abs(value)
            if not bad.any():
                return length, tried
            length[bad] *= 0.5
        length[bad] = 0.0
        return length, np.where(bad, value, tried)


def _two_loops(gradient: Floats, natural: Floats, memory: list[_Step]) -> Floats:
    """Return L-BFGS's product of the inverse Hessian with the gradient; `natural` is that in the metric.

    The metric is linear: what it makes of each change is kept, and it is applied once for each gradient.
    """
    rest, result = gradient.copy(), natural.copy()
    shares = []
    for step in reversed(memory):
        share = step.inverse * _products(step.taken, rest)
        rest -= share * step.change
        result -= share * step.natural
        shares.append(share)
    if memory:
        scale = memory[-1].inverse * _products(memory[-1].change, memory[-1].natural)
        result *= np.where(scale > 0, 1.0 / np.where(scale > 0, scale, 1.0), 1.0)
    for step, share in zip(memory, reversed(shares), strict=True):
        result += step.taken * (share - step.inverse * _products(step.change, result))
    return result
