"""A run folder is read as it was written: a changed, cut or exchanged file is refused and named."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.heads.cohorts import a_cohort, write_cohort
from trust_cache.base.errors import InputError
from trust_cache.certificate.certify import certify
from trust_cache.heads.fit import fit_heads
from trust_cache.heads.head_settings import choose_configurations
from trust_cache.heads.run_folder import HEADS, MANIFEST, SCORES, THRESHOLDS, RunFolder
from trust_cache.studies.compare.compare import compare


@pytest.fixture
def run(tmp_path: Path) -> Path:
    cache = write_cohort(tmp_path / "cache.zarr", *a_cohort())
    chosen = choose_configurations(["ce,closed-loop"])
    fit_heads(cache, tmp_path / "run", configurations=chosen, epochs=1, threads=1)
    certify(tmp_path / "run")
    return tmp_path / "run"


def without_low_positives(table: pl.DataFrame) -> pl.DataFrame:
    """Cut the positive images of the cancers that score lowest: the bound would look better."""
    low = table.filter(pl.col("label") == "1").sort(pl.col("score").cast(float))["image_id"][:10]
    return table.filter(~pl.col("image_id").is_in(low))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.head(table.height * 6 // 10), "expected 1,200 rows, found 720"),
        (without_low_positives, "the first that is missing: image"),
        (lambda table: table.filter(pl.col("configuration") == "ce"), "configuration closed-loop"),
        (lambda table: table.with_columns(label=pl.lit("0")), "label 1, configuration ce"),
        (lambda table: table.with_columns(score=pl.lit("0.5")), "a row or a score differs"),
        (lambda table: pl.concat([table, table.head(1)]), "expected 1,200 rows, found 1,201"),
    ],
)
def test_changed_scores_are_refused_with_the_first_difference(
    run: Path, change: Callable[[pl.DataFrame], pl.DataFrame], said: str
) -> None:
    change(pl.read_csv(run / SCORES, infer_schema=False)).write_csv(run / SCORES)
    for read in (certify, compare):
        with pytest.raises(InputError, match=said):
            read(run)


@pytest.mark.parametrize("name", [MANIFEST, THRESHOLDS, HEADS])
def test_other_changed_files_are_refused(run: Path, name: str) -> None:
    (run / name).write_bytes((run / name).read_bytes() + b"\n")
    folder = RunFolder(run)
    readers = {
        MANIFEST: lambda: folder.manifest_file,
        THRESHOLDS: folder.thresholds,
        HEADS: lambda: folder.head("ce", "0"),
    }
    with pytest.raises(InputError, match=f"{name}: changed since the run was written"):
        readers[name]()
