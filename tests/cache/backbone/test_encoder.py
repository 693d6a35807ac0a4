"""The encoder against efficientnet_pytorch, which someone else wrote, through a replica of the archive."""

from pathlib import Path

import pytest
from torch import nn

from tests.cache.backbone.replica import make_images, oracle_features, relative_difference
from trust_cache.cache.backbone.timm_import import import_timm
from trust_cache.cache.encoder import Encoder, load_encoder
from trust_cache.cache.weights import Conversion

TOLERANCE = 1e-5
Converted = tuple[Path, Conversion]


@pytest.fixture(scope="session")
def encoder(converted: Converted) -> Encoder:
    return load_encoder(converted[0])


def stock_padding(encoder: Encoder) -> nn.Module:
    """timm's own B5 with the same weights, which it takes without complaint."""
    stock: nn.Module = import_timm().create_model("tf_efficientnet_b5", pretrained=False, num_classes=0)
    stock.load_state_dict(encoder.network.state_dict(), strict=True)
    return stock.eval().requires_grad_(False)


@pytest.mark.parametrize(
    "size",
    [
        (152, 92),
        (760, 456),
        pytest.param((1520, 912), marks=pytest.mark.slow),
        pytest.param((1520, 911), marks=pytest.mark.slow),
    ],
)
def test_features_are_the_oracles(oracle: nn.Module, encoder: Encoder, size: tuple[int, int]) -> None:
    count = 3 if max(size) < 200 else 1
    images = make_images(size, count)
    expected = oracle_features(oracle, images)
    assert relative_difference(encoder(images), expected) <= TOLERANCE
    # The test can fail: features are not the same whatever the image, nor whatever the padding.
    assert relative_difference(encoder(images.flip(3)), expected) > 0.01
    assert relative_difference(stock_padding(encoder)(images), expected) > 0.01


def test_single_sided_sizes(oracle: nn.Module, encoder: Encoder) -> None:
    """Sizes with every remainder that strides of 2 can leave, small enough to be quick."""
    for size in [(96, 96), (97, 96), (127, 65), (66, 131)]:
        images = make_images(size, 2)
        assert relative_difference(encoder(images), oracle_features(oracle, images)) <= TOLERANCE
