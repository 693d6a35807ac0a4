"""The page of a monitored model: one HTML file in the style of the report, without scripts."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trust_cache.base.files import write_file
from trust_cache.base.text_tables import NO_NUMBER, Table, percent
from trust_cache.clinic.monitoring.model_history import MonitorEntry, read_history
from trust_cache.clinic.monitoring.monitor import Monitoring
from trust_cache.clinic.monitoring.monitor_words import MEANINGS, sentences, table_of, verdict
from trust_cache.clinic.worklist import AUDIT, DISMISS
from trust_cache.figures.monitoring_figures import DrawnStream, stream_figure
from trust_cache.report.embedding import TEMPLATES, content_policy, embedded_script
from trust_cache.report.page import show_figure
from trust_cache.report.page_tables import show_table
from trust_cache.statistics.assurance import sequence_boundaries

_NAMES: dict[str, str] = {DISMISS: "dismissed cases", AUDIT: "audited cases"}


def write_monitor_page(found: Monitoring, name: str, out: Path) -> None:
    """Write the page atomically."""
    write_file(out, render_monitor_page(found, name).encode())


def render_monitor_page(found: Monitoring, name: str) -> str:
    """Return the page as HTML."""
    style = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    charts: dict[str, Any] = {}
    first, *rest = sentences(found)
    past = read_history(found.history).monitorings(found.model)
    context = {
        "policy": content_policy([], [style]),
        "version": version("trust-cache"),
        "style": embedded_script(style),
        "name": name,
        "summary": f"As of {found.as_of} · follow-up {found.settings.follow_up} ·"
        f" {found.decided[DISMISS]:,} dismissed and {found.decided[AUDIT]:,} audited cases in the worklists",
        "status": found.status,
        "confirmed": found.status == "confirmed",
        "verdict": first,
        "sentences": rest,
        "meanings": MEANINGS,
        "warnings": found.warnings,
        "figures": [
            show_figure(stream_figure(stream), "", charts) | {"square": False}
            for stream in drawn_streams(found)
        ],
        "counts": show_table(table_of(found), "table-counts", {}),
        "history": show_table(_history_table(past), "table-history", {}),
        "facts": _facts(found),
    }
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("monitor.html.j2").render(context) + "\n"


def drawn_streams(found: Monitoring) -> list[DrawnStream]:
    """Return the streams that have cases, with the counts at which they decide."""
    streams = []
    for key, path in found.paths.items():
        size = path.days.size
        if not size:
            continue
        bound = None if found.certified is None else found.certified.bound
        below = bound is not None and found.prior.mean < bound  # else no count decides
        decides = sequence_boundaries(size, bound, found.prior, found.delta) if bound and below else None
        streams.append(
            DrawnStream(
                name=_NAMES[key],
                key=f"figure-{key}",
                days=path.days,
                cancers=path.cancers,
                unknown=path.unknown,
                upper=path.upper,
                lower=path.lower,
                confirms=None if decides is None else decides.confirms[1:],
                alarms=None if decides is None else decides.alarms[1:],
                bound=bound,
            )
        )
    return streams


def _history_table(past: tuple[MonitorEntry, ...]) -> Table:
    rows = []
    for entry in past:
        rate = entry.result["dismissed"] or {}
        rows.append((
            entry.as_of,
            str(entry.result["status"]),
            f"{rate['entered']:,}" if rate else NO_NUMBER,
            f"{rate['cancers']:,}" if rate else NO_NUMBER,
            f"{rate['unknown']:,}" if rate else NO_NUMBER,
            percent(rate.get("upper")),
            percent(rate.get("lower")),
        ))  # fmt: skip
    header = ("As of", "Status", "Counted", "With cancer", "Unknown", "At most", "At least")
    legend = (
        "Every monitoring of this model that its history has. Looking costs nothing: no number is corrected."
    )
    return Table("History of the dismissed cases", header, tuple(rows), legend)


def _facts(found: Monitoring) -> list[tuple[str, str]]:
    certified = found.certified
    facts = [("model sha256", found.model), ("history", str(found.history)), ("delta", repr(found.delta))]
    facts += [("prior", f"Beta({found.prior.a:g}, {found.prior.b:g}), fixed with the certificate")]
    if certified is not None:
        facts += [
            ("certified bound", percent(certified.bound, 4)),
            ("limit", percent(certified.limit, 4)),
            ("status of the certificate", certified.status),
            ("certified counts", f"{certified.positives_dismissed:,} of {certified.dismissed:,} dismissed"),
        ]
    return [*facts, ("verdict", verdict(found))]
