"""The machine itself: processors, memory, room on the disk, threads, and a place for compiled kernels."""

import ctypes
import os
import shutil
import sys
import tempfile
from pathlib import Path

from trust_cache.service.doctor.findings import Finding, good

GB = 1e9
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_LITTLE_MEMORY = 4 * GB  # RSNA's cache with 8 views takes 2 GB, training it 0.45 GB more


def usable_cores() -> int:
    """Return the cores that this process may use, which can be fewer than the machine has."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    return os.cpu_count() or 1 if affinity is None else len(affinity(0))


def processor_findings() -> list[Finding]:
    """Say how many cores there are and what the environment makes of them."""
    cores = usable_cores()
    findings = [good("machine", "cores", f"{cores} of {os.cpu_count() or 1} usable")]
    for variable in THREAD_VARIABLES:
        value = os.environ.get(variable)
        if value is None:
            findings.append(good("threads", variable, "not set: all cores"))
        elif not value.isdigit() or int(value) < 1:
            findings.append(
                Finding("threads", variable, "missing", f"{value!r} is no number", f"unset {variable}")
            )
        elif int(value) > cores:
            found = f"{value}, more than the {cores} usable cores"
            findings.append(Finding("threads", variable, "note", found, f"export {variable}={cores}"))
        else:
            findings.append(good("threads", variable, value))
    return findings


def memory_findings() -> list[Finding]:
    """Say how much memory there is, as far as the system tells."""
    total = total_memory()
    if total is None:
        return [Finding("machine", "memory", "note", "this system does not tell")]
    found = f"{total / GB:.1f} GB"
    if total < _LITTLE_MEMORY:
        mend = (
            "train with `trust-cache fit-heads --low-memory`, which maps the features instead of loading them"
        )
        return [Finding("machine", "memory", "note", found, mend)]
    return [good("machine", "memory", found)]


def total_memory() -> int | None:
    """Return the memory in bytes that this process can have: the machine's, or less in a container."""
    if sys.platform == "win32":
        return _windows_memory()
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    try:
        limit = _CGROUP_LIMIT.read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def free_disk(folder: Path) -> int:
    """Return the free bytes where a folder lies or would lie."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def kernel_cache_finding() -> Finding:
    """Say whether compiled kernels can be kept: otherwise each start compiles for half a minute."""
    place = os.environ.get("NUMBA_CACHE_DIR") or str(Path(__file__).parents[2] / "heads" / "__pycache__")
    for candidate in (place, str(Path.home() / ".cache" / "numba") if _has_home() else ""):
        if candidate and _is_writable(Path(candidate)):
            return good("threads", "numba cache", candidate)
    found = f"{place} is not writable: the kernels are compiled anew at each start"
    return Finding(
        "threads", "numba cache", "missing", found, f"export NUMBA_CACHE_DIR={tempfile.gettempdir()}/numba"
    )


def _has_home() -> bool:
    try:
        return Path.home().is_dir()
    except RuntimeError:
        return False


def _is_writable(folder: Path) -> bool:
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False


def _windows_memory() -> int | None:
    class Status(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            *((name, ctypes.c_ulonglong) for name in ("total", "available", "a", "b", "c", "d", "e")),
        )

    status = Status(length=ctypes.sizeof(Status))
    library = getattr(ctypes, "windll", None)
    if library is None or not library.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    return int(status.total)
