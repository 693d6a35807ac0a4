"""The features of one shard: its images in order, in batches of views that never leave the shard."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trust_cache.base.errors import InputError
from trust_cache.cache.extraction.decoding import Decoded
from trust_cache.cache.extraction.queues import Fetched
from trust_cache.cache.extraction.recipe import Recipe, ShardFiles
from trust_cache.cache.extraction.runner import Runner
from trust_cache.cache.layout import Features, finite_images
from trust_cache.images.failures import Failure


@dataclass(frozen=True)
class EncodedShard:
    """A shard's features on their way to the host, and the images that have none."""

    features: Fetched  # [image, view, dim], float32
    varied: Fetched  # [image]
    failures: tuple[Failure, ...]
    decode_seconds: float


@dataclass(frozen=True)
class FinishedShard:
    """A shard as a cache takes it."""

    features: Features
    present: NDArray[np.bool_]
    failures: tuple[Failure, ...]


def encode_shard(
    shard: ShardFiles, images: Iterator[Decoded], recipe: Recipe, runner: Runner, batch: int, dim: int
) -> EncodedShard:
    """Encode the next images, which are a shard's, in batches of `batch` views.

    An image that failed keeps its places in the batches, filled with zeros: the bits of its neighbours do
    not depend on it.
    """
    rows, count = recipe.views, len(shard.files) * recipe.views
    blank = torch.zeros((1, 1, 1, 1), device=runner.device).expand(rows, 1, *recipe.image_size)
    parts: list[Tensor] = []
    real = False
    outputs, varied, failures, seconds = [], [], [], 0.0
    for number, file in enumerate(shard.files):
        decoded = next(images)
        seconds += decoded.seconds
        views, differs = blank, torch.tensor(True, device=runner.device)
        if decoded.pixels is not None:
            made = runner.views(decoded.pixels, file, recipe)
            views, differs = made.views, made.varied
        elif decoded.error is not None:
            failures.append(Failure(file.image_id, decoded.error.stage, decoded.error.reason))
        varied.append(differs)
        first, end = number * rows, (number + 1) * rows
        while first < end:
            last = min(end, (first // batch + 1) * batch)
            parts.append(views[first - number * rows : last - number * rows])
            real = real or views is not blank
            if last % batch == 0 or last == count:
                outputs.append(_encoded(parts, runner, dim, real=real))
                parts, real = [], False
            first = last
    features = torch.cat(outputs).reshape(len(shard.files), rows, dim)
    fetch = runner.queue.fetch
    return EncodedShard(fetch(features), fetch(torch.stack(varied)), tuple(failures), seconds)


def finish_shard(shard: ShardFiles, encoded: EncodedShard) -> FinishedShard:
    """Wait for a shard's features and turn them into float16, sorting out what is not a number."""
    with np.errstate(over="ignore", under="ignore"):  # infinities are looked for, tiny values become zero
        features = encoded.features.wait().astype(np.float16)
    failed = {failure.image_id: failure for failure in encoded.failures}
    for file, varied, finite in zip(shard.files, encoded.varied.wait(), finite_images(features), strict=True):
        if file.image_id in failed:
            continue
        if not varied:
            reason = "the image is constant at the encoder's size"
            failed[file.image_id] = Failure(file.image_id, "intensity", reason)
        elif not finite:
            reason = "the encoder's features are NaN, infinite or beyond float16's 65,504"
            failed[file.image_id] = Failure(file.image_id, "encode", reason)
    present = np.array([file.image_id not in failed for file in shard.files])
    return FinishedShard(features, present, tuple(failed.values()))


def _encoded(parts: list[Tensor], runner: Runner, dim: int, *, real: bool) -> Tensor:
    count = sum(part.shape[0] for part in parts)
    if not real:
        return torch.zeros((count, dim), device=runner.device)
    features = runner.encode(runner.together(parts))
    if features.shape != (count, dim):
        raise InputError(
            f"encoder: expected {dim} features of each of {count} views, found {tuple(features.shape)}"
        )
    return features
