"""Seeded damage to bytes: what disks, networks, editors and people who mean harm do to files."""

import re

import numpy as np

_TOKENS = (
    b"NaN", b"Infinity", b"-1", b"0", b"1e999", b"99999999999999999999999", b"null", b"true", b"[]", b"{}",
    b'""', b"'", b'"', b",", b"\n", b"\r", b"\t", b"=", b"[", b"]", b"{", b"}", b"\\", b"/", b"../", b"\x00",
    b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", "\u2028".encode(), "\U0001f600".encode(), b"9" * 400,
    b"[" * 3000, b"a" * 5000,
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def mutate(content: bytes, generator: np.random.Generator) -> bytes:
    """Return the content with one to four changes; never the content itself."""
    changed = content
    while changed == content:
        for _ in range(int(generator.integers(1, 5))):
            changed = _CHANGES[int(generator.integers(len(_CHANGES)))](changed, generator)
    return changed


def _place(content: bytes, generator: np.random.Generator) -> int:
    return int(generator.integers(len(content) + 1))


def _flip(content: bytes, generator: np.random.Generator) -> bytes:
    if not content:
        return content
    at = int(generator.integers(len(content)))
    return content[:at] + bytes([content[at] ^ 1 << int(generator.integers(8))]) + content[at + 1 :]


def _overwrite(content: bytes, generator: np.random.Generator) -> bytes:
    at, length = _place(content, generator), int(generator.integers(1, 32))
    return content[:at] + generator.bytes(length) + content[at + length :]


def _insert(content: bytes, generator: np.random.Generator) -> bytes:
    at = _place(content, generator)
    return content[:at] + _TOKENS[int(generator.integers(len(_TOKENS)))] + content[at:]


def _remove(content: bytes, generator: np.random.Generator) -> bytes:
    at, length = _place(content, generator), int(generator.integers(1, max(2, len(content) // 4)))
    return content[:at] + content[at + length :]


def _repeat(content: bytes, generator: np.random.Generator) -> bytes:
    first, last = sorted((_place(content, generator), _place(content, generator)))
    return content[:last] + content[first:last] + content[last:]


def _truncate(content: bytes, generator: np.random.Generator) -> bytes:
    return content[: _place(content, generator)]


def _other_number(content: bytes, generator: np.random.Generator) -> bytes:
    found = list(_NUMBER.finditer(content[:100_000]))
    if not found:
        return _insert(content, generator)
    match = found[int(generator.integers(len(found)))]
    token = _TOKENS[int(generator.integers(len(_TOKENS)))]
    return content[: match.start()] + token + content[match.end() :]


_CHANGES = (_flip, _flip, _overwrite, _insert, _remove, _repeat, _truncate, _other_number, _other_number)
