"""Models and worklists for the tests of the clinic package."""

from typing import Any

import numpy as np
import polars as pl
from msgspec import structs
from numpy.typing import NDArray

from tests.cache.material import FINGERPRINT
from tests.heads.cohorts import a_cohort
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.certificate.certification import Composition
from trust_cache.certificate.certified_folder import Certificate
from trust_cache.certificate.points import Counts, Terms, Threshold, describe
from trust_cache.clinic.model_folder import Model, ModelThreshold
from trust_cache.clinic.model_scoring import TrainedOn
from trust_cache.clinic.worklist import WorklistRow
from trust_cache.heads.bank import HeadParameters
from trust_cache.manifest.protocol import SCREENING, Protocol
from trust_cache.statistics.feature_gate import FeatureGate
from trust_cache.studies.image_sketches import NUMBERS, ImageSketches

TAU = 0.3
# What every case of `two_halves` fulfils.
LEFT_CC = Protocol(name="left CC", projections=("L-CC",), review_warnings=True, feature_tail=1e-12)


def two_halves(seed: int = 0) -> list[tuple[pl.DataFrame, NDArray[np.float16]]]:
    """Two disjoint sets of 200 cases with the same ids; the same direction separates the positives."""
    manifest, features = a_cohort(cases=400, positives=120, distance=2.0, seed=seed)
    number = manifest["case_id"].cast(int)
    halves = []
    for half in (0, 1):
        chosen = (number % 2 == half).to_numpy()
        renamed = [f"{value // 2:04d}" for value in number.filter(chosen).to_list()]
        part = manifest.filter(chosen).with_columns(pl.Series("case_id", renamed))
        halves.append((part, np.ascontiguousarray(features[chosen])))
    return halves


def a_head(dim: int = 6, seed: int = 0) -> HeadParameters:
    generator = np.random.default_rng(seed)
    gamma, beta, weight = generator.standard_normal((3, 1, dim)).astype(np.float32)
    return HeadParameters(gamma, beta, weight, np.array([0.25], dtype=np.float32))


def a_certificate(tau: float | None = TAU, **changes: Any) -> Certificate:
    """The certificate of `a_model`: 1 of 553 dismissed is positive: a bound of 1.2 %."""
    counts = Counts(4_797, 119, 0, 0, 553, 1)
    threshold = Threshold("closed-loop", 0.98, tau, 1_200, 30, 0, 1, 30)
    point = describe(counts, counts, threshold, Terms("recall", 0.01, 1), auroc_case=0.8)
    composition = Composition(configurations=("closed-loop",), targets=(0.98,), groups={})
    certificate = Certificate(
        **structs.asdict(point),
        schema=1,
        rule="recall",
        seed=0,
        split_origin="drawn",
        aggregation="maximum",
        protocol=SCREENING,
        scores_sha256="cd" * 32,
        split_sha256="ef" * 32,
        composition=composition,
        attempts=(),
        versions={"trust-cache": "0"},
    )
    return structs.replace(certificate, **changes)


def open_gate(dim: int) -> FeatureGate:
    """A feature gate that lets every image pass."""
    zeros, ones = np.zeros(dim, dtype=np.float32), np.ones(dim, dtype=np.float32)
    return FeatureGate(zeros, ones, np.eye(1, dim, dtype=np.float32), ones[:1], 1.0, 1e9, 1.0, 0.0)


def a_training_set(dim: int) -> TrainedOn:
    codes = np.arange(1, 3 * NUMBERS + 1, dtype=np.int16).reshape(NUMBERS, 3).T.copy()
    sketches = ImageSketches(np.zeros(dim, dtype=np.float32), 1.0, 0.1, codes)
    return TrainedOn(sketches, frozenset({b"a" * 16, b"c" * 16}), b"k" * 16)


def a_model(
    *,
    certified: bool = True,
    tau: float | None = TAU,
    head: HeadParameters | None = None,
    fingerprint: Fingerprint = FINGERPRINT,
    trained_on: TrainedOn | None = None,
    gate: FeatureGate | None = None,
    protocol: Protocol = SCREENING,
    **certificate: Any,
) -> Model:
    return Model(
        configuration="closed-loop",
        aggregation="maximum",
        origin="external",
        fingerprint=fingerprint,
        head=head or a_head(),
        threshold=ModelThreshold(tau, 0.98, "certificate"),
        protocol=protocol,
        reference=np.linspace(0.01, 0.99, 99),
        trained_on=trained_on or a_training_set(6 if head is None else head.dim),
        gate=gate or open_gate(6 if head is None else head.dim),
        made_from={"run": "run", "seed": 0},
        certificate=a_certificate(tau=tau, protocol=protocol, **certificate) if certified else None,
    )


def a_row(case_id: str, model: str, *, dismissed: bool = True) -> WorklistRow:
    return WorklistRow(
        case_id=case_id,
        score=0.1 if dismissed else 0.9,
        decision="dismiss" if dismissed else "review",
        image_id=f"{case_id}_1",
        tau=TAU,
        complete=True,
        reason=None,
        certified=True,
        model=model,
    )
