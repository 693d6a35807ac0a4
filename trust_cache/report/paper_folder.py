"""The folder of a reproduction: the request, the places of its steps, its tables, figures and page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trust_cache.base.csv_tables import write_rows
from trust_cache.base.documents import Document, json_bytes, parse_json, read_json
from trust_cache.base.errors import InputError
from trust_cache.base.files import refuse_existing, write_file, write_folder
from trust_cache.base.text_tables import to_markdown
from trust_cache.base.versions import versions_of
from trust_cache.certificate.certified_folder import POINTS, read_certified
from trust_cache.figures.figure import Figure, figure_files
from trust_cache.heads.head_settings import HeadSettings
from trust_cache.heads.run_folder import RECORD, CacheRecord
from trust_cache.report.page_tables import table_files
from trust_cache.studies.compare.compare_folder import COMPARE
from trust_cache.studies.reproduction.level_spreads import LevelSpread, LevelSpreads
from trust_cache.studies.reproduction.paper_numbers import PaperNumber, SettingResult
from trust_cache.studies.reproduction.published import EXTERNAL, NLBS, RSNA
from trust_cache.studies.reproduction.reproduction import Reproduction

SCHEMA = 1
REQUEST, DOCUMENT, PAGE, MARKDOWN = "request.json", "paper.json", "paper.html", "tables.md"
LEVELS = "levels.json"  # of a setting
TABLES, FIGURES, NUMBERS, LOOP = "tables", "figures", "numbers.csv", "figure-1a.svg"
OWN = frozenset({REQUEST, DOCUMENT, PAGE, MARKDOWN, TABLES, FIGURES, NUMBERS, RSNA, NLBS, EXTERNAL})
_NUMBER_COLUMNS = (*PaperNumber.__struct_fields__, "agrees", "within")
_DRAWING = Path(__file__).parents[1] / "figures" / "loop.svg"


class PaperRequest(Document, frozen=True):
    """What decides the results of all steps."""

    schema: int
    caches: dict[str, CacheRecord]  # by data set
    configurations: dict[str, HeadSettings]
    epochs: int
    views: int | None
    seed: int
    repeats: int
    resplits: int
    resamples: int


@dataclass(frozen=True)
class PaperFolder:
    """The places of the steps; each is a folder of its own command, reused once it is complete."""

    path: Path

    def run(self, key: str) -> Path:
        """Return the run folder of a setting."""
        return self.path / key / "run"

    def certified(self, key: str) -> Path:
        """Return the certified folder of a setting; `external` writes its own into the run."""
        return (self.run(key) if key == EXTERNAL else self.path / key) / "certified"

    def compared(self, key: str) -> Path:
        """Return the compare folder of a setting."""
        return self.path / key / "compare"

    def has_run(self, key: str) -> bool:
        """Return whether a run is complete."""
        return (self.run(key) / RECORD).is_file()

    def has_certified(self, key: str) -> bool:
        """Return whether a run is certified."""
        return (self.certified(key) / POINTS).is_file()

    def has_compared(self, key: str) -> bool:
        """Return whether the configurations of a setting are compared."""
        return (self.compared(key) / COMPARE).is_file()

    def begin(self, request: PaperRequest, *, resume: bool) -> None:
        """Write the request, or with `resume` check that the folder's own is the same."""
        place = self.path / REQUEST
        if resume and place.is_file():
            known = read_json(place, PaperRequest, what="the request of a reproduction", schema=SCHEMA)
            if known == request:
                return
            differing = [
                name for name in known.__struct_fields__ if getattr(known, name) != getattr(request, name)
            ]
            raise InputError(
                f"{self.path}: expected the caches and settings that it was started with, found others"
                f" ({', '.join(differing)}); repeat the first command with --resume, or choose another --out"
            )
        refuse_existing(self.path, own=OWN, overwrite=False, resume="use --resume or --overwrite")
        write_file(place, json_bytes(request.as_document()))

    def read_setting(self, key: str) -> SettingResult:
        """Read the points of a setting and their spread over splits."""
        document = read_certified(self.certified(key)).document
        levels = read_json(self.path / key / LEVELS, LevelSpreads, what="spreads over splits", schema=SCHEMA)
        return SettingResult(key, document.points, document.resplits, levels.spreads)

    def has_levels(self, key: str) -> bool:
        """Return whether the spreads of the image level over splits are there."""
        return (self.path / key / LEVELS).is_file()

    def write_levels(self, key: str, spreads: Sequence[LevelSpread]) -> None:
        """Write how far case AUROCs and image-level dismissals range over splits."""
        write_file(self.path / key / LEVELS, json_bytes(LevelSpreads(SCHEMA, tuple(spreads)).as_document()))

    def read_document(self) -> dict[str, Any]:
        """Read paper.json."""
        document: dict[str, Any] = parse_json((self.path / DOCUMENT).read_bytes())
        return document

    def write_results(
        self,
        found: Reproduction,
        figures: Sequence[Figure],
        *,
        about: Mapping[str, Any],
        warnings: Sequence[str],
        page: str,
    ) -> None:
        """Write tables, figures, numbers, the document and the page; each file is replaced atomically."""
        tables = {item.key: item.table for item in found.tables} | found.further_tables
        named: dict[str, bytes] = {}
        for key, table in tables.items():
            named |= table_files(table, key)
        write_folder(self.path / TABLES, named, own=set(named), keep=False)
        drawn = {LOOP: _DRAWING.read_bytes()}
        for figure in figures:
            drawn |= figure_files(figure, figure.key)
            drawn[f"{figure.key}.csv"] = figure.data.write_csv().encode()
        write_folder(self.path / FIGURES, drawn, own=set(drawn), keep=False)
        rows = [item.row() for item in found.numbers]
        write_file(self.path / NUMBERS, write_rows(_NUMBER_COLUMNS, rows))
        document = {
            "schema": SCHEMA,
            **about,
            "sentences": list(found.sentences()),
            "numbers": rows,
            "economics": [item.as_document() for item in found.savings],
            "settings": {
                key: {
                    "points": [point.as_document() for point in result.points],
                    "resplits": [spread.as_document() for spread in result.spreads],
                }
                for key, result in found.results.items()
            },
            "warnings": list(warnings),
            "versions": versions_of("numpy", "scipy", "numba", "polars"),
        }
        write_file(self.path / DOCUMENT, json_bytes(document))
        notes = found.sentences()
        write_file(self.path / MARKDOWN, to_markdown([*tables.values()], warnings, notes).encode())
        write_file(self.path / PAGE, page.encode())


def loop_drawing() -> str:
    """Return figure 1a, the loop as a drawing."""
    return _DRAWING.read_text(encoding="utf-8")
