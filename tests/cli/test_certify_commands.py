"""certify and verify on the command line: results, warnings and errors with their exit codes."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.cli.conftest import Run
from trust_cache.base.documents import unseal

WriteScores = Callable[..., Path]
COMMAND = [sys.executable, "-m", "trust_cache_cli"]


def test_certify_prints_the_table_and_the_limits(run: Run, scores_file: WriteScores, tmp_path: Path) -> None:
    scores = scores_file(configurations=("ce", "closed-loop"), images=4, auroc=0.9)
    done = run(
        "certify", scores, "--out", tmp_path / "out", "--by", "site", "--prevalence", 0.005, "--resplits", 5
    )
    assert done.code == 0
    for words in (
        "Case @98% target", "CPU99", "Case AUROC", "Image dismissal at τ95", "closed-loop",
        "caseload reduction rate", "false omission rate", "corrected", "What this does not say",
        "At a prevalence of 0.5%", "label shift only", "site 2", "other random splits",
    ):  # fmt: skip
        assert words in done.out
    _, details = done.out.split("Operating points in detail")
    assert "CPU99" not in details, "only the paper's table has the paper's name"
    assert "warning: few positives" in done.err
    assert "Traceback" not in done.err


def test_certify_json_alone_on_stdout(run: Run, scores_file: WriteScores, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("certify", scores_file(), "--out", out, "--json", "--target", "0.9", "--seed", "3")
    document = json.loads(done.out)
    kept, unchanged = unseal(json.loads((out / "points.json").read_text()))
    assert unchanged
    assert set(kept.pop("files")) > {"points.csv", "split.csv", "certificates/scores@0.9.json"}
    assert document == kept
    assert [point["target"] for point in document["points"]] == [0.9]
    assert document["settings"]["seed"] == 3


def test_not_available_is_a_result(run: Run, scores_file: WriteScores, tmp_path: Path) -> None:
    done = run("certify", scores_file(), "--out", tmp_path / "out", "--rule", "ltt")
    assert done.code == 0
    assert "N/A" in done.out
    assert "infeasible with 30 positives, needs 263" in done.out
    assert "with confidence 1 - delta the miss rate is at most 1 - target" in done.out
    assert "every point is N/A" in done.err


def test_an_existing_folder_is_refused_or_replaced(
    run: Run, scores_file: WriteScores, tmp_path: Path
) -> None:
    scores, out = scores_file(), tmp_path / "out"
    run("certify", scores, "--out", out)
    before = (out / "points.json").read_bytes()
    refused = run("certify", scores, "--out", out, "--seed", 1)
    assert (refused.code, (out / "points.json").read_bytes()) == (2, before)
    assert "exists already; choose another --out, or replace it with --overwrite" in refused.err
    assert run("certify", scores, "--out", out, "--seed", 1, "--overwrite").code == 0
    assert json.loads((out / "points.json").read_text())["settings"]["seed"] == 1
    (out / "mine.txt").write_text("")
    assert run("certify", scores, "--out", out, "--overwrite").code == 2, "files of others are never removed"
    assert {path.name for path in tmp_path.iterdir()} == {"out", scores.name, f"{scores.name}.attempts.json"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (pl.col("score").replace(pl.col("score").first(), float("nan")), "finite"),
        (pl.col("score").replace(pl.col("score").first(), float("inf")), "finite"),
        (pl.lit(2).alias("label"), "label of 0 or 1"),
        (pl.lit(0).alias("label"), "no positives"),
        (pl.lit("same").alias("image_id"), "more than once"),
        (pl.col("score").alias("label"), "label of 0 or 1"),
    ],
)
def test_bad_scores_exit_2_and_write_nothing(
    run: Run, scores_file: WriteScores, tmp_path: Path, change: pl.Expr, message: str
) -> None:
    scores, out = scores_file(), tmp_path / "out"
    pl.read_csv(scores, schema_overrides={"case_id": pl.String}).with_columns(change).write_csv(scores)
    done = run("certify", scores, "--out", out)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""
    assert not out.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["scores.csv"]


@pytest.mark.parametrize(
    "words",
    [
        ["--target", "98"], ["--target", "0"], ["--target", "high"], ["--delta", "1"], ["--rule", "best"],
        ["--by", "nothing"], ["--prevalence", "3"], ["--split", "none.csv"], ["--resplits", "-1"],
        ["--seed", "-1"], ["--unknown"], ["--out", "x" * 300], ["--delta", "0.9"],
    ],
)  # fmt: skip
def test_wrong_use_exits_2(run: Run, scores_file: WriteScores, tmp_path: Path, words: list[str]) -> None:
    done = run("certify", scores_file(), "--out", tmp_path / "out", *words)
    assert done.code == 2
    assert "Traceback" not in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "header", ["case_id,label, label,score", "case_id,label,label ,score", "case_id,label,label,score"]
)
def test_a_column_that_occurs_twice_is_named(run: Run, tmp_path: Path, header: str) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(f"{header}\n1,0,0,0.5\n2,1,1,0.7\n")
    done = run("certify", path, "--out", tmp_path / "out")
    assert (done.code, "column label occurs twice in the header" in done.err) == (2, True)


def test_too_little_memory_says_what_to_do(
    run: Run, scores_file: WriteScores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("trust_cache.api.certificate_functions.certify_scores", full)
    done = run("certify", scores_file(), "--out", tmp_path / "out")
    assert done.code == 3
    assert "not enough memory" in done.err
    assert "run the same command again" in done.err


def test_a_folder_with_other_files_is_refused(run: Run, scores_file: WriteScores, tmp_path: Path) -> None:
    done = run("certify", scores_file(), "--out", tmp_path)
    assert done.code == 2
    assert "scores.csv" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["scores.csv"]


def test_verify_exit_codes(run: Run, scores_file: WriteScores, tmp_path: Path) -> None:
    scores, out = scores_file(), tmp_path / "out"
    run("certify", scores, "--out", out)
    certificate = out / "certificates" / "scores@0.95.json"
    good = run("verify", certificate, "--scores", scores)
    assert (good.code, good.err) == (0, "")
    assert "agrees" in good.out
    content = json.loads(certificate.read_text())
    certificate.write_text(json.dumps({**content, "bound": content["bound"] / 2}))
    edited = run("verify", certificate, "--scores", scores)
    assert edited.code == 1
    assert "bound: the certificate says" in edited.out
    as_json = run("verify", certificate, "--scores", scores, "--json")
    assert as_json.code == 1
    assert json.loads(as_json.out)["disagreements"][0]["field"] == "bound"
    assert run("verify", certificate, "--scores", tmp_path / "none.csv").code == 2
    assert run("verify", tmp_path / "none.json", "--scores", scores).code == 2


def limited(scores: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Run certify where no file may exceed 2,000 bytes: a real refusal of the operating system."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))

    words = [*COMMAND, "certify", str(scores), "--out", str(out), "--overwrite"]
    return subprocess.run(
        words,
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_a_full_disk_exits_3_and_leaves_what_was(run: Run, scores_file: WriteScores, tmp_path: Path) -> None:
    scores, out = scores_file(), tmp_path / "out"
    run("certify", scores, "--out", out, "--seed", 1)
    log = scores.with_name("scores.csv.attempts.json")  # has the attempt, whatever became of its results
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != log}
    done = limited(scores, out)
    assert done.returncode == 3
    assert "no space left on the disk" in done.stderr
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != log}
    assert after == before


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_pipe_that_is_not_utf_8(scores_file: WriteScores, tmp_path: Path, encoding: str) -> None:
    scores = scores_file(configurations=("ünï", "漢字"))
    words = [*COMMAND, "certify", str(scores), "--out", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    plain = subprocess.run(words, check=True, capture_output=True, env=environment)
    assert b"Case AUROC" in plain.stdout
    for_programs = subprocess.run(
        [*words, "--json", "--overwrite"], check=True, capture_output=True, env=environment
    )
    assert json.loads(for_programs.stdout)["points"][0]["configuration"] == "ünï"


def test_an_output_without_room_and_one_that_ends_early(scores_file: WriteScores, tmp_path: Path) -> None:
    words = [*COMMAND, "certify", str(scores_file()), "--out", str(tmp_path / "out")]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 3
    assert b"Traceback" not in done.stderr


def test_ctrl_c_exits_130_and_leaves_nothing(scores_file: WriteScores, tmp_path: Path) -> None:
    scores, out = scores_file(), tmp_path / "out"
    words = [*COMMAND, "certify", str(scores), "--out", str(out), "--resplits", "1000000", "-v"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("resplits" in line for line in iter(process.stderr.readline, ""))
        process.send_signal(signal.SIGINT)
        printed, complaint = process.communicate(timeout=30)
    assert process.returncode == 130
    assert printed == ""
    assert "Traceback" not in complaint
    assert "Stopped by Ctrl-C: no results were written, earlier ones are unchanged." in complaint
    assert [path.name for path in tmp_path.iterdir()] == ["scores.csv"]


def test_an_error_of_ours_is_70_and_in_the_log(
    run: Run, scores_file: WriteScores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("trust_cache.certificate.certify.build_cohort", broken)
    log = tmp_path / "log.txt"
    done = run("certify", scores_file(), "--out", tmp_path / "out", "--log", log)
    assert done.code == 70
    assert "ZeroDivisionError: planted" in done.err
    assert "Traceback" not in done.err
    assert "Traceback" in log.read_text()


def test_a_log_that_cannot_be_written_is_wrong_use(
    run: Run, scores_file: WriteScores, tmp_path: Path
) -> None:
    done = run("certify", scores_file(), "--out", tmp_path / "out", "--log", tmp_path / "no" / "log.txt")
    assert done.code == 2
    assert "cannot write there" in done.err
