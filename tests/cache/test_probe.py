"""The probe picture never changes; its features accept other runtimes and refuse other arithmetic."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tests.cache.material import FINGERPRINT, a_manifest, some_features
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.cache.cache_writer import create_cache
from trust_cache.cache.copy_cache import convert_cache, subset_cache
from trust_cache.cache.fingerprint import Fingerprint, require_comparable
from trust_cache.cache.verify_cache import verify_cache
from trust_cache.encoders.probe import Probe, draw_probe, make_probe

GENERATOR = np.random.default_rng(0)
FEATURES = GENERATOR.standard_normal(2048).astype(np.float32)
NOISE = GENERATOR.standard_normal(2048)
CPU = replace(FINGERPRINT, runtime="torch 2.13.0", precision="float32")
OPENVINO = replace(CPU, runtime="openvino 2026.4.1")
GPU = replace(CPU, precision="float16 autocast")


def probe_at(distance: float) -> Probe:
    """Features at this relative distance from FEATURES."""
    step = NOISE / np.linalg.norm(NOISE) * np.linalg.norm(FEATURES) * distance
    made = make_probe(FEATURES + step)
    assert made is not None
    return made


def test_the_picture_is_fixed() -> None:
    """Another picture needs another name: every stored probe is of this one."""
    pixels = draw_probe()
    assert (pixels.shape, pixels.dtype, pixels[0, -1]) == ((608, 368), np.uint16, 0)
    digest = hashlib.sha256(pixels.astype("<u2").tobytes()).hexdigest()
    assert digest == "4c67b0e7b626fb745f1b3887efd81ed1175476733b532f762bb5bd84cd6e5dbd"
    assert 0.5 < (pixels > 0).mean() < 0.7
    assert np.std(pixels[pixels > 0].astype(float)) > 2_000


@pytest.mark.parametrize(
    ("one", "other", "distance", "accepted"),
    [
        (CPU, OPENVINO, 3e-6, True),
        (CPU, OPENVINO, 2e-5, True),
        (CPU, OPENVINO, 3e-4, False),
        (CPU, OPENVINO, 0.02, False),  # bfloat16 in spite of the record
        (CPU, CPU, 0.02, False),
        (GPU, CPU, 3e-3, True),
        (OPENVINO, GPU, 3e-3, True),
        (GPU, GPU, 1e-3, True),
        (GPU, OPENVINO, 0.02, False),
        (CPU, replace(CPU, precision="bfloat16"), 1e-6, False),
        (CPU, replace(CPU, weights_sha256="cd" * 32), 0.0, False),
    ],
)
def test_other_runtimes(one: Fingerprint, other: Fingerprint, distance: float, accepted: bool) -> None:
    made, found = (one, probe_at(0.0)), (other, probe_at(distance))
    if accepted:
        assert require_comparable(made, found, "x") == pytest.approx(distance, rel=0.02)
        return
    with pytest.raises(InputError, match=r"x: its (runtime gives other features|features were made)"):
        require_comparable(made, found, "x")


def test_without_probes_the_runtime_must_be_the_same() -> None:
    assert require_comparable((CPU, None), (CPU, probe_at(0)), "x") is None
    for first, second in ((None, None), (probe_at(0), None), (None, probe_at(0))):
        with pytest.raises(
            InputError, match=r"expected the runtime torch 2\.13\.0 in float32, found openvino"
        ):
            require_comparable((CPU, first), (OPENVINO, second), "x")
    other = replace(probe_at(0), picture="trust-cache probe 0")
    with pytest.raises(InputError, match="without the features of the same probe"):
        require_comparable((CPU, probe_at(0)), (OPENVINO, other), "x")
    with pytest.raises(InputError, match="expected 2048 features, found 5"):
        require_comparable((CPU, probe_at(0)), (CPU, make_probe(FEATURES[:5])), "x")
    assert make_probe(np.array([1.0, np.inf])) is None


def with_probe(out: Path) -> Cache:
    features = some_features(6)
    with create_cache(out, a_manifest(6), 3, 8, FINGERPRINT, 4, probe_at(0)) as writer:
        for shard in range(2):
            writer.write_shard(shard, features[slice(*writer.layout.bounds(shard))])
    return open_cache(out)


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
def test_a_cache_keeps_it_through_copies(tmp_path: Path, suffix: str) -> None:
    cache = with_probe(tmp_path / f"a.{suffix}")
    assert cache.probe is not None
    np.testing.assert_array_equal(cache.probe.vector, FEATURES)
    convert_cache(cache.source, tmp_path / "b.zarr")
    subset_cache(cache.source, tmp_path / "c.h5", {"laterality": "L"})
    for copy in ("b.zarr", "c.h5"):
        assert open_cache(tmp_path / copy).probe == cache.probe


def test_a_changed_probe_is_found(tmp_path: Path) -> None:
    """By its own digest, and by the marks if that was made to fit."""
    cache = with_probe(tmp_path / "a.zarr")
    file = tmp_path / "a.zarr" / "zarr.json"
    document = json.loads(file.read_text())
    whole = file.read_bytes()
    document["attributes"]["trust-cache"]["probe"]["picture"] = "another"
    file.write_text(json.dumps(document))
    with pytest.raises(InputError, match="the features of its probe are damaged"):
        open_cache(tmp_path / "a.zarr")
    document["attributes"]["trust-cache"]["probe"] = probe_at(0.02).as_document()
    file.write_text(json.dumps(document))
    assert [problem.kind for problem in verify_cache(tmp_path / "a.zarr")] == ["checksum", "checksum"]
    assert open_cache(tmp_path / "a.zarr").content_sha256 != cache.content_sha256
    file.write_bytes(whole)
    assert verify_cache(tmp_path / "a.zarr") == []
