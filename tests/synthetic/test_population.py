"""The truth about heads under every preset, against full features drawn by a sampler of its own."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import chi2

from trust_cache.base.errors import InputError
from trust_cache.manifest.cases import Aggregation
from trust_cache.synthetic.best_heads import best_head, cross_entropy_head
from trust_cache.synthetic.cohort_shape import draw_cases, images_of, law_of
from trust_cache.synthetic.feature_cohort import SimulatedCohort, make_model
from trust_cache.synthetic.feature_law import FeatureLaw, Lesion, Site, preset_laws
from trust_cache.synthetic.population import Population
from trust_cache.synthetic.truth import EPS, LinearHeads, Truth

Floats = NDArray[np.float64]
DIM, DRAWN = 48, 3_000
SMALL = {"positives": 40_000, "negatives": 40_000}


@dataclass(frozen=True)
class FullCases:
    features: list[Floats]  # [image, dim] of each case
    kinds: list[int]


def draw_in_full(law: FeatureLaw, positive: bool, generator: Generator) -> FullCases:
    """Cases of one class, feature by feature, straight from the words of the law."""
    model = make_model(0, DIM, law)
    shapes = draw_cases(law_of("nlbs"), DRAWN, generator, DRAWN * positive)
    images = images_of(shapes)
    count, directions = model.basis.shape[1], law.directions
    drawn, kinds = [], []
    for here in np.split(images.here, np.flatnonzero(np.diff(images.case)) + 1):
        kind = pick(law.cancers if positive else law.benign, "share", generator)
        site = pick(law.sites, "cancer_share" if positive else "share", generator)
        shared, own = student(law, (1, count), generator), student(law, (here.size, count), generator)
        c = np.sqrt(law.case_share) * shared + np.sqrt(1 - law.case_share) * own
        for place, shift in enumerate(() if kind is None else kind.shift):
            c[here, 0 if place == 0 else count - directions + place] += shift
        for place, shift in enumerate(() if site is None else site.shift):
            c[:, 1 + place] += shift
        noise = law.noise * generator.standard_normal((here.size, DIM))
        drawn.append(model.mean + c @ model.basis.T + noise)
        kinds.append(len(law.lesions) if kind is None else law.lesions.index(kind))
    return FullCases(drawn, kinds)


def pick(among: tuple[Any, ...], share: str, generator: Generator) -> Any:
    """One of several with their shares; None with the rest."""
    u = generator.random()
    for item in among:
        if (u := u - getattr(item, share)) < 0:
            return item
    return None


def student(law: FeatureLaw, shape: tuple[int, int], generator: Generator) -> Floats:
    """Rows with the variance of standard normal ones; where tails are heavy, a normal over its scale."""
    if law.degrees is None:
        return generator.standard_normal(shape)
    rows = generator.multivariate_normal(np.zeros(shape[1]), np.eye(shape[1]), shape[0])
    scale = np.sqrt(
        np.square(generator.standard_normal((shape[0], int(law.degrees)))).sum(axis=1) / law.degrees
    )
    return np.asarray(rows / scale[:, None] * np.sqrt(1 - 2 / law.degrees))


def case_logits(heads: LinearHeads, cases: FullCases) -> Floats:
    """LayerNorm, linear, maximum over the case's images, in full."""
    found = []
    for x in cases.features:
        normal = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + EPS)
        found.append((normal @ heads.directions.T + heads.offsets).max(axis=0))
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("preset", preset_laws())
def test_true_points_are_those_of_full_features(preset: str) -> None:
    """Misses, dismissals and kinds at thresholds of the population: within 4.5 binomial standard errors."""
    law = preset_laws()[preset]
    population = Population(Truth("nlbs", dim=DIM, law=law), **SMALL)
    generator = np.random.default_rng(7)
    random = LinearHeads(generator.standard_normal((1, DIM)) / 7, np.array([0.3]))
    known = cross_entropy_head(population)
    heads = LinearHeads(
        np.vstack([random.directions, known.directions]), np.concatenate([random.offsets, known.offsets])
    )
    full = {label: draw_in_full(law, bool(label), generator) for label in (0, 1)}
    logits = {label: case_logits(heads, full[label]) for label in (0, 1)}
    for recall in (0.98, 0.8):
        points = population.points(heads, recall)
        shares = population.dismissed(heads, np.array([[point.tau for point in points]]))[:, 0]
        for head, point in enumerate(points):
            limit = np.log(point.tau / (1 - point.tau))
            for label in (0, 1):
                found = float(np.mean(logits[label][:, head] < limit))
                share = shares[label, head]
                error = np.sqrt(share * (1 - share) * (1 / DRAWN + 1 / 40_000))
                assert abs(found - share) < 4.5 * error, (recall, head, label)
            assert shares[1, head] == pytest.approx(1 - recall, abs=1e-4)
            prevalence = law_of("nlbs").prevalence
            dismissal = prevalence * shares[1, head] + (1 - prevalence) * shares[0, head]
            assert point.dismissal == pytest.approx(dismissal, abs=2e-4)
            assert point.false_omission_rate == pytest.approx(prevalence * (1 - recall) / dismissal, rel=0.02)
    for label in (0, 1):
        of_population, of_full = population.kinds(label), np.array(full[label].kinds)
        for kind in range(len(law.kind_names)):
            share = np.mean(of_population == kind)
            error = np.sqrt(share * (1 - share) / DRAWN)
            assert abs(np.mean(of_full == kind) - share) <= 4.5 * error + 0.002


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["breast-mean", "noisy-or", "top-two"])
def test_other_aggregations_against_cases_drawn_together(aggregation: Aggregation) -> None:
    """Shares below thresholds: each class apart against `Truth.score`, within 4.5 standard errors."""
    truth, generator = Truth("nlbs", dim=DIM), np.random.default_rng(11)
    weights, offset = generator.standard_normal(DIM) / 5, -1.0
    population = Population(truth, **SMALL)
    heads = LinearHeads.of(np.ones((1, DIM)), np.zeros((1, DIM)), weights[None], np.array([offset]))
    drawn = truth.score(
        np.ones(DIM), np.zeros(DIM), weights, offset, cases=400_000, seed=5, aggregation=aggregation
    )
    (point,) = population.points(heads, 0.9, aggregation)
    shares = population.dismissed(heads, np.array([[point.tau]]), aggregation)[:, 0, 0]
    assert shares[1] == pytest.approx(0.1, abs=1e-4)
    for label in (0, 1):
        below = drawn.scores[drawn.labels == label] < point.tau
        error = np.sqrt(shares[label] * (1 - shares[label]) * (1 / below.size + 1 / 40_000))
        assert abs(below.mean() - shares[label]) < 4.5 * error
    highest = population.dismissed(heads, np.array([[point.tau]]))[:, 0, 0]
    assert np.all(highest < shares) if aggregation != "noisy-or" else np.all(highest > shares)


def test_heads_within_the_span_are_exact_together() -> None:
    """The share of cases where one head scores above another: by the population and by full features."""
    truth = Truth("nlbs", dim=DIM)
    generator = np.random.default_rng(5)
    directions = truth.model.basis[:, 0] + 3 * generator.standard_normal((2, DIM))
    heads = LinearHeads(directions / np.linalg.norm(directions, axis=1, keepdims=True), np.zeros(2))
    full = case_logits(heads, draw_in_full(truth.law, positive=False, generator=generator))
    middle = float(np.median(full))
    shares = []
    for within in (heads, None):
        population = Population(truth, 1_000, 40_000, within=within)
        logits = np.concatenate(list(population.logits(heads, 0)))
        shares.append(float(np.mean((logits[:, 0] < middle) & (logits[:, 1] >= middle))))
    found = float(np.mean((full[:, 0] < middle) & (full[:, 1] >= middle)))
    error = np.sqrt(found * (1 - found) * (1 / DRAWN + 1 / 40_000))
    assert abs(shares[0] - found) < 4.5 * error
    assert abs(shares[1] - found) > 4.5 * error  # heads outside the span share all of their noise


def test_the_stated_error_is_the_spread_over_populations() -> None:
    truth = Truth("rsna", dim=DIM, law=preset_laws()["mixed"])
    heads = LinearHeads(make_model(0, DIM, truth.law).basis[:, :1].T, np.zeros(1))
    points = [Population(truth, 8_000, 4_000, seed).points(heads, 0.95)[0] for seed in range(30)]
    ratio = np.var([point.dismissal for point in points]) / np.mean([point.error**2 for point in points])
    low, high = chi2.ppf([0.0005, 0.9995], 29) / 29
    assert 0.8 * low < ratio < 1.25 * high


@pytest.mark.slow
def test_cross_entropy_is_best_for_plain_features_and_not_beside_benign_findings() -> None:
    """At 98 % recall; what was found on one population is measured on another."""
    gains = {}
    for preset in ("plain", "benign"):
        truth = Truth("nlbs", dim=DIM, law=preset_laws()[preset])
        known, new = (Population(truth, 20_000, 10_000, seed) for seed in (1, 2))
        first, best = cross_entropy_head(known), best_head(known, 0.98)
        one, other = new.points(first, 0.98)[0], new.points(best, 0.98)[0]
        gains[preset] = other.dismissal - one.dismissal
        error = np.hypot(one.error, other.error)
        # No small change of the best head dismisses more.
        generator = np.random.default_rng(3)
        length = np.linalg.norm(best.directions)
        for _ in range(5):
            step = make_model(0, DIM, truth.law).basis @ generator.standard_normal(
                new.span.model.basis.shape[1]
            )
            moved = LinearHeads(best.directions + 0.3 * length * step / np.linalg.norm(step), np.zeros(1))
            assert new.points(moved, 0.98)[0].dismissal < other.dismissal + 2 * error
    assert abs(gains["plain"]) < 3 * error
    assert gains["benign"] > 0.02


def test_columns_name_findings_and_sites_where_they_differ() -> None:
    plain, mixed = (
        SimulatedCohort("rsna", dim=16, cases=500, law=preset_laws()[n]) for n in ("plain", "mixed")
    )
    assert "lesion" not in plain.manifest.columns
    assert set(plain.manifest["site"]) == {"1", "2"}
    assert mixed.manifest.drop("lesion", "site").equals(plain.manifest.drop("site"))
    cases = mixed.manifest
    assert set(cases["lesion"]) == {"mass", "calcification", "subtle", "cyst", "none"}
    assert set(cases["site"]) == {"screening", "referral"}
    sick = cases.filter(cases["label"] == 1)["lesion"].unique().to_list()
    assert set(sick) == {"mass", "calcification", "subtle"}
    assert cases.group_by("case_id").n_unique()["lesion"].max() == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"degrees": 2.0}, "degrees: expected a number above 2, found 2.0"),
        ({"noise": -1.0}, "noise: expected 0 or more, found -1.0"),
        ({"case_share": 1.2}, "case_share: expected a share from 0 to 1, found 1.2"),
        (
            {"cancers": (Lesion(name="a", share=0.5, shift=(1.0,)),)},
            "cancers: expected shares that add up to 1",
        ),
        (
            {"benign": (Lesion(name="a", share=1.5, shift=(1.0,)),)},
            "benign: expected shares of at most 1 in all",
        ),
        (
            {"sites": (Site(name="a", share=1.0, cancer_share=0.9, shift=()),)},
            "sites: cancer_share: expected",
        ),
        (
            {"sites": (Site(name="a", share=1.0, cancer_share=1.0, shift=(1.0,) * 9),)},
            "expected at most 8 numbers",
        ),
    ],
)
def test_a_law_that_cannot_be_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FeatureLaw(**values)  # type: ignore[arg-type]
