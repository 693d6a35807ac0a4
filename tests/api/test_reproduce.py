"""reproduce: every published number beside ours, killed and resumed, with one data set or both."""

import csv
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import trust_cache as tc
from trust_cache.api.reproduce import Listener, ReproduceResult, describe_encoder
from trust_cache.base.errors import InputError
from trust_cache.certificate.points import Terms, choose_threshold, evaluate
from trust_cache.certificate.score_table import build_cohort, read_scores
from trust_cache.certificate.split import draw_split
from trust_cache.studies.reproduction.cohort_counts import refuse_other_data, unlike_the_data
from trust_cache.studies.reproduction.reproduction import Reproduction
from trust_cache.synthetic.feature_cohort import SimulatedCohort, simulate_cache, simulated_fingerprint

GOLDEN = Path(__file__).parents[1] / "goldens" / "paper_tables.csv"
QUICK: dict[str, Any] = {"epochs": 2, "repeats": 2, "resplits": 5, "resamples": 200, "threads": 1}
CASES, DIM = 400, 16


class StopError(Exception):
    """Raised in place of a kill."""


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("caches")
    for seed, like in enumerate(("rsna", "nlbs")):
        simulate_cache(like, folder / f"{like}.zarr", views=1, cases=CASES, dim=DIM, seed=seed)
    return {like: folder / f"{like}.zarr" for like in ("rsna", "nlbs")}


@pytest.fixture(scope="module")
def whole(caches: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> ReproduceResult:
    return tc.reproduce(**caches, out=tmp_path_factory.mktemp("whole") / "paper", **QUICK)


def cells(folder: Path, table: int) -> dict[str, list[str]]:
    with (folder / "tables" / f"table-{table}.csv").open(newline="") as file:
        return {row[0]: row[1:] for row in csv.reader(file)}


def test_every_published_number_stands_in_the_output_beside_ours(whole: ReproduceResult) -> None:
    """Tables 1 to 3 by row and column of the files, in the page, in Markdown and in LaTeX."""
    page, markdown = ((whole.folder / name).read_text() for name in ("paper.html", "tables.md"))
    with GOLDEN.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 36
    for row in rows:
        place = 0 if row["target"] == "0.98" else 1
        found = cells(whole.folder, int(row["table"]))
        latex = (whole.folder / "tables" / f"table-{row['table']}.tex").read_text()
        numbers = [row["dismissal_percent"], row["cpu99_percent"], row["image_dismissal_percent"]]
        for number in (text for text in numbers if text not in ("", "N/A")):
            assert f">{number}%<" in page
            assert f" {number}% " in markdown
            assert f"{number}\\%" in latex
        if row["table"] == "4":
            continue
        published, ours = (found[f"{row['row']}, {source}"] for source in ("paper", "here"))
        assert len(published) == len(ours) == 8
        dismissal, bound = published[2 * place : 2 * place + 2]
        assert dismissal.rstrip("%") == row["dismissal_percent"]
        assert bound.rstrip("%").replace("—", "") == row["cpu99_percent"]
        assert published[4] == row["auroc"]
        assert published[6 + place].rstrip("%").replace("—", "") == row["image_dismissal_percent"]
        assert ours[4] != "—"  # both AUROCs and the image level are there, N/A or not
        assert ours[5] != "—"
        assert ours[6 + place].endswith("%")


def test_ours_are_the_points_of_the_certified_folders(whole: ReproduceResult) -> None:
    places = {
        "rsna": "rsna/certified",
        "nlbs": "nlbs/certified",
        "rsna-to-nlbs": "rsna-to-nlbs/run/certified",
    }
    numbers = whole.to_polars()
    met = 0
    for key, place in places.items():
        for point in json.loads((whole.folder / place / "points.json").read_text())["points"]:
            mine = numbers.filter(setting=key, configuration=point["configuration"], target=point["target"])
            found = dict(zip(mine["quantity"], mine["here"], strict=True))
            expected = 100 * point["dismissal"] if point["met"] else None
            assert found["case dismissal"] == pytest.approx(expected)
            assert found["CPU99"] == pytest.approx(100 * point["bound"] if point["met"] else None)
            met += point["met"]
            if key != "rsna-to-nlbs":
                assert found["image dismissal"] == pytest.approx(100 * point["image_dismissal"])
    assert 0 < met < 24  # both kinds were seen
    assert set(numbers.filter(quantity="CPU99")["nature"]) == {"arithmetic"}
    document = whole.as_document()
    assert [row["here"] for row in document["numbers"]] == numbers["here"].to_list()


def test_ranges_of_aurocs_and_images_are_those_of_splits_evaluated_in_full(whole: ReproduceResult) -> None:
    """The oracle: every random split evaluated as a certification is."""
    cohort = build_cohort(read_scores(whole.folder / "nlbs" / "run"))
    terms = Terms("recall", 0.01, 1)
    numbers = whole.to_polars().filter(setting="nlbs", configuration="closed-loop")
    splits = [draw_split(cohort, 0, resplit=number) for number in range(QUICK["resplits"])]
    index = cohort.configurations.index("closed-loop")
    for target in (0.98, 0.95):
        points = [
            evaluate(cohort, split, index, choose_threshold(cohort, split, index, target, terms), terms)
            for split in splits
        ]
        areas, images = ([getattr(p, name) for p in points] for name in ("auroc_case", "image_dismissal"))
        (row,) = numbers.filter(quantity="image dismissal", target=target).iter_rows(named=True)
        assert [row["low"], row["high"]] == pytest.approx(list(100 * np.quantile(images, [0.05, 0.95])))
        (row,) = numbers.filter(quantity="case AUROC").iter_rows(named=True)
        assert [row["low"], row["high"]] == pytest.approx(list(np.quantile(areas, [0.05, 0.95])))
    cell = cells(whole.folder, 1)["closed-loop, splits"][4]
    assert f"{np.median(areas):.3f} (" in cell


def test_encoders_are_named_and_synthetic_features_are_a_warning(whole: ReproduceResult) -> None:
    page = whole.page.read_text()
    assert "RSNA: the features are synthetic" in page
    assert any("encoder simulated" in text for text in whole.encoders)
    assert "encoder simulated" in page
    for name in ("figure-1a.svg", "figure-1b-rsna.svg", "figure-1b-nlbs.svg", "figure-1b-rsna.csv"):
        assert (whole.folder / "figures" / name).stat().st_size > 500
    assert page.count("<figure") == 1 + 2 + 2  # 1a, 1b of both sets, both comparisons


@pytest.mark.parametrize(
    ("known_by", "words"),
    [
        ("a" * 64, "weights aaaaaaaaaaaa."),
        ("random:seed=17", "weights random:seed=17."),
        (f"features {'c' * 64}", "weights unknown (features cccccccccccc)."),
        ("", "weights unknown."),
    ],
)
def test_weights_are_named_by_what_is_known_of_them(known_by: str, words: str) -> None:
    """Digests are cut, other words are not; imported features come without weights."""
    made = msgspec.structs.replace(simulated_fingerprint(0), weights_sha256=known_by)
    assert describe_encoder("nlbs", made) == f"NLBS: features by the encoder simulated, {words}"


@pytest.mark.parametrize("equal", ["ce", "fixed-tau"])
def test_an_equal_dismissal_is_no_first_place(whole: ReproduceResult, equal: str) -> None:
    """The paper's pattern needs the closed loop to dismiss more than each other head, whatever its name."""

    def sentence(dismissal: float) -> str:
        shares = {"closed-loop": dismissal, equal: 0.1}
        results = {
            key: replace(
                result,
                points=tuple(
                    msgspec.structs.replace(
                        point, met=True, dismissal=shares.get(str(point.configuration), 0.05)
                    )
                    for point in result.points
                ),
            )
            for key, result in whole.reproduction.results.items()
        }
        return Reproduction(results, 1_000, 10.0).sentences()[-1]

    assert "here in 0 of 4" in sentence(0.1)
    assert "here in 4 of 4" in sentence(0.2)


def written(folder: Path) -> dict[str, bytes]:
    """All results that do not depend on time or place."""
    names = ("scores.csv", "points.csv", "compare.csv", "numbers.csv", "tables.md")
    found = [path for path in folder.rglob("*") if path.name in names or path.suffix in (".tex", ".svg")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def stop_at(number: int) -> Callable[..., None]:
    seen = []

    def report(*news: object) -> None:
        seen.append(news)
        if len(seen) == number:
            raise StopError

    return report


def test_stopped_at_every_step_and_in_training_it_resumes_with_the_same_bytes(
    whole: ReproduceResult, caches: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "paper"
    stops = [Listener(part=stop_at(13)), *(Listener(step=stop_at(step)) for step in range(2, 9))]
    trained: dict[Path, int] = {}
    for number, listen in enumerate(stops):
        with pytest.raises(StopError):
            tc.reproduce(**caches, out=out, **QUICK, resume=number > 0, listen=listen)
        for record in out.rglob("run.json"):  # a complete step is never run again
            assert trained.setdefault(record, record.stat().st_mtime_ns) == record.stat().st_mtime_ns
    done = tc.reproduce(**caches, out=out, **QUICK, resume=True)
    assert all(path.stat().st_mtime_ns == when for path, when in trained.items())
    assert written(done.folder) == written(whole.folder)
    record = json.loads((out / "rsna" / "run" / "run.json").read_text())
    assert record["resumed_folds"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["request.json", "rsna/run/run.json", "nlbs/certified/points.json"])
def test_killed_it_resumes_with_the_same_bytes(
    whole: ReproduceResult, caches: dict[str, Path], tmp_path: Path, sign: str
) -> None:
    """A process that is killed when this file appears; --resume on the command line."""
    options = [f"--{name}={value}" for name, value in QUICK.items()]
    command = [
        sys.executable,
        "-m",
        "trust_cache_cli",
        "reproduce",
        *options,
        "--out",
        str(tmp_path / "paper"),
    ]
    command += [f"--{name}={path}" for name, path in caches.items()]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (tmp_path / "paper" / sign).exists() and process.poll() is None:
            time.sleep(0.002)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "paper" / "paper.html").exists()
    subprocess.run([*command, "--resume"], check=True, capture_output=True)
    assert written(tmp_path / "paper") == written(whole.folder)


def test_one_data_set_alone(caches: dict[str, Path], tmp_path: Path) -> None:
    small = QUICK | {"repeats": 1, "programme": 500, "fee": 2.0}
    found = tc.reproduce(
        nlbs=caches["nlbs"], out=tmp_path / "paper", configurations=["ce", "closed-loop"], **small
    )
    assert list(found.reproduction.results) == ["nlbs"]
    assert sum("no cache was given" in text for text in found.notices) == 2
    assert "no cache of this setting was given" in (tmp_path / "paper" / "tables" / "table-2.md").read_text()
    assert "14.31%" in found.page.read_text()
    legends = [item.table.legend for item in found.reproduction.tables[:3]]
    assert ["splits: median" in legend for legend in legends] == [True, False, False]
    assert found.warnings
    assert all(text.startswith("NLBS in-domain: ") for text in found.warnings)
    assert not (tmp_path / "paper" / "rsna").exists()
    rows = cells(tmp_path / "paper", 1)
    assert "ce-brier, paper" in rows  # published, though not trained here
    assert "ce-brier, here" not in rows
    assert "Dismissed of 500" in (tmp_path / "paper" / "tables" / "economics.md").read_text()
    assert "The paper reproduced on nlbs" in repr(found)


def test_a_configuration_beside_the_papers(caches: dict[str, Path], tmp_path: Path) -> None:
    """`tuned` in all three settings, with nothing published beside it."""
    small = QUICK | {"repeats": 1, "configurations": ["ce", "closed-loop", "tuned"]}
    found = tc.reproduce(**caches, out=tmp_path / "paper", **small)
    for table in (1, 2, 3):
        rows = cells(tmp_path / "paper", table)
        assert rows["tuned, here"][4] != "—"
        assert "tuned, paper" not in rows
        assert rows["closed-loop, paper"] != rows["closed-loop, here"]
    assert not any("tuned" in name for name in cells(tmp_path / "paper", 4))  # the paper's alternatives only
    assert "tuned" in found.page.read_text()


def test_wrong_uses(caches: dict[str, Path], whole: ReproduceResult, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a cache of RSNA"):
        tc.reproduce(out=tmp_path / "paper")
    with pytest.raises(InputError, match="exists already"):
        tc.reproduce(**caches, out=whole.folder, **QUICK)
    with pytest.raises(InputError, match=r"expected the caches and settings .* found others \(epochs\)"):
        tc.reproduce(**caches, out=whole.folder, **QUICK | {"epochs": 3}, resume=True)
    with pytest.raises(InputError, match="expected closed-loop and another one, found ce"):
        tc.reproduce(**caches, out=tmp_path / "paper", configurations=["ce"])
    with pytest.raises(InputError, match="found the same"):
        tc.reproduce(rsna=caches["nlbs"], nlbs=caches["nlbs"], out=tmp_path / "paper")
    for fee in (float("nan"), float("inf"), -1.0):
        with pytest.raises(InputError, match="fee: expected"):
            tc.reproduce(**caches, out=tmp_path / "paper", fee=fee)
    for words, said in (
        ({"epochs": 0}, "epochs: expected 1 or more"),
        ({"views": 9}, "expected at least 9 augmented views, found 1"),
        ({"threads": 0}, "threads: expected 1 or more"),
        ({"seed": -1}, "seed: expected 0"),
    ):
        with pytest.raises(InputError, match=said):
            tc.reproduce(**caches, out=tmp_path / "paper", **QUICK | words)
    assert not (tmp_path / "paper").exists()  # a folder would remember the wrong request
    with pytest.raises(InputError, match="resamples: expected 200 to"):
        tc.reproduce(**caches, out=tmp_path / "paper", resamples=10)
    with pytest.raises(InputError, match="found both"):
        tc.reproduce(**caches, out=whole.folder, resume=True, overwrite=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match=r"found files that this command does not write \(thesis.txt\)"):
        tc.reproduce(**caches, out=other, **QUICK, overwrite=True)
    assert (other / "thesis.txt").exists()


def test_caches_that_are_not_the_data_sets(whole: ReproduceResult) -> None:
    """A cohort of other counts is a notice; one with the counts of the other data set is refused."""
    assert sum("the counts of the split cannot be the paper's" in text for text in whole.notices) == 2
    told = "RSNA: expected the data set's 11,913 cases (486 positive) in 54,706 images"
    assert told in whole.page.read_text().replace("&#39;", "'")
    assert "0 of 6 counts of the split" in repr(whole)
    manifest = SimulatedCohort("nlbs", dim=16).manifest
    with pytest.raises(InputError, match=r"cache of RSNA \(--rsna\), found the 5,997 cases of NLBS"):
        refuse_other_data("rsna", manifest, "nlbs.zarr")
    refuse_other_data("nlbs", manifest, "nlbs.zarr")
    assert not list(unlike_the_data("nlbs", manifest))


def test_overwrite_starts_again(whole: ReproduceResult, caches: dict[str, Path], tmp_path: Path) -> None:
    small = QUICK | {"repeats": 1, "configurations": ["ce", "closed-loop"]}
    shutil.copytree(whole.folder, tmp_path / "paper")
    again = tc.reproduce(nlbs=caches["nlbs"], out=tmp_path / "paper", **small | {"seed": 1}, overwrite=True)
    assert again.as_document()["request"]["seed"] == 1
