"""Every example in `--help` runs; the processor and local servers replace GPUs, clusters and buckets."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import save_file

from tests.cli.conftest import Run, run  # noqa: F401
from tests.clusters import cluster_in
from tests.project.examples import all_examples, commands_without_example
from tests.project.workshop import build_workshop
from tests.stores import BUCKET, s3_server
from trust_cache.base.places import write_bytes
from trust_cache.cache.extract.view_features import torch_threads
from trust_cache.encoders.timm_models import import_timm, prepare_torchvision

# Run in the tests that make their inputs: tests/cli/test_model_commands.py, test_triage_command.py.
OTHER_TESTS = ("doctor", "estimate", "export-model", "monitor", "triage", "certify --model", "demo")
# Small sizes for the tests; the last of two equal options counts.
SMALLER = {
    "simulate": ("--cases", "60"),
    "images synthesize": ("--cases", "2", "--size", "small"),
    "extract": ("--image-size", "38x23", "--views", "1"),
    "sweep": ("--epochs", "1"),
    "rivals": ("--epochs", "1"),
    "external": ("--epochs", "1"),
    "fit-heads": ("--epochs", "1"),
    "reproduce": ("--epochs", "1", "--repeats", "1", "--resamples", "200"),
}
# An output that an example would resume must be absent or interrupted.
FRESH = {
    "fit-heads": "run", "certify": "certified", "external": "external", "sweep": "sweep",
    "compare": "compare", "manifest": "manifest.csv", "simulate": "nlbs.zarr", "extract": "cache.zarr",
    "preprocess": "png", "cache import": "cache.zarr",
}  # fmt: skip
GROUPS = ("images", "cache", "manifest")  # commands of two words


def mine() -> list[str]:
    return [line for line in all_examples() if not any(f"trust-cache {name}" in line for name in OTHER_TESTS)]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workshop")
    build_workshop(folder)
    return folder


@pytest.fixture
def here(workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to work in: an example may write what another reads."""
    folder = tmp_path / "here"
    shutil.copytree(workshop, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def afar(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket with the DICOMs and their manifest in it, and the address of a cluster."""
    with s3_server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        files = [*(here / "train_images").rglob("*.dcm"), *(here / "png").iterdir(), here / "manifest.csv"]
        for path in files:
            write_bytes(f"s3://{BUCKET}/{path.relative_to(here).as_posix()}", path.read_bytes())
        with cluster_in(tmp_path, workers=0) as cluster:
            cluster.add_worker("--resources", "GPU=1")
            yield cluster.address


def save_dinov2(folder: Path) -> None:
    """A tiny model of RAD-DINO's kind that takes any size."""
    prepare_torchvision()
    from transformers import BitImageProcessor, Dinov2Config, Dinov2Model  # noqa: PLC0415 - after torchvision

    size = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "patch_size": 1,
        "image_size": 8,
    }
    Dinov2Model(Dinov2Config(**size)).save_pretrained(folder)
    BitImageProcessor(size={"shortest_edge": 8}, crop_size=8).save_pretrained(folder)


def test_every_command_shows_an_example() -> None:
    assert commands_without_example() == []
    assert len(mine()) > 40


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in mine() if "://" not in line])
def test_example(line: str, here: Path, run: Run) -> None:  # noqa: F811
    words = shlex.split(line.replace("cuda:0,cuda:1", "cpu,cpu").replace("/mnt/nlbs", "NLBSD"))[1:]
    name = _clear(here, words)
    if "resnet50.safetensors" in line:
        save_file(import_timm().create_model("resnet50").state_dict(), here / "resnet50.safetensors")
    if "--recipe" in line:
        (here / "recipe.toml").write_text("mean = 0.5\nstd = 0.5\n")
    if "huggingface" in line:
        save_dinov2(here / "rad-dino")
    if "Mammo-FM" in line:
        shutil.copy(here / "b5-model-best-epoch-7.tar", here / "Mammo-FM_BatmanlabTrained_CLIP.tar")
    with torch_threads(1):
        done = run(*words, *SMALLER.get(name, ()))
    assert done.code == 0, (line, done.err)


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in mine() if "://" in line])
def test_example_afar(line: str, here: Path, afar: str, run: Run) -> None:  # noqa: F811
    line = re.sub(r"s3://b(ucket)?/", f"s3://{BUCKET}/", line.replace("tcp://host:8786", afar))
    words = shlex.split(line.replace("/nfs/", f"{here}/"))[1:]
    name = _clear(here, words)
    device = ("--device", "cpu") if name == "extract" else ()
    done = run(*words, *SMALLER.get(name, ()), *device)
    assert done.code == 0, (line, done.err)


def _clear(here: Path, words: list[str]) -> str:
    """Remove what the example is to make; return the command's name."""
    name = " ".join(words[:2]) if words[0] in GROUPS else words[0]
    made = here / FRESH.get(name, FRESH.get(words[0], "nothing-of-that-name"))
    shutil.rmtree(made) if made.is_dir() else made.unlink(missing_ok=True)
    return name
