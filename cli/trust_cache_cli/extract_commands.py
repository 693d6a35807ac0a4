"""The commands weights and extract."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache_cli.options import (
    AllowUrls,
    AugmentedViews,
    ClusterOptions,
    Decoder,
    Encoder,
    ImageSize,
    Recipe,
    Runtime,
    Seed,
    command,
    command_group,
)
from trust_cache_cli.output import Bar, bar, note, say, warn

if TYPE_CHECKING:
    from trust_cache.cache.extract.extract import ExtractionStart, ExtractRun
    from trust_cache.cache.extract.progress_meter import Meter
    from trust_cache.cache.extract.shard_work import ShardReport


SOME_FAILED = 1
_LOGGER = logging.getLogger("trust_cache.extract")
app = command_group()


@command(
    app,
    "weights b5-model-best-epoch-7.tar --out encoder.safetensors",
    "weights Mammo-FM_BatmanlabTrained_CLIP.tar --encoder mammo-fm --out mammo-fm.safetensors",
    "weights resnet50.safetensors --encoder resnet50 --out resnet50-encoder.safetensors",
)
def weights(
    checkpoint: Annotated[
        Path, typer.Argument(help="An archive of Mammo-CLIP or Mammo-FM, or another checkpoint.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The safetensors file to write.")],
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The encoder that the tensors are for. [found by names and shapes]"
        ),
    ] = None,
) -> None:
    """Convert a checkpoint to safetensors, without running any code in it.

    Takes the released archives of Mammo-CLIP (B5 and B2, told apart by their shapes) and Mammo-FM (by the
    name of its file), a state dict of efficientnet_pytorch, or, with --encoder, a timm model's weights.
    Folders of Hugging Face models need no conversion.
    """
    from trust_cache.encoders.convert_weights import convert_weights

    done = convert_weights(checkpoint, out, encoder=encoder)
    for message in done.notes:
        note(f"note: {message}")
    record = done.record
    say(f"Written to {out}: {done.tensors} tensors of {record.encoder}, padding {record.padding}.")
    say(f"  sha256 of {checkpoint.name}: {record.source_sha256}")
    say(f"  sha256 of {out.name}: {done.sha256}")


@dataclass(frozen=True)
class SpeedOptions:
    """How the work is divided."""

    shard_images: Annotated[
        int | None, typer.Option(metavar="N", help="Images per shard of the cache. [32]")
    ] = None
    batch: Annotated[
        int | None, typer.Option(metavar="N", help="Views per encoder batch. [cuda 16, cpu 4]")
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Threads that read PNGs, or processes that read DICOMs. [cores]"),
    ] = None
    processes: Annotated[
        int | None, typer.Option(metavar="N", help="Number of processes. [one per device]")
    ] = None
    compiled: Annotated[bool, typer.Option("--compile", help="Compile the encoder with torch.")] = False
    runtime: Runtime = "auto"


@command(
    app,
    "extract manifest.csv --weights encoder.safetensors --out cache.zarr --views 8",
    "extract manifest.csv --weights encoder.safetensors --out cache.zarr --device cuda:0,cuda:1",
    "extract manifest.csv --weights encoder.safetensors --out cache.zarr --keep-pictures png/",
    "extract manifest.csv --weights rad-dino/ --encoder huggingface --out cache.zarr",
    "extract manifest.csv --weights resnet50.safetensors --encoder resnet50 --recipe recipe.toml"
    " --out cache.zarr",
    "extract s3://b/png/manifest.csv --weights /nfs/encoder.safetensors --out s3://b/cache.zarr"
    " --scheduler tcp://host:8786 --resources GPU=1",
    "extract png/manifest.csv --weights random --out trial.zarr --image-size 152x92 --views 2",
    "extract png/manifest.csv --weights encoder.safetensors --out cache.zarr --device cpu --runtime openvino",
    kept="finished shards are kept in {out}; the same command resumes",
)
def extract(
    manifest: Annotated[str, typer.Argument(help="A manifest of DICOM files or PNGs; a path or a URL.")],
    weights: Annotated[
        str,
        typer.Option(metavar="FILE", help="A file from `trust-cache weights`, a folder, or the word random."),
    ],
    out: Annotated[
        str, typer.Option(metavar="CACHE", help="The cache to write or to resume; a path or a URL.")
    ],
    speed: SpeedOptions,
    cluster: ClusterOptions,
    views: AugmentedViews = 8,
    encoder: Encoder = None,
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda, or several: cuda:0,cuda:1.")
    ] = "auto",
    image_size: ImageSize = None,
    recipe: Recipe = None,
    seed: Seed = 0,
    decoder: Decoder = "imagecodecs",
    keep_pictures: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Also write the PNGs of DICOM files, as `preprocess` does."),
    ] = None,
    allow_urls: AllowUrls = False,
) -> None:
    """Encode the images of a manifest into a cache: one clean and K augmented views of each.

    DICOM files are preprocessed in worker processes and encoded without PNGs: `preprocess` is not needed. A
    file that ends its process is one failed image.

    Each encoder gets pictures by its own recipe: Mammo-CLIP's constants, timm's configuration of the model,
    or preprocessor_config.json of a Hugging Face folder. --recipe and --image-size replace keys of it. An
    encoder whose recipe is not known is refused with the keys to give.

    Resumes an existing cache if everything that affects features is the same; shards whose pictures changed,
    or that are not as they were written, are made again. Images that fail, or have no picture, are rows
    without features; failures.csv in the cache lists the reasons, and the exit code is then 1. The others are
    finished: `fit-heads` can use the cache. The next start tries the failed ones again.

    PNGs that `preprocess` did not make are examined by the pixel gate; examined.csv in the cache has what was
    found, and `certify --protocol screening` reviews their cases.
    """
    from trust_cache.cache.extract.extract import extract as extract_all
    from trust_cache.cache.extract.extraction_plan import ExtractSettings, parse_image_size
    from trust_cache.encoders.recipe import DEFAULT_ENCODER, read_recipe

    settings = ExtractSettings(
        weights=weights,
        encoder=encoder or DEFAULT_ENCODER,
        views=views,
        image_size=parse_image_size(image_size),
        recipe=read_recipe(recipe),
        seed=seed,
        device=device,
        decoder=decoder,
        keep_pictures=keep_pictures,
        **vars(speed),
    )
    with bar("extracting") as shown:
        progress = _Progress(shown)
        run = extract_all(
            manifest,
            out,
            settings,
            cluster=cluster.cluster(),
            allow_urls=allow_urls,
            on_start=progress.start,
            on_shard=progress.add,
        )
    _say_run(run, progress.meter)


class _Progress:
    """How far the extraction is, how fast, and what takes the time: as a bar, and as lines of a log."""

    meter: "Meter"

    def __init__(self, shown: Bar) -> None:
        self._bar = shown

    def start(self, start: "ExtractionStart") -> None:
        from trust_cache.cache.extract.progress_meter import Meter
        from trust_cache.manifest.manifest_checks import counted

        warn(start.warnings)
        if start.stale.pictures:
            say(f"{counted(start.stale.pictures, 'picture')} changed: made again with the whole shard.")
        if start.stale.damaged:
            say(f"Not as written: {counted(start.stale.damaged, 'shard')}; made again.")
        self.meter = Meter(start.images, start.images_before, start.processes)
        self._bar.start(start.images, start.images_before)

    def add(self, report: "ShardReport") -> None:
        meter = self.meter
        meter.add(report)
        left = duration(meter.seconds_left)
        self._bar.show(meter.done, meter.images, f"{meter.words()}, {left} left")
        _LOGGER.info("%d of %d images, %s, %s left", meter.done, meter.images, meter.words(), left)


def _say_run(run: "ExtractRun", meter: "Meter") -> None:
    from trust_cache.base.text_tables import describe_views
    from trust_cache.cache.cache_reader import failed_warning, open_cache, warned_images
    from trust_cache.manifest.manifest_checks import counted

    if run.identity.random:
        warn([f"{run.out}: random weights: the features are meaningless"])
    say(
        f"Written to {run.out}: {run.images_done:,} of {counted(run.layout.images, 'image')}"
        f" ({run.images_before:,} of them before), {describe_views(run.layout.views - 1)},"
        f" {run.layout.dim} features."
    )
    if run.images_done > run.images_before:
        say(f"{meter.words()}.")
    cache = open_cache(run.out)
    warning = failed_warning(cache)
    if count := warned_images(cache):
        listed = "the column `warning` of the manifest inside"
        warn([f"{run.out}: {counted(count, 'picture')} with a warning of the pixel gate ({listed})"])
    if warning is not None:
        warn([warning])
        say("The next start tries the failed images again.")
    say(f"Next: trust-cache fit-heads {run.out} --out run/")
    if warning is not None:
        raise typer.Exit(SOME_FAILED)


def duration(seconds: float | None) -> str:
    """Write seconds as h:mm:ss."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
