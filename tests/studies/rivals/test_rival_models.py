"""The rivals' objectives: gradients against finite differences and torch's autograd."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import check_grad

from trust_cache.manifest.cases import highest_images
from trust_cache.studies.rivals.rival_models import (
    ConformalTerms,
    Part,
    conformal_risk,
    ridge,
    selective_risk,
    threshold_image,
)

DIM = 6


def a_part(seed: int, images: int = 60, dtype: type = np.float64) -> Part:
    generator = np.random.default_rng(seed)
    labels = (np.arange(images) % 4 == 0).astype(np.int64)
    features = generator.standard_normal((images, DIM)) + 0.5 * labels[:, None]
    case = np.arange(images) // 2
    return Part(features.astype(dtype), labels, case)


def a_model(seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal(DIM + 1)


@pytest.mark.parametrize("coverage", [0.1, 0.9])  # with and without the penalty acting
def test_selective_risk(coverage: float) -> None:
    part, model = a_part(0), a_model(1)
    lacking = coverage - np.mean(1 / (1 + np.exp(part.logits(model))))
    assert (lacking > 0) == (coverage == 0.9)
    parts = (part, coverage, 32.0)
    error = check_grad(lambda m: selective_risk(m, *parts)[0], lambda m: selective_risk(m, *parts)[1], model)
    assert error < 1e-5
    weight = torch.tensor(model, requires_grad=True)
    g = torch.sigmoid(-(torch.tensor(part.features) @ weight[:-1] + weight[-1]))
    y = torch.tensor(part.labels, dtype=torch.float64)
    value = (g * y).mean() / g.mean() / y.mean() + 32.0 * torch.relu(coverage - g.mean()) ** 2
    value.backward()
    found, gradient = selective_risk(model, *parts)
    assert found == pytest.approx(value.item(), rel=1e-12)
    assert weight.grad is not None
    np.testing.assert_allclose(gradient, weight.grad.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("misses", [0, 2])
def test_conformal_risk_goes_through_the_threshold(misses: int) -> None:
    fit, calibrate, model = a_part(2), a_part(3, images=40), a_model(4)
    terms = ConformalTerms(misses, weight=0.7, temperature=0.5)
    error = check_grad(
        lambda m: conformal_risk(m, fit, calibrate, terms)[0],
        lambda m: conformal_risk(m, fit, calibrate, terms)[1],
        model,
    )
    assert error < 1e-5
    weight = torch.tensor(model, requires_grad=True)
    z_fit, z_calibrate = (torch.tensor(part.features) @ weight[:-1] + weight[-1] for part in (fit, calibrate))
    by_case = [torch.stack([z.view(-1, 2).amax(dim=1)]) for z in (z_fit, z_calibrate)]
    positive = [torch.tensor(part.labels).view(-1, 2).amax(dim=1) == 1 for part in (fit, calibrate)]
    tau = torch.sort(by_case[1][0][positive[1]]).values[misses]
    share = torch.sigmoid((by_case[0][0][~positive[0]] - tau) / 0.5).mean()
    labels = torch.tensor(fit.labels, dtype=torch.float64)
    value = torch.nn.functional.binary_cross_entropy_with_logits(z_fit, labels) + 0.7 * share
    value.backward()
    found, gradient = conformal_risk(model, fit, calibrate, terms)
    assert found == pytest.approx(value.item(), rel=1e-12)
    assert weight.grad is not None
    np.testing.assert_allclose(gradient, weight.grad.numpy(), rtol=1e-10, atol=1e-12)
    # The detached threshold of a plain loss has another gradient: the way through tau is not idle.
    detached = conformal_risk(model, fit, calibrate, ConformalTerms(misses, 0.0, 0.5))[1]
    assert np.abs(gradient - detached).max() > 1e-3


def test_ridge_leaves_the_bias_free() -> None:
    model = a_model(5)
    value, gradient = ridge(model, 0.3)
    assert value == pytest.approx(0.15 * np.sum(model[:-1] ** 2))
    np.testing.assert_allclose(gradient, np.append(0.3 * model[:-1], 0.0))


def test_a_case_is_its_highest_image_whatever_the_order() -> None:
    case = np.array([2, 0, 1, 0, 2, 1, 0])
    logits = np.array([0.1, 3.0, -1.0, 4.0, 0.2, -2.0, 1.0])
    assert highest_images(logits, case).tolist() == [3, 2, 4]
    part = Part(np.zeros((7, 1)), np.array([1, 0, 0, 1, 0, 0, 0]), case)
    assert threshold_image(logits, part, 0) == 4  # the highest image of case 2, though another is labelled
    assert threshold_image(logits, part, 1) == 3


def test_float32_features_change_little() -> None:
    model = a_model(6)
    exact, rounded = (
        selective_risk(model, a_part(7, dtype=kind), 0.9, 32.0) for kind in (np.float64, np.float32)
    )
    assert rounded[0] == pytest.approx(exact[0], rel=1e-5)
    np.testing.assert_allclose(rounded[1], exact[1], rtol=1e-3, atol=1e-5)
