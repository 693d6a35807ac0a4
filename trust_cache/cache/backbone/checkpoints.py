"""Checkpoints of others read without running anything that is in them."""

import pickle
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from trust_cache.base.errors import InputError

_ZIP = b"PK\x03\x04"
_LENGTH = 8  # bytes; a safetensors file starts with its header's length
_ASKED = re.compile(r"GLOBAL (\S+)")
_ADVICE = re.compile(r".*WeightsUnpickler error:|^Weights only load failed.*", re.DOTALL)  # to load unsafely


class _Inert:
    """Takes the place of a class whose objects nobody needs: accepts everything, keeps nothing."""

    def __new__(cls, *_arguments: object) -> "_Inert":
        return super().__new__(cls)

    def __init__(self, *_arguments: object) -> None:
        pass

    def __setstate__(self, _state: object) -> None:
        pass


# What the configuration and the losses beside the tensors are made of. torch unpickles names on this list
# and refuses all others; omegaconf itself need not be there.
_STAND_INS = (
    "omegaconf.listconfig.ListConfig",
    "omegaconf.dictconfig.DictConfig",
    "omegaconf.base.ContainerMetadata",
    "omegaconf.base.Metadata",
    "omegaconf.nodes.AnyNode",
    "omegaconf.nodes.StringNode",
    "omegaconf.nodes.IntegerNode",
    "omegaconf.nodes.FloatNode",
    "omegaconf.nodes.BooleanNode",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
    "numpy.dtype",
)
_SAFE: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    *((_Inert, name) for name in _STAND_INS),
    (_Inert, "typing.Any"),
    defaultdict,
    list,
    dict,
    int,
]


def is_safetensors(path: Path) -> bool:
    """Say whether a file starts as a safetensors file does."""
    with path.open("rb") as file:
        start = file.read(_LENGTH + 1)
    return (
        len(start) > _LENGTH
        and start[_LENGTH:] == b"{"
        and int.from_bytes(start[:_LENGTH], "little") <= path.stat().st_size - _LENGTH
    )


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except SafetensorError as error:
        raise InputError(_damaged(path, error)) from error


def safetensors_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file; reads its header alone."""
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except SafetensorError as error:
        raise InputError(_damaged(path, error)) from error


def read_torch(path: Path) -> object:
    """Return what torch.save wrote, tensors mapped from the file: what nobody touches is never read."""
    with path.open("rb") as file:
        zipped = file.read(len(_ZIP)) == _ZIP
    try:
        with torch.serialization.safe_globals(_SAFE), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the pickle's protocol; what cannot be read is refused
            # The format before torch 1.6 cannot be mapped.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        raise InputError(_refused(path, error)) from error
    except MemoryError:
        raise
    except Exception as error:  # bytes from anywhere make an unpickler raise anything
        raise InputError(_damaged(path, error)) from error


def as_tensors(found: object, prefix: str = "") -> dict[str, Tensor] | None:
    """Return the values whose names start so, by the rest of the name; None unless they are tensors."""
    if not isinstance(found, Mapping):
        return None
    chosen = {
        name: value for name, value in found.items() if isinstance(name, str) and name.startswith(prefix)
    }
    if not chosen or (not prefix and len(chosen) < len(found)) or not all(map(_is_dense, chosen.values())):
        return None
    return {name.removeprefix(prefix): value for name, value in chosen.items()}


def _is_dense(value: object) -> bool:
    return (
        isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and (value.is_floating_point() or value.dtype == torch.int64)
    )


def _refused(path: Path, error: Exception) -> str:
    asked = _ASKED.search(str(error))
    if asked is None:
        return _damaged(path, error)
    return (
        f"{path}: refused: it asks to load {asked[1].rstrip('.')}, which no checkpoint of this encoder needs."
        " Nothing in it was run. Get the file from its source again"
    )


def _damaged(path: Path, error: Exception) -> str:
    reason = _ADVICE.sub("", str(error)).strip().split("\n")[0].split(". ")[0] or type(error).__name__
    return (
        f"{path}: expected a checkpoint (a torch archive or a safetensors file), found one that is damaged,"
        f" truncated or of another kind ({reason[:200]})"
    )
