"""The wheel: exactly two packages with the data set descriptions, usable where it is installed."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from trust_cache.base.versions import REVISION_FILE, revision, tree_revision

ROOT = Path(__file__).parents[2]
DATASETS = ["cmmd", "csaw-cc", "embed", "nlbs", "rsna", "vindr"]
FIND = (
    "import sys; from trust_cache.manifest.datasets.dataset import *;"
    " print(descriptions_folder()); print(described_datasets()); import trust_cache_cli.main"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(words, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_exactly_two_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"trust_cache", "trust_cache_cli"}
    inside = {name for name in names if name.endswith(".toml") and "data_manifests" in name}
    assert inside == {f"trust_cache/manifest/data_manifests/{name}.toml" for name in DATASETS}
    described = {path.name for path in (ROOT / "data_manifests").glob("*.toml")}
    assert {Path(name).name for name in inside} == described
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "trust_cache").rglob("*.py")}
    modules |= {p.relative_to(ROOT / "cli").as_posix() for p in (ROOT / "cli").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    assert {"trust_cache/py.typed", "trust_cache_cli/py.typed"} <= set(names)
    entry = next(name for name in names if name.endswith("entry_points.txt"))
    with zipfile.ZipFile(wheel) as archive:
        assert "trust-cache = trust_cache_cli.__main__:run" in archive.read(entry).decode()


def test_descriptions_are_found_in_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # -S and the dependencies' folder by hand: the editable install must not answer instead.
    dependencies = Path(next(p for p in sys.path if p.endswith("site-packages")))
    code = f"import sys; sys.path[:0] = [{str(site)!r}]; sys.path.append({str(dependencies)!r}); {FIND}"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    folder, names = done.stdout.splitlines()
    assert folder == str(site / "trust_cache" / "manifest" / "data_manifests")
    assert names == str(DATASETS)


def test_descriptions_are_found_in_an_editable_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIND], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    folder, names = done.stdout.splitlines()
    assert folder == str(ROOT / "data_manifests")
    assert names == str(DATASETS)


def test_the_wheel_carries_the_revision_it_was_built_from(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(f"trust_cache/{REVISION_FILE}", tmp_path)
    assert revision(tmp_path / "trust_cache") == tree_revision(ROOT) is not None


def test_a_source_tree_tells_its_revision_by_git(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    (tmp_path / "trust_cache").mkdir()
    assert revision(tmp_path / "trust_cache") is None
    (tmp_path / "file").write_text("one")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert revision(tmp_path / "trust_cache") == head[:12]
    (tmp_path / "file").write_text("two")
    assert revision(tmp_path / "trust_cache") == f"{head[:12]}-dirty"
