"""Monitoring: what enters, what is refused, bounds by another route, the history of the model."""

import json
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import betaln

from tests.clinic.material import a_model, a_row
from tests.clinic.monitoring.monitor_material import (
    AS_OF,
    Place,
    everyone,
    examined,
    make_place,
    outcome_line,
    write_outcomes,
)
from trust_cache.base.errors import InputError
from trust_cache.clinic.model_folder import read_model, write_model
from trust_cache.clinic.monitoring.followed_cases import answer_of, enter_cases
from trust_cache.clinic.monitoring.model_history import read_history
from trust_cache.clinic.monitoring.monitor import monitor
from trust_cache.clinic.monitoring.monitor_page import render_monitor_page
from trust_cache.clinic.monitoring.monitor_words import sentences
from trust_cache.clinic.monitoring.outcomes import Outcome, parse_period


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


def inside(rate: float, k: int, n: int, prior: tuple[float, float], delta: float = 0.01) -> bool:
    """Whether a rate is in the confidence sequence, straight from the definition."""
    a, b = prior
    wealth = betaln(a + k, b + n - k) - betaln(a, b) - k * np.log(rate) - (n - k) * np.log1p(-rate)
    return bool(wealth < np.log(1 / delta))


def test_counts_and_bounds(place: Place) -> None:
    generator = np.random.default_rng(0)
    labels = {int(n): str(int(n % 150 == 7)) for n in generator.permutation(1000)[:700]}
    write_outcomes(place.outcomes, {n: labels.get(n, "") for n in range(1000)})
    found = place.watch(as_of=date(2024, 3, 1))
    rate = found.dismissed
    assert rate is not None
    matured = [n for n in range(1000) if parse_period("24m", "").after(examined(n)) <= date(2024, 3, 1)]
    assert (rate.entered, rate.waiting) == (len(matured), 1000 - len(matured))
    assert 700 < rate.entered < 1000
    k = sum(labels.get(n) == "1" for n in matured)
    unknown = sum(n not in labels for n in matured)
    assert (rate.cancers, rate.unknown) == (k, unknown)
    certificate = read_model(place.model).model.certificate
    assert certificate is not None
    mean = (certificate.positives_dismissed + 0.5) / (certificate.dismissed + 1)
    prior = (0.5, 0.5 * (1 - mean) / mean)
    n = rate.entered
    for end, count, outward in ((rate.upper, k + unknown, 1.001), (rate.lower, k, 0.999)):
        assert inside(end / outward, count, n, prior)
        assert not inside(end * outward, count, n, prior)
    assert found.certified is not None
    assert (found.certified.limit, found.certified.status) == (certificate.limit, "certified")
    assert found.recent is not None
    since = date.fromisoformat(found.recent.since)
    assert found.recent.entered == sum(examined(n) > since for n in matured)
    assert "limit" in sentences(found)[0]


@pytest.mark.parametrize(
    ("labels", "status", "words"),
    [
        (everyone(1), "confirmed", "even if every unknown outcome is a cancer"),
        (everyone(60), "alarm", "Stop dismissing with this model"),
        (everyone(9), "open", "neither confirm"),
        (everyone(1, unknown=100), "open", "neither confirm"),
    ],
)
def test_status_and_sentence(place: Place, labels: dict[int, str], status: str, words: str) -> None:
    write_outcomes(place.outcomes, labels)
    found = place.watch()
    assert found.status == status
    assert words in " ".join(sentences(found))
    page = render_monitor_page(found, "model")
    assert f'<span class="target">{status}</span>' in page
    assert "<script" not in page
    assert "verification bias" in page
    assert page.count("<svg") >= 2
    if status == "alarm":
        rate = found.dismissed
        assert rate is not None
        assert rate.alarm_after is not None
        assert 0 < rate.alarm_after < 1000


def test_the_date_decides_never_the_outcome() -> None:
    """A cancer known at once does not enter before its time, and an early negative is not followed."""
    month = parse_period("24m", "")
    day = date(2024, 2, 29)
    assert month.after(day) == date(2026, 2, 28)
    early = {("", "a"): Outcome(day, day + timedelta(days=30), day + timedelta(days=30))}
    assert enter_cases({("", "a"): day}, early, month, date(2026, 2, 27)).waiting == 1
    assert enter_cases({("", "a"): day}, early, month, date(2026, 2, 28)).cancer.tolist() == [True]
    end = month.after(day)
    assert answer_of(Outcome(day, None, day + timedelta(days=30)), end) == "unknown"
    assert answer_of(Outcome(day, None, end), end) == "healthy"
    assert answer_of(Outcome(day, end + timedelta(days=1), end + timedelta(days=1)), end) == "healthy"
    assert answer_of(None, end) == "unknown"


def test_cases_enter_in_the_order_of_examinations(place: Place) -> None:
    write_outcomes(place.outcomes, everyone(5))
    first = place.watch()
    lines = place.outcomes.read_text().splitlines()
    shuffled = lines[1:]
    np.random.default_rng(0).shuffle(shuffled)
    place.outcomes.write_text("\n".join([lines[0], *shuffled]))
    again = place.watch()
    assert again.repeated
    assert again.dismissed == first.dismissed
    assert np.array_equal(again.paths["dismiss"].cancers, first.paths["dismiss"].cancers)
    assert np.all(np.diff(again.paths["dismiss"].days) >= 0)


def test_what_the_paper_trail_shows_was_wrong_before(place: Place) -> None:
    """120 cancers whose ids lost their zeros, beside 1,000 zeros, are an error with the ids and the fix."""
    write_outcomes(place.outcomes, everyone(0))
    lost = "".join(outcome_line(str(n), "1", day=examined(n)) + "\n" for n in range(100, 220))
    place.outcomes.write_text(place.outcomes.read_text() + lost)
    with pytest.raises(InputError, match=r"120 cancers .*100.* leading zeros .*'100' is probably '0100'"):
        place.watch()
    assert not place.model.with_name("model.history.jsonl").exists()


def test_outcomes_that_match_nothing_are_refused(place: Place) -> None:
    write_outcomes(place.outcomes, dict.fromkeys(range(5000, 5100), "0"))
    with pytest.raises(InputError, match="found none among 100 outcomes"):
        place.watch()


def test_dates_are_needed(place: Place) -> None:
    write_outcomes(place.outcomes, dict.fromkeys(range(900), "0"))
    with pytest.raises(InputError, match=r"found none for 100 .*0900"):
        place.watch()


def test_dates_may_be_in_the_worklist(place: Place) -> None:
    """Then outcomes may leave out cases of which nothing is known."""
    write_outcomes(place.outcomes, dict.fromkeys(range(900), "0"))
    days = [examined(n).isoformat() for n in range(1200)]
    dated = pl.read_csv(place.worklist, infer_schema=False).with_columns(examined=pl.Series(days))
    dated.write_csv(place.worklist)
    found = place.watch().dismissed
    assert found is not None
    assert (found.entered, found.unknown) == (1000, 100)
    dated.with_columns(examined=pl.lit("2019-01-01")).write_csv(place.worklist)
    with pytest.raises(InputError, match="expected one examination date"):
        place.watch()


def test_whatever_the_day_a_prefix_has_entered() -> None:
    """On any day those who have entered are the first of the later ones; outcomes only become known."""
    generator = np.random.default_rng(9)
    period = parse_period("6m", "")
    keys = [("", f"{n:03d}") for n in range(300)]
    dates = {key: date(2020, 1, 1) + timedelta(days=int(generator.integers(0, 700))) for key in keys}
    known = {}
    for key, day in dates.items():
        cancer = day + timedelta(days=int(generator.integers(1, 300))) if generator.random() < 0.3 else None
        known[key] = Outcome(day, cancer, cancer or day + timedelta(days=int(generator.integers(100, 400))))
    last = enter_cases(dates, known, period, date(2023, 1, 1))
    assert last.waiting == 0
    assert 0 < last.unknown.sum() < last.cancer.size / 2
    for offset in range(0, 900, 50):
        found = enter_cases(dates, known, period, date(2020, 3, 1) + timedelta(days=offset))
        size = found.days.size
        assert size + found.waiting == 300
        assert np.array_equal(found.days, last.days[:size])
        assert np.array_equal(found.cancer, last.cancer[:size])
        assert np.array_equal(found.unknown, last.unknown[:size])


def test_worklists_whose_ids_collide(place: Place) -> None:
    other = place.write((a_row(f"{n:04d}", place.sha256) for n in range(50)), "other.csv")
    write_outcomes(place.outcomes, everyone(0))
    with pytest.raises(InputError, match=r"case 0000 is also in .*--site COLUMN"):
        place.watch(worklists=[place.worklist, other])
    for path, site in ((place.worklist, "north"), (other, "south")):
        pl.read_csv(path, infer_schema=False).with_columns(site=pl.lit(site)).write_csv(path)
    lines = place.outcomes.read_text().splitlines()
    south = [outcome_line(f"{n:04d}", str(int(n == 3)), day=examined(n)) + ",south" for n in range(50)]
    both = [f"{lines[0]},site", *(f"{line},north" for line in lines[1:]), *south]
    place.outcomes.write_text("\n".join(both))
    found = place.watch(worklists=[place.worklist, other], site="site")
    assert found.dismissed is not None
    assert (found.dismissed.entered, found.dismissed.cancers) == (1050, 1)
    swapped = place.watch(worklists=[other, place.worklist], site="site")
    assert swapped.repeated  # the order of worklists is nothing new
    assert swapped.dismissed == found.dismissed
    with pytest.raises(InputError, match="is also in"):
        place.watch(worklists=[place.worklist, place.worklist], site="site")


def test_rows_of_other_models_do_not_count(place: Place) -> None:
    rows = [a_row("0001", place.sha256), a_row("0002", "another"), a_row("0003", "another")]
    place.write(rows)
    write_outcomes(place.outcomes, {1: "0", 2: "1", 3: "1"})
    found = place.watch()
    assert found.dismissed is not None
    assert (found.dismissed.entered, found.dismissed.cancers) == (1, 0)
    assert "2 cases were decided by other models" in found.warnings[0]
    place.write(rows[1:])
    with pytest.raises(InputError, match="expected rows that this model decided"):
        place.watch()


def test_a_model_without_a_certificate_has_no_bound_to_hold(tmp_path: Path) -> None:
    bare = make_place(tmp_path, certified=False)
    write_outcomes(bare.outcomes, everyone(3))
    found = bare.watch()
    assert found.status == "uncertified"
    assert "no certificate" in sentences(found)[0]
    assert render_monitor_page(found, "model").count("<svg") >= 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("case_id,label,date\n0001,2,2020-01-01\n", "line 2, case 0001: expected a label of 0, 1 or nothing"),
        ("case_id,label,date\n,1,2020-01-01\n", "expected a case_id"),
        ("case_id,label,date\n0001,1,\n", "expected the date of this outcome"),
        ("case_id,label,date\n0001,1,yesterday\n", "YYYY-MM-DD"),
        ("case_id,label\n0001,1\n", "missing column date"),
        ("case_id,label,date,examined\n0001,1,2020-01-01,2021-01-01\n", "after the examination"),
        (
            "case_id,label,date,examined\n1,0,2020-01-01,2019-01-01\n1,0,2020-01-01,2019-01-02\n",
            "one examination",
        ),
        ("", "empty"),
    ],
)
def test_invalid_outcomes(place: Place, text: str, words: str) -> None:
    place.outcomes.write_text(text)
    with pytest.raises(InputError, match=words):
        place.watch()
    assert not place.model.with_name("model.history.jsonl").exists()


@pytest.mark.parametrize("text", ["24", "m", "0m", "-3d", "24 months"])
def test_invalid_times(place: Place, text: str) -> None:
    write_outcomes(place.outcomes, everyone(0))
    with pytest.raises(InputError, match="expected a time such as 24m"):
        place.watch(follow_up=text)


def test_neither_outcomes_nor_readings(place: Place) -> None:
    with pytest.raises(InputError, match="found neither"):
        monitor([place.worklist], place.model)


def test_the_history_belongs_to_the_model_and_cannot_be_edited(place: Place, tmp_path: Path) -> None:
    for known in (400, 800):
        write_outcomes(place.outcomes, everyone(1, unknown=1000 - known))
        assert not place.watch().repeated
    path = place.model.with_name("model.history.jsonl")
    assert path.stat().st_mode & 0o777 == 0o600
    lines = path.read_bytes().splitlines()
    assert [json.loads(line)["result"]["dismissed"]["unknown"] for line in lines] == [600, 200]
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind": "monitor", "torn')  # a killed writer
    write_outcomes(place.outcomes, everyone(1))
    assert place.watch().status == "confirmed"
    assert len(path.read_bytes().splitlines()) == 3
    assert path.read_bytes().startswith(whole)
    for edited in (
        whole.replace(b'"unknown":', b'"unknowns":'),
        b"\n".join(lines[1:]) + b"\n",
        b"x\n" + whole,
    ):
        path.write_bytes(edited)
        with pytest.raises(InputError, match="changed by hand"):
            place.watch()
    write_model(a_model(auroc_case=0.7), tmp_path / "other")
    assert not (tmp_path / "other.history.jsonl").exists()


def test_a_damaged_history_is_refused_or_cut_at_its_end(place: Place) -> None:
    """Any byte of the file may change: it is refused, or only an unfinished last line is dropped."""
    for known in (400, 800):
        write_outcomes(place.outcomes, everyone(1, unknown=1000 - known))
        place.watch()
    path = place.model.with_name("model.history.jsonl")
    whole = read_history(path)
    content = path.read_bytes()
    generator = np.random.default_rng(0)
    for position in generator.integers(0, len(content), 300).tolist():
        damaged = bytearray(content)
        damaged[position] ^= int(generator.integers(1, 256))
        path.write_bytes(bytes(damaged))
        try:
            found = read_history(path)
        except InputError:
            continue
        assert found.entries == whole.entries[: len(found.entries)]


def test_settings_chosen_later_are_noticed(place: Place) -> None:
    write_outcomes(place.outcomes, everyone(1))
    assert place.watch().warnings == ()
    (text,) = place.watch(follow_up="12m").warnings
    assert "follow up was 24m at the first monitoring of this model and is 12m now" in text
    assert place.watch(window="6m").warnings == ()


def test_as_of_is_a_day_of_the_past_or_today(place: Place) -> None:
    write_outcomes(place.outcomes, everyone(1))
    assert place.watch(as_of=None).as_of == date.today().isoformat()
    early = place.watch(as_of=date(2020, 6, 1))
    assert early.dismissed is not None
    assert (early.dismissed.entered, early.dismissed.upper, early.recent) == (0, 1.0, None)
    assert "No case has been followed long enough" in render_monitor_page(early, "model")
    assert date(2020, 6, 1) < AS_OF
