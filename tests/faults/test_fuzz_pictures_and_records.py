"""Damaged PNGs, sweep files and the records that commands leave: read rightly, or refused with a reason."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cache.extract.material import with_settings, write_pngs
from tests.conftest import make_scores
from tests.faults.test_fuzz import fuzz
from tests.heads.cohorts import a_cohort, write_cohort
from tests.studies.sweep.test_run import space
from trust_cache.base.documents import sealed_bytes
from trust_cache.base.errors import InputError
from trust_cache.cache.extract import extraction_record
from trust_cache.cache.extract.extract import extract
from trust_cache.cache.extract.extraction_record import read_origin
from trust_cache.cache.extract.picture_source import ImageFile, read_picture
from trust_cache.cache.extract.view_features import torch_threads
from trust_cache.certificate import evidence
from trust_cache.certificate.certified_folder import write_certification
from trust_cache.certificate.certify import certify
from trust_cache.heads import run_folder
from trust_cache.heads.fit import fit_heads
from trust_cache.images.png_files import read_grey_png
from trust_cache.report import page_studies
from trust_cache.studies.sweep import sweep_folder
from trust_cache.studies.sweep.sweep import sweep
from trust_cache.studies.sweep.sweep_request import describe_space

pytestmark = pytest.mark.slow

ORIGIN = sealed_bytes(
    {"schema": 1, "settings": {"margin": 0.1}, "decoders": {"gdcm (1.2.840.10008.1.2.4.70)": 3}}
)


def test_pngs(tmp_path: Path) -> None:
    path = write_pngs(tmp_path, images=1).parent / "0.png"
    pixels = read_grey_png(str(path))

    def act(_whole: bytes, damaged: bytes) -> str:
        path.write_bytes(damaged)
        decoded = read_picture(ImageFile("0", str(path)), pinned=False)
        if decoded.pixels is not None:  # the damage is behind the picture's end
            assert np.array_equal(decoded.pixels.numpy(), pixels)
            return "decoded"
        assert decoded.failure is not None
        assert decoded.failure.reason.strip()
        return "refused"

    assert fuzz("png", path.read_bytes(), 2_000, act)["refused"]


def test_sweep_files(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    whole = b"""
base = "closed-loop"
random = 5
[grid]
margin = [0.05, 0.1]
lr = { low = 1e-5, high = 1e-3, scale = "log" }
tau = ["closed-loop", 0.05]
"""

    def act(_whole: bytes, damaged: bytes) -> str:
        path.write_bytes(damaged)
        try:
            found = describe_space((), path)
        except InputError:
            return "refused"
        assert found is None or found.count >= 1
        return "read"

    assert len(fuzz("sweep file", whole, 2_000, act)) == 2


def reading(path: Path, read: Callable[[], Any]) -> Callable[[bytes, bytes], str]:
    def act(_whole: bytes, damaged: bytes) -> str:
        path.write_bytes(damaged)
        try:
            read()
        except InputError:
            return "refused"
        return "read"

    return act


def try_record(kind: str, path: Path, read: Callable[[], Any], tries: int = 300) -> Counter[str]:
    whole = path.read_bytes()
    read()  # as it is it can be read
    try:
        found = fuzz(kind, whole, tries, reading(path, read))
    finally:
        path.write_bytes(whole)
    assert found["refused"]
    return found


def test_records_of_stage_one(tmp_path: Path) -> None:
    manifest, out = write_pngs(tmp_path, images=2), tmp_path / "cache.zarr"
    with torch_threads(1):
        extract(manifest, out, with_settings(processes=1))
    try_record("extraction.json", out / "extraction.json", lambda: extraction_record.read_record(out), 1_000)
    (tmp_path / "preprocess.json").write_bytes(ORIGIN)
    try_record("preprocess.json", tmp_path / "preprocess.json", lambda: read_origin(manifest), 1_000)


def test_records_of_runs_and_studies(tmp_path: Path) -> None:
    cache = write_cohort(tmp_path / "cache.zarr", *a_cohort(dim=8))
    fit_heads(cache, tmp_path / "run", epochs=1, threads=1)
    try_record("run.json", tmp_path / "run/run.json", lambda: run_folder.RunFolder(tmp_path / "run").record)
    out = tmp_path / "sweep"
    sweep(cache, out, space("margin=0.05,0.1"), epochs=1, threads=1)
    try_record("sweep.json", out / "sweep.json", lambda: sweep_folder.read_record(out))
    try_record("sweep.json in a report", out / "sweep.json", lambda: page_studies.sweep_study(out))
    scores = tmp_path / "scores.csv"
    make_scores(cases=300, positives=40, configurations=("a",)).write_csv(scores)
    write_certification(certify(scores), tmp_path / "certified")
    path = next((tmp_path / "certified").glob("*.json"))
    try_record(path.name, path, lambda: evidence.read_certified(tmp_path / "certified"))
