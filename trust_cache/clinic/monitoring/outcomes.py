"""Read the outcomes of cases with their dates, and match them with the cases of worklists."""

import calendar
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from trust_cache.base.csv_tables import LINE, read_text_table, restore
from trust_cache.base.errors import InputError, parse_day
from trust_cache.clinic.worklist import WorklistRow, read_added, read_worklist

CaseKey = tuple[str, str]  # the site, empty without --site, and the case_id
EXAMINED = "examined"  # the column of examination dates
_SHOWN = 20
_PERIOD = re.compile(r"([1-9]\d{0,4})([dwmy])")


@dataclass(frozen=True)
class Period:
    """A time of whole months and days, such as 24m."""

    months: int
    days: int
    text: str

    def after(self, day: date) -> date:
        """Return the day that is this long after another; the 31st becomes a shorter month's last day."""
        month = day.year * 12 + day.month - 1 + self.months
        year, month = month // 12, month % 12 + 1
        last = calendar.monthrange(year, month)[1]
        return date(year, month, min(day.day, last)) + timedelta(days=self.days)

    def before(self, day: date) -> date:
        """Return the day that is this long before another."""
        return replace(self, months=-self.months, days=-self.days).after(day)


def parse_period(text: str, name: str) -> Period:
    """Read a time such as 24m, 90d, 12w or 2y."""
    match = _PERIOD.fullmatch(text.strip().lower())
    if match is None:
        raise InputError(f"{name}: expected a time such as 24m, 90d, 12w or 2y, found {text!r}")
    number, unit = int(match[1]), match[2]
    months = number * {"m": 1, "y": 12}.get(unit, 0)
    return Period(months, number * {"d": 1, "w": 7}.get(unit, 0), f"{number}{unit}")


@dataclass(frozen=True)
class Outcome:
    """What a file says about one case."""

    examined: date | None
    cancer: date | None  # the first date of a positive row
    followed: date | None  # the last date of any row with a label

    def joined(self, other: "Outcome", where: str) -> "Outcome":
        """Return what two rows of a case say together."""
        if None not in (self.examined, other.examined) and self.examined != other.examined:
            raise InputError(
                f"{where}: expected one examination date of a case, found {self.examined} and"
                f" {other.examined}; a second examination is a case of its own"
            )
        dates = [day for day in (self.cancer, other.cancer) if day is not None]
        until = [day for day in (self.followed, other.followed) if day is not None]
        return Outcome(self.examined or other.examined, min(dates, default=None), max(until, default=None))


def read_outcomes(path: Path, site: str | None = None) -> dict[CaseKey, Outcome]:
    """Read case_id, label (1 cancer, 0 none, empty unknown), date and examined (YYYY-MM-DD) of cases.

    `date` is the day of the diagnosis or, without one, the last day on which the case was known to be free of
    cancer. A label without a date is refused: it cannot be told whether its follow-up has passed.
    """
    columns = ("case_id", "label", "date") + (() if site is None else (site,))
    table = read_text_table(path, columns, lines=True)
    found: dict[CaseKey, Outcome] = {}
    for row in table.iter_rows(named=True):
        where = f"{path}: line {row[LINE]}"
        if row["case_id"] is None or (site is not None and row[site] is None):
            missing = "case_id" if row["case_id"] is None else site
            raise InputError(f"{where}: expected a {missing}, found none")
        key = ("" if site is None else row[site], restore(row["case_id"]))
        where = f"{where}, case {key[1]}"
        outcome = _outcome(row, where)
        found[key] = outcome if key not in found else found[key].joined(outcome, where)
    return found


def _outcome(row: Mapping[str, Any], where: str) -> Outcome:
    label, examined = row["label"], _day(row.get(EXAMINED), where)
    if label not in (None, "0", "1"):
        raise InputError(f"{where}: expected a label of 0, 1 or nothing (unknown), found {label!r}")
    day = _day(row["date"], where)
    if label is None:
        return Outcome(examined, None, None)
    if day is None:
        raise InputError(
            f"{where}: expected the date of this outcome, found none; without it nobody knows whether the"
            " follow-up time has passed"
        )
    if examined is not None and day < examined:
        raise InputError(f"{where}: expected an outcome after the examination on {examined}, found {day}")
    return Outcome(examined, day if label == "1" else None, day)


def _day(text: str | None, where: str) -> date | None:
    return None if text is None else parse_day(text, where)


@dataclass(frozen=True)
class DecidedCases:
    """The rows of one model in all worklists, by case, and the cases of other models."""

    rows: Mapping[CaseKey, WorklistRow]
    examined: Mapping[CaseKey, Outcome]  # dates from a column that a worklist may have
    others: Collection[CaseKey]
    worklists: tuple[tuple[CaseKey, ...], ...]  # the model's cases of each worklist


def join_worklists(paths: Sequence[Path], model: str, site: str | None = None) -> DecidedCases:
    """Read worklists; a case of the model in two of them is refused, because it may be two women.

    With `site`, the name of a column of the worklists, cases of different sites are different cases.
    """
    rows: dict[CaseKey, WorklistRow] = {}
    places: dict[CaseKey, Path] = {}
    others: set[CaseKey] = set()
    dates: dict[CaseKey, Outcome] = {}
    worklists = []
    for path in paths:
        read = read_worklist(path)
        sites = [None] * len(read) if site is None else read_added(path, site, required=True)
        days = read_added(path, EXAMINED, required=False)
        own = []
        for row, name, day in zip(read, sites, days, strict=True):
            key = (name or "", row.case_id)
            if row.model != model:
                others.add(key)
                continue
            if key in rows:
                raise InputError(_collision(key, places[key], path, site))
            rows[key], places[key] = row, path
            if day is not None:
                dates[key] = Outcome(_day(day, f"{path}: case {row.case_id}"), None, None)
            own.append(key)
        worklists.append(tuple(own))
    return DecidedCases(rows, dates, others - set(rows), tuple(worklists))


def _collision(key: CaseKey, first: Path, second: Path, site: str | None) -> str:
    of_site = f" of {site} {key[0]}" if site is not None else ""
    return (
        f"{second}: case {key[1]}{of_site} is also in {first}. If these are cases of two sites, tell them"
        " apart with a column of the worklists and outcomes (--site COLUMN); if it is the same case, name"
        " only the worklist that was used"
    )


def match_outcomes(outcomes: Mapping[CaseKey, Outcome], decided: DecidedCases, path: Path) -> int:
    """Refuse outcomes that match nothing, and cancers without their case; return the number not matched."""
    unmatched = [key for key in outcomes if key not in decided.rows and key not in decided.others]
    lost = [key for key in unmatched if outcomes[key].cancer is not None]
    if lost:
        raise InputError(
            f"{path}: {len(lost)} cancers belong to no case of the worklists ({_listed(lost)})"
            f"{_near(lost, decided)}. A cancer that is not counted would make the model look better: name all"
            " worklists, or remove outcomes of cases that were never triaged"
        )
    if not any(key in decided.rows for key in outcomes):
        raise InputError(
            f"{path}: expected outcomes of the {len(decided.rows):,} cases that this model decided, found"
            f" none among {len(outcomes):,} outcomes (the first:"
            f" {_listed(list(outcomes)[:1])}){_near(list(outcomes), decided)}"
        )
    return len(unmatched)


def require_examined(
    keys: Iterable[CaseKey], outcomes: Sequence[Mapping[CaseKey, Outcome]]
) -> dict[CaseKey, date]:
    """Return the examination date of each case; refuse cases without one."""
    dates: dict[CaseKey, date] = {}
    missing = []
    for key in keys:
        known = {item.examined for file in outcomes if (item := file.get(key)) and item.examined}
        if len(known) > 1:
            raise InputError(f"case {key[1]}: expected one examination date, found {sorted(map(str, known))}")
        if known:
            dates[key] = known.pop()
        else:
            missing.append(key)
    if missing:
        raise InputError(
            "expected the examination date of every dismissed or audited case, found none for"
            f" {len(missing):,} ({_listed(missing)}); add a row with case_id, an empty label and the column"
            " examined for each: only its date tells whether a case should have an outcome by now"
        )
    return dates


def _listed(keys: Sequence[CaseKey]) -> str:
    names = [f"{case} of {site}" if site else case for site, case in sorted(keys)[:_SHOWN]]
    return ", ".join(names) + (", ..." if len(keys) > _SHOWN else "")


def _near(lost: Sequence[CaseKey], decided: DecidedCases) -> str:
    """Suggest cases that differ only in leading zeros or in what a spreadsheet adds to a number."""
    plain = {(site, _plain(case)): case for site, case in decided.rows}
    found = [(case, plain[site, _plain(case)]) for site, case in lost if (site, _plain(case)) in plain]
    if not found:
        return ""
    case, known = found[0]
    return (
        f"; {len(found)} of them differ from a case only in leading zeros or a decimal point ({case!r} is"
        f" probably {known!r}): a spreadsheet changed them, export the ids as text"
    )


def _plain(case_id: str) -> str:
    return case_id.removesuffix(".0").lstrip("0")
