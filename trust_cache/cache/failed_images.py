"""The failed images of a cache: failures.csv with their reasons, and the warning about their cases."""

from collections.abc import Iterable

from trust_cache.base.places import read_bytes, write_bytes
from trust_cache.cache.cache_reader import Cache
from trust_cache.cache.known_stores import Source, companion
from trust_cache.images.image_failures import FAILURES, Failure, failures_bytes, parse_failures
from trust_cache.manifest.cases import count_incomplete


def read_failures(cache: Source) -> tuple[Failure, ...]:
    """Read failures.csv of a cache; empty if there is none."""
    try:
        return parse_failures(read_bytes(failures_place(cache)))
    except FileNotFoundError:
        return ()


def write_failures(cache: Source, failures: Iterable[Failure]) -> None:
    """Replace failures.csv of a cache."""
    write_bytes(failures_place(cache), failures_bytes(failures))


def failures_place(cache: Source) -> str:
    """Return the path or URL of failures.csv."""
    return companion(cache, FAILURES)


def failed_warning(cache: Cache) -> str | None:
    """Return the warning about failed images and their cases; None if no image failed."""
    if not cache.failed.any():
        return None
    listed = {failure.image_id for failure in read_failures(cache.source)}
    whole = listed.issuperset(cache.image_ids(cache.failed))
    # A copy of a cache may lack the table.
    place = failures_place(cache.source) if whole else f"`trust-cache cache info {cache.source} --json`"
    return f"{cache.source}: {count_incomplete(cache.manifest, ~cache.failed).sentence(place)}"
