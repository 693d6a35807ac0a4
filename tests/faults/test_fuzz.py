"""Damaged files of every kind: a result or a sentence; never a traceback, a hang or a wrong success.

The number of inputs is TRIES times the variable TRUST_CACHE_FUZZ (1 unless set); `-s` prints the counts.
"""

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from tests.cache.material import some_features, write_cache
from tests.cli.conftest import Outcome, Run
from tests.conftest import make_scores
from tests.faults.mutations import mutate
from trust_cache.base.errors import InputError
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.feature_rows import load_rows
from trust_cache.cache.verify_cache import verify_cache
from trust_cache.certificate.certified_folder import write_certification
from trust_cache.certificate.certify import certify
from trust_cache.certificate.verify import agree
from trust_cache.heads.head_settings import read_configurations
from trust_cache.images.preprocess import preprocess
from trust_cache.manifest.manifest_file import manifest_bytes, read_manifest

pytestmark = pytest.mark.slow

SEED = 20_261
TRIES = int(os.environ.get("TRUST_CACHE_FUZZ", "1"))
LONGEST = 120  # seconds for one input: a hang, on any machine
OUR_FAULT, CTRL_C = 70, 130


@contextmanager
def no_hang() -> Iterator[None]:
    def end(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"an input took more than {LONGEST} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fuzz(kind: str, whole: bytes, tries: int, act: Callable[[bytes, bytes], str]) -> Counter[str]:
    """Feed damaged versions of a file; `act` returns what came of one, and refuses what must not come."""
    generator = np.random.default_rng([SEED, *kind.encode()])
    outcomes: Counter[str] = Counter()
    for _ in range(tries * TRIES):
        damaged = mutate(whole, generator)
        with no_hang():
            outcomes[act(whole, damaged)] += 1
    print(f"fuzz {kind}: {sum(outcomes.values())} inputs, {dict(sorted(outcomes.items()))}")  # noqa: T201
    return outcomes


def spoken(done: Outcome) -> Outcome:
    """Require an outcome in words."""
    assert done.code not in (OUR_FAULT, CTRL_C), done.err
    assert "Traceback" not in done.err + done.out, done.err
    if done.code:
        assert (done.err + done.out).strip()
    return done


def test_certificates(run: Run, tmp_path: Path) -> None:
    scores = tmp_path / "scores.csv"
    make_scores(cases=300, positives=40, configurations=("a",)).write_csv(scores)
    write_certification(certify(scores), tmp_path / "certified")
    path = next((tmp_path / "certified" / "certificates").glob("*.json"))

    def act(whole: bytes, damaged: bytes) -> str:
        path.write_bytes(damaged)
        done = spoken(run("verify", path, "--scores", scores))
        if done.code == 0:  # only where it says the same up to the last digits; versions cannot be checked
            one, other = json.loads(damaged), json.loads(whole)
            assert one.keys() == other.keys()
            assert one["tau"] == other["tau"]
            assert all(agree(one[key], other[key]) for key in one if key != "versions")
        return {0: "same", 1: "refuted"}.get(done.code, "refused")

    assert fuzz("certificate", path.read_bytes(), 400, act)["refuted"]


def test_scores(run: Run, tmp_path: Path) -> None:
    table = make_scores(cases=60, positives=12, images=2)
    path = tmp_path / "scores.csv"
    table.write_csv(path)

    def act(_whole: bytes, damaged: bytes) -> str:
        path.write_bytes(damaged)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        done = spoken(run("certify", path, "--out", tmp_path / "out"))
        assert (done.code == 0) == (tmp_path / "out").exists()
        return "certified" if done.code == 0 else "refused"

    assert len(fuzz("scores", path.read_bytes(), 150, act)) == 2  # some of each


def test_manifests(tmp_path: Path) -> None:
    rows = [f"{n:03d},{n // 4:02d},{n % 2},L,CC,a/{n}.png,site {n % 3}" for n in range(30)]
    whole = "\n".join(["image_id,case_id,label,laterality,projection,path,site", *rows, ""]).encode()
    path = tmp_path / "manifest.csv"

    def act(_whole: bytes, damaged: bytes) -> str:
        path.write_bytes(damaged)
        try:
            manifest = read_manifest(path)
        except InputError:
            return "refused"
        again = tmp_path / "again.csv"
        again.write_bytes(manifest_bytes(manifest.table))
        assert read_manifest(again).table.equals(manifest.table)  # what was read is what is kept
        assert manifest.table["image_id"].is_unique().all()
        assert set(manifest.table["label"]) <= {0, 1}
        return "read"

    assert len(fuzz("manifest", whole, 1_500, act)) == 2


def test_configurations(tmp_path: Path) -> None:
    whole = b"""
[mine]
lambda_focal = 1.0
lambda_dismiss = 0.5
margin = 0.1
tau = "closed-loop"
[other]
lr = 1e-4
"""
    path = tmp_path / "mine.toml"

    def act(_whole: bytes, damaged: bytes) -> str:
        path.write_bytes(damaged)
        try:
            found = read_configurations(path)
        except InputError:
            return "refused"
        for head in found.values():
            assert replace(head) == head  # whatever was read passes its own checks
        return "read"

    assert len(fuzz("configurations", whole, 2_000, act)) == 2


@pytest.mark.parametrize("backend", ["zarr", "h5"])
def test_caches(tmp_path: Path, backend: str) -> None:
    sound = tmp_path / f"sound.{backend}"
    features = some_features(10)
    manifest = write_cache(sound, features).manifest
    files = [sound] if sound.is_file() else sorted(path for path in sound.rglob("*") if path.is_file())
    path = tmp_path / f"cache.{backend}"

    def act_on(name: str) -> Callable[[bytes, bytes], str]:
        def act(_whole: bytes, damaged: bytes) -> str:
            shutil.rmtree(path, ignore_errors=True)
            shutil.copyfile(sound, path) if sound.is_file() else shutil.copytree(sound, path)
            (path / name if name else path).write_bytes(damaged)
            problems = verify_cache(path)
            if problems:
                assert all(problem.sentence.strip() for problem in problems)
                return "named"
            cache = open_cache(path)  # nothing wrong with it: then it is what was written
            assert np.array_equal(np.asarray(cache.features[:]), features)
            assert cache.manifest.equals(manifest)
            load_rows(cache)
            return "harmless"

        return act

    outcomes: Counter[str] = Counter()
    for file in files:
        name = "" if sound.is_file() else file.relative_to(sound).as_posix()
        tries = 12 if name else 300
        outcomes += fuzz(f"cache {backend} {name}", file.read_bytes(), tries, act_on(name))
    assert outcomes["named"]


def test_dicoms(manifest: Path, tmp_path: Path) -> None:
    """In one run of preprocess, as a user would: a decoder that dies costs one row."""
    generator = np.random.default_rng(SEED)
    sources = sorted(path for path in manifest.parent.rglob("*.dcm") if path.stat().st_size > 1_000)
    rows, tries = [], 120 * TRIES
    for number in range(tries):
        whole = sources[number % len(sources)].read_bytes()
        (tmp_path / f"{number}.dcm").write_bytes(mutate(whole, generator))
        rows.append(f"{number},{number},0,L,CC,{number}.dcm")
    table = "\n".join(["image_id,case_id,label,laterality,projection,path", *rows, ""])
    (tmp_path / "manifest.csv").write_text(table)
    done = preprocess(tmp_path / "manifest.csv", tmp_path / "png", workers=2)
    listed = pl.read_csv(tmp_path / "png" / "manifest.csv", infer_schema=False)
    pictures = listed["path"].drop_nulls().len()
    print(f"fuzz dicom: {tries} inputs, {pictures} pictures, {len(done.failures)} reasons")  # noqa: T201
    assert listed.height == tries
    assert pictures + len(done.failures) == tries
    assert all(failure.reason.strip() and "\n" not in failure.reason for failure in done.failures)
    assert 0 < len(done.failures) < tries
