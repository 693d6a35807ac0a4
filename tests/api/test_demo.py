"""The demonstration resumes after an interruption at any step, and reuses finished steps."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from trust_cache.api.demo import show_from_features, show_from_images
from trust_cache.api.reproduce import Listener
from trust_cache.base.errors import InputError
from trust_cache.synthetic.feature_cohort import simulate_cache


class StopError(Exception):
    """Raised in place of Ctrl-C."""


def stop_at(number: int) -> Callable[[str], None]:
    seen: list[str] = []

    def step(title: str) -> None:
        seen.append(title)
        if len(seen) == number:
            raise StopError

    return step


def written(folder: Path) -> dict[str, bytes]:
    """All results that do not depend on time or place."""
    names = ("scores.csv", "points.csv", "results.csv", "compare.csv", "numbers.csv")
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.name in names
    }


@pytest.mark.slow
def test_features_interrupted_at_every_step(tmp_path: Path) -> None:
    once, often = tmp_path / "once", tmp_path / "often"
    done = show_from_features(once, Listener(), cases=600)
    assert done.verification.holds
    for number in range(2, 13):
        with pytest.raises(StopError):
            show_from_features(often, Listener(step=stop_at(number)), cases=600)
    show_from_features(often, Listener(), cases=600)
    assert [name for name, content in written(once).items() if written(often)[name] != content] == []
    assert {path.name for path in often.iterdir()} == {path.name for path in once.iterdir()}


@pytest.mark.slow
def test_images_interrupted_and_resumed(tmp_path: Path) -> None:
    for number in (2, 4, 5):
        with pytest.raises(StopError):
            show_from_images(tmp_path, Listener(step=stop_at(number)), cases=24)
    done = show_from_images(tmp_path, Listener(), cases=24)
    assert done.failed > 0
    assert done.report.stat().st_size > 100_000
    first = (done.run / "run.json").read_bytes()
    again = show_from_images(tmp_path, Listener(), cases=24)
    assert (again.run / "run.json").read_bytes() == first  # trained once
    scores = pl.read_csv(done.run / "scores.csv")
    assert scores["image_id"].n_unique() == done.images  # failed ones have an empty score
    assert scores["score"].null_count() == scores["configuration"].n_unique() * done.failed


def test_another_cache_in_the_output_folder_is_refused(tmp_path: Path) -> None:
    simulate_cache("nlbs", tmp_path / "nlbs.zarr", views=0, seed=5, cases=20, dim=8)
    with pytest.raises(InputError, match="choose another --out"):
        show_from_features(tmp_path, Listener(), cases=40)
