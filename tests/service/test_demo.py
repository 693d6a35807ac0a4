"""The demonstration: interrupted anywhere and started again, it ends the same."""

from pathlib import Path

import pytest

from trust_cache.base.errors import InputError
from trust_cache.cache.simulate import simulate_cache
from trust_cache.service.demo import run_demo


class StopError(Exception):
    """Stands for Ctrl-C."""


def test_interrupted_and_started_again(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    steps: list[str] = []

    def stop_at(number: int) -> object:
        def on_step(step: str) -> None:
            steps.append(step)
            if len(steps) == number:
                raise StopError

        return on_step

    for number in (2, 5):  # before training; then before certifying
        with pytest.raises(StopError):
            run_demo(out, cases=600, on_step=stop_at(number))  # type: ignore[arg-type]
    done = run_demo(out, cases=600)
    assert done.verification.holds
    assert len(done.certification.points) == 10
    assert {path.name for path in out.iterdir()} == {"nlbs.zarr", "run", "certified"}


def test_another_cache_in_its_place_is_refused(tmp_path: Path) -> None:
    simulate_cache("nlbs", tmp_path / "nlbs.zarr", views=0, seed=5, cases=20, dim=8)
    with pytest.raises(InputError, match="choose another --out"):
        run_demo(tmp_path)
