"""Paths of images on all systems, as laws."""

import os
from pathlib import Path, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trust_cache.base.errors import InputError
from trust_cache.base.places import is_url
from trust_cache.manifest.manifest_file import (
    images_prefix,
    is_absolute,
    place_under,
    resolve_path,
    with_slashes,
)

NAMES = st.text(
    st.characters(exclude_characters='/\\:*?"<>|\0', exclude_categories=("Cs", "Cc")), min_size=1, max_size=12
).filter(lambda name: name.strip(" .") == name)
RELATIVE = st.lists(NAMES, min_size=1, max_size=5).map("/".join)


@given(RELATIVE, st.booleans())
def test_a_relative_path_starts_from_the_manifest(relative: str, windows: bool) -> None:
    cell = relative.replace("/", "\\") if windows else relative
    assert resolve_path(Path("some/where/manifest.csv"), cell) == str(
        Path("some/where", *relative.split("/"))
    )


@given(
    RELATIVE, st.sampled_from(["s3://bucket", "s3://bucket/x/", "gs://b/a b", "memory://", "file:///data"])
)
def test_a_url_prefix_stays_and_takes_the_rest_literally(relative: str, prefix: str) -> None:
    cell = place_under(images_prefix(prefix, Path("m.csv")), relative.replace("/", "\\"))
    assert cell is not None
    assert is_url(cell)
    assert cell == (prefix if prefix.endswith("/") else prefix + "/") + relative
    assert resolve_path(Path("any/manifest.csv"), cell) == cell
    assert place_under("other/", cell) == cell


def test_http_quotes() -> None:
    cell = place_under(images_prefix("https://host/x", Path("m.csv")), "False Positive\\p_1\\a.dcm")
    assert cell == "https://host/x/False%20Positive/p_1/a.dcm"


@pytest.mark.parametrize(
    "cell", ["/data/a.dcm", "C:\\data\\a.dcm", "C:/data/a.dcm", "\\\\server\\share\\a.dcm"]
)
def test_absolute_paths_of_any_system_stay(cell: str) -> None:
    assert is_absolute(cell)
    assert not is_url(cell)
    kept = place_under("images/", cell)
    assert kept == cell.replace("\\", "/")
    assert resolve_path("other/manifest.csv", cell) == kept
    assert PureWindowsPath(kept) == PureWindowsPath(cell)
    prefix = images_prefix(cell.removesuffix("a.dcm"), Path("m.csv"))
    assert place_under(prefix, "a.dcm") == kept


@pytest.mark.parametrize("text", ["C:/x", "C://x", "a/b", "p_1:2", "//server/x", "s3:/x"])
def test_what_is_no_url(text: str) -> None:
    assert not is_url(text)
    assert with_slashes(text) == text


def test_roots_and_a_manifest_at_a_url() -> None:
    assert place_under(images_prefix("/", Path("m.csv")), "a.dcm") == "/a.dcm"
    assert place_under(images_prefix("C:\\", Path("m.csv")), "a.dcm") == "C:/a.dcm"
    assert resolve_path("s3://bucket/run/manifest.csv", "png/a b.png") == "s3://bucket/run/png/a b.png"
    assert place_under("x/", None) is None
    with pytest.raises(InputError, match="no path"):
        resolve_path("manifest.csv", "")


@given(
    st.lists(st.sampled_from(["a", "b c", "é", ".."]), max_size=5),
    st.lists(st.sampled_from(["m", "n"]), max_size=3),
)
def test_a_relative_folder_is_found_from_the_manifest(images: list[str], out: list[str]) -> None:
    start = Path.cwd()
    manifest = Path(*out, "manifest.csv")
    prefix = images_prefix("/".join(images) or ".", manifest)
    resolved = resolve_path(start / manifest, place_under(prefix, "x.dcm"))
    assert os.path.normpath(resolved) == os.path.normpath(start.joinpath(*images, "x.dcm"))
    assert not is_absolute(prefix)


def test_links_are_followed_before_going_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep" / "er" / "real").mkdir(parents=True)
    (tmp_path / "here" / "images").mkdir(parents=True)
    (tmp_path / "here" / "images" / "a.dcm").write_bytes(b"x")
    (tmp_path / "here" / "link").symlink_to(tmp_path / "deep" / "er" / "real")
    monkeypatch.chdir(tmp_path / "here")
    manifest = Path("link/manifest.csv")
    cell = place_under(images_prefix("images", manifest), "a.dcm")
    assert Path(resolve_path(manifest, cell)).read_bytes() == b"x"
    monkeypatch.chdir(tmp_path / "here" / "link")
    cell = place_under(images_prefix("../../../here/images", Path("m.csv")), "a.dcm")
    assert Path(resolve_path(Path("m.csv"), cell)).read_bytes() == b"x"
