"""Documents: damage is one sentence that names the file and the key."""

import json
from pathlib import Path

import pytest

from trust_cache.base.documents import Document, json_bytes, read_json, typed
from trust_cache.base.errors import InputError


class Part(Document, frozen=True):
    name: str
    share: float = 0.5


class Whole(Document, frozen=True):
    schema: int
    parts: dict[str, Part]
    seed: int | None = None


GOOD = {"schema": 1, "parts": {"a": {"name": "x", "share": 1}}, "seed": None}


def read(tmp_path: Path, content: object) -> Whole:
    path = tmp_path / "whole.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return read_json(path, Whole, what="a whole", schema=1)


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    whole = Whole(schema=1, parts={"a": Part(name="x", share=0.25)})
    assert read(tmp_path, json_bytes(whole.as_document())) == whole
    assert read(tmp_path, GOOD).parts["a"].share == 1.0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({**GOOD, "extra": 1}, "unknown key extra"),
        ({**GOOD, "parts": {"a": {"name": "x", "more": 1}}}, "unknown key parts[...].more"),
        ({**GOOD, "parts": {"a": {}}}, "expected the key parts[...].name, found none"),
        ({**GOOD, "parts": {"a": {"name": 3}}}, "parts[...].name: expected str, found int"),
        ({**GOOD, "seed": 1.5}, "seed: expected int | null, found float"),
        ({**GOOD, "parts": {"a": {"name": "x", "share": 10**400}}}, "parts[...].share: number out of range"),
        ({**GOOD, "schema": 2}, "schema 1, found schema 2; a newer file needs a newer trust-cache"),
        ({**GOOD, "schema": True}, "schema 1, found schema True"),
        ([], "schema 1, found schema None"),
        (b'{"schema": 1, "parts": {}, "\\ud800": 1}', "a text that UTF-8 cannot hold"),
        (b"{", "unreadable"),
        (b"[" * 100_000, "nested too deeply"),
        (b"\xff", "unreadable"),
    ],
)
def test_damage_names_the_file_and_the_key(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, content)
    assert str(caught.value).startswith(str(tmp_path / "whole.json"))
    assert said in str(caught.value)


def test_a_missing_file_is_the_callers_to_explain(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none.json", Whole, what="a whole")


def test_plain_values_without_a_schema() -> None:
    assert typed({"name": "x"}, Part, where="here", what="a part") == Part(name="x")
