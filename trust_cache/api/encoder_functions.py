"""The functions of the commands weights and extract."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from trust_cache.api.result import Result, lifted
from trust_cache.base.executor import Cluster
from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.cache.extract.extract import ExtractionStart, ExtractRun
from trust_cache.cache.extract.extract import extract as extract_all
from trust_cache.cache.extract.extraction_plan import ExtractSettings
from trust_cache.cache.extract.shard_work import OnShard
from trust_cache.encoders import convert_weights as conversion
from trust_cache.encoders.encoder import IMAGE_SIZE
from trust_cache.encoders.known_encoders import DEFAULT_ENCODER


@dataclass(frozen=True, repr=False)
class WeightsResult(Result, conversion.Conversion):
    """Converted weights: their record, digest and notes."""

    def to_polars(self) -> pl.DataFrame:
        """Return one row per fact of the record."""
        facts = [(name, str(value)) for name, value in self.record.as_document().items()]
        return pl.DataFrame(facts, schema=["fact", "value"], orient="row")

    def _lines(self) -> Iterator[str]:
        yield f"{self.tensors} tensors of {self.record.encoder}, padding {self.record.padding}"
        yield f"sha256 {self.sha256}"
        yield from self.notes


def convert_weights(checkpoint: Path | str, out: Path | str, *, encoder: str | None = None) -> WeightsResult:
    """Convert a checkpoint to safetensors, without running any code in it. Needs `trust-cache[extract]`.

    Takes Mammo-CLIP's released archive, a state dict of efficientnet_pytorch's B5, or, with the name of the
    timm model as `encoder`, its weights.
    """
    return lifted(WeightsResult, conversion.convert_weights(checkpoint, out, encoder=encoder))


@dataclass(frozen=True, repr=False)
class ExtractResult(Result, ExtractRun):
    """A cache that was extracted: counts, failures and the time it took."""

    @property
    def cache(self) -> Cache:
        """The cache, opened."""
        return open_cache(self.out)

    def to_polars(self) -> pl.DataFrame:
        """Return the failed images, with the columns of the cache's failures.csv."""
        names = dict.fromkeys(("image_id", "stage", "reason"), pl.String)
        return pl.DataFrame([asdict(failure) for failure in self.failures], schema=names)

    def _lines(self) -> Iterator[str]:
        layout = self.layout
        yield f"Cache {self.out}: {self.images_done:,} of {layout.images:,} images"
        yield f"1 clean + {layout.views - 1} augmented views, {layout.dim} features"
        yield from (f"failed: {item.image_id}, {item.reason}" for item in self.failures)


def extract(
    manifest: Path | str,
    out: Path | str,
    *,
    weights: Path | str,
    encoder: str = DEFAULT_ENCODER,
    views: int = 8,
    image_size: tuple[int, int] = IMAGE_SIZE,
    seed: int = 0,
    device: str = "auto",
    cluster: Cluster | None = None,
    allow_urls: bool = False,
    on_start: Callable[[ExtractionStart], None] = lambda _start: None,
    on_shard: OnShard = lambda _report: None,
    **speed: Any,
) -> ExtractResult:
    """Encode the PNGs of a manifest into a cache: one clean and some augmented views of each image.

    `weights` is a file of `convert_weights`, or the word `random`. An existing cache is resumed if everything
    that affects features is the same. `speed` are shard_images, batch, workers, processes and compiled. Needs
    `trust-cache[extract]`.

    Examples:
        >>> import trust_cache as tc
        >>> made = tc.synthesize_images("rsna", 1, "few")
        >>> _ = tc.build_manifest("rsna", made.metadata, "few.csv", images="few")
        >>> _ = tc.preprocess("few.csv", "few-png", workers=1)
        >>> small = {"image_size": (38, 23), "views": 0}
        >>> tc.extract("few-png/manifest.csv", "few.zarr", weights="random", **small).cache.dim
        2048
    """
    settings = ExtractSettings(
        weights=str(weights), encoder=encoder, views=views, image_size=image_size, seed=seed, device=device,
        **speed,
    )  # fmt: skip
    run = extract_all(
        manifest,
        out,
        settings,
        cluster=cluster,
        allow_urls=allow_urls,
        on_start=on_start,
        on_shard=on_shard,
    )
    return lifted(ExtractResult, run)
