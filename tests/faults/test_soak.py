"""Two hundred rounds of extract, fit-heads and certify in one process: memory and open files stay flat."""

import gc
import os
import shutil
from pathlib import Path

import pytest
import threadpoolctl

from tests.cache.extract.material import with_settings, write_pngs
from trust_cache.cache.extract.extract import extract
from trust_cache.cache.extract.view_features import torch_threads
from trust_cache.certificate.certified_folder import write_certification
from trust_cache.certificate.certify import certify
from trust_cache.heads.fit import fit_heads

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="counts pages and files in /proc"),
]

ROUNDS, WARM = 200, 50
IMAGES = 30  # of 15 cases, 5 of them positive: as few as five folds take
# Rounds that kept no more than their images' pixels, 78 kB, would keep 11.7 MB in 150; 1.1 MB was measured.
KEPT_BYTES = 8e6


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_rounds_leave_nothing_behind(tmp_path: Path) -> None:
    manifest = write_pngs(tmp_path / "png", IMAGES)
    settings = with_settings(views=1, shard_images=30, batch=15, workers=1)
    seen: dict[int, tuple[int, int]] = {}
    scores: set[bytes] = set()
    with torch_threads(1), threadpoolctl.threadpool_limits(1):
        for number in range(1, ROUNDS + 1):
            folder = tmp_path / "round"
            extract(manifest, folder.with_suffix(".zarr"), settings)
            fit_heads(folder.with_suffix(".zarr"), folder, epochs=1, threads=1)
            write_certification(certify(folder / "scores.csv"), folder / "certified")
            scores.add((folder / "scores.csv").read_bytes())
            shutil.rmtree(folder)
            shutil.rmtree(folder.with_suffix(".zarr"))
            if number in (WARM, ROUNDS):
                seen[number] = resident_bytes(), open_files()
    assert len(scores) == 1  # and every round computed the same
    (memory, files), (memory_at_end, files_at_end) = seen[WARM], seen[ROUNDS]
    print(f"soak: {(memory_at_end - memory) / 1e6:.1f} MB more after {ROUNDS - WARM} rounds")  # noqa: T201
    assert memory_at_end - memory < KEPT_BYTES
    assert files_at_end <= files
