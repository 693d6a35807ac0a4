"""Verify any artefact of a command, and what it was made from as far as that can be found.

A certified folder names its run, a run its cache, and a cache the manifest of its pictures: `verify_folder`
follows them from the given place to the pictures. What is not there any more is said, not counted as a
mismatch.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from trust_cache.api.result import Result
from trust_cache.base.digests import changed_files
from trust_cache.base.errors import InputError
from trust_cache.base.places import is_url
from trust_cache.cache.cache_reader import Cache, open_cache, read_examined, read_failures
from trust_cache.cache.extract.extraction_record import EXTERNAL, read_record
from trust_cache.cache.verify_cache import verify_cache
from trust_cache.certificate.attempts import LOG_ENDING, log_file, read_attempts
from trust_cache.certificate.certified_folder import POINTS
from trust_cache.certificate.evidence import INSIDE
from trust_cache.certificate.recertify import verify_certified
from trust_cache.certificate.verify import Verification
from trust_cache.certificate.verify import verify as verify_certificate
from trust_cache.clinic.certify_model import scored_by_problems
from trust_cache.clinic.model_folder import RECORD as MODEL
from trust_cache.clinic.model_folder import read_model
from trust_cache.clinic.monitoring.model_history import read_history
from trust_cache.clinic.worklist import read_worklist, record_of
from trust_cache.heads.run_folder import RECORD as RUN
from trust_cache.heads.run_folder import SCORES, RunFolder
from trust_cache.images.examined_table import EXAMINED
from trust_cache.images.image_bytes import image_digest
from trust_cache.images.image_failures import ImageError
from trust_cache.images.picture_folder import RECORD as PICTURES
from trust_cache.images.picture_folder import expected_pictures, folder_of, picture_problems
from trust_cache.manifest.manifest_file import read_manifest
from trust_cache.studies.compare.compare_folder import COMPARE, comparison_problems
from trust_cache.studies.rivals.rivals_folder import RIVALS, rivals_problems
from trust_cache.studies.sweep.sweep_choice import verify_winners
from trust_cache.studies.sweep.sweep_folder import NAME as SWEEP
from trust_cache.studies.sweep.sweep_folder import read_document

CERTIFICATE = "certificate"
_CACHES = (".zarr", ".h5")
_SHOWN = 20  # images of a cache that are named


@dataclass(frozen=True)
class ChainLink:
    """One artefact of the chain: what does not fit, and what could not be compared."""

    kind: str  # a key of _WALKS
    place: str
    mismatches: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class VerifyResult(Result):
    """What was compared, link by link; for a certificate also the disagreement of each field."""

    links: tuple[ChainLink, ...]
    verification: Verification | None = None

    @property
    def holds(self) -> bool:
        """Whether everything agrees."""
        return not any(link.mismatches for link in self.links)

    def to_polars(self) -> pl.DataFrame:
        """Return one row per mismatch."""
        rows = [(link.kind, link.place, text) for link in self.links for text in link.mismatches]
        names = dict.fromkeys(("kind", "place", "mismatch"), pl.String)
        return pl.DataFrame(rows, schema=names, orient="row")

    def _lines(self) -> Iterator[str]:
        yield "Everything agrees" if self.holds else "Not everything agrees"
        for link in self.links:
            yield f"{link.place} ({link.kind}): {len(link.mismatches) or 'no'} mismatches"
            yield from link.mismatches


def verify(
    artefact: Path | str,
    scores: Path | str | None = None,
    split: Path | str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
) -> VerifyResult:
    """Recompute a certificate from its scores and split, or compare an artefact with its records.

    `artefact` is a file of certificates/, or any folder, cache or worklist that a command wrote. A certified
    folder is followed to its run, a run to its cache, and a cache to its pictures. A certificate needs its
    `scores`; `columns` are names of their columns (keys: case, label, score, patient, and positive) where
    they differ from those that `certify` was given.

    Examples:
        >>> import trust_cache as tc
        >>> cache = tc.simulate("nlbs", "followed.zarr", cases=300, views=1)
        >>> run = tc.fit_heads(cache, "followed", configurations=["ce"], epochs=2)
        >>> tc.verify("followed").holds
        True
    """
    place, given = Path(artefact), None if scores is None else Path(scores)
    if kind_of(str(artefact)) != CERTIFICATE:
        if split is not None:
            raise InputError(f"{artefact}: expected --split for a certificate only")
        return VerifyResult(verify_folder(artefact, given, columns))
    if given is None:
        raise InputError(f"{place}: expected the scores that it certifies; give them with --scores")
    found = verify_certificate(place, given, None if split is None else Path(split), columns=columns)
    mismatches = tuple(map(str, found.disagreements))
    return VerifyResult((ChainLink("certificate", str(place), mismatches),), found)


def verify_folder(
    place: Path | str, scores: Path | None = None, columns: Mapping[str, str] | None = None
) -> tuple[ChainLink, ...]:
    """Compare an artefact with its records, then what it was made from; the first link is the artefact.

    `scores` are those of a certified folder that was moved away from them; `columns` are names of
    their columns that differ from the folder's.
    """
    kind = kind_of(str(place))
    if scores is not None and kind != "certified":
        raise InputError(f"{place}: expected --scores for a certificate or a certified folder only")
    if kind == "certified":
        return tuple(_walk_certified(str(place), scores, columns))
    if kind not in _WALKS:
        raise InputError(f"{place}: a certificate is verified by its scores; give them with --scores")
    return tuple(_WALKS[kind](str(place)))


def kind_of(place: str) -> str:
    """Tell what a command wrote to a place: a key of _WALKS, `certified` or `certificate`."""
    path = Path(place)
    if is_url(place) or path.suffix in _CACHES or (path / "zarr.json").is_file():
        return "cache"
    signs = {
        "pictures": PICTURES, "model": MODEL, "certified": POINTS, "sweep": SWEEP, "compare": COMPARE,
        "rivals": RIVALS, "run": RUN,
    }  # fmt: skip
    for kind, sign in (signs | {"scores": SCORES}).items():
        if (path / sign).is_file():
            return kind
    if path.is_file() and path.suffix == ".csv":
        return "worklist"
    if path.is_file() and path.suffix == ".jsonl":
        return "history"
    if path.is_file() and path.suffix == ".json":
        return "attempts" if path.name.endswith(LOG_ENDING) else CERTIFICATE
    raise InputError(
        f"{place}: expected a certificate, a cache, a worklist, the history of a model, or a folder of"
        " preprocess, fit-heads, external, certify, sweep, rivals, compare or export-model, found"
        f" {'none of them' if path.exists() else 'nothing there'}"
    )


def _attempt(act: Callable[[], object]) -> tuple[str, ...]:
    """Return the sentence of the error that an act ends with, if any."""
    try:
        act()
    except InputError as error:
        return (str(error),)
    return ()


def _log_problems(certified: str) -> tuple[str, ...]:
    """Return what is wrong with the log of attempts beside what was certified; nothing without a log."""
    return _attempt(lambda: read_attempts(log_file(Path(certified))))


def _walk_pictures(place: str) -> Iterator[ChainLink]:
    yield ChainLink("pictures", place, tuple(picture_problems(place)))


def _walk_cache(place: str, expected: str | None = None) -> Iterator[ChainLink]:
    """Yield a cache, then its pictures; `expected` is the content that a run was made from."""
    problems = [problem.sentence for problem in verify_cache(place)]
    if problems:
        yield ChainLink("cache", place, tuple(problems))
        return
    cache, record, manifest, recorded = open_cache(place), None, "", None
    if expected not in (None, cache.content_sha256):
        problems.append(f"{place}: has other content than the run was made from; train the run again")
    try:
        problems += _other_failures(cache)
        record = read_record(place)
        if record is not None and (record.dicoms or cache.fingerprint.preprocessing == EXTERNAL):
            problems += _lost_examined(cache)
        manifest = "" if record is None else record.manifest
        recorded = expected_pictures(manifest) if manifest and _is_there(manifest) else None
    except InputError as error:
        problems.append(str(error))
    if record is not None and record.dicoms and not problems and _is_there(manifest):
        others, gone = _other_dicoms(cache, manifest)
        notes = (f"{place}: {gone:,} of its DICOM files are not there: not compared",) if gone else ()
        yield ChainLink("cache", place, tuple(others), notes)
        return
    if recorded is None:
        note = f"{place}: its pictures have no record that can be found: not compared"
        yield ChainLink("cache", place, tuple(problems), (note,))
        return
    problems += _other_pictures(cache, recorded, manifest)
    yield ChainLink("cache", place, tuple(problems))
    yield from _walk_pictures(folder_of(manifest))


def _is_there(manifest: str) -> bool:
    return is_url(manifest) or Path(manifest).is_file()


def _other_failures(cache: Cache) -> list[str]:
    """Name images in failures.csv that have features; a copy of a cache may lack the table."""
    with_features = set(cache.image_ids(cache.done))
    listed = [row.image_id for row in read_failures(cache.source) if row.image_id in with_features]
    return _first(f"{cache.source}: image {image}: in failures.csv, but it has features" for image in listed)


def _lost_examined(cache: Cache) -> list[str]:
    """Say that the table of what was found in pictures is lost; `verify_cache` compares its rows."""
    if read_examined(cache.source) is not None or not cache.done.any():
        return []
    return [
        f"{cache.source}: {EXAMINED} is lost, which has what was found in its pictures; run the same extract"
        " again, which examines them"
    ]


def _other_pictures(cache: Cache, recorded: dict[str, str], manifest: str) -> list[str]:
    rows = zip(cache.manifest["image_id"].to_list(), cache.pictures, cache.done, strict=True)
    return _first(
        f"{cache.source}: image {image}: its features were made from another picture than {manifest} has"
        for image, digest, has in rows
        if has and digest.tobytes().hex() != recorded.get(image)
    )


def _other_dicoms(cache: Cache, manifest: str) -> tuple[list[str], int]:
    """Name images whose DICOM file is not the one that their features were made from; count missing ones."""
    locations = {image.image_id: image.location for image in read_manifest(manifest).images()}
    others, gone = [], 0
    for image, digest, has in zip(cache.manifest["image_id"], cache.pictures, cache.done, strict=True):
        try:
            if has and image_digest(locations.get(image) or "") != digest.tobytes().hex():
                others.append(
                    f"{cache.source}: image {image}: its features were made from another DICOM file"
                )
        except ImageError:
            gone += 1
    return _first(others), gone


def _first(sentences: Iterable[str]) -> list[str]:
    """Return the first sentences, and how many more there are."""
    found = list(sentences)
    return found[:_SHOWN] + ([f"... and {len(found) - _SHOWN:,} more"] if len(found) > _SHOWN else [])


def _walk_scores(place: str) -> Iterator[ChainLink]:
    note = f"{place}: has no {RUN}: there is nothing to compare its scores with"
    yield ChainLink("scores", place, (), (note,))


def _walk_run(place: str) -> Iterator[ChainLink]:
    """Yield a run, the certified folder inside an external one, and its caches."""
    run, inside = RunFolder(Path(place)), Path(place) / INSIDE
    problems = (*run.problems(), *_log_problems(place))
    if problems:
        yield ChainLink("run", place, problems)
        return
    record = run.record
    caches = [(record.cache, record.content_sha256)]
    if record.test is not None and record.test_cache is not None:
        caches.append((record.test_cache, record.test.content_sha256))
    there = [item for item in caches if is_url(item[0]) or Path(item[0]).exists()]
    gone = [f"{item[0]}: not there: not compared" for item in caches if item not in there]
    yield ChainLink("run", place, (), tuple(gone))
    if (inside / POINTS).is_file():
        yield _certified(str(inside), None, None)
    for cache, content in there:
        yield from _walk_cache(cache, content)


def _walk_certified(
    place: str, scores: Path | None, columns: Mapping[str, str] | None
) -> Iterator[ChainLink]:
    """Yield a certified folder, then the run of its scores."""
    link = _certified(place, scores, columns)
    yield link
    if scores is not None and (scores / RUN).is_file() and not link.mismatches:
        yield from _walk_run(str(scores))


def _certified(place: str, scores: Path | None, columns: Mapping[str, str] | None) -> ChainLink:
    try:
        found = verify_certified(Path(place), scores, columns=columns)
    except InputError as error:
        return ChainLink("certified", place, (str(error),))
    problems = (*(() if found.problem is None else (found.problem,)), *scored_by_problems(Path(place)))
    note = (
        f"{place}: its {found.certificates} certificates follow from their own counts; give the run or the"
        " scores with --scores to recompute the counts too"
    )
    return ChainLink("certified", place, problems, (note,) if found.scores is None and not problems else ())


def _walk_sweep(place: str) -> Iterator[ChainLink]:
    folder = Path(place)
    try:
        problems = changed_files(folder, read_document(folder).files, "run the same sweep again")
    except InputError as error:
        problems = [str(error)]
    yield ChainLink("sweep", place, tuple(problems) or _attempt(lambda: verify_winners(folder)))


def _walk_compare(place: str) -> Iterator[ChainLink]:
    yield ChainLink("compare", place, tuple(comparison_problems(Path(place))))


def _walk_rivals(place: str) -> Iterator[ChainLink]:
    yield ChainLink("rivals", place, tuple(rivals_problems(Path(place))))


def _walk_model(place: str) -> Iterator[ChainLink]:
    problems = _attempt(lambda: read_model(Path(place)))
    yield ChainLink("model", place, (*problems, *_log_problems(place)))


def _walk_worklist(place: str) -> Iterator[ChainLink]:
    record = record_of(Path(place))
    note = f"{record}: not there: every row is one that triage writes, but none was compared"
    notes = () if record.is_file() else (note,)
    yield ChainLink("worklist", place, _attempt(lambda: read_worklist(Path(place))), notes)


def _walk_history(place: str) -> Iterator[ChainLink]:
    yield ChainLink("history", place, _attempt(lambda: read_history(Path(place))))


def _walk_attempts(place: str) -> Iterator[ChainLink]:
    yield ChainLink("attempts", place, _attempt(lambda: read_attempts(Path(place))))


_WALKS: dict[str, Callable[[str], Iterator[ChainLink]]] = {
    "pictures": _walk_pictures,
    "cache": _walk_cache,
    "run": _walk_run,
    "scores": _walk_scores,
    "sweep": _walk_sweep,
    "compare": _walk_compare,
    "rivals": _walk_rivals,
    "model": _walk_model,
    "worklist": _walk_worklist,
    "history": _walk_history,
    "attempts": _walk_attempts,
}
