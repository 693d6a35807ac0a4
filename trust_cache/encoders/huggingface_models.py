"""Build an image model of a Hugging Face folder as an encoder: nothing is downloaded, no code of it runs.

The model is one of transformers, or one of timm as its hub has it: the file config.json tells.
"""

import hashlib
import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from logging import CRITICAL
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from trust_cache.base.digests import canonical_json, file_sha256
from trust_cache.base.documents import read_json
from trust_cache.base.errors import InputError
from trust_cache.encoders.checkpoints import checked_tensors, is_safetensors, read_safetensors
from trust_cache.encoders.encoder import EncoderFamily, require_whole_patches
from trust_cache.encoders.recipe import Pooling, Recipe, RecipeKeys, Resize, Size
from trust_cache.encoders.timm_models import (
    TimmFolder,
    fit_to_network,
    prepare_torchvision,
    timm_folder,
    timm_recipe,
)

NAME = "huggingface"
CONFIG, PREPROCESSOR, WEIGHTS = "config.json", "preprocessor_config.json", "model.safetensors"
INDEX = "model.safetensors.index.json"  # of weights in several files
PROCESSOR = "processor_config.json"  # newer: the image processor is a part of it
_RESAMPLE: dict[int | str | None, Resize] = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
_RESAMPLE |= {"bilinear": "bilinear", "bicubic": "bicubic"}
_LARGEST = 255  # image processors start from 8 bits
_SHOWN = 4
_REASON = 300  # characters
_MASKED = "vit_mae"
_CONVNEXT_STRETCHES = 384  # from this size its processor stretches pictures instead of cropping them
# By what their processors are named after: a size of one number is a square, or the shortest edge.
_SQUARES = frozenset({"ViT", "DeiT", "Beit", "DPT", "DINOv3ViT", "EfficientNet", "Pvt"})
_EDGES = frozenset({"CLIP", "Bit", "ConvNext", "Siglip", "Levit"})
_GRID = 4  # dimensions of a convolutional network's output: image, channel, height, width


class PooledModel(nn.Module):
    """A model of transformers: pixels in, one row of features per image out."""

    def __init__(self, model: Any, pooling: Pooling, *, resampled: bool) -> None:
        super().__init__()
        self.model = model
        self._pooling = pooling
        accepted = inspect.signature(model.forward).parameters
        # Position embeddings are for one size; some models resample them only if asked to.
        ask = resampled and "interpolate_pos_encoding" in accepted
        self._options = {"interpolate_pos_encoding": True} if ask else {}
        # A masked autoencoder hides most patches, others at each call: here none, in their own order.
        self._masked = model.config.model_type == _MASKED
        if self._masked:
            model.config.mask_ratio = 0.0

    def forward(self, images: Tensor) -> Tensor:
        """Return the pooled output."""
        patch = getattr(self.model.config, "patch_size", None)
        patches = (images.shape[2] // patch) * (images.shape[3] // patch) if isinstance(patch, int) else None
        options: dict[str, Any] = dict(self._options)
        if self._masked and patches:
            order = torch.arange(patches, dtype=images.dtype, device=images.device)
            options["noise"] = order.expand(images.shape[0], -1)
        output = self.model(pixel_values=images, **options)
        if self._pooling == "own":
            pooled = getattr(output, "pooler_output", None)
            if pooled is None:
                raise self._without("pooled output", "token")
            return torch.flatten(pooled, 1)
        hidden: Tensor = output.last_hidden_state
        if hidden.ndim == _GRID:
            hidden = hidden.flatten(2).transpose(1, 2)
        if self._pooling == "token":
            if patches is None or hidden.shape[1] <= patches:
                raise self._without("class token", "own")
            return hidden[:, 0]
        # The class token and registers come before the patches.
        return hidden[:, -patches:].mean(dim=1) if patches else hidden.mean(dim=1)

    def _without(self, part: str, other: Pooling) -> InputError:
        name = type(self.model).__name__
        return InputError(f'{name} has no {part}; give pooling = "{other}" or "avg" with --recipe')


class ImageProcessor(msgspec.Struct, frozen=True):
    """What a preprocessor_config.json says of pictures; other keys are of no concern."""

    size: int | tuple[int, ...] | dict[str, int | None] | None = None
    crop_size: int | tuple[int, ...] | dict[str, int | None] | None = None
    crop_pct: float | None = None  # of ConvNeXt's processor: the square that the shortest edge names
    resample: int | str | None = None  # Pillow's number or word
    rescale_factor: float | None = None
    image_mean: tuple[float, ...] | float | None = None
    image_std: tuple[float, ...] | float | None = None
    do_resize: bool | None = True
    do_center_crop: bool | None = False
    do_rescale: bool | None = True
    do_normalize: bool | None = True
    rescale_offset: bool | None = False
    offset: bool | None = False
    do_pad: bool | None = False
    keep_aspect_ratio: bool | None = False
    default_to_square: bool | None = None  # what one number as the size means
    image_processor_type: str | None = None
    feature_extractor_type: str | None = None  # the same in older folders

    @property
    def square(self) -> bool | None:
        """Whether one number as the size means a square, not the shortest edge; None if it is not known."""
        name = self.image_processor_type or self.feature_extractor_type or ""
        model = re.sub(r"(ImageProcessor(Fast|Pil)?|FeatureExtractor)$", "", name)
        if self.default_to_square is not None:
            return self.default_to_square
        return True if model in _SQUARES else False if model in _EDGES else None


class _Processor(msgspec.Struct, frozen=True):
    """A processor_config.json, of which only the part for images is of concern."""

    image_processor: ImageProcessor | None = None


class _Index(msgspec.Struct, frozen=True):
    """An index of weights in several files: the file of each tensor."""

    weight_map: dict[str, str]


class HuggingFaceModels(EncoderFamily):
    """Image models that transformers knows: DINOv2, DINOv3, SigLIP, CLIP, ViT and others."""

    def describe(self) -> str:
        """Name the word and what goes with it."""
        return f"{NAME!r} with the folder of a Hugging Face model as weights"

    def names(self) -> Sequence[str]:
        """Return the one word."""
        return (NAME,)

    def require_weights(self, encoder: str, weights: Path) -> None:  # noqa: ARG002 - there is one
        """Refuse a folder without a configuration and weights as safetensors."""
        if not weights.is_dir():
            raise InputError(
                f"{weights}: expected the folder of a Hugging Face model ({CONFIG}, {PREPROCESSOR},"
                f" {WEIGHTS}), found {'a file' if weights.exists() else 'no such folder'}"
            )
        if not (weights / CONFIG).is_file():
            raise InputError(
                f"{weights}: expected {CONFIG} in the folder of a Hugging Face model, found none"
            )
        for name in _weight_files(weights):
            if not (weights / name).is_file():
                raise InputError(f"{weights}: expected {name}, which {INDEX} names, found no such file")
            if not is_safetensors(weights / name):
                raise InputError(
                    f"{weights / name}: expected a safetensors file, found another kind (or a truncated one,"
                    " or a pointer of Git LFS)"
                )

    def digest(self, weights: Path) -> str:
        """Return the SHA-256 of the digests of configuration, preprocessor configuration and weights."""
        processor = next((name for name in (PREPROCESSOR, PROCESSOR) if (weights / name).is_file()), None)
        tensors = _weight_files(weights)
        index = () if tensors == (WEIGHTS,) else (INDEX,)
        files = [CONFIG, *((processor,) if processor else ()), *index, *tensors]
        content = {name: file_sha256(weights / name) for name in files}
        return hashlib.sha256(canonical_json(content)).hexdigest()

    def recipe(self, encoder: str, weights: Path | None) -> RecipeKeys:  # noqa: ARG002 - as above
        """Return what the folder's preprocessor configuration says, as far as it says it."""
        folder = _require_folder(weights)
        if timm := _timm_model(folder):
            return timm_recipe(timm.configuration)
        channels = getattr(_configuration(folder), "num_channels", None) or 3
        known = RecipeKeys(antialias=True, intensity="min-max", channels=channels, pooling="own")
        what = "the configuration of an image processor"
        processor = None
        if (folder / PREPROCESSOR).is_file():
            processor = read_json(folder / PREPROCESSOR, ImageProcessor, what=what)
        elif (folder / PROCESSOR).is_file():
            processor = read_json(folder / PROCESSOR, _Processor, what=what).image_processor
        if processor is None:
            return known
        return RecipeKeys(**known.given | recipe_keys(processor).given)

    def build(self, encoder: str, recipe: Recipe | None, weights: Path | None) -> nn.Module:  # noqa: ARG002 - as above
        """Return the network without weights."""
        folder = _require_folder(weights)
        if timm := _timm_model(folder):
            return timm.build(recipe)
        configuration = _configuration(folder)
        with _transformers(folder) as transformers:
            model = transformers.AutoModel.from_config(configuration, trust_remote_code=False)
        return _pooled(model, recipe)

    def load(self, encoder: str, recipe: Recipe, weights: Path | None, seed: int) -> nn.Module:  # noqa: ARG002 - as above
        """Return the network with its weights, every one of which must be in the folder."""
        folder = _require_folder(weights)
        if timm := _timm_model(folder):
            network = timm.build(recipe)
            tensors: dict[str, Tensor] = {}
            for name in _weight_files(folder):
                tensors |= read_safetensors(folder / name)
            fitting = fit_to_network(network, tensors)
            complete, _ = checked_tensors(fitting, network.state_dict(), timm.architecture, str(folder))
            network.load_state_dict(complete)
            return network
        configuration = _configuration(folder)
        with _transformers(folder) as transformers, torch.random.fork_rng(devices=[]):
            model, found = transformers.AutoModel.from_pretrained(
                str(folder),
                config=configuration,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
                output_loading_info=True,
            )
        unused = "pooler." if recipe.pooling != "own" else None  # that part of the network is then not used
        missing = [name for name in sorted(found["missing_keys"]) if not (unused and name.startswith(unused))]
        if missing or found["mismatched_keys"]:
            names = [*missing, *map(str, found["mismatched_keys"])]
            shown = f"{', '.join(names[:_SHOWN])}{', ...' if names[_SHOWN:] else ''}"
            hint = '; if only the pooler is missing give pooling = "token" with --recipe' if missing else ""
            raise InputError(
                f"{folder}: expected all tensors of its {type(model).__name__}, found {len(names)}"
                f" missing or of another shape ({shown}){hint}"
            )
        state = model.state_dict()
        checked_tensors(state, state, encoder, str(folder))
        return _pooled(model, recipe)


def _timm_model(folder: Path) -> TimmFolder | None:
    return timm_folder(read_json(folder / CONFIG, dict[str, Any], what="the configuration of a model"))


def _weight_files(folder: Path) -> tuple[str, ...]:
    """Return the names of the files with the tensors: one, or those that the index names."""
    if (folder / WEIGHTS).is_file():
        return (WEIGHTS,)
    if not (folder / INDEX).is_file():
        raise InputError(
            f"{folder}: expected {WEIGHTS} in the folder of a Hugging Face model, or {INDEX} and its parts,"
            " found none. Weights in other forms (pickles) are not read: save the model again with"
            " transformers"
        )
    named = read_json(folder / INDEX, _Index, what="an index of weights").weight_map.values()
    wrong = [name for name in named if Path(name).name != name or not name.endswith(".safetensors")]
    if wrong:
        raise InputError(f"{folder / INDEX}: expected safetensors files of the folder, found {wrong[0]!r}")
    return tuple(sorted(set(named)))


def recipe_keys(processor: ImageProcessor) -> RecipeKeys:
    """Return the recipe of an image processor, without the keys that its configuration does not settle.

    Where it resizes the shortest edge and crops the middle, the whole picture in a frame of the crop's size
    takes its place. Its factor (1/255 as a rule) is folded into mean and std, for intensities from 0 to 1.
    """
    keys: dict[str, Any] = {"resize": _RESAMPLE.get(processor.resample)}
    # Padding, and sizes that depend on the picture's, are no frame of one size.
    if processor.do_resize and not processor.do_pad and not processor.keep_aspect_ratio:
        size, keep = _frame(processor)
        keys |= {"image_size": size, "keep_proportions": keep}
    factor = (processor.rescale_factor or 1 / _LARGEST) if processor.do_rescale else 1
    mean, std = (
        (value,) if isinstance(value, int | float) else value
        for value in (processor.image_mean, processor.image_std)
    )
    if not processor.do_normalize:
        mean, std = (0.0,), (1.0,)
    if mean and std and not (processor.rescale_offset or processor.offset):
        keys |= {"mean": _scaled(mean, _LARGEST * factor), "std": _scaled(std, _LARGEST * factor)}
    return RecipeKeys(**keys)


def _scaled(values: tuple[float, ...], scale: float) -> tuple[float, ...] | float:
    return tuple(value / scale for value in values) if len(values) > 1 else values[0] / scale


def _frame(processor: ImageProcessor) -> tuple[Size | None, bool | None]:
    """Return the size of the input, and whether proportions are kept; None for what is not known.

    They are kept where the processor cuts the input out of a larger picture, or fixes one edge alone.
    """
    if processor.do_center_crop:
        return _size(processor.crop_size), True
    size = processor.size
    if processor.crop_pct:
        edge = (
            size
            if isinstance(size, int)
            else size.get("shortest_edge")
            if isinstance(size, Mapping)
            else None
        )
        return (None, None) if not edge else ((edge, edge), edge < _CONVNEXT_STRETCHES)
    if isinstance(size, int) and not processor.square:
        return None, None if processor.square is None else True
    found = _size(size)
    return found, found is None


def _size(found: object) -> Size | None:
    """Return the height and width of a size; None where only one edge is fixed."""
    if isinstance(found, int):
        return found, found
    if isinstance(found, tuple) and len(set(found)) == 1:  # of two numbers it is not known which is which
        return int(found[0]), int(found[0])
    if isinstance(found, Mapping) and found.get("height") and found.get("width"):
        return int(found["height"]), int(found["width"])
    return None


def _pooled(model: Any, recipe: Recipe | None) -> nn.Module:
    size, patch = getattr(model.config, "image_size", None), getattr(model.config, "patch_size", None)
    if getattr(model, "main_input_name", "pixel_values") != "pixel_values":
        raise InputError(f"expected an image model, found {type(model).__name__}, which reads something else")
    for part in model.modules():  # a runtime that reads every attribute would print a warning about losses
        if hasattr(type(part), "loss_function"):
            part.loss_function = None
    if recipe is None:
        return PooledModel(model, "own", resampled=False)
    if isinstance(patch, int):
        require_whole_patches(type(model).__name__, recipe.image_size, patch)
    return PooledModel(model, recipe.pooling, resampled=_size(size) != recipe.image_size)


def _configuration(folder: Path) -> Any:
    with _transformers(folder) as transformers:
        found = transformers.AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    return getattr(found, "vision_config", None) or found  # of a model for images and texts


def _require_folder(weights: Path | None) -> Path:
    if weights is None:
        raise InputError(
            f"encoder {NAME!r}: expected the folder of a model as weights: only its files say what the"
            " network is"
        )
    return weights


@contextmanager
def _transformers(folder: Path) -> Iterator[ModuleType]:
    """Import transformers, offline and silent; what it cannot read in a folder becomes an InputError."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when it is imported
    prepare_torchvision()
    try:
        import transformers  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise InputError(
            f"encoder {NAME!r}: expected the package transformers, found none ({error}); run:"
            ' pip install "trust-cache[huggingface]"'
        ) from error
    logging: Any = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()
    try:
        yield transformers
    except MemoryError:
        raise
    except Exception as error:  # each model refuses a damaged configuration or file in its own way
        reason = " ".join(str(error).split())[:_REASON] or type(error).__name__
        raise InputError(
            f"{folder}: expected an image model that transformers can read, found none ({reason})"
        ) from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
