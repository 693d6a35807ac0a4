"""Preprocessing on a cluster and into a bucket: the same bytes as at home, whatever pauses or refuses."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.clusters import cluster_in, wait_until
from tests.stores import BUCKET, S3Server, s3_server
from trust_cache.base import places
from trust_cache.images.picture_folder import RECORD
from trust_cache.images.preprocess import preprocess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def at_home(manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("home") / "png"
    preprocess(manifest, out, workers=1)
    return contents(str(out))


def contents(folder: str) -> dict[str, bytes]:
    """All files but the record, whose counts of decoders come in the order of the work."""
    names = places.list_names(folder) - {RECORD}
    return {name: places.read_bytes(places.join(folder, name)) for name in names}


def test_on_a_cluster(manifest: Path, at_home: dict[str, bytes], run: Run, tmp_path: Path) -> None:
    with cluster_in(tmp_path, workers=2) as cluster:
        done = run("preprocess", manifest, "--out", tmp_path / "png", "--scheduler", cluster.address)
    assert done.code == 1, done.err  # some are broken
    assert contents(str(tmp_path / "png")) == at_home


def test_into_a_bucket_and_from_it(manifest: Path, at_home: dict[str, bytes], server: S3Server) -> None:  # noqa: ARG001
    for path in manifest.parent.rglob("*"):
        if path.is_file():
            name = path.relative_to(manifest.parent).as_posix()
            places.write_bytes(f"s3://{BUCKET}/cohort/{name}", path.read_bytes())
    done = preprocess(f"s3://{BUCKET}/cohort/manifest.csv", f"s3://{BUCKET}/png", workers=1)
    assert contents(f"s3://{BUCKET}/png") == at_home
    again = preprocess(f"s3://{BUCKET}/cohort/manifest.csv", f"s3://{BUCKET}/png", workers=1)
    assert again.reused == done.images - len(done.failures)


def a_picture_is_there() -> bool:
    return any(name.endswith(".png") for name in places.list_names(f"s3://{BUCKET}/png"))


def test_a_pause_of_ten_seconds_costs_nothing(
    manifest: Path, at_home: dict[str, bytes], server: S3Server
) -> None:
    words = ["preprocess", manifest, "--out", f"s3://{BUCKET}/png", "--workers", "1"]
    work = subprocess.Popen([sys.executable, "-m", "trust_cache_cli", *map(str, words)])
    try:
        wait_until(lambda: a_picture_is_there() or work.poll() is not None, "no picture came")
        server.pause()
        time.sleep(10)
        server.go_on()
        assert work.wait(300) == 1  # some are broken
    finally:
        server.go_on()
        work.kill()
    assert contents(f"s3://{BUCKET}/png") == at_home


def test_refused_credentials_are_one_sentence(
    manifest: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(tmp_path, INITIAL_NO_AUTH_ACTION_COUNT="1") as server:  # a real 403 from the second on
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        done = run("preprocess", manifest, "--out", f"s3://{BUCKET}/png")
    assert done.code == 2
    assert "refuses access" in done.err
    assert len(done.err.strip().splitlines()) == 1
