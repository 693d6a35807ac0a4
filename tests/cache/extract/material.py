"""PNGs with a manifest to extract from, and encoders small enough to follow by hand."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import torch
from msgspec import structs
from numpy.typing import NDArray
from torch import Tensor

from trust_cache.base.digests import bytes_blake3
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.extract.extraction_plan import ExtractSettings
from trust_cache.cache.extract.picture_source import ImageFile
from trust_cache.cache.extract.shard_work import ShardFiles
from trust_cache.cache.views import ViewPlan, make_views
from trust_cache.encoders.encoder import EncoderIdentity
from trust_cache.encoders.mammo_clip import RECIPE
from trust_cache.images.picture_folder import (
    ImageSettings,
    MadePicture,
    PictureFolder,
    PictureRecord,
    png_name,
)
from trust_cache.images.png_files import encode_png, read_grey_png
from trust_cache.manifest.manifest_file import read_manifest

SIZE = (24, 16)
PLAN = ViewPlan(augmented=2, seed=3)
STEP = 8
DIM = 3 * (SIZE[0] // STEP) * (SIZE[1] // STEP)
# A real network of timm's, two hundred times smaller than B5.
SETTINGS = ExtractSettings(
    weights="random", encoder="test_resnet", views=2, image_size=(32, 24), device="cpu", shard_images=2,
    batch=5, workers=2,
)  # fmt: skip


def write_pngs(folder: Path, images: int = 10) -> Path:
    """Write PNGs of different sizes with a manifest and return the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for n in range(images):
        picture = generator.integers(0, 65_536, (40 + n % 5, 30 + n % 3)).astype(np.uint16)
        (folder / f"{n}.png").write_bytes(encode_png(picture))
    table = pl.DataFrame(
        {
            "image_id": [f"{n:03d}" for n in range(images)],
            "case_id": [f"case {n // 2}" for n in range(images)],
            "label": [int(n % 6 == 0) for n in range(images)],
            "laterality": ["L"] * images,
            "projection": ["CC" if n % 2 else "MLO" for n in range(images)],
            "path": [f"{n}.png" for n in range(images)],
            "site": ["north"] * images,
        }
    )
    table.write_csv(folder / "manifest.csv")
    return folder / "manifest.csv"


def record_pictures(manifest: Path, settings: ImageSettings, decoders: Sequence[str]) -> None:
    """Make a picture folder of PNGs: as if `preprocess` had made them, with each of these decoders."""
    folder, made = manifest.parent, {}
    for number, image in enumerate(read_manifest(manifest).images()):
        place = folder / png_name(image.image_id)
        Path(image.location or "").rename(place)
        made[image.image_id] = MadePicture(
            image_id=image.image_id,
            laterality="L",
            projection="CC",
            dicom_blake3="0" * 64,
            png_blake3=bytes_blake3(place.read_bytes()),
            decoder=decoders[number % len(decoders)],
        )
    record = PictureRecord(schema=1, settings=settings)
    PictureFolder(str(folder), record).finish(read_manifest(manifest), [], made, {})


def shards_of(folder: Path, images: int = 10, shard_images: int = 4) -> list[ShardFiles]:
    files = [ImageFile(f"{n:03d}", str(folder / f"{n}.png")) for n in range(images)]
    return [
        ShardFiles(shard, tuple(files[first : first + shard_images]))
        for shard, first in enumerate(range(0, images, shard_images))
    ]


class Picker:
    """Features that are some of the pixels: no batch or thread can change their bits."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def __call__(self, views: Tensor) -> Tensor:
        self.batches.append(views.shape[0])
        return views[:, :, ::STEP, ::STEP].flatten(1)


class FunctionEncoder:
    """An encoder made of any function of views."""

    def __init__(
        self, function: Callable[[Tensor], Tensor], image_size: tuple[int, int] = SIZE, dim: int = DIM
    ) -> None:
        self.identity = EncoderIdentity(
            "toy", "", dim, random=True, recipe=structs.replace(RECIPE, image_size=image_size)
        )
        self._function = function

    def __call__(self, views: Tensor) -> Tensor:
        return self._function(views)


def picked(files: Sequence[ImageFile], plan: ViewPlan = PLAN) -> NDArray[np.float16]:
    """What the picker makes of images, one at a time, without any of the extraction."""
    rows = []
    for file in files:
        pixels = torch.from_numpy(read_grey_png(file.location))
        views = make_views(
            pixels, structs.replace(RECIPE, image_size=SIZE), plan.parameters(file.image_id)
        ).views
        rows.append(Picker()(views.expand(-1, 3, -1, -1)).numpy().astype(np.float16))
    return np.stack(rows)


def failed_in(cache: Path) -> list[str]:
    """Return the images that were tried and have no features."""
    opened = open_cache(cache)
    return opened.image_ids(opened.failed)


def with_settings(**changes: object) -> ExtractSettings:
    return replace(SETTINGS, **changes)  # type: ignore[arg-type]
