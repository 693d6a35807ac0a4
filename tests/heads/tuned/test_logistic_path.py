"""The solver against scikit-learn's logistic regression."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from trust_cache.heads.tuned.logistic_path import Floats, Metric, Singles, find_metric, solve


def a_problem(images: int, dim: int, seed: int = 0) -> tuple[Singles, np.ndarray]:
    """Correlated features with a rare class, as embeddings are."""
    generator = np.random.default_rng(seed)
    labels = (np.arange(images) % 12 == 0).astype(np.int64)
    mixed = generator.standard_normal((images, dim)) @ (generator.standard_normal((dim, dim)) / np.sqrt(dim))
    mixed += generator.standard_normal(dim) * labels[:, None] * 0.4
    return ((mixed - mixed.mean(axis=0)) / mixed.std(axis=0)).astype(np.float32), labels


@pytest.mark.parametrize(("images", "dim"), [(600, 40), (90, 200)])
def test_every_column_is_scikit_learns_solution(images: int, dim: int) -> None:
    features, labels = a_problem(images, dim)
    penalties = np.array([3.0, 0.1, 0.01] * 2)
    weights = np.ones((images, 6))
    weights[: images // 4, 3:] = 0.0  # an inner fold without the first quarter
    weights[labels == 1] *= 3.0
    found = solve(features, labels, weights, penalties, find_metric(features), tolerance=1e-10)
    for column, penalty in enumerate(penalties):
        used = weights[:, column] > 0
        expected = LogisticRegression(C=1 / (penalty * weights[:, column].sum()), tol=1e-10, max_iter=10_000)
        expected.fit(features[used].astype(np.float64), labels[used], sample_weight=weights[used, column])
        largest = np.abs(expected.coef_).max()
        assert np.allclose(found.weights[:, column], expected.coef_[0], atol=2e-3 * largest)
        assert found.intercepts[column] == pytest.approx(expected.intercept_[0], abs=5e-3)
    assert found.converged(1e-8)


def test_the_gradient_vanishes_at_the_solution_and_a_column_does_not_depend_on_the_others() -> None:
    features, labels = a_problem(400, 30, seed=1)
    metric, weights = find_metric(features), np.ones((400, 3))
    found = solve(features, labels, weights, np.array([1.0, 0.3, 0.03]), metric)
    for column, penalty in enumerate((1.0, 0.3, 0.03)):
        logits = features @ found.weights[:, column] + found.intercepts[column]
        errors = 1 / (1 + np.exp(-logits)) - labels
        gradient: Floats = features.T @ errors / labels.size + penalty * found.weights[:, column]
        assert np.abs(gradient).max() < 1e-4
        assert abs(errors.mean()) < 1e-4
        alone = solve(features, labels, weights[:, :1], np.array([penalty]), metric)
        assert np.allclose(alone.weights[:, 0], found.weights[:, column], atol=1e-3)


def test_a_stopped_solver_returns_at_once() -> None:
    features, labels = a_problem(100, 10)
    found = solve(
        features, labels, np.ones((100, 1)), np.array([0.1]), find_metric(features), stopped=lambda: True
    )
    assert found.iterations == 0
    assert not found.converged(1e-7)


def test_the_metric_is_applied_once_for_each_gradient() -> None:
    """It costs as much as a third of an iteration where there are many features."""
    features, labels = a_problem(400, 30, seed=2)
    counted, applied = find_metric(features), []

    class Counting(Metric):
        def apply(self, gradient: Floats, curvature: Floats, penalties: Floats) -> Floats:
            applied.append(gradient.shape)
            return super().apply(gradient, curvature, penalties)

    metric = Counting(counted.values, counted.vectors)
    found = solve(features, labels, np.ones((400, 2)), np.array([0.3, 0.01]), metric)
    assert found.iterations > 3
    assert len(applied) == found.iterations + 1


@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_with_the_leading_directions_alone_the_solution_is_that_of_newtons_method(spread: float) -> None:
    """Of many features the metric has few directions; a direct solution knows nothing of it."""
    generator = np.random.default_rng(6)
    images, dim = 1_500, 640
    labels = (np.arange(images) % 12 == 0).astype(np.int64)
    features = generator.standard_normal((images, dim)) * np.geomspace(spread, 1 / spread, dim)
    features = (features + 0.2 * labels[:, None] * generator.standard_normal(dim)).astype(np.float32)
    metric = find_metric(features)
    assert metric.values.size < dim
    moments = np.linalg.eigvalsh(features.T.astype(np.float64) @ features / images)
    assert metric.values.sum() + metric.rest * (dim - metric.values.size) == pytest.approx(moments.sum())
    assert metric.values[-1] == pytest.approx(moments[-1], rel=0.05)
    penalty, curvature = 0.02, labels.mean() * (1 - labels.mean())
    found = solve(features, labels, np.ones((images, 1)), np.array([penalty]), metric, tolerance=1e-9)
    assert found.converged(1e-9)
    model = np.append(np.zeros(dim), np.log(curvature))
    wide, ridge = np.column_stack([features, np.ones(images)]), np.append(np.full(dim, penalty), 0.0)
    for _ in range(12):
        share = 1 / (1 + np.exp(-wide @ model))
        slope = wide.T @ (share - labels) / images + ridge * model
        bend = (wide * (share * (1 - share))[:, None]).T @ wide / images + np.diag(ridge)
        model = model - np.linalg.solve(bend, slope)
    assert np.allclose(found.weights[:, 0], model[:-1], atol=2e-3 * np.abs(model[:-1]).max())
    assert np.allclose(features @ found.weights[:, 0] + found.intercepts[0], wide @ model, atol=5e-3)
