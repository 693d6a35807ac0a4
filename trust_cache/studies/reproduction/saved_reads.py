"""The economic estimate: what dismissed cases would save in reading fees."""

from collections.abc import Mapping, Sequence

from trust_cache.base.documents import Document
from trust_cache.base.text_tables import Table, whole_percent
from trust_cache.certificate.point_tables import NOT_AVAILABLE
from trust_cache.studies.reproduction.paper_numbers import SettingResult
from trust_cache.studies.reproduction.paper_tables import HERE, PAPER
from trust_cache.studies.reproduction.published import PROPOSED, published

_PER = 1_000  # cases


class SavedReads(Document, frozen=True):
    """What a dismissal would save in reading fees, gross."""

    setting: str
    target: float
    source: str  # paper or here
    dismissal: float | None  # percent; None: the target was not met
    dismissed_per_1000: float | None
    saved_per_1000: float | None
    dismissed: float | None  # of the programme
    saved: float | None


def estimate_savings(
    results: Mapping[str, SettingResult], programme: int, fee: float
) -> tuple[SavedReads, ...]:
    """Return the economic estimate of the closed loop in each setting: published points, then ours."""
    rows = []
    for key, setting in published().settings.items():
        for printed in setting.heads[PROPOSED].points:
            rows.append(_savings(key, printed.target, PAPER, printed.dismissal, programme, fee))
            if (result := results.get(key)) is None:
                continue
            point = result.point(PROPOSED, printed.target)
            found = (
                None if point is None or not point.met or point.dismissal is None else 100 * point.dismissal
            )
            rows.append(_savings(key, printed.target, HERE, found, programme, fee))
    return tuple(rows)


def savings_table(savings: Sequence[SavedReads], programme: int, fee: float) -> Table:
    """Return the economic estimate as a table."""
    rows = tuple(
        (
            f"{published().settings[item.setting].title}, {item.source}",
            whole_percent(item.target),
            NOT_AVAILABLE if item.dismissal is None else f"{item.dismissal:.2f}%",
            _amount(item.dismissed_per_1000),
            _amount(item.saved_per_1000),
            _amount(item.dismissed),
            _amount(item.saved),
        )
        for item in savings
    )
    header = (
        "Closed loop", "Target", "Dismissal", "Dismissed per 1,000", "CAD per 1,000",
        f"Dismissed of {programme:,}", "CAD of the programme",
    )  # fmt: skip
    printed = published().economics
    legend = (
        f"One examination each at a fee of CAD {fee:g} for its interpretation: gross, interpretation only."
        f" The paper prints, for {published().settings[printed.setting].title} at"
        f" {whole_percent(printed.target)}, about {printed.dismissed_per_1000:,} of 1,000, CAD"
        f" {printed.saved_per_1000:,} per 1,000,"
        f" {printed.dismissed / 1e6:.2f} million of {printed.programme / 1e6:g} million and CAD"
        f" {printed.saved / 1e6:.1f} million at a fee of CAD {printed.fee:g}."
    )
    return Table("Economic estimate", header, rows, legend, keys=2)


def _savings(
    setting: str, target: float, source: str, dismissal: float | None, programme: int, fee: float
) -> SavedReads:
    share = None if dismissal is None else dismissal / 100
    amounts = (
        [None] * 4 if share is None else [share * n for n in (_PER, _PER * fee, programme, programme * fee)]
    )
    return SavedReads(
        setting=setting,
        target=target,
        source=source,
        dismissal=dismissal,
        dismissed_per_1000=amounts[0],
        saved_per_1000=amounts[1],
        dismissed=amounts[2],
        saved=amounts[3],
    )


def _amount(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else f"{value:,.0f}"
