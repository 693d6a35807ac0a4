"""Choose the constants of the linear rivals, then compare the score models with them.

    python docs/rivals_models.py --page docs/rivals.md

Both parts are measured on synthetic cohorts, each with a law and a truth of its own: the constants on cohorts
that are used for nothing else, the models on others. Rows go to docs/rivals_rows; a file that is there is not
made again. About half an hour of processor time.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
from coverage_simulation import SimulatedFeatures, draw_cohort
from numpy.typing import NDArray
from statistics_tables import fill_page
from study_simulation import make_task, train
from threadpoolctl import threadpool_limits

from trust_cache.heads.bank import HeadParameters, normalised_features, score_rows
from trust_cache.heads.folds import CALIBRATE, FIT, draw_final
from trust_cache.heads.head_settings import TrainingSettings, known_configurations, presets
from trust_cache.heads.tuned.tuned_head import FittingImages, fit_tuned
from trust_cache.manifest.cases import MAXIMUM, Aggregation
from trust_cache.statistics.thresholds import allowed_misses
from trust_cache.studies.rivals.rival_models import (
    Fitted,
    LinearSettings,
    fit_conformal_risk,
    fit_logistic_regression,
    fit_selective_net,
)
from trust_cache.studies.rivals.rival_parts import LabelledImages, Part, clean_rows, drawn_rows
from trust_cache.synthetic.feature_law import choose_law
from trust_cache.synthetic.truth import Truth

ROWS = Path(__file__).with_name("rivals_rows")
DIM, VIEWS = 128, 8
CHOOSING = ("subtypes", "benign", "heavy-tails", "mixed")
SHOWN = ("plain", "hard-positives", "sites", "view-noise", "correlated", "patients")
SHOWN_COHORTS = 2  # of each preset
FIRST, FIRST_SHOWN = 5_000, 7_000  # seeds and truth seeds; those of a cohort's new cases are further up
NEW, NEW_SEED = 6, 100_000  # further cohorts of the same truth to measure on
TARGETS = (0.98, 0.95)
CHOSEN = LinearSettings()
COVERAGES = (0.3, 0.5, 0.7, 0.9)
WEIGHTS, TEMPERATURES = (0.03, 0.1, 0.3, 1.0), (0.25, 0.5, 1.0)
HEADS = ("ce", "closed-loop")
LOGISTIC, SELECTIVE, CONFORMAL = "logistic-regression", "selectivenet", "conformal-risk-training"
OF_MAXIMUM = "tuned-maximum"  # `tuned` with the aggregation of all others
MODELS = (*HEADS, "tuned", OF_MAXIMUM, LOGISTIC, SELECTIVE, CONFORMAL)
TUNED = known_configurations()["tuned"]
CONSTANTS = ("coverage", "conformal_weight", "temperature")  # of LinearSettings

Row = dict[str, object]
Constants = dict[str, float | None]
Floats = NDArray[np.float64]
Scorer = Callable[[SimulatedFeatures], Floats]  # of cases


@dataclass(frozen=True)
class ModelCohort:
    """A cohort to train on (90 % of the cases to fit, 10 % for calibration), and new cases of its law."""

    number: int
    features: SimulatedFeatures
    fit: Part
    calibrate: Part
    new: tuple[SimulatedFeatures, ...]


def draw_model_cohort(preset: str, number: int) -> ModelCohort:
    """Draw a cohort of NLBS's size and its new cases; the number decides its truth and its draws."""
    truth = Truth("nlbs", truth_seed=number, dim=DIM, law=choose_law(preset))
    features = draw_cohort(number, truth, VIEWS)
    kinds = draw_final(features.cases, number).parts[0][features.cases.of_image]
    fit, calibrate = (np.flatnonzero(kinds == kind) for kind in (FIT, CALIBRATE))
    generator, cohort = np.random.default_rng(number), _cohort(features)
    return ModelCohort(
        number,
        features,
        drawn_rows(features.rows, cohort, fit, CHOSEN.draws, CHOSEN.dropout, generator),
        clean_rows(features.rows, cohort, calibrate),
        tuple(draw_cohort(NEW_SEED * further + number, truth, 0) for further in range(1, NEW + 1)),
    )


def _cohort(features: SimulatedFeatures) -> LabelledImages:
    training = TrainingSettings()
    share = training.batch_positives / (training.batch_positives + training.batch_negatives)
    return LabelledImages(features.labels, features.cases.of_image, share)


def dismissal(scorer: Scorer, new: Sequence[SimulatedFeatures], target: float) -> float:
    """Return the share of new normal cases below the threshold that keeps the recall on the new cases."""
    scores = np.concatenate([scorer(one) for one in new])
    positive = np.concatenate([one.cases.labels for one in new]) == 1
    kept = np.sort(scores[positive])
    return float(np.mean(scores[~positive] < kept[allowed_misses(kept.size, target)]))


def _of_rival(model: Fitted) -> Scorer:
    def score(one: SimulatedFeatures) -> Floats:
        images = clean_rows(one.rows, _cohort(one), np.arange(one.labels.size))
        return one.cases.score(model.score(images))

    return score


def _of_head(heads: HeadParameters, head: int, aggregation: Aggregation = MAXIMUM) -> Scorer:
    def score(one: SimulatedFeatures) -> Floats:
        images = score_rows(one.rows, np.arange(one.labels.size), heads)[head]
        return one.cases.score(images, aggregation)

    return score


# Candidates for the constants.


def measure_candidates(preset: str, number: int) -> list[Row]:
    """Measure every candidate on one cohort."""
    with threadpool_limits(limits=1):
        cohort = draw_model_cohort(preset, number)
        return [
            {"preset": preset, "cohort": number, "model": name, **constants, "ridge": models[0].strength}
            | {
                f"at_{target}": round(dismissal(_of_rival(model), cohort.new, target), 5)
                for model, target in zip(models, TARGETS, strict=True)
            }
            for name, constants, models in _candidates(cohort)
        ]


def _candidates(cohort: ModelCohort) -> Iterator[tuple[str, Constants, list[Fitted]]]:
    logistic = fit_logistic_regression(cohort.fit, cohort.calibrate, CHOSEN)
    yield LOGISTIC, dict.fromkeys(CONSTANTS), [logistic, logistic]
    for coverage in COVERAGES:
        net = fit_selective_net(cohort.fit, cohort.calibrate, replace(CHOSEN, coverage=coverage))
        yield SELECTIVE, dict.fromkeys(CONSTANTS) | {"coverage": coverage}, [net, net]
    for weight, temperature in product(WEIGHTS, TEMPERATURES):
        settings = replace(CHOSEN, conformal_weight=weight, temperature=temperature)
        models = [fit_conformal_risk(logistic, cohort.fit, target, settings) for target in TARGETS]
        yield CONFORMAL, {"coverage": None, "conformal_weight": weight, "temperature": temperature}, models


def _means(rows: pl.DataFrame) -> pl.DataFrame:
    """Return each candidate with its means over cohorts and the ridges of its fits."""
    return rows.group_by("model", *CONSTANTS, maintain_order=True).agg(
        pl.col("at_0.98", "at_0.95").mean(), pl.col("ridge")
    )


def best_constants(rows: pl.DataFrame) -> dict[str, float]:
    """Return the constants with the highest mean of both columns, for each model that has some."""
    both = _means(rows).with_columns(both=pl.col("at_0.98") + pl.col("at_0.95"))
    best = [group.sort("both", descending=True).row(0, named=True) for _, group in both.group_by("model")]
    return {name: row[name] for row in best for name in CONSTANTS if row[name] is not None}


def constants_table(rows: pl.DataFrame) -> str:
    """Return the candidates as Markdown, each as a mean over cohorts."""
    lines = ["| model | constants | 98 % | 95 % | ridges chosen |", "| --- | --- | --- | --- | --- |"]
    for row in _means(rows).iter_rows(named=True):
        constants = ", ".join(f"{name} {row[name]:g}" for name in CONSTANTS if row[name] is not None)
        at, ridges = _percents([row["at_0.98"], row["at_0.95"]]), ", ".join(f"{at:g}" for at in row["ridge"])
        lines.append(f"| `{row['model']}` | {constants} | {' | '.join(at)} | {ridges} |")
    return "\n".join(lines) + "\n"


# All models with the constants chosen.


def compare_models(preset: str, number: int) -> Floats:
    """Train every model on one cohort; return its dismissal [model, target] of new cases."""
    with threadpool_limits(limits=1):
        cohort = draw_model_cohort(preset, number)
        return np.array(
            [
                [
                    dismissal(scorer, cohort.new, target)
                    for scorer, target in zip(scorers, TARGETS, strict=True)
                ]
                for scorers in _scorers(cohort)
            ]
        )


def _scorers(cohort: ModelCohort) -> Iterator[Sequence[Scorer]]:
    """Return a scorer for each target of every model, in the order of MODELS."""
    heads = train(make_task(cohort.features, [presets()[name] for name in HEADS], cohort.number))
    for head in range(len(HEADS)):
        yield [_of_head(heads, head)] * len(TARGETS)
    tuned = _fit_tuned(cohort)
    for aggregation in (TUNED.aggregation, MAXIMUM):
        yield [_of_head(tuned, 0, aggregation)] * len(TARGETS)
    logistic = fit_logistic_regression(cohort.fit, cohort.calibrate, CHOSEN)
    yield [_of_rival(logistic)] * len(TARGETS)
    yield [_of_rival(fit_selective_net(cohort.fit, cohort.calibrate, CHOSEN))] * len(TARGETS)
    yield [_of_rival(fit_conformal_risk(logistic, cohort.fit, target, CHOSEN)) for target in TARGETS]


def _fit_tuned(cohort: ModelCohort) -> HeadParameters:
    features, cases = cohort.features, cohort.features.cases
    every = np.arange(features.labels.size)
    images = FittingImages(
        normalised_features(features.rows, every, centred=False),
        features.labels,
        cases.of_image,
        cases.patients[cases.of_image],
        cases.breasts,
    )
    return fit_tuned(images, [TUNED.aggregation], cohort.number)[0].parameters


def model_rows(preset: str, number: int, shares: Floats) -> list[Row]:
    """Return the rows of one cohort."""
    return [
        {"preset": preset, "cohort": number, "target": target, "model": name}
        | {"dismissal": round(float(shares[model, place]), 5)}
        for place, target in enumerate(TARGETS)
        for model, name in enumerate(MODELS)
    ]


def models_table(rows: pl.DataFrame) -> str:
    """Return the mean dismissal of every model as Markdown, a row for each recall and preset."""
    lines = [f"| recall | preset | {' | '.join(f'`{name}`' for name in MODELS)} |"]
    lines.append("| --- " * (2 + len(MODELS)) + "|")
    for target in TARGETS:
        for preset in (*SHOWN, "all"):
            here = rows.filter(pl.col("target") == target)
            here = here if preset == "all" else here.filter(pl.col("preset") == preset)
            means = dict(here.group_by("model").agg(pl.col("dismissal").mean()).iter_rows())
            cells = _percents([means[name] for name in MODELS])
            lines.append(f"| {100 * target:.0f} % | {preset} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def shown_cohorts() -> list[tuple[str, int]]:
    """Return the preset and the number of every cohort of the second table."""
    return [
        (preset, FIRST_SHOWN + place * SHOWN_COHORTS + cohort)
        for place, preset in enumerate(SHOWN)
        for cohort in range(SHOWN_COHORTS)
    ]


def _percents(shares: Sequence[float] | Floats) -> list[str]:
    return [f"{100 * share:.1f} %" for share in shares]


def _measured(
    name: str, work: Callable[[str, int], list[Row]], cohorts: list[tuple[str, int]]
) -> pl.DataFrame:
    """Return the rows of a file; make them if it is not there."""
    path = ROWS / f"{name}.csv"
    if not path.exists():
        with ProcessPoolExecutor() as pool:
            found = pool.map(work, *zip(*cohorts, strict=True))
            table = pl.DataFrame([row for rows in found for row in rows], infer_schema_length=None)
        ROWS.mkdir(exist_ok=True)
        table.write_csv(path)
    return pl.read_csv(path)


def _compared(preset: str, number: int) -> list[Row]:
    return model_rows(preset, number, compare_models(preset, number))


def main() -> None:
    """Fill both tables of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, required=True)
    page = parser.parse_args().page
    constants = _measured(
        "constants", measure_candidates, list(zip(CHOOSING, range(FIRST, FIRST + len(CHOOSING)), strict=True))
    )
    best = best_constants(constants)
    if replace(CHOSEN, **best) != CHOSEN:
        raise SystemExit(
            f"LinearSettings has other constants than the best ones, {best}: change it, then run again"
        )
    models = _measured("models", _compared, shown_cohorts())
    tables = {"constants": constants_table(constants), "models": models_table(models)}
    page.write_text(fill_page(page.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
