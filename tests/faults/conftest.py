"""The command line, a small cohort of DICOMs, and an S3 server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import run  # noqa: F401  a fixture
from tests.stores import S3Server, s3_server
from trust_cache.manifest.build_manifest import build_manifest
from trust_cache.synthetic.image_cohort import CohortSettings, synthesize_cohort


@pytest.fixture(scope="package")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of a few images, some of them broken, with the DICOMs beside it."""
    folder = tmp_path_factory.mktemp("cohort")
    cohort = synthesize_cohort(CohortSettings("rsna", cases=3, broken=0.2, seed=4), folder / "dicom")
    out = folder / "manifest.csv"
    build_manifest("rsna", cohort.metadata, out, images=str(folder / "dicom"), look=False)
    return out


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server that s3:// means while a test runs."""
    with s3_server(tmp_path) as started:
        for name, value in started.environment.items():
            monkeypatch.setenv(name, value)
        yield started
