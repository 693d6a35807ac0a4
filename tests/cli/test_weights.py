"""weights on the command line."""

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.cli.conftest import Run
from tests.encoders.replica import Hostile
from trust_cache.encoders.timm_models import import_timm


def test_a_timm_file(run: Run, tmp_path: Path) -> None:
    model = import_timm().create_model("test_resnet", pretrained=False)
    save_file(model.state_dict(), tmp_path / "timm.safetensors")
    words = ["weights", tmp_path / "timm.safetensors", "--out", tmp_path / "e.safetensors"]
    assert run(*words).code == 2
    done = run(*words, "--encoder", "test_resnet")
    assert done.code == 0
    assert "tensors of test_resnet, padding timm" in done.out
    assert done.out.count("sha256 of ") == 2
    assert "did you mean" in run(*words, "--encoder", "test_resnett").err


def test_wrong_use(run: Run, tmp_path: Path) -> None:
    absent = run("weights", tmp_path / "none.tar", "--out", tmp_path / "e.safetensors")
    assert (absent.code, absent.out) == (2, "")
    assert absent.err.startswith("error: ")
    assert "batmanlab/Mammo-CLIP" in absent.err
    torch.save({"model": Hostile(tmp_path / "victim")}, tmp_path / "hostile.tar")
    refused = run("weights", tmp_path / "hostile.tar", "--out", tmp_path / "e.safetensors")
    assert refused.code == 2
    assert "refused" in refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["hostile.tar"]


def test_without_torch(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a laptop that installed stage two alone."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "trust_cache.encoders.convert_weights", raising=False)
    done = run("weights", tmp_path / "none.tar", "--out", tmp_path / "e.safetensors")
    assert done.code == 2
    assert 'needs the package torch, which is not installed: pip install "trust-cache[extract]"' in done.err


def test_examples(run: Run) -> None:
    assert "trust-cache weights b5-model-best-epoch-7.tar" in run("weights", "--help").out
