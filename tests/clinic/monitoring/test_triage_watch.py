"""Triage and monitoring together: the audit of a triage, the last day, drift over all runs, kills."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from tests.clinic.material import a_model, a_row
from tests.clinic.monitoring.monitor_material import AS_OF, everyone, make_place, write_outcomes
from tests.clinic.triage_material import place_model, scores_by_extract, tiny_head, tiny_model, write_clinic
from trust_cache.base.errors import InputError
from trust_cache.cache.extract.view_features import torch_threads
from trust_cache.clinic.model_folder import StoredModel, read_model, write_model
from trust_cache.clinic.monitoring.audit import is_drawn, read_key
from trust_cache.clinic.monitoring.drift import measure_drift
from trust_cache.clinic.monitoring.model_history import history_file, read_history
from trust_cache.clinic.monitoring.monitor_words import sentences
from trust_cache.clinic.monitoring.triage_watch import TriageWatch
from trust_cache.clinic.triage import TriageSettings, triage
from trust_cache.clinic.worklist import WorklistRow, read_worklist

TODAY = date(2026, 5, 1)


def opened(stored: StoredModel, **changes: object) -> TriageWatch:
    given = {"share": None, "key": None, "history": None, "expired": False, "today": TODAY}
    return TriageWatch.open(stored, **(given | changes))  # type: ignore[arg-type]


def rows_with(scores: np.ndarray, sha256: str, start: int = 0) -> list[WorklistRow]:
    return [
        replace(a_row(f"{start + n:05d}", sha256, dismissed=score < 0.3), score=float(score))
        for n, score in enumerate(scores)
    ]


def test_an_expired_model_is_refused_unless_one_insists(tmp_path: Path) -> None:
    write_model(replace(a_model(), valid_until="2026-04-30"), tmp_path / "model")
    stored = read_model(tmp_path / "model")
    with pytest.raises(InputError, match=r"valid until 2026-04-30.*--expired"):
        opened(stored)
    assert opened(stored, today=date(2026, 4, 30)).mark([a_row("1", stored.sha256)])[0].reason is None
    rows = opened(stored, expired=True).mark([a_row("1", stored.sha256)])
    assert rows[0].reason == "the model was valid until 2026-04-30"
    with pytest.raises(InputError, match="YYYY-MM-DD"):
        replace(a_model(), valid_until="next year")


def test_drift_accumulates_over_all_runs(tmp_path: Path) -> None:
    """Ten runs of 100 cases with a small shift: few of them show it alone, all together do."""
    generator = np.random.default_rng(4)
    model = replace(a_model(), reference=np.sort(generator.normal(0.5, 0.1, 947)))
    write_model(model, tmp_path / "model")
    stored = read_model(tmp_path / "model")
    alarms = []
    for run in range(10):
        rows = rows_with(generator.normal(0.525, 0.1, 100), stored.sha256, 100 * run)
        worklist = tmp_path / f"{run}.csv"
        drift, warnings = opened(stored).record(rows, worklist)
        assert drift.cases == 100 * (run + 1)
        again, _ = opened(stored).record(rows, worklist)  # the same triage again adds nothing
        assert again == drift
        alone = measure_drift(stored, {row.case_id: float(row.score or 0) for row in rows})
        alarms.append((alone.differs, drift.differs, bool(warnings)))
    assert sum(alone for alone, _, _ in alarms) <= 3
    assert alarms[-1][1:] == (True, True)
    assert drift.shift is not None
    assert drift.shift.standard_deviations == pytest.approx(0.25, abs=0.15)
    assert "shifted up by" in warnings[0]
    assert "share of cancers" in warnings[0]
    assert len(read_history(history_file(stored.folder)).entries) == 10
    other = StoredModel(stored.folder, stored.model, "ab" * 32)
    assert measure_drift(other, read_history(history_file(stored.folder)).scores(other.sha256)).cases == 0


def test_a_folder_that_cannot_be_written_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(a_model(), tmp_path / "model")
    stored = read_model(tmp_path / "model")
    monkeypatch.setattr(os, "access", lambda *_: False)
    drift, warnings = opened(stored).record(rows_with(np.full(5, 0.2), stored.sha256), tmp_path / "w.csv")
    assert drift.cases == 5
    assert "cannot be written" in warnings[0]
    assert not history_file(stored.folder).exists()


def test_a_changed_history_stops_a_triage_before_it_starts(tmp_path: Path) -> None:
    write_model(a_model(), tmp_path / "model")
    history_file(tmp_path / "model").write_text("nothing\n")
    with pytest.raises(InputError, match="changed by hand"):
        opened(read_model(tmp_path / "model"))
    assert opened(read_model(tmp_path / "model"), history=tmp_path / "other.jsonl").key is None
    with pytest.raises(InputError, match="together with a share"):
        opened(read_model(tmp_path / "model"), history=tmp_path / "other.jsonl", key=tmp_path / "key")


def test_monitor_knows_what_triage_recorded(tmp_path: Path) -> None:
    """A worklist that is not named is noticed, and the drift of all triage runs is shown."""
    place = make_place(tmp_path)
    write_outcomes(place.outcomes, everyone(1))
    opened(read_model(place.model)).record(read_worklist(place.worklist), place.worklist)
    found = place.watch()
    assert found.warnings == ()
    assert found.drift.cases == 1200
    assert found.drift.differs  # 0.1 and 0.9 alone are not like the evaluation scores
    assert "evidence for drift" in sentences(found)[-1]
    place.write(read_worklist(place.worklist)[:900])
    (text,) = place.watch().warnings[-1:]
    assert "history has 1,000 dismissed or audited cases, the worklists only 900" in text


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fourteen complete cases that a certified model dismisses."""
    place = tmp_path_factory.mktemp("clinic")
    write_clinic(place / "dicoms", range(14), [(20, "truncated")])
    scores_by_extract(place / "dicoms", range(2), tiny_head(), place)
    place_model(place / "model", tiny_model(place / "cache.zarr", 0.99))
    return place


def test_a_triage_with_an_audit(clinic: Path, tmp_path: Path) -> None:
    key, history = tmp_path / "key", tmp_path / "history.jsonl"
    settings = TriageSettings(audit=0.5, audit_key=key, history=history)
    with torch_threads(1):
        done = triage(clinic / "dicoms", clinic / "model", tmp_path / "w.csv", settings)
    audited = {row.case_id for row in done.rows if row.decision == "audit"}
    below = {row.case_id for row in done.rows if row.decision != "review"}
    assert len(below) == 14
    assert audited == {case for case in below if is_drawn(case, read_key(key), 0.5)}
    assert {row.case_id for row in read_worklist(tmp_path / "w.csv") if row.decision == "audit"} == audited
    assert any("made a key for the audit" in text for text in done.warnings)
    (entry,) = read_history(history).triages(done.rows[0].model)
    assert (entry.audit, entry.worklist, len(entry.cases)) == (0.5, "w.csv", 14)
    assert done.drift.cases == 14


def kill_when(words: list[str], folder: Path, moment: Path, *, after: float = 0.0) -> int:
    """Run a command and kill it as soon as a file is there, some seconds later."""
    command = [sys.executable, "-m", "trust_cache_cli", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        deadline = time.monotonic() + 180
        while not moment.exists() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(after)
        process.send_signal(signal.SIGKILL)
        return process.wait(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.0, 0.3, 1.0])
def test_kill_in_the_middle_of_a_triage_with_an_audit(clinic: Path, tmp_path: Path, after: float) -> None:
    """The key survives, so the draw is the same; every score is in the history once."""
    out, history, key = tmp_path / "w.csv", tmp_path / "h.jsonl", tmp_path / "key"
    words = ["triage", str(clinic / "dicoms"), "--model", str(clinic / "model"), "--out", str(out)]
    words += ["--workers", "1", "--audit", "0.5", "--audit-key", str(key), "--history", str(history)]
    journal = tmp_path / ".w.csv.work" / "journal.jsonl"
    kill_when(words, tmp_path, journal, after=after)
    first = key.read_bytes()
    settings = TriageSettings(audit=0.5, audit_key=key, history=history)
    with torch_threads(1):
        triage(clinic / "dicoms", clinic / "model", out, settings)
        unbroken = replace(settings, history=tmp_path / "h2.jsonl")
        triage(clinic / "dicoms", clinic / "model", tmp_path / "other.csv", unbroken)
    assert key.read_bytes() == first
    assert out.read_bytes() == (tmp_path / "other.csv").read_bytes()
    model = read_model(clinic / "model").sha256
    scores = read_history(history).scores(model)
    assert scores == read_history(tmp_path / "h2.jsonl").scores(model)
    assert sum(len(entry.cases) for entry in read_history(history).triages(model)) == len(scores) == 14


@pytest.mark.slow
@pytest.mark.parametrize("moment", [".model.history.jsonl.lock", "model.history.jsonl"])
@pytest.mark.parametrize("after", [0.0, 0.05])
def test_kill_in_the_middle_of_monitor(tmp_path: Path, moment: str, after: float) -> None:
    """While it writes the history, and then the page: the next monitor finds what an unbroken one finds."""
    place = make_place(tmp_path)
    write_outcomes(place.outcomes, everyone(3))
    words = ["monitor", "worklist.csv", "--outcomes", "outcomes.csv", "--model", "model"]
    words += ["--as-of", AS_OF.isoformat(), "--page", "page.html"]
    code = kill_when(words, tmp_path, tmp_path / moment, after=after)
    assert code in (0, -signal.SIGKILL)
    found = place.watch()
    entries = read_history(history_file(place.model)).monitorings(place.sha256)
    assert len(entries) == 1
    assert entries[0].result["status"] == found.status
    assert found.dismissed is not None
    assert entries[0].result["dismissed"]["upper"] == found.dismissed.upper
    page = tmp_path / "page.html"
    assert not page.exists() or page.read_text().endswith("</html>\n")
