"""A run in one table: how well each configuration ranks, and where its closed loop ended."""

from pathlib import Path

import polars as pl

from trust_cache.base.text_tables import NO_NUMBER, Table
from trust_cache.statistics.auroc import auroc


def summarise_run(folder: Path) -> Table:
    """Read a run folder's scores and thresholds and summarise them by configuration."""
    texts = {"case_id": pl.String, "image_id": pl.String, "configuration": pl.String}
    scores = pl.read_csv(folder / "scores.csv", schema_overrides=texts, glob=False)
    thresholds = pl.read_csv(
        folder / "thresholds.csv", schema_overrides={"configuration": pl.String}, glob=False
    )
    last = thresholds.filter(pl.col("epoch") == pl.col("epoch").max())
    rows = []
    for (name,), part in scores.group_by("configuration", maintain_order=True):
        cases = part.group_by("case_id").agg(pl.col("score", "label").max())
        taus = last.filter(pl.col("configuration") == name)["tau"]
        rows.append(
            (
                str(name),
                _digits(auroc(cases["score"].to_numpy(), cases["label"].to_numpy())),
                _digits(auroc(part["score"].to_numpy(), part["label"].to_numpy())),
                _range(taus.to_list()),
            )
        )
    images, cases_seen = scores["image_id"].n_unique(), scores["case_id"].n_unique()
    title = f"Out-of-fold scores of {images:,} images, {cases_seen:,} cases"
    return Table(
        title, ("Configuration", "Case AUROC", "Image AUROC", "τ of the last epoch, by fold"), tuple(rows)
    )


def _range(taus: list[float]) -> str:
    return f"{min(taus):.4f} - {max(taus):.4f}" if taus else NO_NUMBER


def _digits(value: float | None) -> str:
    return NO_NUMBER if value is None else f"{value:.4f}"
