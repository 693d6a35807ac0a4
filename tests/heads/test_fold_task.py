"""A fold's training: the closed loop, what it records, and the epochs against the oracle."""

import numpy as np
import pytest

from tests.heads.oracle import make_cohort, train_oracle
from tests.heads.test_threshold import find_closed_loop
from trust_cache.base.errors import InputError
from trust_cache.cache.feature_rows import rows_of_array
from trust_cache.heads.bank import initial_parameters, score_rows
from trust_cache.heads.draws import Draws
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings, presets
from trust_cache.heads.trainer import QUANTILES, FoldImages, FoldJob, FoldTask

DIM = 48
COHORT = make_cohort(DIM, images=1_600, positives=120, signal=1.0)
IMAGES = FoldImages(COHORT.labels, np.arange(1_000), np.arange(1_000, 1_600))
ROWS = rows_of_array(COHORT.features)
HEADS = [
    *presets().values(),
    HeadSettings(lambda_dismiss=0.05, tau="closed-loop", loop_level=0.05, lr=3e-3),
]
CLOSED = [4, 5]


def start(heads: list[HeadSettings] = HEADS, images: FoldImages = IMAGES, epochs: int = 4) -> FoldTask:
    return FoldTask(FoldJob(ROWS, images, heads, TrainingSettings(epochs=epochs), Draws(1, 2)))


def test_each_epochs_record_is_that_of_the_heads_at_its_start() -> None:
    task = start()
    labels = COHORT.labels[IMAGES.calibrate]
    for epoch in range(5):
        scores = score_rows(ROWS, IMAGES.calibrate, task.parameters)
        if epoch < 4:
            assert task.run_epoch()
            for head in CLOSED:
                found = find_closed_loop(scores[head], labels, HEADS[head].loop_level, HEADS[head].loop_delta)
                assert task.taus[epoch, head] == found.tau
                assert task.dismissed[epoch, head] == found.dismissed
                assert task.positives_dismissed[epoch, head] == found.positives_dismissed
            below = scores[3] < 0.05
            assert task.taus[epoch, 3] == 0.05
            assert task.dismissed[epoch, 3] == below.sum()
            assert task.positives_dismissed[epoch, 3] == labels[below].sum()
        for label in (0, 1):
            expected = np.quantile(scores[:, labels == label], QUANTILES, axis=1).T
            np.testing.assert_allclose(task.trajectories[epoch, :, label], expected, rtol=1e-12)
    assert task.finished
    np.testing.assert_array_equal(np.isnan(task.taus).all(axis=0), [True, True, True, False, False, False])
    assert np.isnan(task.taus[:, :3]).all()


def test_on_a_separable_cohort_tau_rises_above_0_and_moves() -> None:
    task = start(epochs=6)
    while not task.finished:
        task.run_epoch()
    taus = task.taus[:, 5]
    assert taus[-1] > 0
    assert np.unique(taus).size > 2


def test_epochs_and_moving_taus_are_the_oracles() -> None:
    """An epoch has ceil(1,000 / 80) = 13 steps, and its loss uses the tau of its start."""
    task = start()
    initial = initial_parameters(Draws(1, 2), len(HEADS), DIM)
    while not task.finished:
        task.run_epoch()
    assert task.steps_per_epoch == 13
    fitted = make_cohort(DIM, images=1_600, positives=120, signal=1.0)
    fitted = type(fitted)(fitted.features[:1_000], fitted.labels[:1_000])
    expected = train_oracle(
        fitted,
        HEADS[5],
        TrainingSettings(),
        Draws(1, 2),
        initial,
        4 * 13,
        taus=task.taus[:, 5].tolist(),
    )
    change = np.abs(expected["weight"] - initial.weight[5]).max()
    assert np.abs(task.parameters.weight[5] - expected["weight"]).max() < 1e-3 * change


def test_too_few_calibration_images_keep_tau_at_0() -> None:
    few = FoldImages(COHORT.labels, IMAGES.fit, IMAGES.calibrate[:298])
    task = start(heads=[presets()["closed-loop"]], images=few, epochs=1)
    task.run_epoch()
    assert task.taus.tolist() == [[0.0]]
    assert task.dismissed.tolist() == [[0]]


def test_calibration_images_of_one_class_leave_the_others_trajectory_undefined() -> None:
    negatives = FoldImages(COHORT.labels, IMAGES.fit, IMAGES.of_class(IMAGES.calibrate, 0))
    task = start(images=negatives, epochs=1)
    task.run_epoch()
    assert np.isnan(task.trajectories[:, :, 1]).all()
    assert np.isfinite(task.trajectories[:, :, 0]).all()


@pytest.mark.parametrize(("label", "name"), [(1, "positive"), (0, "negative")])
def test_a_fold_without_a_class_is_refused(label: int, name: str) -> None:
    one_class = FoldImages(COHORT.labels, IMAGES.of_class(IMAGES.fit, 1 - label), IMAGES.calibrate)
    with pytest.raises(InputError, match=f"fold 2: expected {name} images to fit on, found none"):
        start(images=one_class)


def test_no_head_and_no_epoch_left_are_errors() -> None:
    with pytest.raises(InputError, match="at least one configuration"):
        start(heads=[])
    task = start(epochs=1)
    task.run_epoch()
    with pytest.raises(RuntimeError, match="all 1 epochs are done"):
        task.run_epoch()


def test_a_stopped_epoch_says_so() -> None:
    task = start()
    assert not task.run_epoch(lambda: True)
    assert task.epoch == 0
