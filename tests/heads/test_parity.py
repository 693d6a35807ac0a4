"""The bank against torch in float64: same initial weights, batches and masks, so the same heads."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch

from tests.heads.oracle import Cohort, loss_of, make_cohort, train_oracle
from trust_cache.cache.feature_rows import rows_of_array
from trust_cache.heads import kernels
from trust_cache.heads.bank import (
    HeadParameters,
    initial_parameters,
    make_head_arrays,
    make_source,
    make_weights,
    make_workspace,
    read_parameters,
)
from trust_cache.heads.draws import Draws
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings, presets

STEPS = 200
DRAWS = Draws(seed=3, fold=1)
NAMES = ("gamma", "beta", "weight", "bias")
# Everything acts: decay and clipping are felt, and the hinge's corner is among the positives' scores.
STRONG = HeadSettings(
    lambda_brier=0.7,
    lambda_focal=1.0,
    focal_gamma=1.5,
    lambda_dismiss=0.8,
    tau=0.35,
    margin=0.15,
    lr=1e-2,
    weight_decay=0.1,
    clip=0.05,
)


def initial_at(heads: int, dim: int, bias: float) -> HeadParameters:
    initial = initial_parameters(DRAWS, heads, dim)
    return replace(initial, bias=initial.bias + np.float32(bias))


def train_bank(
    cohort: Cohort, heads: list[HeadSettings], training: TrainingSettings, initial: HeadParameters
) -> HeadParameters:
    """Train with tau + margin as the settings say (0.05 + margin in the closed loop)."""
    source = make_source(rows_of_array(cohort.features), training, cohort.positives, cohort.negatives, DRAWS)
    weights, arrays = make_weights(initial), make_head_arrays(heads)
    for i, head in enumerate(heads):
        arrays.floor[i] = head.margin + tau_of(head)
    work = make_workspace(training.batch, initial.dim)
    kernels.train_steps(source, arrays, weights, len(heads), 0, STEPS, work)
    return read_parameters(weights, len(heads), initial.dim)


def tau_of(head: HeadSettings) -> float:
    return head.tau if isinstance(head.tau, float) else 0.05


def head_of(parameters: HeadParameters, head: int) -> dict[str, np.ndarray]:
    return {name: np.atleast_1d(getattr(parameters, name)[head]).astype(np.float64) for name in NAMES}


@pytest.mark.parametrize("bias", [0, 10, -10, 17, -17, 50, -50])
@pytest.mark.parametrize(("dim", "dropped"), [(64, 77), (37, 0)])
def test_every_parameter_is_the_oracles(dim: int, dropped: int, bias: float) -> None:
    check_paper_bank(make_cohort(dim), TrainingSettings(dropped_of_256=dropped), bias)


@pytest.mark.slow
@pytest.mark.parametrize("bias", [0, 17, -50])
@pytest.mark.parametrize("dropped", [0, 77])
def test_every_parameter_is_the_oracles_at_full_size(dropped: int, bias: float) -> None:
    check_paper_bank(make_cohort(2048), TrainingSettings(dropped_of_256=dropped), bias)


def test_batches_of_odd_sizes_and_of_repeated_images() -> None:
    training = TrainingSettings(batch_positives=7, batch_negatives=12)
    check_paper_bank(make_cohort(50, images=60, positives=5, views=1), training, 0.0)


def check_paper_bank(cohort: Cohort, training: TrainingSettings, bias: float) -> None:
    heads = list(presets().values())
    initial = initial_at(len(heads), cohort.features.shape[2], bias)
    trained = train_bank(cohort, heads, training, initial)
    for i, head in enumerate(heads):
        expected = train_oracle(cohort, head, training, DRAWS, initial, STEPS, taus=[tau_of(head)])
        for name, values in head_of(trained, i).items():
            np.testing.assert_allclose(values, expected[name], rtol=0, atol=2e-5, err_msg=name)


def relative_error(trained: dict, expected: dict, initial: dict) -> float:
    """The largest difference of a parameter, in parts of the largest change of one of its kind."""
    return max(
        float(np.max(np.abs(trained[name] - expected[name])) / np.max(np.abs(expected[name] - initial[name])))
        for name in NAMES
    )


@pytest.mark.parametrize("dropped", [0, 77])
@pytest.mark.parametrize("bias", [0, 10, -10, 17, -17, 50, -50])
def test_where_everything_acts(dropped: int, bias: float) -> None:
    cohort, training = make_cohort(96), TrainingSettings(dropped_of_256=dropped)
    initial = initial_at(1, 96, bias)
    trained = head_of(train_bank(cohort, [STRONG], training, initial), 0)
    expected = train_oracle(cohort, STRONG, training, DRAWS, initial, STEPS, taus=[tau_of(STRONG)])
    assert relative_error(trained, expected, head_of(initial, 0)) < 1e-3


@pytest.mark.parametrize("name", list(presets()))
def test_every_configuration_where_everything_acts(name: str) -> None:
    preset = presets()[name]
    head = msgspec.structs.replace(
        preset, lr=1e-2, weight_decay=0.1, clip=0.05, tau=0.4 if preset.lambda_dismiss else None
    )
    cohort, training, initial = make_cohort(65), TrainingSettings(), initial_at(1, 65, 0.0)
    trained = head_of(train_bank(cohort, [head], training, initial), 0)
    expected = train_oracle(cohort, head, training, DRAWS, initial, STEPS, taus=[tau_of(head)])
    assert relative_error(trained, expected, head_of(initial, 0)) < 1e-3


def without(name: str):
    def loss(logits: torch.Tensor, labels: torch.Tensor, settings: HeadSettings, tau: float) -> torch.Tensor:
        return loss_of(logits, labels, msgspec.structs.replace(settings, **{name: 0.0}), tau)

    return loss


def without_ce(
    logits: torch.Tensor, labels: torch.Tensor, settings: HeadSettings, tau: float
) -> torch.Tensor:
    ce = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
    return loss_of(logits, labels, settings, tau) - ce


def with_hinge(side: float, everyone: bool = False):
    def loss(logits: torch.Tensor, labels: torch.Tensor, settings: HeadSettings, tau: float) -> torch.Tensor:
        p = torch.sigmoid(logits)
        concerned = p if everyone else p[labels == 1]
        hinge = torch.relu(side * (tau + settings.margin - concerned)).mean()
        return without("lambda_dismiss")(logits, labels, settings, tau) + settings.lambda_dismiss * hinge

    return loss


def unhinged(logits: torch.Tensor, labels: torch.Tensor, settings: HeadSettings, tau: float) -> torch.Tensor:
    line = (tau + settings.margin - torch.sigmoid(logits)[labels == 1]).mean()
    return without("lambda_dismiss")(logits, labels, settings, tau) + settings.lambda_dismiss * line


MUTATIONS = {
    "no decay": {"decay": False},
    "no clipping": {"clip": False},
    "no CE": {"loss": without_ce},
    "no Brier": {"loss": without("lambda_brier")},
    "no focal": {"loss": without("lambda_focal")},
    "no dismiss": {"loss": without("lambda_dismiss")},
    "hinge on the wrong side": {"loss": with_hinge(-1.0)},
    "hinge on negatives too": {"loss": with_hinge(1.0, everyone=True)},
    "no corner": {"loss": unhinged},
}


def test_a_rewritten_oracle_still_passes() -> None:
    """What makes the mutations meaningful: the same rewriting without a fault agrees."""
    assert mutated_error({"loss": with_hinge(1.0)}) < 1e-3


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS.keys())
def test_a_faulty_oracle_fails(mutation: dict) -> None:
    assert mutated_error(mutation) > 1e-2


def mutated_error(mutation: dict) -> float:
    cohort, training = make_cohort(96), TrainingSettings()
    initial = initial_at(1, 96, 0.0)
    trained = head_of(train_bank(cohort, [STRONG], training, initial), 0)
    expected = train_oracle(
        cohort, STRONG, training, DRAWS, initial, STEPS, taus=[tau_of(STRONG)], **mutation
    )
    return relative_error(trained, expected, head_of(initial, 0))
