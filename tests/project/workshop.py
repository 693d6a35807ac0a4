"""A folder with everything that the examples name: images, caches, runs, and what is made of them."""

import shutil
from pathlib import Path

import numpy as np
import polars as pl

from tests.conftest import make_scores
from tests.encoders.replica import PREFIX, make_oracle, save_archive
from tests.heads.records import seal
from tests.manifest.cmmd_tables import cmmd_patients, write_cmmd
from tests.manifest.csaw_table import csaw_exams, csaw_images, write_csaw
from tests.manifest.embed_tables import embed_exams, embed_metadata, write_embed
from tests.manifest.test_vindr import vindr_table
from tests.workbooks import write_workbook
from trust_cache.certificate.certified_folder import write_certification
from trust_cache.certificate.certify import certify
from trust_cache.encoders.convert_weights import convert_weights
from trust_cache.heads.fit import fit_heads
from trust_cache.images.preprocess import preprocess
from trust_cache.manifest.build_manifest import build_manifest
from trust_cache.studies.compare.compare import compare
from trust_cache.studies.compare.compare_folder import write_comparison
from trust_cache.studies.external import evaluate_externally
from trust_cache.studies.sweep.sweep import sweep
from trust_cache.studies.sweep.sweep_request import describe_space
from trust_cache.synthetic.feature_cohort import simulate_cache
from trust_cache.synthetic.image_cohort import CohortSettings, synthesize_cohort

CASES, DIM = 300, 32
CONFIGURATIONS = "[mine]\nlambda_focal = 1.0\nlambda_dismiss = 0.5\ntau = 'closed-loop'\n"
SWEEP = "base = 'closed-loop'\n[grid]\nmargin = [0.05, 0.1]\n"


def build_workshop(folder: Path) -> None:
    """Make all of it, small."""
    _features(folder)
    _images(folder)
    _tables(folder)
    (folder / "mine.toml").write_text(CONFIGURATIONS)
    (folder / "sweep.toml").write_text(SWEEP)
    table = make_scores(cases=400, positives=60, configurations=("ce", "fixed-tau", "closed-loop"), images=2)
    table.write_csv(folder / "scores.csv")
    one = make_scores(cases=400, positives=60)
    words = pl.when(pl.col("label") == 1).then(pl.lit("malignant")).otherwise(pl.lit("normal"))
    theirs = one.select(accession="case_id", prob="score").with_columns(one.select(words.alias("class")))
    write_workbook(folder / "results.xlsx", Scores=theirs)


def _features(folder: Path) -> None:
    for name, like in (("cache", "nlbs"), ("nlbs", "nlbs"), ("rsna", "rsna")):
        simulate_cache(like, folder / f"{name}.zarr", views=1, cases=CASES, dim=DIM, seed=len(name))
    simulate_cache("nlbs", folder / "cache_b2.zarr", views=1, cases=CASES, dim=DIM, seed=5, truth_seed=1)
    for name, cache in (("run_b5", "cache"), ("run_b2", "cache_b2")):
        fit_heads(folder / f"{cache}.zarr", folder / name, epochs=2)
    run = folder / "run"
    fit_heads(folder / "cache.zarr", run, epochs=2)
    manifest = pl.read_csv(run / "manifest.csv", infer_schema=False)
    site = manifest["case_id"].str.tail(1).cast(int) % 2
    age = 45 + site * 20
    manifest.with_columns(site=pl.format("site {}", site), age=age).write_csv(run / "manifest.csv")
    seal(run)
    write_certification(certify(run), folder / "certified")
    evaluate_externally(folder / "rsna.zarr", folder / "nlbs.zarr", folder / "external", epochs=2)
    sweep(folder / "cache.zarr", folder / "sweep", describe_space(["margin=0.05,0.1"]), epochs=2)
    write_comparison(compare(run, resplits=5, swaps=200, resamples=200), folder / "compare")


def _tables(folder: Path) -> None:
    """The tables of other data sets."""
    write_csaw(folder / "CSAW-CC.csv", csaw_images(csaw_exams(6, 14, 3), 0))
    exams = embed_exams(5, 9)
    write_embed(folder, exams, embed_metadata(exams, 4, 1))
    (folder / "cmmd").mkdir()
    patients = cmmd_patients()
    some = {name: patients[name] for name in ("D1-0001", "D1-0002")}
    metadata, clinical = write_cmmd(folder / "cmmd", some)
    shutil.copy(metadata, folder / "metadata.csv")
    write_workbook(folder / "CMMD_clinicaldata_revision.xlsx", Sheet1=clinical)
    vindr_table(3).write_csv(folder / "breast-level_annotations.csv")


def _images(folder: Path) -> None:
    rsna = synthesize_cohort(CohortSettings("rsna", cases=3), folder / "train_images")
    shutil.copy(rsna.metadata, folder / "train.csv")
    manifest = folder / "manifest.csv"
    build_manifest("rsna", rsna.metadata, manifest, images=str(folder / "train_images"))
    preprocess(manifest, folder / "png", workers=1)
    shutil.copy(next((folder / "train_images").rglob("*.dcm")), folder / "image.dcm")
    nlbs = synthesize_cohort(CohortSettings("nlbs", cases=3), folder / "NLBSD")
    shutil.copy(nlbs.metadata, folder / "NLBSD_Metadata.csv")
    shutil.copytree(folder / "train_images", folder / "dicoms")
    shutil.copy(manifest, folder / "dicoms" / "manifest.csv")
    table = pl.read_csv(manifest, infer_schema=False)
    cells = [[1.0] * DIM] * table.height
    table.select("image_id").with_columns(pl.Series("features", cells)).write_parquet(
        folder / "features.parquet"
    )
    np.savez(folder / "features.npz", features=np.ones((table.height, 2, DIM), dtype=np.float32))
    paths = pl.col("path").str.replace("^train_images/", "")
    table.with_columns(path=paths).write_csv(folder / "dicoms" / "images.csv")
    table.with_columns(path=paths).write_csv(folder / "images.csv")
    below = pl.col("path").str.replace("^.*train_images/", "")
    table.select("label", path=below).write_csv(folder / "labels.csv")
    archive = folder / "b5-model-best-epoch-7.tar"
    save_archive(archive, {PREFIX + name: tensor for name, tensor in make_oracle().state_dict().items()})
    convert_weights(archive, folder / "encoder.safetensors")
