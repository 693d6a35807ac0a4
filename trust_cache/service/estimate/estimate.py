"""An extraction estimated: size and time together, in figures and in words."""

from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from trust_cache.cache.encoder import DEFAULT_ENCODER
from trust_cache.cache.extraction.settings import ExtractSettings, parse_image_size
from trust_cache.service.estimate.size import CacheSize, estimate_size
from trust_cache.service.estimate.timing import Timing, describe_cache, measure


@dataclass(frozen=True)
class Estimate:
    """What an extraction takes."""

    size: CacheSize
    timing: Timing


def estimate_extraction(
    manifest: Path,
    views: int,
    *,
    weights: str = "random",
    encoder: str | None = None,
    device: str = "auto",
    image_size: str = "1520x912",
) -> Estimate:
    """Compute the size of the cache and measure how long it takes to fill."""
    settings = ExtractSettings(
        weights=weights,
        encoder=encoder or DEFAULT_ENCODER,
        views=views,
        image_size=parse_image_size(image_size),
        device=device,
    )
    identity, fingerprint = describe_cache(manifest, settings)
    size = estimate_size(manifest, views, dim=identity.dim, fingerprint=fingerprint)
    return Estimate(size, measure(manifest, settings))


def as_document(found: Estimate) -> dict[str, Any]:
    """Return the estimate as one JSON document."""
    size = asdict(found.size) | {"total": found.size.total}
    return {"size": size, "timing": asdict(found.timing) | {"seconds": found.timing.seconds}}


def sentences(found: Estimate) -> list[str]:
    """Say the estimate in words."""
    size, timing = found.size, found.timing
    text = [
        f"The cache of {size.images:,} images with {size.views} augmented views takes"
        f" {size.total / 1e9:.3f} GB ({size.total:,} bytes).",
        f"Extracting it on {timing.device} takes about {_duration(timing.seconds)}:"
        f" {timing.encode_per_view * 1e3:.1f} ms a view, {timing.decode_per_image * 1e3:.1f} ms to decode an"
        f" image on one of {timing.decoding_threads} threads, measured with {timing.sample} images.",
    ]
    if timing.preprocess_per_image is not None:
        cores = timing.images * timing.preprocess_per_image
        text.append(
            f"Preprocessing the DICOM files before takes {timing.preprocess_per_image * 1e3:.0f} ms an image"
            f" on one core, about {_duration(cores)} in all, divided by the cores at work."
        )
    return text


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=max(1, round(seconds))))
