"""Sweeps as folders: complete, equal however they came about, and blind to evaluation."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.heads.cohorts import a_cohort, lose_images, write_cohort
from trust_cache import certify
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.feature_rows import load_rows, open_rows
from trust_cache.certificate.points import POINT_KEYS
from trust_cache.certificate.split import read_split
from trust_cache.certificate.verify import verify
from trust_cache.heads.fit import fit_heads
from trust_cache.heads.folds import read_folds
from trust_cache.heads.head_settings import SETTING_NAMES, TrainingSettings, read_configurations
from trust_cache.heads.trainer import COMPILED
from trust_cache.heads.training_data import FitSettings, prepare
from trust_cache.manifest.protocol import PAPER
from trust_cache.studies.sweep.sweep import Sweep, sweep
from trust_cache.studies.sweep.sweep_choice import assess, choose_winners, examine
from trust_cache.studies.sweep.sweep_folder import ScoreFiles, read_record, read_sweep
from trust_cache.studies.sweep.sweep_request import describe_space
from trust_cache.studies.sweep.sweep_space import Space, cut_banks
from trust_cache.studies.sweep.sweep_training import HeadsReport, find_missing, train_missing

GRID = ["lambda_dismiss=0,0.5", "lr=1e-4,3e-3", "tau=closed-loop,0.1"]
EPOCHS = 2
REPEATS = 2
CORRECTED = [
    "compared",
    "bound_corrected",
    "recall_lower_corrected",
    "status",
    "reason",
]  # for what was compared


def space(*words: str, random: int | None = None) -> Space:
    made = describe_space(words or GRID, random=random)
    assert made is not None
    return made


def content(folder: Path) -> dict[str, str]:
    """Every file of a folder with its digest."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def results(folder: Path) -> pl.DataFrame:
    return pl.read_csv(folder / "results.csv", schema_overrides={"tau": pl.String, "reason": pl.String})


def run(cache: Path, out: Path, made: Space | None = None, **options: object) -> Sweep:
    given = {"epochs": EPOCHS, "repeats": REPEATS, "threads": 1, "resume": True} | options
    return sweep(cache, out, made, **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cohort(tmp_path_factory.mktemp("cohort") / "cache.zarr", *a_cohort(dim=24))


@pytest.fixture(scope="module")
def done(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return run(cache, tmp_path_factory.mktemp("sweeps") / "sweep", space())


def test_results_have_the_columns_and_rows_that_were_promised(done: Sweep) -> None:
    table = results(done.folder)
    names = [f"point_{key}" if key == "tau" else key for key in POINT_KEYS if key != "target"]
    assert table.columns[: 3 + len(SETTING_NAMES) + len(names)] == [
        "setting", *SETTING_NAMES, "repeat", "target", *names,
    ]  # fmt: skip
    assert table.height == 8 * REPEATS * 2
    assert table.select("setting", "repeat", "target").n_unique() == table.height
    assert table["setting"].n_unique() == table.select(SETTING_NAMES).n_unique() == 8
    assert set(table["tau"]) == {"closed-loop", "0.1"}
    typed = pl.read_parquet(done.folder / "results.parquet")
    assert typed.columns == table.columns
    assert typed["search_dismissal"].equals(table["search_dismissal"])
    assert typed["winner"].dtype == pl.Boolean


def test_only_winners_have_evaluation_and_only_in_the_first_repeat(done: Sweep) -> None:
    table = results(done.folder)
    evaluated = table.filter(pl.col("bound").is_not_null())
    assert evaluated.height == 2
    assert evaluated["winner"].all()
    assert evaluated["repeat"].to_list() == [0, 0]
    hidden = table.filter(pl.col("bound").is_null())
    open_keys = {"configuration", "point_tau", "compared", "delta"}
    open_keys |= {f"search_{name}" for name in ("cases", "positives", "incomplete", "incomplete_positives")}
    closed = [name for name in table.columns[14:-6] if name not in open_keys]
    assert {"dismissed", "positives_dismissed", "cases", "recall", "auroc_case", "met", "reason"} <= set(
        closed
    )
    assert hidden.select(closed).null_count().row(0) == (hidden.height,) * len(closed)
    assert hidden.select(sorted(open_keys)).null_count().row(0) == (0,) * len(open_keys)
    assert not table["evaluation_shown"].any()


def test_the_winner_dismisses_most_search_cases_over_the_repeats(done: Sweep) -> None:
    for (target,), part in results(done.folder).group_by("target"):
        totals = part.group_by("setting", maintain_order=True).agg(pl.col("search_dismissed").sum())
        best = totals.filter(pl.col("search_dismissed") == totals["search_dismissed"].max())["setting"][0]
        assert part.filter("winner")["setting"].unique().to_list() == [best]
        assert done.winners[float(str(target))].setting == best


def test_the_winners_certificate_is_what_certify_and_verify_find(done: Sweep) -> None:
    for target, winner in done.winners.items():
        scores = done.folder / winner.scores
        certificate = done.folder / winner.certificate
        assert verify(certificate, scores).holds
        (point,) = certify(scores, targets=[target], split=done.folder / "split.csv").points
        stated = json.loads(certificate.read_text())
        assert stated["compared"] == 8 * 2 * 1
        assert stated["bound_corrected"] > stated["bound"]
        for key in set(POINT_KEYS) - set(CORRECTED):
            assert stated[key] == getattr(point, key), key
        names = results(done.folder)["setting"].unique(maintain_order=True).to_list()
        assert stated["composition"] == {
            "configurations": names, "targets": [0.98, 0.95], "groups": {}, "looks": 1,
        }  # fmt: skip
        edited = done.folder.parent / "edited" / "certificates" / "edited.json"
        edited.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(done.folder / "split.csv", edited.parent.parent)
        for key, value in (("configurations", [winner.setting]), ("looks", 3), ("targets", [target])):
            edited.write_text(json.dumps(stated | {"composition": stated["composition"] | {key: value}}))
            named = {item.field for item in verify(edited, scores).disagreements}
            assert {"compared", "bound_corrected"} <= named


def test_fit_heads_finds_the_winners_scores_again(done: Sweep, cache: Path, tmp_path: Path) -> None:
    """The sweep trains what fit-heads trains: the same bytes, by the configurations it hands over."""
    configurations = read_configurations(done.folder / "winner" / "configurations.toml")
    folder = fit_heads(cache, tmp_path / "run", configurations=configurations, epochs=EPOCHS).folder
    again = pl.read_csv(folder / "scores.csv", infer_schema=False)
    for target, winner in done.winners.items():
        ours = pl.read_csv(done.folder / winner.scores, infer_schema=False)
        theirs = again.filter(pl.col("configuration") == f"winner@{target}")
        assert ours.drop("configuration").equals(theirs.drop("configuration"))
    assert (folder / "folds.csv").read_bytes() == (done.folder / "folds.csv").read_bytes()


def test_searched_figures_are_those_of_the_scores(done: Sweep) -> None:
    """By plain Python from the winner's scores: threshold, search dismissal, and the same by fold."""
    winner = done.winners[0.95]
    table = pl.read_csv(done.folder / winner.scores, schema_overrides={"case_id": pl.String})
    part = dict(pl.read_csv(done.folder / "split.csv", infer_schema=False).iter_rows())
    cases: dict[str, list[float]] = {}
    for case, fold, label, score in table.select("case_id", "fold", "label", "score").iter_rows():
        if part[case] == "search":
            old = cases.get(case, [fold, 0, -1.0])
            cases[case] = [fold, max(old[1], label), max(old[2], score)]
    positives = sorted(score for _, label, score in cases.values() if label)
    tau = positives[int(len(positives) * 5 / 100)]
    row = results(done.folder).filter(
        (pl.col("setting") == winner.setting) & (pl.col("repeat") == 0) & (pl.col("target") == 0.95)
    )
    assert row["point_tau"].item() == tau
    assert row["search_dismissed"].item() == sum(score < tau for _, _, score in cases.values())
    folds = pl.read_csv(done.folder / "fold_results.csv").filter(
        (pl.col("setting") == winner.setting) & (pl.col("repeat") == 0) & (pl.col("target") == 0.95)
    )
    for fold in range(5):
        inside = [score < tau for number, _, score in cases.values() if number == fold]
        found = folds.row(fold, named=True)
        assert (found["search_cases"], found["search_dismissed"]) == (len(inside), sum(inside))


def test_evaluation_labels_cannot_reach_the_choice(done: Sweep, cache: Path) -> None:
    """With the scores as they are, permuting evaluation labels changes the certificate, never the winner."""
    settings = FitSettings({}, TrainingSettings(epochs=EPOCHS), repeats=REPEATS)
    work = prepare(open_cache(cache), settings, None)
    names = ("folds.csv", "repeats/1/folds.csv")
    work = replace(work, folds=tuple(read_folds(done.folder / name, work.cases)[0] for name in names))
    record = read_record(done.folder)
    assert record is not None
    record = record.looked(show=True)
    cases = examine(work, PAPER, open_rows)
    split, _ = read_split(done.folder / "split.csv", cases.cohort)
    files = ScoreFiles(done.folder, work)

    def found(chosen: np.ndarray) -> tuple[object, object, object]:
        labels = work.cases.labels.copy()
        labels[chosen] = np.random.default_rng(1).permutation(labels[chosen])
        relabelled = replace(cases, cohort=replace(cases.cohort, labels=labels))
        result = assess(record, files, split, relabelled)
        return choose_winners(record, result), result.outcomes, result.shown

    as_it_is = assess(record, files, split, cases)
    winners, outcomes, shown = found(split.evaluation)
    assert winners == {target: winner.setting for target, winner in done.winners.items()}
    assert outcomes == as_it_is.outcomes
    assert shown != as_it_is.shown
    _, outcomes, _ = found(split.search)
    assert outcomes != as_it_is.outcomes


def test_threads_mapping_and_a_second_start_change_no_byte(done: Sweep, cache: Path, tmp_path: Path) -> None:
    other = run(cache, tmp_path / "sweep", space(), threads=2, low_memory=True)
    assert content(other.folder) == content(done.folder)
    again = run(cache, other.folder, space())
    assert (again.trained, again.reused) == (0, 8 * 5 * REPEATS)
    assert content(other.folder) == content(done.folder)
    without_axes = run(cache, other.folder)
    assert len(without_axes.record.looks) == 1
    assert content(other.folder) == content(done.folder)


class InterruptedForTestError(Exception):
    """Any error that ends a sweep in the middle."""


def stop_at(heads: float) -> object:
    def stop(report: HeadsReport) -> None:
        if report.done >= heads:
            raise InterruptedForTestError

    return stop


def test_an_interrupted_sweep_resumes_where_it_stopped(done: Sweep, cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    for heads in (4, 8, 41, 77):
        with pytest.raises(InterruptedForTestError):
            run(cache, out, space(), on_heads=stop_at(heads))
        assert json.loads((out / "sweep.json").read_text())["status"] == "training"
        assert not (out / "results.csv").exists()
    last = run(cache, out)
    assert last.reused >= 8 * 5
    assert content(out) == content(done.folder)
    assert [path.name for path in tmp_path.iterdir()] == ["sweep"]


def test_an_extension_equals_all_at_once_but_for_the_looks(done: Sweep, cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    first = run(cache, out, space("lr=1e-4,3e-3", "tau=closed-loop,0.1", "lambda_dismiss=0.5"))
    assert first.trained == 4 * 5 * REPEATS
    second = run(cache, out, space())
    assert (second.trained, second.reused) == (4 * 5 * REPEATS, 4 * 5 * REPEATS)
    assert [look.settings for look in second.record.looks] == [4, 8]
    assert results(out).drop(CORRECTED).equals(results(done.folder).drop(CORRECTED), null_equal=True)
    assert set(results(out)["compared"]) == {8 * 2 * 2}
    for name in (
        "fold_results.csv",
        "split.csv",
        "folds.csv",
        "repeats/1/folds.csv",
        "winner/configurations.toml",
    ):
        assert (out / name).read_bytes() == (done.folder / name).read_bytes()
    for winner in second.winners.values():
        assert verify(out / winner.certificate, out / winner.scores).holds
        before = json.loads((done.folder / winner.certificate).read_text())
        after = json.loads((out / winner.certificate).read_text())
        assert after["composition"]["looks"] == 2
        assert after["bound"] == before["bound"]
        assert after["bound_corrected"] > before["bound_corrected"]
    assert run(cache, out, space("lr=1e-4", "lambda_dismiss=0")).record.looks == second.record.looks


def test_extending_before_a_winner_was_seen_is_no_second_look(
    done: Sweep, cache: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sweep"
    with pytest.raises(InterruptedForTestError):
        run(cache, out, space("lr=3e-3", "tau=0.1", "lambda_dismiss=0,0.5"), on_heads=stop_at(9))
    run(cache, out, space())
    for name in ("results.csv", "results.parquet", "fold_results.csv", "certificates/winner@0.98.json"):
        assert (out / name).read_bytes() == (done.folder / name).read_bytes()


def test_more_draws_train_only_the_new_ones(cache: Path, tmp_path: Path) -> None:
    words = ("lr=1e-5..1e-2:log", "margin=0..0.3")
    few = run(cache, tmp_path / "sweep", space(*words, random=3), repeats=1)
    more = run(cache, tmp_path / "sweep", space(*words, random=5), repeats=1)
    assert (few.trained, more.trained, more.reused) == (15, 10, 15)
    twice = run(cache, tmp_path / "few", space("margin=0.1,0.2", random=50), repeats=1)
    assert len(twice.record.settings) == 2


def test_shown_evaluation_is_marked_permanently(done: Sweep, cache: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(done.folder, tmp_path / "sweep"))
    shown = run(cache, out, space(), show_evaluation=True)
    table = results(out)
    assert table["evaluation_shown"].all()
    assert table["bound"].null_count() == 0
    assert len(shown.record.looks) == 1
    assert not json.loads((out / "certificates/winner@0.98.json").read_text())["sweep"][
        "evaluation_shown_before"
    ]
    # What is shown of the winner is what its certificate says.
    old = results(done.folder).filter(pl.col("bound").is_not_null()).drop("evaluation_shown")
    same = table.join(
        old.select("setting", "repeat", "target"), on=["setting", "repeat", "target"], how="semi"
    )
    assert same.drop("evaluation_shown").equals(old, null_equal=True)
    later = run(cache, out, space("lr=1e-3"))
    table = results(out)
    assert table.filter("evaluation_shown")["setting"].n_unique() == 8
    assert table.filter(~pl.col("evaluation_shown"))["setting"].n_unique() == 1
    assert later.record.looks[-1].after_showing
    for winner in later.winners.values():
        stated = json.loads((out / winner.certificate).read_text())
        assert stated["sweep"]["evaluation_shown_before"]
        assert verify(out / winner.certificate, out / winner.scores).holds


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epochs": 3}, r"training.epochs: 2 there, 3 now"),
        ({"seed": 4}, r"seeds.training: 0 there, 4 now"),
        ({"repeats": 1}, r"repeats: 2 there, 1 now"),
        ({"views": 1}, r"views: 2 there, 1 now"),
        ({"targets": (0.9,)}, r"targets: \[0.98, 0.95\] there, \[0.9\] now"),
        ({"delta": 0.05}, r"delta: 0.01 there, 0.05 now"),
    ],
)
def test_another_sweep_is_refused_naming_what_differs(
    done: Sweep, cache: Path, options: dict[str, object], said: str
) -> None:
    before = content(done.folder)
    with pytest.raises(InputError, match=said):
        run(cache, done.folder, space("lr=1e-2"), **options)
    assert content(done.folder) == before


def test_another_cache_or_split_is_refused(done: Sweep, tmp_path: Path, cache: Path) -> None:
    manifest, features = a_cohort(dim=24, seed=1)
    other = write_cohort(tmp_path / "other.zarr", manifest, features)
    with pytest.raises(InputError, match="manifest_sha256"):
        run(other, done.folder)
    out = Path(shutil.copytree(done.folder, tmp_path / "sweep"))
    text = (out / "split.csv").read_text()
    (out / "split.csv").write_text(
        text.replace("search", "x").replace("evaluation", "search", 1).replace("x", "search")
    )
    with pytest.raises(InputError, match="split_sha256"):
        run(cache, out)


def test_damage_is_named_and_fixed(done: Sweep, cache: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(done.folder, tmp_path / "sweep"))
    (file,) = out.glob("scores/*/repeat-1-fold-3.safetensors")
    whole = file.read_bytes()
    for wrong in (b"", whole[:-8], file.with_name("repeat-1-fold-2.safetensors").read_bytes()):
        file.write_bytes(wrong)
        with pytest.raises(InputError, match=r"repeat-1-fold-3.safetensors: changed since"):
            read_sweep(out)
        assert run(cache, out).trained == 8
        assert content(out) == content(done.folder)
    for wrong in ("{", "{}", "[]", '{"schema": 99}'):
        (out / "sweep.json").write_text(wrong)
        with pytest.raises(InputError, match=r"sweep\.json"):
            run(cache, out)


def test_a_diverged_setting_costs_itself_alone(done: Sweep, cache: Path, tmp_path: Path) -> None:
    made = space("lr=1e-4,3e-3,1e30", *GRID[::2])
    out = run(cache, tmp_path / "sweep", made).folder
    table = results(out)
    wild = pl.col("lr") == 1e30
    assert table.filter(wild)["reason"].str.contains("training diverged in fold").all()
    assert not table.filter(wild)["winner"].any()
    failures = pl.read_csv(out / "failures.csv")
    assert set(failures["setting"]) == set(table.filter(wild)["setting"])
    assert table.filter(~wild).drop(CORRECTED).equals(results(done.folder).drop(CORRECTED), null_equal=True)


def test_all_settings_diverged(cache: Path, tmp_path: Path) -> None:
    done = run(cache, tmp_path / "sweep", space("lr=1e30"), repeats=1)
    assert (done.winners, done.counts.diverged) == ({}, 1)
    assert not (done.folder / "certificates").exists()


def test_a_sweep_that_exists_is_refused_without_resume(done: Sweep, cache: Path) -> None:
    before = content(done.folder)
    with pytest.raises(
        InputError, match=r"exists already; choose another --out, or continue or extend .*--resume"
    ):
        run(cache, done.folder, space("lr=1e-2"), resume=False)
    assert content(done.folder) == before


def test_places_where_no_sweep_can_be(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no sweep to resume"):
        run(cache, tmp_path / "none")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        run(cache, tmp_path / "mine", space())
    with pytest.raises(InputError, match="threads"):
        run(cache, tmp_path / "sweep", space(), threads=0)
    with pytest.raises(InputError, match="delta: expected"):
        run(cache, tmp_path / "sweep", space(), delta=0.9)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_two_sweeps_in_one_place(cache: Path, tmp_path: Path) -> None:
    def second(_: HeadsReport) -> None:
        run(cache, tmp_path / "sweep", space())

    with pytest.raises(InputError, match="is being written by process"):
        run(cache, tmp_path / "sweep", space(), on_heads=second)


def test_a_cohort_of_single_images_has_no_image_level(tmp_path: Path) -> None:
    manifest, features = a_cohort(dim=24)
    single = manifest.with_columns(case_id=pl.col("image_id"))
    cache = write_cohort(tmp_path / "cache.h5", single, features)
    done = run(cache, tmp_path / "sweep", space("margin=0.1,0.2"), repeats=1, show_evaluation=True)
    assert results(done.folder)["auroc_image"].null_count() == 4
    assert done.winners[0.98].point.auroc_image is None


def test_failed_images_have_no_scores_and_are_no_divergence(tmp_path: Path) -> None:
    manifest, features = a_cohort(cases=100, positives=40)
    present = lose_images(manifest)
    lost = open_cache(write_cohort(tmp_path / "lost.zarr", manifest, features, present=present))
    work = prepare(lost, FitSettings({}, TrainingSettings(epochs=1)), None)
    assert work.identity.images_without_features == np.count_nonzero(~present)
    files = ScoreFiles(tmp_path / "sweep", work)
    (bank,) = cut_banks(list(space("lr=1e-4,1e30").settings(0)))
    train_missing(find_missing([bank], files), files, load_rows(lost), COMPILED, 1, lambda _: None)
    wild = [settings.lr == 1e30 for settings in bank.settings]
    for fold in files.read(bank, 0):
        assert np.isnan(fold.scores[:, ~present[fold.images]]).all()
        assert fold.diverged(present).tolist() == wild


def test_a_sweep_with_failed_images_and_patients_reviews_incomplete_cases(tmp_path: Path) -> None:
    manifest, features = a_cohort(cases=300, positives=90)
    named = manifest.with_columns(patient_id=pl.format("p{}", pl.col("case_id").cast(int) // 2))
    cache = write_cohort(tmp_path / "lost.zarr", named, features, present=lose_images(named))
    done = run(cache, tmp_path / "sweep", space("lr=1e-4,3e-3"), epochs=1, repeats=1, targets=(0.9,))
    assert done.counts.diverged == 0
    point = done.winners[0.9].point
    expected = certify(done.folder / done.winners[0.9].scores, targets=(0.9,)).points[0]
    counts = ("tau", "cases", "incomplete", "incomplete_positives", "dismissed", "set_aside", "patients")
    assert [getattr(point, name) for name in counts] == [getattr(expected, name) for name in counts]
    assert point.incomplete > 0
    assert point.set_aside == 120
    assert verify(done.folder / done.winners[0.9].certificate, done.folder / done.winners[0.9].scores).holds
    assert run(cache, tmp_path / "sweep", epochs=1, repeats=1, targets=(0.9,)).trained == 0
