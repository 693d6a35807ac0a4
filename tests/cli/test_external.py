"""external on the command line: its tables, JSON, warnings and refusals."""

import json
from pathlib import Path

import polars as pl
import pytest

from tests.cli.conftest import Run
from tests.heads.cohorts import a_cohort, write_cohort


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("sets")
    source = write_cohort(folder / "a.zarr", *a_cohort())
    manifest, features = a_cohort(seed=1)
    renamed = (pl.format("b{}", name).alias(name) for name in ("image_id", "case_id"))
    return source, write_cohort(folder / "b.zarr", manifest.with_columns(*renamed), features)


def test_train_certify_verify_and_overwrite(run: Run, sets: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "external"
    words = ("external", *sets, "--out", out, "--epochs", 2, "--target", 0.9, "--prevalence", 0.005)
    done = run(*words)
    assert done.code == 0, done.err
    for message in ("Ranking of all 200 test cases", "Before training", "Case @90% target", "Exact here"):
        assert message in done.out
    assert "site 1" in done.out  # the column of sites was found
    assert "At a prevalence of 0.5%" in done.out
    assert "at chance on the test cache" in done.err
    for certificate in (out / "certified" / "certificates").iterdir():
        assert run("verify", certificate, "--scores", out).code == 0
    assert run("certify", out, "--out", tmp_path / "certified", "--target", 0.9).code == 0
    again = run(*words)
    assert (again.code, "exists already" in again.err) == (2, True)
    printed = run(*words, "--overwrite", "--json", "--by", "none", "--configurations", "ce-focal")
    assert printed.code == 0
    document = json.loads(printed.out)
    assert [point["configuration"] for point in document["points"]] == ["ce-focal"]
    assert document["subgroups"] == []
    assert document["ranking"][0]["verdict"] == "at chance"
    assert set(document["ranking"][0]["auroc"]) == {"value", "lower", "upper", "confidence"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "0"], "epochs: expected 1 or more"),
        (["--target", "98"], "target"),
        (["--by", "nothing"], "no column 'nothing'"),
        (["--configurations", "closedloop"], "did you mean closed-loop?"),
        (["--resume", "--overwrite"], "found both"),
    ],
)
def test_wrong_use_exits_2_and_writes_nothing(
    run: Run, sets: tuple[Path, Path], tmp_path: Path, words: list[str], message: str
) -> None:
    done = run("external", *sets, "--out", tmp_path / "run", *words)
    assert (done.code, message in done.err) == (2, True)
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in done.err
