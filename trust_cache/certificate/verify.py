"""Verify a certificate: recompute it from scores and split and name every field that disagrees."""

import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from trust_cache.base.documents import explain
from trust_cache.base.errors import InputError
from trust_cache.certificate.certification import DELTAS
from trust_cache.certificate.certified_folder import MAXIMUM, SPLIT, Certificate, read_certificate_keys
from trust_cache.certificate.points import POINT_KEYS, Terms, choose_threshold, evaluate
from trust_cache.certificate.score_table import Cohort, build_cohort, read_scores
from trust_cache.certificate.split import Split, draw_split, read_split
from trust_cache.manifest.cases import PATIENT
from trust_cache.manifest.protocol import PAPER, PROTOCOLS, Protocol
from trust_cache.statistics.rules import miss_rules

_SWEEP_COUNTS = ("settings", "targets", "looks")
_MOST_COMPARED = 10**9
_FIELDS = {field.name: field for field in msgspec.structs.fields(Certificate)}
_EXACT_TO = 1e-9  # relative: another scipy may differ in the last digits of a beta quantile


@dataclass(frozen=True)
class Disagreement:
    """A field whose stated value differs from the recomputed one, or is not allowed there."""

    field: str
    stated: object
    recomputed: object = None
    expected: str | None = None  # where the value itself is wrong

    def __str__(self) -> str:
        found = f"found {self.recomputed!r}" if self.expected is None else f"expected {self.expected}"
        return f"{self.field}: the certificate says {self.stated!r}, {found}"


@dataclass(frozen=True)
class Verification:
    """The outcome: the certificate holds if nothing disagrees."""

    certificate: Path
    stated: dict[str, Any]
    disagreements: tuple[Disagreement, ...]

    @property
    def holds(self) -> bool:
        """Whether every field agrees."""
        return not self.disagreements


def as_document(verification: Verification) -> dict[str, Any]:
    """Return the outcome as a JSON document; NaN and infinity, which JSON lacks, become text."""
    return {
        "certificate": str(verification.certificate),
        "holds": verification.holds,
        "disagreements": [
            {
                name: repr(value) if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in asdict(item).items()
            }
            for item in verification.disagreements
        ],
    }


def verify(
    certificate: Path, scores: Path, split: Path | None = None, *, patient: str = PATIENT
) -> Verification:
    """Recompute a certificate; the default split is the one in its certified folder.

    `patient` is the scores' column of patients, if they have one.
    """
    stated = read_certificate_keys(certificate)
    split_file = certificate.resolve().parent.parent / SPLIT if split is None else split
    if split is None and not split_file.exists():
        raise InputError(
            f"{certificate}: no split.csv in the folder above it ({split_file}); name one with --split"
        )
    table = read_scores(scores, patient)
    found = _differing("scores_sha256", stated, table.sha256)
    cohort = build_cohort(table, _protocol_of(stated))
    try:
        parts, _ = read_split(split_file, cohort, _seed_of(stated))
    except InputError as error:
        if not found and split_file.exists():
            # The scores are right and the split does not fit them: it is another split.
            found = [Disagreement("split_sha256", stated.get("split_sha256"), expected=f"its split; {error}")]
        if not found:
            raise
        return Verification(certificate, stated, tuple(found))
    found += _differing("split_sha256", stated, parts.sha256)
    if stated.get("split_origin") == "drawn" and draw_split(cohort, _seed_of(stated)).sha256 != parts.sha256:
        found.append(
            Disagreement("seed", stated.get("seed"), expected="the seed that the split was drawn from")
        )
    named = {item.field for item in found}
    found += [item for item in _recompute(stated, cohort, parts) if item.field not in named]
    return Verification(certificate, stated, tuple(found))


def _protocol_of(stated: dict[str, Any]) -> Protocol:
    """Return the stated protocol; where it is not one, which `_key_problems` names, the paper's."""
    try:
        return msgspec.convert(stated.get("protocol"), Protocol)
    except (msgspec.ValidationError, InputError):
        return PAPER


def _seed_of(stated: dict[str, Any]) -> int:
    seed = stated.get("seed")
    return seed if type(seed) is int and seed >= 0 else 0


def _recompute(stated: dict[str, Any], cohort: Cohort, split: Split) -> list[Disagreement]:
    """Recompute the point on the certificate's own terms and compare field by field."""
    wrong_terms = _key_problems(stated) or _terms_problems(stated, cohort)
    if wrong_terms:
        return wrong_terms
    names = ("rule", "delta", "compared", "assumed_prevalence", "limit")
    terms = Terms(**{name: stated[name] for name in names})
    index = cohort.configurations.index(stated["configuration"])
    threshold = choose_threshold(cohort, split, index, stated["target"], terms)
    point = evaluate(cohort, split, index, threshold, terms)
    return [
        disagreement for key in POINT_KEYS for disagreement in _differing(key, stated, getattr(point, key))
    ]


def _key_problems(stated: dict[str, Any]) -> list[Disagreement]:
    """Name every key that is unknown, missing, or of another type than a certificate's."""
    found = [
        Disagreement(key, stated[key], expected="no such field in a certificate")
        for key in stated
        if key not in _FIELDS
    ]
    for key, field in _FIELDS.items():
        if key not in stated:
            found += [Disagreement(key, "nothing", expected="a value")] if field.required else []
            continue
        try:
            msgspec.convert(stated[key], field.type)
        except msgspec.ValidationError as error:
            found.append(Disagreement(key, stated[key], expected=explain(error).removeprefix("expected ")))
    return found


def _terms_problems(stated: dict[str, Any], cohort: Cohort) -> list[Disagreement]:
    """Check the fields that a recomputation takes as given."""
    configurations, rules, (smallest, largest) = len(cohort.configurations), tuple(miss_rules()), DELTAS
    assumed = stated["assumed_prevalence"]
    protocol = _protocol_of(stated)
    checks = {
        "configuration": (
            stated["configuration"] in cohort.configurations,
            f"one of {list(cohort.configurations)}",
        ),
        "rule": (stated["rule"] in rules, f"one of {rules}"),
        "target": (0 < stated["target"] <= 1, "a fraction"),
        "limit": (stated["limit"] is not None and 0 < stated["limit"] <= 1, "a fraction"),
        "protocol": (
            protocol == PROTOCOLS.get(protocol.name, protocol),
            f"the settings of the protocol {protocol.name}, or another name",
        ),
        "seed": (stated["seed"] >= 0, "0 or more"),
        "aggregation": (stated["aggregation"] == MAXIMUM, f"{MAXIMUM!r}"),
        "delta": (smallest <= stated["delta"] <= largest, f"{smallest:g} to {largest:g}"),
        "compared": (
            _is_count(stated["compared"]) and stated["compared"] % configurations == 0,
            f"a multiple of the {configurations} configurations in the scores",
        ),
        "assumed_prevalence": (assumed is None or 0 < assumed < 1, "null or a fraction below 1"),
        "sweep": (
            _counts_what_was_compared(stated),
            "nothing, or settings x targets x looks whose product is compared",
        ),
        "versions": ("trust-cache" in stated["versions"], "the versions that computed it"),
    }
    return [
        Disagreement(name, stated.get(name, "nothing"), expected=expected)
        for name, (good, expected) in checks.items()
        if not good
    ]


def _is_count(value: object) -> bool:
    return type(value) is int and 0 < value < _MOST_COMPARED


def _counts_what_was_compared(stated: dict[str, Any]) -> bool:
    """Return whether the winner of a sweep is corrected for everything that was compared."""
    if "sweep" not in stated:
        return True
    counts = [stated["sweep"].get(name) for name in _SWEEP_COUNTS]
    return all(map(_is_count, counts)) and math.prod(counts) == stated["compared"]


def _differing(field: str, stated: dict[str, Any], recomputed: object) -> list[Disagreement]:
    missing = field not in stated
    value = stated.get(field)
    # A threshold is one of the scores, exactly; only quantiles get a tolerance.
    if not missing and (value == recomputed if field == "tau" else agree(value, recomputed)):
        return []
    return [Disagreement(field, "nothing" if missing else value, recomputed)]


def agree(stated: object, recomputed: object) -> bool:
    """Return whether two values of a point agree: floats up to the last digits, others exactly."""
    if type(recomputed) is float and isinstance(stated, int | float) and not isinstance(stated, bool):
        small = abs(stated) <= sys.float_info.max  # an integer may be larger than any float
        return small and math.isclose(stated, recomputed, rel_tol=_EXACT_TO, abs_tol=0.0)
    return type(stated) is type(recomputed) and stated == recomputed
