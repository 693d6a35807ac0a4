"""Cases of images: labels, scores, and the image that sets the score."""

import math
import random
import statistics

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trust_cache.base.errors import InputError
from trust_cache.manifest.cases import (
    ABOVE_IMAGES,
    AGGREGATIONS,
    Aggregation,
    aggregate,
    case_maxima,
    deciding_image,
    find_cases,
    highest_images,
    score_case,
)


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


def by_hand(scores: list[float], sides: list[str | None], aggregation: Aggregation) -> float:
    """One case, as the definitions read."""
    if aggregation == "maximum":
        return max(scores)
    if aggregation == "noisy-or":
        return 1.0 - math.prod(1.0 - score for score in scores)
    if aggregation == "top-two":
        return statistics.fmean(sorted(scores)[-2:])
    breasts: dict[object, list[float]] = {}
    for place, (score, side) in enumerate(zip(scores, sides, strict=True)):
        breasts.setdefault(place if side is None else side, []).append(score)
    return max(map(statistics.fmean, breasts.values()))


IMAGES = st.lists(
    st.tuples(st.integers(0, 5), st.floats(0, 1), st.sampled_from(["L", "R", "l", None])),
    min_size=1,
    max_size=24,
)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@given(images=IMAGES, order=st.randoms(use_true_random=False))
def test_aggregations_follow_their_definitions_in_any_order(
    aggregation: Aggregation, images: list[tuple[int, float, str | None]], order: random.Random
) -> None:
    def scored(rows: list[tuple[int, float, str | None]]) -> list[float]:
        case, scores, sides = (list(column) for column in zip(*rows, strict=True))
        table = pl.DataFrame(
            {"case_id": [f"{number}" for number in case], "label": 0, "laterality": sides},
            schema_overrides={"laterality": pl.String},
        )
        return find_cases(table).score(np.array(scores), aggregation).tolist()

    found = scored(images)
    members = [[image for image in images if image[0] == case] for case in sorted({row[0] for row in images})]
    for value, rows in zip(found, members, strict=True):
        scores = [score for _, score, _ in rows]
        sides = [None if side is None else side.upper() for _, _, side in rows]
        assert value == pytest.approx(by_hand(scores, sides, aggregation), abs=1e-12)
        assert min(scores) - 1e-12 <= value
        if aggregation in ABOVE_IMAGES:
            assert value >= max(scores)
        else:
            assert value <= max(scores) + 1e-12
        if len(rows) == 1:
            assert value == scores[0]
        # Triage scores one case at a time and must agree bit for bit.
        named = {str(place): score for place, score in enumerate(scores)}
        assert value == score_case(named, dict(zip(named, sides, strict=True)), aggregation)
    shuffled = images.copy()
    order.shuffle(shuffled)
    assert scored(shuffled) == found


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_an_image_without_a_score_makes_the_case_have_none(aggregation: Aggregation) -> None:
    scores, case = np.array([0.5, np.nan, 0.25, 0.75]), np.array([0, 0, 1, 1])
    found = aggregate(np.stack([scores, scores[::-1]]), case, aggregation, np.array([0, 0, 1, 2]))
    assert np.isnan(found).tolist() == [[True, False], [False, True]]


def test_aggregations_refuse_what_they_cannot_use() -> None:
    case = np.zeros(2, dtype=np.int64)
    with pytest.raises(InputError, match="breast-mean: expected the column laterality"):
        aggregate(np.array([0.1, 0.2]), case, "breast-mean")
    with pytest.raises(InputError, match="noisy-or: expected scores from 0 to 1"):
        aggregate(np.array([0.1, 1.2]), case, "noisy-or")
    assert deciding_image({"a": 0.1, "b": 0.2}, "top-two") is None
    assert deciding_image({"a": 0.1, "b": 0.2}, "noisy-or") == "b"
    assert score_case({}, {}, "top-two") is None
