"""A killed writer loses the shards under way and nothing else; a second writer learns of the first."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.cache.material import FINGERPRINT, a_manifest, some_features, write_cache
from trust_cache.base import files
from trust_cache.base.errors import InputError, StoppedError
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.cache_writer import create_cache, resume_cache
from trust_cache.cache.feature_rows import load_rows
from trust_cache.cache.verify_cache import verify_cache

IMAGES, VIEWS, DIM, SHARD = 1600, 3, 512, 8
WRITE = """
import sys
from tests.cache.material import FINGERPRINT, a_manifest, some_features
from tests.cache.test_survival import DIM, IMAGES, SHARD, VIEWS
from trust_cache.cache.cache_writer import create_cache
features = some_features(IMAGES, VIEWS, DIM)
with create_cache(sys.argv[1], a_manifest(IMAGES), VIEWS, DIM, FINGERPRINT, SHARD) as writer:
    print("writing", flush=True)
    for shard in range(writer.layout.shards):
        writer.write_shard(shard, features[slice(*writer.layout.bounds(shard))])
        if shard == 5:
            print("under way", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.013, 0.05])
def test_a_killed_writer_leaves_whole_shards(out: Path, delay: float) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITE, str(out)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        assert writer.stdout.readline() == b"under way\n"
        with pytest.raises(InputError, match=f"is being written by process {writer.pid}"):
            resume_cache(out)
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        assert writer.wait() == -signal.SIGKILL
    features = some_features(IMAGES, VIEWS, DIM)
    cache = open_cache(out)
    assert 6 * SHARD <= cache.done.sum() < IMAGES
    np.testing.assert_array_equal(cache.features[cache.done], features[cache.done])
    assert {problem.kind for problem in verify_cache(out)} == {"unfinished"}
    with resume_cache(out, a_manifest(IMAGES), FINGERPRINT) as resumed:
        for shard in resumed.pending:
            resumed.write_shard(shard, features[slice(*resumed.layout.bounds(shard))])
    assert verify_cache(out) == []
    np.testing.assert_array_equal(open_cache(out).features[:], features)
    assert list(out.parent.rglob("*.partial")) == []


def test_a_second_writer_is_told_who_holds_it(out: Path) -> None:
    message = f"is being written by process {os.getpid()}"
    with create_cache(out, a_manifest(4), 3, 8, FINGERPRINT, 4):
        with pytest.raises(InputError, match=message):
            resume_cache(out)
        with pytest.raises(InputError, match="is already there"):
            create_cache(out, a_manifest(4), 3, 8, FINGERPRINT, 4)
        assert not open_cache(out).done.any()  # reading is free all the while
    resume_cache(out).close()


def test_workers_without_the_lock_write_shards_of_their_own(tmp_path: Path) -> None:
    out = tmp_path / "cache.zarr"
    features = some_features(8)
    with (
        create_cache(out, a_manifest(8), 3, 8, FINGERPRINT, 4),
        resume_cache(out, locked=False) as one,
        resume_cache(out, locked=False) as other,
    ):
        one.write_shard(0, features[:4])
        other.write_shard(1, features[4:])
    np.testing.assert_array_equal(open_cache(out).features[:], features)
    assert verify_cache(out) == []


def test_a_full_disk_stops_and_leaves_nothing_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = some_features(8)
    out = tmp_path / "cache.zarr"
    write_cache(out, features, shards=[0])

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with resume_cache(out) as writer:
        with monkeypatch.context() as patched:
            patched.setattr(files.os, "fsync", full)
            with pytest.raises(StoppedError, match="no space left on the disk"):
                writer.write_shard(1, features[4:])
        assert open_cache(out).done.tolist() == [True] * 4 + [False] * 4
        assert list(out.rglob("*.partial")) == []
        writer.write_shard(1, features[4:])
    load_rows(open_cache(out))


LIMITED = """
import resource, sys
from tests.cache.material import some_features, write_cache
from trust_cache.base.errors import StoppedError
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    write_cache(sys.argv[1], some_features(16, 3, 16_384), shard_images=8)
except StoppedError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of file sizes there")
def test_a_refused_write_stops_in_words(out: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(out)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "no space left on the disk" in done.stdout
    # HDF5 takes its room when made, so there is no such file; Zarr meets the limit at its first shard.
    assert out.exists() == (out.suffix == ".zarr")
    assert [path.name for path in out.parent.iterdir()] == [out.name] * out.exists()
    if out.exists():
        assert not open_cache(out).done.any()


def test_what_an_earlier_kill_left_is_removed_on_resuming(tmp_path: Path) -> None:
    out = tmp_path / "cache.zarr"
    write_cache(out, some_features(8), shards=[0])
    (out / "features" / "c.1.0.0.0123.partial").write_bytes(b"half")
    np.testing.assert_array_equal(open_cache(out).done, [True] * 4 + [False] * 4)
    resume_cache(out).close()
    assert list(out.rglob("*.partial")) == []


def test_a_worker_leaves_alone_what_another_is_writing(tmp_path: Path) -> None:
    out, features = tmp_path / "cache.zarr", some_features(12)
    write_cache(out, features, shards=[0])
    under_way = out / "features" / "c.2.0.0.0123.partial"
    with resume_cache(out) as holder:
        under_way.write_bytes(b"half")
        with resume_cache(out, locked=False, shards=[1]) as worker:
            worker.write_shard(1, features[4:8])
            assert (worker.is_done(1), worker.is_done(0)) == (True, False)  # of other shards it knows nothing
        assert under_way.exists()
        holder.write_shard(2, features[8:])
    assert not under_way.exists()  # nobody is left who could be writing it
    np.testing.assert_array_equal(open_cache(out).features[:], features)
