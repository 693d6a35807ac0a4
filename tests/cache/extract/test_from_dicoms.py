"""Features straight from DICOM files are those by way of PNGs; a bad file costs one row; it resumes."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tests.images import made
from tests.images.test_preprocess import kill_readers
from trust_cache.api.estimate import estimate, sentences
from trust_cache.api.verify_folder import verify
from trust_cache.base.errors import InputError
from trust_cache.base.executor import Cluster, run_in_order
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.extract.extract import extract
from trust_cache.cache.extract.extraction_plan import ExtractSettings
from trust_cache.cache.extract.extraction_record import read_record
from trust_cache.cache.extract.picture_source import DicomSource, ImageFile
from trust_cache.images.picture_folder import ImageSettings
from trust_cache.images.preprocess import preprocess
from trust_cache.manifest.cases import WARNING

SETTINGS = ExtractSettings(
    weights="random", encoder="test_resnet", views=1, image_size=(32, 24), device="cpu", shard_images=4,
    batch=5, workers=1,
)  # fmt: skip
IMAGES = 10


def write_dicoms(folder: Path) -> Path:
    """Mammograms with a manifest: one truncated, one absent, one without a side, one seen twice, one odd."""
    folder.mkdir(parents=True)
    rows = []
    for n in range(IMAGES):
        pixels = made.mammogram(seed=min(n, 7))  # 7, 8 and 9 are the same picture
        further: dict[str, object] = {"PatientID": "b" if n == 1 else "a", "StudyInstanceUID": f"1.{n // 4}"}
        if n == 4:
            pixels = pixels >> 8 << 8  # few grey levels: the pixel gate warns
        content = made.as_bytes(made.as_jpeg_2000(made.dataset(pixels, **further)))
        if n != 3:
            (folder / f"{n}.dcm").write_bytes(content[: len(content) // 2] if n == 2 else content)
        side = "" if n == 5 else "LR"[n % 2]
        rows.append(f"{n:03d},case {n // 4},{int(n < 4)},{side},CC,{n}.dcm,{'given' if n == 6 else ''}")
    text = "\n".join(["image_id,case_id,label,laterality,projection,path,warning", *rows, ""])
    (folder / "manifest.csv").write_text(text)
    return folder / "manifest.csv"


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dicoms(tmp_path_factory.mktemp("dicoms") / "files")


@pytest.fixture(scope="module")
def by_pngs(manifest: Path) -> Path:
    """The folder with the pictures (`png`) and with the cache that is made of them."""
    folder = manifest.parent.parent
    preprocess(manifest, folder / "png", workers=1)
    extract(folder / "png" / "manifest.csv", folder / "pngs.zarr", SETTINGS)
    return folder


@pytest.fixture(scope="module")
def direct(manifest: Path) -> Path:
    out = manifest.parent.parent / "direct.zarr"
    extract(manifest, out, replace(SETTINGS, workers=2, keep_pictures=str(manifest.parent.parent / "kept")))
    return out


def bits(cache: Path) -> NDArray[np.uint16]:
    return np.asarray(open_cache(cache).features[:]).view(np.uint16)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_features_failures_and_warnings_are_those_by_way_of_pngs(by_pngs: Path, direct: Path) -> None:
    pngs = by_pngs / "pngs.zarr"
    np.testing.assert_array_equal(bits(direct), bits(pngs))
    one, other = open_cache(direct), open_cache(pngs)
    assert one.done.tolist() == other.done.tolist()
    assert one.done.sum() == IMAGES - 3
    assert (direct / "failures.csv").read_bytes() == (pngs / "failures.csv").read_bytes()
    said = [cache.manifest[WARNING].fill_null("").to_list() for cache in (one, other)]
    assert said[0] == said[1]
    checks = "".join(said[0])
    assert all(f"{name}: " in checks for name in ("patient", "grey-levels", "same-picture"))
    assert "given" in said[0][6]
    fields = ("encoder", "weights_sha256", "preprocessing")
    assert [getattr(one.fingerprint, name) for name in fields] == [
        getattr(other.fingerprint, name) for name in fields
    ]
    assert one.fingerprint.decoder.startswith("imagecodecs ")


def test_kept_pictures_are_those_of_preprocess(by_pngs: Path, direct: Path) -> None:
    assert files_of(direct.parent / "kept") == files_of(by_pngs / "png")


@pytest.mark.slow
def test_one_worker_and_several_processes_give_the_same_bytes(
    manifest: Path, direct: Path, tmp_path: Path
) -> None:
    extract(manifest, tmp_path / "two.zarr", replace(SETTINGS, processes=2, workers=1))
    whole, two = files_of(direct), files_of(tmp_path / "two.zarr")
    records = [content.pop("extraction.json") for content in (whole, two)]
    assert all(b'"dicoms":true' in record.replace(b" ", b"") for record in records)
    assert whole == two


def test_a_changed_file_is_encoded_again_and_named_by_verify(
    manifest: Path, direct: Path, tmp_path: Path
) -> None:
    shutil.copytree(manifest.parent, tmp_path / "files")
    copied, out = tmp_path / "files" / "manifest.csv", tmp_path / "cache.zarr"
    extract(copied, out, SETTINGS)
    np.testing.assert_array_equal(bits(out), bits(direct))
    found = verify(out)
    assert found.holds
    shutil.copy(copied.parent / "1.dcm", copied.parent / "0.dcm")
    assert [link.mismatches for link in verify(out).links] == [
        (f"{out}: image 000: its features were made from another DICOM file",)
    ]
    (copied.parent / "6.dcm").unlink()
    assert "1 of its DICOM files are not there" in verify(out).links[0].notes[0]
    shutil.copy(copied.parent / "7.dcm", copied.parent / "3.dcm")  # it was missing
    again = extract(copied, out, SETTINGS)
    assert (again.stale.pictures, again.images_before) == (1, IMAGES - 3 - 2)  # with its shard
    assert sorted(row.image_id for row in again.failures) == ["002", "005"]
    assert not np.array_equal(bits(out)[0], bits(direct)[0])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the worker through Linux's /proc")
def test_a_file_that_kills_its_worker_is_one_row(manifest: Path, direct: Path, tmp_path: Path) -> None:
    """The file is a pipe: a worker that reads it waits and is killed, like an aborting decoder."""
    pipe = tmp_path / "killer.dcm"
    os.mkfifo(pipe)
    table = pl.read_csv(manifest, infer_schema=False)
    places = [str(manifest.parent / path) for path in table["path"]]
    places[1] = str(pipe)
    table.with_columns(path=pl.Series(places)).write_csv(tmp_path / "manifest.csv")
    stop = threading.Event()
    killer = threading.Thread(target=kill_readers, args=(pipe, stop))
    killer.start()
    try:
        run = extract(tmp_path / "manifest.csv", tmp_path / "cache.zarr", SETTINGS)
    finally:
        stop.set()
        killer.join()
    (killed,) = (row for row in run.failures if row.image_id == "001")
    assert (killed.stage, len(run.failures)) == ("decode", 4)
    assert "ended its whole process" in killed.reason
    rest = np.arange(IMAGES) != 1
    np.testing.assert_array_equal(bits(tmp_path / "cache.zarr")[rest], bits(direct)[rest])


def test_a_bounded_number_of_pictures_is_under_way(manifest: Path) -> None:
    pulled = 0

    def numbers() -> Any:
        nonlocal pulled
        for number in range(60):
            pulled += 1
            yield number

    with closing(run_in_order(abs, numbers(), 2)) as outcomes:
        for number, outcome in enumerate(outcomes):
            assert outcome.value == number
            assert pulled <= number + 1 + 2 * 2 + 1
    assert pulled == 60
    files = [ImageFile("0", str(manifest.parent / "0.dcm"), laterality="L")] * 3
    source = DicomSource(2, ImageSettings(), "imagecodecs")
    with closing(source.decoded(files, pinned=False)) as images:
        first = next(images)
    assert first.pixels is not None
    assert first.header is not None


def test_options_that_do_not_fit_the_files(manifest: Path, by_pngs: Path, tmp_path: Path) -> None:
    out, pngs = tmp_path / "cache.zarr", by_pngs / "png" / "manifest.csv"
    with pytest.raises(InputError, match=r"expected PNGs for a cluster.*preprocess --scheduler"):
        extract(manifest, out, SETTINGS, cluster=Cluster("tcp://nowhere:1"))
    with pytest.raises(InputError, match="keep-pictures: expected a manifest of DICOM files, found PNGs"):
        extract(pngs, out, replace(SETTINGS, keep_pictures=str(tmp_path / "png")))
    with pytest.raises(InputError, match="decoder: expected a manifest of DICOM files, found PNGs"):
        extract(pngs, out, replace(SETTINGS, decoder="nvimagecodec"))
    with pytest.raises(InputError, match="decoder nvimagecodec: expected the package"):
        extract(manifest, out, replace(SETTINGS, decoder="nvimagecodec"))
    with pytest.raises(InputError, match="expected a new or empty folder"):
        extract(manifest, out, replace(SETTINGS, keep_pictures=str(manifest.parent)))
    assert not out.exists()
    mixed = manifest.read_text().replace("9.dcm", "9.png")
    (manifest.parent / "mixed.csv").write_text(mixed)
    with pytest.raises(InputError, match=r"found both \(.*0\.dcm and .*9\.png\)"):
        extract(manifest.parent / "mixed.csv", out, SETTINGS)


def test_estimate_of_dicom_files(manifest: Path, direct: Path) -> None:
    found = estimate(manifest, 1, encoder="test_resnet", device="cpu", image_size="32x24")
    assert found.timing.preprocess_per_image is not None
    assert "to preprocess a DICOM file in one of" in sentences(found)[1]
    record = read_record(direct)
    assert record is not None
    assert record.dicoms


COMMAND = (sys.executable, "-c", "from trust_cache_cli.main import main; main()", "extract")
WORDS = (
    "--weights", "random", "--encoder", "test_resnet", "--image-size", "32x24", "--views", "1",
    "--device", "cpu", "--shard-images", "1", "--batch", "4", "--workers", "2",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the worker through Linux's /proc")
def test_three_kills_and_a_dying_decoder_give_the_same_bytes(manifest: Path, tmp_path: Path) -> None:
    pipe, parents, stop = tmp_path / "killer.dcm", {0}, threading.Event()
    os.mkfifo(pipe)
    table = pl.read_csv(manifest, infer_schema=False)
    places = [str(manifest.parent / path) for path in table["path"]]
    places[-2] = str(pipe)
    table.with_columns(path=pl.Series(places)).write_csv(tmp_path / "manifest.csv")
    killer = threading.Thread(target=kill_readers, args=(pipe, stop, parents))
    killer.start()

    def start(out: Path) -> "subprocess.Popen[bytes]":
        words = [*COMMAND, str(tmp_path / "manifest.csv"), "--out", str(out), *WORDS]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        parents.add(process.pid)
        return process

    try:
        assert start(tmp_path / "whole.zarr").wait(300) == 1  # some images failed
        out = tmp_path / "killed.zarr"
        for marks in (1, 3, 6):
            process = start(out)
            while process.poll() is None and len(list((out / "marks").glob("c.*"))) < marks:
                time.sleep(0.02)
            process.kill()
            assert process.wait(60) == -signal.SIGKILL
        assert start(out).wait(300) == 1
    finally:
        stop.set()
        killer.join()
    whole, killed = files_of(tmp_path / "whole.zarr"), files_of(out)
    assert whole == killed
    assert b"ended its whole process" in whole["failures.csv"]
    assert len(whole["examined.csv"].splitlines()) == IMAGES - 4 + 1


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_images(tmp_path: Path) -> None:
    content = made.as_bytes(made.dataset(made.mammogram(1600, 1200)))
    (tmp_path / "image.dcm").write_bytes(content)
    peaks = []
    for images in (10, 60):
        rows = [f"{n},{n},0,L,CC,image.dcm" for n in range(images)]
        text = "\n".join(["image_id,case_id,label,laterality,projection,path", *rows, ""])
        (tmp_path / f"{images}.csv").write_text(text)
        out = tmp_path / f"{images}.zarr"
        words = ["trust-cache", "extract", str(tmp_path / f"{images}.csv"), "--out", str(out), *WORDS]
        code = f"import resource, sys; sys.argv = {words!r}\n" + PEAK
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        peaks.append(int(done.stdout.splitlines()[-1]))
        assert open_cache(out).done.sum() == images
    picture = 1600 * 1200 * 2
    assert abs(peaks[1] - peaks[0]) * 1024 < 10 * picture  # 50 more pictures were encoded


PEAK = """
if __name__ == "__main__":
    from trust_cache_cli.main import main
    try:
        main()
    except SystemExit:
        pass
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
