"""Extraction on a cluster and into a bucket: the same bytes as at home, whatever dies, pauses or refuses."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tests.cache.extract.material import with_settings, write_pngs
from tests.cli.conftest import Run
from tests.clusters import cluster_in, wait_until
from tests.stores import BUCKET, S3Server, s3_server
from trust_cache.base import places
from trust_cache.base.executor import Cluster
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.extract.extract import extract
from trust_cache.cache.extract.extraction_record import EXTRACTION, ExtractionRecord, read_record
from trust_cache.cache.extract.shard_work import ShardReport
from trust_cache.cache.extract.view_features import torch_threads

pytestmark = pytest.mark.slow

IMAGES, FEW = 300, 100
SETTINGS = with_settings(shard_images=4, workers=1)
WORDS = (
    "--weights", "random", "--encoder", "test_resnet", "--image-size", "32x24", "--views", "2",
    "--device", "cpu", "--shard-images", "4", "--batch", "5", "--workers", "1",
)  # fmt: skip
SHARDS = IMAGES // 4
KILL_EVERY = 15  # shards
AWAY = f"s3://{BUCKET}/png/manifest.csv"
CACHE = f"s3://{BUCKET}/cache.zarr"


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """As the processes have it that the tests start: their number changes the last bits."""
    with torch_threads(1):
        yield


@pytest.fixture(scope="module")
def pngs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pngs(tmp_path_factory.mktemp("png"), FEW)


@pytest.fixture(scope="module")
def at_home(pngs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extracted(pngs, tmp_path_factory.mktemp("home") / "cache.zarr", FEW)


def extracted(manifest: Path, out: Path, images: int) -> Path:
    assert extract(manifest, out, SETTINGS).images_done == images
    return out


@pytest.fixture
def pngs_away(pngs: Path, server: S3Server) -> str:  # noqa: ARG001 - it must be there
    for path in pngs.parent.iterdir():
        places.write_bytes(f"s3://{BUCKET}/png/{path.name}", path.read_bytes())
    return AWAY


def contents(folder: Path) -> dict[str, object]:
    """The files of a cache; its record without the place of the manifest, which has many names."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return {
        name: placeless(str(folder)) if name == EXTRACTION else (folder / name).read_bytes() for name in names
    }


def placeless(cache: str) -> ExtractionRecord:
    record = read_record(cache)
    assert record is not None
    assert record.manifest
    return replace(record, manifest="")


def require_same(found: str, at_home: Path) -> None:
    """The features, the marks with their checksums, and the files beside them."""
    here, there = open_cache(at_home), open_cache(found)
    assert np.array_equal(there.marks, here.marks)
    assert there.features[:].tobytes() == here.features[:].tobytes()
    assert places.read_bytes(places.join(found, "failures.csv")) == (at_home / "failures.csv").read_bytes()
    assert placeless(found) == placeless(str(at_home))


def start(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trust_cache_cli", "extract", *map(str, words), *WORDS]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def test_workers_die_one_after_the_other(tmp_path: Path) -> None:
    pngs = write_pngs(tmp_path / "png", IMAGES)
    at_home = extracted(pngs, tmp_path / "home.zarr", IMAGES)
    out, seen, killed = tmp_path / "cache.zarr", Counter[int](), []
    with cluster_in(tmp_path, workers=2) as cluster:

        def kill_now_and_then(report: ShardReport) -> None:
            seen[report.shard] += 1
            if len(seen) % KILL_EVERY == 0 and len(seen) < SHARDS:
                victim = cluster.workers[len(killed)]
                victim.send_signal(signal.SIGKILL)
                killed.append(victim.wait())
                cluster.add_worker()

        done = extract(pngs, out, SETTINGS, cluster=Cluster(cluster.address), on_shard=kill_now_and_then)
    assert killed == [-signal.SIGKILL] * 4
    assert (done.images_done, done.failures) == (IMAGES, ())
    assert seen == Counter(range(SHARDS))  # each of them, and none twice
    assert contents(out) == contents(at_home)


def test_a_lost_scheduler_ends_in_a_sentence_and_the_work_goes_on_elsewhere(
    pngs: Path, at_home: Path, run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "cache.zarr"
    with cluster_in(tmp_path, workers=1) as cluster:
        work = start(pngs, "--out", out, "--scheduler", cluster.address)
        try:
            wait_until(
                lambda: len(list(out.glob("marks/c.*"))) > 2 or work.poll() is not None, "no shard came"
            )
            cluster.workers[0].send_signal(signal.SIGSTOP)  # so that it cannot finish meanwhile
            cluster.scheduler.kill()
            _, words = work.communicate(timeout=300)
        finally:
            work.kill()
            work.wait()
    assert work.returncode == 3, words
    assert words.count("scheduler is gone") == 1
    assert "Traceback" not in words
    before = open_cache(out).done.sum()
    assert 0 < before < FEW
    again = run("extract", pngs, "--out", out, *WORDS)
    assert (again.code, f"({before} of them before)" in again.out) == (0, True), again.err
    assert contents(out) == contents(at_home)


def test_workers_with_the_resource_do_it(pngs: Path, at_home: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "cache.zarr"
    with cluster_in(tmp_path, workers=0) as cluster:
        cluster.add_worker("--name", "plain")
        cluster.add_worker("--name", "special", "--resources", "FAST=1")
        words = ("--scheduler", cluster.address, "--resources", "FAST=1")
        done = run("extract", os.path.relpath(pngs), "--out", os.path.relpath(out), *WORDS, *words)
        plain = (tmp_path / "worker-0.log").read_text()
    assert done.code == 0, done.err
    assert "extract_item" not in plain
    assert contents(out) == contents(at_home)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--scheduler", "tcp://127.0.0.1:1", "--processes", "2"), "processes: expected none with a cluster"),
        (("--resources", "GPU=1"), "--resources: expected --scheduler with it"),
        (("--scheduler", "tcp://127.0.0.1:1", "--out", "cache.h5"), "expected a .zarr cache"),
    ],
)
def test_what_a_cluster_cannot_do_is_refused(
    pngs: Path,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("extract", pngs, "--out", "cache.zarr", *WORDS, *words)
    assert (done.code, sentence in done.err) == (2, True), done.err
    assert list(tmp_path.iterdir()) == []


def shards_away() -> int:
    return sum(name.startswith("c.") for name in places.list_names(f"{CACHE}/marks"))


def test_a_pause_of_ten_seconds_costs_nothing(
    pngs_away: str, at_home: Path, server: S3Server, run: Run
) -> None:
    work = start(pngs_away, "--out", CACHE)
    try:
        wait_until(lambda: shards_away() > 2 or work.poll() is not None, "no shard came")
        server.pause()
        time.sleep(10)
        waited = work.poll() is None
        server.go_on()
        _, words = work.communicate(timeout=300)
    finally:
        server.go_on()
        work.kill()
        work.wait()
    assert (work.returncode, waited) == (0, True), words
    require_same(CACHE, at_home)
    assert run("cache", "verify", CACHE).code == 0
    information = run("cache", "info", CACHE)
    assert (information.code, "failed: no images" in information.out) == (0, True)


def test_a_server_that_is_gone_is_one_sentence(pngs_away: str, server: S3Server, run: Run) -> None:
    work = start(pngs_away, "--out", CACHE)
    try:
        wait_until(lambda: shards_away() > 2 or work.poll() is not None, "no shard came")
        server.process.kill()
        _, words = work.communicate(timeout=300)
    finally:
        work.kill()
        work.wait()
    assert (work.returncode, words.count("the store does not answer")) == (3, 1), words
    assert "Traceback" not in words
    for command in (
        ("cache", "info", CACHE),
        ("cache", "verify", CACHE),
        ("fit-heads", CACHE, "--out", "run"),
    ):
        done = run(*command)
        assert (done.code, "the store does not answer" in done.err) == (3, True), (command, done.err)
        assert len(done.err.strip().splitlines()) == 1


def test_a_cluster_works_from_a_bucket_into_it(
    pngs_away: str, at_home: Path, server: S3Server, run: Run, tmp_path: Path
) -> None:
    with cluster_in(tmp_path, workers=2, **server.environment) as cluster:
        done = run("extract", pngs_away, "--out", CACHE, *WORDS, "--scheduler", cluster.address)
    assert done.code == 0, done.err
    require_same(CACHE, at_home)
    heads = ("--epochs", 1, "--out")
    assert run("fit-heads", CACHE, *heads, tmp_path / "away").code == 0
    assert run("fit-heads", at_home, *heads, tmp_path / "here").code == 0
    assert (tmp_path / "away/scores.csv").read_bytes() == (tmp_path / "here/scores.csv").read_bytes()


def test_refused_credentials_are_one_sentence(
    pngs: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(tmp_path, INITIAL_NO_AUTH_ACTION_COUNT="1") as server:  # a real 403 from the second on
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        commands = [
            ("extract", pngs, "--out", CACHE, *WORDS),
            ("extract", AWAY, "--out", tmp_path / "cache.zarr", *WORDS),
            ("cache", "info", CACHE),
            ("cache", "verify", CACHE),
            ("fit-heads", CACHE, "--out", tmp_path / "run"),
        ]
        for command in commands:
            done = run(*command)
            assert (done.code, "refuses access" in done.err) == (2, True), (command, done.err)
            assert len(done.err.strip().splitlines()) == 1
        # What libraries leave open complains when a program ends: one of its own shows that nothing does.
        command = [sys.executable, "-m", "trust_cache_cli", "cache", "info", CACHE]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (ended.returncode, len(ended.stderr.strip().splitlines())) == (2, 1), ended.stderr
