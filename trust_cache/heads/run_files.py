"""The files of a run folder, rendered from the results of its folds."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import save

from trust_cache.base.documents import json_bytes
from trust_cache.base.tables import write_rows
from trust_cache.heads.folds import Folds
from trust_cache.heads.results import FoldResult
from trust_cache.heads.settings import HeadSettings

SCHEMA = 1
OWN = frozenset(
    {"run.json", "manifest.csv", "splits.csv", "scores.csv", "thresholds.csv", "trajectories.csv"}
    | {"heads.safetensors", "repeats"}
)
QUANTILE_NAMES = ("q05", "q25", "q50", "q75", "q95")


def render_run(
    results: Sequence[FoldResult],
    *,
    manifest: pl.DataFrame,
    configurations: Mapping[str, HeadSettings],
    folds: Folds,
    record: Mapping[str, Any],
) -> dict[str, bytes]:
    """Return the files of one run by name; `results` has one entry per fold, `manifest` all images scored."""
    names, fold_names = list(configurations), folds.names
    return {
        "run.json": json_bytes({"schema": SCHEMA, **record}),
        "manifest.csv": manifest.write_csv().encode(),  # subgroups by any column, without the cache
        "splits.csv": folds.table.write_csv().encode(),
        "scores.csv": scores_table(results, manifest, names, fold_names).write_csv().encode(),
        "thresholds.csv": _thresholds(results, configurations, fold_names),
        "trajectories.csv": _trajectories(results, names, fold_names),
        "heads.safetensors": _heads(results, names, fold_names),
    }


class Scored(Protocol):
    """Scores [head, image] of images by their number in the cache."""

    @property
    def images(self) -> NDArray[np.int64]:
        """The images scored."""

    @property
    def scores(self) -> NDArray[np.float64]:
        """A row of scores for each head."""


def scores_table(
    results: Sequence[Scored], manifest: pl.DataFrame, names: Sequence[str], fold_names: Sequence[str]
) -> pl.DataFrame:
    """Return the scores, a row a configuration and image; scores as text with all their digits."""
    tables = []
    for head, name in enumerate(names):
        for fold, result in zip(fold_names, results, strict=True):
            rows = manifest.select("case_id", "image_id", "label")[result.images]
            score = pl.Series("score", [repr(value) for value in result.scores[head].tolist()])
            rows = rows.with_columns(score).sort("case_id", "image_id")
            tables.append(rows.select(configuration=pl.lit(name), fold=pl.lit(fold), **_as_they_are(rows)))
    return pl.concat(tables)


def _as_they_are(rows: pl.DataFrame) -> dict[str, pl.Expr]:
    return {name: pl.col(name) for name in rows.columns}


def _thresholds(
    results: Sequence[FoldResult], configurations: Mapping[str, HeadSettings], fold_names: Sequence[str]
) -> bytes:
    columns = ("configuration", "fold", "epoch", "tau", "dismissed", "positives_dismissed")
    rows = (
        {
            "configuration": name,
            "fold": fold,
            "epoch": epoch,
            "tau": float(result.taus[epoch, head]),
            "dismissed": int(result.dismissed[epoch, head]),
            "positives_dismissed": int(result.positives_dismissed[epoch, head]),
        }
        for head, (name, settings) in enumerate(configurations.items())
        if settings.tau is not None
        for fold, result in zip(fold_names, results, strict=True)
        for epoch in range(result.taus.shape[0])
    )
    return write_rows(columns, rows)


def _trajectories(results: Sequence[FoldResult], names: Sequence[str], fold_names: Sequence[str]) -> bytes:
    columns = ("configuration", "fold", "epoch", "label", *QUANTILE_NAMES)
    rows = (
        {"configuration": name, "fold": fold, "epoch": epoch, "label": label}
        | {
            quantile: None if np.isnan(value) else float(value)
            for quantile, value in zip(QUANTILE_NAMES, result.trajectories[epoch, head, label], strict=True)
        }
        for head, name in enumerate(names)
        for fold, result in zip(fold_names, results, strict=True)
        for epoch in range(result.trajectories.shape[0])
        for label in (0, 1)
    )
    return write_rows(columns, rows)


def _heads(results: Sequence[FoldResult], names: Sequence[str], fold_names: Sequence[str]) -> bytes:
    arrays = {
        part: np.ascontiguousarray(np.stack([getattr(result, part) for result in results], axis=1))
        for part in ("gamma", "beta", "weight", "bias")
    }
    # One key: safetensors writes several in an order of its own, and the same run is to give the same bytes.
    names_of_axes = json.dumps({"schema": SCHEMA, "configurations": list(names), "folds": list(fold_names)})
    return save(arrays, metadata={"names": names_of_axes})
