"""Laws of the charts' common dress: fixed colours, the same bytes, nothing fetched, whole files."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import altair as alt
import polars as pl
import pytest

from trust_cache.base.errors import InputError
from trust_cache.figures import chart_style
from trust_cache.heads.head_settings import presets

SUFFIXES = (".svg", ".png", ".html", ".json")


def chart() -> alt.TopLevelMixin:
    names = ["ce", "closed-loop", "mine"]
    data = pl.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1.0, 4.0, 2.0], "configuration": names})
    colour = alt.Color("configuration:N", scale=chart_style.scale_of(chart_style.colours_of(names)))
    marks = alt.Chart(chart_style.inline(data)).mark_point(clip=True)
    return chart_style.finish(marks.encode(x="x:Q", y="y:Q", color=colour))


def test_every_preset_has_a_colour_a_dash_and_a_shape_of_its_own() -> None:
    names = list(presets())
    assert list(chart_style.PRESET_COLOURS) == names
    for styles in (chart_style.colours_of(names),):
        assert len(set(styles.values())) == len(names)
    dashed = zip(
        chart_style.colours_of(names).values(), map(tuple, chart_style.dashes_of(names).values()), strict=True
    )
    assert len(set(dashed)) == len(names)


@pytest.mark.parametrize("others", range(1, 8))
def test_others_keep_the_presets_colours_and_differ_in_colour_or_dash(others: int) -> None:
    names = ["closed-loop", *(f"mine-{i}" for i in range(others)), "ce"]
    colours, dashes = chart_style.colours_of(names), chart_style.dashes_of(names)
    assert list(colours) == list(dashes) == names
    assert colours["ce"] == chart_style.PRESET_COLOURS["ce"]
    assert colours["closed-loop"] == chart_style.PRESET_COLOURS["closed-loop"]
    for one, other in itertools.combinations(names, 2):
        assert (colours[one], dashes[one]) != (colours[other], dashes[other])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_chart_gives_the_same_bytes_also_in_another_process(suffix: str, tmp_path: Path) -> None:
    first, again = (chart_style.render_chart(chart(), suffix) for _ in range(2))
    assert first == again
    code = (
        "import sys; from pathlib import Path; from tests.figures.test_chart_style import chart;"
        " from trust_cache.figures.chart_style import save_chart; save_chart(chart(), Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / f"chart{suffix}")], check=True)
    assert (tmp_path / f"chart{suffix}").read_bytes() == first


def test_charts_on_one_page_do_not_share_names_of_their_parts() -> None:
    other = chart_style.finish(chart().properties(width=100))  # type: ignore[attr-defined]
    one, two = (chart_style.render_chart(item, ".svg").decode() for item in (chart(), other))
    ids = [set(re.findall(r'id="([^"]+)"', drawn)) for drawn in (one, two)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for drawn, own in zip((one, two), ids, strict=True):
        assert set(re.findall(r"url\(#([^)]+)\)", drawn)) <= own


def test_each_form_is_what_its_name_says() -> None:
    assert chart_style.render_chart(chart(), ".svg").startswith(b"<svg")
    assert chart_style.render_chart(chart(), ".PNG").startswith(b"\x89PNG\r\n")
    assert json.loads(chart_style.render_chart(chart(), ".json"))["$schema"].endswith(".json")
    page = chart_style.render_chart(chart(), ".html").decode()
    assert "<html" in page.lower()
    assert 'src="http' not in page  # the scripts are in the page


def test_a_chart_fetches_nothing() -> None:
    fetching = alt.Chart(alt.UrlData(url="https://example.org/data.csv")).mark_point().encode(x="x:Q")
    with pytest.raises(ValueError, match="External data url not allowed"):
        chart_style.render_chart(fetching, ".svg")


def test_another_name_is_refused_and_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.svg, \.png, \.html, \.json, found '\.pdf'"):
        chart_style.save_chart(chart(), tmp_path / "chart.pdf")
    with pytest.raises(InputError, match=r"chart\.pdf: expected a name that ends in \.svg"):
        chart_style.require_chart_name(tmp_path / "chart.pdf")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(InputError, match="found a folder"):
        chart_style.require_chart_name(tmp_path / "folder.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.svg"]
