"""Every test of the contract runs once for each backend."""

from pathlib import Path

import pytest


@pytest.fixture(params=["zarr", "h5"])
def suffix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def out(tmp_path: Path, suffix: str) -> Path:
    return tmp_path / f"cache.{suffix}"
