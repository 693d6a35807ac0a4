"""The tables of the study's page, written from its rows: means over cohorts, paired differences."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import t as student
from study_simulation import COHORTS, FRESH, MECHANISM_PRESETS, RECALLS, SENSITIVITY_PRESETS

from trust_cache.heads.head_settings import presets
from trust_cache.synthetic.feature_law import preset_laws

LEVEL = 0.05  # of an interval
KEYS = ("setting", "cohort")
PAPER = ("ce", "ce-brier", "ce-focal", "fixed-tau", "closed-loop")
_SETTING = ("lambda_dismiss", "margin", "lr", "epochs")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences over cohorts and its 95 % interval (Student's t)."""

    mean: float
    low: float
    high: float

    @property
    def resolved(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0

    def words(self) -> str:
        """Return it in points of dismissal."""
        return f"{100 * self.mean:+.2f} ({100 * self.low:+.2f} to {100 * self.high:+.2f})"


def read_rows(path: Path) -> pl.DataFrame:
    """Return the rows of a part; a setting is text, also where the first ones look like numbers."""
    return pl.read_csv(path, schema_overrides={"setting": pl.String})


def paired(one: Sequence[float] | Floats, other: Sequence[float] | Floats) -> Difference:
    """Return the mean difference of paired values with its interval."""
    differences = np.asarray(one, dtype=np.float64) - np.asarray(other, dtype=np.float64)
    mean = float(differences.mean())
    error = float(differences.std(ddof=1)) / np.sqrt(differences.size)
    reach = float(student.ppf(1 - LEVEL / 2, differences.size - 1)) * error
    return Difference(mean, mean - reach, mean + reach)


def contrast(rows: pl.DataFrame, one: str, other: str, measure: str) -> Difference:
    """Return the difference of two configurations over the cohorts of a setting."""
    wide = rows.pivot("configuration", index="cohort", values=measure).sort("cohort")
    return paired(wide[one].to_numpy(), wide[other].to_numpy())


def measure_of(recall: float) -> str:
    """Return the column of the dismissal at a recall."""
    return f"dismissal_{100 * recall:g}"


def render_tables(folder: Path) -> dict[str, str]:
    """Return every table of the page whose rows are there, as markdown."""
    rows = {
        path.stem: pl.read_csv(path, schema_overrides={"setting": pl.String})
        for path in sorted(folder.glob("*.csv"))
    }
    tables = {}
    for like in COHORTS:
        if {f"configurations_{like}", f"limits_{like}"} <= set(rows):
            here = rows[f"configurations_{like}"]
            tables[f"configurations_{like}"] = _configurations(here, rows[f"limits_{like}"])
            tables[f"first_{like}"] = _first(here)
    writers = {
        "draws": _draws,
        "sensitivity": _sensitivity,
        "mechanism": _mechanism,
        "views": _views,
        "pattern": _pattern,
    }
    return tables | {name: write(rows[name]) for name, write in writers.items() if name in rows}


def _configurations(rows: pl.DataFrame, limits: pl.DataFrame) -> str:
    lines = []
    for recall in RECALLS:
        measure = measure_of(recall)
        for preset in preset_laws():
            here = rows.filter(setting=preset)
            means = dict(here.group_by("configuration").agg(pl.col(measure).mean()).iter_rows())
            best = dict(limits.filter(setting=preset).select("head", measure).iter_rows())
            lines.append(
                (
                    _percent(recall, 0),
                    preset,
                    _percent(best["best linear"]),
                    _percent(means["ce"]),
                    _percent(means["closed-loop"]),
                    *(
                        contrast(here, "closed-loop", name, measure).words()
                        for name in PAPER[:-1]
                        if name != "ce-brier"
                    ),
                    contrast(here, "ce-lr-0.001", "ce", measure).words(),
                )
            )
    header = (
        "recall", "preset", "best linear head", "ce", "closed-loop", "closed-loop − ce",
        "closed-loop − ce-focal", "closed-loop − fixed-tau", "ce at lr 0.001 − ce",
    )  # fmt: skip
    return _markdown(header, lines)


def _first(rows: pl.DataFrame) -> str:
    """How often each of the paper's five dismisses most, in truth."""
    lines = []
    own = rows.filter(pl.col("configuration").is_in(PAPER))
    for recall in RECALLS:
        best = own.filter(pl.col(measure_of(recall)) == pl.col(measure_of(recall)).max().over(*KEYS))
        total = own.select(KEYS).n_unique()
        counts = dict(best.group_by("configuration").len().iter_rows())
        lines.append((_percent(recall, 0), *(_percent(counts.get(name, 0) / total, 0) for name in PAPER)))
    return _markdown(("recall", *PAPER), lines)


def draw_means(rows: pl.DataFrame, measure: str) -> Floats:
    """Return the mean difference of the closed loop and its loss without the penalty on each draw."""
    keys = ["draw", "trained"]
    wide = rows.pivot("configuration", index=keys, values=measure)
    means = wide.group_by("draw").agg((pl.col("closed-loop") - pl.col("ce-focal")).mean())
    return means.sort("draw")["closed-loop"].to_numpy()


def _draws(rows: pl.DataFrame) -> str:
    lines = []
    for recall in RECALLS:
        for preset in MECHANISM_PRESETS:
            means = 100 * draw_means(rows.filter(setting=preset), measure_of(recall))
            cells = (", ".join(f"{mean:+.3f}" for mean in means), f"{means.std(ddof=1):.3f}")
            lines.append((_percent(recall, 0), preset, *cells))
    header = ("recall", "preset", "closed-loop − ce-focal on each draw", "standard deviation")
    return _markdown(header, lines)


def choices(rows: pl.DataFrame, recall: float) -> dict[str, Floats]:
    """Return the true dismissal [cohort] of each way to choose the settings."""
    truth, search = measure_of(recall), f"search_{100 * recall:g}"
    loop = presets()["closed-loop"]
    default = rows.filter(
        (pl.col("lambda_dismiss") == loop.lambda_dismiss)
        & (pl.col("margin") == loop.margin)
        & (pl.col("lr") == loop.lr)
        & (pl.col("epochs") == 20)
    )
    without = rows.filter(lambda_dismiss=0.0)
    return {
        "the paper's settings": default.sort("cohort")[truth].to_numpy(),
        "chosen on search": _chosen(rows, search, truth),
        "chosen on search, without the penalty": _chosen(without, search, truth),
        "best in hindsight": _best_in_hindsight(rows, truth),
        "best in hindsight, without the penalty": _best_in_hindsight(without, truth),
    }


def _chosen(rows: pl.DataFrame, by: str, truth: str) -> Floats:
    """Return the truth of the setting with the highest value in each cohort; the first of equal ones."""
    best = rows.sort(by, descending=True, maintain_order=True).group_by("cohort", maintain_order=True).first()
    return best.sort("cohort")[truth].to_numpy()


def _best_in_hindsight(rows: pl.DataFrame, truth: str) -> Floats:
    """Return the truth [cohort] of the one setting with the highest mean over all cohorts.

    Its mean is rather too high. Choosing for each cohort on the others is no remedy: of two settings that are
    equal it takes, for each cohort, rather the one that is worse there, and intervals over cohorts are wrong.
    """
    means = rows.group_by(_SETTING, maintain_order=True).agg(pl.col(truth).mean())
    best = means.sort(truth, descending=True, maintain_order=True).head(1)
    return rows.join(best.select(_SETTING), on=_SETTING).sort("cohort")[truth].to_numpy()


def _sensitivity(rows: pl.DataFrame) -> str:
    lines = []
    for preset in SENSITIVITY_PRESETS:
        for recall in RECALLS:
            found = choices(rows.filter(setting=preset), recall)
            base = found["the paper's settings"]
            for name, values in found.items():
                gain = "" if values is base else paired(values, base).words()
                lines.append((preset, _percent(recall, 0), name, _percent(float(values.mean())), gain))
    return _markdown(("preset", "recall", "settings", "dismissal", "gain in points"), lines)


def _mechanism(rows: pl.DataFrame) -> str:
    lines = []
    last = rows.filter(pl.col("epoch") == pl.col("epoch").max())
    for preset in MECHANISM_PRESETS:
        for (lr, kind), group in last.filter(setting=preset).group_by("lr", "kind", maintain_order=True):
            by = {name: part for (name,), part in group.group_by("configuration")}
            loop, without = by["closed-loop"].sort("cohort"), by["ce-focal"].sort("cohort")
            missed = paired(loop["missed"].to_numpy(), without["missed"].to_numpy())
            lines.append(
                (
                    preset,
                    f"{lr:g}",
                    str(kind),
                    f"{loop['tau'].mean():.3f}",
                    _percent(float(loop["reached"].mean())),  # type: ignore[arg-type]
                    _percent(float(without["missed"].mean())),  # type: ignore[arg-type]
                    missed.words(),
                )
            )
    header = (
        "preset", "lr", "kind of cancer", "tau", "positives within its reach", "missed at 98 %, ce-focal",
        "closed-loop − ce-focal",
    )  # fmt: skip
    return _markdown(header, lines)


def _views(rows: pl.DataFrame) -> str:
    lines = []
    names = rows["configuration"].unique(maintain_order=True).to_list()
    for setting in rows["setting"].unique(maintain_order=True):
        cells: list[str] = []
        for name in names:
            for recall in RECALLS:
                fresh, here = (
                    rows.filter(setting=word, configuration=name)
                    .sort("cohort")[measure_of(recall)]
                    .to_numpy()
                    for word in (FRESH, str(setting))
                )
                cells.append(
                    _percent(float(here.mean())) if setting == FRESH else paired(here, fresh).words()
                )
        lines.append((str(setting), *cells))
    header = ("views", *(f"{name} at {_percent(recall, 0)}" for name in names for recall in RECALLS))
    return _markdown(header, lines)


def _pattern(rows: pl.DataFrame) -> str:
    lines = []
    for (setting,), group in rows.group_by("setting", maintain_order=True):
        draws = int(group["draws"].sum())
        cells = [str(setting), f"{group.height} x {draws // group.height}"]
        for column in ("first_everywhere", "any_first_everywhere"):
            shares = group[column].to_numpy() / group["draws"].to_numpy()
            error = float(shares.std(ddof=1)) / np.sqrt(shares.size)
            cells.append(f"{100 * shares.mean():.1f} % ± {100 * error:.1f}")
        lines.append(tuple(cells))
    header = (
        "five heads that differ by",
        "trainings x splits",
        "a given one is first in all four",
        "any one is",
    )
    return _markdown(header, lines)


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
