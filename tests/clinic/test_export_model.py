"""Export a model from a run of fit-heads and certify it on cases that it never saw."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from msgspec import structs
from safetensors.numpy import load_file

from tests.clinic.material import LEFT_CC, two_halves
from tests.heads.cohorts import a_cohort, write_cohort
from tests.heads.records import edit_record
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.feature_rows import load_rows
from trust_cache.certificate.certify import certify
from trust_cache.certificate.score_table import check_scores
from trust_cache.certificate.verify import verify
from trust_cache.clinic.certify_model import certify_model, scores_table
from trust_cache.clinic.export_model import export_model
from trust_cache.clinic.model_folder import read_model, write_model
from trust_cache.clinic.model_scoring import TrainedOn, digest_of, score_cache
from trust_cache.heads.bank import to_torch
from trust_cache.heads.fit import fit_heads
from trust_cache.heads.fold_training import gate_tails
from trust_cache.heads.head_settings import presets

CHOSEN = {name: presets()[name] for name in ("ce", "closed-loop")}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, its model, and a set of other cases with the same ids."""
    folder = tmp_path_factory.mktemp("models")
    here, new = two_halves()
    cache = write_cohort(folder / "cache.zarr", *here)
    write_cohort(folder / "new.zarr", *new)
    fit_heads(cache, folder / "run", configurations=CHOSEN, epochs=8, threads=1)
    export_model(folder / "run", folder / "model", configuration="closed-loop", target=0.9)
    return folder


def test_a_refit_head_is_not_certified_and_scores_as_torch_does(place: Path) -> None:
    model = read_model(place / "model").model
    assert (model.origin, model.certified, model.configuration) == ("refit", False, "closed-loop")
    assert "calibration cases" in model.threshold.chosen_by
    rows = load_rows(open_cache(place / "cache.zarr"))
    import torch  # noqa: PLC0415

    head = to_torch(model.head.gamma[0], model.head.beta[0], model.head.weight[0], float(model.head.bias[0]))
    features = torch.from_numpy(np.stack([rows.clean(n) for n in range(rows.images)]).astype(np.float32))
    with torch.no_grad():
        scores = torch.sigmoid(head(features))[:, 0].double().numpy()
    case_ids = open_cache(place / "cache.zarr").manifest["case_id"].to_list()
    by_case: dict[str, float] = {}
    for case_id, score in zip(case_ids, scores.tolist(), strict=True):
        by_case[case_id] = max(by_case.get(case_id, 0.0), score)
    assert len(model.reference) == 20  # a tenth of the cases, not fitted on
    for score in model.reference:
        assert min(abs(score - other) for other in by_case.values()) < 1e-5


def test_the_threshold_keeps_its_target_on_the_calibration_cases(place: Path) -> None:
    """Six positives of 20 and a target of 0.9 allow no miss: tau is the lowest positive score."""
    model = read_model(place / "model").model
    assert "20 calibration cases, 6 of them positive" in model.threshold.chosen_by
    assert model.threshold.tau in model.reference.tolist()


def test_the_same_export_twice_is_the_same_model(place: Path, tmp_path: Path) -> None:
    made = export_model(place / "run", tmp_path / "model", configuration="closed-loop", target=0.9, threads=2)
    assert made.stored.sha256 == read_model(place / "model").sha256
    other = export_model(place / "run", tmp_path / "other", configuration="ce", target=0.9)
    assert other.stored.sha256 != made.stored.sha256


def test_a_cache_that_was_moved(place: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for path in (place / "run").iterdir():
        (run / path.name).write_bytes(path.read_bytes())
    edit_record(run, cache=str(tmp_path / "gone.zarr"))
    with pytest.raises(InputError, match="give its place with --cache"):
        export_model(run, tmp_path / "model", configuration="ce")
    with pytest.raises(InputError, match="expected the images and labels of the run"):
        export_model(run, tmp_path / "model", configuration="ce", cache=str(place / "new.zarr"))
    assert not (tmp_path / "model").exists()
    made = export_model(run, tmp_path / "model", configuration="ce", cache=str(place / "cache.zarr"))
    assert made.stored.model.configuration == "ce"


def test_training_cases_are_refused_whatever_their_ids(place: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="600 images that it was trained on"):
        certify_model(place / "model", str(place / "cache.zarr"), tmp_path / "out")
    manifest, features = two_halves()[0]
    renamed = manifest.with_columns(pl.format("other-{}", "case_id").alias("case_id"))
    renamed = renamed.with_columns(pl.format("other-{}", "image_id").alias("image_id"))
    other = np.array(features)
    other[5:] = a_cohort(distance=2.0, seed=3)[1][5:]
    # As on another device: features off by about a thousandth.
    other[:5] = (other[:5].astype(np.float32) * 1.0005 + 0.0005).astype(np.float16)
    cache = write_cohort(tmp_path / "renamed.zarr", renamed, other)
    with pytest.raises(InputError, match="found 5 images that it was trained on"):
        certify_model(place / "model", str(cache), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def seed_of_a_split(place: Path, target: float, *, met: bool) -> int:
    """The first seed whose split of the new cases meets the target on evaluation, or misses it."""
    model, cache = read_model(place / "model").model, open_cache(place / "new.zarr")
    rows = load_rows(cache)
    scored, tails = (
        score_cache(cache, rows, model.head, model.aggregation),
        gate_tails(model.gate, rows, np.arange(cache.images)),
    )
    scores = check_scores(scores_table(cache, scored, model.configuration, tails))
    terms = {"protocol": LEFT_CC, "limit": 0.9}
    return next(
        seed
        for seed in range(50)
        if certify(scores, targets=[target], seed=seed, **terms).points[0].certified is met  # type: ignore[arg-type]
    )


def test_certified_on_new_cases_and_attached(place: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    write_model(read_model(place / "model").model, model)
    before = read_model(model).sha256
    seed = seed_of_a_split(place, 0.5, met=True)
    done = certify_model(
        model,
        str(place / "new.zarr"),
        tmp_path / "out",
        targets=[0.5],
        attach=True,
        seed=seed,
        protocol=LEFT_CC,
        limit=0.9,
    )
    assert done.attached, done.not_attached
    assert done.model_kept is not None
    assert read_model(done.model_kept).sha256 == before
    certificate = tmp_path / "out" / "certificates" / "closed-loop@0.5.json"
    assert verify(certificate, tmp_path / "out" / "scores.csv").holds
    after = read_model(model).model
    assert after.certified
    assert (model / "certificate.json").read_bytes() == certificate.read_bytes()
    assert after.threshold.tau == done.certification.points[0].tau
    assert after.threshold.target == 0.5
    assert len(after.reference) == 160  # the evaluation cases
    scored_by = json.loads((tmp_path / "out" / "scored_by.json").read_text())
    assert scored_by["model_sha256"] == before


def test_a_target_that_was_not_met_certifies_nothing(place: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    write_model(read_model(place / "model").model, model)
    before = read_model(model).sha256
    seed = seed_of_a_split(place, 0.98, met=False)
    again = certify_model(
        model,
        str(place / "new.zarr"),
        tmp_path / "out",
        targets=[0.98],
        seed=seed,
        attach=True,
        protocol=LEFT_CC,
        limit=0.9,
    )
    assert not again.attached
    assert again.not_attached is not None
    assert "target missed" in again.not_attached
    by_paper = certify_model(
        model, str(place / "new.zarr"), tmp_path / "paper", targets=[0.5], attach=True, protocol="paper",
        limit=0.9, seed=seed_of_a_split(place, 0.5, met=True),
    )  # fmt: skip
    assert "is without projections" in (by_paper.not_attached or "")
    by_limit = certify_model(
        model, str(place / "new.zarr"), tmp_path / "limit", targets=[0.5], attach=True, protocol=LEFT_CC,
        limit=0.0001, seed=seed_of_a_split(place, 0.5, met=True),
    )  # fmt: skip
    assert "bound not below limit" in (by_limit.not_attached or "")
    assert read_model(model).sha256 == before


def test_which_target_is_attached(place: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the model's own \(0.9\)"):
        certify_model(
            place / "model", str(place / "new.zarr"), tmp_path / "out", targets=[0.8, 0.7], attach=True
        )
    assert not (tmp_path / "out").exists()


def test_another_encoder_is_refused(place: Path, tmp_path: Path) -> None:
    model = read_model(place / "model").model
    other = replace(model, fingerprint=structs.replace(model.fingerprint, weights_sha256="00" * 32))
    write_model(other, tmp_path / "model")
    with pytest.raises(InputError, match="weights_sha256"):
        certify_model(tmp_path / "model", str(place / "new.zarr"), tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"configuration": "closedloop"}, r"one of its configurations \(ce, closed-loop\)"),
        ({"target": 98.0}, "for 98.0 % write 0.98"),
        ({"threads": 0}, "threads"),
        ({"cache": "none.zarr"}, r"none\.zarr"),
    ],
)
def test_wrong_use(place: Path, tmp_path: Path, changes: dict[str, object], words: str) -> None:
    settings: dict[str, object] = {"configuration": "ce"} | changes
    with pytest.raises(InputError, match=words):
        export_model(place / "run", tmp_path / "model", **settings)  # type: ignore[arg-type]
    assert not (tmp_path / "model").exists()


def test_folders_that_are_no_run(place: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run folder"):
        export_model(place, tmp_path / "model", configuration="ce")
    for content, words in (
        ("{", "unreadable"),
        ('{"schema": 9}', "newer"),
        ('{"schema": 1}', "expected the key"),
    ):
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(InputError, match=words):
            export_model(tmp_path, tmp_path / "model", configuration="ce")


def test_few_features_leave_the_ids_to_decide(tmp_path: Path) -> None:
    manifest, features = a_cohort(cases=20, positives=8, dim=8)
    cache = open_cache(write_cohort(tmp_path / "cache.zarr", manifest, features))
    rows, key = load_rows(cache), bytes(32)
    (said,) = TrainedOn.from_cache(cache, rows).refuse_seen(cache, rows)
    assert "too few features" in said
    with pytest.raises(InputError, match="20 cases that it was trained on"):
        TrainedOn.from_cache(cache, rows, key).refuse_seen(cache, rows, key)


@pytest.fixture(scope="module")
def keyed(place: Path) -> Path:
    """A model with keyed digests of its case ids; the key is beside it."""
    export_model(place / "run", place / "keyed", configuration="ce", target=0.9, key=place / "key")
    return place / "keyed"


def test_without_the_key_no_case_id_is_recovered(place: Path, keyed: Path) -> None:
    """Every id that the training set could have, by any digest without the key, is nowhere in a folder."""
    ids = [f"{number:04d}" for number in range(10_000)]
    names = open_cache(place / "cache.zarr").manifest["case_id"].unique().to_list()
    assert set(names) <= set(ids)
    plain = [
        (hashlib.new(kind, salt + name.encode()).digest()[:16])
        for kind in ("sha256", "blake2b", "sha1", "md5")
        for salt in (b"", b"trust-cache key", b"case_id")
        for name in ids
    ]
    unkeyed = [digest_of(name, key) for key in (b"", bytes(32)) for name in ids]
    for folder in (place / "model", keyed):
        content = b"".join(path.read_bytes() for path in folder.iterdir())
        assert not [digest for digest in (*plain, *unkeyed) if digest in content]
    digests = load_file(keyed / "trained_on.safetensors")["cases"]
    assert digests.shape == (len(names), 16)
    key = bytes.fromhex((place / "key").read_text())
    assert {bytes(row) for row in digests} == {digest_of(name, key) for name in names}
    assert load_file(place / "model" / "trained_on.safetensors")["cases"].shape == (0, 16)
    assert (place / "key").stat().st_mode & 0o777 == 0o600
    assert (place / "key").read_text().strip() not in repr(read_model(keyed).model)


def test_with_the_key_equal_case_ids_are_a_warning(place: Path, keyed: Path, tmp_path: Path) -> None:
    def warnings(model: Path, **more: Path) -> str:
        out = tmp_path / f"out-{model.name}-{len(more)}"
        done = certify_model(model, str(place / "new.zarr"), out, protocol=LEFT_CC, **more)
        return " ".join(done.certification.warnings)

    assert "200 case ids also occur" in warnings(keyed, key=place / "key")
    assert "no key was given (--key): only images were compared" in warnings(keyed)
    assert "exported without a key" in warnings(place / "model", key=place / "key")
    assert "key" not in warnings(place / "model")


@pytest.mark.parametrize("key", [None, "key"])
def test_images_are_recognised_with_and_without_the_key(
    place: Path, keyed: Path, tmp_path: Path, key: str | None
) -> None:
    given = None if key is None else place / key
    with pytest.raises(InputError, match="600 images that it was trained on"):
        certify_model(keyed, str(place / "cache.zarr"), tmp_path / "out", key=given)


def test_wrong_keys(place: Path, keyed: Path, tmp_path: Path) -> None:
    def refused(words: str, key: Path) -> None:
        with pytest.raises(InputError, match=words) as caught:
            certify_model(keyed, str(place / "new.zarr"), tmp_path / "out", key=key)
        assert "Sentinel" not in str(caught.value)
        assert not (tmp_path / "out").exists()

    refused("expected the key that the model was exported with, found none", tmp_path / "none")
    key = tmp_path / "other"
    key.write_text("ab" * 32)
    key.chmod(0o644)
    refused("only its owner can read; run chmod 600", key)
    key.chmod(0o600)
    refused("expected the key that the model was exported with, found another", key)
    key.write_text("Sentinel, a password")
    refused("expected a key of export-model", key)
    refused("cannot be read", tmp_path)
    with pytest.raises(InputError, match="outside the model folder"):
        export_model(place / "run", tmp_path / "m", configuration="ce", key=tmp_path / "m" / "key")
    assert not (tmp_path / "m").exists()
