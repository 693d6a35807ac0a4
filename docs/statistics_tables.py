"""The tables of the statistics page, written from the CSV files, and their places in the page."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
from selection_simulation import AUROC

SHOWN_CORRELATIONS = (0.0, 0.5, 0.9, 0.99)
_BLOCK = re.compile(r"(?<=<!-- table: )(?P<name>[a-z_]+)( -->\n)(?P<body>.*?)(?=<!-- end -->)", re.DOTALL)


def render_tables(folder: Path) -> dict[str, str]:
    """Return every table of the page as markdown, from the CSV files of `folder`."""
    return {name: write(folder) for name, write in _WRITERS.items()}


def fill_page(page: str, tables: dict[str, str]) -> str:
    """Return the page with each marked block replaced by its table; blocks of other scripts stay."""
    return _BLOCK.sub(
        lambda block: f"{block['name']}{block[2]}{tables.get(block['name'], block['body'])}", page
    )


def tables_in(page: str) -> dict[str, str]:
    """Return the marked blocks of a page by name."""
    return {block["name"]: block["body"] for block in _BLOCK.finditer(page)}


def _selection(folder: Path) -> str:
    data = pl.read_csv(folder / "selection.csv").filter(
        (pl.col("auroc") == AUROC) & pl.col("correlation").is_in(SHOWN_CORRELATIONS)
    )
    keys = ("data_set", "target", "correlation")
    rows = []
    for key, group in data.sort("data_set", -pl.col("target"), "correlation").group_by(
        keys, maintain_order=True
    ):
        by = {row["procedure"]: row for row in group.to_dicts()}
        best = by["evaluation"]
        rows.append(
            (
                str(key[0]),
                _target(key[1]),
                f"{key[2]:g}",
                _share(by["fixed"]["error_rate"]),
                _share(by["search"]["error_rate"]),
                f"{_share(best['error_rate'], 1)} ({_share(best['low'], 1)} to {_share(best['high'], 1)})",
                _share(by["corrected"]["error_rate"]),
            )
        )
    header = (
        "size", "target", "correlation", "fixed beforehand", "chosen on search",
        "chosen by evaluation bound (95 % interval)", "the same, corrected",
    )  # fmt: skip
    return _markdown(header, rows)


def _sensitivity(folder: Path) -> str:
    data = pl.read_csv(folder / "selection.csv").filter(pl.col("procedure") == "evaluation")
    wanted = (("NLBS", 0.9), ("RSNA", 0.0))
    rows = []
    for auroc in sorted(data["auroc"].unique()):
        cells = [f"{auroc:.2f}"]
        for name, correlation in wanted:
            for target in (0.98, 0.95):
                row = data.row(
                    by_predicate=(pl.col("auroc") == auroc)
                    & (pl.col("data_set") == name)
                    & (pl.col("correlation") == correlation)
                    & (pl.col("target") == target),
                    named=True,
                )
                cells.append(_share(row["error_rate"], 1))
        rows.append(tuple(cells))
    header = ["AUROC"]
    header += [f"{name}, correlation {rho:g}, {t} %" for name, rho in wanted for t in (98, 95)]
    return _markdown(header, rows)


def _one_head(folder: Path) -> str:
    rows = [
        (
            row["data_set"],
            _target(row["target"]),
            _share(row["error_rate"]),
            _share(row["error_rate_met"]),
            _share(row["chance_met"], 0),
            _share(row["ceiling"], 1),
        )
        for row in pl.read_csv(folder / "one_head.csv").to_dicts()
    ]
    header = ("size", "target", "wrong, all points", "wrong, met points only", "P(met)", "delta / P(met)")
    return _markdown(header, rows)


def _spreads(folder: Path) -> str:
    rows = [
        (
            row["cohort"],
            str(row["search_positives"]),
            _target(row["target"]),
            f"{_share(row['met_share'], 0)} of {row['resplits']:,}",
            _share(row["met_share_expected"], 0),
            _range(row, "dismissal", 0),
            _range(row, "bound", 2),
        )
        for row in pl.read_csv(folder / "spreads.csv").to_dicts()
    ]
    header = (
        "cohort", "search positives", "target", "target met", "Beta-binomial law",
        "dismissal, median (5 to 95 %)", "bound, median (5 to 95 %)",
    )  # fmt: skip
    return _markdown(header, rows)


def _law(folder: Path) -> str:
    data = pl.read_csv(folder / "law.csv")
    rows = []
    keys = ("data_set", "search_positives", "evaluation_positives", "target")
    for key, group in data.group_by(keys, maintain_order=True):
        by = {row["rule"]: row for row in group.to_dicts()}
        cells = [str(key[0]), f"{key[1]} + {key[2]}", _target(key[3])]
        for rule in ("recall", "crc", "ltt"):
            chance, needed = by[rule]["chance_met"], by[rule]["needed"]
            cells.append(f"infeasible, needs {needed}" if chance is None else _share(chance, 0))
        rows.append(tuple(cells))
    header = ("size", "positives, search + evaluation", "target", "recall", "crc", "ltt")
    return _markdown(header, rows)


def _band_price(folder: Path) -> str:
    rows = [
        (
            row["data_set"],
            _target(row["target"]),
            f"{row['positives_dismissed']} of {row['dismissed']:,}",
            *(_share(row[name]) for name in ("bound", "at_a_rank", "at_a_rank_of_five", "at_forty_ranks")),
        )
        for row in pl.read_csv(folder / "band_price.csv").to_dicts()
    ]
    header = (
        "closed-loop on", "target", "cancers among the dismissed", "pointwise", "simultaneous",
        "simultaneous, five configurations", "simultaneous by 40 equal ranks",
    )  # fmt: skip
    return _markdown(header, rows)


def _band_free(folder: Path) -> str:
    rows = [
        (
            row["data_set"],
            f"{100 * row['low']:.0f} to {_share(row['high'], 0)}",
            _share(row["pointwise"]),
            *(
                cell
                for of in ("", "_of_forty")
                for cell in (
                    _share(row[f"kept{of}"]),
                    f"{_share(row[f'lowered{of}'])} at {_share(row[f'lowered_dismissal{of}'], 1)}",
                )
            ),
        )
        for row in pl.read_csv(folder / "band_free.csv").to_dicts()
    ]
    header = (
        "size", "dismissal", "pointwise", "kept", "lowered, mean dismissal then", "kept, by 40 equal ranks",
        "lowered, by 40 equal ranks",
    )  # fmt: skip
    return _markdown(header, rows)


def _band_failures(folder: Path) -> str:
    rows = [
        (
            row["law"],
            f"{row['cases']:,}",
            *(_share(row[name] / row["cohorts"]) for name in ("lowered", "kept")),
            _share(row["pointwise"] / row["pointwise_cohorts"], 1),
            _share(row["rank_below"] / row["cohorts"], 1),
        )
        for row in pl.read_csv(folder / "band_failures.csv").to_dicts()
    ]
    header = (
        "risk by score",
        "cases",
        "lowered",
        "kept",
        "pointwise",
        "bound of the rank below, not lowered",
    )
    return _markdown(header, rows)


def _rebuilt(folder: Path) -> str:
    rows = [
        (f"`{row['way']}`", f"{row['wrong']:,} of {row['pairs']:,}", _share(row["wrong_share"], 1))
        for row in pl.read_csv(folder / "rebuilt_counts.csv").to_dicts()
    ]
    return _markdown(("rate", "pairs (m, k) that come back as k - 1", "share"), rows)


def _floats(folder: Path) -> str:
    rows = []
    for row in pl.read_csv(folder / "float_targets.csv").to_dicts():
        example = (
            "-"
            if row["first_c"] is None
            else f"r = {row['first_target']:g}, C = {row['first_c']}: {row['first_misses']}"
            f" instead of {row['exact_misses']}"
        )
        rows.append(
            (f"`{row['way']}`", f"{row['wrong']:,} of {row['pairs']:,}", str(row["targets"]), example)
        )
    return _markdown(("allowed misses as", "wrong (r, C)", "targets affected", "first example"), rows)


_WRITERS: dict[str, Callable[[Path], str]] = {
    "selection": _selection,
    "sensitivity": _sensitivity,
    "one_head": _one_head,
    "spreads": _spreads,
    "law": _law,
    "band_price": _band_price,
    "band_free": _band_free,
    "band_failures": _band_failures,
    "rebuilt": _rebuilt,
    "floats": _floats,
}


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _target(target: object) -> str:
    return f"{100 * float(str(target)):g} %"


def _share(value: float, digits: int = 2) -> str:
    return f"{100 * value:.{digits}f} %"


def _range(row: dict[str, float], name: str, digits: int) -> str:
    low, middle, high = (_share(row[f"{name}_{quantile}"], digits) for quantile in ("q05", "q50", "q95"))
    return f"{middle} ({low} to {high})"
