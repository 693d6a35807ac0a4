"""Build any model of timm as an encoder; nothing is ever downloaded."""

import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from trust_cache.base.errors import InputError
from trust_cache.encoders.encoder import EncoderFamily, Size, unsuitable_size

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

    def build(self, encoder: str, image_size: Size | None) -> nn.Module:
        """Return the model without its classifier; transformers are built for `image_size`."""
        timm = import_timm()
        configuration = timm.get_pretrained_cfg(encoder, allow_unregistered=True)
        fixed = configuration is not None and configuration.fixed_input_size
        size = {"img_size": image_size} if image_size is not None and fixed else {}
        try:
            network: nn.Module = timm.create_model(encoder, pretrained=False, num_classes=0, **size)
        except Exception as error:  # each architecture refuses a size in its own way
            raise unsuitable_size(encoder, image_size, error) from error
        return network

    def adapt(
        self, network: nn.Module, found: Mapping[str, Tensor]
    ) -> tuple[Mapping[str, Tensor], tuple[str, ...]]:
        """Apply what timm applies to its own files."""
        return fit_to_network(network, found), ()


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
    """Import timm, and declare operators that it never calls where torchvision cannot load its own.

    timm imports torchvision, and torchvision's Python code refuses to start without the operators of its
    binary. A CUDA build cannot load that binary next to a CPU-only torch, and package indexes install such
    pairs. timm needs none of those operators to make features.
    """
    if "timm" not in sys.modules:
        try:
            import torchvision  # noqa: F401, PLC0415 - the real operators come first
        except RuntimeError as error:
            if "torchvision::nms" not in str(error):
                raise InputError(
                    f"torch {torch.__version__} cannot load torchvision ({error});"
                    " install the two versions that belong together"
                ) from error
            _declare_operators()
    import timm  # noqa: PLC0415 - after torchvision

    return timm


def _declare_operators() -> None:
    if not _DEFINED:
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            library.define(name + _SCHEMA)  # type: ignore[no-untyped-call]
        _DEFINED.append(library)
