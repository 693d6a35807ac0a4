"""Is a cache still what was written? Every damage that can be told from its own marks and digests."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from trust_cache.base.errors import InputError
from trust_cache.base.places import RefusedError
from trust_cache.cache.backends import Source
from trust_cache.cache.layout import DIGEST_BYTES, finite_images
from trust_cache.cache.reading import (
    Cache,
    lacking_images,
    open_cache,
    read_checked_shard,
    read_manifest,
    shown,
)
from trust_cache.cache.store import DamagedError


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a cache.

    kind: unreadable, link, manifest, unfinished, lacking, deleted, truncated, index, checksum, marks,
    not-finite.
    """

    kind: str
    sentence: str
    shard: int | None = None


def verify_cache(source: Source | Cache, threads: int | None = None) -> list[Problem]:
    """Read a whole cache and return what is wrong with it: an empty list if nothing is."""
    try:
        cache = source if isinstance(source, Cache) else open_cache(source)
        image_ids = read_manifest(cache.store)["image_id"].to_list()
    except InputError as error:
        return [Problem(_kind(error), str(error))]
    problems = _of_manifest(cache)
    try:
        problems += _of_marks(cache, image_ids)
    except InputError as error:
        return [*problems, Problem(_kind(error), str(error))]
    with ThreadPoolExecutor(threads or min(8, os.cpu_count() or 1)) as pool:
        done = np.flatnonzero(cache.shards_done).tolist()
        for found in pool.map(lambda shard: _of_shard(cache, shard, image_ids), done):
            problems += found
    return problems


def _of_manifest(cache: Cache) -> list[Problem]:
    try:
        _ = cache.manifest
    except InputError as error:
        return [Problem("manifest", str(error))]
    return []


def _of_marks(cache: Cache, image_ids: list[str]) -> list[Problem]:
    problems, layout = [], cache.layout
    pending = np.flatnonzero(~cache.shards_done)
    if pending.size:
        images = [name for shard in pending for name in image_ids[slice(*layout.bounds(int(shard)))]]
        sentence = (
            f"{cache.source}: {pending.size} of {layout.shards} shards are not marked done;"
            f" {len(images)} images have no features ({shown(images)})"
        )
        problems.append(Problem("unfinished", sentence))
    lacking = [image_ids[image] for image in lacking_images(cache)]
    if lacking:
        sentence = f"{cache.source}: {len(lacking)} images have no features by their marks ({shown(lacking)})"
        problems.append(Problem("lacking", sentence))
    presence = cache.marks[:, DIGEST_BYTES:].reshape(-1)
    if presence.max(initial=0) > 1 or presence[layout.images :].any():
        problems.append(Problem("marks", f"{cache.source}: the marks hold values that no writer puts there"))
    return problems


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
    """Return one word for a damage; a store that refuses access is none, and its error goes on."""
    if isinstance(error, RefusedError):
        raise error
    return error.kind if isinstance(error, DamagedError) else "unreadable"
