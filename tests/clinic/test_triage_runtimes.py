"""A model triages in another runtime or precision only if its encoder gives the features of its probe."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from tests.clinic.triage_material import place_model, scores_by_extract, tiny_head, tiny_model, write_clinic
from trust_cache.base.errors import InputError
from trust_cache.clinic.model_folder import Model, read_model
from trust_cache.clinic.triage import TriageSettings, triage
from trust_cache.clinic.worklist import record_of
from trust_cache.encoders.probe import make_probe

WHOLE = (1, 2)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clinic")
    write_clinic(folder / "dicoms", WHOLE, ())
    scores_by_extract(folder / "dicoms", WHOLE, tiny_head(), folder)
    return folder


def model_apart(place: Path, distance: float, **changes: object) -> Model:
    """The model of the cache, whose probe is at a relative distance from what its runtime gives."""
    model = tiny_model(place / "cache.zarr", 0.999)
    assert model.probe is not None
    features = model.probe.vector
    step = np.random.default_rng(1).standard_normal(features.size)
    moved = features + step * (distance * np.linalg.norm(features) / np.linalg.norm(step))
    fingerprint = structs.replace(model.fingerprint, **changes)
    return replace(model, fingerprint=fingerprint, probe=make_probe(moved))


def triaged(place: Path, out: Path, model: Model, **settings: object) -> dict[str, object]:
    place_model(out / "model", model)
    chosen = TriageSettings(workers=1, **settings)  # type: ignore[arg-type]
    done = triage(place / "dicoms", out / "model", out / "worklist.csv", chosen)
    record: dict[str, object] = json.loads(record_of(done.out).read_text())
    return record | {"scores": [row.score for row in done.rows]}


def test_either_runtime_gives_the_same_scores(place: Path, tmp_path: Path) -> None:
    found = {}
    for runtime in ("torch", "openvino"):
        (tmp_path / runtime).mkdir()
        found[runtime] = triaged(place, tmp_path / runtime, model_apart(place, 0), runtime=runtime)
        assert str(found[runtime]["runtime"]).startswith(f"{runtime} ")
    assert found["openvino"]["probe_difference"] == 0  # the cache was made with it
    assert 0 < found["torch"]["probe_difference"] < 1e-5  # type: ignore[operator]
    np.testing.assert_allclose(found["torch"]["scores"], found["openvino"]["scores"], atol=1e-3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("distance", "precision", "accepted"),
    [(1e-5, "float32", True), (0.02, "float32", False), (3e-3, "float16 autocast", True),
     (0.02, "float16 autocast", False), (1e-3, "bfloat16", False)],
)  # fmt: skip
def test_the_probe_decides(
    place: Path, tmp_path: Path, distance: float, precision: str, accepted: bool
) -> None:
    """A model of a GPU box runs on a processor; `auto` finds that there is no GPU."""
    model = model_apart(place, distance, runtime="torch 2.13.0", precision=precision)
    if accepted:
        found = triaged(place, tmp_path, model)
        assert found["probe_difference"] == pytest.approx(distance, rel=0.02)
        return
    with pytest.raises(InputError, match="its runtime gives other features of the probe picture"):
        triaged(place, tmp_path, model)
    assert not (tmp_path / "worklist.csv").exists()


def test_a_model_without_a_probe_needs_its_own_runtime(place: Path, tmp_path: Path) -> None:
    model = replace(model_apart(place, 0), probe=None)
    assert triaged(place, tmp_path, model)["probe_difference"] is None
    with pytest.raises(InputError, match="extract it again with the same runtime"):
        triaged(place, tmp_path, model, runtime="torch")


def test_the_model_folder_keeps_the_probe(place: Path, tmp_path: Path) -> None:
    model = model_apart(place, 0)
    assert read_model(place_model(tmp_path / "model", model)).model.probe == model.probe
