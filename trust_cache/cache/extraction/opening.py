"""Opening the cache of an extraction: a new one, or the one to go on with, told apart by itself."""

import os
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from trust_cache.base.errors import InputError
from trust_cache.base.places import list_names
from trust_cache.cache.backends import Source, is_url, refuse_existing
from trust_cache.cache.extraction.records import Record, read_record, write_record
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.cache.layout import SHARD_IMAGES
from trust_cache.cache.writer import CacheWriter, create_cache, resume_cache


@dataclass(frozen=True)
class Plan:
    """The cache that is wanted; `record` says how it would be made if it were new."""

    out: Source
    manifest: pl.DataFrame
    views: int  # stored ones, the clean one included
    dim: int
    fingerprint: Fingerprint
    shard_images: int | None
    record: Record


@dataclass(frozen=True)
class Opened:
    """The cache's writer, how it is made, and remarks on what differs from the command."""

    writer: CacheWriter
    record: Record
    remarks: tuple[str, ...]


def exists(out: Source) -> bool:
    """Tell whether there is something under a cache's name already."""
    return bool(list_names(os.fspath(out))) if is_url(out) else Path(out).exists()


def open_or_create(plan: Plan) -> Opened:
    """Make the cache, or open the one that is there if it is the same work; hold its lock."""
    if not exists(plan.out):
        try:
            return _create(plan)
        except InputError:
            if not exists(plan.out):  # otherwise another process has just made it and says who it is
                raise
    return _resume(plan)


def _create(plan: Plan) -> Opened:
    refuse_existing(plan.out)
    writer = create_cache(
        plan.out, plan.manifest, plan.views, plan.dim, plan.fingerprint, plan.shard_images or SHARD_IMAGES
    )
    try:
        write_record(plan.out, plan.record)
    except BaseException:
        writer.close()
        raise
    return Opened(writer, plan.record, ())


def _resume(plan: Plan) -> Opened:
    writer = resume_cache(plan.out, plan.manifest, plan.fingerprint)
    try:
        _require_same_views(plan, writer)
        found = read_record(plan.out)
        if found is None:
            write_record(plan.out, plan.record)
        return Opened(writer, found or plan.record, tuple(_differences(plan, writer, found)))
    except BaseException:
        writer.close()
        raise


def _require_same_views(plan: Plan, writer: CacheWriter) -> None:
    found = writer.layout.views
    if found != plan.views:
        raise InputError(
            f"{plan.out}: expected {plan.views - 1} augmented views of each image, found {found - 1};"
            f" go on with --views {found - 1} or choose another --out"
        )


def _differences(plan: Plan, writer: CacheWriter, found: Record | None) -> list[str]:
    """Say what the command asked for and does not get: the cache goes on as it began."""
    pairs = []
    if found is not None:
        names = ("batch", "threads", "compiled")
        pairs = [(name, getattr(plan.record, name), getattr(found, name)) for name in names]
    if plan.shard_images is not None:
        pairs.append(("shard-images", plan.shard_images, writer.layout.shard_images))
    return [
        f"{plan.out}: goes on with {name} {began} as it began, not {asked}"
        for name, asked, began in pairs
        if asked != began
    ]
