"""A whole pipeline in one folder, small enough to run a command on a changed copy of it in a second.

Two cases of four DICOM files go through preprocess, extract and triage; the heads are trained on stand-in
features with the fingerprint of that cache, so that the exported model fits the encoder.
"""

import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.clinic.dicom_files import PROJECTIONS, write_case
from trust_cache.base.documents import SEAL, parse_json
from trust_cache.base.executor import ItemOutcome
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.cache_writer import create_cache
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.cache.verify_cache import verify_cache
from trust_cache.clinic.triage import TriageSettings, triage
from trust_cache.heads.fit import EpochReport, fit_heads
from trust_cache.heads.head_settings import read_configurations
from trust_cache.images.picture_folder import png_name
from trust_cache_cli.main import main

ENCODER = ("--weights", "random", "--encoder", "test_efficientnet", "--image-size", "32x32")
EXTRACT = (
    *ENCODER,
    "--views",
    "1",
    "--device",
    "cpu",
    "--shard-images",
    "2",
    "--batch",
    "4",
    "--workers",
    "1",
)
FIT = ("--configurations", "mine.toml", "--epochs", "2", "--threads", "1")
HEADS = """
[fast]
lr = 0.02
[loop]
lr = 0.02
lambda_focal = 1.0
lambda_dismiss = 0.05
tau = "closed-loop"
"""
_NOT_RESULTS = {"seconds", "resumed_folds", "threads", SEAL}  # keys of run.json that say how, not what


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    text: str


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Make a folder the current one: all places of a pipeline are relative to it."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def call(*words: object) -> Said:
    """Run a command line in this process."""
    out, kept = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), sys.argv
    sys.argv, code = ["trust-cache", *map(str, words)], 0
    try:
        with redirect_stdout(out), redirect_stderr(out):
            main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.argv = kept
    out.flush()
    return Said(code, out.buffer.getvalue().decode())  # type: ignore[attr-defined]  # a BytesIO


def content_of(place: Path) -> dict[str, object]:
    """Return what a folder or a file says, by file: bytes where every byte says something."""
    if place.suffix == ".zarr":
        return _content_of_cache(place)
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    found: dict[str, object] = {
        path.relative_to(place.parent).as_posix(): path.read_bytes() for path in files
    }
    found = {name: content for name, content in found.items() if not name.endswith(".lock")}
    for path in files:
        if path.name == "run.json":
            document = parse_json(path.read_bytes())
            what = {key: value for key, value in document.items() if key not in _NOT_RESULTS}
            found[path.relative_to(place.parent).as_posix()] = what
    if (place / "pictures.csv").is_file():  # a PNG of an image that left the manifest is read by nobody
        ids = pl.read_csv(place / "manifest.csv", infer_schema=False)["image_id"].to_list()
        named = {f"{place.name}/{png_name(image)}" for image in ids}
        found = {name: item for name, item in found.items() if not name.endswith(".png") or name in named}
    return found


def _content_of_cache(place: Path) -> dict[str, object]:
    """Return all that can be read from a cache; JSON may have other spaces."""
    assert verify_cache(place) == []
    cache = open_cache(place)
    names = ("extraction.json", "failures.csv")
    files = {name: (place / name).read_bytes() for name in names if (place / name).is_file()}
    features = np.asarray(cache.features[:]).tobytes()
    return files | {
        "content": cache.content_sha256,
        "features": features,
        "manifest": cache.manifest.write_csv(),
    }


def write_features(out: Path, fingerprint: Fingerprint, dim: int, seed: int, cases: int = 120) -> None:
    """Write a cache of cases with four projections each; every third case is positive."""
    generator = np.random.default_rng(seed)
    case = np.repeat(np.arange(cases), len(PROJECTIONS))
    label = (case % 3 == 0).astype(np.int64)
    direction = np.random.default_rng(0).standard_normal(dim)
    features = generator.standard_normal((case.size, 2, dim)) + 0.6 * label[:, None, None] * direction
    names = [name.split("-") for name in PROJECTIONS * cases]
    table = pl.DataFrame(
        {
            "image_id": [f"{seed}-{n:04d}" for n in range(case.size)],
            "case_id": [f"{seed}-{n:03d}" for n in case],
            "label": label,
            "laterality": [side for side, _ in names],
            "projection": [projection for _, projection in names],
            "path": "",
            "site": [f"site {n % 2}" for n in case],
        }
    )
    with create_cache(out, table, 2, dim, fingerprint, 64) as writer:
        for shard in range(writer.layout.shards):
            images = slice(*writer.layout.bounds(shard))
            writer.write_shard(shard, features[images].astype(np.float16))


def in_this_process(patch: pytest.MonkeyPatch) -> None:
    """Decode in this process: starting another takes longer than all the rest."""

    def run_here(
        function: Callable[[Any], Any], items: Any, _workers: object
    ) -> Iterator[ItemOutcome[Any, Any]]:
        for item in items:
            try:
                yield ItemOutcome(item, function(item), None)
            except Exception as error:
                yield ItemOutcome(item, None, error)

    for module in ("images.preprocess", "clinic.triage"):
        patch.setattr(f"trust_cache.{module}.run_items", run_here)


class StopForTestError(Exception):
    """Ends a command in the middle, as a kill would."""


def _stop_after(count: int) -> Callable[..., None]:
    left = iter(range(count))

    def stop(*_: object) -> None:
        if next(left, None) is None:
            raise StopForTestError

    return stop


def build_pipeline(folder: Path, *, seed: int = 0) -> Path:
    """Run every command once; return the folder. Another seed gives other pixels, features and heads."""
    folder.mkdir(parents=True)
    with inside(folder):
        Path("mine.toml").write_text(HEADS)
        rows = []
        for case in (seed * 10 + 1, seed * 10 + 2):
            write_case(Path("dicoms"), case)
            for number, name in enumerate(PROJECTIONS):
                place = f"dicoms/{case:04d}/{name}.dcm"
                rows.append((f"{case}-{number}", f"{case}", number % 2, *name.split("-"), place))
        columns = ["image_id", "case_id", "label", "laterality", "projection", "path"]
        pl.DataFrame(rows, schema=columns, orient="row").write_csv("manifest.csv")
        _done("preprocess", "manifest.csv", "--out", "png", "--workers", 1)
        _done("extract", "png/manifest.csv", "--out", "cache.zarr", *EXTRACT)
        made = open_cache("cache.zarr")
        for name, number in (("train.zarr", 1), ("test.zarr", 2), ("new.zarr", 3)):
            write_features(Path(name), made.fingerprint, made.dim, 10 * seed + number)
        _done("fit-heads", "train.zarr", "--out", "run", *FIT, "--repeats", 2, "--seed", seed)
        configurations = read_configurations(Path("mine.toml"))
        with suppress(StopForTestError):
            fit_heads(
                "train.zarr", "half", configurations=configurations, epochs=2, threads=1, seed=seed,
                on_epoch=_as_report(_stop_after(7)),
            )  # fmt: skip
        _done("certify", "run", "--out", "certified", "--target", 0.9, "--by", "site", "--resplits", 3)
        _done("compare", "run", "--out", "compare", "--target", 0.9, *QUICK)
        external = ("--protocol", "screening", "--target", 0.9, "--by", "none")
        _done("external", "train.zarr", "test.zarr", "--out", "external", *FIT, *external, "--limit", 0.5)
        _done("export-model", "external", "--configuration", "fast", "--target", 0.9, "--out", "model")
        _done("triage", "dicoms", "--model", "model", *TRIAGE, "--out", "worklist.csv")
        with suppress(StopForTestError):
            triage(
                Path("dicoms"), Path("model"), Path("other.csv"), TriageSettings(device="cpu"),
                advance=_stop_after(0),
            )  # fmt: skip
        cases = pl.read_csv("worklist.csv", infer_schema=False)["case_id"].to_list()
        for known in (cases[:1], cases):
            ends = {name: "0,2024-06-30" if name in known else "," for name in cases}  # the others: unknown
            rows = "".join(f"{name},{end},2022-01-10\n" for name, end in ends.items())
            Path("outcomes.csv").write_text(f"case_id,label,date,examined\n{rows}")
            if known != cases:
                _done("monitor", "worklist.csv", *MONITOR)
    return folder


QUICK = ("--resamples", "200", "--swaps", "200", "--resplits", "3")
MONITOR = ("--outcomes", "outcomes.csv", "--model", "model", "--as-of", "2025-01-31")
TRIAGE = ("--device", "cpu", "--workers", "1")


def _as_report(stop: Callable[..., None]) -> Callable[[EpochReport], None]:
    return stop


def _done(*words: object) -> None:
    said = call(*words)
    assert said.code == 0, (words, said.text)


def copy_of(pipeline: Path, folder: Path, names: tuple[str, ...]) -> None:
    """Copy these parts of a pipeline."""
    folder.mkdir(parents=True)
    for name in names:
        source, target = pipeline / name, folder / name
        if target.exists():
            continue  # inside another part
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target)
