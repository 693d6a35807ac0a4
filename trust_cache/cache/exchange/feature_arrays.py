"""Features as an array [image, view, dim] in a .npy or .npz file: the only reader and the only writer."""

import math
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.base.table_files import as_ids
from trust_cache.cache.layout import Features

FEATURES = "features"  # the array of an .npz file
IMAGE_IDS = "image_id"  # the array with the ids of the images in an .npz file
_ZIP = b"PK"  # the start of an .npz file
_MOST_NUMBERS = 1 << 24  # per image: more than any encoder makes; more is refused before it is unpacked

_MOST_BYTES = 1 << 30  # of all ids


def read_array(path: Path, name: str, images: int, rows_of: str) -> NDArray[Any]:
    """Map or read an array of so many images, as [image, view, dim]; `rows_of` says what its rows are of."""
    try:
        shape = _shape_of(path, name)
        if len(shape) not in (2, 3) or 0 in shape:
            raise InputError(f"{path}: expected features [image, dim] or [image, view, dim], found {shape}")
        if shape[0] != images:
            raise InputError(
                f"{path}: expected features of {images} images, one for each {rows_of}, found {shape[0]}"
            )
        if math.prod(shape[1:]) > _MOST_NUMBERS:
            raise InputError(f"{path}: expected at most {_MOST_NUMBERS} numbers per image, found {shape[1:]}")
        found = np.load(path, mmap_mode="r", allow_pickle=False)  # unpickling could run any code
        if isinstance(found, np.ndarray):
            array: NDArray[Any] = found
        else:
            with found:
                array = np.asarray(found[name])
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path}: not a readable file of features (.npy, .npz, Parquet or Arrow) ({error})"
        ) from error
    if array.dtype.kind != "f":
        raise InputError(f"{path}: expected floating-point features, found {array.dtype}")
    return array[:, np.newaxis, :] if array.ndim == 2 else array  # noqa: PLR2004


def read_ids(path: Path) -> pl.Series | None:
    """Return the ids of the images in an .npz file, as text; None where the file has none."""
    try:
        if not zipfile.is_zipfile(path):
            return None
        with zipfile.ZipFile(path) as archive:
            name = f"{IMAGE_IDS}.npy"
            if name not in archive.namelist():
                return None
            if archive.getinfo(name).file_size > _MOST_BYTES:
                raise InputError(f"{path}: expected at most {_MOST_BYTES} bytes of {IMAGE_IDS}, found more")
            with archive.open(name) as member:
                ids = np.lib.format.read_array(member, allow_pickle=False)
    except InputError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: not a readable {IMAGE_IDS} in the file ({error})") from error
    if ids.ndim != 1 or ids.dtype.kind not in "USiuf":
        raise InputError(
            f"{path}: expected {IMAGE_IDS} as a list of texts, found {ids.dtype} of shape {ids.shape}"
        )
    if ids.dtype.kind == "S":
        ids = np.char.decode(ids, "utf-8")
    kind = pl.String if ids.dtype.kind == "U" else None
    return as_ids(pl.Series(IMAGE_IDS, ids.tolist(), dtype=kind), str(path))


def _shape_of(path: Path, name: str) -> tuple[int, ...]:
    """Return the shape of the array from the file's header, before anything is unpacked."""
    with path.open("rb") as file:
        if file.read(len(_ZIP)) != _ZIP:
            return _header_shape(file)
        with zipfile.ZipFile(file) as archive:
            names = [member.removesuffix(".npy") for member in archive.namelist()]
            if name not in names:
                raise InputError(
                    f"{path}: expected an array {name!r}, found {', '.join(names) or 'none'}; name one with"
                    " --array"
                )
            with archive.open(f"{name}.npy") as member:
                return _header_shape(member)


def _header_shape(file: IO[bytes]) -> tuple[int, ...]:
    file.seek(0)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it holds pickled objects, which could run any code")
    return tuple(shape)


def write_npy(path: Path, shape: tuple[int, ...], parts: Iterable[Features]) -> None:
    """Write features, part by part, as a .npy file of float16."""
    with path.open("wb") as file:
        _write(file, shape, parts)


def write_npz(
    path: Path, shape: tuple[int, ...], parts: Iterable[Features], image_ids: Sequence[str]
) -> None:
    """Write features, part by part, and the ids of their images as an .npz file."""
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open(f"{FEATURES}.npy", "w", force_zip64=True) as member:
            _write(member, shape, parts)
        with archive.open(f"{IMAGE_IDS}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, np.array(image_ids), allow_pickle=False)


def _write(file: IO[bytes], shape: tuple[int, ...], parts: Iterable[Features]) -> None:
    header = {"descr": "<f2", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    for part in parts:
        file.write(np.ascontiguousarray(part, dtype="<f2").tobytes())
