"""Features made elsewhere (.npy, .npz) become a cache; their origin is the file's digest."""

import hashlib
import io
import math
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.base.tables import read_text_table
from trust_cache.cache.backends import Source
from trust_cache.cache.columns import REQUIRED, canonical_manifest
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.cache.layout import SHARD_IMAGES, finite_images
from trust_cache.cache.reading import Cache, open_cache, shown
from trust_cache.cache.writer import create_cache

KEY = "features"
_ZIP = b"PK"  # how an .npz file starts
_MOST_NUMBERS = 1 << 24  # an image: far above every encoder, and no bomb


def import_features(
    features: Path,
    manifest: Path,
    out: Source,
    *,
    encoder: str | None = None,
    shard_images: int = SHARD_IMAGES,
) -> Cache:
    """Make a cache of an array [image, dim] or [image, view, dim] and a manifest with rows in its order.

    Two imported caches count as made by one encoder only if the caller says so by the same `encoder`:
    the files cannot tell. Values outside float16's range are refused.
    """
    table = canonical_manifest(read_text_table(manifest, REQUIRED), str(manifest))
    array = _read_array(features, table.height, str(manifest))
    _refuse_out_of_range(array, table["image_id"].to_list(), features)
    fingerprint = _fingerprint(_file_sha256(features), encoder)
    with create_cache(out, table, array.shape[1], array.shape[2], fingerprint, shard_images) as writer:
        for shard in range(writer.layout.shards):
            writer.write_shard(shard, _half(array[slice(*writer.layout.bounds(shard))]))
    return open_cache(out)


def _read_array(path: Path, images: int, manifest: str) -> NDArray[Any]:
    try:
        shape = _shape_of(path)
        if len(shape) not in (2, 3) or 0 in shape:
            raise InputError(f"{path}: expected features [image, dim] or [image, view, dim], found {shape}")
        if shape[0] != images:
            raise InputError(
                f"{path}: expected features of {images} images, one for each row of {manifest},"
                f" found {shape[0]}"
            )
        if math.prod(shape[1:]) > _MOST_NUMBERS:
            raise InputError(f"{path}: expected at most {_MOST_NUMBERS} numbers an image, found {shape[1:]}")
        array = _open_array(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a readable .npy or .npz file of numbers ({error})") from error
    if array.dtype.kind != "f":
        raise InputError(f"{path}: expected floating-point features, found {array.dtype}")
    return array[:, np.newaxis, :] if array.ndim == 2 else array  # noqa: PLR2004


def _shape_of(path: Path) -> tuple[int, ...]:
    """Return the shape that the file says its array has, before anything of it is unpacked."""
    with path.open("rb") as file:
        if file.read(len(_ZIP)) != _ZIP:
            return _header_shape(file)
        with zipfile.ZipFile(file) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            if KEY not in names:
                raise InputError(f"{path}: expected an array {KEY!r}, found {', '.join(names) or 'none'}")
            with archive.open(f"{KEY}.npy") as member:
                return _header_shape(member)


def _header_shape(file: IO[bytes]) -> tuple[int, ...]:
    if isinstance(file, io.BufferedReader):
        file.seek(0)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it holds pickled objects, which could run any code")
    return tuple(shape)


def _open_array(path: Path) -> NDArray[Any]:
    """Map an .npy file or read the array of an .npz file; never unpickle, which would run any code."""
    with path.open("rb") as file:
        if file.read(len(_ZIP)) != _ZIP:
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            return np.asarray(arrays[KEY])


def _half(block: NDArray[Any]) -> NDArray[np.float16]:
    with np.errstate(over="ignore", under="ignore"):  # infinities are looked for, tiny values may become zero
        return np.ascontiguousarray(block, dtype=np.float16)


def _refuse_out_of_range(array: NDArray[Any], names: list[str], path: Path) -> None:
    wrong: list[str] = []
    for first in range(0, array.shape[0], SHARD_IMAGES):
        finite = finite_images(_half(array[first : first + SHARD_IMAGES]))
        wrong += [names[first + image] for image in np.flatnonzero(~finite)]
    if wrong:
        raise InputError(
            f"{path}: features of {len(wrong)} images are NaN, infinite or beyond float16's 65,504"
            f" ({shown(wrong)})"
        )


def _fingerprint(sha256: str, encoder: str | None) -> Fingerprint:
    return Fingerprint(
        encoder="imported" if encoder is None else f"imported {encoder}",
        weights_sha256=f"features {sha256}" if encoder is None else "",
        image_size=None,
        preprocessing="external",
        standardisation="external",
        precision="float16",
        view_settings=f"imported from a file with sha256 {sha256}",
        seed=0,
        decoder="external",
    )


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
