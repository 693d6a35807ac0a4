"""Cohorts of scores that the tests share."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, settings

from tests.binormal import Binormal

settings.register_profile(
    "here", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("here")

MakeScores = Callable[..., pl.DataFrame]


def make_scores(
    cases: int = 1_500,
    positives: int = 150,
    configurations: tuple[str, ...] = (),
    images: int = 1,
    auroc: float = 0.85,
    seed: int = 0,
) -> pl.DataFrame:
    """Scores of an invented cohort: case ids with leading zeros, a site column, `images` rows a case."""
    generator = np.random.default_rng(seed)
    model = Binormal(prevalence=positives / cases, auroc=auroc)
    tables = []
    base, labels = model.draw(cases, generator, positives)
    for name in configurations or (None,):
        case = np.repeat(np.arange(cases), images)
        noise = generator.uniform(0.8, 1.0, case.size) if images > 1 or configurations else np.ones(cases)
        first = np.tile(np.arange(images), cases) == 0
        table = pl.DataFrame(
            {
                "case_id": [f"{number:05d}" for number in case],
                "image_id": [
                    f"{number:05d}_{part}"
                    for number, part in zip(case, np.tile(np.arange(images), cases), strict=True)
                ],
                "label": labels[case] * first,
                "score": base[case] * noise,
                "site": [f"site {number % 3}" for number in case],
            }
        )
        tables.append(table if name is None else table.select(pl.lit(name).alias("configuration"), pl.all()))
    return pl.concat(tables)


@pytest.fixture
def scores() -> MakeScores:
    return make_scores


@pytest.fixture
def scores_file(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str = "scores.csv", **shape: object) -> Path:
        path = tmp_path / name
        make_scores(**shape).write_csv(path)  # type: ignore[arg-type]
        return path

    return write
