"""View parameters: uniform over their ranges, one value for ever, whatever surrounds them."""

import subprocess
import sys
from dataclasses import asdict, astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trust_cache.base.errors import InputError
from trust_cache.cache.views import UNTOUCHED, ViewParameters, ViewSettings, decide_view, decide_views

IMAGES, AUGMENTED = 1_000, 8
RANGES = {
    "rotation": (-10, 10), "scale": (0.9, 1.1), "shift_x": (-0.05, 0.05), "shift_y": (-0.05, 0.05),
    "contrast": (0.9, 1.1), "brightness": (-0.05, 0.05),
}  # fmt: skip
GOLDEN_OTHER = (
    -3.9071655632370517, 0.9344492651030838, -0.04241289557178157,
    0.0339534572144332, 1.039733979244049, 0.03846028506380987,
)  # fmt: skip
GOLDEN_FIRST = (
    -0.45081959508405056, 0.9222494792576008, -0.03275975859366257,
    0.04855688686946595, 1.076984691174746, -0.04137442295676859,
)  # fmt: skip


@pytest.fixture(scope="module")
def drawn() -> dict[str, np.ndarray]:
    views = [decide_views(0, f"image {n}", AUGMENTED) for n in range(IMAGES)]
    return {name: np.array([[asdict(view)[name] for view in image] for image in views]) for name in RANGES}


@pytest.mark.parametrize("name", RANGES)
def test_every_parameter_is_uniform_over_its_range(name: str, drawn: dict[str, np.ndarray]) -> None:
    low, high = RANGES[name]
    values = drawn[name].ravel()
    assert low <= values.min()
    assert values.max() < high
    # 8,000 fixed draws: a share of 1e-3 of all seeds would fail a true uniform here.
    assert stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue > 1e-3
    # A range wrong by a twentieth of its width fails.
    assert stats.kstest(values, stats.uniform(low, 1.05 * (high - low)).cdf).pvalue < 1e-3


def test_parameters_and_views_do_not_depend_on_each_other(drawn: dict[str, np.ndarray]) -> None:
    table = np.stack([drawn[name] for name in RANGES])  # parameter, image, view
    rows = table.transpose(0, 2, 1).reshape(-1, IMAGES)
    correlations = np.corrcoef(rows)[np.triu_indices(len(rows), 1)]
    # Under independence each is normal with deviation 1 / sqrt(1000); the largest of 1,128 stays below 4.5.
    assert np.abs(correlations).max() < 4.5 / np.sqrt(IMAGES)


def test_the_same_for_ever() -> None:
    """Values written down once: a cache made years ago must be resumable."""
    assert astuple(decide_view(0, "10006_462822612", 1)) == pytest.approx(GOLDEN_FIRST, rel=1e-15)
    assert astuple(decide_view(7, "normal/p_1/left/CC/ü", 8)) == pytest.approx(GOLDEN_OTHER, rel=1e-15)


def test_another_process_decides_the_same() -> None:
    code = "from trust_cache.cache.views import decide_views; print(decide_views(3, '007', 4))"
    words = [sys.executable, "-c", code]
    shown = subprocess.run(words, check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": "5"})
    assert shown.stdout.strip() == str(decide_views(3, "007", 4))


def test_view_0_is_untouched() -> None:
    assert decide_view(5, "x", 0) == UNTOUCHED == ViewParameters(0, 1, 0, 0, 1, 0)
    assert UNTOUCHED not in decide_views(5, "x", 8)
    assert decide_views(5, "x", 0) == ()


@given(st.lists(st.tuples(st.integers(), st.text(max_size=4), st.integers(1, 30)), min_size=2, max_size=6))
def test_distinct_for_distinct_seeds_images_and_views(keys: list[tuple[int, str, int]]) -> None:
    decided = {key: decide_view(*key) for key in keys}
    assert len(set(decided.values())) == len(decided)
    for (seed, image_id, view), parameters in decided.items():
        assert decide_views(seed, image_id, view)[-1] == parameters  # however many views there are


def test_settings_are_checked_and_said_in_words() -> None:
    assert "rotation -10..10, scale 0.9..1.1" in ViewSettings().words()
    assert ViewSettings().words() != ViewSettings(scale=(0.9, 1.2)).words()
    fixed = decide_view(0, "x", 1, ViewSettings(scale=(1.0, 1.0)))
    assert fixed.scale == 1
    for wrong in ({"rotation": (1.0, -1.0)}, {"scale": (0.0, 1.0)}):
        with pytest.raises(InputError, match="view settings"):
            ViewSettings(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="view: expected 0 or more"):
        decide_view(0, "x", -1)
