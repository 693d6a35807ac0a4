"""preprocess and images on the command line: from synthetic DICOMs to PNGs and pictures to look at."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from trust_cache.images.png_files import SIGNATURE


def test_from_synthetic_dicoms_to_pngs(run: Run, tmp_path: Path) -> None:
    made = run(
        "images", "synthesize", "--like", "nlbs", "--cases", 3, "--out", tmp_path / "syn", "--workers", 1
    )
    assert made.code == 0
    words = ["manifest", "nlbs", tmp_path / "syn" / "NLBSD_Metadata.csv", "--images", tmp_path / "syn"]
    assert run(*words, "--out", tmp_path / "manifest.csv").code == 0
    words = ["preprocess", tmp_path / "manifest.csv", "--out", tmp_path / "png", "--workers", 1]
    done = run(*words, "--sheet", tmp_path / "sheet.png")
    assert (done.code, "images, 0 of them before" in done.out) == (0, True)
    assert (tmp_path / "sheet.png").read_bytes().startswith(SIGNATURE)
    first = next((tmp_path / "syn").rglob("*.dcm"))
    first.write_bytes(first.read_bytes()[:2_000])
    for path in (tmp_path / "png").glob("*.png"):
        path.unlink()
    again = run(*words)
    assert (again.code, "images failed: 1 of 3 cases is incomplete" in again.err) == (1, True)
    other = next(path for path in (tmp_path / "syn").rglob("*.dcm") if path != first)
    shown = run("images", "show", other, "--out", tmp_path / "steps.png")
    assert shown.code == 0
    assert (tmp_path / "steps.png").read_bytes().startswith(SIGNATURE)
    failed = run("images", "show", first, "--out", tmp_path / "failed.png")
    assert (failed.code, "shows how far it came" in failed.err) == (2, True)
    assert (tmp_path / "failed.png").read_bytes().startswith(SIGNATURE)


@pytest.mark.parametrize(
    "words", [["preprocess", "none.csv", "--out", "png"], ["images", "show", "none.dcm", "--out", "x.png"]]
)
def test_wrong_use(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*words)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["preprocess"], ["images", "show"], ["images", "synthesize"]])
def test_examples(run: Run, command: list[str]) -> None:
    assert f"trust-cache {' '.join(command)}" in run(*command, "--help").out
