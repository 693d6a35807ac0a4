"""The functions of the commands that run an encoder: weights, extract and triage."""

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
from trust_cache.clinic import triage as triaging
from trust_cache.encoders import convert_weights as conversion
from trust_cache.encoders.recipe import DEFAULT_ENCODER, GivenRecipe, Size, read_recipe
from trust_cache.images.decoding.decode import IMAGECODECS


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

    Takes the released archives of Mammo-CLIP (B5 and B2) and Mammo-FM, a state dict of efficientnet_pytorch,
    or, with the name of the timm model as `encoder`, its weights.
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
    image_size: Size | None = None,
    recipe: GivenRecipe = None,
    seed: int = 0,
    device: str = "auto",
    runtime: str = "auto",
    decoder: str = IMAGECODECS,
    keep_pictures: Path | str | None = None,
    cluster: Cluster | None = None,
    allow_urls: bool = False,
    on_start: Callable[[ExtractionStart], None] = lambda _start: None,
    on_shard: OnShard = lambda _report: None,
    **speed: Any,
) -> ExtractResult:
    """Encode the images of a manifest (DICOM files or PNGs) into a cache: a clean and some augmented views.

    `weights` is a file of `convert_weights`, the folder of a Hugging Face model (with the encoder
    `huggingface`), or the word `random`. `image_size` (height, width) and `recipe` (a TOML file or a mapping)
    replace keys of the encoder's own recipe. `runtime` is torch, openvino or auto: OpenVINO on a processor
    where it is installed, or the one of a cache that is resumed. An existing cache is resumed if everything
    that affects features is the same. `decoder` and `keep_pictures` (a folder for their PNGs) are for DICOM
    files. `speed` are shard_images, batch, workers, processes and compiled. Needs
    `trust-cache[extract]`.

    Examples:
        >>> import trust_cache as tc
        >>> made = tc.synthesize_images("rsna", 1, "few")
        >>> _ = tc.build_manifest("rsna", made.metadata, "few.csv", images="few")
        >>> small = {"image_size": (38, 23), "views": 0, "runtime": "torch"}
        >>> tc.extract("few.csv", "few.zarr", weights="random", **small).cache.dim
        2048
    """
    settings = ExtractSettings(
        weights=str(weights), encoder=encoder, views=views, image_size=image_size,
        recipe=read_recipe(recipe), seed=seed, device=device, runtime=runtime, decoder=decoder,
        keep_pictures=None if keep_pictures is None else str(keep_pictures), **speed,
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


@dataclass(frozen=True, repr=False)
class TriageResult(Result, triaging.Triage):
    """A worklist: one row per case, with the test for drift and the warnings."""

    def to_polars(self) -> pl.DataFrame:
        """Return the rows of the worklist."""
        return pl.DataFrame([asdict(row) for row in self.rows], infer_schema_length=None)

    def _lines(self) -> Iterator[str]:
        dismissed = sum(row.decision == "dismiss" for row in self.rows)
        yield f"Worklist {self.out}: {len(self.rows):,} cases, {dismissed:,} dismiss"
        yield f"{self.failed:,} cases with an image that could not be scored"
        if self.counts is not None:
            yield f"the folder has {self.counts.sentence}"
        yield "research tool, not a medical device"


def triage(
    dicoms: Path | str,
    model: Path | str,
    out: Path | str,
    *,
    manifest: Path | str | None = None,
    weights: str | None = None,
    uncertified: bool = False,
    device: str = "auto",
    runtime: str = "auto",
    workers: int | None = None,
    audit: float | None = None,
    audit_key: Path | str | None = None,
    expired: bool = False,
    history: Path | str | None = None,
    on_start: Callable[[int, int], None] = lambda _cases, _resumed: None,
    advance: Callable[[], None] = lambda: None,
) -> TriageResult:
    """Score new cases with a model and write a worklist: dismiss, audit or review.

    A research tool, not a medical device. `dicoms` is a folder of DICOM files, of which every entry is
    accounted for (`counts`), or a manifest of them. A case with a failed, missing or unexpected image, with
    implausible pixels or with features unlike those of the fitting cases is never dismissed. `audit` is the
    share of dismissed cases that is drawn by a key to be read anyway. The encoder may run in another
    `runtime` than the model was made with if it gives the same features of the model's probe. Needs
    `trust-cache[extract]`.
    """
    settings = triaging.TriageSettings(
        weights=weights,
        uncertified=uncertified,
        device=device,
        runtime=runtime,
        workers=workers,
        audit=audit,
        audit_key=None if audit_key is None else Path(audit_key),
        expired=expired,
        history=None if history is None else Path(history),
    )
    done = triaging.triage(
        Path(dicoms),
        Path(model),
        Path(out),
        settings,
        manifest=None if manifest is None else Path(manifest),
        on_start=on_start,
        advance=advance,
    )
    return lifted(TriageResult, done)
