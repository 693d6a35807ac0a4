"""The kernels compile where nothing can be written, and only once where something can."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import trust_cache
from trust_cache.heads import kernels

ROOT = Path(trust_cache.__file__).parent
CODE = """
import logging
logging.basicConfig(level=logging.INFO)
import numpy as np
from trust_cache.heads import kernels
words = np.zeros(2, dtype=np.uint64)
kernels.draw_words(np.uint64(1234567), 0, words)
assert words[0] == 6457827717110365317
print(sum(kernels.draw_words.stats.cache_hits.values()))
"""


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "HOME", "XDG"))
    }
    return subprocess.run(
        [sys.executable, "-B", "-c", CODE],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def install(tmp_path: Path) -> Path:
    """A copy of what the kernels need, without compiled code."""
    for room in ("base", "cache", "statistics", "heads"):
        shutil.copytree(
            ROOT / room, tmp_path / "trust_cache" / room, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "__init__.py", tmp_path / "trust_cache" / "__init__.py")
    return tmp_path


def test_a_read_only_install_without_home_compiles_with_a_note(install: Path) -> None:
    # Files where folders would have to be made stop even root, as a read-only file system does.
    (install / "trust_cache" / "heads" / "__pycache__").write_text("")
    (install / "home").write_text("")
    result = run(install, HOME=str(install / "home"))
    assert result.returncode == 0, result.stderr
    assert "draw_words is compiled anew at each start" in result.stderr
    assert result.stdout == "0\n"


def test_a_second_start_compiles_nothing(install: Path) -> None:
    cache = str(install / "numba")
    assert run(install, HOME=str(install), NUMBA_CACHE_DIR=cache).stdout == "0\n"
    result = run(install, HOME=str(install), NUMBA_CACHE_DIR=cache)
    assert result.stdout == "1\n", result.stderr
    assert "compiled anew" not in result.stderr


def test_the_default_folder_is_private(install: Path) -> None:
    for hits in ("0\n", "1\n"):
        assert run(install, HOME=str(install)).stdout == hits
    assert (install / ".cache" / "trust-cache" / "numba").stat().st_mode & 0o777 == 0o700
    assert not list((install / "trust_cache").rglob("*.nbi"))


@pytest.mark.parametrize("shared", ["folder", "parent"])
def test_nothing_in_a_shared_folder_runs(install: Path, shared: str) -> None:
    cache = install / "shared" / "numba"
    assert run(install, NUMBA_CACHE_DIR=str(cache)).stdout == "0\n"
    (cache if shared == "folder" else cache.parent).chmod(0o777)
    result = run(install, NUMBA_CACHE_DIR=str(cache))
    assert result.stdout == "0\n", result.stderr
    assert "others can write to it" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("content", [b"", b"\x80\x05damaged"])
def test_a_damaged_file_is_compiled_again(install: Path, suffix: str, content: bytes) -> None:
    cache = install / "numba"
    assert run(install, NUMBA_CACHE_DIR=str(cache)).stdout == "0\n"
    (damaged,) = cache.rglob(f"kernels.draw_words-*.{suffix}")
    damaged.write_bytes(content)
    for hits in ("0\n", "1\n"):
        result = run(install, NUMBA_CACHE_DIR=str(cache))
        assert result.stdout == hits, result.stderr


def test_an_edit_of_the_vectors_reaches_the_compiled_kernels() -> None:
    """Numba compiles anew when kernels.py changes, and only then: its stamp must follow kernel_parts.py."""
    digest = hashlib.sha256((ROOT / "heads" / "kernel_parts.py").read_bytes()).hexdigest()
    assert digest[:16] == kernels.PARTS_SHA256


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names an x86 processor")
def test_narrower_processors_train_the_same_heads() -> None:
    """AVX2 without AVX-512: other blocks and vectors, the same oracle."""
    tests = "tests/heads/test_parity.py::test_every_parameter_is_the_oracles"
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"{tests}[64-77-0]",
            f"{tests}[37-0-10]",
        ],
        cwd=ROOT.parent,
        env={**os.environ, "NUMBA_CPU_NAME": "haswell"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
