"""extraction.json: what changes the last bits of features, so that a resumed run gives the same bytes."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trust_cache.base.documents import json_bytes, parse_json
from trust_cache.base.errors import InputError
from trust_cache.base.versions import versions_of
from trust_cache.cache.backends import Source
from trust_cache.cache.extraction.side_files import read_side_file, side_place, write_side_file

NAME = "extraction.json"
SCHEMA = 1


@dataclass(frozen=True)
class Halving:
    """A batch that the device had no memory for."""

    shard: int
    before: int
    after: int


@dataclass(frozen=True)
class Record:
    """How a cache is being made. Batch, threads and compilation are kept whatever a later start asks for."""

    batch: int  # views through the encoder at once
    threads: int  # of torch, in each process
    compiled: bool
    device: str
    halvings: tuple[Halving, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise InputError(f"batch: expected 1 or more views, found {self.batch}")
        if self.threads < 1:
            raise InputError(f"threads: expected 1 or more, found {self.threads}")


def read_record(cache: Source) -> Record | None:
    """Read the record of a cache; nothing where it has none."""
    content = read_side_file(cache, NAME)
    if content is None:
        return None
    place = side_place(cache, NAME)
    try:
        document: dict[str, Any] = parse_json(content)
        schema = document.pop("schema")
        if schema != SCHEMA:
            raise InputError(
                f"{place}: expected schema {SCHEMA}, found {schema}; install a newer trust-cache"
            )
        halvings = tuple(Halving(**item) for item in document.pop("halvings"))
        return Record(**document, halvings=halvings)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{place}: damaged ({error!r}); remove it to go on with the options of the command"
        ) from error


def write_record(cache: Source, record: Record) -> None:
    """Put a record with a cache, naming the versions that are at work."""
    versions = versions_of("numpy", "opencv-python-headless", "timm", "torch")
    document = {"schema": SCHEMA, **asdict(replace(record, versions=versions))}
    write_side_file(cache, NAME, json_bytes(document))


def record_halving(cache: Source, shard: int, before: int, after: int) -> None:
    """Add a halved batch to the record; from now on no batch is larger."""
    record = read_record(cache)
    if record is not None:
        halvings = (*record.halvings, Halving(shard, before, after))
        write_record(cache, replace(record, batch=min(record.batch, after), halvings=halvings))
