"""A checkpoint of others becomes an encoder file of ours: safe, strict, the same bytes each time."""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from trust_cache.base.documents import parse_json
from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file
from trust_cache.cache.backbone import mammo_clip
from trust_cache.cache.backbone.checkpoints import (
    as_tensors,
    is_safetensors,
    read_safetensors,
    read_torch,
    safetensors_metadata,
)
from trust_cache.cache.backbone.networks import DEFAULT_ENCODER, build_network, fit_to_network
from trust_cache.cache.backbone.tensors import THEIR_FIRST, checked_tensors, from_efficientnet_pytorch

_LOG = logging.getLogger(__name__)

FORMAT = 1
OWN_PADDING = "timm"  # as the architecture pads in timm
_RECORD = "trust_cache_encoder"  # one key: safetensors writes several in an order of its own
_PREFIX = "image_encoder."

WHERE_FROM = (
    "Mammo-CLIP's checkpoint b5-model-best-epoch-7.tar is released by the project batmanlab/Mammo-CLIP on"
    " GitHub (its licence is non-commercial); convert it once with: trust-cache weights"
    " b5-model-best-epoch-7.tar --out encoder.safetensors"
)


class Kind(Enum):
    """What a checkpoint turned out to be."""

    ARCHIVE = "Mammo-CLIP archive"
    STATE_DICT = "state dict"
    SAFETENSORS = "safetensors"


@dataclass(frozen=True)
class WeightsRecord:
    """What a converted file says about itself."""

    format: int
    encoder: str
    architecture: str
    padding: str
    source_kind: str
    source_sha256: str


@dataclass(frozen=True)
class Conversion:
    """What was written, and what the user should know about it."""

    record: WeightsRecord
    sha256: str  # of the file written
    tensors: int
    notes: tuple[str, ...]


def convert_weights(checkpoint: str | Path, out: str | Path, *, encoder: str | None = None) -> Conversion:
    """Write the encoder's tensors of a checkpoint as safetensors, with a record of where they are from.

    Takes Mammo-CLIP's archive or a state dict of efficientnet_pytorch's B5. Tensors with timm's names need
    the `encoder` that they are for, because names alone do not tell how it pads.
    """
    source = require_file(checkpoint)
    kind, found = _read(source)
    _LOG.info("%s: %s with %d tensors of an encoder", source, kind.value, len(found))
    chosen = encoder or DEFAULT_ENCODER
    notes: tuple[str, ...] = ()
    with torch.device("meta"):
        network = build_network(chosen)
    if chosen == DEFAULT_ENCODER and (kind is Kind.ARCHIVE or THEIR_FIRST in found):
        found, notes = from_efficientnet_pytorch(found)
    elif encoder is None:
        raise InputError(
            f"{source}: expected Mammo-CLIP's archive or a state dict of efficientnet_pytorch's B5, found"
            f" {len(found)} tensors such as {next(iter(found))}. If they are of a timm model say which:"
            f" --encoder NAME (--encoder {DEFAULT_ENCODER}, if they are Mammo-CLIP's under timm's names)"
        )
    else:
        found = fit_to_network(network, found)
    tensors, further = checked_tensors(found, network.state_dict(), chosen, str(source))
    static = chosen == DEFAULT_ENCODER
    record = WeightsRecord(
        format=FORMAT,
        encoder=chosen,
        architecture=mammo_clip.ARCHITECTURE if static else chosen,
        padding=mammo_clip.PADDING if static else OWN_PADDING,
        source_kind=kind.value,
        source_sha256=file_sha256(source),
    )
    content = save(tensors, {_RECORD: json.dumps(asdict(record), sort_keys=True)})
    _write_new(Path(out), content)
    return Conversion(record, hashlib.sha256(content).hexdigest(), len(tensors), (*notes, *further))


def read_record(path: Path) -> WeightsRecord | None:
    """Return what a file that we converted says about itself, None for any other safetensors file."""
    text = safetensors_metadata(path).get(_RECORD)
    if text is None:
        return None
    try:
        document = parse_json(text)
        version = document["format"]
        if version == FORMAT:
            return WeightsRecord(**document)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: its record is damaged ({error}); convert the checkpoint again") from error
    raise InputError(
        f"{path}: expected format {FORMAT}, found {version}, which a newer trust-cache wrote; update"
        " trust-cache, or convert the checkpoint again"
    )


def require_file(path: str | Path) -> Path:
    """Refuse a path without a file, and say where users get the weights."""
    if not Path(path).exists():
        raise InputError(f"{path}: there is no such file. {WHERE_FROM}")
    if not Path(path).is_file():
        raise InputError(f"{path}: expected a file with weights, found something else")
    return Path(path)


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes, as sha256sum prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(source: Path) -> tuple[Kind, dict[str, Tensor]]:
    if is_safetensors(source):
        record = read_record(source)
        if record is not None:
            raise InputError(f"{source}: is converted already, for {record.encoder}; use it as it is")
        return Kind.SAFETENSORS, read_safetensors(source)
    document = read_torch(source)
    inside = document if isinstance(document, Mapping) else {}
    for candidate in (document, inside.get("model"), inside.get("state_dict")):
        if (tensors := as_tensors(candidate, _PREFIX)) is not None:
            return Kind.ARCHIVE, tensors
        if (tensors := as_tensors(candidate)) is not None:
            return Kind.STATE_DICT, tensors
    found = f"a {type(document).__name__}" + (f" with {', '.join(map(str, inside))[:200]}" if inside else "")
    raise InputError(f"{source}: expected tensors by name, or such under model or state_dict; found {found}")


def _write_new(path: Path, content: bytes) -> None:
    if path.is_file() and path.read_bytes() != content:
        raise InputError(f"{path}: is there already, with other content; choose another --out or remove it")
    write_file(path, content)
