"""Find the store of a cache by its path or URL, open it, and create new ones atomically."""

import os
import shutil
from pathlib import Path
from uuid import uuid4

import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.base.files import refusals_in_words, sync, sync_tree
from trust_cache.base.locks import FileLock
from trust_cache.base.places import answers_in_words, is_url, join, redacted, refuse_place
from trust_cache.cache.hdf5_store import HDF5
from trust_cache.cache.layout import CacheDescription, Layout
from trust_cache.cache.store import Backend, WritableStore
from trust_cache.cache.zarr_store import ZARR

Source = str | os.PathLike[str]
EXTRACTION = "extraction.json"  # a file that goes with a cache: how its features are made

# The first holds the caches behind URLs, and folders whose names say nothing.
BACKENDS: tuple[Backend, ...] = (
    ZARR,
    HDF5,
)


def backend_of(source: Source) -> Backend:
    """Return the backend of a path or URL: by its suffix, else by whether it is a file or a folder."""
    if is_url(source):
        return BACKENDS[0]
    path = Path(source)
    named = [backend for backend in BACKENDS if backend.suffix == path.suffix]
    choices = (*named, *BACKENDS)
    if not path.exists():
        return choices[0]
    return next(backend for backend in choices if backend.is_file == path.is_file())


def open_store(source: Source, *, writable: bool = False) -> WritableStore:
    """Open a cache; whoever writes holds its lock or is a worker of the process that does."""
    require_place(source)
    return backend_of(source).open(os.fspath(source), writable)


def require_place(source: Source) -> None:
    """Refuse a place where a cache cannot be, or a path where nothing is."""
    refuse_place(source)
    if not is_url(source) and not Path(source).exists():
        raise InputError(f"{source}: there is no such cache")


def companion(source: Source, name: str) -> str:
    """Return the place of a file that goes with a cache: in its folder, or beside a cache that is a file."""
    place = os.fspath(source)
    return f"{place}.{name}" if backend_of(source).is_file else join(place, name)


def lock_of(source: Source) -> FileLock | None:
    """Return the lock of a local cache's writer, a file beside it; None behind a URL."""
    if is_url(source):
        return None
    path = Path(source).absolute()
    return FileLock(path.with_name(f".{path.name}.lock"), os.fspath(source))


def refuse_existing(out: Source) -> None:
    """Refuse a name for a new cache that names no backend or is taken."""
    if is_url(out):
        return
    path, suffixes = Path(out), [backend.suffix for backend in BACKENDS]
    if path.suffix not in suffixes:
        raise InputError(f"{out}: expected a name for a cache that ends in {' or '.join(suffixes)}")
    if path.exists():
        raise InputError(f"{out}: is already there; remove it or choose another name")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{out}: there is no folder {path.absolute().parent} to put it in")


def create_store(out: Source, layout: Layout, description: CacheDescription, manifest: pl.DataFrame) -> None:
    """Create a cache without features and sync it; its name appears when it is complete."""
    name, backend = os.fspath(out), backend_of(out)
    if is_url(out):
        refuse_place(out)
        with answers_in_words(name):
            try:
                backend.create(name, layout, description, manifest)
            except (ValueError, FileNotFoundError) as error:  # taken; no such bucket
                hint = "remove what is there or choose another place"
                message = f"{name}: cannot make a cache there ({error}); {hint}"
                raise InputError(redacted(message)) from error
        return
    path = Path(name)
    scratch = path.with_name(f".{path.name}.{uuid4().hex}{path.suffix}")
    try:
        with refusals_in_words(name):
            backend.create(str(scratch), layout, description, manifest)
            sync(scratch) if backend.is_file else sync_tree(scratch)
            scratch.rename(path)
            sync(path.absolute().parent)
    finally:
        scratch.unlink(missing_ok=True) if scratch.is_file() else shutil.rmtree(scratch, ignore_errors=True)
