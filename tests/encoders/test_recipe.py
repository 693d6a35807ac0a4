"""Recipes: where they come from, that they are complete, and pixels equal to those of timm's transforms."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from trust_cache.base.errors import InputError
from trust_cache.cache.views import make_views
from trust_cache.encoders.known_encoders import family_of, identify_encoder, load_encoder
from trust_cache.encoders.mammo_clip import RECIPE as MAMMO_CLIP
from trust_cache.encoders.recipe import (
    NO_KEYS,
    Recipe,
    RecipeKeys,
    complete_recipe,
    read_recipe,
    recipe_of_text,
)
from trust_cache.encoders.timm_models import import_timm

# Pillow rounds to 8 bits after each of its two passes and once more at the end.
ROUNDING = 1.5 / 255
NUMBERS = st.floats(-100, 100, allow_nan=False)


def known(encoder: str) -> Recipe:
    return complete_recipe(family_of(encoder).recipe(encoder, None), NO_KEYS, encoder)


def eight_bits(height: int, width: int) -> NDArray[np.uint8]:
    """A picture in which every value from 0 to 255 may occur, and both ends do."""
    noise = ndimage.gaussian_filter(np.random.default_rng(height).standard_normal((height, width)), 4)
    return np.round((noise - noise.min()) / np.ptp(noise) * 255).astype(np.uint8)


def theirs(picture: NDArray[np.uint8], **options: object) -> torch.Tensor:
    transform = import_timm().data.create_transform(**options)
    pixels: torch.Tensor = transform(Image.fromarray(picture).convert("RGB"))
    return pixels


@pytest.mark.parametrize(
    "encoder", ["resnet50", "tf_efficientnet_lite0", "vit_base_patch14_dinov2.lvd142m", "test_vit"]
)
@pytest.mark.parametrize("size", [(301, 187), (150, 321), (97, 96)])
def test_pixels_are_those_of_timms_transform(encoder: str, size: tuple[int, int]) -> None:
    """timm's border mode is its way of keeping the whole picture; it fills with grey, we with black."""
    timm, recipe, picture = import_timm(), known(encoder), eight_bits(*size)
    data = timm.data.resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(encoder).to_dict())
    expected = theirs(picture, **{**data, "crop_mode": "border", "crop_pct": 1.0})
    ours = make_views(torch.from_numpy(picture), recipe, []).views[0].expand(3, -1, -1)
    mean, std = (torch.tensor(values)[:, None, None] for values in (recipe.mean, recipe.std))
    inside = slice(None), *inner(recipe.image_size, size)
    tolerance = ROUNDING / min(recipe.std)
    assert (ours[inside] - expected[inside]).abs().max() <= tolerance
    filled = torch.ones_like(ours, dtype=torch.bool)
    filled[inside] = False
    torch.testing.assert_close(ours[filled], (-mean / std).expand_as(ours)[filled])
    # What every encoder used to get: Mammo-CLIP's mean and std.
    wrong = make_views(
        torch.from_numpy(picture), structs.replace(MAMMO_CLIP, image_size=recipe.image_size), []
    )
    assert (wrong.views[0].expand(3, -1, -1)[inside] - expected[inside]).abs().max() > 10 * tolerance


def inner(limit: tuple[int, int], size: tuple[int, int]) -> tuple[slice, slice]:
    """Where a picture of this size lies in the middle of a frame that its longer side fills."""
    ratio = max(size[0] / limit[0], size[1] / limit[1])
    sides = [round(size[axis] / ratio) for axis in (0, 1)]
    starts = [(limit[axis] - sides[axis]) // 2 for axis in (0, 1)]
    height, width = (slice(start, start + side) for start, side in zip(starts, sides, strict=True))
    return height, width


def test_where_timm_uses_the_whole_picture_so_do_we() -> None:
    """Without a crop and at its own proportions timm's transform is taken as it is, nothing changed."""
    timm = import_timm()
    for encoder, size in (
        ("eva02_base_patch14_448", (301, 187)),
        ("vit_base_patch14_dinov2", (300, 300)),
    ):
        data = timm.data.resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(encoder).to_dict())
        recipe, picture = known(encoder), eight_bits(*size)
        assert recipe.keep_proportions == (data["crop_mode"] != "squash")
        ours = make_views(torch.from_numpy(picture), recipe, []).views[0].expand(3, -1, -1)
        expected = theirs(picture, **{**data, "crop_pct": 1.0})
        assert (ours - expected).abs().max() <= ROUNDING / min(recipe.std)


def test_sixteen_bits_are_kept() -> None:
    picture = (np.arange(224 * 224).reshape(224, 224) * (65_535 / (224 * 224 - 1))).astype(np.uint16)
    views = make_views(torch.from_numpy(picture), known("resnet50"), []).views
    assert views.shape == (1, 3, 224, 224)
    assert all(views[0, channel].unique().numel() > 40_000 for channel in range(3))  # 8 bits have 256


def test_each_tag_of_timm_has_its_own_recipe() -> None:
    plain, old = known("vit_base_patch16_224.augreg_in21k"), known("resnet50.tv_in1k")
    assert (plain.mean, plain.image_size, plain.resize) == ((0.5,) * 3, (224, 224), "bicubic")
    assert (old.mean, old.std, old.resize) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bilinear")
    assert known("vit_base_patch14_dinov2.lvd142m").image_size == (518, 518)


@given(
    st.tuples(st.integers(1, 4000), st.integers(1, 4000)),
    st.lists(NUMBERS, min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_a_recipe_is_its_text(size: tuple[int, int], mean: list[float], antialias: bool, kept: bool) -> None:
    recipe = Recipe(
        image_size=size, resize="bicubic", antialias=antialias, keep_proportions=kept, intensity="min-max",
        mean=tuple(mean), std=tuple(abs(value) + 0.1 for value in mean), channels=len(mean), pooling="token",
    )  # fmt: skip
    assert recipe_of_text(recipe.text) == recipe
    assert recipe_of_text(recipe.text).text == recipe.text  # type: ignore[union-attr]
    assert recipe_of_text(f"{recipe.text} ") == recipe
    assert recipe_of_text(recipe.text[:-1]) is None


def test_a_file_replaces_keys(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text("image_size = [64, 40]\nmean = 0.25\nkeep_proportions = false\n")
    found = identify_encoder("random", "test_resnet", recipe=file).recipe
    own = known("test_resnet")
    assert found == structs.replace(own, image_size=(64, 40), mean=(0.25,) * 3, keep_proportions=False)
    assert identify_encoder("random", "test_resnet", recipe=file, image_size=(32, 32)).recipe.image_size == (
        32,
        32,
    )
    assert load_encoder("random", None, encoder="test_resnet", recipe={"mean": 0.25}).identity.recipe == (
        structs.replace(own, mean=(0.25,) * 3)
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("resize = 'lanczos'", "resize: expected bicubic or bilinear, found 'lanczos'"),
        ("crop = 3", "unknown key crop"),
        ("mean = [0.1, 0.2]", "mean: expected a number for each of 3 channels, found 2"),
        ("std = 0", "a std above 0, found"),
        ("mean = nan", "mean: expected finite numbers"),
        ("image_size = [0, 3]", "image_size"),
        ("image_size = 224", "image_size: expected"),
        ("channels = 0", "channels"),
        ("mean = ", "expected a recipe as TOML, found an unreadable file"),
    ],
)
def test_wrong_files_are_refused_by_the_key(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "recipe.toml").write_text(content)
    with pytest.raises(InputError, match=message):
        identify_encoder("random", "test_resnet", recipe=tmp_path / "recipe.toml")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: expected a recipe as TOML, found no such file"):
        read_recipe(tmp_path / "none.toml")


def test_an_unknown_recipe_is_refused_with_the_keys_to_give() -> None:
    with pytest.raises(
        InputError, match=r"Give image_size, resize, .*, channels in a TOML file with --recipe"
    ):
        complete_recipe(RecipeKeys(intensity="min-max", pooling="own"), NO_KEYS, "new")
    given = RecipeKeys(
        image_size=(8, 8), resize="bilinear", antialias=True, keep_proportions=True, mean=0, std=1, channels=3
    )
    made = complete_recipe(RecipeKeys(intensity="min-max", pooling="own"), given, "new")
    assert (made.mean, made.std, made.planes) == ((0.0,) * 3, (1.0,) * 3, 1)
    assert '"mean":[0.0,0.0,0.0]' in made.text
