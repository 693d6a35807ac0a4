"""`trust-cache verify` on every artefact: untouched agrees, a changed byte is named, others are refused."""

import json
import shutil
from pathlib import Path

import h5py
import pytest

from tests.faults.chain_pipeline import build_pipeline, call, in_this_process, inside
from trust_cache.cache.copy_cache import convert_cache

# What is verified, with the kinds of the links, and the files whose bytes are changed.
ARTEFACTS = {
    "png": (["pictures"], ["*"]),
    "cache.zarr": (["cache", "pictures"], ["features/c*", "marks/c*", "manifest/*/c*", "extraction.json"]),
    "cache.h5": (["cache", "pictures"], []),
    "run": (["run", "cache"], ["*", "repeats/1/*"]),
    "external": (["run", "certified", "cache", "cache"], ["*", "certified/*", "certified/certificates/*"]),
    "certified": (["certified"], ["*", "certificates/*"]),
    "sweep": (["sweep"], ["*", "scores/*/*", "winner/*", "certificates/*", "figures/*"]),
    "rivals": (["rivals"], ["*"]),
    "compare": (["compare"], ["*"]),
    "model": (["model"], ["*"]),
    "attached": (["certified"], ["*", "certificates/*"]),
    "worklist.csv": (["worklist"], [""]),
    "model.history.jsonl": (["history"], [""]),
    "run.attempts.json": (["attempts"], [""]),
}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every artefact, by its usual name."""
    with pytest.MonkeyPatch.context() as patch:
        in_this_process(patch)
        folder = build_pipeline(tmp_path_factory.mktemp("verify") / "one")
        with inside(folder):
            convert_cache(Path("cache.zarr"), Path("cache.h5"))
            shutil.copyfile("cache.zarr/extraction.json", "cache.h5.extraction.json")
            for words in (
                ("sweep", "train.zarr", "--grid", "lr=0.01,0.02", "--epochs", 1, "--out", "sweep"),
                ("rivals", "--scores", "run", "--out", "rivals"),
                ("certify", "--model", "model", "--cache", "new.zarr", "--out", "attached"),
            ):
                said = call(*words)
                assert said.code == 0, said.text
        return folder


@pytest.mark.parametrize("name", ARTEFACTS)
def test_untouched_agrees(pipeline: Path, name: str) -> None:
    with inside(pipeline):
        said, document = call("verify", name), call("verify", name, "--json")
    assert said.code == document.code == 0, said.text
    links = json.loads(document.text)
    assert [link["kind"] for link in links] == ARTEFACTS[name][0]
    assert not any(link["mismatches"] for link in links)
    assert said.text.count("agrees with its record.") == len(links)


RECORDS = (
    "points.json", "run.json", "sweep.json", "extraction.json", "preprocess.json", "scored_by.json",
)  # fmt: skip
LARGE = ("sweep", "external", "rivals", "attached")  # of many files


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in ARTEFACTS]
)
def test_a_changed_byte_is_named(pipeline: Path, tmp_path: Path, name: str) -> None:
    work = tmp_path / "one"
    shutil.copytree(pipeline, work)
    place = work / name
    files = {path for pattern in ARTEFACTS[name][1] for path in (place.glob(pattern) if pattern else [place])}
    files = {path for path in files if path.is_file() and path.suffix != ".lock"}
    if name == "cache.h5":
        with h5py.File(place, "r+") as file:
            file["features"][0, 0, 0] += 1
        assert_named(work, name, "shard 0")
        return
    assert files
    for path in sorted(files):
        whole = path.read_bytes()
        if not whole:
            continue
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        assert_named(work, name, path.name if "zarr" not in name else name)
        path.write_bytes(whole)
        path.unlink()
        if path.name not in RECORDS:  # without it the folder is of another kind, or of none
            with inside(work):
                said = call("verify", name)
            assert said.code in (1, 2), (path, said)
        path.write_bytes(whole)


def assert_named(work: Path, name: str, changed: str) -> None:
    with inside(work):
        said, document = call("verify", name), call("verify", name, "--json")
    assert said.code == document.code == 1, (changed, said.text)
    assert any(link["mismatches"] for link in json.loads(document.text))
    # What a changed point or setting contradicts may be named in its place.
    names = [changed, "the certificate of fast at 0.9: ", "these are not the scores of points.json"]
    names += ["certified"] if changed == "points.json" else []
    assert any(text in said.text for text in names), (changed, said.text)


def test_a_certified_folder_with_its_run_is_followed_to_the_pictures(pipeline: Path, tmp_path: Path) -> None:
    work = tmp_path / "one"
    shutil.copytree(pipeline, work)
    with inside(work):
        said = call("verify", "certified", "--scores", "run", "--json")
        assert [link["kind"] for link in json.loads(said.text)] == ["certified", "run", "cache"]
        rows = (work / "run" / "scores.csv").read_text().splitlines()
        (work / "run" / "scores.csv").write_text("\n".join([*rows[:-40], ""]))
        said = call("verify", "certified", "--scores", "run")
        assert said.code == 1
        assert "scores.csv: changed since the run was written" in said.text
        shutil.rmtree(work / "train.zarr")
        assert "train.zarr: not there: not compared" in call("verify", "external").text


def test_a_cache_behind_a_url(pipeline: Path) -> None:
    said = call("verify", (pipeline / "train.zarr").as_uri())
    assert said.code == 0, said.text
    assert "train.zarr (cache) agrees with its record." in said.text


def test_features_of_other_pictures_than_the_folder_has(pipeline: Path, tmp_path: Path) -> None:
    work = tmp_path / "one"
    shutil.copytree(pipeline, work)
    with inside(work):
        one, two = Path("dicoms/0001/L-CC.dcm"), Path("dicoms/0001/L-MLO.dcm")
        one.write_bytes(two.read_bytes())
        with pytest.MonkeyPatch.context() as patch:
            in_this_process(patch)
            assert call("preprocess", "manifest.csv", "--out", "png", "--workers", 1).code == 0
        said = call("verify", "cache.zarr")
    assert said.code == 1
    assert "image 1-0: its features were made from another picture than png/manifest.csv has" in said.text


@pytest.mark.parametrize("name", ["nothing", "empty", "page.html"])
def test_what_no_command_wrote_is_one_sentence(pipeline: Path, name: str) -> None:
    with inside(pipeline):
        Path("empty").mkdir(exist_ok=True)
        Path("page.html").write_text("<p>")
        said = call("verify", name)
    assert said.code == 2
    assert said.text.count("\n") == 1
    assert "expected a certificate, a cache, a worklist" in said.text


def test_options_that_do_not_fit(pipeline: Path) -> None:
    with inside(pipeline):
        assert "expected --scores for a certificate" in call("verify", "run", "--scores", "run").text
        assert "expected --split for a certificate only" in call("verify", "run", "--split", "x").text
