"""Digests of content, not of files: the same sorted rows give the same digest everywhere."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import islice

_ROWS_AT_ONCE = 50_000  # bounds the memory of the text under way


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
