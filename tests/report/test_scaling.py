"""The page of an RSNA-sized run with five configurations: below 4 MB, and quickly made."""

import time
from pathlib import Path

import pytest

from tests.report.material import make_run
from trust_cache.report.evidence import Options
from trust_cache.report.report import make_report
from trust_cache.report.writing import write_report

LARGEST = 4_000_000  # bytes
LONGEST = 30.0  # seconds of processor time: three times what a user may wait on an idle machine


@pytest.mark.slow
def test_an_rsna_sized_run_gives_a_small_page_quickly(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", cases=11_913, positives=486, images=5, epochs=20)
    begin = time.process_time()
    report = make_report([run], Options(by="site"))
    size = write_report(report, tmp_path / "report.html")
    spent = time.process_time() - begin
    assert len(report.evidences[0].configurations) == 5
    assert size < LARGEST
    assert spent < LONGEST
