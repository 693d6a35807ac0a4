"""Folders of results: whole or absent, nothing of anybody's ever lost."""

import errno
import os
from pathlib import Path

import pytest

from trust_cache.base.errors import InputError, StoppedError
from trust_cache.base.files import refuse_unknown, write_file, write_folder, write_keeping

OWN = {"a.txt", "sub"}
FILES = {"a.txt": b"one", "sub/b.txt": b"two"}


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_writes_all_and_leaves_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    assert write_folder(out, FILES, own=OWN) is None
    assert content(out) == FILES
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_an_empty_folder_is_used_and_equal_results_stay(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert write_folder(out, FILES, own=OWN) is None
    before = (out / "a.txt").stat().st_ino
    assert write_folder(out, FILES, own=OWN) is None
    assert (out / "a.txt").stat().st_ino == before


def test_other_results_are_kept_under_a_number(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_folder(out, {"a.txt": b"0"}, own=OWN)
    assert write_folder(out, {"a.txt": b"1"}, own=OWN) == tmp_path / "out.1"
    assert write_folder(out, {"a.txt": b"2"}, own=OWN) == tmp_path / "out.2"
    assert content(tmp_path) == {"out/a.txt": b"2", "out.1/a.txt": b"0", "out.2/a.txt": b"1"}


def test_unknown_files_are_never_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("ten years")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        write_folder(tmp_path, FILES, own=OWN)
    with pytest.raises(InputError, match="found a file"):
        write_folder(tmp_path / "thesis.tex", FILES, own=OWN)
    assert content(tmp_path) == {"thesis.tex": b"ten years"}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    out = tmp_path / "out"
    write_folder(out, {"a.txt": b"0"}, own=OWN)

    def full(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoppedError, match="no space left") as caught:
        write_folder(out, FILES, own=OWN)
    assert caught.value.exit_code == 3
    assert content(tmp_path) == {"out/a.txt": b"0"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", ["out", "worklist.csv"])
@pytest.mark.parametrize("call", ["fsync", "second rename"])
def test_a_full_disk_while_results_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, call: str
) -> None:
    """The message says that earlier files are unchanged: under their own names."""
    out = tmp_path / name

    def write(content: bytes) -> None:
        if name == "out":
            write_folder(out, {"a.txt": content}, own=OWN)
        else:
            write_keeping(out, content)

    write(b"0")
    before = content(tmp_path)
    renamed: list[Path] = []
    rename = Path.rename

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full_at_second(path: Path, target: Path) -> Path:
        renamed.append(path)
        if len(renamed) == 2:
            full()
        return rename(path, target)

    if call == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "rename", full_at_second)
    with pytest.raises(StoppedError, match="earlier files are unchanged"):
        write(b"1")
    assert content(tmp_path) == before


def test_private_files_are_the_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "worklist.csv"
    before = os.umask(0)
    try:
        write_file(tmp_path / "table.csv", b"")
        for content_ in (b"1", b"2"):
            write_keeping(path, content_, private=True)
        assert {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {
            "table.csv": 0o666, "worklist.csv": 0o600, "worklist.csv.1": 0o600,
        }  # fmt: skip
        path.chmod(0o640)  # what the user has chosen stays
        write_file(path, b"3", private=True)
        assert path.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


def test_the_current_folder_and_those_above_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    for out in (".", "..", tmp_path, tmp_path / "inside"):
        with pytest.raises(InputError, match="the folder you are in"):
            write_folder(Path(out), FILES, own=OWN)


def test_a_link_stays_and_what_it_names_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    for name, target in (("link", "real"), ("dangling", "later")):
        (tmp_path / name).symlink_to(tmp_path / target)
        write_folder(tmp_path / name, FILES, own=OWN)
        write_folder(tmp_path / name, {"a.txt": b"2"}, own=OWN)
        assert (tmp_path / name).is_symlink()
        assert content(tmp_path / target) == {"a.txt": b"2"}
        assert content(tmp_path / f"{target}.1") == FILES


def test_a_parent_that_is_a_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write there"):
        write_folder(tmp_path / "file" / "out", FILES, own=OWN)


def test_an_unfinished_file_of_a_killed_command_is_its_own(tmp_path: Path) -> None:
    (tmp_path / f"sweep.json.{'0af' * 10}12.partial").write_bytes(b"{")
    refuse_unknown(tmp_path, own={"sweep.json"})
    with pytest.raises(InputError, match="does not write"):
        refuse_unknown(tmp_path, own={"run.json"})
