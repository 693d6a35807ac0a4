"""The model folder: written whole, and refused on reading when any byte of it changed."""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from trust_cache.base.documents import json_bytes
from trust_cache.base.errors import InputError
from trust_cache.base.files import write_folder
from trust_cache.base.versions import versions_of
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.heads.bank import HeadParameters
from trust_cache.service.models.record import Model, Threshold, TrainedOn

SCHEMA = 1
KIND = "trust-cache model"
RECORD, HEAD, REFERENCE, TRAINED_ON, CERTIFICATE = (
    "model.json",
    "head.safetensors",
    "reference.csv",
    "trained_on.safetensors",
    "certificate.json",
)
OWN = frozenset({RECORD, HEAD, REFERENCE, TRAINED_ON, CERTIFICATE})
_PARTS = ("gamma", "beta", "weight", "bias")
_MEND = "copy the folder anew, or export the model again"


@dataclass(frozen=True)
class StoredModel:
    """A model as it was read; its digest is that of model.json, which has the digests of all other files."""

    folder: Path
    model: Model
    sha256: str


def write_model(model: Model, out: Path) -> Path | None:
    """Write the folder whole; return where an earlier model in its place was kept, if there was one."""
    return write_folder(out, render_model(model), own=OWN)


def render_model(model: Model) -> dict[str, bytes]:
    """Return the files of a model folder by name."""
    parts = {name: np.ascontiguousarray(getattr(model.head, name)) for name in _PARTS}
    files = {
        HEAD: save(parts),
        REFERENCE: _lines("score", (repr(score) for score in np.sort(model.reference).tolist())),
        TRAINED_ON: save({"cases": _bytes_of(model.trained_on.cases), "sketches": model.trained_on.sketches}),
    }
    if model.certificate is not None:
        files[CERTIFICATE] = json_bytes(model.certificate)
    document = {
        "schema": SCHEMA,
        "kind": KIND,
        "configuration": model.configuration,
        "origin": model.origin,
        "tau": model.threshold.tau,
        "target": model.threshold.target,
        "chosen_by": model.threshold.chosen_by,
        "certified": model.certified,
        "certificate": CERTIFICATE if model.certified else None,
        "fingerprint": model.fingerprint.as_document(),
        "dim": model.head.dim,
        "made_from": dict(model.made_from),
        "files": {name: _sha256(content) for name, content in files.items()},
        "versions": versions_of("numpy", "numba", "safetensors"),
    }
    return {RECORD: _sealed(document), **files}


def read_model(folder: Path) -> StoredModel:
    """Read a model folder; refuse one that is not exactly as it was written."""
    content = _read(folder, RECORD)
    document = _unsealed(content, folder)
    files = _checked_files(document, folder)
    try:
        model = _model_of(document, files, folder)
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error
    except Exception as error:  # whatever a document of our kind, but not by us, makes the parts raise
        raise InputError(f"{folder}: the model cannot be read ({type(error).__name__}); {_MEND}") from error
    return StoredModel(folder, model, _sha256(content))


def _model_of(document: dict[str, Any], files: dict[str, bytes], folder: Path) -> Model:
    arrays = load(files[HEAD])
    head = HeadParameters(**{name: arrays[name].astype(np.float32, copy=False) for name in _PARTS})
    shapes = {name: arrays[name].shape for name in _PARTS}
    dim = int(document["dim"])
    if shapes != {"gamma": (1, dim), "beta": (1, dim), "weight": (1, dim), "bias": (1,)}:
        raise InputError(f"expected a head of {dim} features, found {shapes}")
    certificate = json.loads(files[CERTIFICATE]) if CERTIFICATE in files else None
    if document["certified"] is not (certificate is not None):
        raise InputError(
            f"{RECORD} says certified {document['certified']!r}, which its files do not bear out"
        )
    if document["origin"] not in ("refit", "external"):
        raise InputError(f"expected the origin refit or external, found {document['origin']!r}")
    trained_on = load(files[TRAINED_ON])
    return Model(
        configuration=document["configuration"],
        origin=document["origin"],
        fingerprint=Fingerprint.from_document(document["fingerprint"], str(folder)),
        head=head,
        threshold=Threshold(document["tau"], document["target"], document["chosen_by"]),
        reference=np.array([float(line) for line in _read_lines(files[REFERENCE], "score")]),
        trained_on=TrainedOn(
            frozenset(row.tobytes().hex() for row in trained_on["cases"]), trained_on["sketches"]
        ),
        made_from=document["made_from"],
        certificate=certificate,
    )


def _sealed(document: dict[str, Any]) -> bytes:
    """Return a document with the digest of all else in it as its last entry."""
    return json_bytes(document | {"sha256": _sha256(json_bytes(document))})


def _unsealed(content: bytes, folder: Path) -> dict[str, Any]:
    path = folder / RECORD
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a readable JSON file ({error}); {_MEND}") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise InputError(f"{path}: expected the record of a model, found another file")
    schema = document.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        raise InputError(
            f"{path}: expected model schema {SCHEMA}, found {schema!r}; a newer one needs a newer trust-cache"
        )
    rest = {name: value for name, value in document.items() if name != "sha256"}
    same = _without_surprise(lambda: _sealed(rest) == content)
    if not same:
        raise InputError(f"{path}: was changed after the model was exported; {_MEND}")
    return document


def _without_surprise(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except (ValueError, TypeError, RecursionError):  # NaN, which JSON does not have, but Python reads
        return False


def _checked_files(document: dict[str, Any], folder: Path) -> dict[str, bytes]:
    listed = document.get("files")
    needed = {HEAD, REFERENCE, TRAINED_ON} | ({CERTIFICATE} if document.get("certificate") else set())
    if not isinstance(listed, dict) or set(listed) != needed:
        raise InputError(f"{folder / RECORD}: expected the digests of {', '.join(sorted(needed))}")
    unlisted = sorted(name for name in OWN - {RECORD} - set(listed) if (folder / name).exists())
    if unlisted:
        raise InputError(f"{folder / unlisted[0]}: does not belong to this model; remove it")
    files = {name: _read(folder, name) for name in sorted(listed)}
    for name, content in files.items():
        if _sha256(content) != listed[name]:
            raise InputError(
                f"{folder / name}: was changed after the model was exported (sha256 expected"
                f" {listed[name]}, found {_sha256(content)}); {_MEND}"
            )
    return files


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(
            f"{folder}: expected a model folder with {name} in it, found none;"
            " make one with `trust-cache export-model`"
        ) from error
    except OSError as error:
        raise InputError(f"{folder / name}: cannot be read ({error.strerror or error})") from error


def _lines(header: str, lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in (header, *lines)).encode()


def _read_lines(content: bytes, header: str) -> list[str]:
    first, *lines = content.decode().splitlines()
    if first != header:
        raise InputError(f"expected the header {header!r}, found {first!r}")
    return lines


def _bytes_of(digests: Iterable[str]) -> NDArray[np.uint8]:
    rows = [np.frombuffer(bytes.fromhex(digest), dtype=np.uint8) for digest in sorted(digests)]
    return np.stack(rows) if rows else np.empty((0, 0), dtype=np.uint8)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
