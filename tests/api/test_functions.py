"""The Python API: a function per command, data frames of any kind in, short results out."""

import doctest
import importlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import trust_cache as tc
from tests.conftest import make_scores
from tests.project.examples import GROUP
from trust_cache.base.errors import InputError
from trust_cache.cache.extract.view_features import torch_threads

# The names that are not the command's own: a package of that name exists, or the command has two words.
NAMES = {
    "manifest": "build_manifest", "weights": "convert_weights", "report": "write_report",
    "images show": "show_image", "images synthesize": "synthesize_images", "cache info": "cache_info",
    "cache verify": "verify_cache", "cache convert": "convert_cache", "cache subset": "subset_cache",
    "cache import": "import_features", "cache export": "export_features",
}  # fmt: skip
COMMANDS = [
    f"{name} {inner}" if name in {"images", "cache"} else name
    for name, command in GROUP.commands.items()
    for inner in (getattr(command, "commands", {"": None}) if name in {"images", "cache"} else [""])
]
# Without an example of their own: they need weights, a certified model or minutes.
LONG = {"convert_weights", "certify_model", "triage", "monitor", "demo", "estimate"}


def function_of(command: str) -> str:
    return NAMES.get(command, command.replace("-", "_"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_function(command: str) -> None:
    name = function_of(command)
    assert name in dir(tc)
    assert name in tc.__all__
    function = getattr(tc, name)
    assert inspect.isfunction(function)
    assert function.__doc__
    assert name in LONG or ">>> " in function.__doc__


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", sorted({function_of(command) for command in COMMANDS} - LONG))
def test_examples_run(name: str) -> None:
    """The example in the docstring, with what it prints."""
    function = getattr(tc, name)
    (example,) = doctest.DocTestFinder(recurse=False).find(function, name, globs={})
    assert example.examples
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    with torch_threads(1):
        assert runner.run(example).failed == 0


def test_the_promised_signatures() -> None:
    """DESIGN's contract: names and defaults that others call."""
    defaults = {
        tc.clopper_pearson_upper: {"delta": 0.01},
        tc.closed_loop_threshold: {"level": 0.01, "delta": 0.05},
        tc.load_encoder: {"image_size": (1520, 912)},
    }
    for function, expected in defaults.items():
        parameters = inspect.signature(function).parameters
        assert {name: parameters[name].default for name in expected} == expected


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("certify", "certificate.certify.certify"),
        ("fit_heads", "heads.fit.fit_heads"),
        ("sweep", "studies.sweep.sweep.sweep"),
        ("compare", "studies.compare.compare.compare"),
        ("build_manifest", "manifest.build_manifest.build_manifest"),
        ("simulate", "synthetic.feature_cohort.simulate_cache"),
        ("export_model", "clinic.export_model.export_model"),
        ("monitor", "clinic.monitoring.monitor.monitor"),
    ],
)
def test_defaults_are_those_of_the_library(name: str, library: str) -> None:
    module, _, function = f"trust_cache.{library}".rpartition(".")
    theirs = inspect.signature(getattr(importlib.import_module(module), function)).parameters
    ours = inspect.signature(getattr(tc, name)).parameters
    shared = [key for key in ours if key in theirs and not callable(ours[key].default)]
    assert len(shared) >= 3
    assert [ours[key].default for key in shared] == [theirs[key].default for key in shared]


def as_kind(table: pl.DataFrame, kind: str) -> Any:
    columns = table.to_dict(as_series=False)
    return {
        "pandas": lambda: pd.DataFrame(columns),
        "arrow": lambda: pa.table(columns),
        "polars": lambda: table,
        "lazy": table.lazy,
    }[kind]()


@pytest.mark.parametrize("kind", ["pandas", "arrow", "lazy"])
def test_frames_of_any_kind_give_the_same_points(kind: str) -> None:
    table = make_scores(images=2, configurations=("a", "b"))
    holes = table.with_columns(score=pl.when(pl.int_range(pl.len()) % 50 != 0).then("score"))
    expected, found = tc.certify(holes), tc.certify(as_kind(holes, kind))
    assert found.points == expected.points
    assert found.points[0].incomplete > 0
    assert tc.compare(as_kind(table, kind), resplits=0).contrasts == tc.compare(table, resplits=0).contrasts
    rules = ["recall", "crc"]
    outcomes = tc.rivals(scores=as_kind(table, kind), rules=rules).outcomes
    assert outcomes == tc.rivals(scores=table, rules=rules).outcomes


@pytest.mark.parametrize("wrong", [{"score": [1]}, [1, 2], 3, np.ones(3)])
def test_what_is_no_data_frame_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"expected a path or a data frame .* found an object of the type"):
        tc.certify(wrong)


def test_a_frame_and_its_file_are_certified_alike(here: Path) -> None:
    table = make_scores()
    table.write_csv("scores.csv")
    found = tc.certify("scores.csv", "certified")
    assert found.points == tc.certify(table).points
    assert (here / "scores.csv.attempts.json").exists()
    assert sorted(path.name for path in found.folder.iterdir())[:2] == ["certificates", "points.csv"]
    written = pl.read_csv("certified/points.csv")
    assert found.to_polars().select("tau", "bound").equals(written.select("tau", "bound"))
    assert tc.verify("certified/certificates/scores@0.98.json", "scores.csv").holds
    assert tc.certify(table, "frame").folder == Path("frame")


@pytest.mark.usefixtures("here")
def test_results_are_short_frozen_and_drawn() -> None:
    cache = tc.simulate("nlbs", "cache.zarr", cases=400, views=1)
    run = tc.fit_heads("cache.zarr", "run", configurations="ce,closed-loop", epochs=2)
    tc.simulate("rsna", "train.zarr", cases=300, views=0, seed=1)
    results = [
        run,
        tc.certify("run", "certified"),
        tc.external("train.zarr", "cache.zarr", "external", epochs=1),
        tc.sweep(cache, "sweep", {"margin": [0.05, 0.1]}, epochs=1),
        tc.compare("run", "compare", resplits=5),
        tc.rivals(scores="run"),
        tc.plan(cases=5997, positives=149),
        tc.cache_info(cache),
        tc.verify("run"),
        tc.write_report(["run"], "report.html"),
        tc.show(["run"]),
        tc.doctor(),
    ]
    for result in results:
        text = repr(result)
        assert 0 < len(text) < 2_500, text
        assert len(text.splitlines()) <= 14, text
        assert result._repr_html_().startswith("<div><b>")
        table = result.to_polars()
        assert list(result.to_pandas().columns) == table.columns
        assert len(result.to_pandas()) == table.height
        with pytest.raises(AttributeError):  # frozen
            result.folder = None
        if hasattr(result, "plot"):
            result.plot().save("chart.svg")
            assert Path("chart.svg").read_text().startswith("<svg")
    assert {type(result).__name__ for result in results if hasattr(result, "plot")} == {
        "RunResult", "CertifyResult", "PlanResult", "ExternalResult", "SweepResult", "CompareResult",
        "RivalsResult",
    }  # fmt: skip
    assert run.scores.height == 2 * cache.images


@pytest.mark.usefixtures("here")
def test_a_cache_describes_itself() -> None:
    cache = tc.open_cache(tc.simulate("nlbs", "a<b.zarr", cases=200, views=2).source)
    labels = cache.manifest.group_by("case_id").agg(pl.col("label").max())["label"]
    assert repr(cache).splitlines() == [
        "Cache a<b.zarr",
        f"  {cache.images:,} images of 200 cases, {labels.sum()} positive",
        "  1 clean + 2 augmented views, 2048 features, encoder simulated",
    ]
    assert "a&lt;b.zarr" in cache._repr_html_()
    assert cache.features[3:5, 0].shape == (2, 2048)


def test_a_subgroup_shows_its_numbers() -> None:
    found = tc.certify(make_scores(), by="site", targets=[0.95])
    point = found.subgroups[1].point
    text = repr(found.subgroups[1])
    assert len(text) < 300
    for words in ("site=site 1", f"dismissed={point.dismissed}", f"bound={point.bound:.6g}", point.status):
        assert words in text


def test_names_complete_without_an_import() -> None:
    """`dir` lists what is not imported yet; the lazy homes are right for every name."""
    homes = importlib.import_module("trust_cache")._HOMES
    assert set(tc.__all__) == set(homes) <= set(dir(tc))
    for name, home in homes.items():
        assert getattr(tc, name).__module__ == home
