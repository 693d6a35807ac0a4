"""Decisions: what became of an examination's pictures, and the one row that follows from it."""

import math
from dataclasses import dataclass

from trust_cache.service.models.record import Model
from trust_cache.service.worklists import DISMISS, REVIEW, WorklistRow

UNCERTIFIED = "not certified"


@dataclass(frozen=True)
class Scored:
    """An examination's scores: the picture that decides, and all that keeps it from being dismissed."""

    case_id: str
    score: float | None  # the largest of its pictures' scores; None: not one could be scored
    image_id: str | None
    problems: tuple[str, ...]
    failed: bool  # a picture could not be scored


def decide(scored: Scored, model: Model, model_sha256: str, *, uncertified: bool) -> WorklistRow:
    """Return an examination's row: dismissed only if whole, scored, below tau, and warranted.

    Without a certificate everything is reviewed unless `uncertified`; the row says that it is not certified.
    """
    tau = model.threshold.tau
    complete = not scored.problems and not scored.failed and _is_number(scored.score)
    warranted = model.certified or uncertified
    below = complete and warranted and tau is not None and scored.score is not None and scored.score < tau
    reasons = [*scored.problems]
    if not model.certified:
        reasons.append(UNCERTIFIED)
    if scored.score is not None and not _is_number(scored.score):
        reasons.append("its score is not a number")
    return WorklistRow(
        case_id=scored.case_id,
        score=scored.score if _is_number(scored.score) else None,
        decision=DISMISS if below else REVIEW,
        image_id=scored.image_id,
        tau=tau,
        complete=complete,
        reason="; ".join(reasons) or None,
        certified=model.certified,
        model=model_sha256,
    )


def _is_number(score: float | None) -> bool:
    return score is not None and math.isfinite(score)
