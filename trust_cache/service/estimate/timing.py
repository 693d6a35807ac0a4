"""How long an extraction takes, from a short measurement on this device with images of the manifest."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.encoder import EncoderIdentity, identify_encoder
from trust_cache.cache.extraction.devices import choose_devices, default_batch
from trust_cache.cache.extraction.identity import make_fingerprint
from trust_cache.cache.extraction.loading import EncoderWords, load_runner
from trust_cache.cache.extraction.origin import read_origin
from trust_cache.cache.extraction.recipe import ImageFile
from trust_cache.cache.extraction.runner import Runner
from trust_cache.cache.extraction.settings import ExtractSettings
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.images.errors import ImageError
from trust_cache.images.grey_png import is_dicom, read_grey_png
from trust_cache.images.png import decode_png, encode_png
from trust_cache.images.process import process_image
from trust_cache.manifest.reading import read_manifest
from trust_cache.manifest.table import ManifestImage

_Value = TypeVar("_Value")

SAMPLE = 5  # images, spread over the manifest
_ENOUGH = 3.0  # seconds of encoding after which nothing more is measured


@dataclass(frozen=True)
class Timing:
    """Seconds of each step, and what an extraction of so many images then takes."""

    device: str
    images: int
    views: int  # augmented ones
    sample: int  # images that were measured
    preprocess_per_image: float | None  # of DICOM files, on one core; None: the files are PNGs
    decode_per_image: float  # of a PNG, on one thread
    encode_per_view: float
    decoding_threads: int

    @property
    def seconds(self) -> float:
        """The extraction: threads decode ahead while the device encodes, so the slower of the two decides."""
        decoding = self.images * self.decode_per_image / self.decoding_threads
        encoding = self.images * (self.views + 1) * self.encode_per_view
        return max(decoding, encoding)


@dataclass(frozen=True)
class _Sampled:
    """One image of the sample, and what it took to get at its pixels."""

    image_id: str
    pixels: NDArray[np.uint16] | NDArray[np.uint8]
    preprocess: float | None
    decode: float


def measure(manifest_path: Path, settings: ExtractSettings) -> Timing:
    """Decode and encode a few images of the manifest and time it."""
    manifest = read_manifest(manifest_path, filled=("path",))
    images = list(manifest.images())
    device = choose_devices(settings.device)[0]
    sample = _sample(images, str(manifest_path))
    words = EncoderWords(settings.weights, settings.encoder, settings.seed, settings.image_size)
    runner = load_runner(words, device, compiled=settings.compiled)
    preprocess = [item.preprocess for item in sample if item.preprocess is not None]
    return Timing(
        device=device,
        images=len(images),
        views=settings.views,
        sample=len(sample),
        preprocess_per_image=float(np.mean(preprocess)) if preprocess else None,
        decode_per_image=float(np.mean([item.decode for item in sample])),
        encode_per_view=_time_encoding(sample, settings, runner, settings.batch or default_batch(device)),
        decoding_threads=settings.decoding_threads(1),
    )


def describe_cache(manifest: Path, settings: ExtractSettings) -> tuple[EncoderIdentity, Fingerprint]:
    """Return the encoder that the settings name and the fingerprint that the cache will have."""
    identity = identify_encoder(
        settings.weights, settings.encoder, settings.seed, image_size=settings.image_size
    )
    device = choose_devices(settings.device)[0]
    return identity, make_fingerprint(
        identity, read_origin(manifest), image_size=settings.image_size, seed=settings.seed, device=device
    )


def _sample(images: Sequence[ManifestImage], source: str) -> list[_Sampled]:
    """Return up to SAMPLE usable images, spread over the manifest; one that is broken costs only itself."""
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
    if not is_dicom(path):
        pixels, seconds = _timed(lambda: read_grey_png(str(path)))
        return _Sampled(image.image_id, pixels, None, seconds)
    made, preprocess = _timed(lambda: process_image(path, image.laterality or "L").png_pixels)
    content = encode_png(made)
    decoded, seconds = _timed(lambda: decode_png(content))
    return _Sampled(image.image_id, decoded, preprocess, seconds)


def _time_encoding(
    sample: Sequence[_Sampled], settings: ExtractSettings, runner: Runner, batch: int
) -> float:
    """Return the seconds of a view through resizing, augmentation and the encoder, in extract's batches."""
    # The first pass allocates and chooses algorithms; one view of it tells enough where that takes long.
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
    recipe = replace(settings.recipe, augmented=min(settings.views, batch - 1))
    made = runner.views(torch.from_numpy(item.pixels), ImageFile(item.image_id, ""), recipe)
    runner.encode(made.views).cpu()
    return int(made.views.shape[0])


def _timed(action: Callable[[], _Value]) -> tuple[_Value, float]:
    begin = time.perf_counter()
    value = action()
    return value, time.perf_counter() - begin
