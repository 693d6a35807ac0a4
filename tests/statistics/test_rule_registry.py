"""A threshold rule that is registered is usable everywhere, without any other change."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from trust_cache import certify
from trust_cache.certificate.certified_folder import write_certification
from trust_cache.certificate.planning.plan import plan_reach
from trust_cache.certificate.verify import verify
from trust_cache.statistics.rules import RULES, Allowance, MissRule
from trust_cache.studies.rivals.rivals import study_scores
from trust_cache_cli.main import app

MakeScores = Callable[..., pl.DataFrame]
WriteScores = Callable[..., Path]
TOY = MissRule(
    "two-misses",
    "exactly two search positives are dismissed",
    lambda positives, _alpha, _delta: Allowance(2 if positives > 2 else None, needed=3),
)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, TOY.name, TOY)


def test_certify_and_verify(scores_file: WriteScores, tmp_path: Path) -> None:
    scores = scores_file()
    result = certify(scores, rule="two-misses", targets=[0.9])
    table = pl.read_csv(scores, infer_schema=False).with_columns(pl.col("score", "label").cast(pl.Float64))
    search = result.split.table.filter(pl.col("part") == "search")["case_id"].implode()
    positive = table.filter(pl.col("case_id").is_in(search) & (pl.col("label") == 1))
    assert result.points[0].tau == positive["score"].sort()[2]
    write_certification(result, tmp_path / "certified")
    (certificate,) = (tmp_path / "certified" / "certificates").iterdir()
    assert json.loads(certificate.read_text())["rule"] == "two-misses"
    assert verify(certificate, scores).holds
    assert TOY.promise in (tmp_path / "certified" / "table.md").read_text()


def test_plan_and_rivals(scores: MakeScores) -> None:
    (target,) = plan_reach(cases=1_000, positives=100, targets=(0.9,)).targets
    assert target.rules[-1].rule == "two-misses"
    assert (target.rules[-1].search_misses, target.rules[-1].needed) == (2, 3)
    assert {item.rule for item in study_scores(scores()).outcomes} == set(RULES)


def test_the_command_line(scores_file: WriteScores, tmp_path: Path) -> None:
    out = tmp_path / "certified"
    arguments = ["certify", str(scores_file()), "--out", str(out), "--rule", "two-misses", "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["settings"]["rule"] == "two-misses"
    assert "two-misses" in CliRunner().invoke(app, ["plan", "--cases", "900", "--positives", "90"]).stdout
