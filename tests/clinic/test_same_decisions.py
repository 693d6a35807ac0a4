"""The same examinations by way of extract and certify, and by way of triage: the same are dismissed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from msgspec import structs

from tests.clinic.dicom_files import ENCODING, PROJECTIONS, content, tags_of
from tests.clinic.triage_material import SETTINGS, place_model, tiny_head, tiny_model
from tests.images.alterations import ALTERATIONS
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.extract.extract import extract
from trust_cache.cache.feature_rows import load_rows
from trust_cache.certificate.certify import certify
from trust_cache.certificate.score_table import Cohort, build_cohort, check_scores
from trust_cache.clinic.certify_model import scores_table
from trust_cache.clinic.model_scoring import score_cache
from trust_cache.clinic.triage import Triage, TriageSettings, triage
from trust_cache.heads.fold_training import gate_tails
from trust_cache.images.preprocess import preprocess
from trust_cache.manifest.cases import ABOVE_IMAGES, AGGREGATIONS
from trust_cache.manifest.protocol import SCREENING
from trust_cache.statistics.feature_gate import fit_gate
from trust_cache.synthetic.phantom import PhantomSettings, draw_phantom
from trust_cache.synthetic.synthetic_dicom import BROKEN_KINDS, Tags, file_bytes, make_dataset, stored_pixels

CASES = 320
HEADERS: dict[str, dict[str, object]] = {
    "header of another side": {"laterality": "L"},
    "header of another projection": {"view_position": "MLO"},
    "another patient": {"patient_id": "somebody else"},
    "another study": {"further": (("StudyInstanceUID", "1.2.3"),)},
    "raw": {"further": (("PresentationIntentType", "FOR PROCESSING"),)},
    "knee": {"further": (("BodyPartExamined", "KNEE"),)},
}
PIXELS = ("excess pixel data", "padding over the brightest", "mirrored", "chest wall third black")
# Every sixth case is damaged, in these ways by turns; the last two are allowed by the protocol.
WAYS = (
    *BROKEN_KINDS, "no path", "no row", "unknown projection", "unexpected projection", *HEADERS, *PIXELS,
    "picture of another case", "two of one projection", "small letters",
)  # fmt: skip
# A limit at which the feature gate stops some of the whole cases.
STRICT = structs.replace(SCREENING, name="strict", feature_tail=0.02)
SHOWN_TWICE = 20  # a whole case, of which others show a picture
ALLOWED = ("two of one projection", "small letters")


def write_examinations(folder: Path) -> dict[str, str]:
    """Write the DICOMs and their manifest; return the way in which each damaged case is."""
    ways, rows = {}, []
    for case in range(CASES):
        name = f"{case:04d}"
        way = WAYS[case // 6 % len(WAYS)] if case % 6 == 0 else None
        if way is not None:
            ways[name] = way
        for projection in PROJECTIONS:
            if projection != "R-CC":
                rows.append(_write(folder, case, projection, None))
            elif way != "no row":
                rows.append(_write(folder, case, projection, way))
        if way in ("unexpected projection", "two of one projection"):
            more = _write(folder, case, "R-CC", None, "more")
            rows.append(more | {"projection": "ML"} if way == "unexpected projection" else more)
    pl.DataFrame(rows).write_csv(folder / "manifest.csv")
    return ways


def _write(folder: Path, case: int, projection: str, way: str | None, more: str = "") -> dict[str, object]:
    path = folder / f"{case:04d}" / f"{projection}{more}.dcm"
    path.parent.mkdir(exist_ok=True)
    tags = tags_of(str(case), projection, more or "1")
    tags = replace(tags, **HEADERS.get(way or "", {}))  # type: ignore[arg-type]
    shown = SHOWN_TWICE if way == "picture of another case" else case + 4000 * bool(more)
    found = content(shown, projection, tags=tags, broken=way if way in BROKEN_KINDS else None)
    if way in PIXELS:
        found = _altered(case, projection, tags, way)
    if found is not None:
        path.write_bytes(found)
    row = {
        "image_id": f"{case:04d}/{projection}{more}",
        "case_id": f"{case:04d}",
        "label": int(case % 5 == 0 and projection == "L-CC"),
        "laterality": projection[0],
        "projection": projection[2:],
        "path": str(path),
    }
    changes: dict[str, dict[str, object]] = {
        "no path": {"path": None},
        "unknown projection": {"projection": None},
        "small letters": {"projection": "cc"},
    }
    return row | changes.get(way or "", {})


def _altered(case: int, projection: str, tags: Tags, way: str) -> bytes:
    settings = PhantomSettings(250, 200, laterality=projection[0], projection=projection[2:])
    dataset = make_dataset(stored_pixels(draw_phantom(settings, case), ENCODING), ENCODING, tags)
    ALTERATIONS[way](dataset)
    return file_bytes(dataset, "explicit")


@pytest.mark.slow
def test_certify_and_triage_dismiss_the_same_cases(tmp_path: Path) -> None:
    ways = write_examinations(tmp_path)
    done = preprocess(tmp_path / "manifest.csv", tmp_path / "png", workers=2)
    assert done.failures
    extract(tmp_path / "png" / "manifest.csv", tmp_path / "cache.zarr", SETTINGS)
    cache = open_cache(tmp_path / "cache.zarr")
    rows = load_rows(cache)
    scored = score_cache(cache, rows, tiny_head(), "maximum")
    whole = np.flatnonzero([name[:4] not in ways for name in cache.manifest["image_id"]])
    gate = fit_gate(rows.gather_clean(whole[::2]), rows.gather_clean(whole[1::2]))
    tails = gate_tails(gate, rows, np.arange(cache.images))
    scores = check_scores(scores_table(cache, scored, "closed-loop", tails))
    certification = certify(scores, protocol=STRICT, targets=[0.5])
    assert any("feature-gate" in text for text in certification.warnings)
    cohort = certification.cohort
    stopped = {way for name, way in ways.items() if np.isnan(cohort.scores[0][int(name)])}
    assert stopped == set(WAYS) - set(ALLOWED)
    incomplete = set(np.flatnonzero(~cohort.complete(0)).tolist())
    others = incomplete - {int(name) for name, way in ways.items() if way not in ALLOWED}
    assert SHOWN_TWICE in others
    assert 1 < len(others) < CASES / 5  # what the feature gate costs at this limit
    tau = certification.points[0].tau
    assert tau is not None
    tiny = tiny_model(tmp_path / "cache.zarr", tau)
    assert tiny.certificate is not None
    certificate = structs.replace(tiny.certificate, protocol=STRICT)
    made = replace(tiny, gate=gate, protocol=STRICT, certificate=certificate)
    model = place_model(tmp_path / "model", made)
    listed = triage(tmp_path / "manifest.csv", model, tmp_path / "worklist.csv", TriageSettings(workers=2))
    by_triage = {row.case_id for row in listed.rows if row.decision == "dismiss"}
    by_certify = set(cohort.case_ids.filter(pl.Series(cohort.scores[0] < tau)))
    assert by_triage == by_certify
    assert 0 < len(by_triage) < CASES / 2
    # The same cases are complete, with the same scores: the same are dismissed at any threshold.
    assert [row.case_id for row in listed.rows] == cohort.case_ids.to_list()
    assert scores_of(listed) == known(cohort)
    assert all((row.image_id is None) == (row.score is None) for row in listed.rows)
    # So it is with every aggregation; fewer cases will do.
    few = [name for name in cohort.case_ids.to_list()[21:45] if ways.get(name) != "picture of another case"]
    pl.read_csv(tmp_path / "manifest.csv", infer_schema=False).filter(pl.col("case_id").is_in(few)).write_csv(
        tmp_path / "few.csv"
    )
    for aggregation in AGGREGATIONS[1:]:
        other = build_cohort(scores.aggregated_as({"closed-loop": aggregation}), STRICT)
        certificate = structs.replace(certificate, aggregation=aggregation)
        changed = replace(made, aggregation=aggregation, certificate=certificate)
        model = place_model(tmp_path / aggregation, changed)
        listed = triage(tmp_path / "few.csv", model, tmp_path / f"{aggregation}.csv", TriageSettings())
        assert scores_of(listed) == [known(other)[int(name)] for name in few]
        assert known(other) != known(cohort)
        named = aggregation in ABOVE_IMAGES
        assert all((row.image_id is not None) == (named and row.score is not None) for row in listed.rows)


def scores_of(listed: Triage) -> list[float | None]:
    """The scores of complete cases in a worklist."""
    return [row.score if row.complete else None for row in listed.rows]


def known(cohort: Cohort) -> list[float | None]:
    """The scores of complete cases in a cohort."""
    return [None if np.isnan(score) else score for score in cohort.scores[0].tolist()]
