"""Which runtime is taken, and what a user reads where it cannot be."""

import re
from importlib.metadata import PackageNotFoundError

import pytest

from trust_cache.base.errors import InputError
from trust_cache.encoders import known_runtimes
from trust_cache.encoders.known_runtimes import OPENVINO, TORCH, choose_runtime, precision_of


def install(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def found(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(known_runtimes, "version", found)


@pytest.mark.parametrize(
    ("word", "device", "begun", "expected"),
    [
        ("auto", "cpu", None, OPENVINO),
        ("auto", "cuda:1", None, TORCH),
        ("auto", "cpu", "torch 2.0", TORCH),  # a cache resumes with its own
        ("auto", "cpu", "openvino 2025.4", OPENVINO),
        ("auto", "cpu", "external", TORCH),
        ("torch", "cpu", "openvino 2025.4", TORCH),
        ("openvino", "cpu", "torch 2.0", OPENVINO),
    ],
)
def test_the_choice(
    monkeypatch: pytest.MonkeyPatch, word: str, device: str, begun: str | None, expected: object
) -> None:
    install(monkeypatch, torch="2.13.0+cpu", openvino="2026.4.1")
    assert choose_runtime(word, device, begun) == expected
    assert (TORCH.words, OPENVINO.words) == ("torch 2.13.0", "openvino 2026.4.1")


def test_where_openvino_is_missing_or_old(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for versions, reason in (
        ({"torch": "2.13.0"}, r"found none; run pip install 'trust-cache\[openvino\]'"),
        ({"torch": "2.13.0", "openvino": "2024.6.0"}, r"expected openvino 2025.4 or newer, found 2024.6.0"),
    ):
        install(monkeypatch, **versions)
        caplog.clear()
        assert choose_runtime("torch", "cpu") == choose_runtime("auto", "cuda") == TORCH
        assert choose_runtime("auto", "cpu", "torch 2.0") == TORCH  # a cache that is resumed has no choice
        assert not caplog.messages
        assert choose_runtime("auto", "cpu") == TORCH
        (line,) = caplog.messages
        assert re.fullmatch(f"the encoder runs in torch; OpenVINO .* three times faster .*{reason}.*", line)
        for word, begun in (("openvino", None), ("auto", "openvino 2026.4.1")):
            with pytest.raises(InputError, match=f"runtime openvino: .*{reason}"):
                choose_runtime(word, "cpu", begun)


def test_wrong_words(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, torch="2.13.0", openvino="2026.4.1")
    with pytest.raises(InputError, match="expected torch, openvino or auto, found 'onnx'"):
        choose_runtime("onnx", "cpu")
    with pytest.raises(InputError, match="expected torch on the device cuda:0, found openvino"):
        choose_runtime("openvino", "cuda:0")
    assert (precision_of("cpu"), precision_of("cuda:1")) == ("float32", "float16 autocast")
