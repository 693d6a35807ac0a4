"""Axes, grids, draws: what users write becomes settings, counted without being made; mistakes are named."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from trust_cache.base.errors import InputError
from trust_cache.heads.head_settings import HeadSettings, presets
from trust_cache.studies.sweep.sweep_request import describe_space
from trust_cache.studies.sweep.sweep_space import (
    BANK,
    SETTING_NAMES,
    Axis,
    Range,
    Space,
    cut_banks,
    find_axes,
    in_order,
    name_setting,
    parse_axis,
)

BASE = presets()["closed-loop"]


def test_a_grid_is_the_product_of_its_axes_over_the_base() -> None:
    space = describe_space(["lambda_dismiss=0,0.05", "tau=closed-loop,0.05"])
    assert space is not None
    found = [(item.lambda_dismiss, item.tau) for item in space.settings(0)]
    assert found == list(itertools.product((0.0, 0.05), ("closed-loop", 0.05)))
    assert all(item.lambda_focal == BASE.lambda_focal for item in space.settings(0))
    other = describe_space(["margin=0.2"], base="fixed-tau")
    assert other is not None
    assert next(other.settings(0)) == HeadSettings(
        lambda_focal=1.0, lambda_dismiss=0.05, tau=0.05, margin=0.2
    )


def test_ranges_with_a_count_are_values() -> None:
    assert parse_axis("margin=0..0.3:4", BASE) == Axis("margin", (0.0, 0.1, 0.2, 0.3))
    assert parse_axis("lr=1e-5..1e-3:log:3", BASE) == Axis("lr", (1e-5, 1e-4, 1e-3))
    assert parse_axis("lr=1e-5..1e-3:log", BASE) == Axis("lr", range=Range(1e-5, 1e-3, log=True))


def test_a_file_says_the_same_as_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        'base = "fixed-tau"\nrandom = 7\n[grid]\nmargin = [0.05, 0.1]\n'
        'lr = { low = 1e-5, high = 1e-3, scale = "log" }\n'
    )
    words = ["margin=0.05,0.1", "lr=1e-5..1e-3:log"]
    assert describe_space(file=file) == describe_space(words, base="fixed-tau", random=7)
    more = describe_space(["clip=1,5"], file, base="closed-loop", random=3)
    assert more is not None
    assert (len(more.axes), more.base, more.draws) == (3, BASE, 3)
    with pytest.raises(InputError, match="axis margin is given twice"):
        describe_space(["margin=0.3"], file)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[grd]\nmargin = [1]\n", "unknown key grd"),
        ("[grid]\nmargn = [1]\n", r"unknown setting 'margn'.*did you mean margin\?"),
        ("[grid]\nmargin = 1\n", "margin: expected a list of values, found 1"),
        ("[grid]\nmargin = []\n", "margin: expected a list of values"),
        ('[grid]\nlr = { low = 1, hgh = 2 }\n', "low and high"),
        ('[grid]\nlr = { low = 1, high = 2, scale = "cubic" }\n', "linear"),
        ("[grid]\nlr = [true]\n", "lr: expected a finite number, found True"),
        ("random = true\n[grid]\nlr = [1e-5]\n", "random: expected int . null, found bool"),
        ("grid = 3\n", "grid: expected object, found int"),
        ("[grid\n", "not a TOML file"),
        ("", "at least one axis"),
    ],
)  # fmt: skip
def test_mistakes_in_a_file(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(content)
    with pytest.raises(InputError, match=said):
        describe_space(file=file)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lambda_dismis=0,1"], r"unknown setting 'lambda_dismis'.*did you mean lambda_dismiss\?"),
        (["lr=-1"], "lr: expected 0 or more, found -1"),
        (["loop_level=0.5,1"], "loop_level: expected a number strictly between 0 and 1, found 1.0"),
        (["clip=0"], "clip: expected a number above 0, found 0.0"),
        (["margin=x"], "margin: expected a finite number, found 'x'"),
        (["margin=nan"], "margin: expected a finite number, found nan"),
        (["tau=open-loop"], "tau: expected a number or \"closed-loop\", found 'open-loop'"),
        (["margin=0.1,0.10"], "margin: the value 0.1 occurs twice"),
        (["margin=0.1", "lr=1e-5", "margin=0.2"], "axis margin is given twice"),
        (["margin"], "expected name=value,value"),
        (["margin="], "expected name=value,value"),
        (["margin=0.1,,0.2"], "margin: expected a finite number, found ''"),
        (["lr=1e-3..1e-5"], "from a lower to a higher number"),
        (["lr=0..1e-5:log"], "a logarithmic range begins above 0"),
        (["lr=0..1:cubic"], "expected :log or a number of values, found 'cubic'"),
        (["lr=0..1:1"], "2 to 10,000 values"),
        (["lr=0..1:100000000000"], "2 to 10,000 values"),
        (["lr=0..1"], "is for --random N"),
        (["tau=closed-loop..1"], "from a lower to a higher number"),
    ],
)
def test_mistakes_in_axes(words: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        describe_space(words)


def test_other_mistakes() -> None:
    for wrong in ({"random": 0}, {"random": 10**7}):
        with pytest.raises(InputError, match="random: expected 1 to 1,000,000"):
            describe_space(["margin=0.1,0.2"], **wrong)
    with pytest.raises(InputError, match="random: expected axes"):
        describe_space(random=3)
    with pytest.raises(InputError, match="base: expected axes"):
        describe_space(base="ce")
    with pytest.raises(InputError, match="did you mean fixed-tau"):
        describe_space(["margin=0.1"], base="fixedtau")
    space = describe_space(["lambda_dismiss=0,0.1"], base="ce")
    assert space is not None
    with pytest.raises(InputError, match="needs a tau"):
        list(space.settings(0))
    assert describe_space() is None


def test_a_grid_is_counted_without_being_made() -> None:
    """Ten to the 22nd settings are counted without being made."""
    space = describe_space([f"{name}=0.1..0.9:100" for name in SETTING_NAMES])
    assert space is not None
    assert space.count == 100**11
    assert next(space.settings(0)).clip == 0.1


def test_draws_are_even_and_begin_alike() -> None:
    words = ["lr=1e-5..1e-3:log", "margin=0..0.4", "tau=closed-loop,0.05,0.1"]
    many, few = (describe_space(words, random=n) for n in (3_000, 40))
    assert many is not None
    assert few is not None
    drawn = list(many.settings(5))
    assert drawn[:40] == list(few.settings(5))
    assert drawn[:40] != list(few.settings(6))
    assert kstest([math.log10(item.lr) for item in drawn], "uniform", (-5, 2)).pvalue > 0.01
    assert kstest([item.margin for item in drawn], "uniform", (0, 0.4)).pvalue > 0.01
    for value in ("closed-loop", 0.05, 0.1):
        assert abs(sum(item.tau == value for item in drawn) - 1_000) < 4 * math.sqrt(3_000 * 2 / 9)
    assert abs(np.corrcoef([item.lr for item in drawn], [item.margin for item in drawn])[0, 1]) < 0.08


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.2]), st.sampled_from([0.01, 1.0])), min_size=1))
def test_order_and_names_depend_on_the_settings_alone(pairs: list[tuple[float, float]]) -> None:
    made = [HeadSettings(margin=margin, clip=clip) for margin, clip in pairs]
    ordered = in_order(made)
    assert ordered == in_order(reversed(made))
    assert [(item.margin, item.clip) for item in ordered] == sorted(set(pairs))
    assert len({name_setting(item) for item in ordered}) == len(ordered)
    assert cut_banks(ordered) == cut_banks(in_order(reversed(made)))


def test_banks_hold_every_setting_once() -> None:
    settings = in_order(HeadSettings(margin=n / 1000) for n in range(2 * BANK + 7))
    banks = cut_banks(settings)
    assert [len(bank.settings) for bank in banks] == [BANK, BANK, 7]
    assert tuple(item for bank in banks for item in bank.settings) == settings
    assert len({bank.name for bank in banks}) == 3


def test_axes_are_what_varies() -> None:
    settings = [HeadSettings(tau=tau, margin=m) for tau in ("closed-loop", None, 0.2, 0.05) for m in (0.3,)]
    assert find_axes(settings) == {"tau": [None, 0.05, 0.2, "closed-loop"]}


def test_names_stay_what_they_are() -> None:
    """Files of earlier sweeps are found by these."""
    assert name_setting(HeadSettings()) == name_setting(HeadSettings(lambda_brier=-0.0 + 0.0))
    assert name_setting(BASE) == "s00938c831c35"


def test_space_refuses_no_axes() -> None:
    with pytest.raises(InputError, match="at least one axis"):
        Space(BASE, ())
