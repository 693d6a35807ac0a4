"""What a reproduction found in the paper's three settings, and what it says."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from trust_cache.base.text_tables import Table
from trust_cache.studies.reproduction.paper_numbers import PaperNumber, SettingResult, paper_numbers
from trust_cache.studies.reproduction.paper_tables import (
    TARGETS,
    PaperTable,
    numbers_table,
    setting_table,
    summary_table,
)
from trust_cache.studies.reproduction.published import NLBS, PROPOSED, RSNA, published
from trust_cache.studies.reproduction.saved_reads import SavedReads, estimate_savings, savings_table

_SAMPLED = {
    "case dismissal": "dismissals",
    "case AUROC": "AUROCs",
    "image dismissal": "image-level dismissals",
}


@dataclass(frozen=True)
class Reproduction:
    """The results of the settings that were run, and what the economic estimate assumes."""

    results: Mapping[str, SettingResult]
    programme: int
    fee: float

    @cached_property
    def numbers(self) -> tuple[PaperNumber, ...]:
        """Every published number beside ours."""
        return paper_numbers(tuple(self.results.values()))

    @cached_property
    def savings(self) -> tuple[SavedReads, ...]:
        """The economic estimate."""
        return estimate_savings(self.results, self.programme, self.fee)

    @cached_property
    def tables(self) -> tuple[PaperTable, ...]:
        """Tables 1 to 4."""
        settings = published().settings.items()
        return (
            *(setting_table(key, setting, self.results.get(key)) for key, setting in settings),
            summary_table(self.results),
        )

    @property
    def further_tables(self) -> dict[str, Table]:
        """The list of all numbers and the economic estimate, by the names of their files."""
        return {
            "numbers": numbers_table(self.numbers),
            "economics": savings_table(self.savings, self.programme, self.fee),
        }

    def sentences(self) -> tuple[str, ...]:
        """Say what agrees, what is inside the range of splits, and how often the closed loop was first."""
        agree = [number.agrees for number in self.numbers if number.recomputed is not None]
        counts = [
            number.agrees
            for number in self.numbers
            if number.recomputed is None and number.agrees is not None
        ]
        never = sum(number.nature == "not reproducible" for number in self.numbers)
        lines = [
            f"Arithmetic: {sum(map(bool, agree))} of {len(agree)} published dismissals and bounds follow from"
            " their own integers to the printed digit."
        ]
        if counts:
            lines[0] += f" {sum(counts)} of {len(counts)} counts of the split are the published ones here."
        if ranges := [text for quantity in _SAMPLED if (text := self._inside(quantity)) is not None]:
            lines.append(
                f"Sampling: {', '.join(ranges)} are inside the 5-95 % range of random splits of the scores"
                " here."
            )
        lines.append(
            f"Not reproducible: {never} published image-level dismissals are smaller than the published"
            " case-level results permit."
        )
        if compared := self._pattern():
            lines.append(
                f"The paper's pattern: closed-loop had the largest dismissal in 4 of 4 in-domain comparisons;"
                f" here in {sum(compared)} of {len(compared)}. One split decides this: `compare` uses all"
                " cases and says what the data can tell apart."
            )
        return tuple(lines)

    def _inside(self, quantity: str) -> str | None:
        """Say how many published numbers of a kind are inside the range of splits; None without a range."""
        inside = [
            number.within
            for number in self.numbers
            if number.quantity == quantity and number.nature == "sampling" and number.within is not None
        ]
        return f"{sum(inside)} of {len(inside)} published {_SAMPLED[quantity]}" if inside else None

    def _pattern(self) -> list[bool]:
        """Return for each in-domain comparison whether the closed loop was alone the first of the five."""
        found = []
        for key in (RSNA, NLBS):
            if (result := self.results.get(key)) is None:
                continue
            for target in TARGETS:
                heads = published().settings[key].heads
                met = {
                    point.configuration: point.dismissal or 0.0
                    for point in result.points
                    if point.configuration in heads and point.target == target and point.met
                }
                mine = met.pop(PROPOSED, None)
                found.append(mine is not None and all(mine > other for other in met.values()))
        return found
