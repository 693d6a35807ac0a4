"""Run folders for the report's tests, made from synthetic scores."""

from pathlib import Path

import polars as pl

from tests.conftest import make_scores
from tests.heads.records import a_record, seal
from trust_cache.base.documents import json_bytes
from trust_cache.heads.head_settings import HeadSettings
from trust_cache.heads.run_folder import RecordedTraining

PRESETS = ("ce", "ce-brier", "ce-focal", "fixed-tau", "closed-loop")
# Names that would do harm if they were taken for markup, for JavaScript or for a path.
SCRIPT = "<script>window.harmed = 1</script>"
HOSTILE = (
    SCRIPT,
    "</script><img src=x onerror='window.harmed = 1'>",
    "\"'`&amp;<b>🩻 \u2028 ${window.harmed = 1} {{ 7 * 7 }}",
    "long " + "n" * 195,
)


def make_run(
    folder: Path,
    *,
    configurations: tuple[str, ...] = PRESETS,
    cases: int = 900,
    positives: int = 120,
    images: int = 2,
    auroc: float = 0.9,
    external: bool = False,
    sites: tuple[str, ...] = ("north", "south"),
    epochs: int = 4,
    seed: int = 0,
) -> Path:
    """Write a run folder as fit-heads or external would."""
    folder.mkdir(parents=True, exist_ok=True)
    table = make_scores(cases, positives, configurations, images, auroc, seed)
    number = pl.col("case_id").cast(pl.Int64)
    fold = pl.lit("external") if external else (number % 5).cast(pl.String)
    # Every configuration ranks a little differently.
    shift = pl.col("configuration").rank("dense").cast(pl.Float64) * 1e-3
    table = table.with_columns(fold=fold, score=pl.col("score") * (1 - shift))
    columns = ("configuration", "fold", "case_id", "image_id", "label", "score")
    table.select(columns).write_csv(folder / "scores.csv")
    site = pl.Series("site", sites)
    first = table.filter(pl.col("configuration") == configurations[0])
    first.select(
        "image_id", "case_id", "label", site=site.gather(first["case_id"].cast(pl.Int64) % len(sites))
    ).write_csv(folder / "manifest.csv")
    _thresholds(folder, configurations, ["external"] if external else list("01234"), epochs)
    record = a_record(
        configurations={name: HeadSettings() for name in configurations},
        training=RecordedTraining(epochs=epochs, dropout=77 / 256),
        seed=seed,
    )
    (folder / "run.json").write_bytes(json_bytes(record.as_document()))
    return seal(folder)


def _thresholds(folder: Path, configurations: tuple[str, ...], folds: list[str], epochs: int) -> None:
    rows = [
        {"configuration": name, "fold": fold, "epoch": epoch, "tau": tau, "dismissed": 3}
        for name in configurations
        if name in {"fixed-tau", "closed-loop"}
        for fold in folds
        for epoch in range(epochs)
        for tau in [0.05 if name == "fixed-tau" else 0.3 * epoch / epochs]
    ]
    schema = {"configuration": pl.String, "fold": pl.String, "epoch": pl.Int64, "tau": pl.Float64}
    pl.DataFrame(rows, schema=schema | {"dismissed": pl.Int64}).write_csv(folder / "thresholds.csv")
