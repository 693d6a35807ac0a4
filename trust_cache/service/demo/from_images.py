"""The demonstration's first part: invented DICOMs, through the real encoder's code, to a page."""

import os
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from trust_cache.cache.encoder import DEFAULT_ENCODER, RANDOM
from trust_cache.cache.extraction.extract import extract
from trust_cache.cache.extraction.settings import ExtractSettings
from trust_cache.cache.reading import open_cache
from trust_cache.certificate.certify import Certification, certify
from trust_cache.certificate.folder import write_certification
from trust_cache.heads.fit import fit_heads
from trust_cache.images.preprocess import preprocess
from trust_cache.images.sheet import write_sheet
from trust_cache.images.synthesize import CohortSettings, plan_cohort, synthesize_cohort
from trust_cache.manifest.build import build_manifest, write_manifest
from trust_cache.report.evidence import Options
from trust_cache.report.report import make_report
from trust_cache.report.writing import write_report
from trust_cache.service.demo.reuse import how_to_start, run_is_whole
from trust_cache.service.demo.steps import Listener

CASES = 150
BROKEN = 0.02  # of the files, on purpose
IMAGE_SIZE = (152, 92)  # a tenth of the paper's: seconds instead of hours on a processor
VIEWS = 1  # augmented ones
BATCH = 16  # views through the encoder at once
EPOCHS = 200  # ten times the paper's: a few hundred images make few steps an epoch
SEED = 0
CONFIGURATION = "closed-loop"


@dataclass(frozen=True)
class FromImages:
    """What the first part made."""

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


def show_from_images(out: Path, listen: Listener, *, cases: int = CASES) -> FromImages:
    """Draw DICOMs in RSNA's layout, some broken, and go on to scores, certificates and a page.

    Each step finishes what an earlier start left unfinished.
    """
    out.mkdir(parents=True, exist_ok=True)
    manifest, png, cache = out / "manifest.csv", out / "png", out / "features.zarr"
    images, failed = _pictures(out, manifest, png, listen, cases)
    listen.step(f"features of {VIEWS + 1} views of each image, by B5 with random weights: {cache}")
    # A process a core, each on one thread: threads of one network wait for one another on a busy machine.
    settings = ExtractSettings(
        RANDOM, DEFAULT_ENCODER, views=VIEWS, image_size=IMAGE_SIZE, seed=SEED, device="cpu",
        batch=BATCH, processes=os.cpu_count() or 1,
    )  # fmt: skip
    advance = listen.counter(-(-(images - failed) // 32))
    extract(png / "manifest.csv", cache, settings, on_shard=lambda _report: advance())
    run, warnings = out / "run", tuple[str, ...]()
    listen.step(f"five heads over five folds, {EPOCHS} epochs instead of the paper's 20: {run}")
    opened = open_cache(cache)
    if not run_is_whole(run, opened):
        start = how_to_start(run)
        done = fit_heads(
            opened,
            run,
            epochs=EPOCHS,
            seed=SEED,
            on_epoch=listen.epoch,
            resume=start.resume,
            overwrite=start.overwrite,
        )
        warnings = done.warnings
    listen.step(f"operating points and certificates: {out / 'certified'}")
    certification = certify(run, seed=SEED)
    write_certification(certification, out / "certified")
    report = out / "report.html"
    listen.step(f"the page: {report}")
    write_report(make_report([run, out / "certified"], Options()), report)
    chosen = next(point for point in certification.points if point.configuration == CONFIGURATION)
    return FromImages(
        images, failed, out / "sheet.png", cache, run, out / "certified", report, chosen.auroc_case,
        certification, warnings,
    )  # fmt: skip


def _pictures(out: Path, manifest: Path, png: Path, listen: Listener, cases: int) -> tuple[int, int]:
    """Go from invented DICOMs to PNGs; return how many there are and how many of them failed."""
    settings = CohortSettings("rsna", cases, seed=SEED, broken=BROKEN)
    listen.step(f"invented mammograms of {cases} women as DICOMs in RSNA's layout: {out / 'dicom'}")
    planned = len(plan_cohort(settings))
    cohort = synthesize_cohort(settings, out / "dicom", advance=listen.counter(planned))
    listen.step(f"the table of images: {manifest}")
    built = build_manifest("rsna", cohort.metadata, manifest, images=str(out / "dicom"), look=True)
    write_manifest(built, metadata=cohort.metadata, overwrite=True)
    listen.step(f"canonical pictures of the breast: {png}")
    done = preprocess(manifest, png, workers=os.cpu_count() or 1, advance=listen.counter(planned))
    kept = pl.read_csv(png / "manifest.csv", infer_schema=False)["path"].to_list()
    write_sheet([png / name for name in sorted(kept)], out / "sheet.png")
    return done.images, len(done.failures)
