"""File names and digests: laws by hypothesis."""

import hashlib
import json

from hypothesis import given
from hypothesis import strategies as st

from trust_cache.base import digests
from trust_cache.base.digests import file_stems, rows_sha256

NAMES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), max_size=8)
ROWS = st.lists(
    st.lists(
        st.one_of(st.text(), st.none(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
        max_size=4,
    ),
    max_size=10,
)


@given(NAMES)
def test_stems_are_distinct_harmless_and_short(names: list[str]) -> None:
    stems = file_stems(names)
    assert len({stem.casefold() for stem in stems.values()}) == len(set(names))
    for stem in stems.values():
        assert not set(stem) & set('/\\:*?"<>|\0\n')
        assert stem not in {".", ".."}
        assert len(f"{stem}@0.98.json".encode()) <= 200


def test_harmless_names_stay() -> None:
    for name in ("closed-loop", "CE + Focal (γ=2)", "a.b"):
        assert file_stems([name]) == {name: name}


@given(ROWS, st.integers(1, 4))
def test_digest_is_of_the_json_text_whatever_the_chunks(rows: list[list[object]], size: int) -> None:
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
    expected = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    before = digests._ROWS_AT_ONCE
    digests._ROWS_AT_ONCE = size
    try:
        assert rows_sha256(rows) == expected
    finally:
        digests._ROWS_AT_ONCE = before
