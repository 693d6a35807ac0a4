"""Monitoring 20,000 examinations with their outcomes, and four times as many: the time must be linear."""

import tempfile
from datetime import date, timedelta
from pathlib import Path

import numpy as np

from benchmarks.timing import best
from tests.clinic.material import a_model
from trust_cache.clinic.model_folder import read_model, write_model
from trust_cache.clinic.monitoring.model_history import history_file
from trust_cache.clinic.monitoring.monitor import MonitorSettings, monitor
from trust_cache.clinic.monitoring.monitor_page import write_monitor_page
from trust_cache.clinic.monitoring.triage_watch import TriageWatch
from trust_cache.clinic.worklist import WorklistRow, write_worklist

CASES, TIMES = 20_000, 4
LIMIT_SECONDS, LIMIT_RATIO = 10.0, 6.0
START, AS_OF = date(2015, 1, 1), date(2026, 1, 1)


def run() -> bool:
    """Print times and ratios; return whether the targets were met."""
    with tempfile.TemporaryDirectory() as folder:
        small, large = (_measure(Path(folder) / str(cases), cases) for cases in (CASES, CASES * TIMES))
    for cases, (watched, drift, page) in ((CASES, small), (CASES * TIMES, large)):
        print(
            f"{cases:,} examinations and outcomes: monitor {watched:.2f} s, its page {page:.2f} s,"
            f" scores and drift of a triage {drift:.2f} s"
        )
    ratio = large[0] / small[0]
    print(f"  {TIMES} times as many take {ratio:.1f} times as long")
    return small[0] < LIMIT_SECONDS and ratio < LIMIT_RATIO


def _measure(folder: Path, cases: int) -> tuple[float, float, float]:
    folder.mkdir()
    generator = np.random.default_rng(0)
    write_model(a_model(), folder / "model")
    stored = read_model(folder / "model")
    scores = generator.beta(1, 4, cases)
    rows = [_row(f"{n:06d}", float(score), stored.sha256) for n, score in enumerate(scores)]
    write_worklist(folder / "worklist.csv", rows)
    lines = ["case_id,label,date,examined"]
    for n, cancer in enumerate(generator.random(cases) < 0.005):
        day = START + timedelta(days=n * 3000 // cases)
        lines.append(f"{n:06d},{int(cancer)},{day + timedelta(days=400 if cancer else 731)},{day}")
    (folder / "outcomes.csv").write_text("\n".join(lines))

    def watch() -> object:
        history_file(folder / "model").unlink(missing_ok=True)
        return monitor(
            [folder / "worklist.csv"],
            folder / "model",
            outcomes=folder / "outcomes.csv",
            settings=MonitorSettings(as_of=AS_OF),
        )

    watched = best(watch)
    found = monitor(
        [folder / "worklist.csv"],
        folder / "model",
        outcomes=folder / "outcomes.csv",
        settings=MonitorSettings(as_of=AS_OF),
    )
    page = best(lambda: write_monitor_page(found, "model", folder / "page.html"), times=1)
    followed = TriageWatch.open(stored, share=None, key=None, history=None, expired=False)
    drift = best(lambda: followed.record(rows, folder / "worklist.csv"), times=1)
    return watched, drift, page


def _row(case_id: str, score: float, model: str) -> WorklistRow:
    return WorklistRow(
        case_id=case_id,
        score=score,
        decision="dismiss" if score < 0.3 else "review",
        image_id=f"{case_id}_1",
        tau=0.3,
        complete=True,
        reason=None,
        certified=True,
        model=model,
    )
