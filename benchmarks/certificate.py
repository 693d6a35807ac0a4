"""Certifying a million image rows, against only reading them and against the README's plain Python."""

import csv
import resource
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
from scipy.stats import beta

from benchmarks.timing import best
from trust_cache import certify
from trust_cache.certificate.certified_folder import write_certification

ROWS, IMAGES = 1_000_000, 4
LIMIT_SECONDS, LIMIT_BYTES = 10.0, 1.5e9


def run() -> bool:
    """Print times and ratios; return whether the targets were met."""
    with tempfile.TemporaryDirectory() as folder:
        scores = _write(Path(folder) / "scores.csv")
        certified = Path(folder) / "certified"
        ours = best(lambda: write_certification(certify(scores), certified, overwrite=True))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        reading = best(lambda: pl.read_csv(scores, infer_schema=False))
        plain = best(lambda: _plain_python(scores, certified / "split.csv"), times=1)
    print(f"certify, {ROWS:,} image rows, two targets, all files: {ours:.2f} s, peak {peak / 1e9:.2f} GB")
    print(f"  only reading the CSV (the limit): {reading:.2f} s; certify takes {ours / reading:.1f}x of it")
    print(f"  plain Python, one target, no hashes: {plain:.2f} s; certify takes {ours / plain:.2f}x of it")
    return ours < LIMIT_SECONDS and peak < LIMIT_BYTES


def _write(path: Path) -> Path:
    generator = np.random.default_rng(0)
    case = np.arange(ROWS) // IMAGES
    positive = case % 40 == 0
    table = {
        "case_id": pl.Series(case).cast(pl.String).str.zfill(8),
        "image_id": pl.Series(np.arange(ROWS)).cast(pl.String).str.zfill(8),
        "label": positive.astype(np.int64),
        "score": generator.random(ROWS) + 0.2 * positive,
    }
    pl.DataFrame(table).write_csv(path)
    return path


def _plain_python(scores: Path, split: Path) -> float:
    """What an auditor would write: the README's recomputation without the hashes."""
    with split.open(newline="") as file:
        part = {row["case_id"]: row["part"] for row in csv.DictReader(file)}
    score: dict[str, float] = {}
    label: dict[str, int] = {}
    with scores.open(newline="") as file:
        for row in csv.DictReader(file):
            case = row["case_id"]
            score[case] = max(score.get(case, -1e300), float(row["score"]))
            label[case] = max(label.get(case, 0), int(row["label"]))
    positives = sorted(score[case] for case in score if part[case] == "search" and label[case])
    tau = positives[int(len(positives) * (1 - Fraction("0.98")))]
    dismissed = [label[case] for case in score if part[case] == "evaluation" and score[case] < tau]
    n, k = len(dismissed), sum(dismissed)
    return float(beta.ppf(0.99, k + 1, n - k))
