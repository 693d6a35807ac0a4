"""What the terminal shows: tables whole at any width, what Ctrl-C keeps, commands that work as typed."""

import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import Run
from tests.conftest import make_scores
from tests.heads.cohorts import a_cohort, write_cohort
from trust_cache.base.text_tables import Table
from trust_cache.certificate.certify import certify
from trust_cache.certificate.point_tables import all_tables
from trust_cache_cli import output
from trust_cache_cli.machine_commands import next_commands

SEED = 1  # both points are certified
AT_80 = """\
Operating points in detail (threshold rule: recall)

                                                     Positives   Dismissal
  Configuration   Target          τ      Dismissed   dismissed       (CRR)
 ──────────────────────────────────────────────────────────────────────────
  scores             98%   0.720496   889 of 1,200    2 of 120      74.08%
  scores             95%   0.759443   931 of 1,200    6 of 120      77.58%


                                                                Recall
                                               Bound                at
  Configuration   Target     FOR   Bound   corrected   Recall    least
 ──────────────────────────────────────────────────────────────────────
  scores             98%   0.22%   0.94%       1.04%   98.33%   93.18%
  scores             95%   0.64%   1.56%       1.67%   95.00%   88.29%


  Configuration   Target      Status
 ────────────────────────────────────
  scores             98%   certified
  scores             95%   certified

"""
AT_140 = """\
Operating points in detail (threshold rule: recall)

                                                                                                                  Recall
                                                     Positives   Dismissal                       Bound                at
  Configuration   Target          τ      Dismissed   dismissed       (CRR)     FOR   Bound   corrected   Recall    least      Status
 ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
  scores             98%   0.720496   889 of 1,200    2 of 120      74.08%   0.22%   0.94%       1.04%   98.33%   93.18%   certified
  scores             95%   0.759443   931 of 1,200    6 of 120      77.58%   0.64%   1.56%       1.67%   95.00%   88.29%   certified

"""  # noqa: E501


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> object:
    def show(table: Table, width: int) -> list[str]:
        monkeypatch.setattr(output, "_PIPE_WIDTH", width)
        capsys.readouterr()
        output.show_table(table)
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return show


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
def test_every_cell_of_certify_is_whole_at_any_width(printed: object, width: int) -> None:
    scores = make_scores(configurations=("ce", "closed-loop"), images=2, auroc=0.9)
    made = certify(scores, by=("site",), prevalence=0.005, resplits=3)
    for name, table in all_tables(made).items():
        lines = printed(table, width)  # type: ignore[operator]
        drawn = [line for line in lines if not line.startswith((table.title, table.legend[:20] or "\0"))]
        assert max(map(len, drawn)) <= width, name
        text = "\n".join(drawn)
        for row in table.rows:
            assert all(cell in text for cell in row), (name, row)


TABLES = st.integers(1, 9).flatmap(
    lambda columns: st.tuples(
        st.lists(st.text("ab ", min_size=1, max_size=30), min_size=columns, max_size=columns),
        st.lists(st.lists(st.text("xyz", max_size=12), min_size=columns, max_size=columns), max_size=4),
    )
)


@given(TABLES, st.integers(1, 120))
def test_parts_hold_every_column_once(table: tuple[list[str], list[list[str]]], width: int) -> None:
    header, rows = table
    made = Table("title", tuple(header), tuple(map(tuple, rows)))
    parts = made.parts(width, 3)
    assert (header[0], *(name for part in parts for name in part.header[1:])) == made.header
    for number, row in enumerate(made.rows):
        assert (row[0], *(cell for part in parts for cell in part.rows[number][1:])) == row
    for part in parts:
        assert part.header[0] == header[0]


def certified_scores() -> Table:
    return replace(all_tables(certify(make_scores(auroc=0.97, seed=SEED)))["details"], legend="")


@pytest.mark.parametrize(("width", "expected"), [(80, AT_80), (140, AT_140)])
def test_the_table_of_certify_as_a_picture(printed: object, width: int, expected: str) -> None:
    assert printed(certified_scores(), width) == expected.splitlines()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("words", "function", "said"),
    [
        (
            "preprocess m.csv --out o",
            "api.image_functions.preprocess",
            "finished pictures are kept in o; the same",
        ),
        (
            "extract m.csv --weights random --out o",
            "cache.extract.extract.extract",
            "finished shards are kept in o; the same command resumes",
        ),
        (
            "fit-heads c.zarr --out o",
            "api.training_functions.fit_heads",
            "finished folds are kept beside o; continue with",
        ),
        (
            "external a.zarr b.zarr --out o",
            "api.training_functions.external",
            "what was finished is kept beside o; continue with the same command and --resume",
        ),
        ("sweep c.zarr --out o --grid lr=1", "api.training_functions.sweep", "finished heads are kept in o;"),
        (
            "simulate --like nlbs --out o",
            "synthetic.feature_cohort.simulate_cache",
            "o is unfinished; delete it",
        ),
        ("cache convert c.zarr --out o", "cache.copy_cache.convert_cache", "o is unfinished; delete it"),
        (
            "images synthesize --like rsna --cases 2 --out o",
            "api.image_functions.synthesize_images",
            "finished files are kept in o; the same command resumes",
        ),
        ("triage d --model m --out o", "clinic.triage.triage", "finished cases are kept beside o; the same"),
        (
            "compare run --out o",
            "api.study_functions.compare",
            "no results were written, earlier ones are",
        ),
        ("rivals c.zarr --out o", "api.study_functions.rivals", "no results were written"),
        (
            "reproduce --nlbs c.zarr --out o",
            "api.reproduce.reproduce",
            "complete steps are kept in o; the same command with --resume continues",
        ),
        ("demo --out o", "api.demo.demo", "finished steps are kept in o; the same command resumes"),
    ],
)
def test_ctrl_c_says_what_is_kept(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, function: str, said: str
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"trust_cache.{function}", stop)
    done = run(*shlex.split(words))
    assert done.code == 130
    assert f"Stopped by Ctrl-C: {said}" in done.err


@pytest.mark.slow
def test_the_commands_that_demo_prints_work_as_typed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the user's folder, with a program that is not on the path and a folder with a space in its name."""
    script = tmp_path / "bin" / "trust-cache"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m trust_cache_cli "$@"\n')
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    out = Path("my demo") / "features"
    out.mkdir(parents=True)
    cache = write_cohort(out / "rsna.zarr", *a_cohort(cases=120, positives=60))
    folders = {name: out / name for name in ("run", "certified")}
    assert run("fit-heads", cache, "--out", folders["run"], "--epochs", 1).code == 0
    assert run("certify", folders["run"], "--out", folders["certified"]).code == 0
    made = SimpleNamespace(features=SimpleNamespace(folders=folders, cache=cache))
    monkeypatch.setattr(sys, "argv", [str(script)])
    commands = next_commands(made)  # type: ignore[arg-type]
    assert len(commands) == 4
    for words in commands:
        done = subprocess.run(words, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
        assert done.returncode == 0, (words, done.stderr)
