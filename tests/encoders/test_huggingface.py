"""Hugging Face folders against transformers' own image processors and forward passes, with random weights."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from msgspec import structs
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save_file
from scipy import ndimage

from tests.cache.extract.material import write_pngs
from tests.encoders.replica import relative_difference
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.extract.extract import extract
from trust_cache.cache.extract.extraction_plan import ExtractSettings
from trust_cache.cache.views import make_views
from trust_cache.encoders.huggingface_models import ImageProcessor, recipe_keys
from trust_cache.encoders.known_encoders import identify_encoder, load_encoder
from trust_cache.encoders.mammo_clip import RECIPE as MAMMO_CLIP
from trust_cache.encoders.recipe import Recipe, RecipeKeys, complete_recipe
from trust_cache.encoders.timm_models import import_timm, prepare_torchvision
from trust_cache.images.png_files import read_grey_png

prepare_torchvision()
transformers = pytest.importorskip("transformers")
SMALL = {"hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
Saved = tuple[Path, Any]  # the folder and the model


def dinov2() -> tuple[Any, Any]:
    """As RAD-DINO: the middle of the picture at the size of its shortest edge."""
    settings = transformers.Dinov2Config(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=56, patch_size=14
    )
    edges = {"size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56}}
    moments = {"image_mean": [0.5307] * 3, "image_std": [0.2583] * 3}
    return transformers.Dinov2Model(settings), transformers.BitImageProcessor(**edges, **moments)


def dinov3() -> tuple[Any, Any]:
    settings = transformers.DINOv3ViTConfig(**SMALL, image_size=48, patch_size=16, num_register_tokens=3)
    size = {"height": 48, "width": 48}
    return transformers.DINOv3ViTModel(settings), transformers.DINOv3ViTImageProcessor(size=size)


def vit() -> tuple[Any, Any]:
    settings = transformers.ViTConfig(**SMALL, image_size=48, patch_size=16)
    size = {"height": 48, "width": 48}
    return transformers.ViTModel(settings), transformers.ViTImageProcessor(size=size)


def siglip() -> tuple[Any, Any]:
    """The whole model, for images and texts: only the part for images is used."""
    settings = transformers.SiglipConfig(
        vision_config={**SMALL, "image_size": 48, "patch_size": 16},
        text_config={**SMALL, "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2},
    )
    size = {"height": 48, "width": 48}
    return transformers.SiglipModel(settings), transformers.SiglipImageProcessor(size=size)


MAKERS: tuple[Callable[[], tuple[Any, Any]], ...] = (dinov2, dinov3, vit, siglip)


@pytest.fixture(scope="module", params=MAKERS, ids=[maker.__name__ for maker in MAKERS])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return save(request.param, tmp_path_factory.mktemp(request.param.__name__))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(vit, tmp_path / "vit")[0]


def save(maker: Callable[[], tuple[Any, Any]], folder: Path) -> Saved:
    """Weights large enough for features that tell images apart."""
    model, processor = maker()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.25, generator=generator)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder, (model.vision_model if hasattr(model, "vision_model") else model).eval()


def eight_bits(height: int, width: int) -> NDArray[np.uint8]:
    noise = ndimage.gaussian_filter(np.random.default_rng(height).standard_normal((height, width)), 4)
    return np.round((noise - noise.min()) / np.ptp(noise) * 255).astype(np.uint8)


def ours(picture: NDArray[Any], recipe: Recipe) -> torch.Tensor:
    views = make_views(torch.from_numpy(picture), recipe, []).views
    return views.expand(-1, recipe.channels, -1, -1)


def theirs(folder: Path, picture: NDArray[np.uint8]) -> torch.Tensor:
    processor = transformers.AutoImageProcessor.from_pretrained(str(folder), local_files_only=True)
    return prepared(processor, picture)


def prepared(processor: Any, picture: NDArray[np.uint8]) -> torch.Tensor:
    found = processor(Image.fromarray(picture).convert("RGB"), return_tensors="pt")
    pixels: torch.Tensor = found["pixel_values"]
    return pixels


def test_pixels_and_features_are_those_of_transformers(saved: Saved) -> None:
    folder, model = saved
    encoder = load_encoder(folder, None, encoder="huggingface")
    recipe = encoder.identity.recipe
    sizes = [(120, 120)] if recipe.keep_proportions else [(120, 120), (131, 77), (64, 150)]
    for size in sizes:  # a picture that is not square is cropped there, never here
        picture = eight_bits(*size)
        expected, found = theirs(folder, picture), ours(picture, recipe)
        assert found.shape == expected.shape
        tolerance = 1.5 / 255 / min(recipe.std)  # 8 bits after each of two passes
        assert (found - expected).abs().max() <= tolerance
        features = model(pixel_values=expected).pooler_output.detach()
        torch.testing.assert_close(encoder(expected), features)
        old = ours(picture, structs.replace(MAMMO_CLIP, image_size=recipe.image_size))
        assert (old - expected).abs().max() > 10 * tolerance
        near, far = (relative_difference(encoder(pixels), features) for pixels in (found, old))
        assert 5 * near < min(far, 0.25)


def test_the_whole_of_a_tall_picture_is_used(tmp_path: Path) -> None:
    folder, _ = save(dinov2, tmp_path)
    recipe = identify_encoder(folder, "huggingface").recipe
    assert (recipe.image_size, recipe.keep_proportions, recipe.mean) == ((56, 56), True, (0.5307,) * 3)
    picture = eight_bits(200, 100)
    processor = transformers.BitImageProcessor(
        size={"height": 56, "width": 28},
        do_center_crop=False,
        image_mean=[0.5307] * 3,
        image_std=[0.2583] * 3,
    )
    inside = prepared(processor, picture)
    found = ours(picture, recipe)
    assert (found[..., 14:42] - inside).abs().max() <= 1.5 / 255 / 0.2583
    torch.testing.assert_close(found[..., :14], torch.full((1, 3, 56, 14), -0.5307 / 0.2583))


def test_other_sizes_and_poolings(saved: Saved) -> None:
    folder, model = saved
    patch = model.config.patch_size
    size = (4 * patch, 6 * patch)
    images = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))
    resampled = {} if model.config.model_type.startswith("dino") else {"interpolate_pos_encoding": True}
    expected = model(pixel_values=images, **resampled)
    own = load_encoder(folder, size, encoder="huggingface")
    torch.testing.assert_close(own(images), expected.pooler_output)
    mean = load_encoder(folder, size, encoder="huggingface", recipe={"pooling": "avg"})
    torch.testing.assert_close(mean(images), expected.last_hidden_state[:, -24:].mean(dim=1))
    if "siglip" in model.config.model_type:
        with pytest.raises(InputError, match="SiglipVisionModel has no class token"):
            load_encoder(folder, size, encoder="huggingface", recipe={"pooling": "token"})
    else:
        token = load_encoder(folder, size, encoder="huggingface", recipe={"pooling": "token"})
        torch.testing.assert_close(token(images), expected.last_hidden_state[:, 0])
    with pytest.raises(InputError, match=rf"expected multiples of {patch}.*found {patch}x{patch + 1}"):
        load_encoder(folder, (patch, patch + 1), encoder="huggingface")


def masked() -> tuple[Any, Any]:
    settings = transformers.ViTMAEConfig(**SMALL, image_size=48, patch_size=16)
    size = {"height": 48, "width": 48}
    return transformers.ViTMAEModel(settings), transformers.ViTImageProcessor(size=size)


@pytest.mark.parametrize("pooling", ["token", "avg"])
def test_a_masked_autoencoder_hides_nothing(tmp_path: Path, pooling: str) -> None:
    """At each call it hides three of four patches, others each time: its features would be noise."""
    folder, model = save(masked, tmp_path)
    encoder = load_encoder(folder, None, encoder="huggingface", recipe={"pooling": pooling})
    images = torch.randn(3, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    hidden = model(pixel_values=images, noise=torch.rand(3, 9)).last_hidden_state
    assert hidden.shape[1] == 1 + 2  # as it is published: the class token and two of nine patches
    model.config.mask_ratio = 0.0
    whole = model(pixel_values=images, noise=torch.arange(9.0).expand(3, -1)).last_hidden_state
    expected = whole[:, 0] if pooling == "token" else whole[:, 1:].mean(dim=1)
    assert torch.equal(encoder(images), encoder(images))
    torch.testing.assert_close(encoder(images), expected)
    with pytest.raises(InputError, match='ViTMAEModel has no pooled output; give pooling = "token"'):
        load_encoder(folder, None, encoder="huggingface")


def test_weights_in_several_files(folder: Path, tmp_path: Path) -> None:
    """The same features as from one file; a part that changed or is missing is noticed."""
    whole = load_encoder(folder, None, encoder="huggingface")
    parts = tmp_path / "parts"
    whole.network.model.save_pretrained(parts, max_shard_size="20KB")
    shutil.copy(folder / "preprocessor_config.json", parts)
    files = sorted(parts.glob("model-*.safetensors"))
    assert len(files) > 2
    split = load_encoder(parts, None, encoder="huggingface")
    images = torch.randn(2, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    assert torch.equal(split(images), whole(images))
    tensors = load_file(files[1])
    name = next(iter(tensors))
    save_file({**tensors, name: tensors[name] + 1}, files[1], {"format": "pt"})
    changed = identify_encoder(parts, "huggingface")
    assert changed.weights_sha256 != split.identity.weights_sha256
    content = files[1].read_bytes()
    files[1].write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(InputError, match=r"model-00002-of-.*or a pointer of Git LFS"):
        identify_encoder(parts, "huggingface")
    files[1].unlink()
    with pytest.raises(InputError, match=r"expected model-00002-of-.*index.json names, found no such file"):
        identify_encoder(parts, "huggingface")
    files[1].write_bytes(content)
    index = parts / "model.safetensors.index.json"
    index.write_text(index.read_text().replace(files[1].name, f"../{files[1].name}"))
    with pytest.raises(InputError, match=r"expected safetensors files of the folder, found '\.\./model-"):
        identify_encoder(parts, "huggingface")


@pytest.mark.parametrize("classes", [0, 5])
def test_a_folder_of_a_timm_model(tmp_path: Path, classes: int) -> None:
    """As timm saves it for the hub: config.json has its own mean and size, and names the network."""
    timm = import_timm()
    model = timm.create_model("test_vit", pretrained=False, num_classes=classes)
    configuration = {
        "mean": (0.4,) * 3,
        "std": (0.2,) * 3,
        "input_size": (3, 96, 96),
        "interpolation": "bilinear",
    }
    model.pretrained_cfg = {**model.pretrained_cfg, **configuration}
    timm.models.save_for_hf(model, str(tmp_path), safe_serialization=True)
    encoder = load_encoder(tmp_path, (160, 160), encoder="huggingface")
    recipe = encoder.identity.recipe
    assert (recipe.mean, recipe.std, recipe.resize) == ((0.4,) * 3, (0.2,) * 3, "bilinear")
    assert identify_encoder(tmp_path, "huggingface").recipe.image_size == (96, 96)
    images = torch.randn(2, 3, 160, 160, generator=torch.Generator().manual_seed(0))
    model.reset_classifier(0)
    torch.testing.assert_close(encoder(images), model.eval()(images))
    changed = json.loads((tmp_path / "config.json").read_text()) | {"architecture": "nothing_known"}
    (tmp_path / "config.json").write_text(json.dumps(changed))
    with pytest.raises(InputError, match="encoder 'nothing_known' cannot take images"):
        identify_encoder(tmp_path, "huggingface")


def test_the_processor_of_a_newer_folder(folder: Path) -> None:
    before = identify_encoder(folder, "huggingface")
    old = folder / "preprocessor_config.json"
    content = {"image_processor": json.loads(old.read_text()), "processor_class": "Any"}
    (folder / "processor_config.json").write_text(json.dumps(content))
    assert identify_encoder(folder, "huggingface") == before  # the older file counts
    old.unlink()
    after = identify_encoder(folder, "huggingface")
    assert (after.recipe, after.weights_sha256 != before.weights_sha256) == (before.recipe, True)


def test_every_file_counts_in_the_identity(folder: Path) -> None:
    before = identify_encoder(folder, "huggingface")
    assert (before.dim, before.random, before.encoder) == (24, False, "huggingface")
    (folder / "README.md").write_text("about it")
    assert identify_encoder(folder, "huggingface") == before
    digests = {before.weights_sha256}
    for name in ("config.json", "preprocessor_config.json"):
        (folder / name).write_text((folder / name).read_text() + "\n")
        digests.add(identify_encoder(folder, "huggingface").weights_sha256)
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {**tensors, "embeddings.cls_token": tensors["embeddings.cls_token"] + 1}, folder / "model.safetensors"
    )
    digests.add(identify_encoder(folder, "huggingface").weights_sha256)
    assert len(digests) == 4


def test_weights_that_lack_a_part(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {name: tensor for name, tensor in tensors.items() if "pooler" not in name},
        folder / "model.safetensors",
    )
    with pytest.raises(InputError, match=r'2 missing .*\(pooler.*give pooling = "token"'):
        load_encoder(folder, None, encoder="huggingface")
    assert load_encoder(folder, None, encoder="huggingface", recipe={"pooling": "token"}).dim == 24
    save_file(
        {name: tensor for name, tensor in tensors.items() if "layernorm" not in name},
        folder / "model.safetensors",
    )
    with pytest.raises(InputError, match=r"expected all tensors of its ViTModel, found 10 mi"):
        load_encoder(folder, None, encoder="huggingface")
    save_file({**tensors, "layernorm.bias": torch.full((24,), torch.nan)}, folder / "model.safetensors")
    with pytest.raises(InputError, match="24 values that are NaN or infinite"):
        load_encoder(folder, None, encoder="huggingface")


def test_a_truncated_file(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-100])
    with pytest.raises(InputError, match="expected an image model that transformers can read"):
        load_encoder(folder, None, encoder="huggingface")


def test_an_unknown_recipe_is_asked_for(folder: Path) -> None:
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(InputError, match=r"Give image_size, resize, keep_proportions, mean, std in a TOML"):
        load_encoder(folder, None, encoder="huggingface")
    keys = {"resize": "bicubic", "keep_proportions": True, "mean": 0.5, "std": 0.5}
    assert (
        load_encoder(folder, (48, 48), encoder="huggingface", recipe=keys).identity.recipe.mean == (0.5,) * 3
    )


# What the fast processors write for everything that is not set.
FAST = dict.fromkeys(
    ("crop_size", "do_center_crop", "do_convert_rgb", "device", "disable_grouping", "input_data_format")
) | {"data_format": "channels_first", "default_to_square": True, "do_pad": None, "rescale_factor": 1 / 255}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"do_rescale": False}, {"mean": (0.5 / 255,) * 3, "std": (0.25 / 255,) * 3}),
        ({"rescale_factor": 1 / 127.5}, {"mean": (0.25,) * 3, "std": (0.125,) * 3}),
        ({"rescale_factor": 1 / 127.5, "offset": True}, {"mean": None, "std": None}),
        ({"do_normalize": False}, {"mean": 0.0, "std": 1.0}),
        ({"resample": 1}, {"resize": None}),
        ({"size": 64}, {"image_size": None, "keep_proportions": None}),  # of which kind is not known
        ({"size": 64, "default_to_square": True}, {"image_size": (64, 64), "keep_proportions": False}),
        ({"size": 64, "crop_pct": 0.9}, {"image_size": (64, 64), "keep_proportions": True}),
        ({"do_pad": True}, {"image_size": None, "keep_proportions": None}),
        ({"keep_aspect_ratio": True}, {"image_size": None, "keep_proportions": None}),
        ({"size": {"shortest_edge": 64}}, {"image_size": None, "keep_proportions": True}),
        ({"do_center_crop": True, "crop_size": 32}, {"image_size": (32, 32), "keep_proportions": True}),
        ({"do_resize": False}, {"image_size": None, "keep_proportions": None}),
        ({"do_resize": None}, {"image_size": None, "keep_proportions": None}),
        ({"resample": None}, {"resize": None}),
        ({"resample": "bicubic"}, {"resize": "bicubic"}),
        ({"image_mean": 0.5, "image_std": 0.25}, {"mean": 0.5, "std": 0.25}),
        ({"image_mean": None}, {"mean": None, "std": None}),
        ({"size": [48, 48]}, {"image_size": (48, 48), "keep_proportions": False}),
        ({"size": [48, 64]}, {"image_size": None}),
        ({"size": {"longest_edge": 64}}, {"image_size": None}),
        ({"do_center_crop": True, "crop_size": None}, {"image_size": None}),
        (
            {"crop_pct": 0.875, "size": {"shortest_edge": 64}},
            {"image_size": (64, 64), "keep_proportions": True},
        ),
        (
            {"crop_pct": 1, "size": {"shortest_edge": 384}},
            {"image_size": (384, 384), "keep_proportions": False},
        ),
        (FAST, {"image_size": (8, 6), "resize": "bilinear", "keep_proportions": False, "mean": (0.5,) * 3}),
    ],
)
def test_keys_of_preprocessors(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    """Where a factor other than 1/255 is used, mean and std are those for intensities from 0 to 1."""
    plain = {
        "size": {"height": 8, "width": 6},
        "resample": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.25] * 3,
    }
    found = recipe_keys(msgspec.convert({**plain, **settings}, ImageProcessor))
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value), name


def written(folder: Path, kind: str, settings: dict[str, Any]) -> RecipeKeys:
    """A configuration as transformers writes it, with these keys as a user's file has them."""
    getattr(transformers, kind)().save_pretrained(folder)
    path = folder / "preprocessor_config.json"
    content = json.loads(path.read_text()) | settings
    path.write_text(json.dumps({key: value for key, value in content.items() if value != "absent"}))
    return recipe_keys(msgspec.json.decode(path.read_bytes(), type=ImageProcessor))


REST = RecipeKeys(antialias=True, intensity="min-max", channels=3, pooling="own")
MOMENTS = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.25, 0.3, 0.35]}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("ViTImageProcessor", {"size": 48}),
        (
            "ViTImageProcessor",
            {"size": 48, "image_processor_type": "absent", "feature_extractor_type": "ViTFeatureExtractor"},
        ),
        ("ViTImageProcessor", {"size": {"height": 40, "width": 24}, **MOMENTS}),
        ("ViTImageProcessor", {"size": 48, "resample": 3}),
        (
            "ViTImageProcessor",
            {"size": 48, "do_rescale": False, "image_mean": [99.0] * 3, "image_std": [60.0] * 3},
        ),
        ("ViTImageProcessor", {"size": 48, "rescale_factor": 1 / 127.5}),
        ("ViTImageProcessor", {"size": 48, "do_normalize": False, "image_mean": None}),
        ("CLIPImageProcessor", {"size": 32, "crop_size": 32}),
        ("CLIPImageProcessor", {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}),
        ("DeiTImageProcessor", {"size": 48, "crop_size": 48}),
        ("DeiTImageProcessor", {"size": 48, "do_center_crop": False}),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 384}, **MOMENTS}),
        ("ConvNextImageProcessor", {"size": 384}),
    ],
)
def test_variants_of_a_processor_give_its_pixels(tmp_path: Path, kind: str, settings: dict[str, Any]) -> None:
    recipe = complete_recipe(REST, written(tmp_path, kind, settings), "any")
    for size in [(120, 120)] if recipe.keep_proportions else [(120, 120), (131, 77)]:
        picture = eight_bits(*size)
        processor = getattr(transformers, kind).from_pretrained(str(tmp_path), local_files_only=True)
        expected, found = prepared(processor, picture), ours(picture, recipe)
        assert found.shape == expected.shape
        assert (found - expected).abs().max() <= 1.5 / 255 / min(recipe.std)


@pytest.mark.parametrize(
    ("kind", "settings", "keys"),
    [
        ("CLIPImageProcessor", {"size": 32, "do_center_crop": False}, "image_size"),
        ("SiglipImageProcessor", {"size": 32}, "image_size"),
        ("ViTImageProcessor", {"size": {"shortest_edge": 32}}, "image_size"),
        ("ViTImageProcessor", {"size": {"longest_edge": 32}}, "image_size"),
        ("ViTImageProcessor", {"size": 32, "image_processor_type": "absent"}, "image_size, keep_proportions"),
        ("ViTImageProcessor", {"size": 32, "image_mean": "absent"}, "mean, std"),
        ("ViTImageProcessor", {"do_resize": False}, "image_size, keep_proportions"),
        ("DPTImageProcessor", {"do_pad": True}, "image_size, keep_proportions"),
        ("DPTImageProcessor", {"keep_aspect_ratio": True}, "image_size, keep_proportions"),
        *[("ViTImageProcessor", {"resample": code}, "resize") for code in (0, 1, 4, 5, "lanczos")],
    ],
)
def test_what_a_processor_leaves_open_is_asked_for(
    tmp_path: Path, kind: str, settings: dict[str, Any], keys: str
) -> None:
    with pytest.raises(InputError, match=rf"Give {keys} in a TOML file"):
        complete_recipe(REST, written(tmp_path, kind, settings), "any")


def test_bad_folders(folder: Path, tmp_path: Path) -> None:
    def refused(message: str, weights: Path | str = folder) -> None:
        with pytest.raises(InputError, match=message):
            identify_encoder(weights, "huggingface")

    refused("expected the folder of a model as weights", "random")
    refused("found no such folder", tmp_path / "none")
    refused("found a file", folder / "config.json")
    with pytest.raises(InputError, match=r"found a folder.*--encoder huggingface"):
        identify_encoder(folder)
    (folder / "preprocessor_config.json").write_text("{")
    refused("preprocessor_config.json: expected the configuration of an image processor as JSON")
    (folder / "preprocessor_config.json").write_text('{"image_mean": "grey"}')
    refused("preprocessor_config.json: not the configuration .* image_mean: expected float . array")
    (folder / "preprocessor_config.json").unlink()
    config = folder / "config.json"
    config.write_text(json.dumps({"model_type": "bert", "hidden_size": 24, "num_attention_heads": 2}))
    with pytest.raises(InputError, match="expected an image model, found BertModel"):
        load_encoder(
            folder,
            (8, 8),
            encoder="huggingface",
            recipe={"resize": "bilinear", "keep_proportions": True, "mean": 0, "std": 1},
        )
    config.write_text(json.dumps({"model_type": "vit", "hidden_size": "many"}))
    refused("expected an image model that transformers can read")
    config.write_text(json.dumps({"model_type": "nothing known"}))
    refused("expected an image model that transformers can read")
    (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    refused("or a pointer of Git LFS")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused("expected model.safetensors .* Weights in other forms")


def test_code_in_a_folder_never_runs(folder: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (folder / "own.py").write_text(f"open({str(victim)!r}, 'w').close()\nclass Own: pass\n")
    config = json.loads((folder / "config.json").read_text())
    links = {"AutoConfig": "own.Own", "AutoModel": "own.Own"}
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": links}))
    assert load_encoder(folder, None, encoder="huggingface").dim == 24  # transformers' own code of that type
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "own", "auto_map": links}))
    with pytest.raises(InputError, match="expected an image model that transformers can read"):
        load_encoder(folder, None, encoder="huggingface")
    assert not victim.exists()


NO_SOCKETS = """
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "urllib.Request"):
        raise AssertionError(f"{event} {arguments}")

sys.addaudithook(refuse)
from trust_cache.encoders.known_encoders import load_encoder
print(load_encoder(sys.argv[1], None, encoder="huggingface").dim)
import os, socket
print(os.environ["HF_HUB_OFFLINE"])
try:
    socket.create_connection(("127.0.0.1", 9))
except AssertionError:
    print("the guard works")
"""


@pytest.mark.slow
def test_nothing_connects_and_nothing_is_printed(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_SOCKETS, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "24\n1\nthe guard works\n", done.stderr
    assert done.stderr == ""


def test_extract_with_a_folder(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()  # what transformers printed as it wrote the folder
    manifest = write_pngs(tmp_path / "png", 3)
    settings = ExtractSettings(str(folder), "huggingface", views=1, device="cpu", batch=2, workers=1)
    run = extract(manifest, tmp_path / "cache.zarr", settings)
    assert (run.images_done, run.layout.dim, run.failures) == (3, 24, ())
    assert "transformers" not in "".join(capfd.readouterr())
    encoder, cache = load_encoder(folder, None, encoder="huggingface"), open_cache(tmp_path / "cache.zarr")
    assert cache.fingerprint.recipe == encoder.identity.recipe.text
    for n in range(3):
        found = encoder(ours(read_grey_png(str(manifest.parent / f"{n}.png")), encoder.identity.recipe))
        np.testing.assert_allclose(cache.features[n][0], found[0].numpy(), rtol=5e-3, atol=2e-3)
