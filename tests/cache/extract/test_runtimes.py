"""Extraction in each runtime: a cache has one, resumes with it, and keeps the features of its probe."""

from pathlib import Path

import numpy as np
import pytest

from tests.cache.extract.material import with_settings, write_pngs
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.cache.extract.extract import extract
from trust_cache.cache.extract.extraction_record import read_record
from trust_cache.cache.extract.shard_work import ShardReport
from trust_cache.cache.extract.view_features import torch_threads
from trust_cache.cache.fingerprint import require_comparable
from trust_cache.encoders import known_runtimes

IMAGES = 6


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pngs(tmp_path_factory.mktemp("pngs") / "png", IMAGES)


@pytest.fixture(scope="module")
def caches(manifest: Path) -> dict[str, Cache]:
    made = {}
    for runtime in ("torch", "openvino", "auto"):
        out = manifest.parent.parent / f"{runtime}.zarr"
        extract(manifest, out, with_settings(runtime=runtime))
        made[runtime] = open_cache(out)
    return made


def test_the_runtimes_agree(caches: dict[str, Cache]) -> None:
    with_torch, with_openvino = caches["torch"], caches["openvino"]
    assert with_torch.fingerprint.runtime.startswith("torch 2")
    assert with_openvino.fingerprint.runtime.startswith("openvino 20")
    np.testing.assert_allclose(with_openvino.features[:], with_torch.features[:], rtol=2e-3, atol=1e-4)
    made, found = ((cache.fingerprint, cache.probe) for cache in (with_torch, with_openvino))
    difference = require_comparable(made, found, "x")
    assert difference is not None
    assert 0 < difference < 1e-5
    assert caches["auto"].content_sha256 == with_openvino.content_sha256  # the tests run on processors


class InterruptedHereError(Exception):
    pass


def stop(report: ShardReport) -> None:
    raise InterruptedHereError(report)


@pytest.mark.parametrize("runtime", ["torch", "openvino"])
def test_a_cache_resumes_with_its_runtime(
    manifest: Path, caches: dict[str, Cache], tmp_path: Path, runtime: str
) -> None:
    out, other = tmp_path / "cache.zarr", "torch" if runtime == "openvino" else "openvino"
    with pytest.raises(InterruptedHereError):
        extract(manifest, out, with_settings(runtime=runtime), on_shard=stop)
    with pytest.raises(InputError, match=f"runtime: expected '{other} .*', found '{runtime} "):
        extract(manifest, out, with_settings(runtime=other))
    with torch_threads(2):  # it keeps the threads as well
        extract(manifest, out, with_settings(runtime="auto"))
    assert open_cache(out).content_sha256 == caches[runtime].content_sha256
    record = read_record(out)
    assert record is not None
    assert record.threads == 1


def test_another_version_is_refused(
    manifest: Path, caches: dict[str, Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_runtimes, "version", lambda _name: "2099.1.0")
    with pytest.raises(InputError, match=r"runtime: expected 'openvino 2099.1.0', found 'openvino 20"):
        extract(manifest, caches["openvino"].source, with_settings())


def test_openvino_compiles_always(manifest: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="compile: expected the runtime torch"):
        extract(manifest, tmp_path / "x.zarr", with_settings(runtime="openvino", compiled=True))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_several_processes_give_the_same_cache(
    manifest: Path, caches: dict[str, Cache], tmp_path: Path
) -> None:
    with torch_threads(2):  # one for each
        extract(manifest, tmp_path / "two.zarr", with_settings(runtime="openvino", processes=2))
    assert open_cache(tmp_path / "two.zarr").content_sha256 == caches["openvino"].content_sha256
