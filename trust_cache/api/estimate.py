"""Estimate the size of a cache and the time that its extraction takes."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from trust_cache.api.cache_size import CacheSize, estimate_size
from trust_cache.api.result import Result
from trust_cache.base.errors import InputError
from trust_cache.base.text_tables import describe_views
from trust_cache.cache.extract.extraction_plan import ExtractSettings, holds_dicoms, parse_image_size
from trust_cache.cache.extract.extraction_record import read_origin
from trust_cache.cache.extract.view_features import Runner, load_runner, make_fingerprint
from trust_cache.cache.views import decide_views
from trust_cache.encoders.known_encoders import RANDOM
from trust_cache.encoders.known_runtimes import AUTO, choose_runtime
from trust_cache.encoders.recipe import DEFAULT_ENCODER, GivenRecipe, read_recipe
from trust_cache.encoders.torch_runtime import choose_devices, default_batch
from trust_cache.images.image_failures import ImageError
from trust_cache.images.picture import process_image
from trust_cache.images.png_files import decode_png, encode_png, read_grey_png, starts_as_dicom
from trust_cache.manifest.manifest_file import ManifestImage, read_manifest

SAMPLE = 5  # images, spread over the manifest
_ENOUGH = 3.0  # seconds of encoding after which nothing more is measured
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Timing:
    """The seconds of each step, and of the whole extraction."""

    device: str
    runtime: str  # of the encoder, with its version
    images: int
    views: int  # augmented ones
    sample: int  # images that were measured
    preprocess_per_image: float | None  # of DICOM files, on one core; None: the files are PNGs
    decode_per_image: float  # of a PNG, on one thread
    encode_per_view: float
    decoding_workers: int  # threads for PNGs, processes for DICOM files

    @property
    def seconds(self) -> float:
        """The extraction: workers decode while the device encodes, so the slower of the two decides."""
        decode = self.decode_per_image if self.preprocess_per_image is None else self.preprocess_per_image
        decoding = self.images * decode / self.decoding_workers
        encoding = self.images * (self.views + 1) * self.encode_per_view
        return max(decoding, encoding)


@dataclass(frozen=True)
class _Sampled:
    image_id: str
    pixels: NDArray[np.uint16] | NDArray[np.uint8]
    preprocess: float | None
    decode: float


def _sample(images: Sequence[ManifestImage], source: str) -> list[_Sampled]:
    """Return up to SAMPLE usable images, spread over the manifest; broken ones are skipped."""
    positions = np.unique(np.linspace(0, len(images) - 1, min(SAMPLE, len(images))).astype(int))
    sample, reason = [], ""
    for position in positions:
        try:
            sample.append(_look_at(images[position]))
        except ImageError as error:
            reason = reason or f"{images[position].image_id}: {error}"
    if not sample:
        raise InputError(f"{source}: expected images to measure with, found none usable ({reason})")
    return sample


def _look_at(image: ManifestImage) -> _Sampled:
    path = Path(image.location or "")
    if not starts_as_dicom(str(path)):
        pixels, seconds = _timed(lambda: read_grey_png(str(path)))
        return _Sampled(image.image_id, pixels, None, seconds)
    made, preprocess = _timed(lambda: process_image(path, image.laterality or "L").png_pixels)
    content = encode_png(made)
    decoded, seconds = _timed(lambda: decode_png(content))
    return _Sampled(image.image_id, decoded, preprocess, seconds)


def _time_encoding(
    sample: Sequence[_Sampled], settings: ExtractSettings, runner: Runner, batch: int
) -> float:
    """Return the seconds per view for resizing, augmentation and the encoder, in batches as `extract` has."""
    # The first pass also allocates memory and chooses algorithms; if it is slow, one view of it is enough.
    count, spent = _timed(partial(_encode, sample[0], settings, runner, 1))
    if spent > _ENOUGH:
        return spent / count
    views, seconds = 0, 0.0
    for item in sample:
        count, spent = _timed(partial(_encode, item, settings, runner, batch))
        views, seconds = views + count, seconds + spent
        if seconds > _ENOUGH:
            break
    return seconds / views


def _encode(item: _Sampled, settings: ExtractSettings, runner: Runner, batch: int) -> int:
    """Encode as many of an image's views as fit a batch, wait for the device, and return their number."""
    parameters = decide_views(settings.seed, item.image_id, min(settings.views, batch - 1))
    made = runner.views(torch.from_numpy(item.pixels), parameters)
    runner.encode(made.views).cpu()
    return int(made.views.shape[0])


def _timed(action: Callable[[], _Value]) -> tuple[_Value, float]:
    begin = time.perf_counter()
    value = action()
    return value, time.perf_counter() - begin


@dataclass(frozen=True, repr=False)
class Estimate(Result):
    """The size and time of an extraction."""

    size: CacheSize
    timing: Timing

    def to_polars(self) -> pl.DataFrame:
        """Return one row per number."""
        rows = [
            (part, name, value) for part, found in as_document(self).items() for name, value in found.items()
        ]
        numbers = [(part, name, float(value)) for part, name, value in rows if isinstance(value, int | float)]
        return pl.DataFrame(numbers, schema=["part", "name", "value"], orient="row")

    def _lines(self) -> Iterator[str]:
        yield "Estimate of an extraction"
        yield from sentences(self)


def estimate(
    manifest: Path | str,
    views: int = 8,
    *,
    weights: str = RANDOM,
    encoder: str | None = None,
    device: str = "auto",
    runtime: str = AUTO,
    image_size: str | None = None,
    recipe: GivenRecipe = None,
) -> Estimate:
    """Return the size of a manifest's cache, and how long extraction takes on this device.

    The size is exact for a Zarr cache. The time is measured on a few images of the manifest.
    """
    manifest = Path(manifest)
    settings = ExtractSettings(
        weights=weights,
        encoder=encoder or DEFAULT_ENCODER,
        views=views,
        image_size=parse_image_size(image_size),
        recipe=read_recipe(recipe),
        device=device,
    )
    identity = settings.choice.identify()
    chosen = choose_devices(device)[0]
    runs = choose_runtime(runtime, chosen)
    listed = read_manifest(manifest, filled=("path",))
    dicoms = holds_dicoms(listed, listed.refused(allow_urls=False))
    origin = settings.dicom_origin() if dicoms else read_origin(manifest)
    fingerprint = make_fingerprint(identity, origin, seed=settings.seed, device=chosen, runtime=runs)
    size = estimate_size(manifest, views, dim=identity.dim, fingerprint=fingerprint)
    images = list(listed.images())
    sample = _sample(images, str(manifest))
    runner = load_runner(settings.choice, chosen, runtime=runs)
    preprocess = [item.preprocess for item in sample if item.preprocess is not None]
    timing = Timing(
        device=chosen,
        runtime=runs.words,
        images=len(images),
        views=views,
        sample=len(sample),
        preprocess_per_image=float(np.mean(preprocess)) if preprocess else None,
        decode_per_image=float(np.mean([item.decode for item in sample])),
        encode_per_view=_time_encoding(sample, settings, runner, settings.batch or default_batch(chosen)),
        decoding_workers=settings.picture_source(1, dicoms=dicoms).workers,
    )
    return Estimate(size, timing)


def as_document(found: Estimate) -> dict[str, Any]:
    """Return the estimate as one JSON document."""
    size = asdict(found.size) | {"total": found.size.total}
    return {"size": size, "timing": asdict(found.timing) | {"seconds": found.timing.seconds}}


def sentences(found: Estimate) -> list[str]:
    """Return the estimate in words."""
    size, timing = found.size, found.timing
    return [
        f"The cache of {size.images:,} images with {describe_views(size.views)} takes"
        f" {size.total / 1e9:.3f} GB ({size.total:,} bytes).",
        f"Extracting it on {timing.device} with {timing.runtime} takes about {_duration(timing.seconds)}:"
        f" {timing.encode_per_view * 1e3:.1f} ms per view, {_decoding_words(timing)},"
        f" measured with {timing.sample} images.",
    ]


def _decoding_words(timing: Timing) -> str:
    if timing.preprocess_per_image is None:
        one = f"{timing.decode_per_image * 1e3:.1f} ms to decode an image"
        return f"{one} on one of {timing.decoding_workers} threads"
    one = f"{timing.preprocess_per_image * 1e3:.0f} ms to preprocess a DICOM file"
    return f"{one} in one of {timing.decoding_workers} worker processes"


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=max(1, round(seconds))))
