"""Files that go with a cache: inside a `.zarr` folder (or URL), beside an `.h5` file under its name."""

import os
from pathlib import Path

from trust_cache.base.places import join, read_bytes, write_bytes
from trust_cache.cache.backends import Source, is_url


def side_place(cache: Source, name: str) -> str:
    """Return where a file of this name lies for a cache."""
    place = os.fspath(cache)
    beside = not is_url(cache) and Path(place).suffix == ".h5"
    return f"{place}.{name}" if beside else join(place, name)


def write_side_file(cache: Source, name: str, content: bytes) -> None:
    """Write such a file, whole or not at all."""
    write_bytes(side_place(cache, name), content)


def read_side_file(cache: Source, name: str) -> bytes | None:
    """Return what is in such a file, or nothing where there is none."""
    try:
        return read_bytes(side_place(cache, name))
    except FileNotFoundError:
        return None
