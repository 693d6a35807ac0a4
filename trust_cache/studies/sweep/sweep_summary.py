"""A sweep as a table of its winners and a few sentences."""

from trust_cache.base.text_tables import NO_NUMBER, Table, percent, whole_percent
from trust_cache.certificate.cautions import limits
from trust_cache.certificate.point_tables import BOUND, BOUND_CORRECTED, NOT_AVAILABLE
from trust_cache.studies.sweep.sweep import Sweep
from trust_cache.studies.sweep.sweep_folder import WinnerRecord, setting_words
from trust_cache.studies.sweep.sweep_space import find_axes


def winners_table(done: Sweep) -> Table:
    """Return the winner for each target with its values on the axes; N/A where a target is not met."""
    axes = list(find_axes(done.record.settings))
    header = (
        "Target", *axes, "Search dismissal", "Dismissal", BOUND, BOUND_CORRECTED, "Recall",
        "Status",
    )  # fmt: skip
    counts = done.counts
    title = (
        f"Winners of {counts.settings:,} settings, chosen on {counts.search_cases:,} search cases"
        f" ({counts.search_positives:,} positive), certified once on the others"
    )
    legend = (
        f"{BOUND}: the upper bound on cancer among the dismissed, for the one winner; corrected: delta"
        f" divided by {counts.compared:,} (settings x targets x looks at evaluation)."
    )
    rows = tuple(_cells(target, winner, axes) for target, winner in done.winners.items())
    return Table(title, header, rows, legend)


def reasons(done: Sweep) -> list[str]:
    """Return the status of each winner that is not certified, and the reason."""
    axes = list(find_axes(done.record.settings))
    return [
        f"{setting_words(winner, axes)} at {whole_percent(target)}: {winner.point.explained}"
        for target, winner in done.winners.items()
        if not winner.point.certified
    ]


def cautions(done: Sweep) -> list[str]:
    """Return what a reader must know beside the winners."""
    looks, shown = done.record.looks, done.record.shown
    texts = {
        f"The evaluation subset has been looked at {len(looks)} times, each time for the winner of other"
        " settings: the plain bound is that of a first look, the corrected one counts all.": len(looks) > 1,
        "Evaluation of single settings had been shown before these winners were chosen, and may have led"
        " to the settings tried since. The certificates say so.": looks[-1].after_showing,
        f"Evaluation of {len(shown):,} settings is shown in results.csv and marked: choosing by it breaks"
        " the plain bounds.": bool(shown),
    }
    return [
        *(text for text, applies in texts.items() if applies),
        *limits("out-of-fold", patients=_several_cases(done)),
    ]


def _several_cases(done: Sweep) -> bool:
    return any(winner.point.set_aside for winner in done.winners.values())


def _cells(target: float, winner: WinnerRecord, axes: list[str]) -> tuple[str, ...]:
    point = winner.point
    figures = (percent(value) for value in (point.dismissal, point.bound, point.bound_corrected))
    return (
        whole_percent(target),
        *(_short(getattr(winner.values, axis)) for axis in axes),
        percent(winner.search_dismissal),
        *(figures if point.met else (NOT_AVAILABLE, NO_NUMBER, NO_NUMBER)),
        percent(point.recall),
        point.status,
    )


def _short(value: float | str | None) -> str:
    if value is None:
        return NO_NUMBER
    return value if isinstance(value, str) else f"{value:.6g}"
