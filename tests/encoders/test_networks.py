"""Networks by name: timm's models as encoders, and no network of the other kind."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.encoders.replica import make_images, relative_difference
from trust_cache.base.errors import InputError
from trust_cache.encoders.convert_weights import convert_weights
from trust_cache.encoders.known_encoders import identify_encoder, load_encoder
from trust_cache.encoders.timm_models import import_timm


def published(name: str, path: Path) -> torch.nn.Module:
    """A file as timm publishes them, classifier included; returns the model."""
    model: torch.nn.Module = import_timm().create_model(name, pretrained=False)
    save_file(model.state_dict(), path, {"format": "pt"})
    return model.eval().requires_grad_(False)


@pytest.mark.parametrize(("name", "size"), [("test_resnet", (70, 90)), ("test_efficientnet", (64, 64))])
def test_a_published_file_gives_the_models_pooled_features(
    tmp_path: Path, name: str, size: tuple[int, int]
) -> None:
    model = published(name, tmp_path / "a.safetensors")
    images = make_images(size, 2)
    expected = model.forward_head(model.forward_features(images), pre_logits=True)  # type: ignore[operator]
    encoder = load_encoder(tmp_path / "a.safetensors", encoder=name)
    assert relative_difference(encoder(images), expected) < 1e-5
    assert encoder.dim == expected.shape[1]
    conversion = convert_weights(tmp_path / "a.safetensors", tmp_path / "b.safetensors", encoder=name)
    assert (conversion.record.encoder, conversion.record.padding) == (name, "timm")
    again = load_encoder(tmp_path / "b.safetensors", encoder=name)
    assert torch.equal(again(images), encoder(images))
    with pytest.raises(InputError, match=f"found those for {name}"):
        identify_encoder(tmp_path / "b.safetensors", "resnet18")
    with pytest.raises(InputError, match="tensors of resnet18; "):
        load_encoder(tmp_path / "a.safetensors", encoder="resnet18")


def test_a_transformer_is_built_for_the_image_size(tmp_path: Path) -> None:
    model = published("test_vit", tmp_path / "vit.safetensors")
    own = import_timm().get_pretrained_cfg("test_vit").input_size[1:]
    images = make_images(own, 1)
    expected = model.forward_head(model.forward_features(images), pre_logits=True)  # type: ignore[operator]
    at_home = load_encoder(tmp_path / "vit.safetensors", own, encoder="test_vit")
    assert relative_difference(at_home(images), expected) < 1e-5
    other = load_encoder(tmp_path / "vit.safetensors", (96, 64), encoder="test_vit")
    assert other(make_images((96, 64), 2)).shape == (2, at_home.dim)
    with pytest.raises(InputError, match="expected multiples of 16, the patch of test_vit, found 100x64"):
        load_encoder(tmp_path / "vit.safetensors", (100, 64), encoder="test_vit")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("resnet81", r"did you mean resnet18\?"),
        ("mammoclip-b5", r"did you mean mammo-clip-b5\?"),
        ("hf-hub:timm/resnet18", r"did you mean resnet18\?"),
        ("local-dir:/somewhere/resnet50", r"did you mean resnet50\?"),
        ("", "the name of a model of timm"),
        ("resnet50.mine", r"known are .*resnet50\.a1_in1k"),
    ],
)
def test_unknown_names_suggest_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        identify_encoder("random", name)


NO_SOCKETS = """
import sys

def refuse(event, arguments):
    if event.startswith("socket.") or event == "urllib.Request":
        raise AssertionError(f"{event} {arguments}")

sys.addaudithook(refuse)
from trust_cache.encoders.known_encoders import load_encoder, identify_encoder
assert load_encoder("random", encoder="test_resnet").dim > 0
assert identify_encoder("random").dim == 2048
for weights, name in [("none", "mammo-clip-b5"), ("none", "resnet18"), ("random", "hf-hub:timm/resnet18")]:
    try:
        load_encoder(weights, encoder=name)
    except ValueError as error:
        print(error)
try:
    import socket
    socket.socket()
except AssertionError:
    print("the guard works")
"""


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_nothing_opens_a_socket() -> None:
    done = run_python(NO_SOCKETS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no such file") == 2
    assert done.stdout.endswith("the guard works\n")


THEIRS = """
import torch
library = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from trust_cache.encoders import timm_models as timm_import
timm_import.import_timm()
assert timm_import._DEFINED == []
"""


@pytest.mark.slow
def test_operators_that_load_are_left_alone() -> None:
    done = run_python(THEIRS)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_another_fault_of_torchvision_is_told(tmp_path: Path) -> None:
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('compiled with different CUDA versions')")
    done = run_python(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from trust_cache.encoders.timm_models import import_timm\n"
        "try:\n    import_timm()\nexcept ValueError as error:\n    print(error)"
    )
    assert "cannot load torchvision (compiled with different CUDA versions)" in done.stdout
