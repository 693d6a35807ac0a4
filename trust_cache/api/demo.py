"""Demonstrate the full pipeline on synthetic data, from images and from features.

Each part finishes what an earlier start left unfinished and reuses what it finished.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from trust_cache.api.certificate_functions import describe_point, point_table
from trust_cache.api.reproduce import Listener, reproduce
from trust_cache.api.result import Result
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.cache.extract.extract import extract
from trust_cache.cache.extract.extraction_plan import ExtractSettings
from trust_cache.certificate.certification import Certification
from trust_cache.certificate.certified_folder import write_certification
from trust_cache.certificate.certify import certify
from trust_cache.certificate.evidence import Options
from trust_cache.certificate.verify import Verification, verify
from trust_cache.encoders.known_encoders import RANDOM
from trust_cache.encoders.recipe import DEFAULT_ENCODER
from trust_cache.heads.fit import fit_heads
from trust_cache.heads.fold_training import PartialRun
from trust_cache.heads.run_folder import RECORD, RunFolder, labels_sha256
from trust_cache.images.contact_sheet import write_sheet
from trust_cache.images.picture_folder import pictures_of
from trust_cache.images.preprocess import preprocess
from trust_cache.manifest.build_manifest import build_manifest
from trust_cache.report.page import write_page
from trust_cache.report.paper_folder import PaperFolder
from trust_cache.report.report import make_report
from trust_cache.studies.reproduction.published import EXTERNAL, RSNA
from trust_cache.studies.sweep.sweep import sweep
from trust_cache.studies.sweep.sweep_request import describe_space
from trust_cache.synthetic.feature_cohort import simulate_cache, simulated_fingerprint
from trust_cache.synthetic.image_cohort import CohortSettings, plan_cohort, synthesize_cohort

SEED = 0
VIEWS = 1  # augmented views: enough to show the method

# The part from images
CASES = 150
BROKEN = 0.02  # share of files that are broken on purpose
IMAGE_SIZE = (152, 92)  # a tenth of the paper's: seconds instead of hours on a CPU
BATCH = 16  # views per batch of the encoder
EPOCHS = 200  # ten times the paper's: a few hundred images make few steps per epoch
CONFIGURATION = "closed-loop"

# The part from features
NLBS_CASES = 3_000  # half of the data set: the demonstration is to be quick
GRID = ("lambda_dismiss=0,0.05,0.2", "margin=0.05,0.1")
RESPLITS = 200


@dataclass(frozen=True)
class FromImages:
    """The results of the part from images."""

    images: int
    failed: int
    sheet: Path
    cache: Path
    run: Path
    certified: Path
    report: Path
    auroc: float | None  # of the closed-loop head, by case
    certification: Certification
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class FromFeatures:
    """The results of the part from features."""

    cache: Path
    folders: Mapping[str, Path]  # run, certified, external, sweep, compare
    report: Path
    paper: Path  # the page of the paper's tables and figures
    certification: Certification
    verification: Verification


@dataclass(frozen=True, repr=False)
class Demonstration(Result):
    """The results of both parts."""

    images: FromImages
    features: FromFeatures

    def to_polars(self) -> pl.DataFrame:
        """Return the points of the full-size cohort."""
        return point_table(self.features.certification.points)

    def _lines(self) -> Iterator[str]:
        yield "Demonstration on synthetic data: the results have no clinical meaning"
        yield from map(describe_point, self.features.certification.points)
        yield f"pages: {self.features.report}, {self.features.paper}, {self.images.report}"


def demo(
    out: Path | str = "demo",
    listen: Listener | None = None,
    *,
    image_cases: int = CASES,
    feature_cases: int | None = None,
) -> Demonstration:
    """Run the full pipeline on synthetic data: DICOMs, pictures, features, heads, certificates, pages.

    A second start reuses the finished parts. Needs `trust-cache[extract]`.
    """
    listen, out = listen or Listener(), Path(out)
    return Demonstration(
        show_from_images(out / "images", listen, cases=image_cases),
        show_from_features(out / "features", listen, cases=feature_cases),
    )


def show_from_images(out: Path, listen: Listener, *, cases: int = CASES) -> FromImages:
    """Synthesize DICOMs in RSNA's layout, some of them broken, and run every step up to the page."""
    out.mkdir(parents=True, exist_ok=True)
    png, cache, run, certified = (out / name for name in ("png", "features.zarr", "run", "certified"))
    images, failed = _make_pictures(out, png, listen, cases)
    listen.step(f"features of {VIEWS + 1} views of each image, by B5 with random weights: {cache}")
    # One process per core, one thread each: on a busy machine the threads of one network wait for each other.
    settings = ExtractSettings(
        RANDOM, DEFAULT_ENCODER, views=VIEWS, image_size=IMAGE_SIZE, seed=SEED, device="cpu",
        batch=BATCH, processes=os.cpu_count() or 1,
    )  # fmt: skip
    advance = listen.counter(-(-images // 32))
    extract(png / "manifest.csv", cache, settings, on_shard=lambda _report: advance())
    listen.step(f"five heads over five folds, {EPOCHS} epochs instead of the paper's 20: {run}")
    opened = open_cache(cache)
    warnings = tuple[str, ...]()
    if not _is_trained(run, opened):
        done = fit_heads(opened, run, epochs=EPOCHS, seed=SEED, on_epoch=listen.epoch, **_start(run))
        warnings = done.warnings
    listen.step(f"operating points and certificates: {certified}")
    certification = certify(run, seed=SEED)
    write_certification(certification, certified, overwrite=True)
    report = _write_report(out, [run, certified], listen)
    chosen = next(point for point in certification.points if point.configuration == CONFIGURATION)
    return FromImages(
        images, failed, out / "sheet.png", cache, run, certified, report, chosen.auroc_case,
        certification, warnings,
    )  # fmt: skip


def show_from_features(out: Path, listen: Listener, *, cases: int | None = None) -> FromFeatures:
    """Simulate features at full size, or of fewer `cases`, and run every step and study up to the pages."""
    out.mkdir(parents=True, exist_ok=True)
    cache, other, paper = out / "rsna.zarr", out / "nlbs.zarr", PaperFolder(out / "paper")
    listen.step(f"synthetic cohorts like RSNA and NLBS, as features: {cache}, {other}")
    opened = _simulate("rsna", cache, cases)
    _simulate("nlbs", other, NLBS_CASES if cases is None else cases)
    made = reproduce(
        opened, other, paper.path, seed=SEED, repeats=1, resplits=RESPLITS, resume=True, listen=listen
    )
    run, certified, swept = paper.run(RSNA), out / "certified", out / "sweep"
    listen.step(f"operating points at a prevalence of 0.5 %, and their verification: {certified}")
    certification = certify(
        run, seed=SEED, prevalence=0.005, resplits=RESPLITS, advance=listen.counter(RESPLITS)
    )
    write_certification(certification, certified, overwrite=True)
    verification = verify(certified / "certificates" / f"{CONFIGURATION}@0.95.json", run)
    _sweep(cache, swept, listen)
    folders = {"run": run, "certified": certified, "external": paper.run(EXTERNAL), "sweep": swept}
    folders["compare"] = paper.compared(RSNA)
    report = _write_report(out, list(folders.values()), listen)
    return FromFeatures(cache, folders, report, made.page, certification, verification)


def _make_pictures(out: Path, png: Path, listen: Listener, cases: int) -> tuple[int, int]:
    """Synthesize DICOMs and make pictures of them; return the number of images and of failed ones."""
    manifest, dicom = out / "manifest.csv", out / "dicom"
    settings = CohortSettings("rsna", cases, seed=SEED, broken=BROKEN)
    listen.step(f"synthetic mammograms of {cases} cases as DICOMs in RSNA's layout: {dicom}")
    planned = len(plan_cohort(settings))
    cohort = synthesize_cohort(settings, dicom, advance=listen.counter(planned))
    listen.step(f"the manifest: {manifest}")
    build_manifest("rsna", cohort.metadata, manifest, images=str(dicom), overwrite=True)
    listen.step(f"canonical pictures of the breast: {png}")
    done = preprocess(manifest, png, workers=os.cpu_count() or 1, advance=listen.counter(planned))
    write_sheet(pictures_of(str(png)), out / "sheet.png")
    return done.images, len(done.failures)


def _sweep(cache: Path, swept: Path, listen: Listener) -> None:
    listen.step(f"a sweep over {' and '.join(GRID)}: {swept}")
    if (swept / "results.csv").exists():
        return
    sweep(
        cache, swept, describe_space(GRID), seed=SEED, resume=True,
        on_heads=lambda now: listen.part(int(now.done), now.heads),
    )  # fmt: skip


def _write_report(out: Path, folders: list[Path], listen: Listener) -> Path:
    report = out / "report.html"
    listen.step(f"the page: {report}")
    write_page(make_report(folders, Options()), report)
    return report


def _simulate(like: str, path: Path, cases: int | None) -> Cache:
    """Open a simulated cache; make it if it does not exist or is unfinished."""
    fingerprint = simulated_fingerprint(SEED)
    if path.exists():
        cache = open_cache(path)
        if cache.fingerprint != fingerprint:
            raise InputError(
                f"{path}: expected a cache of the demonstration, found another; choose another --out"
            )
        if cache.done.all():
            return cache
        shutil.rmtree(path)
    simulate_cache(like, path, views=VIEWS, seed=SEED, cases=cases)
    return open_cache(path)


def _is_trained(run: Path, cache: Cache) -> bool:
    """Return whether a run folder exists and was trained on the features and images of this cache."""
    try:
        record = RunFolder(run).record
    except InputError:
        return False
    return record.fingerprint == cache.fingerprint and record.manifest_sha256 == labels_sha256(cache)


def _start(run: Path) -> dict[str, Any]:
    """Return how to train: resume an interrupted run, overwrite one of another cache."""
    stale = RunFolder(run).has(RECORD)
    return {"resume": not stale and PartialRun(run).exists, "overwrite": stale}
