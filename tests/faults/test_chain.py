"""The content chain: an artefact that changes between two commands never gives another result in silence.

After any change of any artefact the next command refuses it with what differs, makes what is stale again, or
gives the result of an untouched pipeline, byte for byte. Changed *inputs* (the first manifest, DICOM files,
outcomes: what no command wrote) are no damage: a resumed command must then do what a fresh one does. A log
(of attempts, of looks) begins where there is none: to delete one, or to put another in its place, is a
beginning, which no record in the folder can tell from the first. The same holds for a whole artefact that is
replaced by another whole one, such as the run of another seed.

The number of changes is that of TRIES times the variable TRUST_CACHE_CHAIN (1 unless set); `-s` prints them.
"""

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.faults.chain_mutations import CHANGES, delete, take_other
from tests.faults.chain_pipeline import (
    EXTRACT,
    FIT,
    MONITOR,
    QUICK,
    TRIAGE,
    Said,
    build_pipeline,
    call,
    content_of,
    copy_of,
    in_this_process,
    inside,
)

pytestmark = pytest.mark.slow

TIMES = int(os.environ.get("TRUST_CACHE_CHAIN", "1"))
LOGS = ("run.attempts.json", "model.history.jsonl")
HISTORY = ("model.history.jsonl", "model.history.end.json")
GENERATE: dict[str, Any] = {"database": None, "deadline": None, "phases": [Phase.generate]}
GENERATE["suppress_health_check"] = list(HealthCheck)
OUTCOMES: Counter[str] = Counter()


@dataclass(frozen=True)
class Step:
    """A command, the artefacts it reads, the inputs beside them, what it makes, and how often to try it."""

    words: tuple[object, ...]
    artefacts: tuple[str, ...]
    makes: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    tries: int = 40

    def at(self, folder: Path) -> Said:
        """Run it in a folder."""
        with inside(folder):
            return call(*self.words)

    def made(self, folder: Path) -> dict[str, object]:
        """Return what it made there."""
        return {name: content_of(folder / name) for name in self.makes if (folder / name).exists()}


TARGET = ("--target", 0.9)
DICOMS = ("manifest.csv", "dicoms")
STEPS = {
    "preprocess, resumed": Step(
        ("preprocess", "manifest.csv", "--out", "png", "--workers", 1), ("png",), ("png",), DICOMS, 60
    ),
    "extract": Step(("extract", "png/manifest.csv", "--out", "new.zarr", *EXTRACT), ("png",), ("new.zarr",)),
    "extract, resumed": Step(
        ("extract", "png/manifest.csv", "--out", "cache.zarr", *EXTRACT),
        ("cache.zarr", "cache.zarr", "png"),
        ("cache.zarr",),
        (),
        60,
    ),
    "fit-heads": Step(
        ("fit-heads", "train.zarr", "--out", "new", *FIT, "--repeats", 2), ("train.zarr",), ("new",)
    ),
    "fit-heads, resumed": Step(
        ("fit-heads", "train.zarr", "--out", "half", *FIT, "--resume"),
        (".half.partial", "train.zarr"),
        ("half",),
    ),
    "certify": Step(
        ("certify", "run", "--out", "new", *TARGET, "--by", "site"),
        ("run", "run", "run.attempts.json"),
        ("new",),
        (),
        80,
    ),
    "certify scores.csv": Step(
        ("certify", "run/scores.csv", "--out", "new", *TARGET), ("run",), ("new",), ("run.attempts.json",), 30
    ),
    "compare": Step(("compare", "run", "--out", "new", *TARGET, *QUICK), ("run",), ("new",), (), 30),
    "report": Step(
        ("report", "run", "certified", "compare", "--out", "page.html"),
        ("run", "certified", "certified", "compare"),
        ("page.html",),
        ("run.attempts.json",),
        60,
    ),
    "export-model": Step(
        ("export-model", "external", "--configuration", "fast", *TARGET, "--out", "new", "--threads", 1),
        ("external", "external", "external/certified", "train.zarr", "test.zarr"),
        ("new",),
        ("external.attempts.json",),
        60,
    ),
    "certify --model": Step(
        ("certify", "--model", "model", "--cache", "new.zarr", *TARGET, "--out", "new"),
        ("model", "new.zarr"),
        ("new",),
    ),
    "triage": Step(
        ("triage", "dicoms", "--model", "model", *TRIAGE, "--out", "new.csv"),
        ("model",),
        ("new.csv",),
        ("dicoms",),
        30,
    ),
    "triage, resumed": Step(
        ("triage", "dicoms", "--model", "model", *TRIAGE, "--out", "other.csv"),
        (".other.csv.work", "model"),
        ("other.csv", "other.csv.record.json"),
        ("dicoms",),
        30,
    ),
    "monitor": Step(
        ("monitor", "worklist.csv", *MONITOR, "--json"),
        ("worklist.csv", "worklist.csv", "worklist.csv.record.json", *HISTORY, "model"),
        ("model.history.jsonl",),
        ("outcomes.csv",),
        80,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A pipeline and another one, with other pixels, features and heads."""
    with pytest.MonkeyPatch.context() as patch:
        in_this_process(patch)
        folder = tmp_path_factory.mktemp("chain")
        return build_pipeline(folder / "one"), build_pipeline(folder / "two", seed=1)


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    in_this_process(monkeypatch)


@pytest.fixture(scope="module", autouse=True)
def counts() -> Iterator[None]:
    yield
    print(f"chain: {sum(OUTCOMES.values())} changes, {dict(sorted(OUTCOMES.items()))}")  # noqa: T201


def files_in(place: Path) -> list[Path]:
    found = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    return [path for path in found if path.suffix != ".lock"]


def named(said: Said, changed: Path, root: str, work: Path) -> bool:
    """Whether a refusal, or a table of failed images, names what was changed: file, folder or artefact."""
    tables = "".join(path.read_text(errors="replace") for path in work.rglob("failures.csv"))
    words = (
        changed.name,
        root,
        "content_sha256",
    )  # the last: of the cache that an interrupted run began with
    return any(word in said.text for word in words) or changed.stem in tables


@pytest.mark.parametrize("name", STEPS)
def test_a_changed_artefact(name: str, pipelines: tuple[Path, Path], tmp_path: Path) -> None:
    step, (pipeline, another) = STEPS[name], pipelines
    parts = tuple(dict.fromkeys((*step.artefacts, *step.inputs, *_beside(step))))
    copy_of(pipeline, tmp_path / "clean", parts)
    untouched = step.at(tmp_path / "clean")
    assert untouched.code == 0, untouched.text
    expected = step.made(tmp_path / "clean")
    seen: Counter[str] = Counter()

    @settings(max_examples=step.tries * TIMES, **GENERATE)
    @given(st.sampled_from(step.artefacts), st.sampled_from(CHANGES), st.integers(0, 2**32))
    def one(root: str, change: Callable[..., str | None], seed: int) -> None:
        work, draw = tmp_path / "work", random.Random(seed)  # noqa: S311 - not for secrets
        shutil.rmtree(work, ignore_errors=True)
        copy_of(pipeline, work, parts)
        files = files_in(work / root)
        file = draw.choice(files)
        if root in LOGS and change in (delete, take_other):
            return
        done = change(file, draw, files, another / file.relative_to(work))
        if done is None:
            return
        said = step.at(work)
        what = f"{file.relative_to(work)} {done}: exit {said.code}: {said.text}"
        assert said.code in (0, 1, 2, 3), what
        assert "Traceback" not in said.text, what
        if said.code == 0:
            assert step.made(work) == expected, what
            seen["the result of an untouched pipeline"] += 1
        else:
            assert named(said, file, root, work), what
            seen["refused by name"] += 1

    one()
    OUTCOMES.update(seen)
    print(f"chain: {name}: {sum(seen.values())} changes, {dict(seen)}")  # noqa: T201
    assert seen["refused by name"] or "resumed" in name


def _beside(step: Step) -> tuple[str, ...]:
    """Return the artefacts that a step needs besides those that are changed."""
    return ("mine.toml",) if FIT[1] in step.words else ()


@pytest.mark.parametrize("name", [name for name in STEPS if "resumed" in name and STEPS[name].inputs])
def test_a_changed_input_gives_what_a_fresh_start_gives(
    name: str, pipelines: tuple[Path, Path], tmp_path: Path
) -> None:
    step, (pipeline, another) = STEPS[name], pipelines
    parts = tuple(dict.fromkeys((*step.artefacts, *step.inputs)))
    seen: Counter[str] = Counter()

    @settings(max_examples=30 * TIMES, **GENERATE)
    @given(st.sampled_from(step.inputs), st.sampled_from(CHANGES), st.integers(0, 2**32))
    def one(root: str, change: Callable[..., str | None], seed: int) -> None:
        resumed, fresh, draw = tmp_path / "resumed", tmp_path / "fresh", random.Random(seed)  # noqa: S311
        for place in (resumed, fresh):
            shutil.rmtree(place, ignore_errors=True)
        copy_of(pipeline, resumed, parts)
        files = files_in(resumed / root)
        file = draw.choice(files)
        if change(file, draw, files, another / file.relative_to(resumed)) is None:
            return
        fresh.mkdir()
        for item in (*step.inputs, "model"):
            source = resumed / item
            if source.is_dir():
                shutil.copytree(source, fresh / item)
            elif source.exists():
                shutil.copyfile(source, fresh / item)
        one_said, two_said = step.at(resumed), step.at(fresh)
        what = f"{file.relative_to(resumed)}: {one_said}, {two_said}"
        assert one_said.code == two_said.code, what
        if one_said.code in (0, 1):
            assert step.made(resumed) == step.made(fresh), what
        seen[f"exit {one_said.code}"] += 1

    one()
    OUTCOMES.update({"what a fresh start gives": sum(seen.values())})
    print(f"chain: {name}, changed input: {sum(seen.values())} changes, {dict(seen)}")  # noqa: T201
