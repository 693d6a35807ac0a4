"""The draws: what they promise, and that kernels, machines and releases draw the same."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare, kstest

from tests.heads.draws import draw_batch, draw_mask
from trust_cache.cache.feature_rows import rows_of_array
from trust_cache.heads import kernels
from trust_cache.heads.bank import make_source
from trust_cache.heads.draws import Draws
from trust_cache.heads.head_settings import TrainingSettings

POSITIVES, NEGATIVES = np.arange(100, 140), np.arange(500, 900)
COUNTS = (20, 60)


def test_draws_are_todays_on_every_machine_and_release() -> None:
    """Pinned numbers: a seed must give the same draws in every release."""
    draws = Draws(seed=7, fold=2, repeat=1)
    batch = draw_batch(draws, 3, POSITIVES, NEGATIVES, (4, 4), 9)
    assert batch.images.tolist() == [137, 134, 100, 104, 665, 899, 896, 731]
    assert batch.views.tolist() == [1, 1, 6, 6, 5, 8, 8, 1]
    assert np.flatnonzero(draw_mask(draws, 3, 2, 19, 77)[1] == 0).tolist() == [2, 3, 7, 9, 11, 12, 13, 17]
    weight, bias = draws.initial_weights(5)
    assert weight.tolist() == [
        -0.24918197095394135,
        0.4304553270339966,
        0.15233555436134338,
        -0.16910797357559204,
        -0.06142266094684601,
    ]
    assert bias == -0.007166662253439426


def test_splitmix64_is_the_published_one() -> None:
    """The first words from state 1234567, from the reference implementation's known answers."""
    words = np.empty(5, dtype=np.uint64)
    kernels.draw_words(np.uint64(1234567), 0, words)
    assert words.tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@given(
    st.integers(0, 2**63),
    st.integers(0, 9),
    st.integers(0, 10_000),
    st.integers(1, 40),
    st.integers(1, 80),
    st.integers(1, 10),
)
def test_the_kernel_draws_the_defined_batches(
    seed: int, fold: int, step: int, positives: int, negatives: int, views: int
) -> None:
    draws = Draws(seed, fold)
    pools = POSITIVES[:positives], NEGATIVES[:negatives]
    rows = rows_of_array(np.zeros((1, views, 8), dtype=np.float16))
    source = make_source(rows, TrainingSettings(), *pools, draws)
    images, chosen = np.empty(80, dtype=np.int64), np.empty(80, dtype=np.int64)
    kernels.draw_batch(source, step, images, chosen)
    batch = draw_batch(draws, step, *pools, COUNTS, views)
    np.testing.assert_array_equal(images, batch.images)
    np.testing.assert_array_equal(chosen, batch.views)


@given(st.integers(0, 2**63), st.integers(0, 10_000), st.integers(1, 70))
def test_the_kernel_draws_the_defined_masks(seed: int, step: int, dim: int) -> None:
    draws, rows = Draws(seed, 0), 5
    words = np.empty((rows, -(-dim // 8)), dtype=np.uint64)
    key = np.uint64(kernels.step_key(draws.mask_key, step))
    for r in range(rows):
        kernels.draw_words(key, r * words.shape[1], words[r])
    kept = words.view(np.uint8)[:, :dim] >= 77
    np.testing.assert_array_equal(draw_mask(draws, step, rows, dim, 77), kept * np.float32(256 / 179))


def test_a_batch_has_distinct_images_of_either_class() -> None:
    for step in range(200):
        images = draw_batch(Draws(0, 0), step, POSITIVES, NEGATIVES, COUNTS, 9).images
        assert np.unique(images).size == 80
        assert np.isin(images[:20], POSITIVES).all()
        assert np.isin(images[20:], NEGATIVES).all()


def test_a_pool_of_exactly_a_batch_is_drawn_whole() -> None:
    images = draw_batch(Draws(0, 0), 5, POSITIVES[:20], NEGATIVES[:60], COUNTS, 9).images
    assert sorted(images[:20]) == POSITIVES[:20].tolist()
    assert sorted(images[20:]) == NEGATIVES[:60].tolist()


def test_a_pool_too_small_is_drawn_with_repetition() -> None:
    draws, pool = Draws(0, 0), POSITIVES[:19]
    images = np.concatenate(
        [draw_batch(draws, s, pool, NEGATIVES, COUNTS, 9).images[:20] for s in range(300)]
    )
    counts = np.unique(images, return_counts=True)[1]
    assert counts.size == 19
    assert chisquare(counts).pvalue > 1e-4


def test_images_and_views_are_uniform_and_batches_independent() -> None:
    batches = [draw_batch(Draws(1, 3), step, POSITIVES, NEGATIVES, COUNTS, 9) for step in range(600)]
    views = np.concatenate([batch.views for batch in batches])
    assert views.min() == 1
    assert views.max() == 8
    assert chisquare(np.bincount(views)[1:]).pvalue > 1e-4
    negatives = np.concatenate([batch.images[20:] for batch in batches])
    # Drawn without replacement, counts vary less than a chi-square test assumes: not more is what matters.
    assert chisquare(np.bincount(negatives - 500, minlength=400)).pvalue > 1e-4
    shared = [np.intersect1d(a.images[:20], b.images[:20]).size for a, b in pairwise(batches)]
    assert np.mean(shared) == pytest.approx(20 * 20 / 40, abs=5 * 1.6 / np.sqrt(600))


def test_only_the_clean_view_is_drawn_where_there_is_no_other() -> None:
    assert not draw_batch(Draws(0, 0), 0, POSITIVES, NEGATIVES, COUNTS, 1).views.any()


def test_masks_drop_77_of_256_and_scale_exactly() -> None:
    mask = draw_mask(Draws(0, 0), 0, 80, 2048, 77)
    assert set(np.unique(mask)) == {np.float32(0), np.float32(256 / 179)}
    assert binomtest(int((mask == 0).sum()), mask.size, 77 / 256).pvalue > 1e-4
    columns, rows = (mask == 0).sum(axis=0), (mask == 0).sum(axis=1)
    assert columns.var() == pytest.approx(80 * 77 * 179 / 256**2, rel=0.2)
    assert rows.var() == pytest.approx(2048 * 77 * 179 / 256**2, rel=0.8)


def test_no_dropout_keeps_all() -> None:
    assert (draw_mask(Draws(0, 0), 0, 3, 17, 0) == 1).all()


def test_initial_weights_are_uniform_as_pytorchs() -> None:
    weight, bias = Draws(0, 0).initial_weights(20_000)
    bound = 1 / np.sqrt(20_000)
    assert kstest(weight / bound, "uniform", args=(-1, 2)).pvalue > 1e-4
    assert abs(bias) <= bound


def test_seed_fold_repeat_and_step_all_matter() -> None:
    others = [Draws(0, 0), Draws(1, 0), Draws(0, 1), Draws(0, 0, 1)]
    assert len({tuple(draws.initial_weights(3)[0]) for draws in others}) == 4
    batches = [
        draw_batch(draws, step, POSITIVES, NEGATIVES, COUNTS, 9) for draws in others for step in (0, 1)
    ]
    assert len({tuple(batch.images) for batch in batches}) == 8
    assert len({draw_mask(draws, step, 2, 64, 77).tobytes() for draws in others for step in (0, 1)}) == 8
