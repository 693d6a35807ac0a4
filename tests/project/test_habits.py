"""The files by which others find, cite, check and report: they parse, and agree with the package."""

import tomllib

import yaml

from tests.project.pages import ROOT
from trust_cache.base.versions import versions_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_names_the_paper_and_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"] == versions_of()["trust-cache"]
    assert citation["license"] == PROJECT["license"]
    assert citation["preferred-citation"]["title"].startswith("TRUST: Threshold-Recalibrated")
    names = [author["family-names"] for author in citation["preferred-citation"]["authors"]]
    assert names == ["Shafie", "Hamilton", "Kendall", "Doyle", "Meruvia Pastor"]


def test_the_workflow_runs_everything() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert ".ci/run" in [step.get("run") for job in jobs.values() for step in job["steps"]]
    everything = (ROOT / ".ci" / "run").read_text()
    parts = {word for line in everything.splitlines() if line.startswith("part ") for word in line.split()}
    assert {"lint", "test", "test-slow", "test-browser", "docs", "dist"} <= parts


def test_commits_are_checked_by_the_tools_of_the_lint_target() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    lint = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    for hook in hooks:
        assert hook["entry"].removeprefix(".venv/bin/").split()[0] in lint


def test_issues_have_templates() -> None:
    for name in ("bug.yml", "feature.yml"):
        template = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / name).read_text())
        assert template["name"]
        assert template["body"]
