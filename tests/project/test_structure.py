"""The tree stays easy to enter: few modules per folder, and one name for one thing."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "trust_cache", ROOT / "cli" / "trust_cache_cli")
MODULES = sorted(path for folder in FOLDERS for path in folder.rglob("*.py") if path.name != "__init__.py")
MOST_IN_A_FOLDER = 14
LONGEST_FUNCTION = 60


def test_no_folder_holds_too_many_modules() -> None:
    held = Counter(path.parent for path in MODULES)
    assert {str(folder): count for folder, count in held.items() if count > MOST_IN_A_FOLDER} == {}


def test_file_names_are_unique() -> None:
    names = Counter(path.name for path in MODULES)
    assert [name for name, count in names.items() if count > 1] == []


def test_class_names_are_unique() -> None:
    places = defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_functions_fit_on_a_screen() -> None:
    """Commands are exempt: their options are their parameters."""
    long = {}
    for path in (path for path in MODULES if path.parent.name != "trust_cache_cli"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                long[f"{path.name}: {node.name}"] = (node.end_lineno or node.lineno) - node.lineno + 1
    assert {name: lines for name, lines in long.items() if lines > LONGEST_FUNCTION} == {}


def test_tests_mirror_the_packages() -> None:
    packages = {path.name for path in (ROOT / "trust_cache").iterdir() if (path / "__init__.py").is_file()}
    tests = {path.name for path in (ROOT / "tests").iterdir() if (path / "__init__.py").is_file()}
    assert packages <= tests
