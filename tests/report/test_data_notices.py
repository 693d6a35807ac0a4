"""A warning about labels goes from the manifest through cache and run to the report."""

from pathlib import Path

import numpy as np
import polars as pl

import trust_cache as tc
from tests.manifest.test_vindr import vindr_table


def test_labels_that_are_no_pathology_are_named_in_the_report(tmp_path: Path) -> None:
    studies = vindr_table(700)
    some = studies.filter(pl.col("study_id").is_in([f"study{number}" for number in range(400, 560)]))
    some.write_csv(tmp_path / "breast-level_annotations.csv")
    metadata, manifest = tmp_path / "breast-level_annotations.csv", tmp_path / "manifest.csv"
    built = tc.build_manifest("vindr", metadata, manifest, images="/x", look=False, birads="4")
    features = np.random.default_rng(0).normal(size=(built.counts.images, 8)).astype(np.float16)
    np.save(tmp_path / "features.npy", features)
    cache = tc.import_features(tmp_path / "features.npy", manifest, tmp_path / "cache.zarr")
    assert "positive: BI-RADS 4 or 5" in tc.cache_info(cache).terms
    tc.fit_heads(cache, tmp_path / "run", configurations="ce", epochs=1)
    words = "VinDr-Mammo: labels are BI-RADS categories, not pathology"
    certified = tc.certify(tmp_path / "run", tmp_path / "certified")
    assert sum(text.startswith(words) for text in certified.warnings) == 1
    tc.write_report([tmp_path / "run"], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"run: {words}" in page
    assert page.count(words) == 1
    assert "positive: BI-RADS 4 or 5 of that breast" in page
