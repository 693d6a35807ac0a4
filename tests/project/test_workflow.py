"""README's real workflow, line by line, on synthetic DICOMs and a replica of the encoder's archive."""

import shlex
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run  # noqa: F401
from tests.encoders.replica import PREFIX, make_oracle, save_archive
from tests.project.pages import commands, section
from trust_cache.cache.extract.view_features import torch_threads
from trust_cache.synthetic.image_cohort import CohortSettings, synthesize_cohort

# Small sizes, and the processor instead of a GPU; everything else is as in the README.
SMALLER = {
    "extract": ("--image-size", "38x23", "--device", "cpu", "--views", "1"),
    "estimate": ("--image-size", "38x23", "--device", "cpu"),
    "sweep": ("--epochs", "2"),
}


@pytest.mark.slow
def test_every_line(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.chdir(tmp_path)
    for name, seed in (("train_images", 0), ("other_images", 1)):
        cohort = synthesize_cohort(CohortSettings("rsna", cases=50, seed=seed), tmp_path / name)
        shutil.copy(cohort.metadata, tmp_path / ("train.csv" if seed == 0 else "other.csv"))
    theirs = {PREFIX + name: tensor for name, tensor in make_oracle().state_dict().items()}
    save_archive(tmp_path / "b5-model-best-epoch-7.tar", theirs)
    for command in commands(section("The real workflow")):
        if " external " in command:
            _other_cache(run)
        words = shlex.split(command)[1:]
        with torch_threads(1):
            done = run(*words, *SMALLER.get(words[0], ()))
        assert done.code == 0, (command, done.err)
    assert (tmp_path / "page.html").stat().st_size > 500_000


def _other_cache(run: Run) -> None:  # noqa: F811
    """Make other.zarr, as its own GPU box would."""
    run("manifest", "rsna", "other.csv", "--images", "other_images/", "--out", "other-manifest.csv")
    words = ("extract", "other-manifest.csv", "--weights", "encoder.safetensors", "--out", "other.zarr")
    with torch_threads(1):
        done = run(*words, *SMALLER["extract"])
    assert done.code == 0, done.err
