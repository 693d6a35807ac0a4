"""Identify how features were made: caches are joined, resumed or trained on only if this agrees."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from trust_cache.base.documents import Document
from trust_cache.base.errors import InputError

# These must agree even between two data sets: one encoder with one kind of input.
ENCODER_FIELDS = ("encoder", "weights_sha256", "image_size", "preprocessing", "standardisation", "precision")
Side = Annotated[int, Meta(ge=1)]


class Fingerprint(Document, frozen=True):
    """Settings that change features. Texts compare by equality; an empty one means unknown."""

    encoder: str
    weights_sha256: str
    image_size: tuple[Side, Side] | None  # height, width; None for imported features
    preprocessing: str
    standardisation: str
    precision: str
    # After the bar: these may differ between the caches of an external evaluation.
    view_settings: str
    seed: int
    decoder: str

    def as_document(self) -> dict[str, Any]:
        """Return the fingerprint as plain values, equal to what JSON gives back."""
        size = None if self.image_size is None else list(self.image_size)
        return super().as_document() | {"image_size": size}


def require_same_fingerprint(expected: Fingerprint, found: Fingerprint, source: str) -> None:
    """Refuse features made in another way (to resume, extend or train), naming the fields."""
    _require_same(Fingerprint.__struct_fields__, expected, found, source)


def require_same_encoder(expected: Fingerprint, found: Fingerprint, source: str) -> None:
    """Refuse features of another encoder or with other input (for external evaluation)."""
    _require_same(ENCODER_FIELDS, expected, found, source)


def _require_same(among: Sequence[str], expected: Fingerprint, found: Fingerprint, source: str) -> None:
    pairs = ((name, getattr(expected, name), getattr(found, name)) for name in among)
    parts = [f"{name}: expected {one!r}, found {other!r}" for name, one, other in pairs if one != other]
    if parts:
        raise InputError(f"{source}: its features were made in another way ({'; '.join(parts)})")


def imported_warning(made: Fingerprint) -> str | None:
    """Say that no model of these features can read images, where they were imported or simulated."""
    if made.image_size is not None:
        return None
    return (
        f"found imported features ({made.encoder}), which cannot be made of new images: a model of them"
        " cannot read images (`triage`); it can score caches of the same encoder (`certify --model`)"
    )
