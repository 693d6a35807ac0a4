"""The feature gate with a real encoder's code and random weights: only pictures like mammograms pass."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_sample_images

from trust_cache.cache.extract.view_features import (
    EncoderChoice,
    encode_clean_view,
    load_runner,
    torch_threads,
)
from trust_cache.encoders.mammo_clip import NAME
from trust_cache.encoders.recipe import RecipeKeys
from trust_cache.images.mask import box_of
from trust_cache.manifest.protocol import SCREENING
from trust_cache.statistics.feature_gate import fit_gate
from trust_cache.synthetic.phantom import PhantomSettings, draw_phantom

SIZE = (152, 92)
FITTING, HELD_OUT, NEW, OTHERS = 120, 110, 60, 12


def picture(number: int) -> NDArray[np.uint16]:
    """A canonical picture of a phantom."""
    settings = PhantomSettings(300, 240, projection=("CC", "MLO")[number % 2])
    phantom = draw_phantom(settings, number)
    cut = phantom.intensity * phantom.breast
    return (65535 * cut[box_of(phantom.breast, 0.1).slices]).astype(np.uint16)


def photograph(number: int) -> NDArray[np.uint16]:
    """A part of a photograph."""
    grey = load_sample_images().images[number % 2].mean(axis=2)
    left = 20 * number
    return (257 * grey[left : left + 300, left : left + 200]).astype(np.uint16)


@pytest.mark.slow
def test_pictures_that_are_no_mammograms_are_stopped() -> None:
    runner = load_runner(EncoderChoice("random", NAME, 0, RecipeKeys(image_size=SIZE)), "cpu", compiled=False)
    generator = np.random.default_rng(0)

    def encode(pictures: list[NDArray[np.uint16]]) -> NDArray[np.float16]:
        return np.stack([encode_clean_view(runner, torch.from_numpy(shown)) for shown in pictures])

    with torch_threads(1):
        numbers = iter(range(10_000))
        whole = [encode([picture(next(numbers)) for _ in range(count)]) for count in (FITTING, HELD_OUT, NEW)]
        gate = fit_gate(whole[0], whole[1])
        shown = [picture(next(numbers)) for _ in range(OTHERS)]
        others = {
            "inverted": [np.uint16(65535) - item for item in shown],
            "noise": [generator.integers(0, 65536, item.shape).astype(np.uint16) for item in shown],
            "photographs": [photograph(number) for number in range(OTHERS)],
        }
        limit = SCREENING.feature_tail
        stopped = {name: float(np.mean(gate.tails(encode(found)) < limit)) for name, found in others.items()}
        ordinary = float(np.mean(gate.tails(whole[2]) < limit))
    assert ordinary <= 1 / NEW
    assert min(stopped.values()) > 0.9, stopped
