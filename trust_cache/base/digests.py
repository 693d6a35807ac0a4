"""Digests of rows, documents and files, and file names for arbitrary names."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

_ROWS_AT_ONCE = 50_000  # bounds the memory
_PIECE = 2**20
_BLAKE3_BYTES = 32


def rows_sha256(rows: Iterable[Sequence[object]]) -> str:
    """Return the sha256 of the rows as one compact JSON array of arrays, in UTF-8.

    Equal to `sha256(json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode())` on a list of
    lists, so that anyone can recompute it. The caller sorts.
    """
    digest = hashlib.sha256(b"[")
    remaining = iter(rows)
    comma = b""
    while chunk := list(islice(remaining, _ROWS_AT_ONCE)):
        text = json.dumps(chunk, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        digest.update(comma + text[1:-1].encode())
        comma = b","
    digest.update(b"]")
    return digest.hexdigest()


def canonical_json(content: object) -> bytes:
    """Return plain values as compact JSON in UTF-8 with sorted keys: equal values, equal bytes."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode(errors="backslashreplace")


def stream_blake3(file: BinaryIO) -> str:
    """Return the BLAKE3 digest of the rest of a file in bounded memory, as b3sum prints it."""
    digest = blake3()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return str(digest.hexdigest())


def bytes_blake3(content: bytes) -> str:
    """Return the BLAKE3 digest of bytes, as b3sum prints it."""
    return str(blake3(content).hexdigest())


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes, as sha256sum prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the sha256 of each file by name."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def changed_files(folder: Path, recorded: Mapping[str, str], fix: str) -> list[str]:
    """Compare files with their recorded sha256; return a sentence for each that is missing or differs."""
    problems = []
    for name, expected in recorded.items():
        if not (folder / name).is_file():
            problems.append(f"{folder / name}: is missing; {fix}")
        elif (found := file_sha256(folder / name)) != expected:
            problems.append(
                f"{folder / name}: changed since it was written (sha256 expected {expected}, found {found});"
                f" {fix}"
            )
    return problems


def bind_bytes(content: bytes, *identity: object) -> bytes:
    """Return content behind a digest of it and of what it belongs to; `identity` is plain values."""
    return _binding(content, identity) + content


def unbind_bytes(bound: bytes, *identity: object) -> bytes | None:
    """Return content that `bind_bytes` bound to this identity; None if either was changed."""
    content = memoryview(bound)[_BLAKE3_BYTES:]
    return bytes(content) if _binding(content, identity) == bound[:_BLAKE3_BYTES] else None


def _binding(content: bytes | memoryview, identity: Sequence[object]) -> bytes:
    digest = blake3(canonical_json(identity) + b"\0")
    digest.update(content)
    return digest.digest()


# Characters that Windows forbids, control characters, and separators.
_UNSAFE = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')
_LONGEST = 120  # bytes; with a digest and a suffix it stays below the usual limit of 255


def file_stems(names: Iterable[str]) -> dict[str, str]:
    """Map each name to a file name: the name itself if it is harmless, else escaped with a digest.

    Names that differ only in case would be one file on macOS and Windows: those get the digest too.
    """
    names = list(names)
    folded = Counter(name.casefold() for name in set(names))
    stems = {}
    for name in names:
        safe = _UNSAFE.sub("_", name).strip(" .").encode()[:_LONGEST].decode(errors="ignore")
        harmless = safe == name and folded[name.casefold()] == 1
        stems[name] = name if harmless else f"{safe}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return stems
