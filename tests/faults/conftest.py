"""The command line, and a small cohort of DICOMs."""

from pathlib import Path

import pytest

from tests.cli.conftest import run  # noqa: F401  a fixture
from trust_cache.images.synthesize import CohortSettings, synthesize_cohort
from trust_cache.manifest.build import build_manifest, write_manifest


@pytest.fixture(scope="package")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of a few images, some of them broken, with the DICOMs beside it."""
    folder = tmp_path_factory.mktemp("cohort")
    cohort = synthesize_cohort(CohortSettings("rsna", cases=3, broken=0.2, seed=4), folder / "dicom")
    out = folder / "manifest.csv"
    built = build_manifest("rsna", cohort.metadata, out, images=str(folder / "dicom"), look=False)
    write_manifest(built, metadata=cohort.metadata, overwrite=False)
    return out
