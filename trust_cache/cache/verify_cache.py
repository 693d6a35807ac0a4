"""Verify a cache against its marks and digests, and summarise it."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from trust_cache.base.errors import InputError, shown
from trust_cache.base.places import RefusedError
from trust_cache.cache.cache_reader import (
    Cache,
    open_cache,
    read_checked_shard,
    read_examined,
    read_manifest,
)
from trust_cache.cache.known_stores import Source
from trust_cache.cache.layout import SCHEMA, finite_images, picture_digests, presence_bytes
from trust_cache.cache.store import DamagedError
from trust_cache.manifest.cases import count_incomplete, find_cases
from trust_cache.manifest.data_terms import describe_terms, terms_of


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a cache.

    kind: unreadable, link, manifest, unfinished, deleted, truncated, index, checksum, marks, not-finite,
    examined.
    """

    kind: str
    sentence: str
    shard: int | None = None


def verify_cache(source: Source | Cache, threads: int | None = None) -> list[Problem]:
    """Read a whole cache and return its problems; an image that was tried and failed is none."""
    try:
        cache = source if isinstance(source, Cache) else open_cache(source)
        image_ids = read_manifest(cache.store)["image_id"].to_list()
    except InputError as error:
        return [Problem(_kind(error), str(error))]
    problems = []
    try:
        _ = cache.manifest
    except InputError as error:
        problems.append(Problem("manifest", str(error)))
    try:
        problems += _of_marks(cache, image_ids)
        problems += _of_examined(cache, image_ids)
    except InputError as error:
        return [*problems, Problem(_kind(error), str(error))]
    with ThreadPoolExecutor(threads or min(8, os.cpu_count() or 1)) as pool:
        done = np.flatnonzero(cache.shards_done).tolist()
        for found in pool.map(lambda shard: _of_shard(cache, shard, image_ids), done):
            problems += found
    return problems


def _of_marks(cache: Cache, image_ids: list[str]) -> list[Problem]:
    problems, layout = [], cache.layout
    pending = np.flatnonzero(~cache.shards_done)
    if pending.size:
        images = [name for shard in pending for name in image_ids[slice(*layout.bounds(int(shard)))]]
        sentence = (
            f"{cache.source}: {pending.size} of {layout.shards} shards are not marked done;"
            f" {len(images)} images are pending ({shown(images)})"
        )
        problems.append(Problem("unfinished", sentence))
    presence = presence_bytes(layout, cache.marks).reshape(-1)
    beyond = picture_digests(layout, cache.marks)[layout.images :]
    if presence.max(initial=0) > 1 or presence[layout.images :].any() or beyond.any():
        problems.append(Problem("marks", f"{cache.source}: the marks hold values that no writer writes"))
    return problems


def _of_examined(cache: Cache, image_ids: list[str]) -> list[Problem]:
    """Name images with features whose row in examined.csv is lost, changed or about another picture."""
    examined = read_examined(cache.source)
    if examined is None:
        return []
    known = {row.image_id: row.picture_blake3 for row in examined}
    rows = zip(image_ids, cache.pictures, cache.done, strict=True)
    lost = [name for name, picture, has in rows if has and known.get(name) != picture.tobytes().hex()]
    if not lost:
        return []
    sentence = (
        f"{cache.source}: examined.csv: expected a row for the picture of each image, found none, a changed"
        f" one or one of another picture for {len(lost)} images ({shown(lost)}). Run the same extract again,"
        " which examines them"
    )
    return [Problem("examined", sentence)]


def _of_shard(cache: Cache, shard: int, image_ids: list[str]) -> list[Problem]:
    try:
        features = read_checked_shard(cache, shard)
    except InputError as error:
        return [Problem(_kind(error), str(error), shard)]
    first, last = cache.layout.bounds(shard)
    wrong = first + np.flatnonzero(cache.done[first:last] & ~finite_images(features))
    if wrong.size:
        names = shown([image_ids[image] for image in wrong])
        sentence = (
            f"{cache.source}: shard {shard}: features of {wrong.size} images are NaN or infinite ({names})"
        )
        return [Problem("not-finite", sentence, shard)]
    return []


def _kind(error: InputError) -> str:
    """Return one word for a problem; refused access is not one, and its error is raised."""
    if isinstance(error, RefusedError):
        raise error
    return error.kind if isinstance(error, DamagedError) else "unreadable"


@dataclass(frozen=True)
class CacheInfo:
    """A summary of a cache."""

    source: str
    backend: str
    schema: int
    images: int
    cases: int
    positive_images: int
    positive_cases: int
    views: int  # stored views, the clean one included
    dim: int
    shard_images: int
    shards: int
    shards_done: int
    images_done: int
    images_pending: int
    images_failed: int  # tried, without features
    pictures_known: int  # images whose picture is known by its digest
    incomplete: int  # cases with a failed image
    incomplete_positives: int
    failed: tuple[str, ...]  # image_ids
    feature_bytes: int
    columns: tuple[str, ...]
    terms: str  # of the data sets of its images
    fingerprint: dict[str, Any]


def cache_info(cache: Cache) -> CacheInfo:
    """Summarise a cache."""
    table, layout = cache.manifest, cache.layout
    labels, lost = find_cases(table).labels, count_incomplete(table, ~cache.failed)
    return CacheInfo(
        source=cache.source,
        backend=cache.store.backend,
        schema=SCHEMA,
        images=layout.images,
        cases=labels.size,
        positive_images=int(table["label"].sum()),
        positive_cases=int(labels.sum()),
        views=layout.views,
        dim=layout.dim,
        shard_images=layout.shard_images,
        shards=layout.shards,
        shards_done=int(cache.shards_done.sum()),
        images_done=int(cache.done.sum()),
        images_pending=int(cache.pending.sum()),
        images_failed=lost.failed_images,
        pictures_known=int(cache.pictures.any(axis=1).sum()),
        incomplete=lost.incomplete,
        incomplete_positives=lost.incomplete_positives,
        failed=tuple(cache.image_ids(cache.failed)),
        feature_bytes=layout.images * layout.image_bytes,
        columns=tuple(table.columns),
        terms=describe_terms(terms_of(table)),
        fingerprint=cache.fingerprint.as_document(),
    )
