"""Triage: score the cases of a folder or manifest with a model and write the worklist."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import ks_2samp

from trust_cache.base.errors import InputError
from trust_cache.base.executor import run_items
from trust_cache.cache.extract.view_features import load_runner
from trust_cache.clinic.folder_scan import FolderCounts
from trust_cache.clinic.incoming_cases import IncomingCase, find_incoming
from trust_cache.clinic.model_folder import read_model
from trust_cache.clinic.triage_journal import Journal, JournalIdentity, places_of_journal
from trust_cache.clinic.triage_scoring import (
    PictureScore,
    PreparedPicture,
    Task,
    choose_device,
    choose_encoder,
    choose_weights,
    failure_of,
    prepare,
    score_picture,
)
from trust_cache.clinic.worklist import ScoredCase, WorklistRow, decide, write_worklist
from trust_cache.images.image_failures import ImageError
from trust_cache.images.picture_folder import ImageSettings
from trust_cache.images.picture_sketch import same_pictures
from trust_cache.manifest.cases import case_problems, deciding_image
from trust_cache.manifest.protocol import Protocol

FEWEST = 50  # cases on each side; with fewer the test detects only gross differences
LEVEL = 0.01


@dataclass(frozen=True)
class TriageSettings:
    """How to triage, besides the model."""

    weights: str | None = None  # None: random ones, if the model's are
    uncertified: bool = False  # dismiss without a certificate; every row says so
    device: str = "auto"
    workers: int = 1  # decoding processes

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InputError(f"workers: expected 1 or more, found {self.workers}")


@dataclass(frozen=True)
class Drift:
    """Two-sample Kolmogorov-Smirnov test of case scores; None if there are too few."""

    cases: int
    reference: int
    statistic: float | None
    p_value: float | None

    @property
    def differs(self) -> bool:
        """Whether the distributions differ at the level of the test."""
        return self.p_value is not None and self.p_value < LEVEL

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning if the distributions differ."""
        if not self.differs:
            return ()
        return (
            f"the scores of these {self.cases:,} cases are distributed differently from those of the"
            f" {self.reference:,} evaluation cases (Kolmogorov-Smirnov distance {self.statistic:.3f}, p ="
            f" {self.p_value:.2g}). The machines, the population or the export of images may differ. The"
            " bound applies only to cases like the evaluation cases",
        )


@dataclass(frozen=True)
class Triage:
    """The result of a triage, as written to the worklist."""

    out: Path
    rows: tuple[WorklistRow, ...]
    failed: int  # cases with an image that could not be scored
    drift: Drift
    warnings: tuple[str, ...]
    resumed: int  # cases that an earlier start had finished
    kept: Path | None  # where an earlier worklist in this place was moved
    counts: FolderCounts | None = None  # how the folder's entries were accounted for; None for a manifest


def triage(
    source: Path,
    model: Path,
    out: Path,
    settings: TriageSettings,
    *,
    manifest: Path | None = None,
    on_start: Callable[[int, int], None] = lambda _cases, _resumed: None,
    advance: Callable[[], None] = lambda: None,
) -> Triage:
    """Score the cases of a folder (or manifest) with a model and write the worklist.

    A case that does not fulfil the model's protocol is never dismissed. After an interruption, the next
    start with the same model resumes after the last finished case.
    """
    stored = read_model(model)
    if out.is_dir():
        raise InputError(f"{out}: expected the name of a file for the worklist, found a folder")
    device = choose_device(stored, settings.device)
    images = ImageSettings()
    encoder = choose_encoder(stored, choose_weights(stored, settings.weights), device, images)
    score = partial(score_picture, load_runner(encoder, device, compiled=False), stored.model)
    incoming = find_incoming(source, manifest, (out, *places_of_journal(out)))
    identity = JournalIdentity(
        model=stored.sha256,
        weights=stored.model.fingerprint.weights_sha256,
        device=device,
        threads=torch.get_num_threads(),
    )
    with Journal(out, identity) as journal:
        finished = {case.case_id: done for case in incoming.cases if (done := journal.finished(case))}
        todo = [case for case in incoming.cases if case.case_id not in finished]
        resumed = len(finished)
        on_start(len(incoming.cases), resumed)
        for case, scored in _score_cases(todo, score, images, settings.workers, stored.model.protocol):
            journal.enter(case, scored)
            finished[case.case_id] = scored
            advance()
        ordered = _compared([finished[case.case_id] for case in incoming.cases], stored.model.protocol)
        rows = tuple(decide(scored, stored, uncertified=settings.uncertified) for scored in ordered)
        kept = write_worklist(out, rows)
        journal.discard()
    complete = np.array([row.score for row in rows if row.complete], dtype=np.float64)
    drift = compare_scores(complete, stored.model.reference)
    failed = sum(scored.failed for scored in ordered)
    return Triage(out, rows, failed, drift, drift.warnings, resumed, kept, incoming.counts)


def compare_scores(scores: NDArray[np.float64], reference: NDArray[np.float64]) -> Drift:
    """Compare the scores of new cases with those of the evaluation cases."""
    if min(scores.size, reference.size) < FEWEST:
        return Drift(scores.size, reference.size, None, None)
    # Asymptotic: the exact p-value fails for some sizes, and at these sizes both agree.
    found = ks_2samp(scores, reference, method="asymp")
    return Drift(scores.size, reference.size, float(found.statistic), float(found.pvalue))


def _compared(cases: Sequence[ScoredCase], protocol: Protocol) -> list[ScoredCase]:
    """Add to the problems of each case that it has a picture which it or another case has too."""
    sketches = {image: (case.case_id, sketch) for case in cases for image, sketch in case.sketches.items()}
    problems: dict[str, list[str]] = defaultdict(list)
    for image, text in same_pictures(sketches).items():
        if protocol.stops(text):
            problems[sketches[image][0]].append(f"image {image}: {text}")
    return [replace(case, problems=(*case.problems, *problems[case.case_id])) for case in cases]


@dataclass
class _PartlyScored:
    """A case whose images are being scored."""

    case: IncomingCase
    protocol: Protocol
    waiting: int
    failures: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    warnings: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    scores: dict[str, float] = field(default_factory=dict)
    tails: dict[str, float] = field(default_factory=dict)
    sketches: dict[str, str] = field(default_factory=dict)
    failed: bool = False

    def finish(self) -> ScoredCase:
        best = deciding_image(self.scores)
        images = [
            image.described(
                self.failures[image.image_id], self.warnings[image.image_id], self.tails.get(image.image_id)
            )
            for image in self.case.images
        ]
        problems = (*self.case.problems, *case_problems(images, self.protocol))
        score = None if best is None else self.scores[best]
        return ScoredCase(self.case.case_id, score, best, problems, self.failed, self.sketches)


def _score_cases(
    cases: Sequence[IncomingCase],
    score: Callable[[PreparedPicture], PictureScore],
    images: ImageSettings,
    workers: int,
    protocol: Protocol,
) -> Iterator[tuple[IncomingCase, ScoredCase]]:
    """Yield every case with its score as soon as its last image is scored."""
    states = []
    for case in cases:
        waiting = sum(image.decodable for image in case.images)
        states.append(_PartlyScored(case, protocol, waiting, failed=waiting < len(case.images)))
        if not waiting:
            yield case, states[-1].finish()
    tasks = [
        Task(number, image) for number, case in enumerate(cases) for image in case.images if image.decodable
    ]
    if not tasks:
        return
    for outcome in run_items(partial(prepare, settings=images), tasks, min(workers, len(tasks))):
        state, name = states[outcome.item.case], outcome.item.picture.image_id
        found = None
        if outcome.value is None:
            state.failures[name].append(failure_of(outcome))
        else:
            state.warnings[name] += outcome.value.warnings
            state.sketches[name] = outcome.value.sketch
            try:
                found = score(outcome.value)
                state.scores[name] = found.score
                state.tails[name] = found.feature_tail
            except ImageError as error:
                state.failures[name].append(str(error))
        state.failed |= found is None
        state.waiting -= 1
        if not state.waiting:
            yield state.case, state.finish()
