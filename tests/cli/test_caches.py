"""The cache commands: what they print, what they write, how they end."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run
from tests.heads.cohorts import a_cohort, write_cohort


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cohort(tmp_path_factory.mktemp("cohort") / "cache.zarr", *a_cohort(cases=20, positives=5))


def test_info(run: Run, cache: Path) -> None:
    shown = run("cache", "info", cache)
    assert shown.code == 0
    assert "images: 60" in shown.out
    assert "encoder: efficientnet-b5" in shown.out
    assert json.loads(run("cache", "info", cache, "--json").out)["cases"] == 20
    assert run("cache", "info", cache.parent).code == 2


def test_convert_there_and_back_and_verify(run: Run, cache: Path, tmp_path: Path) -> None:
    assert run("cache", "convert", cache, "--out", tmp_path / "a.h5").code == 0
    assert run("cache", "convert", tmp_path / "a.h5", "--out", tmp_path / "b.zarr").code == 0
    assert run("cache", "convert", cache, "--out", tmp_path / "a.h5").code == 2
    good = run("cache", "verify", tmp_path / "b.zarr")
    assert (good.code, "as it was written" in good.out) == (0, True)
    shard = max((p for p in (tmp_path / "b.zarr").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(shard.read_bytes())
    content[100] ^= 1
    shard.write_bytes(content)
    bad = run("cache", "verify", tmp_path / "b.zarr")
    assert (bad.code, "is not whole" in bad.out) == (1, True)
    assert json.loads(run("cache", "verify", tmp_path / "b.zarr", "--json").out)[0]["kind"] == "checksum"
    assert run("fit-heads", tmp_path / "b.zarr", "--out", tmp_path / "run").code == 2


def test_subset_and_import(run: Run, cache: Path, tmp_path: Path) -> None:
    done = run("cache", "subset", cache, "--out", tmp_path / "one.zarr", "--where", "site=site 1")
    assert (done.code, "30 images of 10 cases" in done.out) == (0, True)
    assert run("cache", "subset", cache, "--out", tmp_path / "two.zarr", "--where", "site").code == 2
    assert run("cache", "subset", cache, "--out", tmp_path / "two.zarr", "--where", "nowhere=1").code == 2
    manifest, features = a_cohort(cases=20, positives=5)
    manifest.write_csv(tmp_path / "manifest.csv")
    np.savez(tmp_path / "features.npz", features=features)
    words = ["cache", "import", tmp_path / "features.npz", "--manifest", tmp_path / "manifest.csv"]
    assert run(*words, "--out", tmp_path / "imported.zarr").code == 0
    assert run("cache", "verify", tmp_path / "imported.zarr").code == 0
    np.savez(tmp_path / "features.npz", features=features[:-1])
    assert run(*words, "--out", tmp_path / "fewer.zarr").code == 2
    assert not (tmp_path / "fewer.zarr").exists()


@pytest.mark.parametrize("command", ["info", "verify", "convert", "subset", "import"])
def test_every_cache_command_has_an_example(run: Run, command: str) -> None:
    shown = run("cache", command, "--help")
    assert shown.code == 0
    assert f"trust-cache cache {command}" in shown.out
