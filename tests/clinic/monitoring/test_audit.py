"""The audit: a draw that is uniform, independent and reproducible; a bound free of verification bias."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest, kstest, spearmanr

from tests.clinic.material import a_row
from tests.clinic.monitoring.monitor_material import Place, examined, make_place, outcome_line, write_outcomes
from trust_cache.base.errors import InputError
from trust_cache.clinic.monitoring.audit import (
    audit_number,
    is_drawn,
    make_or_read_key,
    mark_audited,
    read_key,
)
from trust_cache.clinic.monitoring.monitor_words import sentences
from trust_cache.clinic.worklist import record_of
from trust_cache.statistics.assurance import sequence_boundaries
from trust_cache.statistics.bounds import clopper_pearson_upper
from trust_cache.statistics.confidence_sequences import prior_of

KEY = bytes(range(32))


def test_the_draw_is_uniform_and_independent_of_order_and_score() -> None:
    names = [f"{n:05d}" for n in range(20_000)]
    numbers = np.array([audit_number(name, KEY) / 2**64 for name in names])
    assert kstest(numbers, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 4 / np.sqrt(numbers.size)
    scores = np.random.default_rng(0).beta(1, 9, numbers.size)
    assert abs(spearmanr(numbers, scores).statistic) < 4 / np.sqrt(numbers.size)
    drawn = sum(is_drawn(name, KEY, 0.05) for name in names)
    assert binomtest(drawn, len(names), 0.05).pvalue > 0.001
    other = np.array([audit_number(name, bytes(32)) for name in names[:2_000]], dtype=np.float64)
    assert abs(spearmanr(numbers[:2_000], other).statistic) < 4 / np.sqrt(2_000)


def test_the_draw_depends_on_the_case_and_the_key_alone() -> None:
    rows = [a_row(f"{n:04d}", "m", dismissed=n % 3 > 0) for n in range(3_000)]
    first = mark_audited(rows, KEY, 0.1)
    changed = [replace(row, score=row.score and row.score / 2, model="other") for row in reversed(rows)]
    assert {row.case_id for row in first if row.decision == "audit"} == {
        row.case_id for row in mark_audited(changed, KEY, 0.1) if row.decision == "audit"
    }
    assert all(row.decision == "review" for row in first if int(row.case_id) % 3 == 0)
    larger = {row.case_id for row in mark_audited(rows, KEY, 0.2) if row.decision == "audit"}
    assert {row.case_id for row in first if row.decision == "audit"} < larger
    exact = [audit_number(row.case_id, KEY) < Fraction(1, 10) * 2**64 for row in rows]
    assert [row.decision == "audit" for row in first] == [
        hit and row.decision == "dismiss" for hit, row in zip(exact, rows, strict=True)
    ]


def test_a_key_is_made_once_and_kept_private(tmp_path: Path) -> None:
    path = tmp_path / "model.audit.key"
    key, made = make_or_read_key(path)
    assert made
    assert path.stat().st_mode & 0o777 == 0o600
    assert make_or_read_key(path) == (key, False)
    assert len(key) == 32
    assert sorted(found.name for found in tmp_path.iterdir()) == ["model.audit.key"]
    path.chmod(0o644)
    with pytest.raises(InputError, match="others can read this key"):
        read_key(path)
    path.chmod(0o600)
    path.write_text("abcd\n")
    with pytest.raises(InputError, match="64 hexadecimal digits, found 4"):
        read_key(path)
    with pytest.raises(InputError, match="no such file"):
        read_key(tmp_path / "none")


def test_several_at_once_make_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: make_or_read_key(tmp_path / "key"), range(32)))
    assert len({key for key, _ in found}) == 1
    assert sum(made for _, made in found) == 1


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = make_place(tmp_path)
    rows = [a_row(f"{n:04d}", place.sha256, dismissed=n < 1000) for n in range(1200)]
    key, _ = make_or_read_key(tmp_path / "key")
    place.write(mark_audited(rows, key, 0.3))
    write_outcomes(place.outcomes, dict.fromkeys(range(1000), "0"))
    return place


def write_readings(place: Place, *, cancers: int, unread: int = 0) -> list[str]:
    text = place.worklist.read_text().splitlines()[1:]
    audited = [line.split(",")[0] for line in text if ",audit," in line]
    lines = [
        outcome_line(
            case, "" if n < unread else str(int(n < unread + cancers)), day=examined(int(case)), after=20
        )
        for n, case in enumerate(audited)
    ]
    (place.folder / "readings.csv").write_text("\n".join(["case_id,label,date,examined", *lines]))
    return audited


def test_the_audited_cases_alone_are_bounded_beside_the_rest(place: Place) -> None:
    audited = write_readings(place, cancers=2, unread=5)
    found = place.watch(readings=place.folder / "readings.csv", audit_key=place.folder / "key")
    assert found.audited is not None
    assert found.dismissed is not None
    assert (found.audited.entered, found.audited.cancers, found.audited.unknown) == (len(audited), 2, 5)
    assert found.dismissed.entered == 1000 - len(audited)
    assert found.decided == {"dismiss": 1000 - len(audited), "audit": len(audited), "review": 200}
    words = " ".join(sentences(found))
    assert "rate of cancers that a reader finds, not of cancers within 24m" in words
    assert "verification bias" in words
    assert 0.2 < len(audited) / 1000 < 0.4


def test_an_audit_answers_in_weeks_and_raises_the_alarm(place: Place) -> None:
    write_readings(place, cancers=60)
    found = place.watch(outcomes=None, readings=place.folder / "readings.csv", as_of=date(2022, 12, 31))
    assert found.dismissed is None
    assert found.status == "alarm"
    assert "of the audited cases have cancer" in sentences(found)[0]


def test_a_steered_draw_is_noticed(place: Place) -> None:
    """Somebody reads other cases than those drawn: one swap in the worklist is enough."""
    audited = write_readings(place, cancers=0)
    text = place.worklist.read_text()
    dismissed = next(line for line in text.splitlines() if ",dismiss," in line)
    drawn = next(line for line in text.splitlines() if line.startswith(f"{audited[0]},"))
    swapped = text.replace(dismissed, dismissed.replace(",dismiss,", ",audit,"))
    place.worklist.write_text(swapped.replace(drawn, drawn.replace(",audit,", ",dismiss,")))
    with pytest.raises(InputError, match="its row was changed"):
        place.watch(audit_key=place.folder / "key")
    record_of(place.worklist).unlink()  # and the record with it: the key tells
    with pytest.raises(InputError, match="audited cases were not drawn with this key"):
        place.watch(audit_key=place.folder / "key")
    found = place.watch(readings=place.folder / "readings.csv")
    assert any("1 readings are of cases that were not drawn" in text for text in found.warnings)


@pytest.mark.slow
def test_the_bound_covers_with_verification_bias_in_the_rest() -> None:
    """10,000 streams of 5,000 dismissed cases, 10 % audited; 30 % of the others' cancers are ever found.

    Watched after every audited case, the upper end is below the true rate in at most 1 % + 3 SE of streams.
    The rest, whose outcomes are biased, would confirm a false bound in most streams.
    """
    level, prior = clopper_pearson_upper(1, 947, 0.01), prior_of(1, 947)
    generator, streams, cases = np.random.default_rng(3), 10_000, 5_000
    names = [f"{n:04d}" for n in range(cases)]
    audited = np.array([is_drawn(name, KEY, 0.1) for name in names])
    decide = sequence_boundaries(cases, level, prior, 0.01)
    wrong = fooled = 0
    for _ in range(streams // 500):
        cancer = generator.random((500, cases)) < level * (1 + 1e-9)
        found = cancer & (generator.random((500, cases)) < 0.3)
        for members, seen in ((audited, cancer), (~audited, found)):
            k = np.cumsum(seen[:, members], axis=1)
            confirmed = (k <= decide.confirms[1 : k.shape[1] + 1]).any(axis=1).sum()
            if members is audited:
                wrong += int(confirmed)
            else:
                fooled += int(confirmed)
    assert wrong / streams <= 0.01 + 3 * np.sqrt(0.01 * 0.99 / streams)
    assert fooled / streams > 0.5
