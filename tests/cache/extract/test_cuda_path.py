"""The CUDA path's own code with a stand-in for the GPU: order of copies and waits, shapes and types."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.cache.extract.material import write_pngs
from tests.cache.material import FINGERPRINT
from tests.encoders.fake_cuda import DeviceTensor, FakeCuda, OnFakeCuda, WrongOrderError, pinned
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.cache_writer import create_cache
from trust_cache.cache.extract.picture_source import ImageFile, PngSource
from trust_cache.cache.extract.shard_work import ShardFiles, ShardReport, extract_shards
from trust_cache.cache.extract.view_features import Runner, encode_probe
from trust_cache.cache.views import ViewPlan
from trust_cache.encoders.encoder import EncoderIdentity
from trust_cache.encoders.known_encoders import load_encoder
from trust_cache.encoders.torch_runtime import CudaQueue
from trust_cache.manifest.manifest_file import read_manifest

ENCODER, SIZE = "test_resnet", (32, 24)
PLAN = ViewPlan(augmented=2, seed=3)
IMAGES, SHARD, BATCH = 7, 3, 4
CUDA = torch.device("cuda")


class SeenEncoder:
    """An encoder that notes what the CUDA branch gives it."""

    def __init__(self, encoder: torch.nn.Module, identity: EncoderIdentity) -> None:
        self.identity = identity
        self._encoder = encoder
        self.seen: list[tuple[tuple[int, ...], torch.dtype, bool]] = []

    def __call__(self, views: Tensor) -> Tensor:
        last = views.is_contiguous(memory_format=torch.channels_last)
        self.seen.append((tuple(views.shape), views.dtype, last))
        features: Tensor = self._encoder(views)
        return features


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    fake = FakeCuda()
    monkeypatch.setattr(Tensor, "pin_memory", pinned)
    with OnFakeCuda(fake):
        yield fake


def seen_encoder() -> SeenEncoder:
    encoder = load_encoder("random", SIZE, encoder=ENCODER)
    return SeenEncoder(encoder, encoder.identity)


def extracted(manifest: Path, out: Path, runner: Runner) -> tuple[np.ndarray, list[ShardReport]]:
    """Run the real work item; one picture is damaged."""
    rows = read_manifest(manifest)
    files = [ImageFile(image.image_id, image.location or "") for image in rows.images()]
    reports: list[ShardReport] = []
    shards = [ShardFiles(n, tuple(files[n * SHARD : (n + 1) * SHARD])) for n in range(-(-IMAGES // SHARD))]
    dim = runner._encoder.identity.dim
    with create_cache(out, rows.table, PLAN.stored, dim, FINGERPRINT, SHARD) as writer:
        extract_shards(
            shards, PLAN, runner, writer, batch=BATCH, source=PngSource(2), on_shard=reports.append,
            on_halved=lambda *_: pytest.fail("halved"),
        )  # fmt: skip
    return np.asarray(open_cache(out).features[:]), reports


def test_the_whole_work_item_keeps_the_order(gpu: FakeCuda, tmp_path: Path) -> None:
    """Its features are those of the processor, up to the rounding of float16 arithmetic."""
    manifest = write_pngs(tmp_path / "png", IMAGES)
    (tmp_path / "png" / "4.png").write_bytes(b"no picture")
    encoder = seen_encoder()
    found, reports = extracted(manifest, tmp_path / "gpu.zarr", Runner(encoder, "cuda", gpu))
    views = IMAGES * PLAN.stored
    assert {kind[1:] for kind in encoder.seen} == {(torch.float16, True)}
    assert [kind[0][0] for kind in encoder.seen] == [4, 4, 1] * 2 + [3]  # a batch never spans two shards
    assert sum(kind[0][0] for kind in encoder.seen) == views
    assert [failure.image_id for report in reports for failure in report.failures] == ["004"]
    assert (len(gpu.streams), gpu.waits) == (2, 0)
    with torch._C.DisableTorchFunction():
        expected, _ = extracted(manifest, tmp_path / "cpu.zarr", Runner(seen_encoder(), "cpu"))
    present = [n for n in range(IMAGES) if n != 4]
    assert np.isnan(found[4].astype(float)).all()
    apart = np.linalg.norm((found - expected)[present].astype(float)) / np.linalg.norm(
        expected[present].astype(float)
    )
    assert 0 < apart < 5e-3


def test_the_probe_and_the_busy_time(gpu: FakeCuda) -> None:
    runner = Runner(seen_encoder(), "cuda", gpu)
    made = encode_probe(runner, 1)
    assert made is not None
    # fetch waited for an event behind both spans, so that they are over.
    assert runner.queue.take_busy_seconds() > 0
    assert runner.queue.take_busy_seconds() == 0
    with runner.queue.working():
        torch.zeros(1, device=CUDA) + 1
    assert runner.queue.take_busy_seconds() == 0  # nobody knows yet that it is over
    runner.queue.give_back_memory()
    assert gpu.emptied == 1


class WithoutWaiting(CudaQueue):
    """The arithmetic does not wait for the copy."""

    def load(self, pixels: Tensor) -> Tensor:
        with self._parts.on_stream(self._copies):
            here = pixels.to(self._device, non_blocking=True)
        here.record_stream(self._parts.current_stream(self._device))
        return here


class WithoutKeeping(CudaQueue):
    """The allocator is not told that the arithmetic uses the copy."""

    def load(self, pixels: Tensor) -> Tensor:
        with self._parts.on_stream(self._copies):
            here = pixels.to(self._device, non_blocking=True)
        self._parts.current_stream(self._device).wait_stream(self._copies)
        return here


@pytest.mark.parametrize(
    ("queue", "reason"),
    [(WithoutWaiting, "may still write"), (WithoutKeeping, "does not know that this stream uses")],
)
def test_a_wrong_order_is_found(gpu: FakeCuda, queue: type[CudaQueue], reason: str) -> None:
    pixels = pinned(torch.rand(4, 4))
    good = CudaQueue(CUDA, gpu).load(pixels)
    assert isinstance(good + 1, DeviceTensor)
    with pytest.raises(WrongOrderError, match=reason):
        queue(CUDA, gpu).load(pixels) + 1


def test_reading_before_the_event_is_found(gpu: FakeCuda) -> None:
    on_gpu = CudaQueue(CUDA, gpu).load(pinned(torch.ones(3)))
    host = gpu.pinned_like(on_gpu)
    host.copy_(on_gpu, non_blocking=True)
    with pytest.raises(WrongOrderError, match="before its event"):
        host.numpy()
    with pytest.raises(WrongOrderError, match="waits for the whole GPU"):
        bool(on_gpu[0] > 0)
    np.testing.assert_array_equal(CudaQueue(CUDA, gpu).fetch(on_gpu)(), np.ones(3))
    assert gpu.waits == 0
    CudaQueue(CUDA, gpu).load(torch.ones(3))
    assert gpu.waits == 1


def test_shapes_and_types_at_full_size() -> None:
    """B5 at 1520x912 on the meta device: nothing is computed."""
    size = (1520, 912)
    real = load_encoder("random", size)
    identity = real.identity
    encoder = SeenEncoder(real.to("meta").half(), identity)  # autocast runs its convolutions in float16
    fake = FakeCuda("meta")
    with OnFakeCuda(fake):
        runner = Runner(encoder, "cuda", fake)
        made = runner.views(pinned(torch.zeros(2800, 1700, dtype=torch.uint16)), PLAN.parameters("a"))
        assert (tuple(made.views.shape), made.views.dtype) == ((3, 1, *size), torch.float32)
        features = runner.encode(runner.join([made.views, made.views[:2]]))
        assert (tuple(features.shape), features.dtype) == ((5, 2048), torch.float32)
        fetched = runner.queue.fetch(features)()
    assert (fetched.shape, fetched.dtype) == ((5, 2048), np.float32)
    assert encoder.seen == [((5, 3, *size), torch.float16, True)]
