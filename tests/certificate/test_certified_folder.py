"""The certified folder: whole or absent, and every certificate in it can be recomputed or refuted."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.conftest import make_scores
from trust_cache import certify
from trust_cache.base.digests import rows_sha256
from trust_cache.base.documents import json_bytes
from trust_cache.base.errors import InputError
from trust_cache.certificate.certified_folder import write_certification
from trust_cache.certificate.points import Terms, choose_threshold, evaluate
from trust_cache.certificate.score_table import build_cohort, read_scores
from trust_cache.certificate.split import draw_split
from trust_cache.certificate.verify import as_document, verify

WriteScores = Callable[..., Path]
KEYS = {
    "schema", "scores_sha256", "split_sha256", "rule", "seed", "split_origin", "aggregation", "protocol",
    "composition", "attempts", "versions",
}  # fmt: skip


@pytest.fixture
def certified(scores_file: WriteScores, tmp_path: Path) -> tuple[Path, Path]:
    scores = scores_file(configurations=("a", "closed-loop"), images=2, auroc=0.9)
    out = tmp_path / "certified"
    write_certification(certify(scores, prevalence=0.01, by="site", resplits=3), out)
    return scores, out


def edit(path: Path, **changes: object) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **changes}))


def test_the_folder_holds_what_design_names(certified: tuple[Path, Path]) -> None:
    _, out = certified
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert names == {
        "split.csv", "points.csv", "points.json", "table.md", "table.tex", "subgroups.csv", "resplits.csv",
        "certificates/a@0.98.json", "certificates/a@0.95.json",
        "certificates/closed-loop@0.98.json", "certificates/closed-loop@0.95.json",
    }  # fmt: skip
    assert (out / "split.csv").read_text().splitlines()[0] == "case_id,part"


def test_points_agree_between_files(certified: tuple[Path, Path]) -> None:
    _, out = certified
    document = json.loads((out / "points.json").read_text())
    with (out / "points.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(document["points"]) == 4
    for row, point in zip(rows, document["points"], strict=True):
        for key, value in point.items():
            text = {"None": "", "True": "true", "False": "false"}.get(str(value), str(value))
            assert row[key] == text, key
        certificate = json.loads(
            (out / f"certificates/{point['configuration']}@{point['target']}.json").read_text()
        )
        assert {key: certificate[key] for key in point} == point
        assert set(certificate) == set(point) | KEYS


def test_every_certificate_verifies(certified: tuple[Path, Path]) -> None:
    scores, out = certified
    for certificate in (out / "certificates").iterdir():
        assert verify(certificate, scores).holds
        assert verify(certificate, scores, out / "split.csv").holds


def test_row_order_and_further_columns_do_not_matter(certified: tuple[Path, Path], tmp_path: Path) -> None:
    scores, out = certified
    table = pl.read_csv(scores, infer_schema=False)
    shuffled = tmp_path / "shuffled.csv"
    table.drop("site").sample(fraction=1.0, shuffle=True, seed=3).select(
        sorted(table.drop("site").columns)
    ).write_csv(shuffled)
    assert verify(out / "certificates" / "a@0.98.json", shuffled).holds


EDITS: dict[str, Any] = {
    "configuration": "a", "target": 0.8, "tau": 0.5, "search_cases": 1, "search_positives": 1, "cases": 1,
    "positives": 1, "dismissed": 1, "positives_dismissed": 100, "dismissal": 0.5, "recall": 0.5,
    "recall_lower": 0.5, "bound": 0.0001, "bound_corrected": 0.0001, "compared": 2, "delta": 0.05,
    "prevalence": 0.5, "met": None, "reason": "because", "auroc_case": 0.99, "auroc_image": 0.99,
    "image_dismissal": 0.99, "false_omission_rate": 0.5,
    "assumed_prevalence": 0.5, "assumed_false_omission_rate_upper": 0.0, "assumed_missed_per_1000_upper": 0.0,
    "approved": True, "scores_sha256": "0" * 64, "split_sha256": "0" * 64, "rule": "crc",
    "versions": "1.0",
}  # fmt: skip


@pytest.mark.parametrize("field", EDITS)
def test_an_edited_certificate_is_refuted_by_field(certified: tuple[Path, Path], field: str) -> None:
    scores, out = certified
    certificate = out / "certificates" / "closed-loop@0.98.json"
    assert json.loads(certificate.read_text()).get(field) != EDITS[field]
    edit(certificate, **{field: EDITS[field]})
    found = verify(certificate, scores)
    named = {item.field for item in found.disagreements}
    # What a recomputation takes as given shows in what follows from it.
    follows = {"configuration": "tau", "delta": "bound"}
    follows |= {"assumed_prevalence": "assumed_missed_per_1000_upper", "rule": "tau"}
    assert follows.get(field, field) in named
    if field not in follows:
        assert named == {field}


def test_fewer_compared_with_a_fitting_bound_is_refuted(certified: tuple[Path, Path]) -> None:
    """compared 4 -> 2, with everything that follows from it: the composition still has four points."""
    scores, out = certified
    certificate = out / "certificates" / "closed-loop@0.98.json"
    stated = json.loads(certificate.read_text())
    assert stated["composition"] == {
        "configurations": ["a", "closed-loop"], "targets": [0.98, 0.95],
        "groups": {"site": ["site 0", "site 1", "site 2"]}, "looks": 1,
    }  # fmt: skip
    cohort = build_cohort(read_scores(scores))
    index = cohort.configurations.index("closed-loop")
    split = draw_split(cohort, 0)
    terms = Terms("recall", 0.01, 2, 0.01, stated["limit"])
    threshold = choose_threshold(cohort, split, index, 0.98, terms)
    forged = evaluate(cohort, split, index, threshold, terms).as_document()
    assert forged["compared"] == 2
    assert forged["bound_corrected"] < stated["bound_corrected"]
    edit(certificate, **forged)
    assert {"compared", "bound_corrected"} <= {
        item.field for item in verify(certificate, scores).disagreements
    }
    # With fewer targets or configurations in the composition too, points.json and the scores disagree.
    edit(certificate, composition=stated["composition"] | {"targets": [0.98]})
    assert {item.field for item in verify(certificate, scores).disagreements} == {"composition"}
    edit(certificate, composition=stated["composition"] | {"configurations": ["closed-loop"]})
    named = {item.field for item in verify(certificate, scores).disagreements}
    assert named == {"composition.configurations"}
    edit(certificate, **stated | {"composition": stated["composition"] | {"groups": {"site": ["site 0"]}}})
    named = {item.field for item in verify(certificate, scores).disagreements}
    assert named == {"composition.groups.site"}


@pytest.mark.parametrize("field", sorted(set(EDITS) - {"approved"}))
def test_a_missing_field_is_named(certified: tuple[Path, Path], field: str) -> None:
    scores, out = certified
    certificate = out / "certificates" / "a@0.98.json"
    content = json.loads(certificate.read_text())
    del content[field]
    certificate.write_text(json.dumps(content))
    named = {item.field for item in verify(certificate, scores).disagreements}
    assert field in named or (field == "assumed_prevalence" and named)


@pytest.mark.parametrize(
    "changes",
    [
        {"delta": "0.01"}, {"delta": True}, {"target": None}, {"compared": 0}, {"compared": 3},
        {"compared": 2.0}, {"configuration": "other"}, {"rule": ["recall"]}, {"versions": None},
        {"assumed_prevalence": 2}, {"dismissed": 1.5}, {"met": 1}, {"tau": "0.1"}, {"bound": 10**400},
        {"bound": float("nan")}, {"recall": float("inf")}, {"compared": 2 * 10**400}, {"delta": 5e-324},
        {"configuration": "\ud800"}, {"versions": {}}, {"versions": {"trust-cache": 1}},
    ],
)  # fmt: skip
def test_nonsense_values_are_refuted_not_a_crash(
    certified: tuple[Path, Path], changes: dict[str, Any]
) -> None:
    scores, out = certified
    certificate = out / "certificates" / "closed-loop@0.98.json"
    edit(certificate, **changes)
    found = verify(certificate, scores)
    assert next(iter(changes)) in {item.field for item in found.disagreements}
    assert json.loads(json_bytes(as_document(found)))["holds"] is False
    assert all(str(item) for item in found.disagreements)


def test_other_scores_and_another_split_are_refuted(certified: tuple[Path, Path], tmp_path: Path) -> None:
    scores, out = certified
    certificate = out / "certificates" / "a@0.98.json"
    table = pl.read_csv(scores)
    other = tmp_path / "other.csv"
    pl.read_csv(scores, infer_schema=False).with_columns(score=table["score"] * 0.5).write_csv(other)
    assert {"scores_sha256", "tau"} <= {item.field for item in verify(certificate, other).disagreements}
    split = pl.read_csv(out / "split.csv", infer_schema=False)
    swapped = tmp_path / "swapped.csv"
    flipped = pl.col("part").replace({"search": "evaluation", "evaluation": "search"})
    split.with_columns(flipped).write_csv(swapped)
    assert "split_sha256" in {item.field for item in verify(certificate, scores, swapped).disagreements}
    lacking = tmp_path / "lacking.csv"
    split.head(10).write_csv(lacking)
    (only,) = verify(certificate, scores, lacking).disagreements
    assert only.field == "split_sha256"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not a readable JSON"),
        ("[]", "expected a certificate"),
        ("{}", "expected a certificate"),
        ('{"schema": 2, "tau": 1}', "expected certificate schema 1, found 2"),
        ('{"schema": true, "tau": 1}', "schema"),
        ('{"schema": 1, "points": []}', "none of the keys of a certificate"),
        ("[" * 100_000, "not a readable JSON"),
    ],
)
def test_what_is_no_certificate(certified: tuple[Path, Path], content: str, said: str) -> None:
    scores, out = certified
    path = out / "certificates" / "a@0.98.json"
    path.write_text(content)
    with pytest.raises(InputError, match=said):
        verify(path, scores)


def test_a_certificate_without_its_split_says_so(certified: tuple[Path, Path]) -> None:
    scores, out = certified
    (out / "split.csv").unlink()
    with pytest.raises(InputError, match="name one with --split"):
        verify(out / "certificates" / "a@0.98.json", scores)


def test_no_cell_is_a_formula_and_the_split_is_read_back(tmp_path: Path) -> None:
    """Case ids, configurations and groups that a spreadsheet would compute; the digests are of the names."""
    signs = ("=", "+", "-", "@", "'", "'=")
    table = make_scores(configurations=("=1+1", "@b"))
    ids = [f"{signs[int(name) % 6]}{name}" for name in table["case_id"]]
    table = table.with_columns(pl.Series("case_id", ids), site="=" + pl.col("site"))
    made = certify(table, by="site", resplits=2, band=True)
    out = tmp_path / "out"
    write_certification(made, out)
    for path in out.glob("*.csv"):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        texts = [row[name] for row in rows for name in {"case_id", "configuration", "group"} & set(row)]
        assert texts
        assert not [text for text in texts if text.startswith(("=", "+", "-", "@"))], path.name
    again = certify(table, split=out / "split.csv")
    assert again.split.sha256 == made.split.sha256
    assert [point.tau for point in again.points] == [point.tau for point in made.points]
    rows = sorted((name, part) for name, part in made.split.table.iter_rows())
    assert rows_sha256(rows) == made.split.sha256


def test_hostile_names_stay_in_the_folder(scores_file: WriteScores, tmp_path: Path) -> None:
    names = ("../../evil", "a|b\n`c`", "<script>", "x" * 300, "Same", "same", "ok & 100 % fine_$", "ünï")
    scores = scores_file(cases=60, positives=20, configurations=names)
    out = tmp_path / "deep" / "certified"
    write_certification(certify(scores), out)
    files = sorted((out / "certificates").iterdir())
    assert len(files) == 2 * len(names)
    assert not list(tmp_path.rglob("evil*"))
    assert len({path.name.casefold() for path in files}) == len(files)
    stated = {json.loads(path.read_text())["configuration"] for path in files}
    assert stated == set(names)
    assert all(verify(path, scores).holds for path in files)
    table = (out / "table.md").read_text()
    assert all(line.count(" | ") == 7 for line in table.splitlines()[2:4])
    assert "<script>" not in table
    assert r"ok \& 100 \% fine\_\$" in (out / "table.tex").read_text()
