"""The functions of the commands preprocess, images show and images synthesize."""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from trust_cache.api.result import Result, lifted
from trust_cache.base.errors import InputError
from trust_cache.base.executor import Cluster
from trust_cache.base.files import write_file
from trust_cache.images.contact_sheet import draw_steps, write_sheet
from trust_cache.images.decoding.decode import IMAGECODECS
from trust_cache.images.dicom_file import read_dataset
from trust_cache.images.image_failures import ImageError
from trust_cache.images.picture import cut_breast, prepare_image, tagged_laterality
from trust_cache.images.picture_folder import ImageSettings, pictures_of
from trust_cache.images.png_files import encode_png
from trust_cache.images.preprocess import PreprocessRun
from trust_cache.images.preprocess import preprocess as preprocess_all
from trust_cache.synthetic.image_cohort import (
    CohortSettings,
    SyntheticCohort,
    plan_cohort,
    synthesize_cohort,
)


def _begin(_of: int, _done: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, repr=False)
class PreprocessResult(Result, PreprocessRun):
    """A folder of pictures: counts, failures and warnings."""

    def to_polars(self) -> pl.DataFrame:
        """Return the failed images, with the columns of failures.csv."""
        names = dict.fromkeys(("image_id", "stage", "reason"), pl.String)
        return pl.DataFrame([asdict(failure) for failure in self.failures], schema=names)

    def _lines(self) -> Iterator[str]:
        good = self.images - len(self.failures)
        yield f"Pictures in {self.folder}: {good:,} of {self.images:,} images"
        yield f"{self.reused:,} made before, {len(self.warnings):,} warnings"
        yield from (f"failed: {item.image_id}, {item.reason}" for item in self.failures)


def preprocess(
    manifest: Path | str,
    out: Path | str,
    *,
    workers: int | Cluster | None = None,
    sheet: Path | str | None = None,
    decoder: str = IMAGECODECS,
    allow_urls: bool = False,
    on_start: Callable[[int, int], None] = _begin,
    advance: Callable[[], None] = lambda: None,
) -> PreprocessResult:
    """Convert every DICOM of a manifest to a canonical 16-bit breast PNG; resumes an interrupted run.

    Failed images keep their rows. With `sheet`, a contact sheet is written. `decoder` may be `nvimagecodec`
    on a machine with an NVIDIA GPU. Needs `trust-cache[extract]`.

    Examples:
        >>> import trust_cache as tc
        >>> made = tc.synthesize_images("rsna", 2, "dicoms")
        >>> _ = tc.build_manifest("rsna", made.metadata, "dicoms.csv", images="dicoms")
        >>> len(tc.preprocess("dicoms.csv", "png", workers=1).failures)
        0
    """
    run = preprocess_all(
        manifest,
        out,
        workers=workers or os.cpu_count() or 1,
        decoder=decoder,
        allow_urls=allow_urls,
        on_start=on_start,
        advance=advance,
    )
    if sheet is not None:
        write_sheet(pictures_of(str(out)), Path(sheet))
    return lifted(PreprocessResult, run)


@dataclass(frozen=True, repr=False)
class ImageSteps(Result):
    """The steps of one image, drawn into a file."""

    picture: Path
    decoder: str
    shape: tuple[int, int]  # of the crop
    warnings: tuple[str, ...]

    def to_polars(self) -> pl.DataFrame:
        """Return one row per warning."""
        return pl.DataFrame({"warning": self.warnings}, schema={"warning": pl.String})

    def _lines(self) -> Iterator[str]:
        rows, columns = self.shape
        yield f"{self.picture}: decoded, mask and crop ({rows} x {columns}), by {self.decoder}"
        yield from self.warnings


def show_image(file: Path | str, out: Path | str, *, laterality: str | None = None) -> ImageSteps:
    """Write the steps of one image side by side with titles: decoded, breast found, picture.

    Of an image that fails, the picture shows the steps that it reached and the reason. `laterality` is L or
    R; by default the header's, else L. Needs `trust-cache[extract]`.

    Examples:
        >>> import trust_cache as tc
        >>> made = tc.synthesize_images("nlbs", 1, "one")
        >>> tc.show_image(made.folder / made.images[0].path, "steps.png").picture.name
        'steps.png'
    """
    place, settings, prepared = Path(out), ImageSettings(), None
    if not Path(file).is_file():
        raise InputError(f"{file}: expected a DICOM file, found none")
    try:
        dataset = read_dataset(Path(file))
        prepared = prepare_image(dataset, laterality or tagged_laterality(dataset) or "L", settings)
        processed = cut_breast(prepared, settings)
    except ImageError as error:
        write_file(place, encode_png(draw_steps(prepared, None, str(error))))
        raise InputError(f"{file}: {error}; {out} shows how far it came") from error
    write_file(place, encode_png(draw_steps(prepared, processed)))
    rows, columns = processed.png_pixels.shape
    return ImageSteps(place, processed.decoder, (rows, columns), tuple(prepared.warnings))


@dataclass(frozen=True, repr=False)
class SynthesizeResult(Result, SyntheticCohort):
    """A folder of synthetic DICOM files and the truth about each."""

    def to_polars(self) -> pl.DataFrame:
        """Return one row per file."""
        names = ("image_id", "case_id", "label", "path", "broken")
        rows = [{name: getattr(image, name) for name in names} for image in self.images]
        return pl.DataFrame(rows, schema_overrides={"broken": pl.String})

    def _lines(self) -> Iterator[str]:
        cases = len({image.case_id for image in self.images})
        positive = len({image.case_id for image in self.images if image.label})
        yield f"{len(self.images):,} synthetic images of {cases:,} cases in {self.folder}"
        yield f"{positive:,} cases with a lesion, {len(self.broken):,} broken files"


def synthesize_images(
    like: str,
    cases: int,
    out: Path | str,
    *,
    workers: int | None = None,
    on_start: Callable[[int, int], None] = _begin,
    advance: Callable[[], None] = lambda: None,
    **settings: Any,
) -> SynthesizeResult:
    """Make synthetic mammograms as DICOM files, in the layout of `rsna` or `nlbs`.

    `settings` are those of `CohortSettings`: seed, size (`small` or `full`), prevalence, lesion_contrast,
    broken. Needs `trust-cache[extract]`.

    Examples:
        >>> import trust_cache as tc
        >>> tc.synthesize_images("rsna", 1, "synthetic").metadata.name
        'train.csv'
    """
    chosen = CohortSettings(like=like, cases=cases, **settings)
    on_start(len(plan_cohort(chosen)), 0)
    return lifted(SynthesizeResult, synthesize_cohort(chosen, Path(out), workers=workers, advance=advance))
