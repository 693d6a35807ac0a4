"""The cache commands: what they print, what they write, how they end."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
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
    assert (good.code, "is intact" in good.out) == (0, True)
    shard = max((p for p in (tmp_path / "b.zarr").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(shard.read_bytes())
    content[100] ^= 1
    shard.write_bytes(content)
    bad = run("cache", "verify", tmp_path / "b.zarr")
    assert (bad.code, "is damaged" in bad.out) == (1, True)
    assert json.loads(run("cache", "verify", tmp_path / "b.zarr", "--json").out)[0]["kind"] == "checksum"
    assert run("fit-heads", tmp_path / "b.zarr", "--out", tmp_path / "run").code == 2


def test_a_missing_and_an_unfinished_cache_are_not_damaged(run: Run, cache: Path, tmp_path: Path) -> None:
    missing = run("cache", "verify", tmp_path / "none.zarr")
    assert (missing.code, "there is no such cache" in missing.err) == (2, True)
    begun = shutil.copytree(cache, tmp_path / "begun.zarr")
    (begun / "marks" / "c.0.0").unlink()
    found = run("cache", "verify", begun)
    assert (found.code, f"{begun} is unfinished:" in found.out, "damaged" in found.out) == (1, True, False)


def flip(cache: Path) -> None:
    shard = cache / "features" / "c.0.0.0"
    content = bytearray(shard.read_bytes())
    content[3] ^= 0x10
    shard.write_bytes(content)


def truncate(cache: Path) -> None:
    shard = cache / "features" / "c.1.0.0"
    shard.write_bytes(shard.read_bytes()[:-100])


def delete(cache: Path) -> None:
    (cache / "features" / "c.1.0.0").unlink()


def edit_manifest(cache: Path) -> None:
    labels = next((cache / "manifest" / "label").rglob("c*/0"))
    content = bytearray(labels.read_bytes())
    content[0] ^= 1
    labels.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "kind"),
    [(flip, "checksum"), (truncate, "truncated"), (delete, "deleted"), (edit_manifest, "manifest")],
)
def test_damage_is_named_by_verify_and_refused_by_fit_heads(
    run: Run, cache: Path, tmp_path: Path, damage: Callable[[Path], None], kind: str
) -> None:
    damaged = tmp_path / "damaged.zarr"
    shutil.copytree(cache, damaged)
    damage(damaged)
    found = run("cache", "verify", damaged, "--json")
    assert found.code == 1
    assert [problem["kind"] for problem in json.loads(found.out)] == [kind]
    refused = run("fit-heads", damaged, "--out", tmp_path / "run", "--epochs", 1)
    assert refused.code == 2
    assert str(damaged) in refused.err
    assert not (tmp_path / "run").exists()


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
    np.savez(tmp_path / "other.npz", X=features)
    other = ["cache", "import", tmp_path / "other.npz", "--manifest", tmp_path / "manifest.csv"]
    refused = run(*other, "--out", tmp_path / "x.zarr")
    assert (refused.code, "expected an array 'features', found X; name one with --array" in refused.err) == (
        2,
        True,
    )
    assert run(*other, "--out", tmp_path / "x.zarr", "--array", "X").code == 0
    np.savez(tmp_path / "features.npz", features=features[:-1])
    assert run(*words, "--out", tmp_path / "fewer.zarr").code == 2
    assert not (tmp_path / "fewer.zarr").exists()


def test_export_and_import_of_tables(
    run: Run, cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "features.parquet"
    done = run("cache", "export", cache, "--out", out)
    assert (done.code, "60 images, 3 views, 48 features" in done.out) == (0, True), done.err
    again = run("cache", "import", out, "--out", tmp_path / "again.zarr", "--encoder", "mine")
    assert (again.code, "60 images of 20 cases" in again.out) == (0, True), again.err
    arrays = run("cache", "export", cache, "--out", tmp_path / "features.npy", "--views", 0)
    assert (arrays.code, "features.manifest.csv" in arrays.out) == (0, True)
    fewer = tmp_path / "fewer.csv"
    pl.read_csv(tmp_path / "features.manifest.csv", infer_schema=False).head(12).write_csv(fewer)
    part = run("cache", "import", out, "--manifest", fewer, "--out", tmp_path / "part.zarr")
    assert (part.code, "144 rows of images that are not in" in caplog.text) == (0, True)
    for words, message in (
        (["export", cache, "--out", tmp_path / "x.csv"], "expected a file name that ends in .parquet"),
        (["export", cache, "--out", tmp_path / "x.npy", "--views", 9], "at least 9 augmented views, found 2"),
        (["import", out, "--array", "E", "--out", tmp_path / "x.zarr"], "expected a column of lists 'E'"),
        (["import", tmp_path / "features.npy", "--out", tmp_path / "x.zarr"], "--manifest"),
    ):
        refused = run("cache", *words)
        assert (refused.code, message in refused.err) == (2, True), refused.err


@pytest.mark.parametrize("command", ["info", "verify", "convert", "subset", "import", "export"])
def test_every_cache_command_has_an_example(run: Run, command: str) -> None:
    shown = run("cache", command, "--help")
    assert shown.code == 0
    assert f"trust-cache cache {command}" in shown.out
