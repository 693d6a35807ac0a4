"""OpenVINO gives torch's features, is converted once, and sends and writes nothing for anybody else."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trust_cache.base.errors import InputError
from trust_cache.encoders.encoder import FrozenEncoder
from trust_cache.encoders.known_encoders import load_encoder
from trust_cache.encoders.openvino_runtime import OpenVinoEncoder, import_openvino, load_openvino
from trust_cache.encoders.recipe import DEFAULT_ENCODER

SMALL = "test_resnet"
STATIC = "mammo-clip-b2"  # with the padding of B5's kind, and a third of its time to convert
TO = 1e-5  # of the norm, before features are rounded to float16


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "kernels"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder))
    return folder / "openvino"


def both(encoder: str, size: tuple[int, int], threads: int = 1) -> tuple[FrozenEncoder, OpenVinoEncoder]:
    ours = load_encoder("random", size, encoder=encoder)
    return ours, load_openvino(ours.identity, lambda: ours, threads)


def differences(encoder: str, size: tuple[int, int], views: int = 3) -> np.ndarray:
    """The relative difference of each view's features from torch's."""
    with_torch, with_openvino = both(encoder, size)
    grey = torch.rand(views, 1, *size, generator=torch.Generator().manual_seed(1))
    pixels = (grey * 4 - 1.2).expand(-1, 3, -1, -1)  # as standardised views are, in shared memory
    with torch.inference_mode():
        expected = with_torch(pixels).numpy()
    found = with_openvino(pixels).numpy()
    assert found.dtype == np.float32
    return np.asarray(np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(75, 49), (97, 63), (152, 92), (401, 243), (760, 456)])
def test_b5_has_torchs_features(size: tuple[int, int]) -> None:
    assert differences(DEFAULT_ENCODER, size, views=1).max() < TO


@pytest.mark.parametrize(
    ("encoder", "size"),
    [("test_vit", (64, 48)), (SMALL, (33, 47)), ("mobilenetv3_small_050", (33, 47)), (STATIC, (75, 49))],
)
def test_other_families_have_torchs_features(encoder: str, size: tuple[int, int]) -> None:
    assert differences(encoder, size).max() < TO


def test_a_view_does_not_depend_on_its_neighbours() -> None:
    _, encoder = both(SMALL, (40, 24), threads=2)
    pixels = torch.rand(5, 3, 40, 24)
    alone = [encoder(pixels[n : n + 1]) for n in range(5)]
    assert torch.equal(encoder(pixels), torch.cat(alone))
    with pytest.raises(InputError, match=r"expected views of \(3, 40, 24\), found \(3, 24, 40\)"):
        encoder(pixels.transpose(2, 3))


def refuse_to_load() -> FrozenEncoder:
    raise AssertionError("the network was built although its model was kept")


def test_arithmetic_is_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a kept model, and where the processor's own choice is bfloat16."""
    openvino = import_openvino()
    make_core = openvino.Core

    def core_with_bfloat16() -> Any:
        core = make_core()
        core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "bf16"})
        return core

    monkeypatch.setattr(openvino, "Core", core_with_bfloat16)
    ours, first = both(SMALL, (40, 24))
    for encoder in (first, load_openvino(ours.identity, refuse_to_load, 1)):
        compiled = encoder._request.get_compiled_model()
        assert compiled.get_property("INFERENCE_PRECISION_HINT") == openvino.Type.f32


def test_a_model_is_converted_once_and_damage_costs_only_time(
    own_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, first = both(SMALL, (40, 24))
    assert caplog.messages == [f"converting {SMALL} for OpenVINO, once: up to half a minute"]
    caplog.clear()
    pixels = torch.rand(2, 3, 40, 24)
    expected = first(pixels)
    assert torch.equal(load_openvino(ours.identity, refuse_to_load, 1)(pixels), expected)
    assert caplog.messages == []
    (kept,) = own_folder.iterdir()
    assert (own_folder.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o700, 0o600)
    whole = kept.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for damaged in (b"", whole[:1000], bytes(flipped)):
        kept.write_bytes(damaged)
        with pytest.raises(AssertionError, match="the network was built"):
            load_openvino(ours.identity, refuse_to_load, 1)
        assert torch.equal(load_openvino(ours.identity, lambda: ours, 1)(pixels), expected)
        assert torch.equal(load_openvino(ours.identity, refuse_to_load, 1)(pixels), expected)


def test_features_of_the_same_views_are_kept(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, for one network, number of threads and picture; damage costs only time."""
    ours, first = both(SMALL, (40, 24))
    other = load_encoder("random", (40, 24), encoder=SMALL, seed=1)
    pixels = torch.rand(1, 3, 40, 24)
    expected = first.encode_once(pixels)
    assert torch.equal(expected, first(pixels))
    (kept,) = own_folder.glob("*.features")
    calls = []
    compute = OpenVinoEncoder.__call__
    monkeypatch.setattr(
        OpenVinoEncoder, "__call__", lambda self, views: calls.append(len(views)) or compute(self, views)
    )
    found = load_openvino(ours.identity, refuse_to_load, 1).encode_once(pixels)
    assert (torch.equal(found, expected), calls) == (True, [])
    for model in own_folder.glob("*.model"):  # a new conversion may be for other instructions
        model.unlink()
    assert torch.equal(load_openvino(ours.identity, lambda: ours, 1).encode_once(pixels), expected)
    assert len(calls) == 1
    calls.clear()
    kept.write_bytes(kept.read_bytes()[:-1] + b"\0")
    assert torch.equal(load_openvino(ours.identity, refuse_to_load, 1).encode_once(pixels), expected)
    assert len(calls) == 1
    for encoder, views in (
        (load_openvino(ours.identity, refuse_to_load, 1), pixels + 1),
        (load_openvino(ours.identity, refuse_to_load, 2), pixels),
        (load_openvino(other.identity, lambda: other, 1), pixels),
    ):
        assert torch.equal(encoder.encode_once(views), compute(encoder, views))
    assert len(calls) == 4


def test_another_network_or_weights_are_converted_again(own_folder: Path) -> None:
    for change in ({}, {"seed": 1}, {"image_size": (24, 40)}, {"encoder": "test_byobnet"}):
        build = partial(load_encoder, "random", **{"image_size": (40, 24), "encoder": SMALL} | change)  # type: ignore[arg-type]
        encoder = build()
        load_openvino(encoder.identity, lambda encoder=encoder: encoder, 1)  # type: ignore[misc]
    assert len(list(own_folder.iterdir())) == 4


def test_an_open_folder_is_not_used(own_folder: Path) -> None:
    own_folder.mkdir(parents=True)
    own_folder.chmod(0o777)
    both(SMALL, (40, 24))
    assert list(own_folder.iterdir()) == []


# Counts what leaves the process and its children (telemetry sends from one), and lets nothing through.
BLOCKED = """
import json, multiprocessing, os, socket, time
from pathlib import Path
log = Path.home().with_suffix(".log")
log.write_text("")
def refused(*_arguments, **_named):
    with log.open("a") as file:
        file.write("tried\\n")
    raise OSError("blocked")
for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, refused)
socket.getaddrinfo = socket.create_connection = refused
"""
CONVERTED = """
from trust_cache.encoders.known_encoders import load_encoder
from trust_cache.encoders.openvino_runtime import load_openvino
encoder = load_encoder("random", (40, 24), encoder="test_resnet")
load_openvino(encoder.identity, lambda: encoder, 1)
"""
REPORT = """
time.sleep(1)
files = sorted(str(path.relative_to(Path.home())) for path in Path.home().rglob("*") if path.is_file())
print(json.dumps([log.read_text().split(), files]))
"""


def in_a_new_home(home: Path, program: str) -> tuple[list[str], list[str]]:
    """Run a program with an empty home; return what it tried to send, and the files that it left there."""
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "NUMBA_CACHE_DIR")}
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + program + REPORT],
        env={**kept, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    tried, files = json.loads(done.stdout.splitlines()[-1])
    return tried, files


def test_nothing_is_sent_and_nothing_is_written_for_others(tmp_path: Path) -> None:
    tried, files = in_a_new_home(tmp_path / "ours", CONVERTED)
    assert tried == []
    assert [Path(file).parts[:2] for file in files] == [(".cache", "trust-cache")]  # the converted model


@pytest.mark.slow
def test_telemetry_that_was_begun_before_is_silent_from_then_on(tmp_path: Path) -> None:
    """Another part of the program imported OpenVINO first: plain OpenVINO writes and sends."""
    begun = "import openvino\nwhile not log.read_text(): time.sleep(0.1)\nlog.write_text('')\n"
    tried, files = in_a_new_home(tmp_path / "begun", begun + CONVERTED)
    assert tried == []
    assert any(file.startswith("intel/") for file in files)
