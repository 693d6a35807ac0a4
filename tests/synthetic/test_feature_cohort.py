"""Simulated cohorts: exact counts, one truth, the same features in whatever portions, a learnable signal."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import ks_2samp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from trust_cache.base.errors import InputError
from trust_cache.cache.feature_rows import load_rows
from trust_cache.cache.fingerprint import Fingerprint, require_same_encoder
from trust_cache.cache.verify_cache import verify_cache
from trust_cache.manifest.datasets.dataset import describe_dataset
from trust_cache.manifest.manifest_checks import DatasetCounts
from trust_cache.synthetic.cohort_shape import counts_of, draw_exact_cases, images_of, law_of
from trust_cache.synthetic.feature_cohort import SimulatedCohort, make_model, simulate_cache
from trust_cache.synthetic.feature_law import FeatureLaw, preset_laws
from trust_cache.synthetic.truth import EPS, Truth

Head = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], float]


def counts(manifest: pl.DataFrame) -> DatasetCounts:
    cases = manifest.group_by("case_id").agg(pl.col("label").max())["label"]
    return DatasetCounts(manifest.height, cases.len(), int(cases.sum()), int(manifest["label"].sum()))


@pytest.mark.parametrize("like", ["nlbs", "rsna"])
@pytest.mark.parametrize("seed", [0, 1])
def test_counts_are_the_data_sets(like: str, seed: int) -> None:
    manifest = SimulatedCohort(like, seed, dim=16).manifest
    assert counts(manifest) == describe_dataset(like).counts
    assert manifest["image_id"].n_unique() == manifest.height
    per_case = manifest.group_by("case_id").agg(
        pl.len(),
        pl.struct("laterality", "projection").n_unique().alias("kinds"),
        pl.col("laterality").filter(pl.col("label") == 1).n_unique().alias("affected"),
    )
    assert per_case["len"].min() == 4
    assert per_case["len"].max() <= 14  # type: ignore[operator]
    assert per_case["kinds"].min() == 4  # every case has CC and MLO of both breasts
    assert per_case["affected"].max() == 1
    # All images of an affected breast are positive.
    breasts = manifest.group_by("case_id", "laterality").agg(pl.col("label").n_unique())
    assert breasts["label"].max() == 1


@settings(max_examples=60, deadline=None)
@given(like=st.sampled_from(["nlbs", "rsna"]), cases=st.integers(10, 400), seed=st.integers(0, 2**32))
def test_counts_of_smaller_cohorts(like: str, cases: int, seed: int) -> None:
    expected = counts_of(like, cases)
    shapes = draw_exact_cases(law_of(like), expected, np.random.default_rng(seed))
    images = images_of(shapes)
    assert images.case.size == expected.images
    assert shapes.positive.sum() == expected.positive_cases
    assert images.label.sum() == expected.positive_images
    assert shapes.extras_here.min() >= 0
    assert shapes.extras_there.min() >= 0


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
@pytest.mark.parametrize(("shard_images", "threads"), [(32, 1), (7, 2), (1000, 2)])
def test_an_image_has_the_same_features_whatever_the_shards(
    tmp_path: Path, suffix: str, shard_images: int, threads: int
) -> None:
    reference = SimulatedCohort("nlbs", 3, dim=64, cases=20).features(0, 90, 3)
    out = tmp_path / f"a.{suffix}"
    cache = simulate_cache(
        "nlbs", out, views=2, seed=3, dim=64, cases=20, shard_images=shard_images, threads=threads
    )
    assert cache.features.shape == (90, 3, 64)
    np.testing.assert_array_equal(cache.features[:], reference)
    assert verify_cache(out) == []
    load_rows(cache)


def test_more_views_leave_the_first_ones_as_they_are() -> None:
    cohort = SimulatedCohort("rsna", dim=64, cases=20)
    many = cohort.features(5, 20, 6)
    np.testing.assert_array_equal(cohort.features(5, 20, 2), many[:, :2])
    np.testing.assert_array_equal(cohort.features(7, 8, 1)[0, 0], many[2, 0])


def test_views_are_small_changes_of_the_clean_one() -> None:
    features = SimulatedCohort("nlbs", dim=512, cases=60).features(0, 200, 4).astype(np.float64)
    centred = features - features[:, :1].mean(axis=0)
    between_images = np.square(centred[:, 0]).mean()
    between_views = np.square(features[:, 1:] - features[:, :1]).mean()
    assert 0.02 < between_views / between_images < 0.3
    assert (features > 0).mean() > 0.8  # mostly positive, as after pooling


def test_seeds() -> None:
    def first(**settings: int) -> NDArray[np.float16]:
        return SimulatedCohort("nlbs", **{"dim": 32, "cases": 20, **settings}).features(0, 4, 1)

    np.testing.assert_array_equal(first(), first())
    assert not np.array_equal(first(), first(seed=1))
    assert not np.array_equal(first(), first(truth_seed=1))
    assert not np.array_equal(first(), SimulatedCohort("rsna", dim=32, cases=20).features(0, 4, 1))
    np.testing.assert_array_equal(
        make_model(0, 32).basis, SimulatedCohort("rsna", 5, dim=32, cases=20).model.basis
    )


def test_all_cohorts_share_an_encoder(tmp_path: Path) -> None:
    def fingerprint(like: str, number: int, truth_seed: int = 0) -> Fingerprint:
        out = tmp_path / f"{number}.zarr"
        return simulate_cache(
            like, out, views=0, seed=number, truth_seed=truth_seed, dim=8, cases=10
        ).fingerprint

    first = fingerprint("nlbs", 0)
    assert "simulated" in first.encoder
    require_same_encoder(first, fingerprint("rsna", 1), "x")
    require_same_encoder(first, fingerprint("rsna", 2, truth_seed=1), "x")


def test_only_the_true_direction_depends_on_the_truth_seed() -> None:
    one, other = make_model(0, 256), make_model(1, 256)
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_allclose(one.basis[:, 1:], other.basis[:, 1:], atol=1e-12)
    cosine = one.basis[:, 0] @ other.basis[:, 0] / np.square(np.linalg.norm(one.basis[:, 0]))
    assert abs(cosine) < 0.25  # two random directions of 256 numbers
    np.testing.assert_allclose(one.basis[:, 0] @ one.basis[:, 1:], 0, atol=1e-9)


def test_wrong_uses(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="data set: expected one of"):
        simulate_cache("other", tmp_path / "a.zarr")
    with pytest.raises(InputError, match="views: expected 0 or more"):
        simulate_cache("nlbs", tmp_path / "a.zarr", views=-1)
    with pytest.raises(InputError, match=r"preset: expected one of plain, .*; did you mean subtypes\?"):
        simulate_cache("nlbs", tmp_path / "a.zarr", preset="subtype")
    with pytest.raises(InputError, match="cases: expected at least 10"):
        simulate_cache("nlbs", tmp_path / "a.zarr", cases=3)
    with pytest.raises(ValueError, match="expected a head of 8 features"):
        Truth("nlbs", dim=8).score(np.ones(9), np.zeros(9), np.ones(9), 0.0, cases=5)


def random_head(dim: int, seed: int) -> Head:
    generator = np.random.default_rng(seed)
    gamma, beta = 1 + 0.1 * generator.standard_normal(dim), 0.1 * generator.standard_normal(dim)
    return gamma, beta, generator.standard_normal(dim) / np.sqrt(dim), 0.3


def scores_of(head: Head, clean: NDArray[np.float16]) -> NDArray[np.float64]:
    """LayerNorm, linear, sigmoid, in full."""
    gamma, beta, weight, bias = head
    x = clean.astype(np.float64)
    normal = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + EPS)
    return np.asarray(expit((normal * gamma + beta) @ weight + bias))


def case_scores(manifest: pl.DataFrame, scores: NDArray[np.float64]) -> pl.DataFrame:
    table = manifest.with_columns(pl.Series("score", scores))
    return table.group_by("case_id", maintain_order=True).agg(pl.col("score", "label").max())


@pytest.mark.parametrize("preset", preset_laws())
def test_truth_scores_as_full_features_do(preset: str) -> None:
    """The short way and 1,500 cases drawn in full agree: Kolmogorov-Smirnov at 1 in 1,000 (seeded)."""
    dim, cases, law = 96, 1500, preset_laws()[preset]
    gamma, beta, weight, bias = random_head(dim, 0)
    weight = weight + 0.3 * make_model(0, dim, law).basis.sum(axis=1)
    head = gamma, beta, weight, bias
    cohort = SimulatedCohort("rsna", dim=dim, cases=cases, law=law)
    clean = cohort.features(0, cohort.manifest.height, 1)[:, 0]
    full = case_scores(cohort.manifest, scores_of(head, clean))
    short = Truth("rsna", dim=dim, law=law).score(*head, cases=60_000)
    for label in (0, 1):
        sample = full.filter(pl.col("label") == label)["score"].to_numpy()
        assert ks_2samp(sample, short.scores[short.labels == label]).pvalue > 1e-3
    expected = describe_dataset("rsna").counts
    assert abs(short.labels.mean() - expected.positive_cases / expected.cases) < 0.004  # 5 standard errors


def test_truth_is_deterministic_in_its_seed() -> None:
    head = random_head(32, 1)
    one, two = (Truth("nlbs", dim=32).score(*head, cases=1000, seed=4) for _ in range(2))
    np.testing.assert_array_equal(one.scores, two.scores)
    other = Truth("nlbs", dim=32).score(*head, cases=1000, seed=5)
    assert not np.array_equal(one.scores, other.scores)


def best_head(dim: int) -> Head:
    """The direction that separates best among linear heads: true shift over the noise around it."""
    return np.ones(dim), np.zeros(dim), make_model(0, dim).basis[:, 0], 0.0


@pytest.mark.parametrize("like", ["nlbs", "rsna"])
def test_the_truth_leaves_a_case_auroc_near_the_papers(like: str) -> None:
    sample = Truth(like).score(*best_head(2048), cases=200_000)
    assert 0.72 < roc_auc_score(sample.labels, sample.scores) < 0.76


def trained_head(cohort: SimulatedCohort, fit: NDArray[np.bool_], epochs: int, lr: float) -> Head:
    """The paper's training in plain torch: CE, AdamW, 20 + 60 images a batch, views 1..K."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    images, views = cohort.manifest.height, 3
    features = torch.from_numpy(cohort.features(0, images, views))
    label = cohort.manifest["label"].to_numpy()
    positive, negative = np.flatnonzero(fit & (label == 1)), np.flatnonzero(fit & (label == 0))
    norm, linear = torch.nn.LayerNorm(cohort.model.dim), torch.nn.Linear(cohort.model.dim, 1)
    parameters = [*norm.parameters(), *linear.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=lr, weight_decay=1e-4)
    for _ in range(epochs * -(-int(fit.sum()) // 80)):
        batch = np.concatenate([generator.choice(positive, 20), generator.choice(negative, 60)])
        x = features[batch, generator.integers(1, views, 80)].float()
        logits = linear(torch.nn.functional.dropout(norm(x), 0.3))[:, 0]
        target = torch.from_numpy(label[batch]).float()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 5.0)
        optimiser.step()
    gamma, beta, weight, bias = (
        part.detach().double().numpy() for part in (norm.weight, norm.bias, linear.weight[0], linear.bias)
    )
    return gamma, beta, weight, float(bias[0])


def test_a_logistic_regression_learns_the_truth() -> None:
    cohort = SimulatedCohort("rsna", dim=256, cases=1200)
    clean = cohort.features(0, cohort.manifest.height, 1)[:, 0].astype(np.float64)
    normal = (clean - clean.mean(axis=1, keepdims=True)) / clean.std(axis=1, keepdims=True)
    fitted = LogisticRegression(C=1e-3, class_weight="balanced").fit(normal, cohort.manifest["label"])
    head = np.ones(256), np.zeros(256), fitted.coef_[0], float(fitted.intercept_[0])
    sample = Truth("rsna", dim=256).score(*head, cases=100_000)
    assert 0.66 < roc_auc_score(sample.labels, sample.scores) < 0.76


@pytest.mark.slow
def test_a_head_trained_as_in_the_paper_reaches_its_auroc() -> None:
    """On NLBS's shape; RSNA's, with twice the data, was measured once at 0.01 more and takes minutes."""
    like = "nlbs"
    cohort = SimulatedCohort(like)
    case = cohort.manifest["case_id"].rank("dense").to_numpy() - 1
    fit = np.random.default_rng(0).random(case.max() + 1)[case] < 0.7
    head = trained_head(cohort, fit, epochs=20, lr=3e-5)
    sample = Truth(like).score(*head)
    assert 0.68 < roc_auc_score(sample.labels, sample.scores) < 0.76
    clean = cohort.features(0, cohort.manifest.height, 1)[~fit, 0]
    held_out = case_scores(cohort.manifest.filter(pl.Series(~fit)), scores_of(head, clean))
    assert 0.65 < roc_auc_score(held_out["label"], held_out["score"]) < 0.80  # NLBS: 45 positives, s.e. 0.035


def test_cases_of_a_patient_are_alike_and_nothing_else_changes(tmp_path: Path) -> None:
    alone, cohort = (
        SimulatedCohort("nlbs", 5, dim=64, law=FeatureLaw(patients=share)) for share in (0.0, 0.3)
    )
    assert cohort.manifest.drop("patient_id").equals(alone.manifest)
    first = cohort.manifest.with_row_index("row").unique("case_id", maintain_order=True)
    sizes = first["patient_id"].value_counts()["count"]
    assert set(sizes) == {1, 2, 3}
    # Binomial: 0.3 within 4.5 standard deviations; the last patient may have lost cases.
    assert abs((sizes > 1).mean() - 0.3) < 4.5 * np.sqrt(0.3 * 0.7 / sizes.len())  # type: ignore[operator]
    # Two images of one patient in different cases share patient_share * case_share = 0.4 of a nuisance.
    nuisance = first.with_columns(value=pl.Series(cohort.coordinates[first["row"].to_numpy(), 1]))
    pairs = nuisance.filter(pl.len().over("patient_id") == 2).sort("patient_id")["value"].to_numpy()
    one, other = pairs.reshape(-1, 2).T
    assert abs(np.corrcoef(one, other)[0, 1] - 0.4) < 4.5 / np.sqrt(one.size)
    assert abs(cohort.coordinates[:, 1].std() - 1.0) < 0.05
    cache = simulate_cache("nlbs", tmp_path / "a.zarr", views=0, dim=16, cases=60, patients=0.5)
    assert cache.manifest["patient_id"].n_unique() < 60
    with pytest.raises(InputError, match=r"patients: expected a share from 0 to 1, found 1\.5"):
        simulate_cache("nlbs", tmp_path / "b.zarr", dim=16, cases=60, patients=1.5)
