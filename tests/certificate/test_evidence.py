"""Evidence: certified folders are used as they are, and the leading configuration is not chosen by luck."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.heads.records import seal
from tests.report.material import make_run
from trust_cache.base.errors import InputError
from trust_cache.certificate.certified_folder import write_certification
from trust_cache.certificate.certify import certify
from trust_cache.certificate.evidence import Options, gather


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", configurations=("ce", "other"), cases=400, positives=60)


def test_a_certified_folder_gives_its_very_points_and_bytes(tmp_path: Path, run: Path) -> None:
    made = certify(run, seed=7, targets=(0.95,), delta=0.05, by="site", resplits=3)
    write_certification(made, tmp_path / "certified")
    (found,) = gather([run], Options(), [tmp_path / "certified"])
    assert found.certification.points == made.points
    assert found.certification.subgroups == made.subgroups
    assert found.certification.spreads == made.spreads
    assert np.array_equal(found.certification.split.search, made.split.search)
    assert found.certification.split.origin == "seed 7"
    files = {path.read_bytes() for path in (tmp_path / "certified" / "certificates").iterdir()}
    assert set(found.certificates.values()) == files


def test_without_one_the_run_is_certified_as_certify_would(run: Path) -> None:
    (found,) = gather([run], Options(seed=7, targets=(0.9,), by=("site",)))
    made = certify(run, seed=7, targets=(0.9,), by="site")
    assert found.certification.points == made.points
    assert found.certification.subgroups == made.subgroups


def test_a_certified_folder_inside_a_run_is_used(run: Path) -> None:
    made = certify(run, seed=11)
    write_certification(made, run / "certified")
    (found,) = gather([run], Options())
    assert found.certification.points == made.points
    (asked,) = gather([run], Options(seed=12))
    assert asked.certification.points == certify(run, seed=12).points


def test_a_folder_that_does_not_fit_is_refused(tmp_path: Path, run: Path) -> None:
    certified = tmp_path / "certified"
    write_certification(certify(run), certified)
    with pytest.raises(InputError, match=r"its own settings and split.*--seed"):
        gather([run], Options(seed=1), [certified])
    other = make_run(tmp_path / "other", configurations=("ce", "other"), cases=400, positives=60, seed=9)
    with pytest.raises(InputError, match="certifies other scores"):
        gather([other], Options(), [certified])
    document = json.loads((certified / "points.json").read_text())
    document["points"][1]["bound"] *= 0.5
    (certified / "points.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"bound is .* certify again"):
        gather([run], Options(), [certified])
    (certified / "points.json").write_text('{"schema": 1}')
    with pytest.raises(InputError, match=r"points.json: .*expected the key points, found none"):
        gather([run], Options(), [certified])


@pytest.mark.parametrize(
    "changes", [{"met": True, "bound": 0.0001}, {"compared": 2}, {"status": "certified"}]
)
def test_an_edited_certificate_is_not_offered(tmp_path: Path, run: Path, changes: dict[str, object]) -> None:
    certified = tmp_path / "certified"
    write_certification(certify(run), certified)
    gather([run], Options(), [certified])
    path = next(iter(sorted((certified / "certificates").iterdir())))
    stated = json.loads(path.read_text())
    assert any(stated[key] != value for key, value in changes.items())
    path.write_text(json.dumps(stated | changes))
    with pytest.raises(InputError, match=r"the certificate of .* the scores and the split give"):
        gather([run], Options(), [certified])


def test_the_leading_configuration_is_never_chosen_by_evaluation(tmp_path: Path, run: Path) -> None:
    (found,) = gather([run], Options())
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
    seal(run)
    (again,) = gather([run], Options(split=split))
    assert again.configurations[again.leading] == leading
    (ours,) = gather([make_run(tmp_path / "ours", cases=400)], Options())
    assert ours.configurations[ours.leading] == "closed-loop"
    with pytest.raises(InputError, match="expected one of ce, other, found mine"):
        gather([run], Options(configuration="mine"))


def test_further_runs_share_targets_and_group_where_they_can(tmp_path: Path, run: Path) -> None:
    external = make_run(tmp_path / "x", external=True, configurations=("ce",), cases=300)
    (external / "manifest.csv").unlink()
    first, second = gather([run, external], Options(targets=(0.9,), by=("site",)))
    assert first.certification.subgroups
    assert not second.certification.subgroups
    assert second.certification.settings.targets == (0.9,)
    assert second.kind == "external"
