"""Attacks on the first version, each of which ended in a wrong result with exit code 0."""

import csv
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.chain_pipeline import (
    EXTRACT,
    FIT,
    TRIAGE,
    Said,
    build_pipeline,
    call,
    content_of,
    in_this_process,
    inside,
)
from trust_cache.statistics.bounds import clopper_pearson_upper

Table = list[list[str]]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        in_this_process(patch)
        return build_pipeline(tmp_path_factory.mktemp("experiments") / "one")


@pytest.fixture
def work(pipeline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the pipeline, as the current folder."""
    in_this_process(monkeypatch)
    shutil.copytree(pipeline, tmp_path / "one")
    with inside(tmp_path / "one"):
        yield tmp_path / "one"


def edit_rows(path: str, change: Callable[[Table], Table | None]) -> None:
    """Change the rows of a CSV file, the header excepted."""
    header, *rows = list(csv.reader(io.StringIO(Path(path).read_text(encoding="utf-8"))))
    rows = change(rows) or rows
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    Path(path).write_text(text.getvalue(), encoding="utf-8")


def exchange(one: str, two: str) -> None:
    held = Path(one).read_bytes()
    Path(one).write_bytes(Path(two).read_bytes())
    Path(two).write_bytes(held)


def refused(*words: object, said: str) -> Said:
    answer = call(*words)
    assert answer.code in (1, 2), answer.text
    assert said in answer.text
    return answer


def test_swapped_paths_and_a_flipped_laterality_in_the_manifest(work: Path) -> None:
    def change(rows: Table) -> None:
        rows[0][-1], rows[1][-1] = rows[1][-1], rows[0][-1]  # the paths of two images
        rows[4][3] = "R"  # the laterality of a third

    edit_rows("manifest.csv", change)
    resumed = call("preprocess", "manifest.csv", "--out", "png", "--workers", 1)
    assert "8 of 8 images, 5 of them before. 3 of them changed: made again." in resumed.text
    assert call("preprocess", "manifest.csv", "--out", "fresh/png", "--workers", 1).code == 0
    assert content_of(work / "png") == content_of(work / "fresh" / "png")


def test_swapped_pictures(work: Path) -> None:
    del work
    exchange("png/1-0.png", "png/2-3.png")
    for out in ("cache.zarr", "new.zarr"):
        if out == "new.zarr":
            shutil.rmtree(out)
        assert call("extract", "png/manifest.csv", "--out", out, *EXTRACT).code == 1
        failures = Path(out, "failures.csv").read_text()
        assert failures.count("changed since `trust-cache preprocess` made it") == 2
    refused("verify", "png", said="1-0.png: changed since it was made")


def test_two_shards_exchanged_with_their_marks(work: Path) -> None:
    del work
    for name in ("features/c.{}.0.0", "marks/c.{}.0"):
        exchange(f"train.zarr/{name.format(0)}", f"train.zarr/{name.format(3)}")
    sentence = "belong to other images or another cache"
    refused("cache", "verify", "train.zarr", said=sentence)
    refused("verify", "train.zarr", said=sentence)
    refused("fit-heads", "train.zarr", "--out", "new", *FIT, said=sentence)


def test_other_pixels_of_equal_size_and_time_under_a_journal(work: Path) -> None:
    shutil.rmtree(".other.csv.work")
    words = ("triage", "dicoms", "--model", "model", *TRIAGE, "--out", "other.csv")
    keep = pytest.MonkeyPatch()
    keep.setattr("trust_cache.clinic.triage_journal.Journal.discard", lambda _journal: None)
    assert call(*words).code == 0  # all cases are in the journal
    keep.undo()
    assert Path(".other.csv.work/journal.jsonl").is_file()
    for changed in Path("dicoms/0001").iterdir():
        state, content = changed.stat(), bytearray(changed.read_bytes())
        content[-8_000:] = bytes(8_000)
        changed.write_bytes(bytes(content))
        os.utime(changed, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert call(*words).code == 0
    assert call(*words[:-1], "fresh.csv").code == 0
    assert Path("other.csv").read_bytes() == Path("fresh.csv").read_bytes()
    assert Path("other.csv").read_bytes() != (work / "worklist.csv").read_bytes()


def test_scores_cut_by_two_fifths_or_by_a_few_positive_rows(work: Path) -> None:
    for change in (
        lambda rows: rows[: len(rows) * 3 // 5],
        lambda rows: [row for number, row in enumerate(rows) if row[4] == "0" or number % 9],
    ):
        shutil.copyfile("run/scores.csv", "kept.csv")
        edit_rows("run/scores.csv", change)
        for words in (
            ("certify", "run", "--out", "new"),
            ("certify", "run/scores.csv", "--out", "new"),
            ("report", "run", "--out", "page.html"),
            ("report", "run", "certified", "--out", "page.html"),
            ("compare", "run", "--out", "other"),
            ("verify", "run"),
        ):
            refused(*words, said="scores.csv: changed since the run was written")
        assert not (work / "new").exists()
        shutil.copyfile("kept.csv", "run/scores.csv")


def test_an_edited_certificate_is_not_offered_by_the_report(work: Path) -> None:
    for name in ("certified/certificates/fast@0.9.json", "external/certified/certificates/fast@0.9.json"):
        path = work / name
        document = json.loads(path.read_text())
        document |= {"met": True, "bound": 0.0001, "bound_corrected": 0.0001, "status": "certified"}
        path.write_text(json.dumps(document, indent=2) + "\n")
    sentence = "the certificate of fast at 0.9: bound is 0.0001"
    refused("report", "run", "certified", "--out", "page.html", said=sentence)
    refused("report", "external", "--out", "page.html", said=sentence)
    words = ("export-model", "external", "--configuration", "fast", "--target", 0.9, "--out", "new")
    refused(*words, said="does not agree with the scores of external")
    refused("verify", "certified", said="fast at 0.9")
    assert not (work / "page.html").exists()


def test_fewer_compared_with_a_matching_bound(work: Path) -> None:
    assert call("certify", "run", "--out", "new", "--target", 0.9, "--target", 0.8).code == 0
    path = work / "new" / "certificates" / "fast@0.9.json"
    document = json.loads(path.read_text())
    assert document["compared"] == 4
    counts = document["positives_dismissed"], document["dismissed"]
    lower = {"compared": 2, "bound_corrected": float(clopper_pearson_upper(*counts, 0.01 / 2))}
    path.write_text(json.dumps(document | lower))
    refused("verify", path, "--scores", "run", said="compared")
    refused("report", "run", "new", "--out", "page.html", said="bound_corrected is")


def test_a_second_seed_before_attaching_is_in_the_certificate(work: Path) -> None:
    words = ("certify", "--model", "model", "--cache", "new.zarr", "--target", 0.9, "--limit", 0.5)
    assert "target missed" in call(*words, "--out", "first", "--seed", 1).text
    said = call(*words, "--out", "second", "--seed", 0, "--attach")
    assert "this is not the first attempt: 1 with other settings or another split" in said.text
    assert said.code == 0, said.text
    certificate = json.loads((work / "model" / "certificate.json").read_text())
    assert [attempt["seed"] for attempt in certificate["attempts"]] == [1, 0]
    assert certificate["seed"] == 0
