"""Convert a checkpoint to an encoder file: safely, strictly, with the same bytes each time."""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from trust_cache.base.digests import file_sha256
from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file
from trust_cache.encoders.checkpoints import (
    FORMAT,
    RECORD,
    WeightsRecord,
    as_tensors,
    checked_tensors,
    is_safetensors,
    read_record,
    read_safetensors,
    read_torch,
    require_file,
)
from trust_cache.encoders.known_encoders import FAMILIES, family_of
from trust_cache.encoders.recipe import DEFAULT_ENCODER

_LOG = logging.getLogger(__name__)

_PREFIX = "image_encoder."


class Kind(Enum):
    """What a checkpoint turned out to be."""

    ARCHIVE = "Mammo-CLIP archive"
    STATE_DICT = "state dict"
    SAFETENSORS = "safetensors"


@dataclass(frozen=True)
class Conversion:
    """What was written, and what the user should know about it."""

    record: WeightsRecord
    sha256: str  # of the file written
    tensors: int
    notes: tuple[str, ...]


def convert_weights(checkpoint: str | Path, out: str | Path, *, encoder: str | None = None) -> Conversion:
    """Write the encoder's tensors of a checkpoint as safetensors, with a record of where they are from.

    Takes an archive of Mammo-CLIP or Mammo-FM, or a state dict of efficientnet_pytorch's B5 or B2. Tensors
    with timm's names need the `encoder` that they are for, because names alone do not tell how it pads.
    """
    source = require_file(checkpoint)
    kind, found = _read(source)
    _LOG.info("%s: %s with %d tensors of an encoder", source, kind.value, len(found))
    recognised = (family.recognises(found, source.name) for family in FAMILIES)
    chosen = encoder or next(filter(None, recognised), None)
    if chosen is None and kind is not Kind.ARCHIVE:
        raise InputError(
            f"{source}: expected Mammo-CLIP's archive or a state dict of efficientnet_pytorch's B5 or B2,"
            f" found {len(found)} tensors such as {next(iter(found))}. If they are of a timm model say which:"
            f" --encoder NAME (--encoder {DEFAULT_ENCODER}, if they are Mammo-CLIP's under timm's names)"
        )
    chosen = chosen or DEFAULT_ENCODER
    family = family_of(chosen)
    with torch.device("meta"):
        network = family.build(chosen, None, None)
    adapted, notes = family.adapt(network, found)
    tensors, further = checked_tensors(adapted, network.state_dict(), chosen, str(source))
    record = WeightsRecord(
        format=FORMAT,
        encoder=chosen,
        architecture=family.architecture(chosen),
        padding=family.padding(chosen),
        source_kind=kind.value,
        source_sha256=file_sha256(source),
    )
    content = save(tensors, {RECORD: json.dumps(record.as_document(), sort_keys=True)})
    path = Path(out)
    if path.is_file() and path.read_bytes() != content:
        raise InputError(f"{path}: is there already, with other content; choose another --out or remove it")
    write_file(path, content)
    return Conversion(record, hashlib.sha256(content).hexdigest(), len(tensors), (*notes, *further))


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
