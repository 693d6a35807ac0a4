"""Monitoring: counts by brute force, bounds by scipy, looks that are recorded and corrected."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta

from tests.clinic.material import a_model, a_row
from trust_cache.base.errors import InputError
from trust_cache.clinic.model_folder import read_model, write_model
from trust_cache.clinic.monitor import monitor, sentences
from trust_cache.clinic.worklist import write_worklist


@dataclass(frozen=True)
class Place:
    model: Path
    worklist: Path
    outcomes: Path
    sha256: str

    def outcome(self, labels: dict[str, int]) -> None:
        lines = "".join(f"{case},{label}\n" for case, label in labels.items())
        self.outcomes.write_text(f"case_id,label\n{lines}")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """1,000 dismissed and 200 reviewed cases; the certificate says 1.2 %."""
    write_model(a_model(), tmp_path / "model")
    sha256 = read_model(tmp_path / "model").sha256
    rows = [a_row(f"{n:04d}", sha256, dismissed=n < 1000) for n in range(1200)]
    write_worklist(tmp_path / "worklist.csv", rows)
    return Place(tmp_path / "model", tmp_path / "worklist.csv", tmp_path / "outcomes.csv", sha256)


def test_counts_and_bounds(place: Place) -> None:
    generator = np.random.default_rng(0)
    known = generator.permutation(1200)[:900]
    labels = {f"{n:04d}": int(n % 150 == 7) for n in known.tolist()}
    place.outcome(labels | {"unknown case": 1})
    found = monitor([place.worklist], place.outcomes, place.model)
    dismissed = {case: label for case, label in labels.items() if int(case) < 1000}
    counts = found.counts
    assert (counts.dismissed, counts.reviewed) == (1000, 200)
    assert counts.dismissed_followed == len(dismissed)
    assert counts.dismissed_positives == sum(dismissed.values())
    assert counts.reviewed_followed == 900 - len(dismissed)
    assert counts.reviewed_positives == sum(labels.values()) - sum(dismissed.values())
    assert (counts.outcomes_unmatched, counts.other_rows) == (1, 0)
    k, m, n, spent = counts.dismissed_positives, counts.dismissed_followed, 1000, 0.01 / 2
    assert found.look.bound_complete == pytest.approx(beta.ppf(1 - spent, k + 1, m - k), rel=1e-9)
    worst = k + n - m
    assert found.look.bound_worst == pytest.approx(beta.ppf(1 - spent, worst + 1, n - worst), rel=1e-9)
    assert found.look.rate_lower == pytest.approx(beta.ppf(spent, k, n - k + 1), rel=1e-9)
    assert found.look.status == "open"


def everyone(positives: int) -> dict[str, int]:
    return {f"{n:04d}": int(n < positives) for n in range(1000)}


@pytest.mark.parametrize(
    ("labels", "status", "words"),
    [
        (everyone(2), "confirmed", "The bound holds even if every dismissed case without an outcome"),
        (everyone(40), "contradicted", "The bound does not hold"),
        (everyone(12), "open", "Neither confirmed nor contradicted"),
        (dict.fromkeys(list(everyone(0))[:900], 0), "open", "holds among the cases with an outcome"),
    ],
)
def test_status_and_sentence(place: Place, labels: dict[str, int], status: str, words: str) -> None:
    place.outcome(labels)
    found = monitor([place.worklist], place.outcomes, place.model)
    assert found.look.status == status
    assert words in " ".join(sentences(found))


def test_missing_outcomes_cannot_confirm(place: Place) -> None:
    """A hundred unknown outcomes of a thousand may all be cancers, however good the known ones are."""
    place.outcome({f"{n:04d}": 0 for n in range(900)})
    look = monitor([place.worklist], place.outcomes, place.model).look
    assert look.holds_complete
    assert look.bound_worst > 0.1
    assert look.status == "open"


def test_looks_are_counted_and_each_spends_less(place: Place) -> None:
    spent = []
    for number in range(1, 5):
        place.outcome({f"{n:04d}": 0 for n in range(100 * number)})
        found = monitor([place.worklist], place.outcomes, place.model)
        assert (found.look.number, found.repeated) == (number, False)
        again = monitor([place.worklist], place.outcomes, place.model)
        assert again.repeated
        assert again.look == found.look
        spent.append(found.look.delta_spent)
    assert spent == [0.01 / (j * (j + 1)) for j in range(1, 5)]
    path = place.worklist.with_name("worklist.looks.json")
    assert path.stat().st_mode & 0o777 == 0o600
    history = json.loads(path.read_text())
    assert [entry["look"]["number"] for entry in history["looks"]] == [1, 2, 3, 4]


def test_looks_that_are_not_in_the_history(place: Place) -> None:
    place.outcome(everyone(0))
    assert monitor([place.worklist], place.outcomes, place.model, looks_before=6).look.number == 7
    place.outcome(everyone(1))
    assert monitor([place.worklist], place.outcomes, place.model, looks_before=3).look.number == 8


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace('"number": 2', '"number": 1'),
        lambda text: text.replace('"dismissed_followed": 100', '"dismissed_followed": 101'),
        lambda text: text.replace('"looks": [', '"looks": [{}, '),
        lambda text: text.replace('"before": ', '"again": 1, "before": '),
        lambda text: text.replace('"schema": 1', '"schema": 2'),
        lambda text: text[:50],
        lambda text: f"[{text}]",
    ],
)
def test_a_history_changed_by_hand_is_refused(place: Place, edit: object) -> None:
    for known in (100, 200):
        place.outcome({f"{n:04d}": 0 for n in range(known)})
        monitor([place.worklist], place.outcomes, place.model)
    path = place.worklist.with_name("worklist.looks.json")
    changed = edit(path.read_text())  # type: ignore[operator]
    assert changed != path.read_text()
    path.write_text(changed)
    with pytest.raises(InputError, match=r"history|changed by hand"):
        monitor([place.worklist], place.outcomes, place.model)
    assert path.read_text() == changed


def test_a_removed_look_is_noticed(place: Place) -> None:
    for known in (100, 200, 300):
        place.outcome({f"{n:04d}": 0 for n in range(known)})
        monitor([place.worklist], place.outcomes, place.model)
    path = place.worklist.with_name("worklist.looks.json")
    document = json.loads(path.read_text())
    del document["looks"][1]
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="changed by hand"):
        monitor([place.worklist], place.outcomes, place.model)


def test_another_delta_or_model_needs_another_history(place: Place, tmp_path: Path) -> None:
    place.outcome(everyone(0))
    monitor([place.worklist], place.outcomes, place.model)
    with pytest.raises(InputError, match=r"share a delta of 0\.01"):
        monitor([place.worklist], place.outcomes, place.model, delta=0.05)
    write_model(a_model(auroc_case=0.7), tmp_path / "other")
    sha256 = read_model(tmp_path / "other").sha256
    write_worklist(place.worklist, [a_row("0001", sha256)])
    with pytest.raises(InputError, match="another model"):
        monitor([place.worklist], place.outcomes, tmp_path / "other")


def test_rows_of_other_models_do_not_count(place: Place) -> None:
    rows = [a_row("0001", place.sha256), a_row("0002", "another"), a_row("0003", "another")]
    write_worklist(place.worklist, rows)
    place.outcome({"0001": 0, "0002": 1, "0003": 1})
    found = monitor([place.worklist], place.outcomes, place.model)
    assert (found.counts.dismissed, found.counts.dismissed_positives, found.counts.other_rows) == (1, 0, 2)
    write_worklist(place.worklist, rows[1:])
    with pytest.raises(InputError, match="expected rows that this model decided"):
        monitor([place.worklist], place.outcomes, place.model)


def test_several_worklists(place: Place, tmp_path: Path) -> None:
    more = tmp_path / "more.csv"
    write_worklist(more, [a_row("0001", place.sha256), a_row("x", place.sha256)])
    place.outcome(everyone(0) | {"x": 1})
    found = monitor([place.worklist, more], place.outcomes, place.model)
    assert (found.counts.dismissed, found.counts.dismissed_positives) == (1001, 1)
    write_worklist(more, [a_row("0001", place.sha256, dismissed=False)])
    with pytest.raises(InputError, match="case 0001 is review here and dismiss"):
        monitor([place.worklist, more], place.outcomes, place.model)


def test_a_case_is_positive_if_one_of_its_outcomes_is(place: Place) -> None:
    place.outcomes.write_text("case_id,label,date\n0001,0,2024-01-05\n0001,1,2025-03-01\n0001,0,\n")
    found = monitor([place.worklist], place.outcomes, place.model)
    assert (found.counts.dismissed_positives, found.latest) == (1, "2025-03-01")


def test_a_model_without_a_certificate_has_no_bound_to_hold(place: Place, tmp_path: Path) -> None:
    write_model(a_model(certified=False), tmp_path / "bare")
    sha256 = read_model(tmp_path / "bare").sha256
    write_worklist(place.worklist, [a_row("0001", sha256)])
    place.outcome({"0001": 0})
    found = monitor([place.worklist], place.outcomes, tmp_path / "bare")
    assert found.look.status == "uncertified"
    assert "no certificate" in sentences(found)[-1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("case_id,label\n0001,2\n", "line 2, case 0001: expected a label of 0 or 1"),
        ("case_id,label\n0001,\n", "expected a label"),
        ("case_id,label\n,1\n", "expected a case_id"),
        ("case_id,label,date\n0001,1,yesterday\n", "YYYY-MM-DD"),
        ("case,label\n0001,1\n", "missing column case_id"),
        ("", "empty"),
    ],
)
def test_invalid_outcomes(place: Place, text: str, words: str) -> None:
    place.outcomes.write_text(text)
    with pytest.raises(InputError, match=words):
        monitor([place.worklist], place.outcomes, place.model)
    assert not place.worklist.with_name("worklist.looks.json").exists()
