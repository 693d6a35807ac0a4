"""Laws of what a report reads: folders told apart, certified ones used as they are, nothing led by luck."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.report.material import make_run
from trust_cache.base.errors import InputError
from trust_cache.certificate.certify import certify
from trust_cache.certificate.folder import write_certification
from trust_cache.report.evidence import Options, gather
from trust_cache.report.folders import Folders, sort_folders


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", configurations=("ce", "other"), cases=400, positives=60)


def test_folders_are_told_apart_in_any_order(tmp_path: Path, run: Path) -> None:
    for name, sign in (("a", "sweep.json"), ("b", "compare.json"), ("c", "points.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / sign).write_text("{}")
    (tmp_path / "a" / "scores.csv").write_text("")  # a sweep has scores as well
    external = make_run(tmp_path / "x", external=True, configurations=("ce",), cases=300)
    found = sort_folders([tmp_path / "b", tmp_path / "c", run, tmp_path / "a", external])
    assert found == Folders(run, (external,), (tmp_path / "c",), tmp_path / "a", tmp_path / "b")


def test_what_is_no_folder_of_ours_is_refused(tmp_path: Path, run: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    for paths, message in (
        ([tmp_path / "none"], "no such folder"),
        ([run, tmp_path / "empty"], r"scores\.csv.*points\.json.*sweep\.json.*compare\.json"),
        ([run, tmp_path / "notes.txt"], "found another file"),
        ([], "expected a run folder"),
    ):
        with pytest.raises(InputError, match=message):
            sort_folders(paths)


def test_a_certified_folder_gives_its_very_points_and_bytes(tmp_path: Path, run: Path) -> None:
    made = certify(run, seed=7, targets=(0.95,), delta=0.05, by="site", resplits=3)
    write_certification(made, tmp_path / "certified")
    (found,) = gather(Folders(run, certified=(tmp_path / "certified",)), Options())
    assert found.certification.points == made.points
    assert found.certification.subgroups == made.subgroups
    assert found.certification.spreads == made.spreads
    assert np.array_equal(found.certification.split.search, made.split.search)
    assert found.certification.split.chosen_by == "seed 7"
    files = {path.read_bytes() for path in (tmp_path / "certified" / "certificates").iterdir()}
    assert set(found.certificates.values()) == files


def test_without_one_the_run_is_certified_as_certify_would(run: Path) -> None:
    (found,) = gather(Folders(run), Options(seed=7, targets=(0.9,), by="site"))
    made = certify(run, seed=7, targets=(0.9,), by="site")
    assert found.certification.points == made.points
    assert found.certification.subgroups == made.subgroups


def test_a_certified_folder_inside_a_run_is_used(run: Path) -> None:
    made = certify(run, seed=11)
    write_certification(made, run / "certified")
    (found,) = gather(Folders(run), Options())
    assert found.certification.points == made.points
    (asked,) = gather(Folders(run), Options(seed=12))
    assert asked.certification.points == certify(run, seed=12).points


def test_a_folder_that_does_not_fit_is_refused(tmp_path: Path, run: Path) -> None:
    certified = tmp_path / "certified"
    write_certification(certify(run), certified)
    folders = Folders(run, certified=(certified,))
    with pytest.raises(InputError, match=r"its own settings and split.*--seed"):
        gather(folders, Options(seed=1))
    other = make_run(tmp_path / "other", configurations=("ce", "other"), cases=400, positives=60, seed=9)
    with pytest.raises(InputError, match="certifies other scores"):
        gather(Folders(other, certified=(certified,)), Options())
    document = json.loads((certified / "points.json").read_text())
    document["points"][1]["bound"] *= 0.5
    (certified / "points.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"bound is .* certify again"):
        gather(folders, Options())
    (certified / "points.json").write_text('{"schema": 1}')
    with pytest.raises(InputError, match="not a readable folder of certify"):
        gather(folders, Options())


def test_the_leading_configuration_is_never_chosen_by_evaluation(tmp_path: Path, run: Path) -> None:
    (found,) = gather(Folders(run), Options())
    assert found.led_by == "the largest dismissal on the search subset"
    evaluation = set(found.cohort.case_ids.filter(pl.Series(found.certification.split.evaluation)).to_list())
    split = tmp_path / "split.csv"
    found.certification.split.table.write_csv(split)
    table = pl.read_csv(run / "scores.csv", infer_schema=False)
    leading = found.configurations[found.leading]
    # The leader becomes worthless on evaluation: a choice that looks there would change.
    worthless = (pl.col("configuration") == leading) & pl.col("case_id").is_in(evaluation)
    spoiled = table.with_columns(score=pl.when(worthless).then(pl.lit("0.5")).otherwise(pl.col("score")))
    spoiled.write_csv(run / "scores.csv")
    (again,) = gather(Folders(run), Options(split=split))
    assert again.configurations[again.leading] == leading
    (ours,) = gather(Folders(make_run(tmp_path / "ours", cases=400)), Options())
    assert ours.configurations[ours.leading] == "closed-loop"
    with pytest.raises(InputError, match="expected one of ce, other, found mine"):
        gather(Folders(run), Options(configuration="mine"))


def test_further_runs_share_targets_and_group_where_they_can(tmp_path: Path, run: Path) -> None:
    external = make_run(tmp_path / "x", external=True, configurations=("ce",), cases=300)
    (external / "manifest.csv").unlink()
    first, second = gather(Folders(run, (external,)), Options(targets=(0.9,), by="site"))
    assert first.certification.subgroups
    assert not second.certification.subgroups
    assert second.certification.settings.targets == (0.9,)
    assert second.kind == "external"
