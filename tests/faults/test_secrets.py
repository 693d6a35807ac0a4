"""No credentials of a URL or of the environment are in any message, log or file of a command.

`run` looks for the environment's secrets after every command of every test; here are commands that fail.
"""

import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import SENTINEL, Run, files_with_the_secret
from tests.heads.cohorts import a_cohort, write_cohort
from tests.heads.records import edit_record
from tests.project.examples import all_examples
from trust_cache.heads.fit import fit_heads
from trust_cache.heads.head_settings import presets

URL = f"http://user:{SENTINEL}@127.0.0.1:9/x"
MADE = ("demo", "doctor", "simulate", "images synthesize")  # they have no input that could be missing


OUTPUTS = ("--out", "--history", "--sheet", "--log", "--figure", "--page")


def is_place(word: str) -> bool:
    return not word.startswith("-") and ("/" in word or "." in word) and not word[0].isdigit()


def with_places(line: str, new: str, which: str) -> list[str] | None:
    """Return an example's words with its places changed: the first, the outputs or the inputs."""
    words = shlex.split(line)[1:]
    places = [number for number, word in enumerate(words) if is_place(word)]
    outputs = [number for number in places if words[number - 1] in OUTPUTS]
    chosen = {"outputs": outputs, "inputs": [number for number in places if number not in outputs]}[which]
    if not chosen:
        return None
    return [new.format(word) if number in chosen else word for number, word in enumerate(words)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("which", ["inputs", "outputs"])
def test_credentials_in_a_url_are_refused_by_every_command(run: Run, which: str) -> None:
    lines = [words for line in all_examples() if (words := with_places(line, URL, which)) is not None]
    lines += [
        ["preprocess", "manifest.csv", "--out", "out", "--scheduler", f"tcp://user:{SENTINEL}@127.0.0.1:9"],
        ["no-such-command", URL],
        ["fit-heads", "cache.zarr", f"--no-such-option={URL}"],
    ]
    assert len(lines) > 30
    for words in lines:
        done = run(*words, "--log", "log.txt", "-v")
        assert done.code == 2, words
        assert "expected a URL without credentials" in done.err, words


def test_a_secret_in_a_missing_place_is_hidden_by_every_command(run: Run) -> None:
    """A secret that reaches a place by mistake, as of a variable in a script, is not in the messages."""
    lines = [line for line in all_examples() if "://" not in line]
    asked = [with_places(line, f"{SENTINEL}/{{}}", "inputs") for line in lines]
    commands = [words for words in asked if words is not None and not " ".join(words).startswith(MADE)]
    assert len(commands) > 25
    for words in commands:
        done = run(*words, "--log", "log.txt", "-v")
        assert done.code in (1, 2), (words, done.err)
        assert "***" in done.err or "***" in done.out, words


@pytest.mark.parametrize(
    "words",
    [
        [SENTINEL],
        ["certify", "scores.csv", "--out", "out", "--target", SENTINEL],
        ["certify", "scores.csv", f"--{SENTINEL}"],
        ["cache", SENTINEL],
        ["plan", SENTINEL, SENTINEL],
    ],
)
def test_a_secret_among_the_words_of_wrong_use_is_hidden(run: Run, words: list[str]) -> None:
    assert run(*words).code == 2


def test_credentials_in_a_cell_reach_no_file(run: Run, folder: Path) -> None:
    cells = f"image_id,case_id,label,laterality,projection,path\na,1,0,L,CC,{URL}\nb,2,1,R,CC,b.dcm\n"
    source = folder.parent / f"{folder.name}-source"
    source.mkdir()
    (source / "manifest.csv").write_text(cells)
    for words in (
        ["preprocess", source / "manifest.csv", "--out", "png", "--workers", "1"],
        ["manifest", "generic", source / "manifest.csv", "--out", "copy.csv", "--no-files"],
        ["extract", source / "manifest.csv", "--weights", "random", "--out", "cache.zarr", "--device", "cpu"],
    ):
        done = run(*words, "--log", "log.txt", "-v")
        assert done.code in (0, 1, 2)
        assert files_with_the_secret(folder) == []


def test_credentials_in_a_record_reach_no_other_file(run: Run, folder: Path) -> None:
    """A run from somebody else whose record names its cache by a URL with a password."""
    source = folder.parent / f"{folder.name}-source"
    source.mkdir()
    cache = write_cohort(source / "cache.zarr", *a_cohort(cases=150, positives=40))
    fit_heads(cache, source / "run", configurations={"ce": presets()["ce"]}, epochs=1)
    edit_record(source / "run", cache=URL)
    for words in (
        ["certify", source / "run", "--out", "certified", "--target", "0.9"],
        ["report", source / "run", "--out", "report.html"],
        ["show", source / "run"],
        ["verify", source / "run"],
        ["export-model", source / "run", "--configuration", "ce", "--out", "model"],
        ["trajectories", source / "run", "--out", "figures"],
    ):
        done = run(*words, "--log", "log.txt", "-v")
        assert done.code in (0, 1, 2), (words, done.err)
        assert files_with_the_secret(folder) == [], words


@pytest.mark.slow
def test_a_store_that_does_not_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint, with a password in it, is part of the store's own error."""
    for name, value in {
        "AWS_ENDPOINT_URL": URL, "AWS_ACCESS_KEY_ID": "key", "AWS_MAX_ATTEMPTS": "1",
        "AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": "us-east-1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    for words in (
        ["cache", "info", "s3://bucket/cache.zarr"],
        ["preprocess", "s3://bucket/m.csv", "--out", "o"],
    ):
        done = run(*words, "--log", "log.txt", "-v")
        assert done.code in (2, 3)
