"""Triage: score the cases of a folder or manifest with a model and write the worklist."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError, check_fraction
from trust_cache.base.executor import ItemOutcome, LocalWorkers, run_items, start_workers, wait_for
from trust_cache.clinic.incoming_cases import count_files, find_incoming, unlisted_files
from trust_cache.clinic.model_folder import Model, StoredModel, read_model, recipe_of
from trust_cache.clinic.monitoring.drift import Drift
from trust_cache.clinic.monitoring.triage_watch import TriageWatch
from trust_cache.clinic.picture_preparation import PreparedPicture, Task, failure_of, prepare
from trust_cache.clinic.triage_journal import Journal, JournalIdentity, places_of_journal
from trust_cache.clinic.worklist import ScoredCase, WorklistRow, decide, record_of, write_worklist
from trust_cache.encoders.known_runtimes import AUTO
from trust_cache.images.folders.folder_cases import IncomingCase, IncomingImage
from trust_cache.images.folders.folder_scan import FolderCounts
from trust_cache.images.image_failures import ImageError, with_advice
from trust_cache.images.picture_folder import ImageSettings
from trust_cache.manifest.cases import Aggregation, case_problems, deciding_image, score_case
from trust_cache.manifest.picture_checks import same_pictures
from trust_cache.manifest.protocol import Protocol

if TYPE_CHECKING:
    from trust_cache.clinic.triage_scoring import EncoderPlan, ModelEncoder, PictureScore

_AT_ONCE = 0.02  # seconds


@dataclass(frozen=True)
class TriageSettings:
    """How to triage, besides the model."""

    weights: str | None = None  # None: random ones, if the model's are
    uncertified: bool = False  # dismiss without a certificate; every row says so
    device: str = "auto"
    runtime: str = AUTO
    workers: int | None = None  # decoding processes; None: all cores but one, which encodes
    audit: float | None = None  # the share of dismissed cases that is read anyway
    audit_key: Path | None = None  # None: beside the model folder; made if it is missing
    expired: bool = False  # apply a model after its last day; every row says so
    history: Path | None = None  # None: beside the model folder

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers: expected 1 or more, found {self.workers}")
        if self.audit is not None:
            check_fraction("audit", self.audit)

    @property
    def most_workers(self) -> int:
        """The largest number of decoding processes."""
        return self.workers or max(1, (os.cpu_count() or 1) - 1)


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
    today: date | None = None,
    on_start: Callable[[int, int], None] = lambda _cases, _resumed: None,
    advance: Callable[[], None] = lambda: None,
) -> Triage:
    """Score the cases of a folder (or manifest) with a model and write the worklist.

    A case that does not fulfil the model's protocol is never dismissed. After an interruption, the next
    start with the same model resumes after the last finished case.
    """
    stored = read_model(model)
    recipe_of(stored)  # a model without an encoder is refused before anything else
    _refuse_out(out, source, manifest, model)
    watch = TriageWatch.open(
        stored,
        share=settings.audit,
        key=settings.audit_key,
        history=settings.history,
        expired=settings.expired,
        today=today,
    )
    images, own = ImageSettings(), (out, record_of(out), *places_of_journal(out))
    count = count_files(manifest or source, settings.most_workers)
    # While other processes read headers and get ready, this one imports torch and loads the encoder.
    with _threads(2) as beside, start_workers(count, prepare.__module__) as workers:
        finding = beside.submit(find_incoming, source, manifest, own, workers)
        with suppress(TimeoutError):
            finding.result(timeout=_AT_ONCE)  # a wrong path is refused before torch is imported
        plan = _plan(stored, settings, images)
        loading = beside.submit(plan.load)
        incoming = wait_for(finding)
        with Journal(out, _identity(stored, plan)) as journal:
            finished = {case.case_id: done for case in incoming.cases if (done := journal.finished(case))}
            on_start(len(incoming.cases), len(finished))
            todo = [case for case in incoming.cases if case.case_id not in finished]
            resumed = len(finished)
            for case, scored in _score_cases(todo, loading, images, workers, stored.model, journal):
                finished[case.case_id] = scored
                advance()
            ordered = _compared([finished[case.case_id] for case in incoming.cases], stored.model.protocol)
            rows = watch.mark(
                [decide(scored, stored, uncertified=settings.uncertified) for scored in ordered]
            )
            encoder = wait_for(loading)
            kept = write_worklist(out, rows, runtime=plan.runtime, probe_difference=encoder.probe_difference)
            drift, warnings = watch.record(rows, out)
            journal.discard()
    if manifest is not None:
        warnings = (*unlisted_files(source, incoming, (manifest, *own)), *warnings)
    failed = sum(scored.failed for scored in ordered)
    return Triage(out, rows, failed, drift, warnings, resumed, kept, incoming.counts)


def _refuse_out(out: Path, source: Path, manifest: Path | None, model: Path) -> None:
    """Refuse a place for the worklist that is a folder, an input, or inside the model."""
    if out.is_dir():
        raise InputError(f"{out}: expected the name of a file for the worklist, found a folder")
    place = out.resolve()
    if place in {path.resolve() for path in (source, manifest) if path is not None}:
        raise InputError(f"{out}: is the list of cases to triage; choose another name for the worklist")
    if model.resolve() in place.parents:
        raise InputError(f"{out}: is inside the model folder; choose another place for the worklist")


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Open a pool of threads; an error does not wait for what they do."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _plan(stored: StoredModel, settings: TriageSettings, images: ImageSettings) -> "EncoderPlan":
    from trust_cache.clinic.triage_scoring import plan_encoder  # noqa: PLC0415 - torch: a second

    return plan_encoder(stored, settings.weights, settings.device, settings.runtime, images)


def _identity(stored: StoredModel, plan: "EncoderPlan") -> JournalIdentity:
    return JournalIdentity(
        model=stored.sha256,
        weights=stored.model.fingerprint.weights_sha256,
        device=plan.device,
        runtime=plan.runtime,
        threads=plan.threads,
    )


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
    aggregation: Aggregation
    waiting: int
    failures: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    warnings: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    scores: dict[str, float] = field(default_factory=dict)
    tails: dict[str, float] = field(default_factory=dict)
    sketches: dict[str, str] = field(default_factory=dict)
    failed: bool = False
    digests: dict[str, str | None] | None = field(default_factory=dict)  # by location; None: not all known

    def read(self, location: str, digest: str | None) -> None:
        """Note the digest of the bytes that were scored; a file that changes meanwhile has none."""
        if self.digests is not None and self.digests.setdefault(location, digest) != digest:
            self.digests = None

    def finish(self) -> ScoredCase:
        best = deciding_image(self.scores, self.aggregation)
        sides = {image.image_id: image.laterality for image in self.case.images}
        images = [
            image.described(
                self.failures[image.image_id], self.warnings[image.image_id], self.tails.get(image.image_id)
            )
            for image in self.case.images
        ]
        problems = (*self.case.problems, *case_problems(images, self.protocol))
        score = score_case(self.scores, sides, self.aggregation)
        return ScoredCase(self.case.case_id, score, best, problems, self.failed, self.sketches)


def _score_cases(
    cases: Sequence[IncomingCase],
    loading: Future["ModelEncoder"],
    images: ImageSettings,
    workers: LocalWorkers,
    model: Model,
    journal: Journal,
) -> Iterator[tuple[IncomingCase, ScoredCase]]:
    """Yield every case as soon as its last image is scored and the journal has it."""

    def score(pixels: NDArray[np.uint16]) -> "PictureScore":
        return wait_for(loading).score(pixels)

    for state in _partly_scored(cases, score, images, workers, model):
        wait_for(loading)  # an encoder that is refused leaves nothing in the journal
        scored = state.finish()
        if state.digests is not None:
            journal.enter(state.case, scored, state.digests)
        yield state.case, scored


def _partly_scored(
    cases: Sequence[IncomingCase],
    score: Callable[[NDArray[np.uint16]], "PictureScore"],
    images: ImageSettings,
    workers: LocalWorkers,
    model: Model,
) -> Iterator[_PartlyScored]:
    """Yield every case as soon as its last image is scored."""
    states = []
    for case in cases:
        waiting = sum(image.decodable for image in case.images)
        failed = waiting < len(case.images)
        states.append(_PartlyScored(case, model.protocol, model.aggregation, waiting, failed=failed))
        if not waiting:
            yield states[-1]
    tasks = [
        Task(number, image) for number, case in enumerate(cases) for image in case.images if image.decodable
    ]
    if not tasks:
        return
    for outcome in run_items(partial(prepare, settings=images), tasks, workers):
        state, image = states[outcome.item.case], outcome.item.picture
        state.waiting -= 1
        state.failed |= not _enter_outcome(state, image, outcome, score)
        if not state.waiting:
            yield state


def _enter_outcome(
    state: _PartlyScored,
    image: IncomingImage,
    outcome: ItemOutcome[Task, PreparedPicture],
    score: Callable[[NDArray[np.uint16]], "PictureScore"],
) -> bool:
    """Score a prepared picture and note what was found; return whether it has a score."""
    name, prepared = image.image_id, outcome.value
    if prepared is None:
        state.digests = None
        state.failures[name].append(with_advice(failure_of(outcome)))
        return False
    state.read(image.location, prepared.digest)
    if prepared.pixels is None:
        state.failures[name].append(with_advice(prepared.failure or ""))
        return False
    state.warnings[name] += prepared.warnings
    state.sketches[name] = prepared.sketch
    try:
        found = score(prepared.pixels)
    except ImageError as error:
        state.failures[name].append(with_advice(str(error)))
        return False
    state.scores[name], state.tails[name] = found.score, found.feature_tail
    return True
