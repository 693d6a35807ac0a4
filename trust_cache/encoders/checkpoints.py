"""Read checkpoints and encoder files without running any code from them."""

import pickle
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from trust_cache.base.documents import Document, parse_json, typed
from trust_cache.base.errors import InputError

FORMAT = 1
RECORD = "trust_cache_encoder"  # one key: safetensors writes several keys in random order
WHERE_FROM = (
    "Mammo-CLIP's checkpoint b5-model-best-epoch-7.tar is released by the project batmanlab/Mammo-CLIP on"
    " GitHub (its licence is non-commercial); convert it once with: trust-cache weights"
    " b5-model-best-epoch-7.tar --out encoder.safetensors"
)

_COUNTER = ".num_batches_tracked"  # batches seen in training; features do not use it
_NAMES_SHOWN = 4
_ZIP = b"PK\x03\x04"
_LENGTH = 8  # bytes; a safetensors file starts with its header's length
_ASKED = re.compile(r"GLOBAL (\S+)")
_ADVICE = re.compile(r".*WeightsUnpickler error:|^Weights only load failed.*", re.DOTALL)  # to load unsafely


class _Inert:
    """Replaces a class whose objects are not needed: accepts everything, keeps nothing."""

    def __new__(cls, *_arguments: object) -> "_Inert":
        return super().__new__(cls)

    def __init__(self, *_arguments: object) -> None:
        pass

    def __setstate__(self, _state: object) -> None:
        pass


# Classes of the configuration and the losses that a checkpoint holds besides its tensors. torch unpickles
# the names on this list and refuses all others; omegaconf need not be installed.
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
    "typing.Any",
)
_SAFE: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    *((_Inert, name) for name in _STAND_INS), defaultdict, list, dict, int,
]  # fmt: skip


def is_safetensors(path: Path) -> bool:
    """Return whether a file starts like a safetensors file."""
    with path.open("rb") as file:
        start = file.read(_LENGTH + 1)
    return (
        len(start) > _LENGTH
        and start[_LENGTH:] == b"{"
        and int.from_bytes(start[:_LENGTH], "little") <= path.stat().st_size - _LENGTH
    )


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file."""
    with _safely_open(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping


@contextmanager
def _safely_open(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise InputError(_damaged(path, error)) from error


def read_torch(path: Path) -> object:
    """Return what torch.save wrote; tensors are mapped from the file and read only when used."""
    with path.open("rb") as file:
        zipped = file.read(len(_ZIP)) == _ZIP
    try:
        with torch.serialization.safe_globals(_SAFE), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the pickle's protocol; unreadable files are refused below
            # The format before torch 1.6 cannot be mapped.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        asked = _ASKED.search(str(error))
        if asked is None:
            raise InputError(_damaged(path, error)) from error
        raise InputError(
            f"{path}: refused: it asks to load {asked[1].rstrip('.')}, which no checkpoint of this encoder"
            " needs. Nothing in it was run. Download the file from its source again"
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # damaged bytes make an unpickler raise anything
        raise InputError(_damaged(path, error)) from error


def as_tensors(found: object, prefix: str = "") -> dict[str, Tensor] | None:
    """Return the values with this prefix, keyed by the rest of the name; None unless all are tensors."""
    if not isinstance(found, Mapping):
        return None
    chosen = {
        name: value for name, value in found.items() if isinstance(name, str) and name.startswith(prefix)
    }
    if not chosen or (not prefix and len(chosen) < len(found)) or not all(map(_is_dense, chosen.values())):
        return None
    return {name.removeprefix(prefix): value for name, value in chosen.items()}


class WeightsRecord(Document, frozen=True):
    """Where the tensors of a converted file come from and which encoder they are for."""

    format: int
    encoder: str
    architecture: str
    padding: str
    source_kind: str
    source_sha256: str


def read_record(path: Path) -> WeightsRecord | None:
    """Return the record of a file that `convert_weights` wrote, None for any other safetensors file."""
    with _safely_open(path) as file:  # reads only its header
        text = (file.metadata() or {}).get(RECORD)
    if text is None:
        return None
    try:
        content = parse_json(text)
    except ValueError as error:
        raise InputError(f"{path}: its record is damaged ({error}); convert the checkpoint again") from error
    version = content.get("format") if isinstance(content, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise InputError(
            f"{path}: expected format {FORMAT}, found {version}, which a newer trust-cache wrote; update"
            " trust-cache, or convert the checkpoint again"
        )
    return typed(content, WeightsRecord, where=path, what="the record of converted weights (it is damaged)")


def require_file(path: str | Path) -> Path:
    """Refuse a path without a file, and say where users get the weights."""
    if not Path(path).exists():
        raise InputError(f"{path}: there is no such file. {WHERE_FROM}")
    if not Path(path).is_file():
        raise InputError(
            f"{path}: expected a file with weights, found a folder; for a Hugging Face model say --encoder"
            " huggingface"
        )
    return Path(path)


def checked_tensors(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], encoder: str, source: str
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return tensors of exactly the expected names and shapes, floats as float32, with notes on changes.

    Refuses and names tensors that are missing, unexpected, of another shape or type, NaN or infinite.
    """
    counters = [name for name in expected if name.endswith(_COUNTER) and name not in found]
    complete = {**found, **{name: torch.zeros((), dtype=torch.int64) for name in counters}}
    _require_as_expected(expected, complete, encoder, source)
    notes = [f"{len(counters)} counters of batches were absent and are 0"] if counters else []
    floats = {name for name, tensor in complete.items() if tensor.is_floating_point()}
    types = sorted({str(complete[name].dtype) for name in floats} - {str(torch.float32)})
    if types:
        notes.append(f"converted to float32 from {', '.join(types)}")
    tensors = {name: complete[name] for name in expected}
    for name in floats:
        tensors[name] = tensors[name].detach().to(torch.float32, copy=True).contiguous()
    for name, tensor in tensors.items():
        _require_sound(name, tensor, source)
    return tensors, tuple(notes)


def _require_as_expected(
    expected: Mapping[str, Tensor], found: Mapping[str, Tensor], encoder: str, source: str
) -> None:
    others = [
        f"{name} {_form(found[name])} instead of {_form(tensor)}"
        for name, tensor in expected.items()
        if name in found and _form(found[name]) != _form(tensor)
    ]
    wrong = {
        "missing": [name for name in expected if name not in found],
        "unexpected": [name for name in found if name not in expected],
        "of another shape": others,
    }
    parts = [
        f"{len(names)} {kind} ({', '.join(names[:_NAMES_SHOWN])}{', ...' if names[_NAMES_SHOWN:] else ''})"
        for kind, names in wrong.items()
        if names
    ]
    if parts:
        raise InputError(
            f"{source}: expected the {len(expected)} tensors of {encoder}; {'; '.join(parts)}."
            " These are weights of another architecture, or damaged ones"
        )


def _form(tensor: Tensor) -> str:
    return f"{list(tensor.shape)}{'' if tensor.is_floating_point() else ' of integers'}"


def _require_sound(name: str, tensor: Tensor, source: str) -> None:
    wrong = int((~torch.isfinite(tensor)).sum())
    if wrong:
        raise InputError(
            f"{source}: {name} holds {wrong} values that are NaN or infinite; download the file again"
        )
    if name.endswith("running_var") and bool((tensor < 0).any()):
        raise InputError(f"{source}: {name} holds a negative variance; download the file again")


def _is_dense(value: object) -> bool:
    return (
        isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and (value.is_floating_point() or value.dtype == torch.int64)
    )


def _damaged(path: Path, error: Exception) -> str:
    reason = _ADVICE.sub("", str(error)).strip().split("\n")[0].split(". ")[0] or type(error).__name__
    return (
        f"{path}: expected a checkpoint (a torch archive or a safetensors file), found one that is damaged,"
        f" truncated or of another kind ({reason[:200]})"
    )
