"""The study of the closed loop: heads trained on synthetic cohorts, measured against the truth.

Each part is a list of cells. A cell trains on one cohort of one preset and returns rows. Every head is one
model on 90 % of the cohort's cases, with the other 10 % for calibration, as in an external evaluation. What
it does is measured on a large population of new cases of the same law: there is no noise of a test set.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import msgspec
import numpy as np
from coverage_simulation import PARTS, SimulatedFeatures, draw_cohort, view_changes
from numpy.random import SFC64, Generator, SeedSequence
from numpy.typing import NDArray

from trust_cache.cache.feature_rows import rows_of_array
from trust_cache.heads.bank import HeadParameters, score_rows
from trust_cache.heads.draws import Draws
from trust_cache.heads.folds import CALIBRATE, FIT, draw_final
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings, presets
from trust_cache.heads.trainer import FoldImages, FoldJob, FoldTask
from trust_cache.statistics.thresholds import allowed_misses
from trust_cache.synthetic.best_heads import best_head, cross_entropy_head
from trust_cache.synthetic.feature_cohort import FeatureModel
from trust_cache.synthetic.feature_law import choose_law, preset_laws
from trust_cache.synthetic.population import Population
from trust_cache.synthetic.truth import LinearHeads, Truth

DIM, VIEWS = 512, 8
RECALLS = (0.98, 0.95)
POSITIVES, NEGATIVES = 200_000, 100_000  # new cases that tell the truth
FEWER = (60_000, 40_000)  # where hundreds of heads are measured
EPOCHS = TrainingSettings().epochs
CONVERGED_LR = 1e-3
COHORTS = {"nlbs": 100, "rsna": 30}
SMALL_COHORTS = 30
MECHANISM_COHORTS = 10
DRAWS, DRAWS_COHORTS = 5, 6  # of new cases, and cohorts whose heads are measured on each of them

LAMBDAS, MARGINS = (0.02, 0.05, 0.2, 1.0), (0.05, 0.1, 0.3)
RATES, EPOCHS_TRIED = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3), (5, 10, 20, 40)
SENSITIVITY_PRESETS = ("hard-positives", "mixed")
MECHANISM_PRESETS = ("plain", "subtypes", "hard-positives", "benign")
VIEWS_PRESET, VIEWS_DIM = "view-noise", 256
VIEW_COUNTS = (0, 1, 2, 4, 8, 16, 32)
FRESH = "fresh"  # new views at every epoch
FRESH_NEGATIVE_VIEWS = 4  # an epoch draws a negative image about once, a positive one many times
# Cases (positives) of the search and the evaluation subsets of the paper.
PAPER_SPLITS = {"nlbs": ((1_200, 30), (4_797, 119)), "rsna": ((2_383, 97), (9_530, 389))}
PATTERN_SETS, PATTERN_DRAWS, PATTERN_HEADS = 10, 500, 5

Row = dict[str, object]
Floats = NDArray[np.float64]


def _faster(name: str) -> HeadSettings:
    return msgspec.structs.replace(presets()[name], lr=CONVERGED_LR)


WATCHED = ("ce-focal", "closed-loop")  # they differ in the penalty alone
CONFIGURATIONS: Mapping[str, HeadSettings] = {
    **presets(),
    "ce-lr-0.001": _faster("ce"),
    "ce-focal-lr-0.001": _faster("ce-focal"),
    "closed-loop-lr-0.001": _faster("closed-loop"),
}


@dataclass(frozen=True)
class Cell:
    """One cohort of one setting of a part of the study."""

    setting: str
    cohort: int
    work: Callable[[], list[Row]]


@dataclass(frozen=True)
class Part:
    """A part of the study: its file, the columns behind `setting` and `cohort`, and its cells."""

    name: str
    columns: tuple[str, ...]
    cells: Callable[[], Iterator[Cell]]


def truth_of(like: str, preset: str, dim: int = DIM) -> Truth:
    """Return the law of a preset in the shape of a data set."""
    return Truth(like, dim=dim, law=choose_law(preset))


@lru_cache(maxsize=2)
def population_of(truth: Truth, positives: int = POSITIVES, negatives: int = NEGATIVES) -> Population:
    """Return new cases of a law, drawn once."""
    return Population(truth, positives, negatives)


def make_task(
    features: SimulatedFeatures, heads: Sequence[HeadSettings], seed: int, epochs: int = EPOCHS
) -> FoldTask:
    """Return the training of heads on a cohort, not begun."""
    parts = draw_final(features.cases, seed).parts[0][features.cases.of_image]
    images = FoldImages(features.labels, *(np.flatnonzero(parts == kind) for kind in (FIT, CALIBRATE)))
    training = TrainingSettings(epochs=epochs)
    return FoldTask(FoldJob(features.rows, images, tuple(heads), training, Draws(seed, 0)))


def train(task: FoldTask) -> HeadParameters:
    """Train to the end."""
    while not task.finished:
        task.run_epoch()
    return task.parameters


def linear(parameters: HeadParameters) -> LinearHeads:
    """Return heads as the truth takes them."""
    return LinearHeads.of(*(getattr(parameters, name) for name in PARTS))


def stacked(heads: Sequence[LinearHeads]) -> LinearHeads:
    """Return several sets of heads as one."""
    return LinearHeads(
        *(np.concatenate([getattr(one, name) for one in heads]) for name in ("directions", "offsets"))
    )


def true_dismissals(population: Population, heads: LinearHeads) -> Floats:
    """Return the dismissal [recall, head] at the threshold that keeps each recall."""
    return np.array([[point.dismissal for point in population.points(heads, recall)] for recall in RECALLS])


def _by_recall(dismissals: Floats) -> Row:
    return {
        f"dismissal_{100 * recall:g}": _short(value)
        for recall, value in zip(RECALLS, dismissals, strict=True)
    }


def _short(value: float) -> float:
    return float(f"{value:.5g}")


# Part 1: the configurations at the paper's settings, and three of them at a learning rate that converges.


def configurations_cell(setting: tuple[str, str], cohort: int) -> list[Row]:
    """Train all configurations on one cohort of a size and preset; return the true dismissal of each."""
    truth = truth_of(*setting)
    task = make_task(draw_cohort(cohort, truth, VIEWS), tuple(CONFIGURATIONS.values()), cohort)
    dismissals = true_dismissals(population_of(truth), linear(train(task)))
    return [
        {"configuration": name} | _by_recall(dismissals[:, head]) for head, name in enumerate(CONFIGURATIONS)
    ]


# Beside it: the best that a linear head can do, and cross-entropy with endless images to train on.


def limits_cell(setting: tuple[str, str], seed: int) -> list[Row]:
    """Return the true dismissal of the best linear head at each recall, and of endless cross-entropy."""
    truth = truth_of(*setting)
    fitted, measured = Population(truth, *FEWER, seed=seed + 1), population_of(truth)
    best = [best_head(fitted, recall) for recall in RECALLS]
    dismissals = np.array(
        [measured.points(head, recall)[0].dismissal for head, recall in zip(best, RECALLS, strict=True)]
    )
    endless = cross_entropy_head(fitted)
    of_endless = np.array([measured.points(endless, recall)[0].dismissal for recall in RECALLS])
    return [
        {"head": "best linear"} | _by_recall(dismissals),
        {"head": "endless cross-entropy"} | _by_recall(of_endless),
    ]


# Beside it: how far the differences move with the draw of the new cases, which all cohorts share.


def draws_cell(preset: str, _number: int) -> list[Row]:
    """Return the true dismissals of the same heads on several draws of new cases; the study has the first."""
    truth, watched = truth_of("nlbs", preset), [presets()[name] for name in WATCHED]
    trained = [
        linear(train(make_task(draw_cohort(cohort, truth, VIEWS), watched, cohort)))
        for cohort in range(DRAWS_COHORTS)
    ]
    rows: list[Row] = []
    for draw in range(DRAWS):
        population = Population(truth, POSITIVES, NEGATIVES, seed=draw)
        for number, heads in enumerate(trained):
            dismissals = true_dismissals(population, heads)
            for head, name in enumerate(WATCHED):
                rows.append(
                    {"draw": draw, "trained": number, "configuration": name} | _by_recall(dismissals[:, head])
                )
    return rows


# Part 2: how much the settings of the penalty matter, beside those of training.


def sensitivity_heads() -> dict[tuple[float, float, float], HeadSettings]:
    """Return the heads by (lambda_dismiss, margin, lr); lambda_dismiss 0 is the loss without the penalty."""
    loop = presets()["closed-loop"]
    grid = [(0.0, loop.margin), *product(LAMBDAS, MARGINS)]
    return {
        (weight, margin, lr): msgspec.structs.replace(loop, lambda_dismiss=weight, margin=margin, lr=lr)
        for (weight, margin), lr in product(grid, RATES)
    }


def sensitivity_cell(preset: str, cohort: int) -> list[Row]:
    """Train the whole grid on one cohort; return true dismissals, and those on a search subset.

    On the search subset all heads share the noise outside the directions of the law (see `TruthSpan`): they
    are more alike there than in truth, which makes choosing among them easier.
    """
    truth, heads = truth_of("nlbs", preset), sensitivity_heads()
    population = population_of(truth, *FEWER)
    cases, positives = PAPER_SPLITS["nlbs"][0]
    search = Population(truth, positives, cases - positives, seed=cohort + 1)
    task = make_task(draw_cohort(cohort, truth, VIEWS), tuple(heads.values()), cohort, max(EPOCHS_TRIED))
    rows: list[Row] = []
    for epochs in EPOCHS_TRIED:
        while task.epoch < epochs:
            task.run_epoch()
        here = linear(task.parameters)
        dismissals, searched = true_dismissals(population, here), search_dismissals(search, here)
        for head, (weight, margin, lr) in enumerate(heads):
            setting = {"lambda_dismiss": weight, "margin": margin, "lr": lr, "epochs": epochs}
            found = {
                f"search_{100 * recall:g}": _short(value)
                for recall, value in zip(RECALLS, searched[:, head], strict=True)
            }
            rows.append(setting | _by_recall(dismissals[:, head]) | found)
    return rows


def search_dismissals(search: Population, heads: LinearHeads) -> Floats:
    """Return the dismissal [recall, head] of a subset at the thresholds of the paper's rule on it."""
    positive, negative = (np.concatenate(list(search.logits(heads, label))) for label in (1, 0))
    positive = np.sort(positive, axis=0)
    count = len(positive) + len(negative)
    found = []
    for recall in RECALLS:
        misses = allowed_misses(len(positive), recall)
        taus = positive[misses]
        found.append(((negative < taus).sum(axis=0) + (positive < taus).sum(axis=0)) / count)
    return np.array(found)


# Part 3: what the loop does while it trains.


def mechanism_cell(preset: str, cohort: int) -> list[Row]:
    """Train with and without the loop; return tau, its reach, and the kinds of cancer that are missed."""
    truth = truth_of("nlbs", preset)
    population, names = population_of(truth, *FEWER), truth.law.kind_names
    features = draw_cohort(cohort, truth, VIEWS)
    rows: list[Row] = []
    for lr in (presets()["closed-loop"].lr, CONVERGED_LR):
        heads = [msgspec.structs.replace(presets()[name], lr=lr) for name in WATCHED]
        task = make_task(features, heads, cohort)
        fitted = task.job.images.of_class(task.job.images.fit, 1)
        while True:
            before, epoch = task.parameters, task.epoch
            if not task.finished:
                task.run_epoch()
            tau = float(task.taus[min(epoch, EPOCHS - 1), WATCHED.index("closed-loop")])
            reached = score_rows(features.rows, fitted, before) < tau + heads[-1].margin
            missed, medians = _by_kind(population, linear(before), len(truth.law.cancers))
            for head, name in enumerate(WATCHED):
                start = {"lr": lr, "epoch": epoch, "configuration": name, "tau": _short(tau)}
                start["reached"] = _short(float(reached[head].mean()))
                for kind in range(len(truth.law.cancers)):
                    told = {"missed": _short(missed[kind, head]), "median": _short(medians[kind, head])}
                    rows.append(start | {"kind": names[kind]} | told)
            if epoch == EPOCHS:
                break
    return rows


def _by_kind(population: Population, heads: LinearHeads, kinds: int) -> tuple[Floats, Floats]:
    """Return the share [kind, head] missed at 98 % recall, and the median place among the normal cases."""
    positive, negative = (np.concatenate(list(population.logits(heads, label))) for label in (1, 0))
    kind_of = population.kinds(1)
    taus = np.quantile(positive, 1 - RECALLS[0], axis=0)
    ordered = np.sort(negative, axis=0)
    missed = np.array([(positive[kind_of == kind] < taus).mean(axis=0) for kind in range(kinds)])
    middle = np.array([np.median(positive[kind_of == kind], axis=0) for kind in range(kinds)])
    places = np.array(
        [[np.searchsorted(ordered[:, head], value) for head, value in enumerate(row)] for row in middle]
    )
    return missed, places / len(ordered)


# Part 4: how many cached views are enough.


def views_cell(count: int | str, cohort: int) -> list[Row]:
    """Train with `count` augmented views, or with new ones at every epoch; return true dismissals."""
    truth = truth_of("nlbs", VIEWS_PRESET, VIEWS_DIM)
    names = ("ce", "closed-loop", "ce-lr-0.001")
    most = max(VIEW_COUNTS)
    stored = most if count == FRESH else int(count)
    features = draw_cohort(cohort, truth, 0)
    clean = np.array([features.rows.clean(image) for image in range(features.rows.images)])
    views = np.empty((len(clean), stored + 1, VIEWS_DIM), dtype=np.float16)
    views[:, 0] = clean
    generator = Generator(SFC64(SeedSequence([cohort, *b"views"])))
    few = FRESH_NEGATIVE_VIEWS if count == FRESH else stored
    _fill_views(views, features.labels, few, truth.model, generator)
    drawn = SimulatedFeatures(features.cases, features.labels, rows_of_array(views))
    task = make_task(drawn, [CONFIGURATIONS[name] for name in names], cohort)
    while not task.finished:
        if count == FRESH and task.epoch:
            _fill_views(views, features.labels, few, truth.model, generator)  # the rows are this array
        task.run_epoch()
    dismissals = true_dismissals(population_of(truth), linear(task.parameters))
    return [{"configuration": name} | _by_recall(dismissals[:, head]) for head, name in enumerate(names)]


def _fill_views(
    views: NDArray[np.float16], labels: NDArray[np.int64], few: int, model: FeatureModel, generator: Generator
) -> None:
    """Draw the augmented views; those of negative images repeat after `few`, which an epoch rarely sees."""
    positive = np.flatnonzero(labels)
    for view in range(1, views.shape[1]):
        if view <= few:
            views[:, view] = views[:, 0] + view_changes(model, len(views), generator)
        else:
            views[:, view] = views[:, view - few]
            views[positive, view] = views[positive, 0] + view_changes(model, positive.size, generator)


# Part 5: how often one configuration is first in all four comparisons although nothing differs.


def pattern_cell(same_cohort: bool, number: int) -> list[Row]:
    """Train five heads that differ by chance alone; return how often the first of them wins everywhere.

    The heads differ by their seed, or also by their cohort. Search and evaluation subsets of the paper's
    sizes are drawn anew many times.
    """
    first = np.ones((PATTERN_DRAWS, PATTERN_HEADS), dtype=np.bool_)
    for like in PAPER_SPLITS:
        truth = truth_of(like, "plain")
        logits = _pattern_logits(truth, number, same_cohort=same_cohort)
        generator = Generator(SFC64(SeedSequence([number, *like.encode()])))
        for draw in range(PATTERN_DRAWS):
            first[draw] &= _winners(logits, like, generator)
    return [
        {
            "draws": PATTERN_DRAWS,
            "first_everywhere": int(first[:, 0].sum()),
            "any_first_everywhere": int(first.any(axis=1).sum()),
        }
    ]


def _pattern_logits(truth: Truth, number: int, *, same_cohort: bool) -> tuple[Floats, Floats]:
    """Return the logits [case, head] of new positive and negative cases."""
    features = draw_cohort(number, truth, VIEWS) if same_cohort else None
    trained = []
    for head in range(PATTERN_HEADS):
        seed = PATTERN_HEADS * number + head
        here = features or draw_cohort(seed, truth, VIEWS)
        trained.append(linear(train(make_task(here, [presets()["closed-loop"]], seed))))
    heads = stacked(trained)
    population = Population(truth, *FEWER, within=heads)  # the heads meet on the same cases
    positive, negative = (
        np.concatenate(list(population.logits(heads, label))).astype(np.float64) for label in (1, 0)
    )
    return positive, negative


def _winners(logits: tuple[Floats, Floats], like: str, generator: Generator) -> NDArray[np.bool_]:
    """Return which head met both targets and dismissed most of those that did, on one drawn split."""
    (search, search_positives), (cases, positives) = PAPER_SPLITS[like]
    counts = ((search_positives, positives), (search - search_positives, cases - positives))
    (of_search, of_evaluation), (_, evaluation_negative) = (
        np.split(values[generator.choice(len(values), sum(count), replace=False)], [count[0]])
        for values, count in zip(logits, counts, strict=True)
    )
    first = np.ones(PATTERN_HEADS, dtype=np.bool_)
    for recall in RECALLS:
        taus = np.sort(of_search, axis=0)[allowed_misses(len(of_search), recall)]
        missed = (of_evaluation < taus).sum(axis=0)
        met = missed <= allowed_misses(len(of_evaluation), recall)
        dismissed = np.where(met, missed + (evaluation_negative < taus).sum(axis=0), -1)
        first &= met & (dismissed == dismissed.max()) & (np.count_nonzero(dismissed == dismissed.max()) == 1)
    return first


def _cells(
    cell: Callable[..., list[Row]], settings: Mapping[str, object], cohorts: int
) -> Callable[[], Iterator[Cell]]:
    def make() -> Iterator[Cell]:
        for (name, setting), cohort in product(settings.items(), range(cohorts)):
            yield Cell(name, cohort, _later(cell, setting, cohort))

    return make


def _later(cell: Callable[..., list[Row]], *words: object) -> Callable[[], list[Row]]:
    return lambda: cell(*words)


_DISMISSALS = tuple(f"dismissal_{100 * recall:g}" for recall in RECALLS)
STUDY = (
    *(
        Part(
            f"configurations_{like}",
            ("configuration", *_DISMISSALS),
            _cells(configurations_cell, {preset: (like, preset) for preset in preset_laws()}, cohorts),
        )
        for like, cohorts in COHORTS.items()
    ),
    *(
        Part(
            f"limits_{like}",
            ("head", *_DISMISSALS),
            _cells(limits_cell, {preset: (like, preset) for preset in preset_laws()}, 1),
        )
        for like in COHORTS
    ),
    Part(
        "draws",
        ("draw", "trained", "configuration", *_DISMISSALS),
        _cells(draws_cell, {preset: preset for preset in MECHANISM_PRESETS}, 1),
    ),
    Part(
        "sensitivity",
        ("lambda_dismiss", "margin", "lr", "epochs", *_DISMISSALS, "search_98", "search_95"),
        _cells(sensitivity_cell, {preset: preset for preset in SENSITIVITY_PRESETS}, SMALL_COHORTS),
    ),
    Part(
        "mechanism",
        ("lr", "epoch", "configuration", "tau", "reached", "kind", "missed", "median"),
        _cells(mechanism_cell, {preset: preset for preset in MECHANISM_PRESETS}, MECHANISM_COHORTS),
    ),
    Part(
        "views",
        ("configuration", *_DISMISSALS),
        _cells(views_cell, {str(count): count for count in (*VIEW_COUNTS, FRESH)}, SMALL_COHORTS),
    ),
    Part(
        "pattern",
        ("draws", "first_everywhere", "any_first_everywhere"),
        _cells(pattern_cell, {"same cohort": True, "other cohorts": False}, PATTERN_SETS),
    ),
)
