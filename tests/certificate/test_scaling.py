"""A million rows: memory and growth of the whole command; `python -m benchmarks certificate` has its time."""

import resource
import subprocess
import sys
from dataclasses import dataclass
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


# The command, which says at its end how large it was. The system's own account of a child counts what its
# parent held when it was started, and a worker of pytest holds more than this command.
COMMAND = """
import atexit, re, sys
from pathlib import Path
status = Path("/proc/self/status")
atexit.register(lambda: print(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1], file=sys.stderr))
from trust_cache_cli.main import main
main()
"""


@dataclass(frozen=True)
class Cost:
    seconds: float  # of the processor: no less than the clock's on an idle machine, steady on a busy one
    peak: int  # bytes


def certify(scores: Path, out: Path) -> Cost:
    words = [sys.executable, "-c", COMMAND, "certify", str(scores), "--out", str(out), "--by", "site"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(seconds, int(done.stderr.splitlines()[-1]) * 1024)


@pytest.mark.parametrize("images", [4, 1])
def test_a_million_image_rows(tmp_path: Path, images: int) -> None:
    scores = write_scores(tmp_path / "scores.csv", ROWS, images)
    assert certify(scores, tmp_path / "out").peak < 1.5e9


def test_growth_is_n_log_n(tmp_path: Path) -> None:
    """Four times the rows may cost at most 4 (log 4n / log n), with a third of slack for a noisy machine."""
    small = write_scores(tmp_path / "small.csv", ROWS // 4, 4)
    large = write_scores(tmp_path / "large.csv", ROWS, 4)
    tiny = write_scores(tmp_path / "tiny.csv", 2_000, 4)
    # In turns, and the best of four each: what else the machine does must not fall on one of them.
    rounds = [
        [certify(path, tmp_path / f"{path.stem}{n}").seconds for path in (tiny, small, large)]
        for n in range(4)
    ]
    start_up, short, long = (min(times) for times in zip(*rounds, strict=True))
    short, long = short - start_up, long - start_up
    allowed = 4 * np.log(ROWS) / np.log(ROWS / 4)
    assert long / short < 1.33 * allowed
