"""Cases of images: labels, scores, and the image that sets the score."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trust_cache.manifest.cases import case_maxima, deciding_image, find_cases, highest_images


def test_cases_are_sorted_and_positive_by_one_image() -> None:
    cases = find_cases(pl.DataFrame({"case_id": ["b", "a", "b", "c"], "label": [0, 0, 1, 0]}))
    assert cases.case_ids.to_list() == ["a", "b", "c"]
    assert cases.labels.tolist() == [0, 1, 0]
    assert cases.of_image.tolist() == [1, 0, 1, 2]


@given(
    st.lists(st.tuples(st.integers(0, 8), st.floats(-1e9, 1e9)), min_size=1, max_size=40),
    st.integers(1, 4),
)
def test_a_case_scores_the_maximum_over_its_images_for_every_head(
    images: list[tuple[int, float]], heads: int
) -> None:
    names, scores = [f"{case:02d}" for case, _ in images], np.array([score for _, score in images])
    table = pl.DataFrame({"case_id": names, "score": scores, "label": [0] * len(names)})
    expected = table.group_by("case_id").agg(pl.col("score").max()).sort("case_id")
    cases = find_cases(table)
    assert cases.case_ids.to_list() == expected["case_id"].to_list()
    assert cases.score(scores).tolist() == expected["score"].to_list()
    several = np.stack([scores * (1 + head) for head in range(heads)])
    assert np.array_equal(cases.score(several), [cases.score(row) for row in several])
    highest = highest_images(scores, cases.of_image)
    assert scores[highest].tolist() == expected["score"].to_list()
    assert cases.of_image[highest].tolist() == list(range(expected.height))


def test_a_score_that_is_not_a_number_stays_visible() -> None:
    assert np.isnan(case_maxima(np.array([0.5, np.nan, 0.1]), np.array([0, 0, 1]))[0])


@pytest.mark.parametrize(
    ("scores", "image"), [({}, None), ({"b": 0.5, "a": 0.5, "c": 0.1}, "a"), ({"a": 0.1, "b": 0.2}, "b")]
)
def test_the_first_by_name_decides_among_equals(scores: dict[str, float], image: str | None) -> None:
    assert deciding_image(scores) == image
