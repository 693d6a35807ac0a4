"""A million rows: time, memory and growth of the whole command."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

pytestmark = pytest.mark.slow

ROWS = 1_000_000


def write_scores(path: Path, rows: int, images: int) -> Path:
    generator = np.random.default_rng(0)
    case = np.arange(rows) // images
    pl.DataFrame(
        {
            "case_id": pl.Series(case).cast(pl.String).str.zfill(8),
            "image_id": pl.Series(np.arange(rows)).cast(pl.String).str.zfill(8),
            "label": (case % 40 == 0).astype(np.int64),
            "score": generator.random(rows) + 0.2 * (case % 40 == 0),
            "site": (case % 5).astype(str),
        }
    ).write_csv(path)
    return path


def certify(scores: Path, out: Path) -> float:
    """Return the processor's seconds: no less than the clock's on an idle machine, steady on a busy one."""
    command = [sys.executable, "-m", "trust_cache_cli.main", "certify"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [*command, str(scores), "--out", str(out), "--by", "site"], check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("images", [4, 1])
def test_a_million_image_rows(tmp_path: Path, images: int) -> None:
    scores = write_scores(tmp_path / "scores.csv", ROWS, images)
    seconds = min(certify(scores, tmp_path / f"out{n}") for n in range(2))
    # The largest of all children so far, which is this one: nothing else here is near it.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"{ROWS:,} rows, {images} a case: {seconds:.1f} s, {peak / 1e9:.2f} GB")  # noqa: T201
    assert seconds < 10
    assert peak < 1.5e9


def test_growth_is_n_log_n(tmp_path: Path) -> None:
    """Four times the rows may cost at most 4 (log 4n / log n), with a third of slack for a noisy machine."""
    small = write_scores(tmp_path / "small.csv", ROWS // 4, 4)
    large = write_scores(tmp_path / "large.csv", ROWS, 4)
    start_up = min(
        certify(write_scores(tmp_path / "tiny.csv", 2_000, 4), tmp_path / f"t{n}") for n in range(2)
    )
    short = min(certify(small, tmp_path / f"s{n}") for n in range(2)) - start_up
    long = min(certify(large, tmp_path / f"l{n}") for n in range(2)) - start_up
    allowed = 4 * np.log(ROWS) / np.log(ROWS / 4)
    assert long / short < 1.33 * allowed
