"""Groups of cases: values and bands, missing and conflicting, against a loop over the cases."""

from collections import defaultdict

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trust_cache.base.errors import InputError
from trust_cache.manifest.case_groups import find_groups, parse_groups

CELLS = st.one_of(st.none(), st.integers(0, 100).map(str))


@given(st.lists(st.tuples(st.sampled_from("abcde"), CELLS), min_size=1))
def test_bands_agree_with_a_loop(rows: list[tuple[str, str | None]]) -> None:
    images = pl.DataFrame(rows, schema={"case_id": pl.String, "age": pl.String}, orient="row")
    case_ids = images["case_id"].unique().sort()
    found = find_groups(images, case_ids, parse_groups("age=50,60", images.columns), "it")
    bands = defaultdict(set)
    for case, age in rows:
        if age is not None:
            bands[case].add(
                "below 50" if int(age) < 50 else "50 to below 60" if int(age) < 60 else "60 and above"
            )
    for case, group in zip(case_ids, found.group, strict=True):
        several = "missing" if not bands[case] else "conflicting"
        assert found.names[group] == (next(iter(bands[case])) if len(bands[case]) == 1 else several)
    order = ["below 50", "50 to below 60", "60 and above", "conflicting", "missing"]
    assert list(found.names) == [name for name in order if name in found.names]
    assert found.column == "age=50,60"


def test_what_bands_refuse() -> None:
    images = pl.DataFrame({"case_id": ["1", "2"], "age": ["51", "old"], "a=1": ["x", "y"]})
    for text, said in (
        ("age=50,x", "expected COLUMN or COLUMN=50,60,70"),
        ("age=60,50", "ascending"),
        ("age=50,50", "ascending"),
        ("age=nan", "finite"),
    ):
        with pytest.raises(InputError, match=said):
            parse_groups(text, images.columns)
    with pytest.raises(InputError, match="expected numbers or nothing in age, found 'old' of case 2"):
        find_groups(images, images["case_id"], parse_groups("age=50", images.columns), "it")
    assert find_groups(images, images["case_id"], parse_groups("a=1", images.columns), "it").names == (
        "x",
        "y",
    )
