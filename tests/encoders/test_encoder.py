"""The encoder against efficientnet_pytorch, which someone else wrote, through a replica of the archive."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import trust_cache
from tests.encoders.replica import make_images, oracle_features, relative_difference
from trust_cache.base.errors import InputError
from trust_cache.encoders.convert_weights import Conversion
from trust_cache.encoders.encoder import FrozenEncoder
from trust_cache.encoders.known_encoders import identify_encoder, load_encoder
from trust_cache.encoders.recipe import DEFAULT_ENCODER
from trust_cache.encoders.timm_models import import_timm
from trust_cache.images.png_files import encode_png
from trust_cache.synthetic.phantom import PhantomSettings, draw_phantom

TOLERANCE = 1e-5
Converted = tuple[Path, Conversion]


@pytest.fixture(scope="session")
def encoder(converted: Converted) -> FrozenEncoder:
    return load_encoder(converted[0])


def stock_padding(encoder: FrozenEncoder) -> nn.Module:
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
def test_features_are_the_oracles(oracle: nn.Module, encoder: FrozenEncoder, size: tuple[int, int]) -> None:
    images = make_images(size)
    expected = oracle_features(oracle, images)
    assert relative_difference(encoder(images), expected) <= TOLERANCE


@pytest.mark.parametrize("size", [(152, 92), pytest.param((1520, 912), marks=pytest.mark.slow)])
def test_stock_padding_is_far_off(oracle: nn.Module, encoder: FrozenEncoder, size: tuple[int, int]) -> None:
    images = make_images(size)
    assert relative_difference(stock_padding(encoder)(images), oracle_features(oracle, images)) > 0.01


def test_every_remainder_of_a_size(oracle: nn.Module, encoder: FrozenEncoder) -> None:
    """Odd, even and in between, small enough to be quick; two images of a batch are not alike."""
    for size in [(96, 96), (97, 96), (127, 65), (66, 131)]:
        images = make_images(size, 2)
        features = encoder(images)
        assert relative_difference(features, oracle_features(oracle, images)) <= TOLERANCE
        assert relative_difference(features[0], features[1]) > 0.02


def test_a_batch_equals_its_items_in_any_memory_format(encoder: FrozenEncoder) -> None:
    images = make_images((97, 66), 3)
    together = encoder(images)
    assert together.shape == (3, encoder.dim)
    alone = torch.cat([encoder(image[None]) for image in images])
    assert relative_difference(together, alone) < TOLERANCE
    last = encoder(images.contiguous(memory_format=torch.channels_last))
    assert relative_difference(last, alone) < TOLERANCE
    assert encoder(images[:0]).shape == (0, encoder.dim)


def test_frozen_whatever_is_asked(encoder: FrozenEncoder) -> None:
    assert not encoder.train().training
    assert not any(module.training for module in encoder.modules())
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert not encoder(make_images((64, 64))).requires_grad


def test_half_precision_stays_near(encoder: FrozenEncoder) -> None:
    images = make_images((64, 64), 2)
    with torch.autocast("cpu", torch.float16):
        features = encoder(images)
    assert features.isfinite().all()
    assert relative_difference(features.float(), encoder(images)) < 0.02


def test_the_identity_is_of_the_file(converted: Converted, encoder: FrozenEncoder) -> None:
    path, conversion = converted
    identity = identify_encoder(path)
    assert identity == encoder.identity
    assert identity.encoder == DEFAULT_ENCODER == "mammo-clip-b5"
    assert (identity.weights_sha256, identity.dim, identity.random) == (conversion.sha256, 2048, False)


@pytest.mark.parametrize("shape", [(3, 64, 64), (1, 1, 64, 64), (1, 64, 64, 3)])
def test_images_of_another_shape(encoder: FrozenEncoder, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"expected a tensor of shape \(N, 3, height, width\)"):
        encoder(torch.zeros(shape))


def test_a_missing_file_says_where_to_get_it(tmp_path: Path) -> None:
    for path in (tmp_path / "none.safetensors", str(tmp_path / "none.safetensors")):
        with pytest.raises(InputError, match=r"no such file.*batmanlab/Mammo-CLIP.*trust-cache weights"):
            load_encoder(path)
    with pytest.raises(InputError, match="expected a file with weights"):
        load_encoder(tmp_path)


def test_a_checkpoint_must_be_converted_first(archive: Path) -> None:
    with pytest.raises(InputError, match=r"expected a safetensors file.*trust-cache weights"):
        identify_encoder(archive)


def test_stock_weights_are_not_taken_for_mammo_clip(encoder: FrozenEncoder, tmp_path: Path) -> None:
    """They have the same names and shapes: only the record tells them apart."""
    stock = tmp_path / "tf_efficientnet_b5.safetensors"
    save_file(encoder.network.state_dict(), stock, {"format": "pt"})
    with pytest.raises(InputError, match="padded wrongly; for those say --encoder tf_efficientnet_b5"):
        load_encoder(stock)
    own = load_encoder(stock, encoder="tf_efficientnet_b5")
    images = make_images((152, 92))
    assert relative_difference(own(images), stock_padding(encoder)(images)) < TOLERANCE


def test_mammo_clips_weights_are_not_taken_for_stock(converted: Converted) -> None:
    with pytest.raises(InputError, match=r"found those for mammo-clip-b5 \(padding static-456\)"):
        identify_encoder(converted[0], "tf_efficientnet_b5")


@pytest.mark.parametrize("device", ["cuda", "tpu", "cuda:7"])
def test_a_device_that_is_not_there(device: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has the device")
    with pytest.raises(InputError, match=f"device {device}: not usable here"):
        load_encoder("random", device=device)


@pytest.mark.slow
def test_the_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "encoder.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert '"encoder.safetensors"' in code
    phantom = draw_phantom(PhantomSettings(rows=280, columns=220)).intensity
    (tmp_path / "png").mkdir()
    (tmp_path / "png" / "image.png").write_bytes(encode_png((phantom * 65_535).astype(np.uint16)))
    monkeypatch.chdir(tmp_path)
    names: dict[str, torch.Tensor] = {}
    exec(compile(code.replace('"encoder.safetensors"', '"random"'), "encoder.md", "exec"), names)  # noqa: S102
    assert names["features"].shape == (1, 2048)
    assert names["features"].isfinite().all()


def test_exported() -> None:
    assert trust_cache.load_encoder is load_encoder
