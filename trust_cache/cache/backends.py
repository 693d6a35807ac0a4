"""Which backend a path or URL means, and nothing half-made under its name."""

import os
import shutil
from pathlib import Path
from uuid import uuid4

import polars as pl

from trust_cache.base import places
from trust_cache.base.durable import refusals_in_words, sync, sync_tree
from trust_cache.base.errors import InputError
from trust_cache.base.locks import FileLock
from trust_cache.cache.hdf5_store import Hdf5Store, create_hdf5
from trust_cache.cache.layout import Description
from trust_cache.cache.store import Store, WritableStore
from trust_cache.cache.zarr_store import create_zarr, open_zarr

Source = str | os.PathLike[str]


def is_url(source: Source) -> bool:
    """Tell whether the cache lies behind a URL rather than in the file system."""
    return places.is_url(os.fspath(source))


def open_store(source: Source) -> Store:
    """Open a cache for reading; a file is HDF5, a folder or URL is Zarr."""
    return _open(os.fspath(source), writable=False)


def open_writable_store(source: Source) -> WritableStore:
    """Open a cache for writing; the caller holds its lock or works for the one who does."""
    return _open(os.fspath(source), writable=True)


def lock_of(source: Source) -> FileLock | None:
    """Return the lock of a local cache's writer, a file beside it; none behind a URL."""
    if is_url(source):
        return None
    path = Path(source).absolute()
    return FileLock(path.with_name(f".{path.name}.lock"), os.fspath(source))


def refuse_existing(out: Source) -> None:
    """Refuse a name for a new cache that says no backend or is taken."""
    name = os.fspath(out)
    if is_url(out):
        return
    if Path(name).suffix not in (".zarr", ".h5"):
        raise InputError(f"{name}: expected a name for a cache that ends in .zarr or .h5")
    if Path(name).exists():
        raise InputError(f"{name}: is already there; remove it or choose another name")
    if not Path(name).absolute().parent.is_dir():
        raise InputError(f"{name}: there is no folder {Path(name).absolute().parent} to put it in")


def create_store(out: Source, description: Description, manifest: pl.DataFrame) -> None:
    """Make a cache without features, synced; its name appears when it is whole."""
    name = os.fspath(out)
    if is_url(out):
        with places.answers_in_words(name):
            try:
                create_zarr(name, description, manifest)
            except (ValueError, FileNotFoundError) as error:  # taken; no such bucket
                raise InputError(
                    f"{name}: cannot make a cache there ({error}); remove what is there or choose another"
                    " place"
                ) from error
        return
    path = Path(name)
    scratch = path.with_name(f".{path.name}.{uuid4().hex}{path.suffix}")
    try:
        with refusals_in_words(name):
            if path.suffix == ".h5":
                create_hdf5(scratch, description, manifest)
                sync(scratch)
            else:
                create_zarr(str(scratch), description, manifest)
                sync_tree(scratch)
            scratch.rename(path)
            sync(path.absolute().parent)
    finally:
        scratch.unlink(missing_ok=True) if scratch.is_file() else shutil.rmtree(scratch, ignore_errors=True)


def _open(source: str, *, writable: bool) -> WritableStore:
    if is_url(source):
        return open_zarr(source, writable=writable)
    if not Path(source).exists():
        raise InputError(f"{source}: there is no such cache")
    if Path(source).is_file():
        return Hdf5Store(source, writable=writable)
    return open_zarr(source, writable=writable)
