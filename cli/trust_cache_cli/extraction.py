"""The command extract."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache.base.errors import InputError
from trust_cache_cli.options import Log, Resources, Scheduler, Verbose, cluster_of
from trust_cache_cli.output import console, say, warn

if TYPE_CHECKING:
    from trust_cache.cache.extraction.extract import ExtractRun, Start
    from trust_cache.cache.extraction.meter import Meter
    from trust_cache.cache.extraction.recipe import ShardReport

SOME_FAILED = 1
_LOGGER = logging.getLogger("trust_cache.extract")

EXAMPLES = """
**Examples**

    trust-cache extract png/manifest.csv --weights encoder.safetensors --out cache.zarr --views 8

    trust-cache extract png/manifest.csv --weights encoder.safetensors --out cache.zarr --device cuda:0,cuda:1

    trust-cache extract s3://b/png/manifest.csv --weights /nfs/encoder.safetensors --out s3://b/cache.zarr \
--scheduler tcp://host:8786 --resources GPU=1

    trust-cache extract png/manifest.csv --weights random --out trial.zarr --image-size 152x92 --views 2
"""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog=EXAMPLES)(extract)


def extract(
    manifest: Annotated[str, typer.Argument(help="The manifest that lies with the PNGs; a path or a URL.")],
    weights: Annotated[
        str,
        typer.Option(metavar="FILE", help="What `trust-cache weights` wrote, or the word random."),
    ],
    out: Annotated[
        str, typer.Option(metavar="CACHE", help="The cache to write or to go on with; a path or a URL.")
    ],
    views: Annotated[int, typer.Option(metavar="K", help="Augmented views of each image.")] = 8,
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME", help="Any timm model. [Mammo-CLIP's B5]")
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda, or several: cuda:0,cuda:1.")
    ] = "auto",
    image_size: Annotated[
        str, typer.Option(metavar="HxW", help="Height and width of the encoder's input.")
    ] = "1520x912",
    seed: Annotated[int, typer.Option(help="The seed of the views and of random weights.")] = 0,
    shard_images: Annotated[
        int | None, typer.Option(metavar="N", help="Images per shard of the cache. [32]")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(metavar="N", help="Views through the encoder at once. [cuda 16, cpu 4]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Decoding threads of each process. [cores, at most 8]")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(metavar="N", help="Processes. [one for each device]")
    ] = None,
    compile_: Annotated[bool, typer.Option("--compile", help="Compile the encoder with torch.")] = False,
    scheduler: Scheduler = None,
    resources: Resources = None,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Turn the PNGs of a manifest into a cache of features: one clean and K augmented views of each image.

    Goes on by itself with a cache that is there, if everything that changes features is the same. Images
    that fail are listed in failures.csv with the cache, and the exit code is then 1; the others are done all
    the same, and the next start tries those again.
    """
    try:
        from trust_cache.cache.encoder import DEFAULT_ENCODER
        from trust_cache.cache.extraction.extract import extract as extract_all
        from trust_cache.cache.extraction.settings import ExtractSettings, parse_image_size
    except ModuleNotFoundError as error:
        raise InputError(
            f'extract: needs the package {error.name}; install with pip install "trust-cache[extract]"'
        ) from error

    settings = ExtractSettings(
        weights=weights,
        encoder=encoder or DEFAULT_ENCODER,
        views=views,
        image_size=parse_image_size(image_size),
        seed=seed,
        device=device,
        shard_images=shard_images,
        batch=batch,
        workers=workers,
        processes=processes,
        compiled=compile_,
    )
    with _progress() as (on_start, on_shard, meters):
        run = extract_all(
            manifest,
            out,
            settings,
            cluster=cluster_of(scheduler, resources),
            on_start=on_start,
            on_shard=on_shard,
        )
    _say_run(run, meters[0])


def _say_run(run: "ExtractRun", meter: "Meter") -> None:
    if run.identity.random:
        warn([f"{run.out}: the weights are random; its features say nothing about anybody"])
    screen = console()
    say(
        screen,
        f"Written to {run.out}: {run.images_done:,} of {run.layout.images:,} images"
        f" ({run.images_before:,} of them before), {run.layout.views} views, {run.layout.dim} features.",
    )
    if run.images_done > run.images_before:
        say(screen, f"{meter.words()}.")
    if run.failures:
        say(screen, f"{len(run.failures):,} images failed: {run.failures_file} says why.")
        say(
            screen,
            f"The next start tries them again; trust-cache cache subset {run.out} --present leaves them out.",
        )
        raise typer.Exit(SOME_FAILED)
    say(screen, f"Next: trust-cache fit-heads {run.out} --out run/")


@contextmanager
def _progress() -> Iterator[tuple[Callable[["Start"], None], Callable[["ShardReport"], None], list["Meter"]]]:
    """Show people how far it is, how fast, where the time goes; a log gets the same as lines."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from trust_cache.cache.extraction.meter import Meter

    out = console(error=True)
    columns = (
        TextColumn("extracting"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[words]}"),
    )
    meters: list[Meter] = []
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task("", total=None, words="")

        def on_start(start: "Start") -> None:
            warn(start.remarks)
            meters.append(Meter(start.images, start.images_before, start.processes))
            bar.update(task, total=start.images, completed=start.images_before)

        def on_shard(report: "ShardReport") -> None:
            (meter,) = meters
            meter.add(report)
            left = _duration(meter.seconds_left)
            bar.update(task, completed=meter.done, words=f"{meter.words()}, {left} left")
            _LOGGER.info("%d of %d images, %s, %s left", meter.done, meter.images, meter.words(), left)

        yield on_start, on_shard, meters


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
