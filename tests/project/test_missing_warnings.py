"""Warnings that users missed: each is said where it applies, and not where it does not."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.conftest import make_scores
from tests.heads.cohorts import a_cohort, write_cohort
from trust_cache.base.errors import InputError
from trust_cache.cache.exchange.import_features import import_features
from trust_cache.certificate.certify import certify
from trust_cache.clinic.export_model import Export, export_model
from trust_cache.clinic.triage import TriageSettings, triage
from trust_cache.heads.fit import fit_heads
from trust_cache.heads.head_settings import HeadSettings, presets
from trust_cache.statistics.rules import RULES
from trust_cache.studies.sweep.sweep import sweep
from trust_cache.studies.sweep.sweep_request import describe_space


def said(warnings: tuple[str, ...], words: str) -> list[str]:
    return [text for text in warnings if words in text]


def test_reversed_scores_and_dismissing_nothing() -> None:
    good = certify(make_scores(auroc=0.95)).warnings
    for words in ("at or below 0.5", "nothing dismissed", "not below limit"):
        assert not said(good, words)
    reversed_scores = make_scores(auroc=0.9).with_columns(score=1 - pl.col("score"))
    assert said(certify(reversed_scores).warnings, "or are reversed (a high score must mean cancer)")
    lowest = make_scores().with_columns(
        score=pl.when(pl.col("label") == 1).then(0.5 * pl.col("score").min()).otherwise("score")
    )
    found = certify(lowest, targets=(0.98,)).warnings
    assert said(found, "nothing dismissed: at 98%: no evaluation case is below the threshold")


def test_a_bound_that_is_not_below_the_prevalence() -> None:
    """Positives at random: a few cases are dismissed, no better than at random."""
    for seed in range(20):
        made = certify(make_scores(auroc=0.6, seed=seed), targets=(0.98,))
        if made.points[0].status == "bound not below limit":
            break
    assert said(made.warnings, "bound not below limit: at 98%: the target is met, but")


def test_a_tau_that_stays_at_zero(tmp_path: Path) -> None:
    cache = write_cohort(tmp_path / "c.zarr", *a_cohort())
    loop = presets()["closed-loop"]
    loose = HeadSettings(tau="closed-loop", loop_level=0.9, lr=1e-3)
    run = fit_heads(
        cache,
        tmp_path / "run",
        configurations={"ce": presets()["ce"], "loop": loop, "loose": loose},
        epochs=2,
    )
    (text,) = said(run.warnings, "tau stayed at 0")
    assert text.startswith("loop: tau stayed at 0 in 5 of 5 folds")
    taus = pl.read_csv(run.folder / "thresholds.csv").filter(pl.col("configuration") == "loose")["tau"]
    assert taus.max() > 0


def test_a_winner_on_the_edge_of_its_grid(tmp_path: Path) -> None:
    cache = write_cohort(tmp_path / "c.zarr", *a_cohort(cases=200, positives=60, distance=1.5))
    words = ["lr=1e-7,1e-6,1e-2", "lambda_dismiss=0,0.05,0.5"]
    found = sweep(cache, tmp_path / "s", describe_space(words), epochs=3)
    for name, values in (("lr", (1e-7, 1e-2)), ("lambda_dismiss", (0.5,))):
        edges = {winner for winner in found.winners.values() if getattr(winner.values, name) in values}
        assert bool(said(found.warnings, f"has {name}=")) == bool(edges)
    assert said(found.warnings, "has lr=0.01, the highest of the 3 values tried; extend the axis beyond it")
    two = sweep(cache, tmp_path / "two", describe_space(["lr=1e-6,1e-2"]), epochs=1)
    assert not said(two.warnings, "values tried"), "with two values the winner is always at an end"


def test_the_reason_of_sgr_is_true() -> None:
    """Different scores: "equal scores leave fewer" was false. Half of the search cases is its first look."""
    generator = np.random.default_rng(0)
    scores, labels = generator.random(1_000), generator.random(1_000) < 0.3
    choice = RULES["sgr"].choose(scores, labels.astype(int), 0.01, 0.01)
    assert choice.tau is None
    assert choice.reason is not None
    assert "equal scores" not in choice.reason
    assert choice.reason.endswith("the largest number that its search looks at here is 500")
    assert 500 < (choice.needed or 0) < 1_000
    enough = RULES["sgr"].choose(np.tile(scores, 4), np.tile(labels, 4).astype(int), 0.01, 0.01)
    assert enough.reason is not None
    assert " positive" in enough.reason


@pytest.fixture
def imported(tmp_path: Path) -> Export:
    """A model of imported features."""
    manifest, features = a_cohort()
    manifest.write_csv(tmp_path / "manifest.csv")
    np.save(tmp_path / "features.npy", features)
    cache = import_features(tmp_path / "features.npy", tmp_path / "manifest.csv", tmp_path / "c.zarr")
    fit_heads(cache, tmp_path / "run", configurations={"ce": presets()["ce"]}, epochs=1)
    return export_model(tmp_path / "run", tmp_path / "model", configuration="ce")


def test_a_model_of_imported_features_says_at_once_that_it_cannot_read_images(imported: Export) -> None:
    assert said(imported.warnings, "cannot read images (`triage`); it can score caches of the same encoder")


@pytest.mark.parametrize("weights", [None, "random"])
def test_triage_refuses_such_a_model_before_it_asks_for_anything(
    imported: Export, tmp_path: Path, weights: str | None
) -> None:
    """It used to ask for a GPU, then for weights with the digest of the features."""
    settings = TriageSettings(weights=weights)
    with pytest.raises(InputError, match=r"found imported features .* cannot read images"):
        triage(tmp_path / "nowhere", imported.stored.folder, tmp_path / "worklist.csv", settings)
