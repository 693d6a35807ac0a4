"""Models and worklists for the tests of the clinic package."""

from typing import Any

import numpy as np
import polars as pl
from msgspec import UNSET
from msgspec.structs import fields
from numpy.typing import NDArray

from tests.cache.material import FINGERPRINT
from tests.heads.cohorts import a_cohort
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.certificate.certified_folder import Certificate
from trust_cache.clinic.model_folder import Model, ModelThreshold
from trust_cache.clinic.model_scoring import TrainedOn
from trust_cache.clinic.worklist import WorklistRow
from trust_cache.heads.bank import HeadParameters
from trust_cache.manifest.protocol import SCREENING, Protocol

TAU = 0.3
LEFT_CC = Protocol(name="left CC", projections=("L-CC",))  # what every case of `two_halves` fulfils


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


def a_certificate(**changes: Any) -> Certificate:
    """The certificate of `a_model`: nothing but what a model checks is meaningful."""
    known = dict.fromkeys(Certificate.__struct_fields__) | {"sweep": UNSET}
    counts = [field.name for field in fields(Certificate) if field.type is int]
    known |= dict.fromkeys(counts, 1) | {"schema": 1, "rule": "recall", "versions": {}}
    known |= {"tau": TAU, "target": 0.98, "configuration": "closed-loop", "met": True, "bound": 0.012}
    known |= {"status": "certified", "aggregation": "maximum", "protocol": SCREENING, "split_origin": "drawn"}
    known |= {"bound_corrected": 0.012, "delta": 0.01, "scores_sha256": "cd" * 32, "split_sha256": "ef" * 32}
    return Certificate(**(known | changes))


def a_model(
    *,
    certified: bool = True,
    tau: float | None = TAU,
    head: HeadParameters | None = None,
    fingerprint: Fingerprint = FINGERPRINT,
    trained_on: TrainedOn | None = None,
    **certificate: Any,
) -> Model:
    return Model(
        configuration="closed-loop",
        origin="external",
        fingerprint=fingerprint,
        head=head or a_head(),
        threshold=ModelThreshold(tau, 0.98, "certificate"),
        protocol=SCREENING,
        reference=np.linspace(0.01, 0.99, 99),
        trained_on=trained_on
        or TrainedOn(frozenset({"ab" * 16, "cd" * 16}), np.arange(48, dtype=np.int16).reshape(3, 16)),
        made_from={"run": "run", "seed": 0},
        certificate=a_certificate(tau=tau, **certificate) if certified else None,
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
