"""The whole of stage one with a small real network: resuming, refusing, recording, several processes."""

import csv
import socket
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from tests.cache.extract.material import SETTINGS, failed_in, record_pictures, with_settings, write_pngs
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.extract.extract import ExtractRun, extract
from trust_cache.cache.extract.extraction_record import (
    ExtractionRecord,
    read_record,
    record_halving,
    write_record,
)
from trust_cache.cache.extract.shard_work import ShardReport
from trust_cache.cache.extract.view_features import Runner, torch_threads
from trust_cache.cache.fingerprint import require_same_encoder
from trust_cache.cache.verify_cache import verify_cache
from trust_cache.cache.views import decide_views, make_views
from trust_cache.encoders.known_encoders import load_encoder
from trust_cache.encoders.recipe import RecipeKeys
from trust_cache.images.picture_folder import ImageSettings
from trust_cache.images.png_files import read_grey_png

IMAGES = 10


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pngs(tmp_path_factory.mktemp("pngs") / "png", IMAGES)


@pytest.fixture(scope="module")
def whole(manifest: Path) -> Path:
    out = manifest.parent.parent / "whole.zarr"
    extract(manifest, out, SETTINGS)
    return out


def features(out: Path) -> np.ndarray:
    return np.asarray(open_cache(out).features[:])


def test_features_are_the_encoders(manifest: Path, whole: Path) -> None:
    """Against the encoder called by hand on the views of one image."""
    encoder = load_encoder("random", SETTINGS.image_size, encoder=SETTINGS.encoder, seed=SETTINGS.seed)
    for n in (0, 7):
        pixels = torch.from_numpy(read_grey_png(str(manifest.parent / f"{n}.png")))
        views = make_views(pixels, encoder.identity.recipe, decide_views(0, f"{n:03d}", 2)).views
        with torch.inference_mode():
            expected = encoder(views.expand(-1, 3, -1, -1)).numpy()
        np.testing.assert_allclose(
            features(whole)[n], expected, rtol=2e-3, atol=1e-4
        )  # float16 keeps 11 bits
    assert len({row.tobytes() for row in features(whole).reshape(3 * IMAGES, -1)}) == 3 * IMAGES
    assert verify_cache(whole) == []
    assert open_cache(whole).manifest["site"].to_list() == ["north"] * IMAGES


class InterruptedHereError(Exception):
    pass


def interrupted(manifest: Path, out: Path, after: int) -> None:
    def on_shard(report: ShardReport) -> None:
        if report.shard == after:
            raise InterruptedHereError

    with pytest.raises(InterruptedHereError):
        extract(manifest, out, SETTINGS, on_shard=on_shard)


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
def test_a_resumed_run_gives_the_same_bytes(manifest: Path, whole: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"cache.{suffix}"
    interrupted(manifest, out, after=0)
    done = int(open_cache(out).done.sum())
    assert 2 <= done <= 6  # two more shards may have been on their way to the disk
    for folder in (out, out / "features") if out.is_dir() else ():
        (folder / "a.partial").write_bytes(b"of a process that was killed")
    with torch_threads(2):  # the threads it began with are recorded and used again
        run = extract(manifest, out, with_settings(batch=3, workers=1))
    assert (run.images_before, run.images_done, run.failures) == (done, IMAGES, ())
    np.testing.assert_array_equal(features(out).view(np.uint16), features(whole).view(np.uint16))
    assert not list(out.rglob("*.partial"))


def test_channels_with_their_own_mean_beside_a_broken_picture(tmp_path: Path) -> None:
    means = RecipeKeys(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    folder = write_pngs(tmp_path / "png", 4).parent
    (folder / "1.png").write_bytes(b"broken")
    run = extract(folder / "manifest.csv", tmp_path / "own.zarr", with_settings(recipe=means))
    assert [failure.image_id for failure in run.failures] == ["001"]
    encoder = load_encoder("random", SETTINGS.image_size, encoder=SETTINGS.encoder, recipe=means)
    for n in (0, 2, 3):
        pixels = torch.from_numpy(read_grey_png(str(folder / f"{n}.png")))
        views = make_views(pixels, encoder.identity.recipe, decide_views(0, f"{n:03d}", 2)).views
        assert views.shape == (3, 3, 32, 24)
        np.testing.assert_allclose(features(tmp_path / "own.zarr")[n], encoder(views), rtol=2e-3, atol=1e-4)


def test_a_finished_cache_is_left_alone(manifest: Path, whole: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in (whole / "features").iterdir()}
    run = extract(manifest, whole, SETTINGS)
    assert (run.images_before, run.images_done) == (IMAGES, IMAGES)
    assert {path: path.stat().st_mtime_ns for path in (whole / "features").iterdir()} == files


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"seed": 1}, "weights_sha256: .*seed: expected 1, found 0"),
        ({"image_size": (32, 32)}, r"recipe image_size: expected \(32, 32\), found \(32, 24\)"),
        ({"recipe": RecipeKeys(antialias=False)}, "recipe antialias: expected False, found True"),
        ({"encoder": "test_byobnet"}, "encoder: expected 'test_byobnet', found 'test_resnet'"),
        ({"views": 3}, "expected 3 augmented views of each image, found 2"),
    ],
)
def test_another_way_of_making_features_is_refused(
    manifest: Path, whole: Path, change: dict[str, object], field: str
) -> None:
    before = features(whole)
    with pytest.raises(InputError, match=field):
        extract(manifest, whole, with_settings(**change))
    np.testing.assert_array_equal(features(whole), before)


def test_another_manifest_or_preprocessing_is_refused(whole: Path, tmp_path: Path) -> None:
    other = write_pngs(tmp_path / "png", IMAGES)
    table = pl.read_csv(other, infer_schema=False)
    table.with_columns(label=pl.lit("1")).write_csv(other)
    with pytest.raises(InputError, match="made for another manifest"):
        extract(other, whole, SETTINGS)
    table.write_csv(other)
    record_pictures(other, ImageSettings(margin=0.2), ("gdcm 3 (1.2)", "b (1)"))
    made = "trust-cache 1: closing 9, margin 0.2, max_pixels 64000000"
    words = f"preprocessing: expected '{made}', found 'external'"
    with pytest.raises(InputError, match=f"{words}; decoder: expected .* found 'external'"):
        extract(other, whole, SETTINGS)
    extract(other, tmp_path / "own.zarr", SETTINGS)
    own = open_cache(tmp_path / "own.zarr").fingerprint
    assert (own.preprocessing, own.decoder) == (made, "b (1); gdcm 3 (1.2)")
    with pytest.raises(InputError, match="preprocessing"):
        require_same_encoder(own, open_cache(whole).fingerprint, "x")
    for wrong, reason in (
        ("{", "unreadable"),
        ("{}", "schema None"),
        ('{"schema": 2, "settings": {}}', "newer"),
    ):
        (other.parent / "preprocess.json").write_text(wrong)
        with pytest.raises(InputError, match=f"preprocess.json: .*{reason}"):
            extract(other, tmp_path / "own.zarr", SETTINGS)


def test_the_fingerprint_says_how(whole: Path) -> None:
    found = open_cache(whole).fingerprint
    assert (found.encoder, found.weights_sha256) == ("test_resnet", "random:seed=0")
    assert (found.image_size, found.precision) == ((32, 24), "float32")
    assert found.recipe == (
        '{"antialias":true,"channels":3,"image_size":[32,24],"intensity":"min-max","keep_proportions":true,'
        '"mean":[0.5,0.5,0.5],"pooling":"own","resize":"bilinear","std":[0.5,0.5,0.5]}'
    )
    assert "rotation -10..10" in found.view_settings
    assert (found.preprocessing, found.decoder) == ("external", "external")


@pytest.mark.slow
def test_two_processes_give_the_bytes_of_one(manifest: Path, whole: Path, tmp_path: Path) -> None:
    with torch_threads(2):  # shared between the two
        run = extract(manifest, tmp_path / "two.zarr", with_settings(processes=2, workers=1))
    assert run.images_done == IMAGES
    assert read_record(tmp_path / "two.zarr").threads == 1  # type: ignore[union-attr]
    np.testing.assert_array_equal(features(tmp_path / "two.zarr"), features(whole))
    with pytest.raises(InputError, match=r"expected a \.zarr cache for several processes"):
        extract(manifest, tmp_path / "two.h5", with_settings(processes=2))


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
def test_failures_are_listed_and_forgotten_when_mended(tmp_path: Path, suffix: str) -> None:
    manifest, out = write_pngs(tmp_path / "png", IMAGES), tmp_path / f"cache.{suffix}"
    whole = (manifest.parent / "3.png").read_bytes()
    (manifest.parent / "3.png").write_bytes(whole[:-40])
    (manifest.parent / "8.png").unlink()
    run = extract(manifest, out, SETTINGS)
    place = out / "failures.csv" if suffix == "zarr" else tmp_path / "cache.h5.failures.csv"
    assert run.failures_file == str(place)
    assert rows(place) == [
        {"image_id": "003", "stage": "read", "reason": "truncated: the file ends within a chunk"},
        {"image_id": "008", "stage": "read", "reason": "no such file"},
    ]
    assert [failure.image_id for failure in run.failures] == ["003", "008"]
    (manifest.parent / "3.png").write_bytes(whole)
    again = extract(manifest, out, SETTINGS)
    assert (again.images_before, again.images_done) == (8, 9)
    assert [row["image_id"] for row in rows(place)] == ["008"]
    assert failed_in(out) == ["008"]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_halvings_are_recorded_and_kept(manifest: Path, tmp_path: Path) -> None:
    out = tmp_path / "cache.zarr"
    interrupted(manifest, out, after=0)
    record_halving(out, 1, 5, 2)
    warnings: list[str] = []
    extract(manifest, out, with_settings(batch=8), on_start=lambda start: warnings.extend(start.warnings))
    found = read_record(out)
    assert found is not None
    assert (found.batch, [h.after for h in found.halvings]) == (2, [2])
    assert any("resumes with batch 2 as it began, not 8" in warning for warning in warnings)
    assert found.versions["torch"] == torch.__version__


def test_a_damaged_record_is_named_and_a_lost_one_made_anew(manifest: Path, tmp_path: Path) -> None:
    out = tmp_path / "cache.zarr"
    interrupted(manifest, out, after=0)
    for wrong in ("{", "[]", '{"schema": 1}', '{"schema": 9}'):
        (out / "extraction.json").write_text(wrong)
        with pytest.raises(InputError, match=r"extraction\.json"):
            extract(manifest, out, SETTINGS)
    (out / "extraction.json").unlink()
    assert extract(manifest, out, SETTINGS).images_done == IMAGES
    write_record(out, ExtractionRecord(batch=3, threads=1, compiled=False, device="cpu"))
    assert read_record(out).batch == 3  # type: ignore[union-attr]


def refused(manifest: Path, out: Path, match: str, **changes: object) -> None:
    with pytest.raises(InputError, match=match):
        extract(manifest, out, with_settings(**changes))
    assert not list(out.parent.glob("*"))  # nothing is left behind


def test_wrong_use_leaves_nothing_behind(manifest: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "cache.zarr"
    out.parent.mkdir()
    refused(manifest, out, "none.safetensors", weights="none.safetensors", encoder="mammo-clip-b5")
    refused(manifest, out, "no_such_model", encoder="no_such_model")
    refused(manifest, out, "device: expected auto, cpu, cuda or cuda:N, found 'gpu'", device="gpu")
    refused(manifest, out, "expected devices of one kind|CUDA devices", device="cpu,cuda")
    refused(manifest, out, "processes: expected at least 2", device="cpu,cpu", processes=1)
    refused(manifest, out.with_name("cache"), r"ends in \.zarr or \.h5")
    for name in ("batch", "workers", "processes", "shard_images"):
        with pytest.raises(InputError, match=f"{name.replace('_', '-')}: expected 1 or more"):
            with_settings(**{name: 0})
    with pytest.raises(InputError, match="image-size"):
        with_settings(image_size=(0, 5))
    with pytest.raises(InputError, match="views"):
        with_settings(views=-1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what a machine without CUDA says")
def test_no_cuda_is_said(manifest: Path, tmp_path: Path) -> None:
    refused(manifest, tmp_path / "cache.zarr", "expected cuda, found 0 CUDA devices", device="cuda")


def test_manifests_of_something_else(tmp_path: Path) -> None:
    manifest = write_pngs(tmp_path / "png", 3)
    (manifest.parent / "0.png").write_bytes(bytes(128) + b"DICM" + bytes(99))
    with pytest.raises(InputError, match=r"expected DICOM files or PNGs, found both \(.*0\.png"):
        extract(manifest, tmp_path / "cache.zarr", SETTINGS)
    for n in range(3):
        (manifest.parent / f"{n}.png").unlink()
    with pytest.raises(InputError, match=r"none of its 3 files exists \(the first is .*0.png\)"):
        extract(manifest, tmp_path / "cache.zarr", SETTINGS)
    assert not (tmp_path / "cache.zarr").exists()


def test_nothing_is_asked_of_a_network(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def refuse(*words: object, **_: object) -> None:
        asked.append(words)
        raise OSError("no network here")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    run: ExtractRun = extract(manifest, tmp_path / "cache.zarr", SETTINGS)
    assert (run.images_done, asked) == (IMAGES, [])


def test_views_have_the_same_bits_with_any_number_of_threads() -> None:
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 60_000, (1200, 700), dtype=np.uint16))
    runner = Runner(load_encoder("random", (608, 365), encoder=SETTINGS.encoder), "cpu")
    found = []
    for count in (1, 2):
        with torch_threads(count):
            found.append(runner.views(pixels, decide_views(0, "a", 3)).views)
            assert torch.get_num_threads() == count
    assert torch.equal(*found)
