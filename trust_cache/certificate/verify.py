"""Verification: recompute a certificate from scores and split and name every field that disagrees."""

import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from trust_cache.base.documents import parse_json
from trust_cache.base.errors import InputError
from trust_cache.certificate.cohort import Cohort, build_cohort
from trust_cache.certificate.folder import SCHEMA
from trust_cache.certificate.points import POINT_KEYS, Terms, choose_threshold, evaluate
from trust_cache.certificate.scores import read_scores
from trust_cache.certificate.settings import DELTAS
from trust_cache.certificate.split import Split, read_split
from trust_cache.statistics.rules import RuleName

_KNOWN = {*POINT_KEYS, "schema", "chosen_by", "scores_sha256", "split_sha256", "versions", "sweep"}
_SWEEP_COUNTS = ("settings", "targets", "looks")
_MOST_COMPARED = 10**9
_EXACT_TO = 1e-9  # relative: another scipy may differ in the last digits of a beta quantile


@dataclass(frozen=True)
class Disagreement:
    """A field whose stated value is not what the scores and the split give, or what may stand there."""

    field: str
    stated: object
    recomputed: object = None
    expected: str | None = None  # where a value is judged by itself

    def __str__(self) -> str:
        found = f"found {self.recomputed!r}" if self.expected is None else f"expected {self.expected}"
        return f"{self.field}: the certificate says {self.stated!r}, {found}"


@dataclass(frozen=True)
class Verification:
    """The outcome; the certificate holds where nothing disagrees."""

    certificate: Path
    stated: dict[str, Any]
    disagreements: tuple[Disagreement, ...]

    @property
    def holds(self) -> bool:
        """Whether every field was found again."""
        return not self.disagreements


def as_document(verification: Verification) -> dict[str, Any]:
    """Return the outcome as a JSON document."""
    return {
        "certificate": str(verification.certificate),
        "holds": verification.holds,
        "disagreements": [
            {name: _json_safe(value) for name, value in asdict(item).items()}
            for item in verification.disagreements
        ],
    }


def _json_safe(value: object) -> object:
    """Return a value as JSON can carry it: NaN and infinity as text."""
    return value if not isinstance(value, float) or math.isfinite(value) else repr(value)


def verify(certificate: Path, scores: Path, split: Path | None = None) -> Verification:
    """Recompute a certificate; the default split is the one of its certified/ folder."""
    stated = read_certificate(certificate)
    split_file = split if split is not None else _split_beside(certificate)
    table = read_scores(scores)
    found = _differing("scores_sha256", stated, table.sha256)
    cohort = build_cohort(table)
    try:
        parts, _ = read_split(split_file, cohort)
    except InputError as error:
        if not found and split_file.exists():
            # The right scores, and a split that does not fit them: it is another split.
            found = [
                Disagreement("split_sha256", stated.get("split_sha256"), expected=f"the split of it; {error}")
            ]
        if not found:
            raise
        return Verification(certificate, stated, tuple(found))
    found += _differing("split_sha256", stated, parts.sha256)
    found += _recompute(stated, cohort, parts)
    return Verification(certificate, stated, tuple(found))


def read_certificate(path: Path) -> dict[str, Any]:
    """Read a certificate file as far as it is one."""
    try:
        content = parse_json(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable JSON file ({error})") from error
    if not isinstance(content, dict) or "schema" not in content:
        raise InputError(f"{path}: expected a certificate with a schema, found none")
    if not {"tau", "bound", "scores_sha256"} & set(content):
        raise InputError(f"{path}: has a schema but nothing of a certificate in it")
    schema = content["schema"]
    if type(schema) is not int or schema != SCHEMA:
        raise InputError(
            f"{path}: expected certificate schema {SCHEMA}, found {schema!r};"
            " a newer one needs a newer trust-cache"
        )
    return content


def _split_beside(certificate: Path) -> Path:
    split = certificate.resolve().parent.parent / "split.csv"
    if not split.exists():
        raise InputError(
            f"{certificate}: no split.csv in the folder above it ({split}); name one with --split"
        )
    return split


def _recompute(stated: dict[str, Any], cohort: Cohort, split: Split) -> list[Disagreement]:
    """Recompute the point on the certificate's own terms and compare field by field."""
    wrong_terms = _terms_problems(stated, cohort)
    if wrong_terms:
        return wrong_terms
    terms = Terms(
        rule=stated["chosen_by"],
        delta=stated["delta"],
        compared=stated["compared"],
        assumed_prevalence=stated.get("assumed_prevalence"),
    )
    index = cohort.configurations.index(stated["configuration"])
    threshold = choose_threshold(cohort, split, index, stated["target"], terms)
    point = evaluate(cohort, split.evaluation, index, threshold, terms)
    return [
        disagreement for key in POINT_KEYS for disagreement in _differing(key, stated, getattr(point, key))
    ]


def _terms_problems(stated: dict[str, Any], cohort: Cohort) -> list[Disagreement]:
    """Check the fields that a recomputation takes as given."""
    configurations = len(cohort.configurations)
    checks = {
        "configuration": (
            "configuration" in stated and stated["configuration"] in cohort.configurations,
            f"one of {list(cohort.configurations)}",
        ),
        "chosen_by": (stated.get("chosen_by") in get_args(RuleName), f"one of {get_args(RuleName)}"),
        "target": (_is_share(stated.get("target"), one=True), "a fraction"),
        "delta": (_is_delta(stated.get("delta")), "{:g} to {:g}".format(*DELTAS)),
        "compared": (
            _is_multiple(stated.get("compared"), configurations),
            f"a multiple of the {configurations} configurations in the scores",
        ),
        "assumed_prevalence": (
            stated.get("assumed_prevalence") is None or _is_share(stated["assumed_prevalence"]),
            "null or a fraction below 1",
        ),
        "sweep": (
            _counts_what_was_compared(stated),
            "nothing, or settings x targets x looks whose product is compared",
        ),
        "versions": (_are_versions(stated.get("versions")), "the versions that computed it"),
    } | dict.fromkeys(set(stated) - _KNOWN, (False, "no such field in a certificate"))
    return [
        Disagreement(name, stated.get(name, "nothing"), expected=expected)
        for name, (good, expected) in checks.items()
        if not good
    ]


def _is_share(value: object, *, one: bool = False) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and value > 0 and (value < 1 or (one and value == 1))  # type: ignore[operator]


def _is_delta(value: object) -> bool:
    smallest, largest = DELTAS
    return type(value) is float and smallest <= value <= largest


def _is_multiple(value: object, of: int) -> bool:
    return type(value) is int and 0 < value < _MOST_COMPARED and value % of == 0


def _counts_what_was_compared(stated: dict[str, Any]) -> bool:
    """Tell whether the winner of a sweep is corrected for as much as it says was compared."""
    if "sweep" not in stated:
        return True
    sweep = stated["sweep"]
    counts = [sweep.get(name) for name in _SWEEP_COUNTS] if isinstance(sweep, dict) else [None]
    return all(type(n) is int and 0 < n < _MOST_COMPARED for n in counts) and (
        math.prod(counts) == stated.get("compared")  # type: ignore[arg-type]
    )


def _are_versions(value: object) -> bool:
    return (
        isinstance(value, dict) and "trust-cache" in value and all(isinstance(v, str) for v in value.values())
    )


def _differing(field: str, stated: dict[str, Any], recomputed: object) -> list[Disagreement]:
    missing = field not in stated
    value = stated.get(field)
    # A threshold is one of the scores, digit by digit; only quantiles get a tolerance.
    if not missing and (value == recomputed if field == "tau" else _agree(value, recomputed)):
        return []
    return [Disagreement(field, "nothing" if missing else value, recomputed)]


def _agree(stated: object, recomputed: object) -> bool:
    if type(recomputed) is float and isinstance(stated, int | float) and not isinstance(stated, bool):
        small = abs(stated) <= sys.float_info.max  # an integer may be beyond all floats
        return small and math.isclose(stated, recomputed, rel_tol=_EXACT_TO, abs_tol=0.0)
    return type(stated) is type(recomputed) and stated == recomputed
