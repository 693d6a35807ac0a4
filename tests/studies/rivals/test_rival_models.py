"""The rivals' objectives and fits: torch's autograd, finite differences, scikit-learn, rows drawn by hand."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import check_grad, linprog
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import binary_cross_entropy_with_logits

from trust_cache.cache.feature_rows import rows_of_array
from trust_cache.manifest.cases import highest_images
from trust_cache.studies.rivals.corner_search import minimise_with_corners
from trust_cache.studies.rivals.rival_models import (
    LinearSettings,
    conformal_misses,
    converge,
    fit_conformal_risk,
    fit_logistic_regression,
    fit_selective_net,
)
from trust_cache.studies.rivals.rival_objectives import (
    ConformalTerms,
    SelectiveModel,
    SelectiveTerms,
    conformal_risk,
    logistic_loss,
    ridge,
    selective_loss,
    selective_ridge,
    threshold_image,
)
from trust_cache.studies.rivals.rival_parts import LabelledImages, Part, clean_rows, drawn_rows

DIM = 6


def a_part(seed: int, images: int = 60, dtype: type = np.float64) -> Part:
    """Two images a case; every second case has one cancer image, which has a second draw."""
    generator = np.random.default_rng(seed)
    image = np.r_[np.arange(images), np.arange(0, images, 4)]
    labels = (image % 4 == 0).astype(np.int64)
    features = generator.standard_normal((image.size, DIM)) + 0.5 * labels[:, None]
    weights = generator.random(image.size)
    draw = np.repeat([0, 1], [images, image.size - images])
    return Part(features.astype(dtype), labels, image // 2, weights / weights.sum(), draw)


def a_model(seed: int, size: int = DIM + 1) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal(size)


@pytest.mark.parametrize("coverage", [0.1, 0.95])  # without and with the penalty acting
def test_selective_loss(coverage: float) -> None:
    """Prediction, selection and auxiliary head over one scale, by torch's autograd."""
    part, flat, terms = a_part(0), a_model(1, 4 * DIM + 3), SelectiveTerms(coverage, 32.0, 0.4)
    weight = torch.tensor(flat, requires_grad=True)
    scale, heads, biases = weight[:DIM], weight[DIM:-3].view(3, DIM), weight[-3:]
    f, g, h = ((torch.tensor(part.features) * scale) @ heads.T + biases).T
    w, y = torch.tensor(part.weights), torch.tensor(part.labels, dtype=torch.float64)
    losses = [binary_cross_entropy_with_logits(z, y, reduction="none") for z in (f, h)]
    selection = torch.sigmoid(g)
    covered = (w * selection).sum()
    assert (covered.item() < coverage) == (coverage == 0.95)
    risk = (w * selection * losses[0]).sum() / covered
    value = 0.6 * (risk + 32.0 * torch.relu(coverage - covered) ** 2) + 0.4 * (w * losses[1]).sum()
    value.backward()
    found, gradient = selective_loss(flat, part, terms)
    assert found == pytest.approx(value.item(), rel=1e-12)
    assert weight.grad is not None
    np.testing.assert_allclose(gradient, weight.grad.numpy(), rtol=1e-9, atol=1e-12)
    scores = SelectiveModel.of(flat).score(part)
    expected = 1 - torch.sigmoid(g) * (1 - torch.sigmoid(f))
    np.testing.assert_allclose(scores, expected.detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize("misses", [0, 2])
def test_conformal_risk_goes_through_the_thresholds_of_all_draws(misses: int) -> None:
    fit, model = a_part(2), a_model(4)
    terms = ConformalTerms(misses, weight=0.7, temperature=0.5)
    error = check_grad(
        lambda m: conformal_risk(m, fit, terms)[0], lambda m: conformal_risk(m, fit, terms)[1], model
    )
    assert error < 1e-5
    weight = torch.tensor(model, requires_grad=True)
    z = torch.tensor(fit.features) @ weight[:-1] + weight[-1]
    first, second = z[:60].view(-1, 2), torch.stack([z[60:], z[1:60:4]], dim=1)  # the second draws
    negative = first[1::2].amax(dim=1)
    taus = [torch.sort(cases.amax(dim=1)).values[misses] for cases in (first[::2], second)]
    share = torch.stack([torch.sigmoid((negative - tau) / 0.5).mean() for tau in taus]).mean()
    labels = torch.tensor(fit.labels, dtype=torch.float64)
    losses = binary_cross_entropy_with_logits(z, labels, reduction="none")
    value = (torch.tensor(fit.weights) * losses).sum() + 0.7 * share
    value.backward()
    found, gradient = conformal_risk(model, fit, terms)
    assert found == pytest.approx(value.item(), rel=1e-12)
    assert weight.grad is not None
    np.testing.assert_allclose(gradient, weight.grad.numpy(), rtol=1e-10, atol=1e-12)
    # A threshold without a gradient gives another direction.
    without = conformal_risk(model, fit, ConformalTerms(misses, 0.0, 0.5))[1]
    assert np.abs(gradient - without).max() > 1e-3


def test_ridges_leave_biases_free() -> None:
    value, gradient = ridge(a_model(5), 0.3)
    assert value == pytest.approx(0.15 * np.sum(a_model(5)[:-1] ** 2))
    np.testing.assert_allclose(gradient, np.append(0.3 * a_model(5)[:-1], 0.0))
    flat = a_model(6, 4 * DIM + 3)
    assert check_grad(lambda m: selective_ridge(m, 0.3)[0], lambda m: selective_ridge(m, 0.3)[1], flat) < 1e-5
    assert not np.any(selective_ridge(flat, 0.3)[1][-3:])
    assert selective_ridge(SelectiveModel.start(DIM), 0.3)[0] == 0.0


def test_a_case_is_its_highest_image_whatever_the_order() -> None:
    case = np.array([2, 0, 1, 0, 2, 1, 0])
    logits = np.array([0.1, 3.0, -1.0, 4.0, 0.2, -2.0, 1.0])
    assert highest_images(logits, case).tolist() == [3, 2, 4]
    of_positive = np.array([0, 1, 3, 4, 6])  # the rows of cases 0 and 2
    assert of_positive[threshold_image(logits[of_positive], case[of_positive] // 2, 0)] == 4
    assert of_positive[threshold_image(logits[of_positive], case[of_positive] // 2, 1)] == 3


def test_float32_features_change_little() -> None:
    exact, rounded = (logistic_loss(a_model(6), a_part(7, dtype=kind)) for kind in (np.float64, np.float32))
    assert rounded[0] == pytest.approx(exact[0], rel=1e-5)
    np.testing.assert_allclose(rounded[1], exact[1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("views", [1, 4])
def test_rows_are_what_a_batch_has(views: int) -> None:
    """Augmented views (clean ones where there are no others), dropout, and a quarter of cancer by weight."""
    generator = np.random.default_rng(3)
    features = generator.standard_normal((40, views, 32)).astype(np.float16)
    labels = (np.arange(40) < 4).astype(np.int64)
    cohort = LabelledImages(labels, np.arange(40) // 2, 0.25)
    images, rows = np.arange(2, 40), rows_of_array(features)
    part = drawn_rows(rows, cohort, images, 5, 0.3, np.random.default_rng(0))
    assert part.labels.size == 38 + 4 * 2
    assert part.weights[part.labels == 1].sum() == pytest.approx(0.25)
    assert part.weights.sum() == pytest.approx(1.0)
    assert np.bincount(part.draw).tolist() == [38, 2, 2, 2, 2]
    kept = part.features != 0
    assert 0.6 < kept.mean() < 0.8
    seen = set()
    for image, row, there in zip([*images, *[2, 3] * 4], part.features, kept, strict=True):
        x = features[image].astype(np.float64)
        normal = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5) / 0.7
        (view,) = (view for view in range(views) if np.allclose(normal[view][there], row[there], atol=1e-3))
        seen.add(view)
    assert seen == set(range(min(1, views - 1), views))
    clean = clean_rows(rows, cohort, images)
    x = features[2:, 0].astype(np.float64)
    normal = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(clean.features, normal, atol=1e-3)


def test_logistic_regression_is_scikit_learns() -> None:
    """With the rows' weights, for the ridge that calibration prefers."""
    fit, calibrate, settings = a_part(8), a_part(9), LinearSettings(ridges=(0.3, 0.03))
    found = fit_logistic_regression(fit, calibrate, settings)
    losses = {}
    for strength in settings.ridges:
        oracle = LogisticRegression(C=1 / strength, tol=1e-10, max_iter=10_000)
        oracle.fit(fit.features, fit.labels, sample_weight=fit.weights)
        chance = oracle.predict_proba(calibrate.features)[:, 1]
        losses[strength] = -calibrate.weights @ np.log(np.where(calibrate.labels == 1, chance, 1 - chance))
        if strength == found.strength:
            np.testing.assert_allclose(found.score(calibrate), chance, atol=0.01)
    assert found.strength == min(losses, key=lambda strength: losses[strength])
    assert found.converged


@pytest.mark.parametrize("target", [0.98, 0.95, 0.7])
@pytest.mark.parametrize("seed", [10, 20, 30])
def test_conformal_risk_training_converges(target: float, seed: int) -> None:
    """No point nearby is lower, nor is what scipy's search ends at, which corners stop."""
    fit = a_part(seed, images=400)
    settings = LinearSettings()
    start = fit_logistic_regression(fit, fit, settings)
    found = fit_conformal_risk(start, fit, target, settings)
    assert found.converged
    assert found.strength == start.strength
    misses = conformal_misses(100, target).misses
    terms = ConformalTerms(misses or 0, settings.conformal_weight, settings.temperature)

    def objective(model: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        (value, slopes), (more, further) = conformal_risk(model, fit, terms), ridge(model, start.strength)
        return value + more, slopes + further

    lowest = objective(found.model)[0]
    assert lowest < objective(start.model)[0]
    assert lowest <= objective(converge(objective, start.model, 500)[0])[0] * (1 + 1e-4)
    generator = np.random.default_rng(0)
    for size in (0.3, 0.1, 0.03, 0.01):
        for _ in range(50):
            near = found.model + size * generator.standard_normal(DIM + 1)
            assert objective(near)[0] > lowest * (1 - 1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_corners_do_not_stop_the_search(seed: int) -> None:
    """The sum of distances has its least value where linear programming says."""
    generator = np.random.default_rng(seed)
    rows, level = generator.standard_normal((40, 6)), generator.standard_normal(40)

    def distances(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        gaps = rows @ x - level
        return float(np.abs(gaps).sum()), np.asarray(np.sign(gaps) @ rows)

    found, converged = minimise_with_corners(distances, np.ones(6), 2_000)
    costs = np.concatenate([np.zeros(6), np.ones(40)])
    above = np.block([[rows, -np.eye(40)], [-rows, -np.eye(40)]])
    least = linprog(
        costs, above, np.concatenate([level, -level]), bounds=[(None, None)] * 6 + [(0, None)] * 40
    )
    assert converged
    assert distances(found)[0] == pytest.approx(least.fun, rel=1e-4)


def test_a_fit_that_is_stopped_says_so() -> None:
    fit = a_part(11)
    assert not fit_selective_net(fit, fit, LinearSettings(iterations=2)).converged
    assert fit_selective_net(fit, fit, LinearSettings()).converged
    lowest, converged = converge(lambda x: (float(x @ x), 2 * x), np.ones(3), 100)
    assert converged
    np.testing.assert_allclose(lowest, 0.0, atol=1e-6)
