"""Preprocess: a bad file costs one row, and a second run does only what is missing."""

import contextlib
import csv
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import polars as pl
import pytest

from trust_cache.base.errors import InputError
from trust_cache.images.contact_sheet import write_sheet
from trust_cache.images.picture_folder import ImageSettings, pictures_of, png_name, read_picture_record
from trust_cache.images.png_files import SIGNATURE, decode_png
from trust_cache.images.preprocess import preprocess
from trust_cache.manifest.build_manifest import build_manifest
from trust_cache.synthetic.image_cohort import CohortSettings, SyntheticCohort, synthesize_cohort
from trust_cache.synthetic.synthetic_dicom import Identity

SECRET_NAME, SECRET_DATE = "Geheim^Frieda", "19511103"


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> SyntheticCohort:
    settings = CohortSettings(
        like="rsna",
        cases=6,
        seed=3,
        broken=0.34,
        identity=Identity(patient_name=SECRET_NAME, birth_date=SECRET_DATE),
    )
    return synthesize_cohort(settings, tmp_path_factory.mktemp("syn") / "syn", workers=1)


@pytest.fixture(scope="module")
def manifest(cohort: SyntheticCohort) -> Path:
    path = cohort.folder.parent / "manifest.csv"
    build_manifest("rsna", cohort.metadata, path, images=str(cohort.folder))
    return path


@pytest.fixture(scope="module")
def done(manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("png") / "png"
    preprocess(manifest, out, workers=2)
    return out


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_broken_file_is_one_row_with_its_reason(cohort: SyntheticCohort, done: Path) -> None:
    words = {
        "truncated": "truncated", "not a DICOM": "not a DICOM", "no pixel data": "no pixel data",
        "multi-frame": "multi-frame", "RGB": "not a grey image", "constant": "constant",
        "zero bytes": "empty", "missing": "no such file", "unsupported syntax": "not supported",
        "oversized": "65535",
    }  # fmt: skip
    failures = {row["image_id"]: row for row in rows(done / "failures.csv")}
    assert set(failures) == set(cohort.broken)
    for image_id, kind in cohort.broken.items():
        assert words[kind] in failures[image_id]["reason"].replace(",", ""), kind
        assert failures[image_id]["stage"] in {"read", "decode", "intensity", "mask"}
    assert len(set(cohort.broken.values())) >= 8


def test_the_others_are_whole_pngs_of_a_manifest_with_all_rows(
    cohort: SyntheticCohort, manifest: Path, done: Path
) -> None:
    first, all_rows = rows(manifest), rows(done / "manifest.csv")
    assert [{**row, "path": "", "warning": ""} for row in all_rows] == [
        {**row, "path": "", "warning": ""} for row in first
    ]
    assert {row["image_id"] for row in all_rows if not row["path"]} == set(cohort.broken)
    kept = [row for row in all_rows if row["path"]]
    assert {path.name for path in done.glob("*.png")} == {row["path"] for row in kept}
    for row in kept:
        picture = decode_png((done / row["path"]).read_bytes())
        assert picture.max() > 0
        assert (picture[:, 0] > 0).sum() > (picture[:, -1] > 0).sum()  # every chest wall is on the left


def test_the_record_names_settings_versions_and_decoders(done: Path, tmp_path: Path) -> None:
    record = read_picture_record(str(done))
    assert record is not None
    assert record.settings == ImageSettings()
    assert "pydicom" in record.versions
    assert sum(record.decoders.values()) == len(list(done.glob("*.png")))
    assert read_picture_record(str(tmp_path)) is None
    text = (done / "preprocess.json").read_text()
    (tmp_path / "preprocess.json").write_text(text.replace('"margin"', '"margins"'))
    with pytest.raises(InputError, match=r"preprocess\.json: .*unknown key settings\.margins"):
        read_picture_record(str(tmp_path))


def test_nothing_identifying_is_written(manifest: Path, done: Path) -> None:
    secrets = [SECRET_NAME.encode(), b"Frieda", SECRET_DATE.encode()]
    files = [path for path in (*done.rglob("*"), manifest) if path.is_file()]
    assert len(files) > 5
    for path in files:
        assert not any(secret in path.read_bytes() for secret in secrets), path


def test_a_second_start_does_only_what_is_missing(manifest: Path, done: Path, tmp_path: Path) -> None:
    out = tmp_path / "png"
    subprocess.run(["cp", "-rp", str(done), str(out)], check=True)  # noqa: S607
    victims = sorted(out.glob("*.png"))[:3]
    before = {path: path.read_bytes() for path in out.glob("*.png")}
    victims[0].write_bytes(b"")  # left by another program
    victims[1].write_bytes(before[victims[1]][:-20])
    victims[2].unlink()
    again = preprocess(manifest, out, workers=1)
    assert again.reused == len(before) - 3
    assert {path: path.read_bytes() for path in out.glob("*.png")} == before
    with pytest.raises(InputError, match="other settings"):
        preprocess(manifest, out, workers=1, settings=ImageSettings(margin=0.2))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match="expected a new or empty folder"):
        preprocess(manifest, tmp_path / "mine", workers=1)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the worker through Linux's /proc")
def test_a_file_that_kills_its_worker_is_one_row_and_the_rest_is_done(
    manifest: Path, done: Path, tmp_path: Path
) -> None:
    """The file is a pipe: a worker that reads it waits and is killed, like an aborting decoder."""
    pipe = tmp_path / "killer.dcm"
    os.mkfifo(pipe)
    kept = {row["image_id"] for row in rows(done / "manifest.csv") if row["path"]}
    table = pl.read_csv(manifest, infer_schema=False).filter(pl.col("image_id").is_in(kept)).head(4)
    places = [str(manifest.parent / path) for path in table["path"]]
    table.with_columns(path=pl.Series([places[0], str(pipe), *places[2:]])).write_csv(
        tmp_path / "manifest.csv"
    )
    stop = threading.Event()
    killer = threading.Thread(target=kill_readers, args=(pipe, stop))
    killer.start()
    try:
        run = preprocess(tmp_path / "manifest.csv", tmp_path / "png", workers=1)
    finally:
        stop.set()
        killer.join()
    (failure,) = run.failures
    assert (failure.image_id, failure.stage) == (table["image_id"][1], "decode")
    assert "ended its whole process" in failure.reason
    for image_id in table["image_id"].to_list()[2:]:
        assert (tmp_path / "png" / png_name(image_id)).read_bytes() == (
            done / png_name(image_id)
        ).read_bytes()


def kill_readers(pipe: Path, stop: threading.Event, parents: set[int] | None = None) -> None:
    """Kill the workers of this or other processes whenever one of them has the pipe open to read."""
    while not stop.wait(0.02):
        try:
            handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads
            continue
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                if (
                    parent in (parents or {os.getpid()})
                    and b"spawn_main" in (stat.parent / "cmdline").read_bytes()
                ):
                    os.kill(int(stat.parent.name), signal.SIGKILL)
        os.close(handle)


def test_killed_and_started_again(manifest: Path, tmp_path: Path) -> None:
    """Every picture has warnings, by the wrong side; none is lost with the process that made it."""
    flipped, whole, out = manifest.with_name("flipped.csv"), tmp_path / "whole", tmp_path / "png"
    other_side = pl.col("laterality").replace({"L": "R", "R": "L"})
    pl.read_csv(manifest, infer_schema=False).with_columns(other_side).write_csv(flipped)
    preprocess(flipped, whole, workers=2)
    assert len(rows(whole / "warnings.csv")) >= 2 * len(list(whole.glob("*.png")))
    words = [sys.executable, "-m", "trust_cache_cli", "preprocess", str(flipped), "--out", str(out)]
    process = subprocess.Popen(
        [*words, "--workers", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 180
    while len(list(out.glob("*.png"))) < 2 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for _ in range(2):  # resumed, and then once more with nothing to do
        run = preprocess(flipped, out, workers=2)
        assert len(run.warnings) == len(rows(whole / "warnings.csv"))
        for path in (*whole.glob("*.png"), *whole.glob("*.csv"), whole / "preprocess.json"):
            assert (out / path.name).read_bytes() == path.read_bytes()
        assert {path.name for path in out.iterdir()} == {path.name for path in whole.iterdir()}
    texts = {row["image_id"]: row["warning"] for row in rows(out / "manifest.csv") if row["path"]}
    assert all(
        text.startswith("laterality: the header's laterality is ") and "breast-side: " in text
        for text in texts.values()
    )


def test_names_of_files_are_distinct_and_stay_inside() -> None:
    ids = ["normal/p_1/left/CC/IM-1", "../../evil", "a b", "..", ".", "a%2Fb", "a/b", "ü"]
    names = [png_name(image_id) for image_id in ids]
    assert len(set(names)) == len(ids)
    assert not any("/" in name or name in {".png", "..png"} for name in names)
    with pytest.raises(InputError, match="at most"):
        png_name("x" * 300)


def test_a_contact_sheet(done: Path, tmp_path: Path) -> None:
    pictures = pictures_of(str(done))
    assert len(pictures) == len(list(done.glob("*.png")))
    assert write_sheet(pictures, tmp_path / "sheet.png") == len(pictures)
    assert (tmp_path / "sheet.png").read_bytes().startswith(SIGNATURE)
    with pytest.raises(InputError, match="at least one picture"):
        write_sheet({}, tmp_path / "sheet.png")


def test_manifest_without_laterality_is_refused(manifest: Path, tmp_path: Path) -> None:
    table = pl.read_csv(manifest, infer_schema=False).with_columns(laterality=pl.lit(None, dtype=pl.String))
    table.write_csv(tmp_path / "manifest.csv")
    with pytest.raises(InputError, match="laterality"):
        preprocess(tmp_path / "manifest.csv", tmp_path / "png", workers=1)
    with pytest.raises(InputError, match="workers"):
        preprocess(manifest, tmp_path / "png", workers=0)
    assert not (tmp_path / "png").exists()
