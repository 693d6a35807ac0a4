"""The functions of the commands manifest, simulate and cache info, verify, convert, subset, import."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from trust_cache.api.result import Result, lifted
from trust_cache.cache import copy_cache
from trust_cache.cache import verify_cache as cache_checks
from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.manifest.build_manifest import BuiltManifest
from trust_cache.manifest.build_manifest import build_manifest as build
from trust_cache.manifest.datasets.dataset import Dataset
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
    metadata: Place,
    out: Place,
    *,
    images: str | None = None,
    look: bool = True,
    overwrite: bool = False,
) -> ManifestResult:
    """Build and check the manifest of a data set: `rsna`, `nlbs`, `csv` or one of your own.

    `images` is the folder or URL prefix of the image files, by default the metadata's folder. With
    `look=False` the files are not looked for. Warnings and missing files are in the result and in files
    beside the manifest.

    Examples:
        >>> import polars as pl, trust_cache as tc
        >>> rows = {"image_id": ["a", "b"], "case_id": "1", "label": 0, "laterality": ["L", "R"]}
        >>> table = pl.DataFrame(rows | {"projection": "CC", "path": ["a.dcm", "b.dcm"]})
        >>> table.write_csv("rows.csv")
        >>> tc.build_manifest("csv", "rows.csv", "manifest.csv", look=False).counts.images
        2
    """
    options = {"look": look, "overwrite": overwrite}
    return lifted(ManifestResult, build(dataset, Path(metadata), Path(out), images=images, **options))


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
    patients: float = 0.0,
) -> Cache:
    """Write a cache of synthetic features with a known truth, in the shape of `nlbs` or `rsna`.

    Examples:
        >>> import trust_cache as tc
        >>> tc.simulate("nlbs", "synthetic.zarr", cases=100, views=1)
        Cache synthetic.zarr
          450 images of 100 cases, 2 positive
          1 clean + 1 augmented views, 2048 features, encoder simulated
    """
    return simulate_cache(
        like, out, views=views, seed=seed, truth_seed=truth_seed, cases=cases, patients=patients
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


def import_features(features: Place, manifest: Place, out: Place, *, encoder: str | None = None) -> Cache:
    """Make a cache of imported features: a .npy or .npz file of [image, dim] or [image, view, dim].

    The rows of the manifest are in the order of the features. `external` needs two caches of the same
    `encoder`.

    Examples:
        >>> import numpy as np, polars as pl, trust_cache as tc
        >>> np.save("features.npy", np.ones((2, 8), dtype=np.float16))
        >>> rows = {"image_id": ["a", "b"], "case_id": ["1", "2"], "label": [0, 1]}
        >>> pl.DataFrame(rows).write_csv("images.csv")
        >>> tc.import_features("features.npy", "images.csv", "imported.zarr").dim
        8
    """
    return copy_cache.import_features(Path(features), Path(manifest), out, encoder=encoder)
