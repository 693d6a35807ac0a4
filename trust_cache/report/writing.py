"""Writing a report: the page, and for a paper a folder of its figures and tables."""

from collections.abc import Callable
from pathlib import Path

from trust_cache.base.files import refuse_foreign, write_file, write_folder
from trust_cache.base.text_tables import Table
from trust_cache.certificate.tables import all_tables
from trust_cache.report.figure import Figure, dressed
from trust_cache.report.page import render_page, table_keys
from trust_cache.report.report import Report
from trust_cache.report.shown_tables import table_files
from trust_cache.studies.charts import render_spec

OWN = frozenset({"figures", "tables"})
FORMS = (".svg", ".png")


def write_report(report: Report, out: Path) -> int:
    """Write the page, whole or not at all; return its size in bytes."""
    page = render_page(report).encode()
    write_file(out, page)
    return len(page)


def write_figures(report: Report, out: Path, advance: Callable[[], None] = lambda: None) -> Path | None:
    """Write every figure as SVG and PNG with its data, and every table as Markdown, LaTeX and CSV.

    Return where an earlier folder with other content was kept, if there was one.
    """
    refuse_foreign(out, own=OWN)  # before the work, not after
    files: dict[str, bytes] = {}
    for name, figure in named_figures(report).items():
        spec = dressed(figure.paper())
        files |= {f"figures/{name}{suffix}": render_spec(spec, suffix) for suffix in FORMS}
        files[f"figures/{name}.csv"] = figure.data.write_csv().encode()
        advance()
    for name, table in _named_tables(report).items():
        files |= {f"tables/{file}": content for file, content in table_files(table, name).items()}
    return write_folder(out, files, own=OWN)


def named_figures(report: Report) -> dict[str, Figure]:
    """Return all figures by the names of their files: a further run's have a prefix."""
    named: dict[str, Figure] = {}
    for number, figures in enumerate(report.figures, start=1):
        prefix = "" if number == 1 else f"run-{number}-"
        named |= {f"{prefix}{figure.key}": figure for figure in figures}
    return named | {figure.key: figure for study in report.studies for figure in study.figures}


def _named_tables(report: Report) -> dict[str, Table]:
    named: dict[str, Table] = {}
    for number, evidence in enumerate(report.evidences, start=1):
        prefix = "" if number == 1 else f"run-{number}-"
        tables = all_tables(evidence.certification)
        keys = table_keys(evidence.certification)
        named |= {f"{prefix}{key}": table for key, table in zip(keys, tables, strict=True)}
    for study in report.studies:
        named |= {f"{study.key}-{number}": table for number, table in enumerate(study.tables, start=1)}
    return named
