"""A new encoder is one family and one line of the registry: `extract` and `weights` then know it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.cache.extract.material import with_settings, write_pngs
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.extract.extract import extract
from trust_cache.cache.views import ViewPlan, make_views
from trust_cache.encoders import known_encoders
from trust_cache.encoders.convert_weights import convert_weights
from trust_cache.encoders.encoder import EncoderFamily
from trust_cache.encoders.known_encoders import identify_encoder, load_encoder
from trust_cache.encoders.recipe import Recipe, RecipeKeys
from trust_cache.images.png_files import read_grey_png

RECIPE = Recipe(
    image_size=(20, 12), resize="bilinear", antialias=False, keep_proportions=True, intensity="min-max",
    mean=(0.5,), std=(2.0,), channels=1, pooling="own",
)  # fmt: skip


class Strips(nn.Module):
    """The mean of each quarter of the height, times a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4))

    def forward(self, views: Tensor) -> Tensor:
        return torch.stack([part.mean(dim=(1, 2, 3)) for part in views.chunk(4, dim=2)], dim=1) * self.weight


class ToyFamily(EncoderFamily):
    def describe(self) -> str:
        return "'strips'"

    def names(self) -> Sequence[str]:
        return ("strips",)

    def build(self, encoder: str, recipe: Recipe | None, weights: Path | None) -> nn.Module:  # noqa: ARG002
        return Strips()

    def recipe(self, encoder: str, weights: Path | None) -> RecipeKeys:  # noqa: ARG002
        return RecipeKeys(**RECIPE.as_document())


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_encoders, "FAMILIES", (*known_encoders.FAMILIES, ToyFamily()))


def test_extract_with_it(tmp_path: Path) -> None:
    manifest, out = write_pngs(tmp_path / "png", 3), tmp_path / "cache.zarr"
    run = extract(manifest, out, with_settings(encoder="strips", image_size=None, seed=5))
    assert (run.images_done, run.identity.dim, run.failures) == (3, 4, ())
    cache = open_cache(out)
    assert cache.fingerprint.encoder == "strips"
    assert cache.fingerprint.image_size == (20, 12)
    assert cache.fingerprint.recipe == RECIPE.text
    encoder = load_encoder("random", RECIPE.image_size, encoder="strips", seed=5)
    for n in range(3):
        pixels = torch.from_numpy(read_grey_png(str(manifest.parent / f"{n}.png")))
        views = make_views(pixels, RECIPE, ViewPlan(2, 5).parameters(f"{n:03d}")).views
        np.testing.assert_allclose(cache.features[n], encoder(views).numpy(), rtol=2e-3, atol=1e-4)


def test_its_weights_are_converted_and_loaded(tmp_path: Path) -> None:
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0])
    save_file({"weight": weights}, tmp_path / "theirs.safetensors")
    conversion = convert_weights(
        tmp_path / "theirs.safetensors", tmp_path / "ours.safetensors", encoder="strips"
    )
    assert (conversion.record.encoder, conversion.record.architecture) == ("strips", "strips")
    encoder = load_encoder(tmp_path / "ours.safetensors", RECIPE.image_size, encoder="strips")
    assert torch.equal(encoder(torch.ones(1, 1, 20, 12))[0], weights)
    with pytest.raises(InputError, match=r"shape \(N, 1, height, width\)"):
        encoder(torch.ones(1, 3, 20, 12))


def test_it_is_named_where_a_name_is_unknown() -> None:
    with pytest.raises(InputError, match=r"or 'strips'; did you mean strips\?"):
        identify_encoder("random", "stripes!")
