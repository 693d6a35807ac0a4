"""The page of an RSNA-sized run with five configurations is below 4 MB; `benchmarks report` has its time."""

from pathlib import Path

import pytest

from tests.report.material import make_run
from trust_cache.certificate.evidence import Options
from trust_cache.report.page import write_page
from trust_cache.report.report import make_report

LARGEST = 4_000_000  # bytes


@pytest.mark.slow
def test_an_rsna_sized_run_gives_a_small_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", cases=11_913, positives=486, images=5, epochs=20)
    report = make_report([run], Options(by=("site",)))
    size = write_page(report, tmp_path / "report.html")
    assert len(report.evidences[0].configurations) == 5
    assert size < LARGEST
