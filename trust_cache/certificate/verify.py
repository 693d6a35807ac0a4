"""Verify a certificate: recompute it and name every field that disagrees.

There is one recomputation. `verify` starts from the scores and the split, `verify_counts` from the integers
of the certificate alone: a model folder has no scores. Both derive the point by `points.describe`.
"""

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

from trust_cache.base.documents import explain, read_sealed
from trust_cache.base.errors import InputError
from trust_cache.certificate.attempts import log_file, point_name, read_attempts
from trust_cache.certificate.certification import DELTAS, Attempt, Composition
from trust_cache.certificate.certified_folder import (
    CERTIFICATES,
    POINTS,
    SPLIT,
    Certificate,
    PointsDocument,
    read_certificate_keys,
    recorded_columns,
)
from trust_cache.certificate.points import (
    POINT_KEYS,
    Counts,
    Point,
    Terms,
    Threshold,
    choose_threshold,
    describe,
    evaluate,
)
from trust_cache.certificate.score_table import Cohort, Scores, build_cohort, group_cases, read_scores
from trust_cache.certificate.split import Split, draw_split, read_split
from trust_cache.manifest.protocol import PAPER, PROTOCOLS, Protocol
from trust_cache.statistics.rules import miss_rules

_MOST_COMPARED = 10**9
_FIELDS = {field.name: field for field in msgspec.structs.fields(Certificate)}
_COUNTS = tuple(field.name for field in fields(Counts))
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
    certificate: Path, scores: Path, split: Path | None = None, *, columns: Mapping[str, str] | None = None
) -> Verification:
    """Recompute a certificate; the default split is the one in its certified folder.

    `columns` are names of the scores' columns (keys of `ScoreColumns`) where they differ from those in the
    certified folder. What the certificate says about other points and attempts must also agree with
    points.json in its folder and with the log beside the scores, where there are such files.
    """
    stated = read_certificate_keys(certificate)
    folder = certificate.resolve().parent.parent
    split_file = folder / SPLIT if split is None else split
    if split is None and not split_file.exists():
        raise InputError(
            f"{certificate}: no split.csv in the folder above it ({split_file}); name one with --split"
        )
    table = read_scores(scores, recorded_columns(folder / POINTS, columns))
    found = _differing("scores_sha256", stated, table.sha256)
    name, aggregation = stated.get("configuration"), stated.get("aggregation")
    if name in table.aggregations:  # of the run's record
        found += _differing("aggregation", stated, table.aggregation(name))
    cohort = build_cohort(table.aggregated_as({name: aggregation}), _protocol_of(stated))
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
    found += [item for item in _recompute(stated, table, cohort, parts) if item.field not in named]
    if not found:
        inside = certificate.resolve().parent.name == CERTIFICATES
        found += _beside(stated, folder / POINTS) if inside else []
        found += _unlisted(stated, log_file(scores))
    return Verification(certificate, stated, tuple(found))


def verify_counts(certificate: Certificate) -> tuple[Disagreement, ...]:
    """Recompute a certificate from its own integers, delta, limit and composition, without scores.

    Every bound, rate and status follows from these. Whether the integers are those of the scores, only
    `verify` can tell.
    """
    stated = certificate.as_document()
    wrong = [*_key_problems(stated)] or [*_term_problems(stated)] or [*_count_problems(certificate)]
    if wrong:
        return tuple(wrong)
    point = _point_of_counts(certificate)
    # The reason of a rule without a threshold names the search positives that it could use.
    keys = (key for key in POINT_KEYS if not (key == "reason" and certificate.tau is None))
    found = [item for key in keys for item in _differing(key, stated, getattr(point, key))]
    return tuple(found or _attempt_problems(certificate))


def _point_of_counts(certificate: Certificate) -> Point:
    counts = Counts(**{name: getattr(certificate, name) for name in _COUNTS})
    drawn = {name: getattr(certificate, f"bound_{name}", 0) for name in _COUNTS}
    names = ("configuration", "target", "tau", "search_cases", "search_positives")
    threshold = Threshold(
        **{name: getattr(certificate, name) for name in names},
        search_incomplete_positives=certificate.search_incomplete_positives,
        needed=None,
        found=certificate.search_positives - certificate.search_incomplete_positives,
    )
    measured = ("patients", "auroc_case", "auroc_image", "image_dismissal")
    given = {name: getattr(certificate, name) for name in measured}
    return describe(counts, Counts(**drawn), threshold, _terms_of(certificate), **given)


def _terms_of(certificate: Certificate) -> Terms:
    return Terms(
        certificate.rule,
        certificate.delta,
        certificate.composition.points,
        certificate.assumed_prevalence,
        certificate.limit,
    )


def _protocol_of(stated: dict[str, Any]) -> Protocol:
    """Return the stated protocol; where it is not one, which `_key_problems` names, the paper's."""
    try:
        return msgspec.convert(stated.get("protocol"), Protocol)
    except (msgspec.ValidationError, InputError):
        return PAPER


def _seed_of(stated: dict[str, Any]) -> int:
    seed = stated.get("seed")
    return seed if type(seed) is int and seed >= 0 else 0


def _recompute(stated: dict[str, Any], table: Scores, cohort: Cohort, split: Split) -> list[Disagreement]:
    """Recompute the point on the certificate's own terms and compare field by field."""
    wrong = [*_key_problems(stated)] or [*_term_problems(stated)]
    if wrong:
        return wrong
    certificate = msgspec.convert(stated, Certificate)
    wrong = [*_cohort_problems(certificate, table, cohort)]
    if wrong:
        return wrong
    terms = _terms_of(certificate)
    index = cohort.configurations.index(certificate.configuration)
    threshold = choose_threshold(cohort, split, index, certificate.target, terms)
    point = evaluate(cohort, split, index, threshold, terms)
    found = [item for key in POINT_KEYS for item in _differing(key, stated, getattr(point, key))]
    return found or [*_attempt_problems(certificate)]


def _key_problems(stated: dict[str, Any]) -> Iterator[Disagreement]:
    """Name every key that is unknown, missing, or of another type than a certificate's."""
    for key, value in stated.items():
        if key not in _FIELDS:
            yield Disagreement(key, value, expected="no such field in a certificate")
    for key, field in _FIELDS.items():
        if key not in stated:
            if field.required:
                yield Disagreement(key, "nothing", expected="a value")
            continue
        try:
            msgspec.convert(stated[key], field.type)
        except (msgspec.ValidationError, InputError) as error:
            text = explain(error) if isinstance(error, msgspec.ValidationError) else str(error)
            yield Disagreement(key, stated[key], expected=text.removeprefix("expected "))


def _term_problems(stated: dict[str, Any]) -> Iterator[Disagreement]:
    """Check the fields that a recomputation takes as given."""
    rules, (smallest, largest) = tuple(miss_rules()), DELTAS
    assumed, protocol = stated["assumed_prevalence"], _protocol_of(stated)
    composition = msgspec.convert(stated["composition"], Composition)
    checks = {
        "rule": (stated["rule"] in rules, f"one of {rules}"),
        "configuration": (
            stated["configuration"] in composition.configurations,
            f"one of {list(composition.configurations)}",
        ),
        "target": (
            0 < stated["target"] <= 1 and stated["target"] in composition.targets,
            f"one of {list(composition.targets)}",
        ),
        "limit": (stated["limit"] is not None and 0 < stated["limit"] <= 1, "a fraction"),
        "protocol": (
            protocol == PROTOCOLS.get(protocol.name, protocol),
            f"the settings of the protocol {protocol.name}, or another name",
        ),
        "seed": (stated["seed"] >= 0, "0 or more"),
        "delta": (smallest <= stated["delta"] <= largest, f"{smallest:g} to {largest:g}"),
        "compared": (0 < stated["compared"] < _MOST_COMPARED, f"1 to {_MOST_COMPARED:,}"),
        "assumed_prevalence": (assumed is None or 0 < assumed < 1, "null or a fraction below 1"),
        "composition": (
            _is_composition(composition, stated),
            "different configurations and targets, and one look unless it is of a sweep",
        ),
        "versions": ("trust-cache" in stated["versions"], "the versions that computed it"),
    }
    for name, (good, expected) in checks.items():
        if not good:
            yield Disagreement(name, stated[name], expected=expected)


def _is_composition(found: Composition, stated: dict[str, Any]) -> bool:
    lists = (found.configurations, found.targets, *found.groups.values())
    return (
        all(len(set(items)) == len(items) for items in lists)
        and (1 <= found.looks < _MOST_COMPARED if "sweep" in stated else found.looks == 1)
        and found.points < _MOST_COMPARED
    )


def _cohort_problems(certificate: Certificate, table: Scores, cohort: Cohort) -> Iterator[Disagreement]:
    """Compare what the certificate names with the configurations and groups of the scores."""
    stated, here = certificate.composition, cohort.configurations
    if certificate.configuration not in here:
        yield Disagreement("configuration", certificate.configuration, expected=f"one of {list(here)}")
    # The scores of a sweep's winner do not have the other settings.
    if certificate.sweep is msgspec.UNSET and stated.configurations != here:
        yield Disagreement("composition.configurations", list(stated.configurations), list(here))
    for column, names in stated.groups.items():
        try:
            found = group_cases(table, cohort, column).names
        except InputError:
            continue  # no bound here depends on a column that the scores do not have
        if names != found:
            yield Disagreement(f"composition.groups.{column}", list(names), list(found))


def _count_problems(certificate: Certificate) -> Iterator[Disagreement]:
    """Name integers that no cohort can have, and those of the bounds that are more than all."""
    own = {name: getattr(certificate, name) for name in _COUNTS}
    drawn = {name: getattr(certificate, f"bound_{name}", 0) for name in _COUNTS}
    most = own | {"cases": _MOST_COMPARED}
    for prefix, found, ceilings in (("", own, most), ("bound_", drawn, own)):
        kept = found["positives"] - found["incomplete_positives"]
        negatives = found["cases"] - found["incomplete"] - kept
        limits = {
            "cases": ceilings["cases"],
            "positives": min(found["cases"], ceilings["positives"]),
            "incomplete": found["cases"],
            "incomplete_positives": min(found["positives"], ceilings["incomplete_positives"]),
            "dismissed": min(negatives + found["positives_dismissed"], ceilings["dismissed"]),
            "positives_dismissed": min(found["dismissed"], kept, ceilings["positives_dismissed"]),
        }
        for name, largest in limits.items():
            if not 0 <= found[name] <= largest:
                yield Disagreement(f"{prefix}{name}", found[name], expected=f"0 to {max(largest, 0)}")
    searched = certificate.search_positives
    for name, largest in (
        ("search_positives", certificate.search_cases),
        ("search_incomplete_positives", searched),
    ):
        if not 0 <= getattr(certificate, name) <= largest:
            yield Disagreement(name, getattr(certificate, name), expected=f"0 to {max(largest, 0)}")
    if certificate.patients != certificate.bound_cases:
        yield Disagreement(
            "patients", certificate.patients, expected=f"{certificate.bound_cases}, one per case of the bound"
        )


def _attempt_problems(certificate: Certificate) -> Iterator[Disagreement]:
    """Require that the attempts, where a log was kept, have this certificate's own with its status."""
    if certificate.attempts and _own_attempt(certificate, certificate.attempts) is None:
        yield Disagreement(
            "attempts",
            [item.as_document() for item in certificate.attempts],
            expected="this attempt among them, with the status of this point",
        )


def _own_attempt(certificate: Certificate, attempts: tuple[Attempt, ...]) -> int | None:
    """Return the position of the attempt that gave this certificate."""
    same = ("scores_sha256", "split_sha256", "split_origin", "seed", "rule", "delta", "protocol")
    name = point_name(certificate)
    for position, item in enumerate(attempts):
        if (
            all(getattr(item, key) == getattr(certificate, key) for key in same)
            and item.targets == certificate.composition.targets
            and item.statuses.get(name) == certificate.status
        ):
            return position
    return None


def _beside(stated: dict[str, Any], points: Path) -> Iterator[Disagreement]:
    """Compare what the certificate says about other points and attempts with points.json."""
    if points.is_file():
        document, _ = read_sealed(points, PointsDocument, what="the points of certify")
        certificate = msgspec.convert(stated, Certificate)
        for key in ("composition", "attempts"):
            if getattr(certificate, key) != getattr(document, key):
                yield Disagreement(key, stated[key], expected=f"what {points} says")


def _unlisted(stated: dict[str, Any], log: Path) -> Iterator[Disagreement]:
    """Name an attempt that the log had before this certificate, and that the certificate does not list."""
    certificate = msgspec.convert(stated, Certificate)
    attempts = read_attempts(log)
    own = _own_attempt(certificate, attempts)
    missing = [item for item in attempts[: own or 0] if item not in certificate.attempts]
    if own is not None and missing:
        yield Disagreement(
            "attempts",
            f"{len(certificate.attempts)} attempts",
            f"{len(missing)} more before it in {log}",
        )


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
