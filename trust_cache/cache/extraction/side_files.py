"""Files that go with a cache: inside a `.zarr` folder (or URL), beside an `.h5` file under its name."""

import os
from pathlib import Path

from trust_cache.base.files import write_file
from trust_cache.cache.backends import Source, is_url


def side_place(cache: Source, name: str) -> str:
    """Return where a file of this name lies for a cache."""
    place = os.fspath(cache)
    if is_url(cache):
        return f"{place.rstrip('/')}/{name}"
    return f"{place}.{name}" if Path(place).suffix == ".h5" else str(Path(place) / name)


def write_side_file(cache: Source, name: str, content: bytes) -> None:
    """Write such a file, whole or not at all."""
    place = side_place(cache, name)
    if is_url(cache):
        import fsspec  # type: ignore[import-untyped]  # noqa: PLC0415 (only who uses URLs has it)

        with fsspec.open(place, "wb") as file:
            file.write(content)
    else:
        write_file(Path(place), content)


def read_side_file(cache: Source, name: str) -> bytes | None:
    """Return what is in such a file, or nothing where there is none."""
    place = side_place(cache, name)
    try:
        if is_url(cache):
            import fsspec  # noqa: PLC0415 (as above)

            with fsspec.open(place, "rb") as file:
                return bytes(file.read())
        return Path(place).read_bytes()
    except FileNotFoundError:
        return None
