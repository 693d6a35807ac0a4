"""The memory of fit-heads on an RSNA-shaped cache: loaded, mapped, and mapped with four times the views."""

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from benchmarks.cohort import discard, rsna_cache, scratch

EPOCHS = 2
OVERHEAD_BYTES = 1e9  # above the cache's bytes, when loaded
ANONYMOUS_BYTES = 1.5e9  # when mapped


@dataclass(frozen=True)
class Usage:
    """The peaks of one run, its wall time and its processor time."""

    resident: int
    anonymous: int
    seconds: float
    processor_seconds: float


def run() -> bool:
    """Print the peaks; return whether the targets were met."""
    cache = rsna_cache()
    size = cache.images * cache.views * cache.dim * 2
    loaded = _measure(Path(cache.source))
    mapped = _measure(Path(cache.source), "--low-memory")
    print(f"memory: fit-heads, {EPOCHS} epochs, on a cache of {size / 1e9:.2f} GB")
    above = (loaded.resident - size) / 1e9
    print(f"  loaded: peak {loaded.resident / 1e9:.2f} GB, {above:.2f} GB above the cache")
    cost = mapped.seconds / loaded.seconds
    print(f"  mapped: anonymous peak {mapped.anonymous / 1e9:.2f} GB; takes {cost:.2f}x the time")
    good = loaded.resident - size <= OVERHEAD_BYTES and mapped.anonymous <= ANONYMOUS_BYTES
    for ending in ("zarr", "h5"):
        larger = rsna_cache(views=35, ending=ending)
        try:
            wide = _measure(Path(larger.source), "--low-memory")
        finally:
            discard(larger)
        peak = wide.anonymous / 1e9
        print(f"  mapped, 36 views, .{ending}: anonymous peak {peak:.2f} GB, {wide.seconds:.1f} s in all")
        good = good and wide.anonymous <= ANONYMOUS_BYTES
    return good


def _measure(cache: Path, *words: str) -> Usage:
    out = scratch() / "memory-run"
    usage = measure(
        "fit-heads", str(cache), "--out", str(out), "--epochs", str(EPOCHS), "--overwrite", *words
    )
    shutil.rmtree(out)
    return usage


def measure(*words: str) -> Usage:
    """Run a command in its own process and watch its memory."""
    begin, before = time.perf_counter(), children_seconds()
    with subprocess.Popen(
        [sys.executable, "-m", "trust_cache_cli", *words], stdout=subprocess.DEVNULL
    ) as process:
        resident = anonymous = 0
        while process.poll() is None:
            status = _status(process.pid)
            resident = max(resident, status.get("VmHWM", 0))
            anonymous = max(anonymous, status.get("RssAnon", 0))
            time.sleep(0.02)
    if process.returncode:
        raise RuntimeError(f"{words[0]} ended with {process.returncode}")
    return Usage(resident, anonymous, time.perf_counter() - begin, children_seconds() - before)


def children_seconds() -> float:
    """Return the processor time of the processes that have ended."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _status(process: int) -> dict[str, int]:
    """Read the sizes of /proc in bytes; nothing if the process has just ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    cells = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): 1024 * int(value) for name, value, _ in cells}
