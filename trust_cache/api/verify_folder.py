"""Verify any folder that a command wrote, and what it was made from as far as that can be found.

A run names its cache, and a cache the manifest of its pictures: `verify_folder` follows them from the given
folder to the pictures. What is not there any more is said, not counted as a mismatch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trust_cache.base.errors import InputError
from trust_cache.base.places import is_url
from trust_cache.cache.cache_reader import Cache, open_cache
from trust_cache.cache.extract.extraction_record import read_record
from trust_cache.cache.verify_cache import verify_cache
from trust_cache.certificate.certified_folder import POINTS, SPLIT
from trust_cache.certificate.evidence import Options, gather
from trust_cache.certificate.verify import verify
from trust_cache.clinic.model_folder import RECORD as MODEL
from trust_cache.clinic.model_folder import read_model
from trust_cache.clinic.worklist import read_worklist
from trust_cache.heads.run_folder import RECORD as RUN
from trust_cache.heads.run_folder import SCORES, RunFolder
from trust_cache.images.picture_folder import RECORD as PICTURES
from trust_cache.images.picture_folder import expected_pictures, folder_of, picture_problems
from trust_cache.studies.compare.compare_folder import COMPARE, changed_files, read_comparison
from trust_cache.studies.sweep.sweep_folder import NAME as SWEEP
from trust_cache.studies.sweep.sweep_folder import read_sweep

_SHOWN = 20  # pictures of a cache that are named


@dataclass(frozen=True)
class ChainLink:
    """One folder of the chain: what does not fit, and what could not be compared."""

    kind: str  # pictures, cache, run, certified, sweep, compare, model or worklist
    place: str
    mismatches: tuple[str, ...]
    notes: tuple[str, ...] = ()


def verify_folder(
    place: Path | str, scores: Path | None = None, columns: Mapping[str, str] | None = None
) -> tuple[ChainLink, ...]:
    """Compare a folder with its records, then what it was made from; the first link is the folder itself.

    `scores` are those of a certified folder, which does not record their place; `columns` are names of their
    columns that differ from the folder's.
    """
    kind = _kind(str(place))
    if scores is not None and kind != "certified":
        raise InputError(f"{place}: expected --scores for a certificate or a certified folder only")
    if kind == "certified":
        return (_certified(Path(place), scores, columns or {}),)
    return tuple(_WALKS[kind](str(place)))


def _kind(place: str) -> str:
    path = Path(place)
    if is_url(place) or path.suffix in (".zarr", ".h5"):
        return "cache"
    signs = {
        "pictures": PICTURES, "model": MODEL, "certified": POINTS, "sweep": SWEEP, "compare": COMPARE,
        "run": SCORES,
    }  # fmt: skip
    for kind, sign in signs.items():
        if (path / sign).is_file():
            return kind
    if (path / "zarr.json").is_file():
        return "cache"
    if path.is_file() and path.suffix == ".csv":
        return "worklist"
    raise InputError(
        f"{place}: expected a certificate, a cache, a worklist, or a folder of preprocess, fit-heads,"
        " certify, sweep, compare or export-model, found none of them"
    )


def _attempt(act: Callable[[], object]) -> tuple[str, ...]:
    """Return the sentence of the error that an act ends with, if any."""
    try:
        act()
    except InputError as error:
        return (str(error),)
    return ()


def _walk_pictures(place: str) -> Iterator[ChainLink]:
    yield ChainLink("pictures", place, tuple(picture_problems(place)))


def _walk_cache(place: str, expected: str | None = None) -> Iterator[ChainLink]:
    """Yield a cache, then its pictures; `expected` is the content that a run was made from."""
    problems = [problem.sentence for problem in verify_cache(place)]
    if problems:
        yield ChainLink("cache", place, tuple(problems))
        return
    cache = open_cache(place)
    if expected not in (None, cache.content_sha256):
        problems.append(f"{place}: has other content than the run was made from; train the run again")
    record = read_record(place)
    manifest = "" if record is None else record.manifest
    try:
        recorded = expected_pictures(manifest) if manifest and _is_there(manifest) else None
    except InputError as error:
        problems.append(str(error))
        recorded = None
    if recorded is None:
        note = f"{place}: its pictures have no record that can be found: not compared"
        yield ChainLink("cache", place, tuple(problems), (note,))
        return
    problems += _other_pictures(cache, recorded, manifest)
    yield ChainLink("cache", place, tuple(problems))
    yield from _walk_pictures(folder_of(manifest))


def _is_there(manifest: str) -> bool:
    return is_url(manifest) or Path(manifest).is_file()


def _other_pictures(cache: Cache, recorded: dict[str, str], manifest: str) -> list[str]:
    ids, present = cache.manifest["image_id"].to_list(), cache.done
    wrong = [
        image
        for image, digest, has in zip(ids, cache.pictures, present, strict=True)
        if has and digest.tobytes().hex() != recorded.get(image)
    ]
    more = [f"... and {len(wrong) - _SHOWN:,} more"] if len(wrong) > _SHOWN else []
    return [
        f"{cache.source}: image {image}: its features were made from another picture than {manifest} has"
        for image in wrong[:_SHOWN]
    ] + more


def _walk_run(place: str) -> Iterator[ChainLink]:
    run = RunFolder(Path(place))
    if not run.has(RUN):
        note = f"{place}: has no {RUN}: there is nothing to compare its scores with"
        yield ChainLink("run", place, (), (note,))
        return
    problems = run.problems()
    if problems:
        yield ChainLink("run", place, tuple(problems))
        return
    record = run.record
    caches = [(record.cache, record.content_sha256)]
    if record.test is not None and record.test_cache is not None:
        caches.append((record.test_cache, record.test.content_sha256))
    there = [item for item in caches if is_url(item[0]) or Path(item[0]).exists()]
    gone = [f"{cache}: not there: not compared" for cache, _ in caches if (cache, _) not in there]
    yield ChainLink("run", place, (), tuple(gone))
    for cache, content in there:
        yield from _walk_cache(cache, content)


def _certified(folder: Path, scores: Path | None, columns: Mapping[str, str]) -> ChainLink:
    """Recompute every certificate of a folder."""
    if scores is None:
        note = f"{folder}: give the run or the scores with --scores to recompute its certificates"
        return ChainLink("certified", str(folder), (), (note,))
    problems = _attempt(lambda: gather([scores], Options(columns=columns), [folder]))
    return ChainLink("certified", str(folder), problems)


def _walk_sweep(place: str) -> Iterator[ChainLink]:
    folder, problems = Path(place), []
    try:
        for winner in read_sweep(folder).winners.values():
            found = verify(folder / winner.certificate, folder / winner.scores, folder / SPLIT)
            problems += [f"{found.certificate}: {item}" for item in found.disagreements]
    except InputError as error:
        problems.append(str(error))
    yield ChainLink("sweep", place, tuple(problems))


def _walk_compare(place: str) -> Iterator[ChainLink]:
    folder = Path(place)
    problems = _attempt(lambda: read_comparison(folder)) or tuple(changed_files(folder))
    yield ChainLink("compare", place, problems)


def _walk_model(place: str) -> Iterator[ChainLink]:
    yield ChainLink("model", place, _attempt(lambda: read_model(Path(place))))


def _walk_worklist(place: str) -> Iterator[ChainLink]:
    note = f"{place}: every row is one that triage writes; a worklist has no digest of its own"
    yield ChainLink("worklist", place, _attempt(lambda: read_worklist(Path(place))), (note,))


_WALKS: dict[str, Callable[[str], Iterator[ChainLink]]] = {
    "pictures": _walk_pictures,
    "cache": _walk_cache,
    "run": _walk_run,
    "sweep": _walk_sweep,
    "compare": _walk_compare,
    "model": _walk_model,
    "worklist": _walk_worklist,
}
