"""Features made elsewhere (.npy, .npz) become a cache; their origin is the file's digest."""

import hashlib
import zipfile
from pathlib import Path
from typing import Any

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
    array = _read_array(features)
    table = canonical_manifest(read_text_table(manifest, REQUIRED), str(manifest))
    if table.height != array.shape[0]:
        raise InputError(
            f"{features}: expected features of {table.height} images, one for each row of {manifest},"
            f" found {array.shape[0]}"
        )
    _refuse_out_of_range(array, table["image_id"].to_list(), features)
    fingerprint = _fingerprint(_file_sha256(features), encoder)
    with create_cache(out, table, array.shape[1], array.shape[2], fingerprint, shard_images) as writer:
        for shard in range(writer.layout.shards):
            writer.write_shard(shard, _half(array[slice(*writer.layout.bounds(shard))]))
    return open_cache(out)


def _read_array(path: Path) -> NDArray[Any]:
    try:
        array = _open_array(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a readable .npy or .npz file of numbers ({error})") from error
    if array.dtype.kind != "f":
        raise InputError(f"{path}: expected floating-point features, found {array.dtype}")
    shape = array.shape
    if array.ndim == 2:  # noqa: PLR2004
        array = array[:, np.newaxis, :]
    if array.ndim != 3 or 0 in array.shape:  # noqa: PLR2004
        raise InputError(f"{path}: expected features [image, dim] or [image, view, dim], found {shape}")
    return array


def _open_array(path: Path) -> NDArray[Any]:
    """Map an .npy file or read the array of an .npz file; never unpickle, which would run any code."""
    with path.open("rb") as file:
        if file.read(len(_ZIP)) != _ZIP:
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            if KEY not in arrays.files:
                raise InputError(
                    f"{path}: expected an array {KEY!r}, found {', '.join(arrays.files) or 'none'}"
                )
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
