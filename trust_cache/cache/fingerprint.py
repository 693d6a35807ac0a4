"""Identify how features were made: caches are joined, resumed or trained on only if this agrees."""

from collections.abc import Sequence

from trust_cache.base.documents import Document
from trust_cache.base.errors import InputError
from trust_cache.encoders.probe import Probe, probe_difference, tolerance_of
from trust_cache.encoders.recipe import Size, recipe_differences, recipe_of_text

# These must agree even between two data sets: one encoder with one kind of input.
ENCODER_FIELDS = ("encoder", "weights_sha256", "recipe", "preprocessing")
IMPORTED = "imported"  # starts the encoder of imported features


class Fingerprint(Document, frozen=True):
    """Settings that change features. Texts compare by equality; an empty one means unknown."""

    encoder: str
    weights_sha256: str
    recipe: str  # what the encoder expects of a picture, as `Recipe.text` has it
    preprocessing: str
    # After the bar: these may differ between the caches of an external evaluation. The first two may differ
    # only if the features of the probe agree.
    runtime: str  # what ran the network, and its version: "openvino 2026.4.1"
    precision: str
    view_settings: str
    seed: int
    decoder: str

    @property
    def image_size(self) -> Size | None:
        """Height and width of the encoder's input; None for imported or simulated features."""
        found = recipe_of_text(self.recipe)
        return None if found is None else found.image_size


def require_same_fingerprint(expected: Fingerprint, found: Fingerprint, source: str) -> None:
    """Refuse features made in another way (to resume, extend or train), naming the fields."""
    _require_same(Fingerprint.__struct_fields__, expected, found, source)


def require_same_encoder(expected: Fingerprint, found: Fingerprint, source: str) -> None:
    """Refuse features of another encoder or with other input (for external evaluation)."""
    _require_same(ENCODER_FIELDS, expected, found, source)


def require_comparable(
    expected: tuple[Fingerprint, Probe | None], found: tuple[Fingerprint, Probe | None], source: str
) -> float | None:
    """Refuse features of another encoder, or of a runtime whose probe differs; return the difference.

    Without both probes (imported or synthetic features) the runtime and the precision must be the same, and
    the difference is None.
    """
    (made, one), (other, two) = expected, found
    require_same_encoder(made, other, source)
    if one is None or two is None or one.picture != two.picture:
        if (made.runtime, made.precision) == (other.runtime, other.precision):
            return None
        raise InputError(
            f"{source}: its features were made in another way ({_differing(made, other)}), and without the"
            " features of the same probe they cannot be compared; extract it again with the same runtime"
        )
    difference = probe_difference(one.vector, two.vector)
    tolerance = tolerance_of(made.precision, other.precision)
    if tolerance is None or not difference <= tolerance:
        limit = "no tolerance is known" if tolerance is None else f"expected at most {tolerance:g}"
        raise InputError(
            f"{source}: its runtime gives other features of the probe picture ({_differing(made, other)}):"
            f" {limit}, found a relative difference of {difference:.2g}; use the runtime {made.runtime}"
            f" in {made.precision}"
        )
    return difference


def _differing(one: Fingerprint, other: Fingerprint) -> str:
    return (
        f"expected the runtime {one.runtime} in {one.precision}, found {other.runtime} in {other.precision}"
    )


def _require_same(among: Sequence[str], expected: Fingerprint, found: Fingerprint, source: str) -> None:
    pairs = ((name, getattr(expected, name), getattr(found, name)) for name in among)
    parts = [
        recipe_differences(one, other) if name == "recipe" else f"{name}: expected {one!r}, found {other!r}"
        for name, one, other in pairs
        if one != other
    ]
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
