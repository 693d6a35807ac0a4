"""Work items: where they run, and what became of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Cluster:
    """A Dask scheduler's address, and what a worker must offer to be given an item (say `{"GPU": 1}`)."""

    address: str
    resources: Mapping[str, float] = field(default_factory=dict)
    connect_seconds: float = 30.0


class WorkerDiedError(Exception):
    """The process that worked on an item ended without an answer."""


@dataclass(frozen=True)
class Outcome(Generic[Item, Value]):
    """What became of an item: a value, or an error."""

    item: Item
    value: Value | None
    error: Exception | None
