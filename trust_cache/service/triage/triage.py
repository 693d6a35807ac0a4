"""Triage: examinations in, a worklist out; resumable, and every broken examination is reviewed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch

from trust_cache.base.errors import InputError
from trust_cache.base.executor import run_items
from trust_cache.base.files import write_keeping
from trust_cache.images.errors import ImageError
from trust_cache.images.settings import ImageSettings
from trust_cache.service.models.folder import read_model
from trust_cache.service.triage.decisions import Scored, decide
from trust_cache.service.triage.drift import Drift, compare_scores, drift_warnings
from trust_cache.service.triage.examinations import STANDARD, Examination, with_problems
from trust_cache.service.triage.journal import Journal
from trust_cache.service.triage.listing import list_examinations
from trust_cache.service.triage.pictures import Task, failure_of, prepare
from trust_cache.service.triage.scanning import scan_folder
from trust_cache.service.triage.scoring import PictureScorer, choose_device, choose_weights, load_scorer
from trust_cache.service.worklists import WorklistRow, worklist_bytes


@dataclass(frozen=True)
class TriageSettings:
    """How to triage, besides the model."""

    weights: str | None = None  # None: random ones, if the model's are
    required: tuple[str, ...] = STANDARD
    uncertified: bool = False  # dismiss without a certificate, and say so in every row
    device: str = "auto"
    workers: int = 1  # decoding processes

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InputError(f"workers: expected 1 or more, found {self.workers}")


@dataclass(frozen=True)
class Triage:
    """A worklist that was written."""

    out: Path
    rows: tuple[WorklistRow, ...]
    failed: int  # examinations with a picture that could not be scored
    drift: Drift
    warnings: tuple[str, ...]
    resumed: int  # examinations that an earlier start had finished
    kept: Path | None  # where an earlier worklist in this place went


@dataclass
class _UnderWay:
    """An examination whose pictures are being scored."""

    examination: Examination
    waiting: int
    problems: list[str] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    failed: bool = False

    def finish(self) -> Scored:
        # Of equal scores the first by name: the same picture decides every time.
        best = max(sorted(self.scores), key=self.scores.__getitem__, default=None)
        problems = (*self.examination.problems, *sorted(self.problems))
        score = None if best is None else self.scores[best]
        return Scored(self.examination.case_id, score, best, problems, self.failed)


def triage(
    source: Path,
    model: Path,
    out: Path,
    settings: TriageSettings,
    *,
    manifest: Path | None = None,
    on_start: Callable[[int, int], None] = lambda _examinations, _resumed: None,
    advance: Callable[[], None] = lambda: None,
) -> Triage:
    """Score the examinations of a folder (or manifest) with a model and write the worklist.

    An examination with any failed, missing or unexpected image is never dismissed. Interrupted, the next
    start with the same model goes on after the last finished examination.
    """
    stored = read_model(model)
    if out.is_dir():
        raise InputError(f"{out}: expected the name of a file for the worklist, found a folder")
    device = choose_device(stored, settings.device)
    images = ImageSettings()
    scorer = load_scorer(stored, choose_weights(stored, settings.weights), device, images)
    found, remarks = find_examinations(source, manifest)
    examinations = [with_problems(item, settings.required) for item in found]
    identity = {
        "model": stored.sha256,
        "weights": stored.model.fingerprint.weights_sha256,
        "required": list(settings.required),
        "device": device,
        "threads": torch.get_num_threads(),  # their number moves the last bits of features
    }
    with Journal(out, identity) as journal:
        scored = {item.case_id: journal.finished(item) for item in examinations}
        todo = [item for item in examinations if scored[item.case_id] is None]
        resumed = len(examinations) - len(todo)
        on_start(len(examinations), resumed)
        for item, result in _score(todo, scorer, images, settings.workers):
            journal.enter(item, result)
            scored[result.case_id] = result
            advance()
        finished = [result for result in scored.values() if result is not None]
        rows = [
            decide(one, stored.model, stored.sha256, uncertified=settings.uncertified) for one in finished
        ]
        kept = write_keeping(out, worklist_bytes(rows))
        journal.discard()
    drift = compare_scores(_scores(rows), stored.model.reference)
    return Triage(
        out,
        tuple(rows),
        sum(one.failed for one in finished),
        drift,
        (*remarks, *drift_warnings(drift)),
        resumed,
        kept,
    )


def find_examinations(source: Path, manifest: Path | None) -> tuple[list[Examination], tuple[str, ...]]:
    """Return the examinations of a folder, of a manifest, or of a manifest of files in a folder."""
    if manifest is not None:
        return list_examinations(manifest, source), ()
    if source.suffix.lower() == ".csv" and not source.is_dir():
        return list_examinations(source), ()
    scan = scan_folder(source)
    if not scan.passed_over:
        return list(scan.examinations), ()
    return list(scan.examinations), (f"{scan.passed_over} files of {source} are no images: passed over",)


def _score(
    examinations: Sequence[Examination], scorer: PictureScorer, images: ImageSettings, workers: int
) -> Iterable[tuple[Examination, Scored]]:
    """Yield every examination with its scores as soon as its last picture has one."""
    under_way = [_begin(item) for item in examinations]
    for state in under_way:
        if not state.waiting:
            yield state.examination, state.finish()
    tasks = [
        Task(number, picture)
        for number, item in enumerate(examinations)
        for picture in item.pictures
        if _can_be_decoded(picture.problem, picture.laterality)
    ]
    if not tasks:
        return
    for outcome in run_items(partial(prepare, settings=images), tasks, min(workers, len(tasks))):
        state, picture = under_way[outcome.item.examination], outcome.item.picture
        try:
            if outcome.value is None:
                raise ImageError("decode", failure_of(outcome))
            state.problems += [f"image {picture.image_id}: {text}" for text in outcome.value.warnings]
            score = scorer.score(picture, outcome.value)
            state.scores[picture.image_id] = max(score, state.scores.get(picture.image_id, score))
        except ImageError as error:
            reason = error.reason if outcome.value is None else str(error)
            state.problems.append(f"image {picture.image_id}: {reason}")
            state.failed = True
        state.waiting -= 1
        if not state.waiting:
            yield state.examination, state.finish()


def _begin(examination: Examination) -> _UnderWay:
    usable = [_can_be_decoded(picture.problem, picture.laterality) for picture in examination.pictures]
    return _UnderWay(examination, sum(usable), failed=not all(usable))


def _can_be_decoded(problem: str | None, laterality: str | None) -> bool:
    return problem is None and laterality is not None  # a right breast must be mirrored


def _scores(rows: Sequence[WorklistRow]) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.array([row.score for row in rows if row.complete and row.score is not None], dtype=np.float64)
