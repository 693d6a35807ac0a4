"""Compute how monitoring behaves, and with --page refresh the tables of the page about it.

From the top of the project: python docs/make_monitoring_tables.py --page docs/monitoring.md
The example is the published certificate with 1 cancer among 947 dismissed cases. Chances and delays are exact
unless a table says that they are simulated.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from statistics_tables import fill_page

from trust_cache.statistics.assurance import cases_until, crossing_chances, sequence_boundaries
from trust_cache.statistics.bounds import clopper_pearson_lower, clopper_pearson_upper, smallest_samples
from trust_cache.statistics.confidence_sequences import prior_of, sequence_upper
from trust_cache.statistics.score_drift import ALARM, log_wealth_path, smoothed_ranks

POSITIVES, DISMISSED, DELTA = 1, 947, 0.01
BOUND = clopper_pearson_upper(POSITIVES, DISMISSED, DELTA)
PRIOR = prior_of(POSITIVES, DISMISSED)
WATCHED = 5_000  # cases of a stream that an adversary watches
LONGEST = 60_000
LOOK_EVERY = 500  # cases, for the old rule
PER_MONTH = 200  # dismissed cases of the example of an audit
SHARES = (0.05, 0.1, 0.2)
FOLLOW_UP, READING = 24, 3  # months

Integers = NDArray[np.int64]


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, required=True, help="page whose tables to refresh")
    page = parser.parse_args().page
    page.write_text(fill_page(page.read_text(encoding="utf-8"), render_tables()), encoding="utf-8")


def render_tables() -> dict[str, str]:
    """Return all tables by the names of their blocks."""
    return {
        "looks": looks_table(),
        "adversary": adversary_table(),
        "delays": delay_table(),
        "audits": audit_table(),
        "follow_up": follow_up_table(),
        "drift": drift_table(),
    }


def spent(look: int) -> float:
    """The old rule: look j may spend delta / (j (j + 1))."""
    return DELTA / (look * (look + 1))


def looks_table() -> str:
    """The bound of the certificate's own counts by the number of looks."""
    rows = [
        (
            f"{look}",
            f"{100 * clopper_pearson_upper(POSITIVES, DISMISSED, spent(look)):.2f} %",
            f"{100 * sequence_upper(POSITIVES, DISMISSED, PRIOR, DELTA):.2f} %",
        )
        for look in (1, 2, 4, 12, 52)
    ]
    return _table(("look", "bound by spending", "bound of the sequence"), rows)


def best_look(confirms: bool) -> Integers:
    """Counts at which somebody who sees the outcomes first takes the first look of the old rule."""
    if confirms:
        enough = smallest_samples(int(WATCHED * BOUND) + 2, BOUND, spent(1))
        return np.searchsorted(enough, np.arange(WATCHED + 1), side="right") - 1
    return _alarm_counts(WATCHED, dict.fromkeys(range(1, WATCHED + 1), spent(1)))


def adversary_table() -> str:
    """Chances of a wrong answer for somebody who looks at the best moment of 5,000 cases."""
    decides = sequence_boundaries(WATCHED, BOUND, PRIOR, DELTA)
    rows = []
    for name, old, new, confirms in (
        ("false confirmation", best_look(True), decides.confirms, True),
        ("false alarm", best_look(False), decides.alarms, False),
    ):
        chances = [crossing_chances(BOUND, rule, confirms=confirms)[-1] for rule in (old, new)]
        rows.append((name, *(f"{100 * chance:.2f} %" for chance in chances)))
    return _table(("at a true rate equal to the bound", "old rule", "confidence sequence"), rows)


def delay_table() -> str:
    """Followed cases until an answer, in half and in nine tenths of streams."""
    decides = sequence_boundaries(LONGEST, BOUND, PRIOR, DELTA)
    rows = []
    for name, part, confirms in (
        ("confirmation", 0.25, True),
        ("confirmation", 0.5, True),
        ("alarm", 1.5, False),
        ("alarm", 2.0, False),
        ("alarm", 3.0, False),
    ):
        new = crossing_chances(
            part * BOUND, decides.confirms if confirms else decides.alarms, confirms=confirms
        )
        old = crossing_chances(part * BOUND, planned_looks(confirms), confirms=confirms)
        cells = (cases_until(chances, chance) for chances in (new, old) for chance in (0.5, 0.9))
        rows.append((name, f"{part:g}x", *(f"{cell:,}" if cell is not None else "—" for cell in cells)))
    header = (
        "answer",
        "true rate",
        "sequence, 50 %",
        "90 %",
        f"old rule every {LOOK_EVERY} cases, 50 %",
        "90 %",
    )
    return _table(header, rows)


def planned_looks(confirms: bool) -> Integers:
    """The counts that decide under the old rule with a look every 500 cases."""
    looks = {LOOK_EVERY * j: spent(j) for j in range(1, LONGEST // LOOK_EVERY + 1)}
    if not confirms:
        return _alarm_counts(LONGEST, looks)
    counts = np.full(LONGEST + 1, -1, dtype=np.int64)
    for cases, level in looks.items():
        k = np.arange(int(cases * BOUND) + 2)
        counts[cases] = np.count_nonzero(clopper_pearson_upper(k, np.full(k.size, cases), level) <= BOUND) - 1
    return counts


def _alarm_counts(longest: int, looks: dict[int, float]) -> Integers:
    most = int(longest * BOUND + 12 * np.sqrt(longest * BOUND)) + 40
    counts = np.full(longest + 1, most, dtype=np.int64)
    for cases, level in looks.items():
        k = np.arange(min(most, cases) + 1)
        above = np.flatnonzero(clopper_pearson_lower(k, np.full(k.size, cases), level) > BOUND)
        counts[cases] = above[0] if above.size else most
    return counts


def audit_table() -> str:
    """Months until half of the streams have an answer: all cases followed, or a share audited."""
    decides = sequence_boundaries(LONGEST, BOUND, PRIOR, DELTA)
    rows = []
    for name, part, confirms in (("confirmation", 0.25, True), ("alarm", 2.0, False), ("alarm", 3.0, False)):
        boundary = decides.confirms if confirms else decides.alarms
        cases = cases_until(crossing_chances(part * BOUND, boundary, confirms=confirms), 0.5) or LONGEST
        months = [cases / PER_MONTH + FOLLOW_UP, *(cases / (PER_MONTH * share) + READING for share in SHARES)]
        rows.append((name, f"{part:g}x", f"{cases:,}", *(f"{month:.0f}" for month in months)))
    audits = (f"audit of {100 * share:g} %" for share in SHARES)
    return _table(("answer", "true rate", "cases", "all followed for 24 months", *audits), rows)


def follow_up_table(streams: int = 1_000) -> str:
    """False alarms at half the bound (simulated): cancers counted at once, or by date alone."""
    generator, cases = np.random.default_rng(14), 12_000
    decides = sequence_boundaries(cases, BOUND, PRIOR, DELTA)
    examined = np.sort(generator.integers(0, 4 * 365, cases))
    cancer = generator.random((streams, cases)) < 0.5 * BOUND
    found = np.where(cancer, examined + generator.integers(1, 730, (streams, cases)), examined + 730)
    wrong = {"cancers at once, negatives after 24 months": 0, "every case after 24 months": 0}
    for row in range(streams):
        order = np.argsort(found[row], kind="stable")
        for name, labels in zip(wrong, (cancer[row][order], cancer[row]), strict=True):
            wrong[name] += bool((np.cumsum(labels) >= decides.alarms[1:]).any())
    rows = [(name, f"{100 * count / streams:.1f} %") for name, count in wrong.items()]
    return _table(("what enters", "streams with a false alarm at half the bound"), rows)


def drift_table(streams: int = 100) -> str:
    """Delay until the scores' shift is found (simulated), in cases after the shift."""
    generator = np.random.default_rng(20)
    rows = []
    for reference, shift, start in ((947, 0.2, 0), (947, 0.2, 2_000), (4_797, 0.2, 0), (947, 0.5, 0)):
        ranks = []
        for _ in range(streams):
            scores = generator.normal(size=start + 4_000)
            scores[start:] += shift
            ranks.append(
                smoothed_ranks(generator.normal(size=reference), scores, generator.random(scores.size))
            )
        reached = log_wealth_path(np.array(ranks)) >= np.log(ALARM)
        delays = np.where(reached.any(axis=1), reached.argmax(axis=1) - start, 10**9)
        half, most = (int(np.quantile(delays, part, method="higher")) for part in (0.5, 0.9))
        shown = (f"{delay:,}" if delay < 10**9 else "more than 4,000" for delay in (half, most))
        rows.append((f"{reference:,}", f"{shift:g} SD", f"{start:,}", *shown))
    header = ("evaluation scores", "shift", "after cases", "found after, half of streams", "nine tenths")
    return _table(header, rows)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = (header, ["---"] * len(header), *rows)
    return "".join("| " + " | ".join(row) + " |\n" for row in lines)


if __name__ == "__main__":
    main()
