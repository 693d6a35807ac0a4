"""Networks by name: Mammo-CLIP's B5 or any timm model, built without weights and never downloaded."""

import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from trust_cache.base.errors import InputError
from trust_cache.cache.backbone.mammo_clip import build_mammo_clip
from trust_cache.cache.backbone.timm_import import import_timm

DEFAULT_ENCODER = "mammo-clip-b5"

Size = tuple[int, int]


def build_network(encoder: str, image_size: Size | None = None) -> nn.Module:
    """Return a network without a classifier, globally pooled, as timm initialises it.

    Models made for one size (transformers) are built for `image_size`, or without it for their own.
    """
    if encoder == DEFAULT_ENCODER:
        return build_mammo_clip()
    _require_timm_model(encoder)
    fixed = {"img_size": image_size} if image_size is not None and _has_fixed_size(encoder) else {}
    try:
        network: nn.Module = import_timm().create_model(encoder, pretrained=False, num_classes=0, **fixed)
    except Exception as error:  # each architecture refuses a size in its own way
        raise InputError(_unsuitable(encoder, image_size, error)) from error
    return network


def output_dim(encoder: str, image_size: Size) -> int:
    """Return the number of features, found by shapes alone: nothing is computed or allocated."""
    with torch.device("meta"):
        network = build_network(encoder, image_size).eval()
        try:
            shape = network(torch.empty(2, 3, *image_size)).shape
        except Exception as error:
            raise InputError(_unsuitable(encoder, image_size, error)) from error
    if len(shape) != 2:  # noqa: PLR2004 - images, features
        raise InputError(
            f"encoder {encoder!r}: expected a row of features per image, found shape {tuple(shape)}"
        )
    return int(shape[1])


def fit_to_network(network: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors as this network names and sizes them, without the classifier's."""
    configuration: dict[str, Any] = getattr(network, "pretrained_cfg", None) or {}
    classifiers = configuration.get("classifier") or ()
    heads = (classifiers,) if isinstance(classifiers, str) else tuple(classifiers)
    known = network.state_dict()
    kept = {
        name: tensor
        for name, tensor in tensors.items()
        if name in known or not name.startswith(tuple(f"{head}." for head in heads))
    }
    # What timm itself applies to a file: older names, position embeddings for another image size.
    adapt = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    try:
        return dict(adapt(kept, network)) if adapt is not None else kept
    except Exception:  # it expects tensors of its own model; the check that follows names what differs
        return kept


def _require_timm_model(name: str) -> None:
    timm = import_timm()
    # `hf-hub:...` would ask the network for a configuration even without weights.
    if ":" not in name and timm.is_model(name):
        return
    wanted = re.split("[:/]", name)[-1]
    nearest = get_close_matches(wanted, [DEFAULT_ENCODER, *timm.list_models()], n=1, cutoff=0.4)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise InputError(
        f"encoder {name!r}: expected {DEFAULT_ENCODER!r} or the name of a model of timm"
        f" {timm.__version__}{hint}"
    )


def _has_fixed_size(name: str) -> bool:
    configuration = import_timm().get_pretrained_cfg(name, allow_unregistered=True)
    return bool(configuration is not None and configuration.fixed_input_size)


def _unsuitable(name: str, image_size: Size | None, error: Exception) -> str:
    size = "its own size" if image_size is None else f"{image_size[0]}x{image_size[1]}"
    reason = " ".join(str(error).split()) or type(error).__name__
    return f"encoder {name!r} cannot take images of {size} ({reason}); choose another size or encoder"
