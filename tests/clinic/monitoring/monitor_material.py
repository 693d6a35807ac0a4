"""A model, worklists and outcomes with dates for the tests of monitoring."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from tests.clinic.material import a_model, a_row
from trust_cache.clinic.model_folder import read_model, write_model
from trust_cache.clinic.monitoring.monitor import Monitoring, MonitorSettings, monitor
from trust_cache.clinic.worklist import WorklistRow, write_worklist

START = date(2020, 1, 1)
AS_OF = date(2026, 1, 1)


@dataclass(frozen=True)
class Place:
    """A model folder with one worklist: cases 0000 to 0999 dismissed, to 1199 reviewed."""

    folder: Path
    sha256: str

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def worklist(self) -> Path:
        return self.folder / "worklist.csv"

    @property
    def outcomes(self) -> Path:
        return self.folder / "outcomes.csv"

    def watch(self, **changes: Any) -> Monitoring:
        """Monitor with the files of the place; keywords of the settings or of `monitor` change it."""
        named = {name: changes.pop(name) for name in list(changes) if name in MonitorSettings.__annotations__}
        settings = replace(MonitorSettings(as_of=AS_OF), **named)
        given = {"worklists": [self.worklist], "model": self.model, "outcomes": self.outcomes} | changes
        return monitor(**given, settings=settings)

    def write(self, rows: Iterable[WorklistRow], name: str = "worklist.csv") -> Path:
        write_worklist(self.folder / name, rows)
        return self.folder / name


def examined(number: int) -> date:
    """One examination a day, and then again from the start."""
    return START + timedelta(days=number % 1000)


def outcome_line(case: str, label: str, *, day: date, after: int = 731) -> str:
    """A row of outcomes: examined on a day, known that many days after it."""
    known = "" if label == "" else (day + timedelta(days=after)).isoformat()
    return f"{case},{label},{known},{day.isoformat()}"


def write_outcomes(path: Path, labels: Mapping[int, str], *, after: int = 731) -> None:
    """Write the outcomes of cases by number; a cancer is found after a year."""
    lines = [
        outcome_line(f"{n:04d}", label, day=examined(n), after=365 if label == "1" else after)
        for n, label in labels.items()
    ]
    path.write_text("\n".join(["case_id,label,date,examined", *lines]) + "\n")


def everyone(positives: int, unknown: int = 0) -> dict[int, str]:
    """Outcomes of all 1,000 dismissed cases, cancers spread over time, the last ones unknown."""
    every = 1000 // positives if positives else 1001
    found = {n: "1" if n % every == every // 2 and n // every < positives else "0" for n in range(1000)}
    return found | dict.fromkeys(range(1000 - unknown, 1000), "")


def make_place(folder: Path, **model: Any) -> Place:
    write_model(a_model(**model), folder / "model")
    sha256 = read_model(folder / "model").sha256
    place = Place(folder, sha256)
    place.write(a_row(f"{n:04d}", sha256, dismissed=n < 1000) for n in range(1200))
    return place
