"""What features were made by: caches are joined, resumed or trained on only where this agrees."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from trust_cache.base.errors import InputError

# The part that must agree even between two data sets: one encoder, one way to feed it.
ENCODER_FIELDS = ("encoder", "weights_sha256", "image_size", "preprocessing", "standardisation", "precision")


@dataclass(frozen=True)
class Fingerprint:
    """Settings that change features. Free texts compare by equality; an empty one means unknown."""

    encoder: str
    weights_sha256: str
    image_size: tuple[int, int] | None  # height, width; None where features came from elsewhere
    preprocessing: str
    standardisation: str
    precision: str
    # After the bar: what may differ between a source and a target set.
    view_settings: str
    seed: int
    decoder: str

    def as_document(self) -> dict[str, Any]:
        """Return the fingerprint as JSON has it."""
        document = asdict(self)
        if self.image_size is not None:
            document["image_size"] = list(self.image_size)
        return document

    @classmethod
    def from_document(cls, document: object, source: str) -> Self:
        """Read a fingerprint from JSON; fields are neither missing nor unknown."""
        names = {field.name for field in fields(cls)}
        if not isinstance(document, dict) or set(document) != names:
            found = sorted(document) if isinstance(document, dict) else document
            raise InputError(f"{source}: expected a fingerprint with {sorted(names)}, found {found}")
        texts = {name: document[name] for name in names - {"image_size", "seed"}}
        wrong = sorted(name for name, value in texts.items() if not isinstance(value, str))
        size, seed = document["image_size"], document["seed"]
        if size is not None and not _is_size(size):
            wrong.append("image_size")
        if not isinstance(seed, int) or isinstance(seed, bool):
            wrong.append("seed")
        if wrong:
            values = ", ".join(f"{name} {document[name]!r}" for name in wrong)
            raise InputError(f"{source}: the fingerprint is damaged: found {values}")
        return cls(image_size=None if size is None else (size[0], size[1]), seed=seed, **texts)


def differing_fields(
    one: Fingerprint, other: Fingerprint, among: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the names of the fields that differ, among all or the given ones."""
    names = [field.name for field in fields(Fingerprint)] if among is None else among
    return tuple(name for name in names if getattr(one, name) != getattr(other, name))


def require_same_fingerprint(expected: Fingerprint, found: Fingerprint, source: str) -> None:
    """Refuse features made in any other way (to resume, extend or train), naming the fields."""
    _refuse(differing_fields(expected, found), expected, found, source)


def require_same_encoder(expected: Fingerprint, found: Fingerprint, source: str) -> None:
    """Refuse features of another encoder or another way to feed it (for external evaluation)."""
    _refuse(differing_fields(expected, found, ENCODER_FIELDS), expected, found, source)


def _refuse(names: Sequence[str], expected: Fingerprint, found: Fingerprint, source: str) -> None:
    if names:
        parts = (
            f"{name}: expected {getattr(expected, name)!r}, found {getattr(found, name)!r}" for name in names
        )
        raise InputError(f"{source}: its features were made in another way ({'; '.join(parts)})")


def _is_size(value: object) -> bool:
    pair = 2
    return (
        isinstance(value, list)
        and len(value) == pair
        and all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in value)
    )
