"""The axis of scores: linear, or logit or log where most scores crowd at one end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import altair as alt
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Floats = NDArray[np.float64]

_CROWDED = 0.5  # share of the scores ...
_SHARE_OF_RANGE = 0.1  # ... within this share of the range, at either end
_TAIL = 0.002  # of the scores is drawn at each end
_LOGIT_TICKS = (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
_MOST_TICKS = 7
_LABELS = {"logit": "1/(1+exp(-datum.value))", "log": "pow(10,datum.value)"}


@dataclass(frozen=True)
class ScoreAxis:
    """Where a score is drawn; `low` and `high` are the ends in score units."""

    kind: Literal["linear", "logit", "log"]
    low: float
    high: float

    def place(self, scores: Floats | float) -> Floats:
        """Return the positions of scores; those beyond the ends are drawn at the ends."""
        kept = np.clip(np.asarray(scores, dtype=np.float64), self.low, self.high)
        if self.kind == "logit":
            return np.log(kept) - np.log1p(-kept)
        return np.log10(kept) if self.kind == "log" else kept

    def score(self, places: Floats) -> Floats:
        """Return the scores at positions."""
        if self.kind == "logit":
            return np.asarray(expit(places))
        return np.asarray(10.0**places if self.kind == "log" else places)

    @property
    def title(self) -> str:
        """The title of the axis, which names the scale."""
        return "case score" if self.kind == "linear" else f"case score ({self.kind} scale)"

    def axis(self) -> alt.Axis:
        """Return the axis with ticks at round scores."""
        if self.kind == "linear":
            return alt.Axis(tickCount=5)
        within = [tick for tick in self._round_scores() if self.low <= tick <= self.high]
        step = -(-len(within) // _MOST_TICKS) or 1
        values = self.place(np.array(within[::step])).tolist() if within else []
        score = _LABELS[self.kind]
        text = f"{score} < 0.00099 ? format({score}, '.0e') : format({score}, '.4~g')"
        return alt.Axis(values=values, labelExpr=text, labelOverlap="greedy")

    def _round_scores(self) -> Sequence[float]:
        if self.kind == "logit":
            return _LOGIT_TICKS
        first, last = int(np.floor(np.log10(self.low))), int(np.ceil(np.log10(self.high)))
        return [10.0**power for power in range(first, last + 1)]


def choose_axis(parts: Sequence[Floats]) -> ScoreAxis:
    """Choose the axis that all configurations share: logit or log where most scores are near one end.

    Scores of 0 and 1, which have no logit, and the last 0.2 % at each side are drawn at the ends.
    """
    scores = np.concatenate(list(parts))
    low, high = float(scores.min()), float(scores.max())
    near = _SHARE_OF_RANGE * (high - low)
    at_ends = max(np.mean(scores <= low + near), np.mean(scores >= high - near)) if high > low else 0.0
    crowded = at_ends > _CROWDED and low >= 0
    inside, positive = scores[(scores > 0) & (scores < 1)], scores[scores > 0]
    if crowded and high <= 1 and inside.size > scores.size / 2:
        first, last = np.quantile(inside, [_TAIL, 1 - _TAIL])
        return ScoreAxis("logit", float(first), float(max(last, first + _TAIL * (1 - first))))
    if crowded and high > 1 and positive.size > scores.size / 2:
        return ScoreAxis("log", float(np.quantile(positive, _TAIL)), high)
    return ScoreAxis("linear", low, high if high > low else low + 1.0)
