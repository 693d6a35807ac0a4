"""Synthetic cohorts: layout, metadata and files agree, a seed gives the same bytes, damage is on record."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from pydicom import dcmread

from trust_cache.base.csv_tables import read_text_table
from trust_cache.base.errors import InputError
from trust_cache.synthetic.image_cohort import (
    NLBS_COLUMNS,
    RSNA_COLUMNS,
    CohortSettings,
    SyntheticCohort,
    SyntheticImage,
    plan_cohort,
    synthesize_cohort,
)
from trust_cache.synthetic.phantom import draw_phantom
from trust_cache.synthetic.synthetic_dicom import BROKEN_KINDS, Identity, stored_pixels


@pytest.fixture(scope="module")
def rsna(tmp_path_factory: pytest.TempPathFactory) -> SyntheticCohort:
    return synthesize_cohort(CohortSettings("rsna", 12), tmp_path_factory.mktemp("rsna"), workers=1)


@pytest.fixture(scope="module")
def nlbs(tmp_path_factory: pytest.TempPathFactory) -> SyntheticCohort:
    return synthesize_cohort(CohortSettings("nlbs", 12), tmp_path_factory.mktemp("nlbs"), workers=1)


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def check_files(cohort: SyntheticCohort) -> None:
    for image in cohort.images:
        dataset = dcmread(cohort.folder / image.path)
        phantom = draw_phantom(image.phantom, image.seed)
        assert np.array_equal(dataset.pixel_array, stored_pixels(phantom, image.encoding))
        assert dataset.ImageLaterality == image.phantom.laterality
        assert phantom.lesion.any() == bool(image.label)


def test_rsna_layout(rsna: SyntheticCohort) -> None:
    assert rsna.metadata.name == "train.csv"
    table = read_text_table(rsna.metadata, RSNA_COLUMNS)
    assert tuple(table.columns) == RSNA_COLUMNS
    paths = (table["patient_id"] + "/" + table["image_id"] + ".dcm").to_list()
    assert paths == [image.path for image in rsna.images]
    assert set(files(rsna.folder)) == {*paths, "train.csv", "synthesis.json"}
    assert table["image_id"].is_unique().all()
    assert table["cancer"].to_list() == [str(image.label) for image in rsna.images]
    assert set(table["difficult_negative_case"]) <= {"True", "False"}
    # As in the real set: labels, biopsies and ratings belong to breasts.
    breasts = table.group_by("patient_id", "laterality").agg(
        pl.col("cancer", "biopsy", "invasive", "BIRADS").n_unique()
    )
    assert breasts.select(pl.col("cancer", "biopsy", "invasive", "BIRADS").max()).row(0) == (1, 1, 1, 1)
    assert table.filter((pl.col("cancer") == "1") & (pl.col("biopsy") == "0")).is_empty()


def test_rsna_files(rsna: SyntheticCohort) -> None:
    check_files(rsna)
    for image in rsna.images:
        dataset = dcmread(rsna.folder / image.path, stop_before_pixels=True)
        assert "Modality" not in dataset
        assert "ViewPosition" not in dataset


def test_rsna_is_as_varied_as_the_real_set() -> None:
    images = plan_cohort(CohortSettings("rsna", 400, size="full"))
    inverted = [image for image in images if image.encoding.photometric == "MONOCHROME1"]
    assert 0.1 < len(inverted) / len(images) < 0.25
    for image in inverted:
        assert (image.phantom.rows, image.phantom.columns) == (5355, 4915)
        assert (image.encoding.bits, image.encoding.window_function) == (16, "SIGMOID")
        assert image.encoding.windows == 4
        assert image.encoding.padding_value == image.encoding.largest
    assert len({image.encoding.padding_value for image in inverted}) > 0.9 * len(inverted)
    assert {image.encoding.bits for image in images} == {10, 12, 16}
    assert {image.encoding.syntax for image in images} == {"jpeg-2000", "jpeg-lossless"}
    assert {str(image.row["view"]) for image in images} == {"CC", "MLO", "AT", "LM", "ML", "LMO"}
    sizes = Counter(image.case_id for image in images)
    assert min(sizes.values()) == 4
    assert max(sizes.values()) <= 14
    assert 4.3 < len(images) / 400 < 4.8
    assert any(image.tags.patient_id != image.case_id for image in images)
    assert any(image.row["age"] is None for image in images)


def test_nlbs_layout(nlbs: SyntheticCohort) -> None:
    assert nlbs.metadata.name == "NLBSD_Metadata.csv"
    table = read_text_table(nlbs.metadata, NLBS_COLUMNS)
    assert tuple(table.columns) == NLBS_COLUMNS
    paths = table["File Path"].str.replace_all("\\", "/", literal=True).to_list()
    assert paths == [image.path for image in nlbs.images]
    assert set(files(nlbs.folder)) == {*paths, "NLBSD_Metadata.csv", "synthesis.json"}
    assert set(table["Exam Date"]) == {"nan"}
    for image, row in zip(nlbs.images, table.iter_rows(named=True), strict=True):
        category, case, side, view, name = row["File Path"].split("\\")
        assert (category == "abnormal") == any(i.label for i in nlbs.images if i.case_id == case)
        assert case == image.case_id
        assert side.endswith("-c") == (row["Cancer"] == "1") == bool(image.label)
        assert side.startswith("left") == (row["Image Laterality"] == "L")
        assert view == row["View Position"]
        assert name.startswith("IM-")
        assert image.image_id == f"{category}/{case}/{side}/{view}/{name.removesuffix('.dcm')}"
    names = [path.rsplit("/", 1)[1] for path in paths]
    assert len(set(names)) < len(names)


def test_nlbs_files(nlbs: SyntheticCohort) -> None:
    check_files(nlbs)
    for image in nlbs.images:
        dataset = dcmread(nlbs.folder / image.path)
        assert dataset.BitsStored == 12
        assert dataset.PhotometricInterpretation == "MONOCHROME2"
        assert dataset.ViewPosition == image.row["View Position"]
        assert dataset.Modality == "MG"
        centres = dataset.get("WindowCenter")
        cell = str(image.row["Window Center"])
        if image.encoding.windows == 3:
            assert len(dataset.VOILUTSequence) == 3
            assert dataset.VOILUTFunction == "SIGMOID"
            assert cell == f"[{[int(value) for value in centres]}]"
        elif image.encoding.windows == 1:
            assert cell == f"[{int(centres)}]"
        else:
            assert centres is None
            assert cell == "nan"


def test_nlbs_has_its_categories_and_sizes() -> None:
    images = plan_cohort(CohortSettings("nlbs", 200, size="full"))
    assert {image.path.split("/")[0] for image in images} == {"normal", "False Positive", "abnormal"}
    assert {(image.phantom.rows, image.phantom.columns) for image in images} == {(3062, 2394), (2294, 1914)}
    assert {image.encoding.windows for image in images} == {0, 1, 3}


@pytest.mark.parametrize("like", ["rsna", "nlbs"])
@pytest.mark.parametrize(("prevalence", "positives"), [(0.0, 0), (0.001, 1), (0.3, 15), (1.0, 50)])
def test_prevalence_is_exact_and_one_breast_is_affected(like: str, prevalence: float, positives: int) -> None:
    images = plan_cohort(CohortSettings(like, 50, prevalence=prevalence))
    affected = {(image.case_id, image.phantom.laterality) for image in images if image.label}
    assert len(affected) == len({case for case, _ in affected}) == positives
    for image in images:
        assert image.label == ((image.case_id, image.phantom.laterality) in affected)
        assert (image.phantom.lesion_contrast > 0) == bool(image.label)


def test_a_seed_gives_the_same_files_however_many_workers(tmp_path: Path) -> None:
    settings = CohortSettings("rsna", 3, seed=4, broken=0.3)
    calls: list[int] = []
    one = synthesize_cohort(settings, tmp_path / "one", workers=1, advance=lambda: calls.append(1))
    two = synthesize_cohort(settings, tmp_path / "two", workers=2, advance=lambda: calls.append(2))
    assert files(one.folder) == files(two.folder)
    assert one.images == two.images
    assert Counter(calls) == {1: len(one.images), 2: len(one.images)}
    other = plan_cohort(CohortSettings("rsna", 3, seed=5, broken=0.3))
    assert {image.path for image in other}.isdisjoint({image.path for image in one.images})


def test_an_interrupted_run_is_finished_and_other_settings_are_refused(tmp_path: Path) -> None:
    settings = CohortSettings("nlbs", 3)
    cohort = synthesize_cohort(settings, tmp_path / "cohort", workers=1)
    before = files(cohort.folder)
    cohort.metadata.unlink()
    kept, lost = (cohort.folder / image.path for image in cohort.images[:2])
    lost.unlink()
    os.utime(kept, (0, 0))
    synthesize_cohort(settings, tmp_path / "cohort", workers=1)
    assert files(cohort.folder) == before
    assert kept.stat().st_mtime == 0  # not written again
    with pytest.raises(InputError, match="other settings"):
        synthesize_cohort(CohortSettings("nlbs", 4), tmp_path / "cohort")
    assert files(cohort.folder) == before


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match=r"letter\.txt"):
        synthesize_cohort(CohortSettings("nlbs", 1), tmp_path)
    assert set(files(tmp_path)) == {"letter.txt"}


def test_broken_files_are_on_record(tmp_path: Path) -> None:
    cohort = synthesize_cohort(CohortSettings("nlbs", 10, broken=0.25), tmp_path / "cohort", workers=1)
    table = read_text_table(tmp_path / "cohort" / "broken.csv", ("image_id", "path", "kind"))
    assert dict(zip(table["image_id"], table["kind"], strict=True)) == cohort.broken
    assert set(cohort.broken.values()) == set(BROKEN_KINDS)
    assert len(cohort.broken) == round(0.25 * len(cohort.images))
    for image in cohort.images:
        path = cohort.folder / image.path
        assert path.exists() == (image.broken != "missing")
        if image.broken == "zero bytes":
            assert path.stat().st_size == 0
        if image.broken is None:
            assert dcmread(path).pixel_array.shape == (image.phantom.rows, image.phantom.columns)
    # Broken images stay in the metadata, as in the real sets.
    assert read_text_table(cohort.metadata, NLBS_COLUMNS).height == len(cohort.images)


def test_only_named_kinds_of_damage(tmp_path: Path) -> None:
    settings = CohortSettings("rsna", 2, broken=0.5, broken_kinds=("missing",))
    cohort = synthesize_cohort(settings, tmp_path / "cohort", workers=1)
    assert set(cohort.broken.values()) == {"missing"}


def test_an_identity_is_planted_in_headers_only(tmp_path: Path) -> None:
    identity = Identity("Synthetic^Isolde", "19010203")
    cohort = synthesize_cohort(CohortSettings("nlbs", 1, identity=identity), tmp_path / "cohort", workers=1)
    for name, content in files(cohort.folder).items():
        assert (b"Isolde" in content and b"19010203" in content) == name.endswith(".dcm")


def test_labels_do_not_go_with_anything_but_lesions() -> None:
    """A classifier must find lesions: nothing else of an image may tell its label."""

    def habits(image: SyntheticImage) -> tuple[object, ...]:
        return (image.encoding.bits, image.phantom.text is None, image.phantom.strip)

    images = plan_cohort(CohortSettings("rsna", 2_000, prevalence=0.5))
    for column in range(3):
        positive, negative = (
            Counter(habits(image)[column] for image in images if image.label == label) for label in (1, 0)
        )
        for value in positive | negative:
            share = positive[value] / positive.total()
            # Machines are drawn by case: 1,000 against 2,000 cases, about four deviations of 1.9 %.
            assert abs(share - negative[value] / negative.total()) < 0.075, (column, value)


def test_the_truth_of_an_image_can_be_drawn_again(nlbs: SyntheticCohort) -> None:
    image = nlbs.images[0]
    again = draw_phantom(image.phantom, image.seed)
    assert np.array_equal(again.breast, draw_phantom(image.phantom, image.seed).breast)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"like": "mias"}, "like: expected one of rsna, nlbs, found 'mias'"),
        ({"cases": 0}, "cases: expected 1 to 9000, found 0"),
        ({"size": "huge"}, "size: expected one of small, full"),
        ({"seed": -1}, "seed: expected 0 to"),
        ({"prevalence": 1.5}, "prevalence: expected a share"),
        ({"broken_kinds": ("burnt",)}, "broken kinds: expected some of truncated"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CohortSettings(**({"like": "rsna", "cases": 5} | wrong))  # type: ignore[arg-type]


def test_workers_are_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="workers"):
        synthesize_cohort(CohortSettings("rsna", 1), tmp_path / "cohort", workers=0)
