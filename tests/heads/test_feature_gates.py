"""The feature gate of a run: fitted inside each fold, without labels and test images; its cost is small."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.heads.cohorts import a_cohort, write_cohort
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.feature_rows import load_rows, rows_of_array
from trust_cache.certificate.certify import certify
from trust_cache.certificate.score_table import read_scores
from trust_cache.heads.fit import fit_heads
from trust_cache.heads.fold_training import fold_gate, gate_tails
from trust_cache.heads.folds import TEST
from trust_cache.heads.head_settings import TrainingSettings, presets
from trust_cache.heads.training_data import FitSettings, prepare
from trust_cache.manifest.cases import FEATURE_TAIL
from trust_cache.manifest.protocol import PAPER, SCREENING, Protocol
from trust_cache.synthetic.feature_cohort import simulate_cache

CHOSEN = {"ce": presets()["ce"]}
GATED = Protocol(name="features", feature_tail=SCREENING.feature_tail)


def test_a_gate_sees_neither_labels_nor_test_images(tmp_path: Path) -> None:
    manifest, features = a_cohort()
    cache = open_cache(write_cohort(tmp_path / "cache.zarr", manifest, features))
    work = prepare(cache, FitSettings(CHOSEN, TrainingSettings(epochs=1)), None)
    for fold in range(5):
        gate = fold_gate(work, rows_of_array(features), 0, fold)
        test = work.images(0, fold, TEST)
        changed = features.copy()
        changed[test] = 7
        relabelled = replace(work, labels=1 - work.labels)
        again = fold_gate(relabelled, rows_of_array(changed), 0, fold)
        for name in ("centre", "scale", "basis", "variances"):
            assert getattr(again, name).tobytes() == getattr(gate, name).tobytes()
        assert [again.start, again.spread, again.shape] == [gate.start, gate.spread, gate.shape]
        assert np.all(gate_tails(gate, rows_of_array(changed), test) < 1e-6)


def test_a_run_has_the_tails_of_its_own_folds(tmp_path: Path) -> None:
    manifest, features = a_cohort()
    present = np.ones(manifest.height, dtype=np.bool_)
    present[3] = False
    source = write_cohort(tmp_path / "cache.zarr", manifest, features, present=present)
    fit_heads(source, tmp_path / "run", configurations=CHOSEN, epochs=1, threads=1)
    cache = open_cache(source)
    rows = load_rows(cache)
    work = prepare(cache, FitSettings(CHOSEN, TrainingSettings(epochs=1)), None)
    written = pl.read_csv(tmp_path / "run" / "manifest.csv", infer_schema=False)[FEATURE_TAIL]
    assert written[3] is None
    assert written.null_count() == 1
    found = written.cast(pl.Float64).fill_null(np.nan).to_numpy()
    for fold in range(5):
        test = work.images(0, fold, TEST)
        expected = gate_tails(fold_gate(work, rows, 0, fold), rows, test)
        np.testing.assert_allclose(found[test], expected, rtol=0.02)


@pytest.mark.parametrize(
    ("shape", "preset"), [("nlbs", "plain"), ("rsna", "plain"), ("nlbs", "heavy-tails"), ("rsna", "mixed")]
)
def test_the_gate_costs_little_dismissal(tmp_path: Path, shape: str, preset: str) -> None:
    """At most half a point on an ordinary cohort; the certificate says how many cases it stops."""
    cache = tmp_path / "cache.zarr"
    simulate_cache(shape, cache, views=0, dim=256, cases=1_500, shard_images=2_048, preset=preset)
    fit_heads(cache, tmp_path / "run", configurations=CHOSEN, epochs=3, threads=1)
    scores = read_scores(tmp_path / "run")
    without, gated = (certify(scores, protocol=protocol, targets=[0.9]) for protocol in (PAPER, GATED))
    cost = without.points[0].dismissal - gated.points[0].dismissal  # type: ignore[operator]
    assert cost <= 0.005
    incomplete = int(np.count_nonzero(~gated.cohort.complete(0)))
    assert incomplete <= 0.01 * gated.cohort.cases
    assert any("feature-gate" in text for text in gated.warnings) is (incomplete > 0)
    assert gated.settings.protocol.feature_tail == SCREENING.feature_tail
