"""Triage dismisses no broken case, scores as extract does, and gives the same answer every time."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree
from threading import Event

import polars as pl
import pytest
from msgspec import structs

from tests.clinic.dicom_files import PROJECTIONS
from tests.clinic.triage_material import (
    KINDS,
    Truth,
    place_model,
    scores_by_extract,
    tiny_head,
    tiny_model,
    write_clinic,
)
from trust_cache.base.errors import InputError
from trust_cache.clinic.model_folder import StoredModel, read_model
from trust_cache.clinic.triage import Triage, TriageSettings, triage
from trust_cache.clinic.triage_scoring import choose_encoder
from trust_cache.clinic.worklist import ScoredCase, WorklistRow, decide, read_worklist
from trust_cache.encoders.known_runtimes import TORCH
from trust_cache.encoders.recipe import recipe_of_text
from trust_cache.images.picture_folder import ImageSettings

WHOLE = range(1, 9)
BROKEN = tuple((100 + number, kind) for number, kind in enumerate(KINDS))
SETTINGS = TriageSettings(workers=1)
ABOVE_ALL = 0.999  # a threshold above every score: only a broken case is not dismissed


@dataclass(frozen=True)
class Clinic:
    folder: Path  # of DICOM files
    model: Path
    truth: Truth
    cache: Path
    done: Triage

    def row(self, case: int, rows: tuple[WorklistRow, ...] | None = None) -> WorklistRow:
        """The row of a case, found by the folder of its image with the highest score."""
        chosen = self.done.rows if rows is None else rows
        (found,) = [row for row in chosen if (row.image_id or "").startswith(f"{case:04d}/")]
        return found


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Clinic:
    place = tmp_path_factory.mktemp("clinic")
    write_clinic(place / "dicoms", WHOLE, BROKEN)
    truth = scores_by_extract(place / "dicoms", WHOLE, tiny_head(), place)
    model = place_model(place / "model", tiny_model(place / "cache.zarr", ABOVE_ALL))
    done = triage(place / "dicoms", model, place / "worklist.csv", SETTINGS)
    return Clinic(place / "dicoms", model, truth, place / "cache.zarr", done)


def test_complete_cases_are_scored_as_by_extract(clinic: Clinic) -> None:
    assert len(set(clinic.truth.images.values())) == len(clinic.truth.images)
    for case in WHOLE:
        row = clinic.row(case)
        assert row.score == clinic.truth.cases[f"{case:04d}"]
        assert clinic.truth.images[str(row.image_id)] == row.score
        assert (row.complete, row.decision, row.reason) == (True, "dismiss", None)


def test_no_broken_case_is_dismissed(clinic: Clinic) -> None:
    dismissed = {str(row.image_id)[:4] for row in clinic.done.rows if row.decision == "dismiss"}
    assert dismissed == {f"{case:04d}" for case in WHOLE}
    for row in clinic.done.rows:
        assert (row.decision == "dismiss") == (row.complete and row.reason is None)


@pytest.mark.parametrize(("case", "kind"), BROKEN)
def test_each_broken_case_says_why(clinic: Clinic, case: int, kind: str) -> None:
    row = clinic.row(case)
    words = {
        "truncated": "truncated",
        "no pixel data": "no pixel data",
        "multi-frame": "multi-frame",
        "RGB": "not a grey image",
        "unsupported syntax": "not supported",
        "oversized": "above the limit",
        "unknown laterality": "unknown projection ?-CC",
        "unknown projection": "unknown projection R-?",
        "unexpected projection": "unexpected projection R-ML",
        "copied file": "the same SOPInstanceUID",
        "another patient": "different patients",
        "wrong side": "away from the chest wall",
        "stray beside it": "unassignable entry in the same folder",
    }
    assert not row.complete
    assert words.get(kind, "R-CC") in str(row.reason)


def test_the_worklist_is_written(clinic: Clinic) -> None:
    assert read_worklist(clinic.done.out) == list(clinic.done.rows)
    assert clinic.done.failed >= len(KINDS) - 7
    assert not clinic.done.out.with_name(".worklist.csv.work").exists()


def test_a_decision_does_not_depend_on_the_other_cases(clinic: Clinic, tmp_path: Path) -> None:
    """Two of the cases, from a manifest in another order, together with a broken one."""
    rows = [
        f"{case},{name[0]},{name[2:]},{clinic.folder / f'{case:04d}' / name}.dcm,{case:04d}/{name}"
        for case in (7, 2, 105)
        for name in reversed(PROJECTIONS)
    ]
    manifest = tmp_path / "new.csv"
    manifest.write_text("\n".join(["case_id,laterality,projection,path,image_id", *rows]))
    done = triage(manifest, clinic.model, tmp_path / "worklist.csv", SETTINGS)
    for case in (7, 2):
        first, again = clinic.row(case), clinic.row(case, done.rows)
        assert (again.score, again.decision, again.image_id) == (first.score, first.decision, first.image_id)
    assert next(row for row in done.rows if row.case_id == "105").decision == "review"
    before = (tmp_path / "worklist.csv").read_bytes()
    assert triage(manifest, clinic.model, tmp_path / "worklist.csv", SETTINGS).kept is None
    assert (tmp_path / "worklist.csv").read_bytes() == before


def test_a_refusal_does_not_wait_for_the_folder(
    clinic: Clinic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned, go_on = [], Event()

    def scan(*_words: object) -> None:
        scanned.append(go_on.wait(60))

    monkeypatch.setattr("trust_cache.clinic.triage.find_incoming", scan)
    settings = replace(SETTINGS, runtime="none")
    with pytest.raises(InputError, match="runtime: expected"):
        triage(clinic.folder, clinic.model, tmp_path / "worklist.csv", settings)
    assert scanned == []
    go_on.set()


def test_the_worklist_replaces_no_input(clinic: Clinic, tmp_path: Path) -> None:
    manifest = tmp_path / "m.csv"
    manifest.write_text("case_id,laterality,projection,path\n")
    for out, given, words in (
        (manifest, {"source": manifest}, "is the list of cases"),
        (manifest, {"source": clinic.folder, "manifest": manifest}, "is the list of cases"),
        (clinic.model / "w.csv", {"source": clinic.folder}, "inside the model folder"),
    ):
        with pytest.raises(InputError, match=words):
            triage(**given, model=clinic.model, out=out, settings=SETTINGS)  # type: ignore[arg-type]
    assert manifest.read_text() == "case_id,laterality,projection,path\n"


def test_files_that_a_manifest_leaves_out_are_named(clinic: Clinic, tmp_path: Path) -> None:
    """They are in the folder, and nobody looks at them."""
    folder, manifest = tmp_path / "dicoms", tmp_path / "dicoms" / "m.csv"
    copytree(clinic.folder / "0001", folder / "0001")
    names = sorted(path.name for path in (folder / "0001").iterdir())
    rows = [f"1,{name[0]},{name[2:].partition('.')[0]},0001/{name}" for name in names]
    manifest.write_text("\n".join(["case_id,laterality,projection,path", *rows[1:]]))
    done = triage(folder, clinic.model, tmp_path / "w.csv", SETTINGS, manifest=manifest)
    (warning,) = [text for text in done.warnings if "not in the manifest" in text]
    assert f"1 file not in the manifest, not looked at (0001/{names[0]})" in warning
    around = [row.replace("0001/", "0001/../0001/") for row in rows]
    manifest.write_text("\n".join(["case_id,laterality,projection,path", *around]))
    again = triage(folder, clinic.model, folder / "w.csv.1", SETTINGS, manifest=manifest)
    assert not [text for text in again.warnings if "not in the manifest" in text]


def test_without_a_certificate(clinic: Clinic, tmp_path: Path) -> None:
    scores = sorted(clinic.truth.cases.values())
    tau = scores[len(scores) // 2]
    model = place_model(tmp_path / "model", tiny_model(clinic.cache, tau, certified=False))
    manifest = tmp_path / "new.csv"
    lines = [
        f"{case},{projection[0]},{projection[2:]},{clinic.folder / f'{case:04d}' / projection}.dcm"
        for case in WHOLE
        for projection in PROJECTIONS
    ]
    manifest.write_text("\n".join(["case_id,laterality,projection,path", *lines]))
    done = triage(manifest, model, tmp_path / "worklist.csv", SETTINGS)
    assert {row.decision for row in done.rows} == {"review"}
    assert {(row.certified, row.reason) for row in done.rows} == {(False, "not certified")}
    bold = replace(SETTINGS, uncertified=True)
    asked = triage(manifest, model, tmp_path / "worklist.csv", bold)
    assert asked.kept == tmp_path / "worklist.csv.1"
    for row in asked.rows:  # strictly below tau, and the case at tau itself is reviewed
        expected = "dismiss" if clinic.truth.cases[f"{int(row.case_id):04d}"] < tau else "review"
        assert (row.decision, row.certified, row.reason) == (expected, False, "not certified")
    assert sum(row.decision == "dismiss" for row in asked.rows) == len(scores) // 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("weights_sha256", "random:seed=1"),
        ("encoder", "test_resnet"),
        ("preprocessing", "external"),
        ("precision", "bfloat16"),
    ],
)
def test_another_encoder_or_preprocessing_is_refused(
    clinic: Clinic, tmp_path: Path, field: str, value: str
) -> None:
    model = tiny_model(clinic.cache, ABOVE_ALL)
    changed = replace(model, fingerprint=structs.replace(model.fingerprint, **{field: value}))
    place_model(tmp_path / "model", changed)
    settings = replace(SETTINGS, weights="random", device="cpu")
    with pytest.raises(InputError, match=f"made in another way.*{field}|features|no tolerance is known"):
        triage(clinic.folder, tmp_path / "model", tmp_path / "worklist.csv", settings)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_encoder_gets_pictures_by_the_recipe_of_the_model(clinic: Clinic, tmp_path: Path) -> None:
    """Also where it is not the encoder's own: nobody has to give it again."""
    model = tiny_model(clinic.cache, ABOVE_ALL)
    own = recipe_of_text(model.fingerprint.recipe)
    assert own is not None
    given = structs.replace(own, keep_proportions=not own.keep_proportions, mean=(0.1, 0.2, 0.3))
    place_model(
        tmp_path / "model", replace(model, fingerprint=structs.replace(model.fingerprint, recipe=given.text))
    )
    stored = read_model(tmp_path / "model")
    choice, found = choose_encoder(stored, "random", "cpu", TORCH, ImageSettings())
    assert choice.identify().recipe == given
    assert found.recipe == given.text


def test_a_changed_threshold_is_refused(clinic: Clinic, tmp_path: Path) -> None:
    place_model(tmp_path / "model", tiny_model(clinic.cache, 0.1))
    record = tmp_path / "model" / "model.json"
    record.write_text(record.read_text().replace('"tau": 0.1', '"tau": 0.9'))
    with pytest.raises(InputError, match="was changed after the model was exported"):
        triage(clinic.folder, tmp_path / "model", tmp_path / "worklist.csv", SETTINGS)


def test_a_model_of_imported_features_is_refused(clinic: Clinic, tmp_path: Path) -> None:
    model = tiny_model(clinic.cache, ABOVE_ALL)
    imported = structs.replace(model.fingerprint, recipe="external", encoder="imported", weights_sha256="ab")
    place_model(tmp_path / "model", replace(model, fingerprint=imported))
    with pytest.raises(InputError, match="found imported features"):
        triage(
            clinic.folder,
            tmp_path / "model",
            tmp_path / "w.csv",
            replace(SETTINGS, weights="x", device="cpu"),
        )
    with pytest.raises(InputError, match="found imported features"):
        triage(clinic.folder, tmp_path / "model", tmp_path / "w.csv", replace(SETTINGS, device="cpu"))


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, None])
def test_never_dismissed_without_a_number(clinic: Clinic, score: float | None) -> None:
    stored = read_model(clinic.model)
    row = decide(ScoredCase("1", score, "1_a", (), failed=False), stored, uncertified=True)
    assert (row.decision, row.complete, row.score) == ("review", False, None)


@pytest.mark.parametrize(
    ("problems", "failed", "tau"), [(("something",), False, 0.5), ((), True, 0.5), ((), False, None)]
)
def test_never_dismissed_with_a_problem_or_without_a_threshold(
    clinic: Clinic, problems: tuple[str, ...], failed: bool, tau: float | None
) -> None:
    model = tiny_model(clinic.cache, ABOVE_ALL, certified=False)
    changed = replace(model, threshold=replace(model.threshold, tau=tau))
    stored = StoredModel(clinic.model, changed, "m")
    row = decide(ScoredCase("1", 0.1, "1_a", problems, failed=failed), stored, uncertified=True)
    assert row.decision == "review"


def test_no_cell_is_a_formula(clinic: Clinic) -> None:
    table = pl.read_csv(clinic.done.out, infer_schema=False)
    assert table.columns == list(WorklistRow.__dataclass_fields__)
    for column in table:
        for cell in column.drop_nulls().to_list():
            assert not cell.startswith(("=", "+", "-", "@"))
