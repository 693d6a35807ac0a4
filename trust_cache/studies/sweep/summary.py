"""A sweep in a table and a few sentences: the winners, what they are worth, what was looked at."""

from trust_cache.base.text_tables import NO_NUMBER, Table, percent, whole_percent
from trust_cache.certificate.cautions import limits
from trust_cache.certificate.tables import NOT_AVAILABLE, bound_name
from trust_cache.studies.sweep.catalogue import find_axes
from trust_cache.studies.sweep.run import Sweep
from trust_cache.studies.sweep.winners import Winner


def winners_table(done: Sweep) -> Table:
    """Return the winner for each target with its values on the axes; N/A where a target is not met."""
    axes = list(find_axes(done.record.settings))
    name = bound_name(done.record.identity["delta"])
    header = (
        "Target", "Setting", *axes, "Search dismissal", "Dismissal", name, f"{name} corrected", "Recall",
    )  # fmt: skip
    counts = done.document["counts"]
    title = (
        f"Winners of {counts['settings']:,} settings, chosen on {counts['search_cases']:,} search cases"
        f" ({counts['search_positives']:,} positive), certified once on the others"
    )
    legend = (
        f"{name}: the upper bound on cancer among the dismissed, for the one winner; corrected: delta divided"
        f" by {counts['compared']:,} (settings x targets x looks at evaluation)."
    )
    return Table(title, header, tuple(_cells(winner, axes) for winner in done.winners.values()), legend)


def reasons(done: Sweep) -> list[str]:
    """Return why each winner that prints N/A does."""
    return [
        f"{winner.setting} at {whole_percent(target)}: {winner.point.reason}"
        for target, winner in done.winners.items()
        if not winner.point.met
    ]


def cautions(done: Sweep) -> list[str]:
    """Return what a reader must know beside the winners."""
    looks, shown = done.record.looks, done.record.shown
    texts = []
    if len(looks) > 1:
        texts.append(
            f"The evaluation subset has been looked at {len(looks)} times, each time for the winner of other"
            " settings: the plain bound is that of a first look, the corrected one counts all."
        )
    if looks[-1].after_showing:
        texts.append(
            "Evaluation of single settings had been shown before these winners were chosen, and may have led"
            " to the settings tried since. The certificates say so."
        )
    if shown:
        texts.append(
            f"Evaluation of {len(shown):,} settings is shown in results.csv and marked: choosing by it breaks"
            " the plain bounds."
        )
    return [*texts, *limits("out-of-fold")]


def _cells(winner: Winner, axes: list[str]) -> tuple[str, ...]:
    point = winner.point
    figures = (percent(value) for value in (point.dismissal, point.bound, point.bound_corrected))
    return (
        whole_percent(winner.target),
        winner.setting,
        *(_short(getattr(winner.settings, axis)) for axis in axes),
        percent(winner.search_dismissal),
        *(figures if point.met else (NOT_AVAILABLE, NO_NUMBER, NO_NUMBER)),
        percent(point.recall),
    )


def _short(value: float | str | None) -> str:
    if value is None:
        return NO_NUMBER
    return value if isinstance(value, str) else f"{value:.6g}"
