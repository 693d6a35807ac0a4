"""Extracting shards: the features of a plain loop, whatever batch, threads, failures and memory do."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from tests.cache.extract.material import (
    DIM,
    PLAN,
    FunctionEncoder,
    Picker,
    failed_in,
    picked,
    shards_of,
    write_pngs,
)
from tests.cache.material import FINGERPRINT
from trust_cache.base.errors import InputError, StoppedError
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.cache_writer import CacheWriter, create_cache, resume_cache
from trust_cache.cache.extract.picture_source import ImageFile, PngSource
from trust_cache.cache.extract.shard_work import ShardFiles, ShardReport, extract_shards
from trust_cache.cache.extract.view_features import Runner, encode_clean_view, is_out_of_memory
from trust_cache.cache.verify_cache import verify_cache
from trust_cache.cache.views import ViewPlan
from trust_cache.images.image_failures import ImageError
from trust_cache.images.png_files import encode_png, read_grey_png

IMAGES = 10
FILES = 4  # of a shard


@pytest.fixture
def pngs(tmp_path: Path) -> Path:
    write_pngs(tmp_path / "png", IMAGES)
    return tmp_path / "png"


class Run:
    """One call on a new cache, with what it reported."""

    def __init__(self, pngs: Path, encoder: Callable[[Tensor], Tensor] | None = None) -> None:
        self.encoder = encoder or Picker()
        self.shards = shards_of(pngs, IMAGES)
        self.files = [file for shard in self.shards for file in shard.files]
        self.out = pngs.parent / "cache.zarr"
        self.reports: list[ShardReport] = []
        self.halvings: list[tuple[int, int, int]] = []

    def __call__(self, batch: int = 5, workers: int = 2, plan: ViewPlan = PLAN) -> "Run":
        with self.open(plan) as writer:
            extract_shards(
                self.shards,
                plan,
                Runner(FunctionEncoder(self.encoder), "cpu"),
                writer,
                batch=batch,
                source=PngSource(workers),
                on_shard=self.reports.append,
                on_halved=lambda *halving: self.halvings.append(halving),
            )
        return self

    def open(self, plan: ViewPlan) -> CacheWriter:
        if self.out.exists():
            return resume_cache(self.out)
        manifest = pl.read_csv(self.files[0].location.replace("0.png", "manifest.csv"), infer_schema=False)
        return create_cache(self.out, manifest, plan.stored, DIM, FINGERPRINT, FILES)

    @property
    def features(self) -> np.ndarray:
        return np.asarray(open_cache(self.out).features[:])


@pytest.mark.parametrize(("batch", "workers"), [(1, 1), (5, 2), (3, 3), (12, 1), (1000, 2)])
def test_the_features_of_a_plain_loop(pngs: Path, batch: int, workers: int) -> None:
    run = Run(pngs)(batch, workers)
    np.testing.assert_array_equal(run.features, picked(run.files))
    assert [report.shard for report in run.reports] == [0, 1, 2]
    assert sum(report.images for report in run.reports) == IMAGES
    assert not any(report.failures for report in run.reports)
    assert verify_cache(run.out) == []
    assert all(report.seconds.decode > 0 and report.seconds.write > 0 for report in run.reports)


def test_no_views_but_the_clean_one(pngs: Path) -> None:
    plan = ViewPlan(augmented=0, seed=0)
    run = Run(pngs)(plan=plan)
    np.testing.assert_array_equal(run.features, picked(run.files, plan))


def test_one_clean_view_without_a_shard(pngs: Path) -> None:
    run = Run(pngs)()
    runner = Runner(FunctionEncoder(Picker()), "cpu")
    for n, file in enumerate(run.files):
        features = encode_clean_view(runner, torch.from_numpy(read_grey_png(file.location)))
        np.testing.assert_array_equal(features, run.features[n, 0])
    with pytest.raises(ImageError, match="constant at the encoder's size"):
        encode_clean_view(runner, torch.full((40, 30), 9, dtype=torch.uint16))
    broken = Runner(FunctionEncoder(lambda views: Picker()(views) * 1e9), "cpu")
    with pytest.raises(ImageError, match="beyond float16's 65,504"):
        encode_clean_view(broken, torch.from_numpy(read_grey_png(run.files[0].location)))


def test_batches_never_leave_a_shard(pngs: Path) -> None:
    run = Run(pngs)(batch=5)
    assert isinstance(run.encoder, Picker)
    assert run.encoder.batches == [5, 5, 2, 5, 5, 2, 5, 1]  # shards of 12, 12 and 6 views


def test_an_image_is_the_same_in_any_order(pngs: Path) -> None:
    run = Run(pngs)
    order = np.random.default_rng(0).permutation(IMAGES)
    files = [run.files[n] for n in order]
    run.shards = [
        ShardFiles(shard, tuple(files[first : first + FILES])) for shard, first in enumerate((0, 4, 8))
    ]
    np.testing.assert_array_equal(run().features, picked(run.files)[order])


def test_failures_leave_their_neighbours_alone(pngs: Path) -> None:
    (pngs / "1.png").write_bytes(b"not a picture")
    (pngs / "5.png").unlink()
    for n in (8, 9):  # all of the last shard
        (pngs / f"{n}.png").write_bytes((pngs / "0.png").read_bytes()[:-100])
    run = Run(pngs)()
    good = [0, 2, 3, 4, 6, 7]
    np.testing.assert_array_equal(run.features[good], picked([run.files[n] for n in good]))
    assert np.isnan(run.features[[1, 5, 8, 9]]).all()
    failures = {f.image_id: f"{f.stage}: {f.reason}" for report in run.reports for f in report.failures}
    assert failures == {
        "001": "read: not a PNG file",
        "005": "read: no such file",
        "008": "read: truncated: the file ends within a chunk",
        "009": "read: truncated: the file ends within a chunk",
    }
    assert isinstance(run.encoder, Picker)
    assert run.encoder.batches == [5, 5, 2, 5, 5, 2]  # as without failures; nothing for the last shard
    assert failed_in(run.out) == ["001", "005", "008", "009"]


def test_a_failed_image_is_tried_again_and_its_shard_made_anew(pngs: Path) -> None:
    whole = (pngs / "1.png").read_bytes()
    for n in (1, 6):
        (pngs / f"{n}.png").write_bytes(b"not a picture")
    Run(pngs)()
    (pngs / "1.png").write_bytes(whole)
    again = Run(pngs)
    shard_1 = again.out / "features" / "c.1.0.0"
    before = shard_1.stat().st_mtime_ns
    again()
    np.testing.assert_array_equal(again.features[:4], picked(again.files[:4]))
    assert {report.shard: report.written for report in again.reports} == {2: False, 1: False, 0: True}
    assert shard_1.stat().st_mtime_ns == before  # nothing new to write there
    assert failed_in(again.out) == ["006"]
    assert [f.image_id for report in again.reports for f in report.failures] == ["006"]


def test_what_is_done_is_left_alone(pngs: Path) -> None:
    Run(pngs)()
    again = Run(pngs)()
    assert isinstance(again.encoder, Picker)
    assert {report.shard: report.written for report in again.reports} == {0: False, 1: False, 2: False}
    assert again.encoder.batches == []


def test_an_image_that_becomes_constant_by_resizing(pngs: Path) -> None:
    """One bright pixel between the places that are sampled: the file varies, the encoder's input does not."""
    picture = np.full((240, 160), 9, dtype=np.uint16)
    picture[0, 0] = 60_000
    (pngs / "2.png").write_bytes(encode_png(picture))
    run = Run(pngs)()
    (failure,) = [f for report in run.reports for f in report.failures]
    assert (failure.image_id, failure.stage) == ("002", "intensity")
    assert "constant at the encoder's size" in failure.reason
    assert np.isnan(run.features[2]).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 70_000.0])
def test_features_that_are_no_numbers_are_a_failure(pngs: Path, value: float) -> None:
    pick = Picker()
    seen = []

    def encoder(views: Tensor) -> Tensor:
        features = pick(views).clone()
        if not seen:
            features[4, 0] = value  # the second view of the second image
        seen.append(1)
        return features

    run = Run(pngs, encoder)()
    (failure,) = [f for report in run.reports for f in report.failures]
    assert (failure.image_id, failure.stage) == ("001", "encode")
    assert failed_in(run.out) == ["001"]


def limited(most: int) -> Callable[[Tensor], Tensor]:
    pick = Picker()

    def encoder(views: Tensor) -> Tensor:
        if views.shape[0] > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return pick(views)

    return encoder


def test_the_batch_is_halved_until_it_fits(pngs: Path) -> None:
    run = Run(pngs, limited(2))(batch=11)
    assert run.halvings == [(0, 11, 5), (0, 5, 2)]
    np.testing.assert_array_equal(run.features, picked(run.files))


def test_memory_that_ends_in_the_middle_begins_that_shard_again(pngs: Path) -> None:
    pick, calls = Picker(), []

    def encoder(views: Tensor) -> Tensor:
        calls.append(views.shape[0])
        if len(calls) > 3 and views.shape[0] > 3:  # in the second shard, after its first batch
            raise torch.OutOfMemoryError("CUDA out of memory")
        return pick(views)

    run = Run(pngs, encoder)(batch=6)
    assert calls == [6, 6, 6, 6, 3, 3, 3, 3, 3, 3]
    assert run.halvings == [(1, 6, 3)]
    np.testing.assert_array_equal(run.features, picked(run.files))


def test_no_memory_for_a_single_view_stops(pngs: Path) -> None:
    run = Run(pngs, limited(0))
    with pytest.raises(StoppedError, match="no memory for a single view of 24x16"):
        run(batch=4)
    assert run.halvings == [(0, 4, 2), (0, 2, 1)]


def test_other_errors_are_not_taken_for_lack_of_memory(pngs: Path) -> None:
    def encoder(_: Tensor) -> Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        Run(pngs, encoder)()
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    with pytest.raises(InputError, match=f"expected {DIM} features"):
        Run(pngs, lambda views: views.flatten(1)[:, :5])()


def test_what_was_handed_over_is_written_when_the_next_shard_fails(pngs: Path) -> None:
    pick, calls = Picker(), []

    def encoder(views: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 6:
            raise KeyboardInterrupt
        return pick(views)

    run = Run(pngs, encoder)
    with pytest.raises(KeyboardInterrupt):
        run(batch=5)
    assert open_cache(run.out).shards_done.tolist() == [True, True, False]
    assert [report.shard for report in run.reports] == [0, 1]
    np.testing.assert_array_equal(run.features[:8], picked(run.files[:8]))


def test_images_behind_urls(pngs: Path) -> None:
    run = Run(pngs)
    files = [ImageFile(file.image_id, Path(file.location).as_uri()) for file in run.files]
    (pngs / "3.png").unlink()
    run.shards = [ShardFiles(n, tuple(files[4 * n : 4 * n + 4])) for n in range(3)]
    run()
    (failure,) = [f for report in run.reports for f in report.failures]
    assert (failure.image_id, failure.reason) == ("003", "no such file")
    np.testing.assert_array_equal(run.features[4:], picked(run.files[4:]))
