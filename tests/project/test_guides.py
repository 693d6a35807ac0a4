"""The guides: their commands and their Python run unchanged, at a small size."""

import re
import shlex
from pathlib import Path

import polars as pl
import pytest

from tests.cli.conftest import Run, run  # noqa: F401
from tests.conftest import make_scores
from tests.project.pages import DOCS, blocks, commands, run_python, section
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.extract.view_features import torch_threads

GUIDES = DOCS / "guides"
# A tenth of the size, on one thread: `make bench` runs the full size.
SMALLER = {
    "simulate": ("--cases", "600"),
    "extract": ("--image-size", "38x23"),
    "fit-heads": ("--epochs", "5"),
    "sweep": ("--epochs", "2"),
    "compare": ("--resplits", "20"),
}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_all(run: Run, lines: list[str]) -> None:  # noqa: F811
    for line in lines:
        words = shlex.split(line)[1:]
        with torch_threads(1):
            done = run(*words, *SMALLER.get(words[0], ()))
        assert done.code == 0, (line, done.err)


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("shape", [{}, {"images": 3}, {"images": 2, "configurations": ("scores", "other")}])
def test_scores_and_the_recomputation_by_scipy(workplace: Path, run: Run, shape: dict[str, object]) -> None:  # noqa: F811
    make_scores(auroc=0.9, **shape).write_csv(workplace / "scores.csv")  # type: ignore[arg-type]
    chosen = commands(text_of("guides/certify.md"))
    assert [line.split()[1] for line in chosen] == ["certify", "verify", "plan"]
    run_all(run, chosen)
    (recomputation,) = blocks("python", section("Recompute a certificate yourself", DOCS / "statistics.md"))
    assert "scores_sha256" in recomputation
    run_python(recomputation)
    (python,) = blocks("python", text_of("guides/certify.md"))
    run_python(python)


@pytest.mark.slow
def test_images(workplace: Path, run: Run) -> None:  # noqa: F811
    chosen = commands(text_of("guides/features.md"))
    stages = ["images", "manifest", "extract", "preprocess", "simulate", "cache", "cache"]
    assert [line.split()[1] for line in chosen] == stages
    run_all(run, chosen)
    assert (workplace / "sheet.png").stat().st_size > 1_000
    (python,) = blocks("python", text_of("guides/features.md"))
    run_python(python)
    scores = pl.read_csv(workplace / "scores.csv")
    assert scores.height == open_cache("again.zarr").images == scores["score"].count()


@pytest.mark.slow
def test_heads_and_sweeps(workplace: Path, run: Run) -> None:  # noqa: F811
    page = text_of("guides/heads.md")
    run_all(run, commands(page))
    (toml,) = blocks("toml", page)
    (workplace / "mine.toml").write_text(toml)
    words = ["fit-heads", "cache.zarr", "--out", "other", "--epochs", "1"]
    assert run(*words, "--configurations", "ce,closed-loop,mine.toml", "--low-memory").code == 0


@pytest.mark.slow
def test_external(workplace: Path, run: Run) -> None:  # noqa: F811
    run_all(run, commands(text_of("guides/external.md")))
    assert (workplace / "external" / "certified" / "points.json").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("workplace")
def test_compare(run: Run) -> None:  # noqa: F811
    run_all(run, commands(text_of("guides/compare.md")))


@pytest.mark.slow
def test_getting_started(workplace: Path, run: Run) -> None:  # noqa: F811
    make_scores(auroc=0.9).write_csv(workplace / "scores.csv")
    page = text_of("getting-started.md")
    run_all(run, commands(section("A certificate in ten seconds", DOCS / "getting-started.md")))
    for folder in ("certified", "report.html"):
        (workplace / folder).rename(workplace / f"first-{folder}")
    run_all(run, commands(section("The two stages", DOCS / "getting-started.md")))
    (python,) = blocks("python", page)
    run_python(python)
    assert (workplace / "dismissal.svg").exists()


def test_options_on_the_pages_exist(run: Run) -> None:  # noqa: F811
    commands_named = (
        "certify",
        "fit-heads",
        "sweep",
        "compare",
        "extract",
        "preprocess",
        "external",
        "rivals",
        "manifest embed",
        "manifest vindr",
        "manifest dicom",
    )
    shown = " ".join(
        run(*name.split(), "--help").out
        for name in (*commands_named, "report", "export-model", "triage", "monitor")
    )
    for page in GUIDES.glob("*.md"):
        for option in set(re.findall(r"`--([a-z-]+)", page.read_text(encoding="utf-8"))):
            assert f"--{option}" in shown, (page.name, option)
