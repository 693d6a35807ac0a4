"""The functions of the commands manifest, simulate and cache."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from trust_cache.api.result import Frame, Result, lifted, path_or_polars
from trust_cache.base.errors import InputError
from trust_cache.base.text_tables import describe_views
from trust_cache.cache import copy_cache
from trust_cache.cache import verify_cache as cache_checks
from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.cache.exchange import export_features as export
from trust_cache.cache.exchange import import_features as import_
from trust_cache.cache.exchange.export_features import ExportedFeatures
from trust_cache.manifest.build_manifest import BuiltManifest, FileReader
from trust_cache.manifest.build_manifest import build_manifest as build
from trust_cache.manifest.datasets.dataset import Dataset
from trust_cache.manifest.datasets.known_datasets import KNOWN_DATASETS
from trust_cache.synthetic.feature_cohort import simulate_cache

Place = Path | str


@dataclass(frozen=True, repr=False)
class ManifestResult(Result, BuiltManifest):
    """A manifest that was written, with its counts, findings and missing files."""

    @property
    def table(self) -> pl.DataFrame:
        """The rows of the manifest."""
        return self.manifest.table

    def to_polars(self) -> pl.DataFrame:
        """Return the rows of the manifest."""
        return self.table

    def _lines(self) -> Iterator[str]:
        counts = self.counts
        yield f"Manifest {self.manifest.path}: {counts.images:,} images of {counts.cases:,} cases"
        yield f"{counts.positive_images:,} images of {counts.positive_cases:,} cases are positive"
        if self.missing:
            yield f"{len(self.missing):,} files are missing"
        yield from map(str, self.findings)


def build_manifest(
    dataset: str | Dataset,
    metadata: Place | Sequence[Place],
    out: Place,
    *,
    images: str | None = None,
    look: bool = True,
    overwrite: bool = False,
    tags: bool = False,
    labels: Place | None = None,
    **options: str | None,
) -> ManifestResult:
    """Build and check the manifest of a data set: `rsna`, `nlbs`, `csv` and others, or one of your own.

    The data set `dicom` is a folder of DICOM files, given as `metadata`, with a table of `labels` if there is
    one.

    `metadata` are the data set's tables. `images` is the folder or URL prefix of the image files, by default
    the metadata's folder. With `look=False` the files are not looked for. `options` are those of the data
    set, such as `label_horizon="screen"`. `tags` adds columns of machine and exposure from the headers, which
    needs `trust-cache[extract]`, as `cmmd` does. Warnings and missing files are in the result and in files
    beside the manifest.

    Examples:
        >>> import polars as pl, trust_cache as tc
        >>> rows = {"image_id": ["a", "b"], "case_id": "1", "label": 0, "laterality": ["L", "R"]}
        >>> table = pl.DataFrame(rows | {"projection": "CC", "path": ["a.dcm", "b.dcm"]})
        >>> table.write_csv("rows.csv")
        >>> tc.build_manifest("csv", "rows.csv", "manifest.csv", look=False).counts.images
        2
    """
    files = [metadata] if isinstance(metadata, Path | str) else metadata
    if dataset == "dicom":
        return _of_folder(Path(files[0]), Path(out), labels, tags=tags, overwrite=overwrite)
    if labels is not None:
        raise InputError(f"labels: expected the data set dicom with them, found {dataset}")
    made = build(
        dataset,
        [Path(file) for file in files],
        Path(out),
        images=images,
        look=look,
        overwrite=overwrite,
        options=options,
        files=_file_reader(dataset, tags=tags),
        tags=tags,
    )
    return lifted(ManifestResult, made)


def _of_folder(
    folder: Path, out: Path, labels: Place | None, *, tags: bool, overwrite: bool
) -> ManifestResult:
    from trust_cache.images.folders.folder_manifest import build_folder_manifest

    given = None if labels is None else Path(labels)
    made = build_folder_manifest(folder, out, labels=given, tags=tags, overwrite=overwrite)
    return lifted(ManifestResult, made)


def _file_reader(dataset: str | Dataset, *, tags: bool) -> FileReader | None:
    """Return the reader of headers where the data set or its tags need one; a laptop may lack pydicom."""
    loaded = next((known.load() for known in KNOWN_DATASETS if known.name == dataset), dataset)
    if not tags and not (isinstance(loaded, Dataset) and loaded.reads_headers):
        return None
    from trust_cache.images.folders.header_files import HeaderFiles

    return HeaderFiles()


@dataclass(frozen=True, repr=False)
class CacheInfoResult(Result, cache_checks.CacheInfo):
    """A summary of a cache: counts, state, columns and fingerprint."""

    def to_polars(self) -> pl.DataFrame:
        """Return one row per fact."""
        facts = [(name, str(value)) for name, value in asdict(self).items()]
        return pl.DataFrame(facts, schema=["fact", "value"], orient="row")

    def _lines(self) -> Iterator[str]:
        yield f"Cache {self.source}: {self.images:,} images of {self.cases:,} cases"
        yield f"{self.positive_images:,} images of {self.positive_cases:,} cases are positive"
        yield f"1 clean + {self.views - 1} augmented views, {self.dim} features"
        pending, failed = self.images_pending, self.images_failed
        yield f"{self.images_done:,} images done, {pending:,} pending, {failed:,} failed"


@dataclass(frozen=True, repr=False)
class CacheCheck(Result):
    """What does not fit the checksums of a cache; nothing, if it is intact."""

    source: str
    problems: tuple[cache_checks.Problem, ...]

    @property
    def holds(self) -> bool:
        """Whether all checksums match."""
        return not self.problems

    def to_polars(self) -> pl.DataFrame:
        """Return one row per problem."""
        return pl.DataFrame(
            [(item.kind, item.sentence) for item in self.problems],
            schema={"kind": pl.String, "problem": pl.String},
            orient="row",
        )

    def _lines(self) -> Iterator[str]:
        yield f"{self.source} is {'intact: all checksums match' if self.holds else 'damaged'}"
        yield from (item.sentence for item in self.problems)


def simulate(
    like: str,
    out: Place,
    *,
    views: int = 8,
    seed: int = 0,
    truth_seed: int = 0,
    cases: int | None = None,
    patients: float | None = None,
    preset: str = "plain",
) -> Cache:
    """Write a cache of synthetic features with a known truth, in the shape of `nlbs` or `rsna`.

    `preset` names the law of the features; `patients` replaces its share of patients with several cases.

    Examples:
        >>> import trust_cache as tc
        >>> tc.simulate("nlbs", "synthetic.zarr", cases=100, views=1)
        Cache synthetic.zarr
          450 images of 100 cases, 2 positive
          1 clean + 1 augmented views, 2048 features, encoder simulated
    """
    return simulate_cache(
        like,
        out,
        views=views,
        seed=seed,
        truth_seed=truth_seed,
        cases=cases,
        patients=patients,
        preset=preset,
    )


def cache_info(cache: Cache | Place) -> CacheInfoResult:
    """Return what a cache contains and how its features were made.

    Examples:
        >>> import trust_cache as tc
        >>> tc.cache_info(tc.simulate("nlbs", "counted.zarr", cases=100, views=1)).cases
        100
    """
    opened = cache if isinstance(cache, Cache) else open_cache(cache)
    return lifted(CacheInfoResult, cache_checks.cache_info(opened))


def verify_cache(cache: Place) -> CacheCheck:
    """Verify all checksums of a cache; pending images are a problem, failed ones are not.

    Examples:
        >>> import trust_cache as tc
        >>> cache = tc.simulate("nlbs", "checked.zarr", cases=100, views=1)
        >>> tc.verify_cache("checked.zarr").holds
        True
    """
    return CacheCheck(str(cache), tuple(cache_checks.verify_cache(cache)))


def convert_cache(cache: Place, out: Place) -> Cache:
    """Copy a cache to another place or format, bit for bit.

    Examples:
        >>> import trust_cache as tc
        >>> cache = tc.simulate("nlbs", "first.zarr", cases=100, views=1)
        >>> bool((tc.convert_cache("first.zarr", "second.h5").features[:5] == cache.features[:5]).all())
        True
    """
    return copy_cache.convert_cache(cache, out)


def subset_cache(cache: Place, out: Place, where: Mapping[str, str] | pl.Expr | None = None) -> Cache:
    """Copy the images with these values of columns, or that an expression chooses, into a new cache.

    Examples:
        >>> import trust_cache as tc
        >>> cache = tc.simulate("nlbs", "both.zarr", cases=100, views=1)
        >>> left = tc.subset_cache("both.zarr", "left.zarr", {"laterality": "L"})
        >>> set(left.manifest["laterality"])
        {'L'}
    """
    return copy_cache.subset_cache(cache, out, where)


def import_features(
    features: Frame | Place,
    manifest: Frame | Place | None,
    out: Place,
    *,
    encoder: str | None = None,
    array: str = "features",
) -> Cache:
    """Make a cache of features that another program made.

    `features` is a Parquet or Arrow file or a data frame with a row for each image (and `view`, if there are
    several), joined to the manifest by image_id; empty features mark a failed image. Without a manifest the
    table has its columns too. Or it is a .npy or .npz file of [image, dim] or [image, view, dim] in the order
    of the manifest, or of the array `image_id` in the .npz file. `array` is the column of the table, or the
    array of the .npz file, that holds the features. `external` needs two caches of the same `encoder`.

    Examples:
        >>> import polars as pl, trust_cache as tc
        >>> rows = {"image_id": ["a", "b"], "case_id": ["1", "2"], "label": [0, 1]}
        >>> table = pl.DataFrame(rows | {"features": [[0.5] * 8, [1.5] * 8]})
        >>> tc.import_features(table, None, "imported.zarr", encoder="mine").dim
        8
    """
    rows = None if manifest is None else path_or_polars(manifest)
    return import_.import_features(path_or_polars(features), rows, out, encoder=encoder, array=array)


@dataclass(frozen=True, repr=False)
class ExportedFeaturesResult(Result, ExportedFeatures):
    """A file of features for other programs."""

    def to_polars(self) -> pl.DataFrame:
        """Return one row per fact."""
        facts = [(name, str(value)) for name, value in asdict(self).items()]
        return pl.DataFrame(facts, schema=["fact", "value"], orient="row")

    def _lines(self) -> Iterator[str]:
        yield f"Features {self.path}: {self.images:,} images, {self.dim} features"
        yield describe_views(self.views - 1)
        if self.failed:
            yield f"{self.failed:,} images without features"
        if self.manifest is not None:
            yield f"manifest written to {self.manifest}"
        yield from self.warnings


def export_features(cache: Cache | Place, out: Place, *, views: int | None = None) -> ExportedFeaturesResult:
    """Write the features of a cache to one file for other programs.

    A .parquet or .arrow (.feather) file has a row for each image and view: the manifest's columns, `view` and
    `features`, empty for a failed image. A .npy or .npz file has [image, view, dim], with the manifest beside
    it. `views` is the number of augmented views (default: all; 0: the clean view alone).

    Examples:
        >>> import polars as pl, trust_cache as tc
        >>> cache = tc.simulate("nlbs", "kept.zarr", cases=100, views=1)
        >>> tc.export_features("kept.zarr", "features.parquet", views=0)
        Features features.parquet: 450 images, 2048 features
          1 clean view
        >>> pl.read_parquet("features.parquet")["features"].dtype
        Array(Float32, shape=(2048,))
    """
    return lifted(ExportedFeaturesResult, export.export_features(cache, Path(out), views=views))
