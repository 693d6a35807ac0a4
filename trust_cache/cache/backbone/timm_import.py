"""Import timm, also where torchvision cannot load its operators."""

import sys
from types import ModuleType

import torch

from trust_cache.base.errors import InputError

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_DEFINED: list[torch.library.Library] = []  # a definition lasts as long as its library object


def import_timm() -> ModuleType:
    """Return timm; the operators it never calls are declared where torchvision's own do not load.

    timm imports torchvision, and torchvision's Python code refuses to start without the operators of its
    binary. A CUDA build beside a CPU-only torch cannot load that binary, a pair that package indexes hand
    out. timm needs none of those operators to make features.
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
