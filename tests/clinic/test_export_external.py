"""Export a model from an external run: its own head, and a certificate only of that head."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file, save_file

from tests.clinic.material import LEFT_CC, two_halves
from tests.heads.cohorts import write_cohort
from tests.heads.records import seal
from trust_cache.base.documents import json_bytes
from trust_cache.base.errors import InputError
from trust_cache.certificate.certification import CertifySettings
from trust_cache.certificate.certified_folder import write_certification
from trust_cache.certificate.certify import certify
from trust_cache.certificate.evidence import Options, gather
from trust_cache.certificate.verify import verify
from trust_cache.clinic.export_model import export_model
from trust_cache.clinic.model_folder import read_model
from trust_cache.clinic.monitoring.monitor import monitor
from trust_cache.clinic.triage import TriageSettings, triage
from trust_cache.heads.head_settings import HeadSettings
from trust_cache.studies.external import evaluate_externally

TERMS = CertifySettings((0.98, 0.9, 0.7, 0.5, 0.3), by=("none",), protocol=LEFT_CC, limit=0.9)


@pytest.fixture(scope="module")
def external(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("external")
    source, target = (
        write_cohort(folder / name, *half)
        for name, half in zip(("source.zarr", "target.zarr"), two_halves(), strict=True)
    )
    evaluate_externally(source, target, folder / "run", epochs=8, threads=1, terms=TERMS)
    return folder / "run"


def points(external: Path, status: str) -> list[float]:
    found = json.loads((external / "certified" / "points.json").read_text())["points"]
    return [
        point["target"]
        for point in found
        if point["configuration"] == "closed-loop" and point["status"] == status
    ]


def test_the_fixture_has_both_kinds(external: Path) -> None:
    assert points(external, "certified")
    assert points(external, "target missed")


def test_the_very_head_with_its_certificate(external: Path, tmp_path: Path) -> None:
    target = points(external, "certified")[0]
    made = export_model(external, tmp_path / "model", configuration="closed-loop", target=target)
    model = made.stored.model
    stated = json.loads((external / "certified" / "certificates" / f"closed-loop@{target}.json").read_text())
    assert (model.origin, model.certified) == ("external", True)
    assert json.loads((tmp_path / "model" / "certificate.json").read_text()) == stated
    assert model.threshold.tau == stated["tau"]
    heads = load_file(external / "heads.safetensors")
    for part in ("gamma", "beta", "weight", "bias"):
        assert getattr(model.head, part).tobytes() == heads[part][1, 0].tobytes()
    scores = pl.read_csv(external / "scores.csv", schema_overrides={"case_id": pl.String})
    split = pl.read_csv(external / "certified" / "split.csv", schema_overrides={"case_id": pl.String})
    evaluation = split.filter(pl.col("part") == "evaluation")["case_id"]
    cases = (
        scores.filter(pl.col("configuration") == "closed-loop")
        .group_by("case_id")
        .agg(pl.col("score").max())
        .filter(pl.col("case_id").is_in(evaluation.implode()))
    )
    assert model.reference.tolist() == sorted(cases["score"].to_list())


def test_a_target_that_was_not_met_gives_a_model_without_a_certificate(
    external: Path, tmp_path: Path
) -> None:
    target = points(external, "target missed")[0]
    made = export_model(external, tmp_path / "model", configuration="closed-loop", target=target)
    assert not made.stored.model.certified
    assert any("not certified: target missed: recall on evaluation" in text for text in made.warnings)
    assert not (tmp_path / "model" / "certificate.json").exists()


def test_a_protocol_without_projections_certifies_no_model(external: Path, tmp_path: Path) -> None:
    certified = certify(external, targets=[0.3], limit=0.9)
    assert any(point.certified for point in certified.points)
    write_certification(certified, tmp_path / "certified")
    name = next(point.configuration for point in certified.points if point.certified)
    made = export_model(
        external, tmp_path / "model", configuration=str(name), target=0.3, certified=tmp_path / "certified"
    )
    assert not made.stored.model.certified
    assert made.stored.model.protocol.name == "screening"
    assert any("the protocol paper is without projections" in text for text in made.warnings)


def test_another_certified_folder(external: Path, tmp_path: Path) -> None:
    write_certification(certify(external, targets=[0.6], seed=4), tmp_path / "certified")
    made = export_model(
        external, tmp_path / "model", configuration="ce", target=0.6, certified=tmp_path / "certified"
    )
    assert made.stored.model.threshold.target == 0.6
    with pytest.raises(InputError, match=r"expected a certificate of ce at 0\.7"):
        export_model(
            external, tmp_path / "other", configuration="ce", target=0.7, certified=tmp_path / "certified"
        )
    with pytest.raises(InputError, match="expected certificates there, found none"):
        export_model(external, tmp_path / "other", configuration="ce", certified=tmp_path / "none")


@pytest.fixture
def copy(external: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(external, tmp_path / "run"))


def refused(run: Path, words: str, **more: object) -> None:
    with pytest.raises(InputError, match=words):
        export_model(run, run.parent / "model", configuration="closed-loop", target=0.5, **more)  # type: ignore[arg-type]
    assert not (run.parent / "model").exists()


def test_scores_that_are_not_the_certificates(copy: Path) -> None:
    text = (copy / "scores.csv").read_text()
    last = text.rstrip("\n").rsplit(",", 1)[1]
    (copy / "scores.csv").write_text(text.replace(last, "0.123456"))
    refused(copy, "changed since the run was written")
    seal(copy)
    refused(copy, "does not agree with the scores")


def test_a_head_that_is_not_the_certificates(copy: Path) -> None:
    """The certificate fits the scores, but the head was exchanged: the certificate is of another model."""
    from safetensors import safe_open  # noqa: PLC0415

    with safe_open(copy / "heads.safetensors", framework="np") as file:
        metadata = file.metadata()
    heads = load_file(copy / "heads.safetensors")
    heads["weight"] = (heads["weight"] * np.float32(1.01)).astype(np.float32)
    save_file(heads, copy / "heads.safetensors", metadata)
    refused(copy, "changed since the run was written")
    seal(copy)
    refused(copy, "other scores of closed-loop than its head gives")


@pytest.mark.parametrize("field", ["bound", "bound_corrected", "dismissed"])
def test_a_forged_certificate_is_refused_by_every_reader(
    external: Path, copy: Path, tmp_path: Path, field: str
) -> None:
    """`verify`, export-model, the report; from a model folder with fitting digests: monitor and triage."""
    target = points(external, "certified")[0]
    name = f"closed-loop@{target}.json"
    path = copy / "certified" / "certificates" / name
    stated = json.loads(path.read_text())
    forged = json.dumps(stated | {field: stated[field] // 2 or stated[field] / 2}).encode()
    path.write_bytes(forged)
    found = verify(path, copy, copy / "certified" / "split.csv").disagreements
    assert field in {item.field for item in found}
    with pytest.raises(InputError, match="does not agree with the scores"):
        export_model(copy, tmp_path / "no", configuration="closed-loop", target=target)
    with pytest.raises(InputError, match=f"the certificate of closed-loop at {target}: {field} is"):
        gather([copy], Options())
    export_model(external, tmp_path / "model", configuration="closed-loop", target=target)
    reseal(tmp_path / "model", forged)
    for read in (
        lambda: read_model(tmp_path / "model"),
        lambda: monitor([tmp_path / "worklist.csv"], tmp_path / "model", outcomes=tmp_path / "o.csv"),
        lambda: triage(tmp_path, tmp_path / "model", tmp_path / "worklist.csv", TriageSettings()),
    ):
        with pytest.raises(InputError, match="does not follow from its own counts"):
            read()


def reseal(model: Path, certificate: bytes) -> None:
    """Put another certificate into a model folder, with digests that fit."""
    (model / "certificate.json").write_bytes(certificate)
    record = json.loads((model / "model.json").read_text())
    del record["sha256"]
    record["files"]["certificate.json"] = hashlib.sha256(certificate).hexdigest()
    record["sha256"] = hashlib.sha256(json_bytes(record)).hexdigest()
    (model / "model.json").write_bytes(json_bytes(record))


def test_heads_that_cannot_be_read(copy: Path) -> None:
    (copy / "heads.safetensors").write_bytes(b"nothing")
    seal(copy)
    refused(copy, "expected the head of closed-loop, fold external")


def test_caches_that_are_others(copy: Path, external: Path) -> None:
    source, target = (str(external.parent / name) for name in ("source.zarr", "target.zarr"))
    refused(copy, "expected the images and labels of the run", cache=target)
    refused(copy, "expected the images and labels of the run", test_cache=source)


def test_a_model_is_read_where_it_was_written(external: Path, tmp_path: Path) -> None:
    made = export_model(external, tmp_path / "model", configuration="ce", target=0.5)
    assert read_model(tmp_path / "model").sha256 == made.stored.sha256


def test_the_aggregation_of_the_run_becomes_that_of_the_model(tmp_path: Path) -> None:
    source, target = (
        write_cohort(tmp_path / name, *half)
        for name, half in zip(("source.zarr", "target.zarr"), two_halves(), strict=True)
    )
    heads = {"two": HeadSettings(tuned=True, aggregation="top-two")}
    evaluate_externally(source, target, tmp_path / "run", configurations=heads, threads=1, terms=TERMS)
    found = json.loads((tmp_path / "run" / "certified" / "points.json").read_text())["points"]
    at = next(point["target"] for point in found if point["status"] == "certified")
    model = export_model(tmp_path / "run", tmp_path / "model", configuration="two", target=at).stored.model
    assert model.certificate is not None
    assert (model.aggregation, model.certificate.aggregation) == ("top-two", "top-two")
    cohort = certify(tmp_path / "run", **vars(TERMS) | {"by": ()}).cohort
    split = pl.read_csv(tmp_path / "run" / "certified" / "split.csv")
    evaluated = (split.sort("case_id")["part"] == "evaluation").to_numpy() & cohort.complete(0)
    assert np.array_equal(model.reference, np.sort(cohort.scores[0][evaluated]))
