"""Banks: heads are independent of their neighbours; scores equal torch's; features are read in place."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.heads.oracle import make_cohort
from trust_cache.base.errors import InputError
from trust_cache.cache.feature_rows import FeatureRows, rows_of_array
from trust_cache.heads import kernels
from trust_cache.heads.bank import HeadParameters, initial_parameters, score_rows, to_torch
from trust_cache.heads.draws import Draws
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings, presets
from trust_cache.heads.trainer import FoldImages, FoldJob, FoldTask


def random_heads(heads: int, dim: int) -> HeadParameters:
    generator = np.random.default_rng(5)
    gamma, beta, weight = generator.normal(size=(3, heads, dim)).astype(np.float32)
    return HeadParameters(
        gamma, beta, weight / np.float32(np.sqrt(dim)), generator.normal(size=heads).astype("f4")
    )


def train_alone_and_together(heads: list[HeadSettings], dim: int) -> list[HeadParameters]:
    cohort = make_cohort(dim, images=500)
    images = FoldImages(cohort.labels, np.arange(400), np.arange(400, 500))
    results = []
    for bank in (heads, *([head] for head in heads)):
        training = TrainingSettings(epochs=3)
        task = FoldTask(FoldJob(rows_of_array(cohort.features), images, bank, training, Draws(0, 0)))
        while not task.finished:
            task.run_epoch()
        results.append(task.parameters)
    return results


@pytest.mark.parametrize("dim", [64, 203])
def test_a_head_is_the_same_bytes_alone_and_in_any_bank(dim: int) -> None:
    heads = [
        *presets().values(),
        HeadSettings(lr=1e-3, clip=0.1),
        HeadSettings(lambda_focal=0.3, focal_gamma=1.3),
    ]
    together, *alone = train_alone_and_together(heads, dim)
    for i, single in enumerate(alone):
        for name in ("gamma", "beta", "weight", "bias"):
            assert getattr(single, name)[0].tobytes() == getattr(together, name)[i].tobytes(), (i, name)


@pytest.mark.parametrize(("heads", "dim"), [(1, 8), (5, 64), (7, 37), (3, 2048), (2, 1)])
def test_scores_are_those_of_the_torch_module(heads: int, dim: int) -> None:
    parameters = random_heads(heads, dim)
    features = np.random.default_rng(0).normal(0.5, 2.0, (203, 2, dim)).astype(np.float16)
    images = np.random.default_rng(1).permutation(203)[:97]
    scores = score_rows(rows_of_array(features), images, parameters)
    assert scores.dtype == np.float64
    assert scores.shape == (heads, 97)
    x = torch.tensor(features[images, 0].astype(np.float32))
    for i in range(heads):
        head = to_torch(
            parameters.gamma[i], parameters.beta[i], parameters.weight[i], float(parameters.bias[i])
        )
        assert not head.training
        with torch.no_grad():
            expected = torch.sigmoid(head(x).double())[:, 0].numpy()
        np.testing.assert_allclose(scores[i], expected, rtol=0, atol=1e-5)


def test_to_torch_sets_dropout_and_stays_trainable() -> None:
    one = np.ones(4, dtype=np.float32)
    head = to_torch(one, one, one, 0.5, dropout=0.25)
    assert isinstance(head[1], torch.nn.Dropout)
    assert head[1].p == 0.25
    assert all(parameter.requires_grad for parameter in head.parameters())


def test_a_score_does_not_depend_on_what_is_scored_beside_it() -> None:
    parameters = random_heads(6, 75)
    rows = rows_of_array(np.random.default_rng(0).normal(size=(150, 1, 75)).astype(np.float16))
    whole = score_rows(rows, np.arange(150), parameters)
    for image in (0, 3, 79, 80, 149):
        assert score_rows(rows, np.array([image]), parameters).tobytes() == whole[:, image].tobytes()
    assert score_rows(rows, np.arange(0), parameters).shape == (6, 0)


def test_rows_may_lie_anywhere() -> None:
    """Blocks of images in separate arrays at odd addresses score as one array does."""
    features = np.random.default_rng(0).normal(size=(9, 3, 33)).astype(np.float16)
    parts = []
    for image in features[::-1]:
        memory = np.zeros(image.nbytes + 64, dtype=np.uint8)
        start = (2 - memory.ctypes.data) % 4  # an odd multiple of 2
        memory[start : start + image.nbytes] = image.reshape(-1).view(np.uint8)
        parts.append((memory, start))
    addresses = np.array([memory.ctypes.data + start for memory, start in parts[::-1]])
    scattered = FeatureRows(addresses, 3, 33, owner=parts, present=np.ones(len(parts), dtype=np.bool_))
    parameters = random_heads(2, 33)
    np.testing.assert_array_equal(
        score_rows(scattered, np.arange(9), parameters),
        score_rows(rows_of_array(features), np.arange(9), parameters),
    )


def test_every_float16_number_is_widened_exactly() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    row = np.empty(halves.size, dtype=np.float32)
    kernels.widen(halves.ctypes.data, halves.size, row)
    assert row.tobytes() == halves.astype(np.float32).tobytes()


def test_equal_features_and_features_at_the_mean_are_no_special_case() -> None:
    """Kept features are found by not being 0: a feature at the mean must still count as kept."""
    features = np.zeros((4, 1, 48), dtype=np.float16)
    features[1] = 3
    features[2, 0, :2] = 1, -1
    parameters = random_heads(1, 48)
    scores = score_rows(rows_of_array(features), np.arange(4), parameters)[0]
    shift = float((parameters.beta * parameters.weight).astype(np.float64).sum() + parameters.bias[0])
    np.testing.assert_allclose(scores[[0, 1, 3]], 1 / (1 + np.exp(-shift)), rtol=1e-5)
    assert abs(scores[2] - scores[0]) > 1e-3


def test_heads_of_another_size_are_refused() -> None:
    rows = rows_of_array(np.zeros((2, 1, 16), dtype=np.float16))
    with pytest.raises(InputError, match="expected 16 features, as the cache has, found 8"):
        score_rows(rows, np.arange(2), random_heads(1, 8))


def test_initial_parameters_are_shared_by_the_heads_of_a_fold() -> None:
    initial = initial_parameters(Draws(0, 0), 3, 10)
    assert (initial.gamma == 1).all()
    assert (initial.beta == 0).all()
    assert (initial.weight == initial.weight[0]).all()
    assert replace(initial).bias[0] == np.float32(Draws(0, 0).initial_weights(10)[1])
