"""Laws of the terminal twin: the sparkline's shape, and the essentials of any run."""

import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.report.material import make_run
from trust_cache.certificate.certify import certify
from trust_cache.certificate.evidence import Options, gather
from trust_cache.report.terminal import essentials, sparkline

BLOCKS = "▁▂▃▄▅▆▇█"


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_a_sparkline_rises_where_its_numbers_rise(values: list[float]) -> None:
    drawn = sparkline(values)
    heights = [BLOCKS.index(character) for character in drawn]
    assert len(heights) == len(values)
    pairs = sorted(zip(values, heights, strict=True))
    assert all(one[1] <= other[1] for one, other in itertools.pairwise(pairs))
    if min(values) < max(values):
        assert (min(heights), max(heights)) == (0, 7)


def test_equal_numbers_are_a_low_line() -> None:
    assert sparkline([0.05] * 4) == "▁▁▁▁"


def test_the_essentials_are_certifys(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", cases=400)
    (evidence,) = gather([run], Options())
    found = essentials(evidence)
    points = certify(run).points
    assert [row[:2] for row in found.table.rows] == [
        (point.configuration, f"{100 * point.target:g}%") for point in points
    ]
    ours = [point for point in points if point.configuration == "closed-loop"]
    assert len(found.sentences) == sum(bool(point.met) for point in ours)
    assert len(found.sentences) + len(found.reasons) == len(ours)
    assert [line.split()[:2] for line in found.courses] == [["fixed-tau", "▁▁▁▁"], ["closed-loop", "▁▃▆█"]]
