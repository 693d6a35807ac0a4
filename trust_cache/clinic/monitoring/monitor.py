"""Monitor a model: watch the outcomes of dismissed and audited cases beside its certificate.

The bounds are confidence sequences: they hold at every moment, so anyone may look at any time, and no look is
spent.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal

from trust_cache.base.digests import rows_sha256
from trust_cache.base.errors import InputError
from trust_cache.certificate.certification import check_delta
from trust_cache.clinic.model_folder import StoredModel, read_model
from trust_cache.clinic.monitoring.audit import draw_problems, read_key
from trust_cache.clinic.monitoring.drift import Drift, measure_drift
from trust_cache.clinic.monitoring.followed_cases import (
    EnteredCases,
    RecentCases,
    WatchedPath,
    WatchedRate,
    enter_cases,
    recent_cases,
    watch,
)
from trust_cache.clinic.monitoring.model_history import (
    ModelHistory,
    MonitorEntry,
    append_entry,
    history_file,
    read_history,
)
from trust_cache.clinic.monitoring.outcomes import (
    CaseKey,
    DecidedCases,
    Outcome,
    join_worklists,
    match_outcomes,
    parse_period,
    read_outcomes,
    require_examined,
)
from trust_cache.clinic.worklist import AUDIT, DISMISS, REVIEW
from trust_cache.statistics.confidence_sequences import MixturePrior

DELTA = 0.01  # for models without a certificate
UNCERTIFIED_PRIOR = MixturePrior(0.5, 0.5)
Status = Literal["alarm", "confirmed", "open", "uncertified"]


@dataclass(frozen=True)
class MonitorSettings:
    """How to count, besides the files."""

    follow_up: str = "24m"  # a dismissed case enters once this time has passed since its examination
    reading_time: str = "3m"  # an audited case enters after this time, in which a reader has answered
    window: str = "12m"  # of the recent cases
    as_of: date | None = None  # None: today
    site: str | None = None  # a column of worklists and outcomes
    delta: float | None = None  # None: the certificate's


_DEFAULTS = MonitorSettings()


@dataclass(frozen=True)
class CertifiedLevel:
    """What the model's certificate says."""

    bound: float
    limit: float | None
    status: str
    delta: float
    positives_dismissed: int
    dismissed: int


@dataclass(frozen=True)
class Monitoring:
    """What is known about a model on a day."""

    model: str
    as_of: str
    settings: MonitorSettings
    delta: float
    prior: MixturePrior
    certified: CertifiedLevel | None
    status: Status
    decided: Mapping[str, int]  # cases by decision
    dismissed: WatchedRate | None  # None: no outcomes were given
    audited: WatchedRate | None  # None: no readings were given
    recent: RecentCases | None
    reviewed_cancers: int
    drift: Drift
    history: Path
    repeated: bool  # the same data and day as the last entry of the history
    warnings: tuple[str, ...]
    paths: Mapping[str, WatchedPath] = field(repr=False)  # of the dismissed and of the audited

    def as_document(self) -> dict[str, Any]:
        """Return it as one JSON document."""
        document = asdict(self)
        del document["paths"]
        document["settings"]["as_of"] = self.as_of
        return document | {"history": str(self.history), "warnings": list(self.warnings)}


def monitor(
    worklists: Sequence[Path],
    model: Path,
    *,
    outcomes: Path | None = None,
    readings: Path | None = None,
    settings: MonitorSettings = _DEFAULTS,
    history: Path | None = None,
    audit_key: Path | None = None,
) -> Monitoring:
    """Watch the outcomes of the cases that a model dismissed and the readings of those that it audited.

    What is found is appended to the model's history before it is returned.
    """
    if not worklists:
        raise InputError("worklists: expected at least one, found none")
    if outcomes is None and readings is None:
        raise InputError("expected outcomes of dismissed cases or readings of audited ones, found neither")
    stored = read_model(model)
    certified = _level(stored)
    delta = settings.delta if settings.delta is not None else (certified.delta if certified else DELTA)
    check_delta(delta)
    decided = _decided(worklists, stored, settings.site)
    problems = [] if audit_key is None else draw_problems(decided, read_key(audit_key))
    if problems:
        raise InputError("; ".join(problems))
    as_of = settings.as_of or date.today()
    place = history if history is not None else history_file(model)
    files = _read_files(decided, outcomes, readings, settings.site)
    found = _watch_all(
        decided, files, settings, as_of, stored.model.prior or UNCERTIFIED_PRIOR, delta, certified
    )
    dismissed, audited = found.rates.get(DISMISS), found.rates.get(AUDIT)
    past = read_history(place)
    result = Monitoring(
        model=stored.sha256,
        as_of=as_of.isoformat(),
        settings=settings,
        delta=delta,
        prior=stored.model.prior or UNCERTIFIED_PRIOR,
        certified=certified,
        status=_status(certified, dismissed, audited),
        decided={name: found.decided[name] for name in (DISMISS, AUDIT, REVIEW)},
        dismissed=dismissed,
        audited=audited,
        recent=found.recent,
        reviewed_cancers=found.reviewed_cancers,
        drift=measure_drift(stored, past.scores(stored.sha256)),
        history=place,
        repeated=False,
        warnings=(
            *_warnings(found, decided, past, stored.sha256),
            *_changed_terms(past, stored.sha256, settings, delta),
        ),
        paths=found.paths,
    )
    return _record(result, past, place, _data_sha256(decided, files, settings))


@dataclass(frozen=True)
class _Watched:
    """The streams of a model's cases."""

    decided: Counter[str]
    rates: Mapping[str, WatchedRate]
    paths: Mapping[str, WatchedPath]
    recent: RecentCases | None
    reviewed_cancers: int
    unmatched: int
    not_audited: int  # readings of cases that were not drawn


@dataclass(frozen=True)
class _Files:
    outcomes: Mapping[CaseKey, Outcome] | None
    readings: Mapping[CaseKey, Outcome] | None
    unmatched: int

    @property
    def given(self) -> list[Mapping[CaseKey, Outcome]]:
        return [file for file in (self.outcomes, self.readings) if file is not None]


def _read_files(
    decided: DecidedCases, outcomes: Path | None, readings: Path | None, site: str | None
) -> _Files:
    found: dict[str, dict[CaseKey, Outcome]] = {}
    unmatched = 0
    for name, path in (("outcomes", outcomes), ("readings", readings)):
        if path is not None:
            found[name] = read_outcomes(path, site)
            unmatched += match_outcomes(found[name], decided, path)
    return _Files(found.get("outcomes"), found.get("readings"), unmatched)


def _decided(worklists: Sequence[Path], stored: StoredModel, site: str | None) -> DecidedCases:
    decided = join_worklists(worklists, stored.sha256, site)
    if not decided.rows:
        raise InputError(
            f"{stored.folder}: expected rows that this model decided ({stored.sha256[:12]}...), found none"
            f" among {len(decided.others):,} cases of the worklists; name the model that made them"
        )
    return decided


def _watch_all(
    decided: DecidedCases,
    files: _Files,
    settings: MonitorSettings,
    as_of: date,
    prior: MixturePrior,
    delta: float,
    certified: CertifiedLevel | None,
) -> _Watched:
    streams = {
        DISMISS: (files.outcomes, parse_period(settings.follow_up, "follow-up")),
        AUDIT: (files.readings, parse_period(settings.reading_time, "reading time")),
    }
    window = parse_period(settings.window, "window")
    bound = None if certified is None else certified.bound
    rates: dict[str, WatchedRate] = {}
    paths: dict[str, WatchedPath] = {}
    entered: dict[str, EnteredCases] = {}
    for decision, (answers, time) in streams.items():
        keys = [key for key, row in decided.rows.items() if row.decision == decision]
        if answers is not None:
            examined = require_examined(keys, [*files.given, decided.examined])
            entered[decision] = enter_cases(examined, answers, time, as_of, read=decision == AUDIT)
            rates[decision], paths[decision] = watch(entered[decision], prior, delta, bound)
    rows, outcomes, readings = decided.rows, files.outcomes or {}, files.readings or {}
    return _Watched(
        decided=Counter(row.decision for row in rows.values()),
        rates=rates,
        paths=paths,
        recent=recent_cases(entered[DISMISS], window) if DISMISS in entered else None,
        reviewed_cancers=sum(
            key in rows and rows[key].decision == REVIEW and outcome.cancer is not None
            for key, outcome in outcomes.items()
        ),
        unmatched=files.unmatched,
        not_audited=sum(key in rows and rows[key].decision != AUDIT for key in readings),
    )


def _level(stored: StoredModel) -> CertifiedLevel | None:
    found = stored.model.certificate
    if found is None:
        return None
    return CertifiedLevel(
        found.bound, found.limit, found.status, found.delta, found.positives_dismissed, found.dismissed
    )


def _status(
    certified: CertifiedLevel | None, dismissed: WatchedRate | None, audited: WatchedRate | None
) -> Status:
    """An alarm of either stream counts; only followed outcomes confirm, because readers miss cancers."""
    if certified is None:
        return "uncertified"
    if any(rate is not None and rate.alarm for rate in (dismissed, audited)):
        return "alarm"
    return "confirmed" if dismissed is not None and dismissed.confirmed else "open"


def _warnings(found: _Watched, decided: DecidedCases, past: ModelHistory, model: str) -> list[str]:
    triaged, named = past.below_tau(model), found.decided[DISMISS] + found.decided[AUDIT]
    possible = {
        f"{len(decided.others):,} cases were decided by other models and are not counted": bool(
            decided.others
        ),
        f"{found.unmatched:,} outcomes without cancer belong to no case of the worklists": found.unmatched
        > 0,
        f"{found.not_audited:,} readings are of cases that were not drawn for the audit and do not count:"
        " a chosen"
        " case says nothing about the others": found.not_audited > 0,
        f"the model's history has {triaged:,} dismissed or audited cases, the worklists only {named:,}:"
        " name all"
        " worklists of the model, or the rate is that of a selection": triaged > named,
        "no case was dismissed: the bound is 1": not named,
    }
    return [text for text, applies in possible.items() if applies]


def _terms(settings: MonitorSettings, delta: float) -> dict[str, Any]:
    """Return the settings that must be fixed before the first outcome."""
    return {"follow_up": settings.follow_up, "reading_time": settings.reading_time, "delta": delta}


def _changed_terms(past: ModelHistory, model: str, settings: MonitorSettings, delta: float) -> list[str]:
    """Warn if a setting differs from that of the first monitoring: choosing it by its result is a search."""
    first = past.monitorings(model)[:1]
    return [
        f"{name.replace('_', ' ')} was {entry.result.get(name)} at the first monitoring of this model and is"
        f" {value} now: chosen after outcomes were seen, it voids the confidence"
        for entry in first
        for name, value in _terms(settings, delta).items()
        if entry.result.get(name) != value
    ]


def _record(result: Monitoring, past: ModelHistory, place: Path, data: str) -> Monitoring:
    """Append the result to the history, unless its last entry about this model is the same."""
    earlier = past.monitorings(result.model)[-1:]
    if earlier and (earlier[0].data_sha256, earlier[0].as_of) == (data, result.as_of):
        return Monitoring(**{**vars(result), "repeated": True})
    document = result.as_document()
    kept = {name: document[name] for name in ("status", "decided", "dismissed", "audited", "recent")}
    kept |= _terms(result.settings, result.delta)
    append_entry(place, MonitorEntry(model=result.model, as_of=result.as_of, data_sha256=data, result=kept))
    return result


def _data_sha256(decided: DecidedCases, files: _Files, settings: MonitorSettings) -> str:
    """Return a digest of the decisions, the outcomes and the settings, in any order of files and rows."""
    rows: list[list[str]] = sorted(["row", *key, row.decision] for key, row in decided.rows.items())
    for number, file in enumerate(files.given):
        rows += sorted(
            [str(number), *key, *map(str, (item.examined, item.cancer, item.followed))]
            for key, item in file.items()
        )
    terms = (settings.follow_up, settings.reading_time, settings.window, settings.delta)
    return rows_sha256([*rows, list(map(str, terms))])
