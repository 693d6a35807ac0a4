"""Check this machine: cores, memory, disk, devices, decoders and libraries, with fixes."""

import ctypes
import importlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Literal

import polars as pl

from trust_cache.api.cache_size import CacheSize, estimate_size
from trust_cache.api.result import Result
from trust_cache.base.files import claim_private, kernel_folder
from trust_cache.encoders.known_runtimes import OPENVINO, RUNTIMES, TORCH

State = Literal["good", "note", "missing"]

GB = 1e9
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
EXTRACT = "pip install 'trust-cache[extract]'"
OPTIONAL = ("openvino", "huggingface", "excel")  # extras that add something; nothing is missing without them
_REINSTALL = "pip install --force-reinstall trust-cache"
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_LITTLE_MEMORY = 4 * GB  # RSNA's cache with 8 views takes 2 GB, training it 0.45 GB more


@dataclass(frozen=True)
class MachineFinding:
    """The state of one thing; `fix` is a command or a step, always given if something is missing."""

    topic: str
    name: str
    state: State
    found: str
    fix: str | None = None


def usable_cores() -> int:
    """Return the number of cores that this process may use; the machine may have more."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    return os.cpu_count() or 1 if affinity is None else len(affinity(0))


def processor_findings() -> list[MachineFinding]:
    """Check the number of cores and the environment variables that limit threads."""
    cores = usable_cores()
    findings = [MachineFinding("machine", "cores", "good", f"{cores} of {os.cpu_count() or 1} usable")]
    for variable in THREAD_VARIABLES:
        value = os.environ.get(variable)
        finding = partial(MachineFinding, "threads", variable)
        if value is None:
            findings.append(finding("good", "not set: all cores"))
        elif not value.isdigit() or int(value) < 1:
            findings.append(finding("missing", f"{value!r} is not a count", f"unset {variable}"))
        elif int(value) > cores:
            found = f"{value}, more than the {cores} usable cores"
            findings.append(finding("note", found, f"export {variable}={cores}"))
        else:
            findings.append(finding("good", value))
    return findings


def memory_findings() -> list[MachineFinding]:
    """Check the memory, if the system reports it."""
    total = total_memory()
    if total is None:
        return [MachineFinding("machine", "memory", "note", "this system does not report it")]
    found = f"{total / GB:.1f} GB"
    if total >= _LITTLE_MEMORY:
        return [MachineFinding("machine", "memory", "good", found)]
    fix = "train with `trust-cache fit-heads --low-memory`, which maps the features instead of loading them"
    return [MachineFinding("machine", "memory", "note", found, fix)]


def total_memory() -> int | None:
    """Return the memory in bytes that this process can use: the machine's, or less in a container."""
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
    """Return the free bytes on the disk of a folder, which need not exist yet."""
    return shutil.disk_usage(_existing(folder)).free


def kernel_cache_finding() -> MachineFinding:
    """Check that compiled kernels can be stored: without, each start compiles for half a minute."""
    place = "the home folder"
    try:
        place = str(kernel_folder())
        claim_private(Path(place))
        with tempfile.TemporaryFile(dir=place):
            return MachineFinding("threads", "numba cache", "good", place)
    except (OSError, RuntimeError) as error:  # a RuntimeError where the user has no home
        reason = getattr(error, "strerror", None) or error
        found = f"{place} cannot be used ({reason}): kernels are compiled again at each start"
    fix = "export NUMBA_CACHE_DIR=DIR, a folder that only you can write to (mode 0700), not a shared one"
    return MachineFinding("threads", "numba cache", "missing", found, fix)


def _existing(folder: Path) -> Path:
    place = folder.absolute()
    return next(candidate for candidate in (place, *place.parents) if candidate.exists())


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


def package_findings(required: list[str] | None = None) -> list[MachineFinding]:
    """Check that the required libraries are installed; the fix of a missing one installs its extra."""
    findings = []
    for requirement in requires("trust-cache") or [] if required is None else required:
        named = re.search(r"""extra\s*==\s*['"]([^'"]+)""", requirement)
        name, extra = re.split(r"[<>=!~ \[(;]", requirement.strip(), maxsplit=1)[0], named[1] if named else ""
        if extra == "dev":
            continue
        topic = f"libraries [{extra}]" if extra else "libraries"
        fix = f"pip install 'trust-cache[{extra}]'" if extra else _REINSTALL
        try:
            findings.append(MachineFinding(topic, name, "good", version(name)))
        except PackageNotFoundError:
            state: State = "note" if extra in OPTIONAL else "missing"
            findings.append(MachineFinding(topic, name, state, "not installed", fix))
    return findings


def runtime_findings() -> list[MachineFinding]:
    """Check which runtimes can run an encoder, and which one `--runtime auto` takes on a processor."""
    findings = []
    faster = OPENVINO.problem is None
    for runtime in RUNTIMES:
        finding, problem = partial(MachineFinding, "runtimes", runtime.name), runtime.problem
        if problem is not None:
            expected, _, fix = problem.rpartition("; run ")
            state: State = "note" if runtime.extra in OPTIONAL else "missing"
            findings.append(finding(state, expected, fix))
        elif runtime == (OPENVINO if faster else TORCH):
            findings.append(finding("good", f"{runtime.found}, taken by --runtime auto on a processor"))
        else:
            findings.append(finding("good", str(runtime.found)))
    return findings


def device_findings(import_module: Callable[[str], object] = importlib.import_module) -> list[MachineFinding]:
    """Check which devices torch can use; extraction needs torch."""
    try:
        torch: Any = import_module("torch")
    except ImportError as error:
        found = f"torch cannot be imported ({error}): stage two works, extraction does not"
        return [MachineFinding("devices", "torch", "missing", found, EXTRACT)]
    found = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    findings = [MachineFinding("devices", "cpu", "good", found)]
    cuda = torch.cuda
    if not cuda.is_available():
        fix = (
            "install or update the NVIDIA driver, if the machine has an NVIDIA card"
            if getattr(torch.version, "cuda", None)
            else "install a CUDA build of torch, if the machine has an NVIDIA card:"
            " https://pytorch.org/get-started"
        )
        return [*findings, MachineFinding("devices", "cuda", "note", "no CUDA device", fix)]
    for number in range(cuda.device_count()):
        memory = cuda.get_device_properties(number).total_memory / GB
        found = f"{cuda.get_device_name(number)}, {memory:.1f} GB"
        findings.append(MachineFinding("devices", f"cuda:{number}", "good", found))
    return findings


def decoder_findings(
    import_module: Callable[[str], object] = importlib.import_module,
) -> list[MachineFinding]:
    """Check for every transfer syntax that its decoder works."""
    try:
        decode = import_module("trust_cache.images.decoding.decode")
    except ImportError as error:
        found = f"DICOM files cannot be read ({error})"
        return [MachineFinding("decoders", "all transfer syntaxes", "missing", found, EXTRACT)]
    findings = []
    for state in decode.decoder_states():  # type: ignore[attr-defined]
        found = f"{state.package} {state.version or 'is not installed'}"
        if state.works:
            findings.append(MachineFinding("decoders", state.syntax, "good", found))
        else:
            fix = f"pip install {state.package}"
            findings.append(MachineFinding("decoders", state.syntax, "missing", found, fix))
    return findings


def examine(folder: Path, manifest: Path | None = None, views: int = 8) -> tuple[MachineFinding, ...]:
    """Check this machine and, for a manifest, whether its cache fits on the disk of `folder`."""
    size = None if manifest is None else estimate_size(manifest, views)
    return (
        *processor_findings(),
        *memory_findings(),
        disk_finding(free_disk(folder), folder, size),
        kernel_cache_finding(),
        *device_findings(),
        *runtime_findings(),
        *decoder_findings(),
        *package_findings(),
    )


def disk_finding(free: int, folder: Path, size: CacheSize | None) -> MachineFinding:
    """Compare the free space with the size of a cache."""
    place = f"{free / GB:.1f} GB free in {folder.absolute()}"
    if size is None:
        return MachineFinding("machine", "disk", "good", place)
    needed = f"the cache of {size.images:,} images and {size.views} views takes {size.total / GB:.2f} GB"
    if size.total > free:
        fix = "free disk space, choose a --out on another disk, or use fewer --views"
        return MachineFinding("machine", "disk", "missing", f"{place}; {needed}", fix)
    return MachineFinding("machine", "disk", "good", f"{place}; {needed}")


@dataclass(frozen=True, repr=False)
class DoctorResult(Result):
    """What this machine can do, one finding for each thing."""

    findings: tuple[MachineFinding, ...]

    @property
    def missing(self) -> int:
        """The number of missing things."""
        return sum(finding.state == "missing" for finding in self.findings)

    def to_polars(self) -> pl.DataFrame:
        """Return one row per finding."""
        return pl.DataFrame([asdict(finding) for finding in self.findings], infer_schema_length=None)

    def _lines(self) -> Iterator[str]:
        yield f"{self.missing or 'nothing'} missing".capitalize()
        yield from (f"{item.name}: {item.found}" for item in self.findings if item.state == "missing")


def doctor(manifest: Path | str | None = None, *, views: int = 8, folder: Path | str = ".") -> DoctorResult:
    """Return what this machine can do, with the command that fixes each missing thing.

    With a manifest, also whether the cache of its images fits on the disk of `folder`.

    Examples:
        >>> import trust_cache as tc
        >>> "cores" in tc.doctor().to_polars()["name"].to_list()
        True
    """
    return DoctorResult(examine(Path(folder), None if manifest is None else Path(manifest), views))


def as_document(findings: Sequence[MachineFinding]) -> dict[str, Any]:
    """Return the findings as one JSON document."""
    return {
        "findings": [asdict(finding) for finding in findings],
        "missing": sum(finding.state == "missing" for finding in findings),
    }
