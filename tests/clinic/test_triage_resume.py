"""Triage of 1,000 cases with every kind of broken file, and of cases that are interrupted."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.clinic.dicom_files import PROJECTIONS
from tests.clinic.triage_material import (
    KINDS,
    place_model,
    scores_by_extract,
    tiny_head,
    tiny_model,
    write_clinic,
)
from trust_cache.base.errors import InputError
from trust_cache.cache.extract.view_features import torch_threads
from trust_cache.clinic.triage import TriageSettings, triage
from trust_cache.clinic.triage_journal import Journal, JournalIdentity
from trust_cache.clinic.worklist import ScoredCase, read_worklist
from trust_cache.images.folders.folder_cases import IncomingCase, IncomingImage
from trust_cache.images.image_bytes import image_digest

CASES = 1_000
BROKEN_EVERY = 4  # cases; each kind then occurs more than ten times
COMPARED = 120  # complete cases that are also extracted into a cache
SETTINGS = TriageSettings(workers=2)


@pytest.mark.slow
def test_a_thousand_cases(tmp_path: Path) -> None:
    numbers = range(CASES)
    broken = [(n, KINDS[n // BROKEN_EVERY % len(KINDS)]) for n in numbers if n % BROKEN_EVERY == 0]
    whole = [n for n in numbers if n % BROKEN_EVERY]
    assert min(sum(kind == each for _, kind in broken) for each in KINDS) >= 10
    write_clinic(tmp_path / "dicoms", whole, broken)
    truth = scores_by_extract(tmp_path / "dicoms", whole[:COMPARED], tiny_head(), tmp_path)
    tau = float(np.quantile(list(truth.cases.values()), 0.6, method="nearest"))
    model = place_model(tmp_path / "model", tiny_model(tmp_path / "cache.zarr", tau))
    done = triage(tmp_path / "dicoms", model, tmp_path / "worklist.csv", SETTINGS)
    rows = {str(row.image_id)[:4]: row for row in done.rows if row.image_id is not None}

    # No broken case is dismissed, not even if all of its scored images are below tau.
    low = [rows[f"{n:04d}"] for n, _ in broken if f"{n:04d}" in rows]
    assert any(row.score is not None and row.score < tau for row in low)
    for row in done.rows:
        assert row.decision == "review" or (row.complete and row.score is not None and row.score < tau)
    for number, kind in broken:
        found = rows.get(f"{number:04d}")
        assert found is None or (found.decision == "review" and not found.complete), (number, kind)
    assert {int(str(row.image_id)[:4]) for row in done.rows if row.decision == "dismiss"} <= set(whole)

    # Decisions and scores are those of a cache made by extract.
    for name, score in truth.cases.items():
        assert rows[name].score == score
        assert rows[name].decision == ("dismiss" if score < tau and rows[name].complete else "review")
    gated = [name for name in truth.cases if not rows[name].complete]
    assert len(gated) <= len(truth.cases) / 20, [rows[name].reason for name in gated]
    assert {rows[name].decision for name in truth.cases} == {"dismiss", "review"}

    # Some of the same cases again, from a manifest in another order: the same answers.
    again = sorted(truth.cases)[::-3]
    lines = [
        f"{name},{projection[0]},{projection[2:]},{tmp_path / 'dicoms' / name / projection}.dcm"
        for name in again
        for projection in PROJECTIONS
    ]
    (tmp_path / "new.csv").write_text("\n".join(["case_id,laterality,projection,path", *lines]))
    second = triage(tmp_path / "new.csv", model, tmp_path / "second.csv", replace(SETTINGS, workers=1))
    for row in second.rows:
        assert (row.score, row.decision) == (rows[row.case_id].score, rows[row.case_id].decision)


def journal_lines(out: Path) -> int:
    path = out.with_name(f".{out.name}.work") / "journal.jsonl"
    return path.read_bytes().count(b'"key"') if path.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_stopped_in_the_middle_and_started_again(tmp_path: Path, stop: signal.Signals) -> None:
    """Finished cases are not scored again, and the worklist equals that of an uninterrupted triage."""
    write_clinic(tmp_path / "dicoms", range(14), [(20, "truncated")])
    scores_by_extract(tmp_path / "dicoms", range(2), tiny_head(), tmp_path)
    model = place_model(tmp_path / "model", tiny_model(tmp_path / "cache.zarr", 0.5))
    out = tmp_path / "worklist.csv"
    words = ["triage", "dicoms", "--model", "model", "--out", "worklist.csv", "--workers", "1"]
    command = [sys.executable, "-m", "trust_cache_cli", *words]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
        },  # as below: part of the journal's identity
    ) as process:
        deadline = time.monotonic() + 180
        while journal_lines(out) < 2 and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(stop)
        _, complaint = process.communicate(timeout=120)
    assert "Traceback" not in complaint
    finished = journal_lines(out)
    if process.returncode in (0, 1):  # it ended before the signal: nothing to resume
        assert finished == 0
        return
    assert process.returncode == (130 if stop == signal.SIGINT else -signal.SIGKILL)
    assert not out.exists()
    assert finished >= 2
    with torch_threads(1):
        resumed = triage(tmp_path / "dicoms", model, out, TriageSettings(workers=1))
        whole = triage(tmp_path / "dicoms", model, tmp_path / "other.csv", TriageSettings(workers=1))
    assert resumed.resumed >= finished
    assert whole.resumed == 0
    assert out.read_bytes() == (tmp_path / "other.csv").read_bytes()
    assert len(read_worklist(out)) == 15


def test_a_journal_of_another_model_is_refused_and_a_torn_one_is_read(tmp_path: Path) -> None:
    identity = JournalIdentity(model="m", weights="w", device="cpu", runtime="torch", threads=1)
    out = tmp_path / "worklist.csv"
    file = tmp_path / "a.dcm"
    file.write_bytes(b"a")
    item = IncomingCase("1", (IncomingImage("a", str(file), "L", "CC"),), ("ä problem",))
    digests = {str(file): image_digest(file)}
    scored = ScoredCase("1", 0.25, "a", ("ä problem",), failed=False)
    with Journal(out, identity) as journal:
        assert journal.finished(item) is None
        journal.enter(item, scored, digests)
        with pytest.raises(InputError, match="is being written by"), Journal(out, identity):
            pass
    path = tmp_path / ".worklist.csv.work" / "journal.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(path.read_bytes() + b'{"key": "torn')
    with Journal(out, identity) as journal:
        assert journal.finished(item) == scored
        other = IncomingCase("2", item.images)
        assert journal.finished(other) is None
        journal.enter(other, replace(scored, case_id="2"), digests)
    with Journal(out, identity) as journal:
        assert journal.finished(other) is not None
        state = file.stat()
        file.write_bytes(b"b")  # of the same size, and with the same time
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
        assert journal.finished(item) is None
        file.write_bytes(b"a")
        assert journal.finished(item) == scored
    path.write_bytes(path.read_bytes().replace(b"0.25", b"0.75"))
    with Journal(out, identity) as journal:
        assert journal.finished(item) is None  # an edited line counts for nothing
    other_model = msgspec.structs.replace(identity, model="n")
    with pytest.raises(InputError, match="another model"), Journal(out, other_model):
        pass
    assert json.loads(path.read_bytes().splitlines()[0])["model"] == "m"
