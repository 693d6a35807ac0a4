"""doctor: its findings on this machine, and its fixes for missing things."""

import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from trust_cache.api.cache_size import CacheSize
from trust_cache.api.doctor import (
    THREAD_VARIABLES,
    as_document,
    decoder_findings,
    device_findings,
    disk_finding,
    examine,
    free_disk,
    kernel_cache_finding,
    package_findings,
    processor_findings,
    runtime_findings,
    total_memory,
    usable_cores,
)
from trust_cache.encoders import known_runtimes


def refuse(name: str) -> object:
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_everything_missing_has_a_fix(tmp_path: Path) -> None:
    findings = examine(tmp_path)
    assert {"machine", "threads", "devices", "decoders", "libraries"} <= {found.topic for found in findings}
    assert all(found.fix for found in findings if found.state == "missing")
    document = as_document(findings)
    assert document["missing"] == sum(found["state"] == "missing" for found in document["findings"])
    (numpy_found,) = [found for found in findings if found.name == "numpy"]
    assert numpy_found.found == np.__version__


def test_without_the_extract_extra() -> None:
    for findings in (device_findings(refuse), decoder_findings(refuse)):
        (found,) = findings
        assert found.state == "missing"
        assert found.fix == "pip install 'trust-cache[extract]'"


def test_a_laptop_without_torch_and_pydicom(tmp_path: Path) -> None:
    """In a process in which neither can be imported, as after a plain `pip install trust-cache`."""
    manifest = tmp_path / "manifest.csv"
    manifest.write_text("image_id,case_id,label\n1,a,0\n2,a,1\n")
    code = (
        "import sys\n"
        "for name in ('torch', 'pydicom', 'cv2', 'timm'): sys.modules[name] = None\n"
        f"sys.argv = ['trust-cache', 'doctor', {str(manifest)!r}]\n"
        "from trust_cache_cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torch cannot be imported" in done.stdout
    assert "the cache of 2 images" in done.stdout
    assert "DICOM files cannot be read" in done.stdout
    assert done.stdout.count("pip install 'trust-cache[extract]'") >= 2


def test_packages_by_extra() -> None:
    required = ["numpy>=2.0", "none-such>=1; extra == 'extract'", 'also-none>=1 ; extra == "cluster"']
    by_name = {found.name: found for found in package_findings([*required, "pytest; extra == 'dev'"])}
    assert by_name["numpy"].state == "good"
    assert by_name["none-such"].fix == "pip install 'trust-cache[extract]'"
    assert by_name["also-none"].fix == "pip install 'trust-cache[cluster]'"
    assert "pytest" not in by_name
    (optional,) = package_findings(["none-such>=1; extra == 'openvino'"])
    assert (optional.state, optional.fix) == ("note", "pip install 'trust-cache[openvino]'")


def test_the_runtimes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_runtimes, "version", {"torch": "2.13.0", "openvino": "2026.4.1"}.__getitem__)
    with_torch, with_openvino = runtime_findings()
    assert (with_torch.found, with_torch.state) == ("2.13.0", "good")
    assert with_openvino.found == "2026.4.1, taken by --runtime auto on a processor"
    monkeypatch.setattr(known_runtimes, "version", {"torch": "2.13.0", "openvino": "2023.1"}.__getitem__)
    with_torch, with_openvino = runtime_findings()
    assert with_torch.found == "2.13.0, taken by --runtime auto on a processor"
    assert (with_openvino.state, with_openvino.found) == (
        "note",
        "expected openvino 2025.4 or newer, found 2023.1",
    )
    assert with_openvino.fix == "pip install --upgrade 'trust-cache[openvino]'"


def test_devices_reported_by_torch() -> None:
    cuda = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 2,
        get_device_name=lambda number: f"Card {number}",
        get_device_properties=lambda _: SimpleNamespace(total_memory=24_000_000_000),
    )
    torch = SimpleNamespace(__version__="9.9", get_num_threads=lambda: 3, cuda=cuda)
    found = {item.name: item.found for item in device_findings(lambda _: torch)}
    assert found == {"cpu": "torch 9.9, 3 threads", "cuda:0": "Card 0, 24.0 GB", "cuda:1": "Card 1, 24.0 GB"}


def test_thread_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in THREAD_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    monkeypatch.setenv("MKL_NUM_THREADS", "1000000")
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    found = {item.name: item for item in processor_findings()}
    assert (found["OMP_NUM_THREADS"].state, found["OMP_NUM_THREADS"].fix) == (
        "missing",
        "unset OMP_NUM_THREADS",
    )
    assert found["MKL_NUM_THREADS"].fix == f"export MKL_NUM_THREADS={usable_cores()}"
    assert found["NUMBA_NUM_THREADS"].state == "good"
    assert found["OPENBLAS_NUM_THREADS"].found == "not set: all cores"


def test_the_cache_of_compiled_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "new" / "folder"))
    assert kernel_cache_finding().state == "good"
    assert (tmp_path / "new" / "folder").stat().st_mode & 0o777 == 0o700
    (tmp_path / "new" / "folder").chmod(0o777)
    shared = kernel_cache_finding()
    assert (shared.state, "others can write to it" in shared.found) == ("missing", True)
    assert tempfile.gettempdir() not in (shared.fix or "")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "below"))
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    found = kernel_cache_finding()
    assert (found.state, "NUMBA_CACHE_DIR" in (found.fix or "")) == ("missing", True)


def test_disk_space_for_a_cache(tmp_path: Path) -> None:
    size = CacheSize(100, 8, 2048, features=10**9, indices=1, marks=1, description=1)
    assert disk_finding(10**9 + 3, tmp_path, size).state == "good"
    short = disk_finding(10**9 + 2, tmp_path, size)
    assert short.state == "missing"
    assert short.fix is not None
    assert free_disk(tmp_path / "not" / "yet") > 0
    memory = total_memory()
    assert memory is None or memory > 10**8


def test_with_a_manifest(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.csv"
    pl.DataFrame({"image_id": ["1", "2"], "case_id": ["a", "a"], "label": [0, 1]}).write_csv(manifest)
    (found,) = [item for item in examine(tmp_path, manifest, views=2) if item.name == "disk"]
    assert "the cache of 2 images and 2 views takes" in found.found
