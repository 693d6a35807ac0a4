"""What an import costs: the certificate needs neither torch nor zarr nor the command line's libraries.

Stage two, from features to the report, runs with what `pip install trust-cache` installs.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import trust_cache
from tests.project.examples import GROUP
from tests.project.test_plain_words import help_texts

ROOT = Path(__file__).parents[2]
# Reading images and running an encoder is stage one, which `pip install "trust-cache[extract]"` installs.
STAGE_ONE = (
    "trust_cache.images", "trust_cache.encoders", "trust_cache.cache.extract", "trust_cache.cache.views",
    "trust_cache.synthetic.image_cohort", "trust_cache.synthetic.phantom",
    "trust_cache.synthetic.synthetic_dicom", "trust_cache.clinic.incoming_cases",
    "trust_cache.clinic.picture_preparation", "trust_cache.clinic.triage",
    "trust_cache.clinic.triage_journal", "trust_cache.clinic.triage_scoring", "trust_cache.api.demo",
    "trust_cache.api.encoder_functions", "trust_cache.api.estimate", "trust_cache.api.image_functions",
)  # fmt: skip
OF_AN_EXTRA = (*STAGE_ONE, "trust_cache.base.dask_cluster")
COMMANDS_OF_STAGE_ONE = {
    "demo",
    "estimate",
    "extract",
    "images",
    "manifest",
    "preprocess",
    "triage",
    "weights",
}
STAGE_TWO = """
    simulate --like nlbs --cases 300 --views 1 --out nlbs.zarr
    simulate --like rsna --cases 300 --views 1 --out rsna.h5
    doctor
    cache info nlbs.zarr
    cache verify rsna.h5
    cache convert rsna.h5 --out rsna.zarr
    cache subset nlbs.zarr --out left.zarr --where laterality=L
    cache export nlbs.zarr --out nlbs.parquet
    cache import nlbs.parquet --out nlbs.h5
    fit-heads nlbs.zarr --out run --configurations ce,closed-loop,tuned --epochs 2
    manifest csv run/manifest.csv --no-files --out again.csv
    trajectories run --out trajectories.svg
    certify run --out certified --target 0.95
    verify certified
    plan --cases 3000 --positives 200
    compare run --out compared --resplits 2
    sweep nlbs.zarr --grid margin=0.05,0.1 --epochs 2 --out swept
    rivals nlbs.zarr --out rivals --epochs 2
    external rsna.zarr nlbs.zarr --out external --epochs 2
    report run certified swept --out report.html
    show run certified
    reproduce --nlbs nlbs.zarr --out paper --epochs 1
    export-model run --configuration ce --out model --target 0.95
    monitor worklist.csv --model model --outcomes outcomes.csv --page monitor.html
"""
# Hides what no requirement of the bare package brings, as if it were not installed.
HIDE_EXTRAS = """
import re, sys
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from packaging.requirements import Requirement

def named(name):
    return re.sub(r"[-_.]+", "-", name).lower()

kept, todo = set(), ["trust-cache"]
while todo:
    name = named(todo.pop())
    if name not in kept:
        kept.add(name)
        try:
            found = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:  # of another platform or version of Python
            found = []
        todo += [one.name for one in found if one.marker is None or one.marker.evaluate({"extra": ""})]
installed = packages_distributions()
hidden = {module for module, owners in installed.items() if kept.isdisjoint(map(named, owners))}

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""


def modules_after(code: str) -> set[str]:
    words = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(words, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import trust_cache.certificate",
        "import trust_cache.certificate.certify, trust_cache.certificate.verify",
        "from trust_cache import certify, select_threshold, clopper_pearson_upper",
    ],
)
def test_the_certificate_is_light(code: str) -> None:
    assert not modules_after(code) & {"torch", "zarr", "typer", "h5py", "numba", "sklearn", "rich"}


def test_the_package_and_the_command_line_import_lazily() -> None:
    heavy = {"numpy", "scipy", "polars", "torch", "zarr"}
    assert not modules_after("import trust_cache") & heavy
    assert not modules_after("import trust_cache_cli.main") & heavy


def test_help_of_every_command_imports_lazily() -> None:
    """Help must answer within half a second (`python -m benchmarks start`): it loads no numeric library."""
    words = [path.split()[1:] for path in help_texts(GROUP)]
    code = f"""
import contextlib, io, sys
from trust_cache_cli.main import main
for words in {words!r}:
    sys.argv = ["trust-cache", *words, "--help"]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
        main()
    assert "Usage" in out.getvalue(), words
"""
    assert len(words) > 20
    assert not modules_after(code) & {"numpy", "scipy", "polars", "torch", "zarr"}


def run_without_extras(code: str, folder: Path) -> Any:
    """Run code in a fresh interpreter without the packages of the extras; it prints a JSON document last."""
    words = [sys.executable, "-c", HIDE_EXTRAS + dedent(code)]
    done = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_only_stage_one_imports_an_extra(tmp_path: Path) -> None:
    code = """
        import importlib, json, pkgutil, trust_cache, trust_cache_cli
        missing = {}
        for package in (trust_cache, trust_cache_cli):
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                try:
                    importlib.import_module(module.name)
                except ModuleNotFoundError as error:
                    missing[module.name] = error.name
        print(json.dumps([sorted(hidden), missing]))
    """
    hidden, missing = run_without_extras(code, tmp_path)
    assert set(hidden) > {"cv2", "torch", "timm", "openvino", "pydicom", "imagecodecs", "fsspec", "pandas"}
    assert set(missing.values()) <= set(hidden)
    assert {name: package for name, package in missing.items() if not name.startswith(OF_AN_EXTRA)} == {}
    assert {name for name in STAGE_ONE if not any(found.startswith(name) for found in missing)} == set()


@pytest.mark.slow
def test_stage_two_runs_without_extras(tmp_path: Path) -> None:
    """All its commands: an import within a function fails only when the function runs."""
    lines = [line.split() for line in dedent(STAGE_TWO).strip().splitlines()]
    assert {line[0] for line in lines} >= set(GROUP.commands) - COMMANDS_OF_STAGE_ONE
    code = f"""
        import contextlib, io, json
        from pathlib import Path
        from trust_cache.clinic.model_folder import read_model
        from trust_cache.clinic.worklist import WorklistRow, write_worklist
        from trust_cache_cli.main import main

        failed = {{}}
        for words in {lines!r}:
            if words[0] == "monitor":  # the worklist comes from triage, which is stage one
                model = read_model(Path("model")).sha256
                row = WorklistRow("1", 0.1, "dismiss", "1_1", 0.2, True, None, True, model)
                write_worklist(Path("worklist.csv"), [row])
                Path("outcomes.csv").write_text("case_id,label,date,examined\\n1,0,2024-01-01,2020-01-01\\n")
            sys.argv = ["trust-cache", *words]
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
                try:
                    main()
                except SystemExit as error:
                    if error.code:
                        failed[" ".join(words)] = [error.code, said.getvalue()]
        print(json.dumps(failed))
    """
    assert run_without_extras(code, tmp_path) == {}


def test_every_public_name_is_there() -> None:
    for name in trust_cache.__all__:
        assert callable(getattr(trust_cache, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = trust_cache.nothing


def test_benchmarks_import_what_is_there() -> None:
    """No test runs a benchmark: a name that moved would break it unseen."""
    wanted = [
        (file.name, node.module or "", name.name)
        for file in sorted((ROOT / "benchmarks").glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("trust_cache", "benchmarks"))
        for name in node.names
    ]
    assert len(wanted) > 50
    known = {module: names_of(module) for _, module, _ in wanted}
    for file, module, name in wanted:
        assert name in known[module], f"{file}: {module} has no {name}"


def names_of(module: str) -> set[str]:
    """The names of a module and of the modules in it, without importing it."""
    place = ROOT / module.replace(".", "/")
    inside = {path.stem for path in place.iterdir()} if place.is_dir() else set()
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names |= {(part.asname or part.name) for part in node.names}
        names |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        # trust_cache names its functions in a table, to import them when they are used.
        names |= {str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)}
    return inside | names
