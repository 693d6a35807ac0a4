"""The report of an RSNA-sized run with five configurations, as a user calls it, in its own process."""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.timing import best
from tests.report.material import make_run

LIMIT_SECONDS, LIMIT_BYTES = 10.0, 4_000_000


def run() -> bool:
    """Print the time and the size of the page; return whether the targets were met."""
    with tempfile.TemporaryDirectory() as folder:
        made = make_run(Path(folder) / "run", cases=11_913, positives=486, images=5, epochs=20)
        page = Path(folder) / "report.html"
        command = "from trust_cache_cli.main import main; main()"
        words = [sys.executable, "-c", command, "report", str(made), "--out", str(page)]
        times = 3
        seconds = best(lambda: subprocess.run(words, check=True, capture_output=True), times=times)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = (spent.ru_utime + spent.ru_stime) / times
        size = page.stat().st_size
    print(f"report, RSNA-sized, five configurations: {seconds:.1f} s ({processor:.1f} s of processor time)")
    print(f"  the page: {size / 1e6:.2f} MB")
    return seconds < LIMIT_SECONDS and size < LIMIT_BYTES
