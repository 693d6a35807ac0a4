"""Build any model of timm as an encoder; nothing is ever downloaded."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import torch
from torch import Tensor, nn

from trust_cache.base.errors import InputError
from trust_cache.encoders.efficientnet_names import is_efficientnet_pytorch, translate_names
from trust_cache.encoders.encoder import EncoderFamily, require_whole_patches, unsuitable_size
from trust_cache.encoders.recipe import Recipe, RecipeKeys, Resize

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_DEFINED: list[torch.library.Library] = []  # a definition lasts as long as its library object


class TimmModels(EncoderFamily):
    """Every model of timm, globally pooled, as timm initialises it."""

    def describe(self) -> str:
        """Name timm's version: others have other models."""
        return f"the name of a model of timm {import_timm().__version__}"

    def names(self) -> Sequence[str]:
        """Return the models that timm lists."""
        return list(import_timm().list_models())

    def offers(self, encoder: str) -> bool:
        """Refuse `hf-hub:...`: it would ask the network for a configuration even without weights."""
        return ":" not in encoder and bool(import_timm().is_model(encoder))

    def recipe(self, encoder: str, weights: Path | None) -> RecipeKeys:  # noqa: ARG002 - the name says it
        """Return timm's own configuration of the name, or of its tag (`NAME.TAG`).

        timm resizes with Pillow, which always averages when it shrinks. Most of its models expect the middle
        of a picture (crop_pct, crop_mode); here the whole picture is resized to the same size, and its
        proportions are kept unless timm's crop mode is squash.
        """
        found = _configuration(encoder)
        return timm_recipe({} if found is None else found.to_dict())

    def build(self, encoder: str, recipe: Recipe | None, weights: Path | None) -> nn.Module:  # noqa: ARG002 - as above
        """Return the model without its classifier; transformers are built for the size of the recipe."""
        configuration = _configuration(encoder)
        fixed = configuration is not None and configuration.fixed_input_size
        return timm_network(encoder, recipe, fixed_size=bool(fixed))

    def adapt(
        self, network: nn.Module, found: Mapping[str, Tensor]
    ) -> tuple[Mapping[str, Tensor], tuple[str, ...]]:
        """Apply what timm applies to its own files, and translate efficientnet_pytorch's names."""
        if is_efficientnet_pytorch(found) and hasattr(network, "blocks"):
            return translate_names(found, network)
        return fit_to_network(network, found), ()


def timm_recipe(configuration: Mapping[str, Any]) -> RecipeKeys:
    """Return the recipe of a configuration as timm writes it, as far as it says it."""
    if not configuration.get("mean") or not configuration.get("input_size"):
        return RecipeKeys(intensity="min-max", pooling="own")
    data = import_timm().data.resolve_data_config(pretrained_cfg=dict(configuration))
    channels, height, width = data["input_size"]
    resize = data["interpolation"]
    return RecipeKeys(
        image_size=(height, width),
        resize=resize if resize in get_args(Resize) else None,
        antialias=True,
        keep_proportions=data["crop_mode"] != "squash",
        intensity="min-max",
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
        channels=channels,
        pooling="own",
    )


def timm_network(name: str, recipe: Recipe | None, *, fixed_size: bool, **options: Any) -> nn.Module:
    """Return a model of timm without its classifier; one of a fixed size is built for that of the recipe."""
    timm = import_timm()
    if recipe is not None:
        options["in_chans"] = recipe.channels
        if fixed_size:
            options["img_size"] = recipe.image_size
        if recipe.pooling != "own":
            options["global_pool"] = recipe.pooling
    try:
        network: nn.Module = timm.create_model(name, pretrained=False, num_classes=0, **options)
    except Exception as error:  # each architecture refuses a size in its own way
        raise unsuitable_size(name, None if recipe is None else recipe.image_size, error) from error
    for part in network.children():
        if recipe and isinstance(part, timm.layers.PatchEmbed) and not part.dynamic_img_pad:
            require_whole_patches(name, recipe.image_size, part.patch_size[0])
    return network


@dataclass(frozen=True)
class TimmFolder:
    """A model of timm as its config.json describes it."""

    architecture: str
    configuration: Mapping[str, Any]
    arguments: Mapping[str, Any]

    def build(self, recipe: Recipe | None) -> nn.Module:
        """Return the network without a classifier."""
        fixed = bool(self.configuration.get("fixed_input_size"))
        options = {**self.arguments, "pretrained_cfg": dict(self.configuration)}
        return timm_network(self.architecture, recipe, fixed_size=fixed, **options)


def timm_folder(found: Mapping[str, Any]) -> TimmFolder | None:
    """Return what a config.json says of a model of timm; None for other models."""
    name, nested = found.get("architecture"), found.get("pretrained_cfg")
    if not isinstance(name, str) or found.get("model_type") not in (None, "timm_wrapper"):
        return None
    configuration = nested if isinstance(nested, dict) else found
    return TimmFolder(name, configuration, found.get("model_args") or {})


def _configuration(encoder: str) -> Any:
    """Return timm's record of a name and tag, None for a model without one."""
    timm = import_timm()
    try:
        return timm.get_pretrained_cfg(encoder, allow_unregistered=True)
    except RuntimeError as error:
        name = encoder.partition(".")[0]
        tags = ", ".join(timm.list_pretrained(f"{name}.*"))
        raise InputError(
            f"encoder {encoder!r}: expected {name} with a tag that timm {timm.__version__} knows, or without"
            f" one; found {encoder}; known are {tags or 'none'}"
        ) from error


def fit_to_network(network: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors as this network of timm names and sizes them, without the classifier's."""
    configuration: dict[str, Any] = getattr(network, "pretrained_cfg", None) or {}
    classifiers = configuration.get("classifier") or ()
    heads = (classifiers,) if isinstance(classifiers, str) else tuple(classifiers)
    known = network.state_dict()
    kept = {
        name: tensor
        for name, tensor in tensors.items()
        if name in known or not name.startswith(tuple(f"{head}." for head in heads))
    }
    # timm's filter translates older names and position embeddings for another image size.
    adapt = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    try:
        return dict(adapt(kept, network)) if adapt is not None else kept
    except Exception:  # it expects tensors of its own model; the check that follows names what differs
        return kept


def import_timm() -> ModuleType:
    """Import timm after torchvision, which it needs."""
    prepare_torchvision()
    import timm  # noqa: PLC0415 - after torchvision

    return timm


def prepare_torchvision() -> None:
    """Import torchvision, and declare operators that no encoder calls where it cannot load its own.

    timm and transformers import torchvision, and torchvision's Python code refuses to start without the
    operators of its binary. A CUDA build cannot load that binary next to a CPU-only torch, and package
    indexes install such pairs. Features need none of those operators.
    """
    if "torchvision" not in sys.modules:
        try:
            import torchvision  # noqa: F401, PLC0415 - the real operators come first
        except RuntimeError as error:
            if "torchvision::nms" not in str(error):
                raise InputError(
                    f"torch {torch.__version__} cannot load torchvision ({error});"
                    " install the two versions that belong together"
                ) from error
            _declare_operators()


def _declare_operators() -> None:
    if not _DEFINED:
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            library.define(name + _SCHEMA)  # type: ignore[no-untyped-call]
        _DEFINED.append(library)
