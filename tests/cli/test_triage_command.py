"""triage and estimate on the command line: their examples, and wrong use."""

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.clinic.dicom_files import PROJECTIONS
from tests.clinic.triage_material import (
    ENCODER,
    place_model,
    scores_by_extract,
    tiny_head,
    tiny_model,
    write_clinic,
)
from tests.project.examples import examples_of
from trust_cache.encoders.known_encoders import load_encoder

TINY = ("--encoder", ENCODER, "--image-size", "32x32", "--device", "cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    write_clinic(place / "dicoms", range(2), [])
    scores_by_extract(place / "dicoms", range(2), tiny_head(), place)
    place_model(place / "model", tiny_model(place / "cache.zarr", 0.9, certified=False))
    lines = [
        f"{case},{name[0]},{name[2:]},dicoms/{case:04d}/{name}.dcm"
        for case in range(2)
        for name in PROJECTIONS
    ]
    (place / "new.csv").write_text("\n".join(["case_id,laterality,projection,path", *lines]))
    (place / "encoder.safetensors").write_bytes(b"not weights")
    return place


@pytest.fixture
def workplace(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for path in made.iterdir():
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


@pytest.mark.parametrize("command", examples_of("triage"))
def test_examples_of_triage(run: Run, workplace: Path, command: str) -> None:
    words = shlex.split(command)[1:]
    # The synthetic model's weights are random: the examples' file is the only thing that is replaced.
    words = ["random" if word == "encoder.safetensors" else word for word in words]
    done = run(*words, "--workers", 1)
    assert done.code == 0, done.err
    assert "not a medical device" in done.err
    assert (workplace / "worklist.csv").exists()
    if "--json" in words:
        document = json.loads(done.out)
        assert (document["cases"], document["dismissed"], document["failed"]) == (2, 2, 0)
    else:
        assert "2 cases, 0 dismiss, 2 review" in done.out
        assert "everything is review" in done.out


@pytest.mark.parametrize("command", examples_of("estimate"))
def test_examples_of_estimate(run: Run, workplace: Path, command: str) -> None:
    words = shlex.split(command)[1:]
    words = ["random" if word == "encoder.safetensors" else word for word in words]
    done = run(*words, *TINY)  # the paper's encoder at its own size takes seconds a view here
    assert done.code == 0, done.err
    if "--json" in words:
        document = json.loads(done.out)
        assert document["timing"]["images"] == 8
        assert document["timing"]["seconds"] > 0
        assert document["timing"]["preprocess_per_image"] is None
    else:
        assert "to preprocess a DICOM file" in done.out
    assert workplace.is_dir()


def test_the_estimated_size_is_that_of_the_extraction(run: Run, workplace: Path) -> None:
    """extract with two views, counted file by file; its own records (settings, failures) come on top."""
    words = ["png/manifest.csv", "--views", 2, "--weights", "random", *TINY]
    assert run("extract", *words, "--out", "real.zarr").code == 0
    files = [path for path in (workplace / "real.zarr").rglob("*") if path.is_file()]
    own = [path for path in files if path.name not in ("extraction.json", "failures.csv")]
    found = json.loads(run("estimate", *words, "--json").out)
    assert found["size"]["total"] == sum(path.stat().st_size for path in own)
    assert len(files) - len(own) <= 2


def test_broken_cases_end_with_code_1(run: Run, tmp_path: Path, made: Path) -> None:
    write_clinic(tmp_path / "dicoms", [1], [(2, "truncated")])
    words = ["triage", tmp_path / "dicoms", "--model", made / "model", "--out", tmp_path / "w.csv"]
    done = run(*words, "--uncertified", "--workers", 1)
    assert done.code == 1
    assert "1 dismiss, 1 review" in done.out
    assert "1 are incomplete" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["triage", "none", "--model", "model", "--out", "w.csv"], "found neither"),
        (["triage", "dicoms", "--model", "none", "--out", "w.csv"], "export-model"),
        (["triage", "dicoms", "--model", "model", "--out", "dicoms"], "found a folder"),
        (["triage", "dicoms", "--model", "model", "--out", "w.csv", "--require", "CC"], "require"),
        (["triage", "dicoms", "--model", "model", "--out", "w.csv", "--workers", "0"], "workers"),
        (["triage", "dicoms", "--model", "model", "--out", "w.csv", "--device", "tpu"], "device"),
        (
            ["triage", "dicoms", "--model", "model", "--out", "w.csv", "--weights", "encoder.safetensors"],
            "safetensors",
        ),
        (["triage", "dicoms", "--model", "model", "--out", "w.csv", "--manifest", "none.csv"], "none.csv"),
        (["triage", "new.csv", "--model", "cache.zarr", "--out", "w.csv"], "export-model"),
        (["estimate", "none.csv"], "none.csv"),
        (["estimate", "manifest.csv", "--views", "-1"], "views"),
        (["estimate", "manifest.csv", "--image-size", "big"], "image-size"),
        (["estimate", "manifest.csv", "--weights", "none.safetensors"], "no such file"),
        (["estimate", "manifest.csv", "--encoder", "no_such_model"], "no_such_model"),
    ],
)
def test_wrong_use(run: Run, workplace: Path, words: list[str], message: str) -> None:
    done = run(*words)
    assert done.code == 2, done.err
    assert message in done.err
    assert "Traceback" not in done.err
    assert not (workplace / "w.csv").exists()


def test_estimate_without_a_usable_image(run: Run, workplace: Path) -> None:
    (workplace / "bad.csv").write_text(
        "image_id,case_id,label,laterality,projection,path\n1,1,0,L,CC,gone.dcm\n"
    )
    done = run("estimate", "bad.csv", *TINY)
    assert (done.code, "found none usable (1: read: no such file)" in done.err) == (2, True)


def test_weights_that_are_not_the_models(run: Run, workplace: Path) -> None:
    from safetensors.torch import save_file  # noqa: PLC0415

    network = load_encoder("random", (32, 32), encoder=ENCODER, seed=4).network
    save_file(dict(network.state_dict()), workplace / "other.safetensors")
    words = ["triage", "dicoms", "--model", "model", "--out", "w.csv", "--weights", "other.safetensors"]
    done = run(*words)
    assert done.code == 2
    assert "weights_sha256: expected 'random:seed=0'" in done.err
