"""The model folder is read back unchanged, and any changed byte is refused."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from numpy.typing import NDArray
from safetensors.numpy import load, save
from scipy.stats import beta

from tests.clinic.material import a_certificate, a_head, a_model
from trust_cache.base.errors import InputError
from trust_cache.certificate.certification import Composition
from trust_cache.certificate.points import Counts, Terms, Threshold, describe
from trust_cache.certificate.verify import verify_counts
from trust_cache.clinic.model_folder import OWN, RECORD, read_model, render_model, write_model
from trust_cache.manifest.protocol import PAPER


def test_what_was_written_is_read(tmp_path: Path) -> None:
    model = a_model()
    assert write_model(model, tmp_path / "model") is None
    found = read_model(tmp_path / "model").model
    assert (found.configuration, found.origin, found.threshold) == (
        model.configuration,
        model.origin,
        model.threshold,
    )
    assert found.fingerprint == model.fingerprint
    assert found.certificate == model.certificate
    for name in ("cases", "key_check"):
        assert getattr(found.trained_on, name) == getattr(model.trained_on, name)
    one, other = (item.trained_on.sketches for item in (found, model))
    assert (one.spread, one.same_to) == (other.spread, other.same_to)
    assert one.centre.tolist() == other.centre.tolist()
    assert one.codes.tolist() == other.codes.tolist()
    assert found.reference.tolist() == model.reference.tolist()
    for name in ("gamma", "beta", "weight", "bias"):
        assert getattr(found.head, name).tobytes() == getattr(model.head, name).tobytes()
    assert {path.name for path in (tmp_path / "model").iterdir()} == OWN


def test_the_same_model_is_the_same_bytes_and_another_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "model"
    write_model(a_model(), out)
    first = read_model(out).sha256
    assert write_model(a_model(), out) is None
    assert read_model(out).sha256 == first
    kept = write_model(a_model(certified=False), out)
    assert kept == tmp_path / "model.1"
    assert read_model(kept).sha256 == first
    assert not read_model(out).model.certified
    assert not (out / "certificate.json").exists()


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return render_model(a_model())


@given(st.data())
@settings(max_examples=150)
def test_any_changed_byte_is_refused(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("model")
    name = data.draw(st.sampled_from(sorted(files)))
    content = bytearray(files[name])
    kind = data.draw(st.sampled_from(["flip", "cut", "add"]))
    if kind == "flip":
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        content += data.draw(st.sampled_from([b" ", b"\n", b"\0"]))
    for other, whole in files.items():
        (folder / other).write_bytes(bytes(content) if other == name else whole)
    with pytest.raises(InputError):
        read_model(folder)


def edited(files: dict[str, bytes], folder: Path, changes: dict[str, Any]) -> Path:
    """A folder whose record was edited and given a fitting digest."""
    from trust_cache.clinic import model_folder as module  # noqa: PLC0415 - its seal, on purpose

    document = json.loads(files[RECORD])
    del document["sha256"]
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / RECORD).write_bytes(module._sealed(document | changes))
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": 2}, "newer trust-cache"),
        ({"kind": "something"}, "not the record of a model: kind"),
        ({"tau": 0.5}, "expected tau 0.5"),
        ({"target": 0.9}, "expected target 0.9"),
        ({"configuration": "ce"}, "expected configuration 'ce'"),
        ({"certified": False}, "certified False"),
        ({"certificate": None}, "expected the digests"),
        ({"files": {}}, "expected the digests"),
        ({"fingerprint": {}}, "fingerprint"),
        ({"dim": 7}, "expected a head of 7 features"),
        ({"origin": "somewhere"}, "not the record of a model: origin"),
        ({"dim": None}, "dim: expected int, found null"),
        ({"further": 1}, "unknown key further"),
    ],
)
def test_records_that_contradict_their_files(
    files: dict[str, bytes], tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        read_model(edited(files, tmp_path / "model", changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"scale": np.array([1.0, np.nan])},
        {"scale": np.array([1.0, 0.0])},
        {"scale": np.array([np.inf, 0.1])},
        {"centre": np.full(6, np.nan, dtype=np.float32)},
        {"centre": np.zeros(7, dtype=np.float32)},
        {"codes": np.zeros((3, 64))},
        {"codes": np.zeros((3, 16), dtype=np.int16)},
        {"key_check": np.zeros(0, dtype=np.uint8)},
        {"further": np.zeros(1)},
    ],
)
def test_sketches_that_could_not_recognise_an_image(
    files: dict[str, bytes], tmp_path: Path, changes: dict[str, NDArray[Any]]
) -> None:
    name = "trained_on.safetensors"
    content = save(load(files[name]) | changes)
    digests = json.loads(files[RECORD])["files"] | {name: hashlib.sha256(content).hexdigest()}
    with pytest.raises(InputError, match=f"{name}: expected"):
        read_model(edited(files | {name: content}, tmp_path / "model", {"files": digests}))


def test_a_certificate_that_is_not_listed_is_refused(tmp_path: Path, files: dict[str, bytes]) -> None:
    write_model(a_model(certified=False), tmp_path / "model")
    (tmp_path / "model" / "certificate.json").write_bytes(files["certificate.json"])
    with pytest.raises(InputError, match="does not belong to this model"):
        read_model(tmp_path / "model")


def test_folders_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path, tmp_path / "none", tmp_path / "file"):
        with pytest.raises(InputError, match="export-model"):
            read_model(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "target missed"},
        {"status": "bound not below limit"},
        {"status": "nothing dismissed"},
        {"tau": 0.2},
        {"configuration": "ce"},
        {"protocol": PAPER},
    ],
)
def test_a_certificate_that_certifies_something_else(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="certificate"):
        replace(a_model(), certificate=a_certificate(**changes))


def resealed(folder: Path, files: dict[str, bytes], certificate: dict[str, Any]) -> Path:
    """A folder with another certificate, all digests fitting."""
    content = json.dumps(certificate).encode()
    digests = json.loads(files[RECORD])["files"] | {"certificate.json": hashlib.sha256(content).hexdigest()}
    return edited(files | {"certificate.json": content}, folder, {"files": digests})


@pytest.mark.parametrize(
    "changes",
    [
        {"bound": 0.0001},
        {"bound_corrected": 0.0001},
        {"recall_lower": 0.999},
        {"limit": 0.005},
        {"dismissed": 2_000},
        {"bound_dismissed": 2_000},
        {"bound_positives_dismissed": 0},
        {"positives_dismissed": 3},
        {"cases": 900},
        {"compared": 2},
        {"composition": {"configurations": ["closed-loop", "ce"], "targets": [0.98], "groups": {}}},
        {"composition": {"configurations": ["ce"], "targets": [0.98], "groups": {}}, "compared": 1},
        {"patients": 4_000},
        {"delta": 0.4},
        {"dismissed": 0, "positives_dismissed": 0},
        {"rule": "mine"},
        {"versions": {}},
    ],
)  # fmt: skip
def test_a_certificate_that_its_own_counts_contradict(
    files: dict[str, bytes], tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Nothing that cannot be recomputed is a certificate, whatever the digests say."""
    stated = json.loads(files["certificate.json"])
    assert all(stated[key] != value for key, value in changes.items() if key != "compared")
    read_model(resealed(tmp_path / "whole", files, stated))
    with pytest.raises(InputError, match="it does not follow from its own counts"):
        read_model(resealed(tmp_path / "model", files, stated | changes))


@pytest.mark.parametrize("key", ["dismissed", "bound_cases", "composition", "compared", "delta", "limit"])
def test_a_certificate_without_its_counts(files: dict[str, bytes], tmp_path: Path, key: str) -> None:
    stated = json.loads(files["certificate.json"])
    del stated[key]
    with pytest.raises(InputError, match=f"certificate.json: not a certificate: expected the key {key}"):
        read_model(resealed(tmp_path / "model", files, stated))


@given(
    cases=st.integers(30, 10_000), share=st.floats(0.01, 0.5), dismissed=st.floats(0, 1),
    misses=st.integers(0, 5), compared=st.integers(1, 40), delta=st.sampled_from([0.01, 0.05, 0.001]),
)  # fmt: skip
@settings(max_examples=100)
def test_every_point_follows_from_its_counts(
    cases: int, share: float, dismissed: float, misses: int, compared: int, delta: float
) -> None:
    """The verifier of a model accepts exactly what scipy gives for the integers."""
    positives = max(1, round(share * cases))
    missed = min(misses, positives)
    below = missed + int(dismissed * (cases - positives))
    counts = Counts(cases, positives, 0, 0, below, missed)
    targets = tuple((number + 1) / 100 for number in range(compared))
    threshold = Threshold("a", targets[0], 0.5, 10, 5, 0, 1, 5)
    point = describe(counts, counts, threshold, Terms("recall", delta, compared))
    expected = 1.0 if missed == below else float(beta.isf(delta / compared, missed + 1, below - missed))
    assert point.bound_corrected == pytest.approx(expected, rel=1e-9)
    composition = Composition(configurations=("a",), targets=targets, groups={})
    certificate = structs.replace(a_certificate(), **structs.asdict(point), composition=composition)
    assert verify_counts(certificate) == ()
    for key in ("bound", "bound_corrected", "recall_lower", "dismissal", "limit"):
        value = getattr(certificate, key)
        wrong = structs.replace(certificate, **{key: value * 0.99 if value else 0.5})
        assert verify_counts(wrong) or key == "limit"


def test_a_head_that_diverged_is_no_model() -> None:
    head = a_head()
    head.weight[0, 2] = np.nan
    with pytest.raises(InputError, match="weight"):
        a_model(head=head)
