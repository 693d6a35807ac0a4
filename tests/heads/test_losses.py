"""The reference losses against torch autograd, the kernel's slope against the reference."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.heads.oracle import loss_of
from trust_cache.heads import kernels, losses
from trust_cache.heads.head_settings import HeadSettings

logits = st.floats(-1000, 1000) | st.floats(-5, 5) | st.sampled_from([0.0, 50.0, -50.0, 1000.0, -1000.0])
gammas = st.floats(0, 5) | st.sampled_from([0.0, 1.0, 2.0])
shares = st.floats(0, 1)


def reference(logit: float, positive: bool, settings: HeadSettings, tau: float) -> losses.Loss:
    """The total loss of a batch of one row."""
    parts = [
        (1.0, losses.cross_entropy(logit, positive)),
        (settings.lambda_brier, losses.brier(logit, positive)),
        (settings.lambda_focal, losses.focal(logit, positive, settings.focal_gamma)),
        (settings.lambda_dismiss, losses.dismiss(logit, positive, tau + settings.margin)),
    ]
    return losses.Loss(
        np.asarray(sum(weight * loss.value for weight, loss in parts)),
        np.asarray(sum(weight * loss.slope for weight, loss in parts)),
    )


@given(logits, st.booleans(), gammas, shares, shares, shares, shares)
def test_value_and_slope_are_autograds(
    logit: float, positive: bool, gamma: float, brier: float, focal: float, dismiss: float, tau: float
) -> None:
    settings = HeadSettings(
        lambda_brier=brier, lambda_focal=focal, focal_gamma=gamma, lambda_dismiss=dismiss, tau=tau
    )
    z = torch.tensor([logit], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([float(positive)], dtype=torch.float64)
    if not positive:  # the mean over no positives is not a number: leave the term out
        oracle_settings = HeadSettings(lambda_brier=brier, lambda_focal=focal, focal_gamma=gamma)
        p = torch.sigmoid(z)
        value = loss_without_dismiss(z, p, labels, oracle_settings)
    else:
        value = loss_of(z, labels, settings, tau)
    value.sum().backward()
    ours = reference(logit, positive, settings, tau)
    assert ours.value == pytest.approx(value.item(), rel=1e-9, abs=1e-12)
    if abs(1 / (1 + np.exp(-np.clip(logit, -700, 700))) - tau - settings.margin) > 1e-12:  # not at the corner
        assert ours.slope == pytest.approx(z.grad.item(), rel=1e-9, abs=1e-12)  # type: ignore[union-attr]


def loss_without_dismiss(
    z: torch.Tensor, p: torch.Tensor, labels: torch.Tensor, settings: HeadSettings
) -> torch.Tensor:
    log_q = torch.nn.functional.logsigmoid(-z)
    log_p = torch.nn.functional.logsigmoid(z)
    focal = -((settings.focal_gamma * log_p).exp() * log_q)
    ce = torch.nn.functional.binary_cross_entropy_with_logits(z, labels)
    return ce + settings.lambda_brier * p**2 + settings.lambda_focal * focal


@given(logits, st.booleans(), gammas, shares, shares, shares, shares)
def test_the_kernels_slope_is_the_references(
    logit: float, positive: bool, gamma: float, brier: float, focal: float, dismiss: float, tau: float
) -> None:
    settings = HeadSettings(
        lambda_brier=brier, lambda_focal=focal, focal_gamma=gamma, lambda_dismiss=dismiss, tau=tau
    )
    slope = kernels._slope(logit, positive, brier, focal, gamma, dismiss, tau + settings.margin)
    expected = reference(logit, positive, settings, tau).slope
    assert slope == pytest.approx(float(expected), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("logit", [0.0, 1e-9, 50.0, -50.0, 709.0, -746.0, 1000.0, -1000.0, 1e300, -1e300])
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0, 7.0])
def test_no_logit_gives_nan_or_infinity(logit: float, positive: bool, gamma: float) -> None:
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for loss in (
            losses.cross_entropy(logit, positive),
            losses.brier(logit, positive),
            losses.focal(logit, positive, gamma),
            losses.dismiss(logit, positive, 0.15),
        ):
            assert np.isfinite(loss.value)
            assert np.isfinite(loss.slope)
            assert loss.value >= 0
    assert np.isfinite(kernels._slope(logit, positive, 0.1, 1.0, gamma, 0.05, 0.15))


def test_focal_with_gamma_0_is_cross_entropy() -> None:
    z, positive = np.linspace(-30, 30, 241), np.arange(241) % 2 == 0
    focal, ce = losses.focal(z, positive, 0.0), losses.cross_entropy(z, positive)
    np.testing.assert_allclose(focal.value, ce.value, rtol=1e-12)
    np.testing.assert_allclose(focal.slope, ce.slope, rtol=1e-12)


def test_dismiss_concerns_positives_below_the_floor_only() -> None:
    z = np.array([-4.0, 4.0, -4.0])
    loss = losses.dismiss(z, np.array([True, True, False]), 0.15)
    p = losses.sigmoid(-4.0)
    np.testing.assert_allclose(loss.value, [0.15 - p, 0, 0])
    np.testing.assert_allclose(loss.slope, [-p * (1 - p), 0, 0])
