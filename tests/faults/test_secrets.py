"""No credentials of a URL or of the environment are in any message, log or file of a command."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run

SENTINEL = "Sentinel8f2c"
URL = f"http://user:{SENTINEL}@127.0.0.1:9/x"
COMMANDS = [
    ["preprocess", URL, "--out", "out"],
    ["preprocess", "manifest.csv", "--out", URL],
    ["extract", URL, "--weights", "random", "--out", "out.zarr"],
    ["extract", "manifest.csv", "--weights", "random", "--out", f"{URL}.zarr", "--device", "cpu"],
    ["fit-heads", URL, "--out", "out"],
    ["sweep", URL, "--file", "sweep.toml", "--out", "out"],
    ["cache", "info", URL],
    ["cache", "verify", URL],
    ["cache", "convert", URL, "--out", "out.h5"],
    ["manifest", "generic", "manifest.csv", "--images", URL, "--out", "out.csv"],
    ["certify", URL, "--out", "out"],
    ["report", URL, "--out", "out.html"],
    ["triage", URL, "--model", URL, "--out", "out.csv"],
    ["preprocess", "manifest.csv", "--out", "out", "--scheduler", f"tcp://user:{SENTINEL}@127.0.0.1:9"],
    ["no-such-command", URL],
    ["fit-heads", "cache.zarr", f"--no-such-option={URL}"],
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.toml").write_text("")
    (tmp_path / "manifest.csv").write_text("image_id,case_id,label,laterality,path\na,1,0,L,a.dcm\n")
    return tmp_path


def assert_no_secret(folder: Path, *printed: str) -> None:
    written = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert not [name for name, content in written.items() if SENTINEL.encode() in content]
    assert SENTINEL not in "".join(printed)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_credentials_in_a_url_are_refused(run: Run, folder: Path, words: list[str]) -> None:
    done = run(*words, "--log", "log.txt", "-v")
    assert done.code == 2
    assert "expected a URL without credentials" in done.err
    assert_no_secret(folder, done.out, done.err)


def test_credentials_in_a_cell_reach_no_file(run: Run, folder: Path) -> None:
    cells = f"image_id,case_id,label,laterality,projection,path\na,1,0,L,CC,{URL}\nb,2,1,R,CC,b.dcm\n"
    source = folder.parent / "source"
    source.mkdir(exist_ok=True)
    (source / "manifest.csv").write_text(cells)
    for words in (
        ["preprocess", source / "manifest.csv", "--out", "png", "--workers", "1"],
        ["manifest", "generic", source / "manifest.csv", "--out", "copy.csv", "--no-files"],
        ["extract", source / "manifest.csv", "--weights", "random", "--out", "cache.zarr", "--device", "cpu"],
    ):
        done = run(*words, "--log", "log.txt", "-v")
        assert done.code in (0, 1, 2)
        assert_no_secret(folder, done.out, done.err)


def test_secrets_of_the_environment_reach_no_message(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SENTINEL)
    done = run("certify", f"{SENTINEL}/scores.csv", "--out", "out", "--log", "log.txt", "-v")
    assert done.code == 2
    assert "***/scores.csv" in done.err
    assert_no_secret(folder, done.out, done.err)
