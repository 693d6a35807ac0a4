"""extract on the command line: what it prints, what it leaves, how it ends."""

import json
from pathlib import Path

import pytest

from tests.cache.extract.material import write_pngs
from tests.cli.conftest import Run
from trust_cache.cache.extract.progress_meter import Meter
from trust_cache.cache.extract.shard_work import Seconds, ShardReport
from trust_cache.cache.extract.view_features import torch_threads
from trust_cache_cli.extract_commands import duration

IMAGES = 30  # of 15 cases, 5 of them positive: as few as five folds take
WORDS = (
    "--weights", "random", "--encoder", "test_resnet", "--image-size", "32x24", "--views", 1,
    "--device", "cpu", "--shard-images", 8, "--workers", 1,
)  # fmt: skip


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    return write_pngs(tmp_path / "png", IMAGES)


def test_failures_and_resuming(run: Run, manifest: Path, tmp_path: Path) -> None:
    out, victim = tmp_path / "cache.zarr", manifest.parent / "5.png"
    whole = victim.read_bytes()
    victim.write_bytes(whole[: len(whole) // 2])
    with torch_threads(1):
        first = run("extract", manifest, "--out", out, *WORDS, "--log", tmp_path / "log")
        assert first.code == 1
        assert (
            f"29 of {IMAGES} images (0 of them before), 1 clean + 1 augmented view, 96 features" in first.out
        )
        assert "1 of 30 images failed: 1 of 15 cases is incomplete, 0 of them positive" in first.err
        assert str(out / "failures.csv") in first.err
        assert "random weights" in first.err
        assert "device busy" in first.out
        assert "30 of 30 images" in (tmp_path / "log").read_text()
        assert "failed: 1 image (005)" in run("cache", "info", out).out
        assert json.loads(run("cache", "info", out, "--json").out)["failed"] == ["005"]
        victim.write_bytes(whole)
        second = run("extract", manifest, "--out", out, *WORDS)
    assert (second.code, f"30 of {IMAGES} images (29 of them before)" in second.out) == (0, True)
    assert "failed: no images" in run("cache", "info", out).out
    assert (out / "failures.csv").read_text() == "image_id,stage,reason\n"
    assert run("cache", "verify", out).code == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--image-size", "big"], "image-size: expected HEIGHTxWIDTH such as 1520x912, found 'big'"),
        (["--device", "gpu"], "device: expected auto, cpu, cuda or cuda:N"),
        (["--encoder", "no_such_model"], "no_such_model"),
        (["--weights", "none.safetensors", "--encoder", "mammo-clip-b5"], "none.safetensors: "),
        (["--batch", "0"], "batch: expected 1 or more"),
        (["--out", "nowhere/cache.zarr"], "there is no folder"),
    ],
)
def test_wrong_use(run: Run, manifest: Path, tmp_path: Path, words: list[str], reason: str) -> None:
    done = run("extract", manifest, "--out", tmp_path / "cache.zarr", *WORDS, *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert reason in done.err
    assert {path.name for path in tmp_path.iterdir()} == {"png"}


def test_missing_weights_say_where_users_get_them(run: Run, manifest: Path, tmp_path: Path) -> None:
    done = run(
        "extract", manifest, "--out", tmp_path / "cache.zarr", "--weights", tmp_path / "b5.safetensors"
    )
    assert done.code == 2
    assert "trust-cache weights" in done.err


def test_examples(run: Run) -> None:
    assert (
        "trust-cache extract png/manifest.csv --weights encoder.safetensors" in run("extract", "--help").out
    )


def test_the_meter_against_a_clock_of_ours() -> None:
    now = [0.0]
    meter = Meter(images=100, images_before=20, processes=2, clock=lambda: now[0])
    assert meter.seconds_left is None
    now[0] = 10.0
    meter.add(ShardReport(0, 40, (), Seconds(decode=4.0, encode=15.0, write=1.0)))
    assert (meter.done, meter.rate, meter.busy) == (60, 4.0, 0.75)
    assert meter.seconds_left == 10.0
    assert meter.words() == "4.0 images/s, device busy 75% (decode 20%, encode 75%, write 5%)"
    now[0] = 100.0
    assert meter.words().startswith("24.0 images/min")
    assert [duration(x) for x in (None, 5, 3_725)] == ["?", "0:00:05", "1:02:05"]
