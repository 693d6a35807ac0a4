"""File names made from names that users chose: inside the folder, distinct on every file system."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

# What Windows forbids, controls, and what would leave the folder.
_UNSAFE = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')
_LONGEST = 120  # bytes; leaves room for a digest and a suffix below the usual limit of 255


def file_stems(names: Iterable[str]) -> dict[str, str]:
    """Map each name to a file name: itself where that is harmless, else escaped with a digest.

    Names that differ only in case would be one file on macOS and Windows: those get the digest too.
    """
    names = list(names)
    folded = Counter(name.casefold() for name in set(names))
    return {name: _stem(name, alone=folded[name.casefold()] == 1) for name in names}


def _stem(name: str, *, alone: bool) -> str:
    safe = _UNSAFE.sub("_", name).strip(" .").encode()[:_LONGEST].decode(errors="ignore")
    if safe == name and alone:
        return name
    return f"{safe}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"
