"""State what an encoder expects of a picture: its size, resize, intensities, channels and pooling.

A recipe is part of the fingerprint as one text. A file for `--recipe` states some or all of its keys as TOML.
"""

import math
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, structs

from trust_cache.base.digests import canonical_json
from trust_cache.base.documents import Document, parse_json, parse_toml, typed
from trust_cache.base.errors import InputError

Size = tuple[int, int]  # height, width
DEFAULT_ENCODER, IMAGE_SIZE = "mammo-clip-b5", (1520, 912)  # the paper's
Resize = Literal["bilinear", "bicubic"]
Intensity = Literal["min-max", "min-max after resize"]
Pooling = Literal["own", "avg", "token"]
Side = Annotated[int, Meta(ge=1)]
_WHAT = "a recipe"


class Recipe(Document, frozen=True):
    """What an encoder expects of its input, and how its output becomes one row of features.

    The whole picture is used, never a part of it. Its intensities are from 0 to 1 before mean and std.
    """

    image_size: tuple[Side, Side]  # height, width
    resize: Resize
    antialias: bool  # whether shrinking averages over all the pixels that become one
    keep_proportions: bool  # then black fills the rest on both sides; if not, the picture is stretched
    intensity: Intensity  # which least and largest value become 0 and 1: the picture's, or the resized one's
    mean: tuple[float, ...]  # one for each channel
    std: tuple[float, ...]
    channels: int  # each one a copy of the grey picture
    pooling: Pooling  # own: the network's own; avg: the mean over positions; token: the class token

    def __post_init__(self) -> None:
        _require_size(self.image_size)
        for name in ("mean", "std"):
            values = getattr(self, name)
            if len(values) != self.channels:
                raise InputError(
                    f"{name}: expected a number for each of {self.channels} channels, found {len(values)}"
                )
            if not all(map(math.isfinite, values)):
                raise InputError(f"{name}: expected finite numbers, found {list(values)}")
        if self.channels < 1 or min(self.std) <= 0:
            raise InputError(
                f"recipe: expected 1 or more channels and a std above 0, found {self.channels} and"
                f" {list(self.std)}"
            )

    @property
    def text(self) -> str:
        """The recipe as the fingerprint of a cache has it: JSON with sorted keys."""
        return canonical_json(self.as_document()).decode()

    @property
    def planes(self) -> int:
        """How many channels differ: one stands for all where they have one mean and one std."""
        return 1 if len(set(self.mean)) == len(set(self.std)) == 1 else self.channels


class RecipeKeys(Document, frozen=True):
    """Some keys of a recipe: what a family knows of an encoder, or what a user gives."""

    image_size: tuple[Side, Side] | None = None
    resize: Resize | None = None
    antialias: bool | None = None
    keep_proportions: bool | None = None
    intensity: Intensity | None = None
    mean: tuple[float, ...] | float | None = None  # one number stands for every channel
    std: tuple[float, ...] | float | None = None
    channels: Annotated[int, Meta(ge=1)] | None = None
    pooling: Pooling | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The keys that have a value."""
        return {name: value for name, value in self.as_document().items() if value is not None}


NO_KEYS = RecipeKeys()
GivenRecipe = RecipeKeys | Mapping[str, Any] | str | PathLike[str] | None


def complete_recipe(known: RecipeKeys, given: RecipeKeys, encoder: str) -> Recipe:
    """Return the known recipe with the given keys instead of its own; refuse one that lacks keys."""
    keys = known.given | given.given
    missing = [name for name in Recipe.__struct_fields__ if name not in keys]
    if missing:
        raise InputError(
            f"encoder {encoder!r}: expected its whole recipe, found none or a part of it: how it wants its"
            f" input is not known. Give {', '.join(missing)} in a TOML file with --recipe FILE"
        )
    for name in ("mean", "std"):
        if isinstance(keys[name], int | float):
            keys[name] = (keys[name],) * keys["channels"]
    return typed(keys, Recipe, where=f"encoder {encoder!r}", what="a recipe that it can use")


def read_recipe(given: GivenRecipe, image_size: Size | None = None) -> RecipeKeys:
    """Return the keys of a TOML file or a mapping; `image_size` replaces that of the recipe."""
    if isinstance(given, RecipeKeys):
        keys = given
    elif isinstance(given, Mapping):
        keys = typed(dict(given), RecipeKeys, where="recipe", what=_WHAT)
    else:
        keys = NO_KEYS if given is None else _read_file(Path(given))
    if image_size is None:
        return keys
    _require_size(image_size)
    return structs.replace(keys, image_size=tuple(image_size))


def recipe_of_text(text: str) -> Recipe | None:
    """Return the recipe of a fingerprint; None for features that no recipe made, such as imported ones."""
    try:
        return typed(parse_json(text), Recipe, where="recipe", what=_WHAT)
    except ValueError:  # also what no JSON is
        return None


def recipe_differences(expected: str, found: str) -> str:
    """Name the keys in which two recipes of fingerprints differ, or their texts if one is no recipe."""
    ours, theirs = recipe_of_text(expected), recipe_of_text(found)
    if ours is None or theirs is None:
        return f"recipe: expected {expected!r}, found {found!r}"
    pairs = ((name, getattr(ours, name), getattr(theirs, name)) for name in Recipe.__struct_fields__)
    return "; ".join(
        f"recipe {name}: expected {one!r}, found {other!r}" for name, one, other in pairs if one != other
    )


def _require_size(size: Size) -> None:
    if min(size) < 1:
        raise InputError(f"image-size: expected a height and a width of 1 or more, found {size[0]}x{size[1]}")


def _read_file(path: Path) -> RecipeKeys:
    try:
        content = parse_toml(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"{path}: expected a recipe as TOML, found no such file") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected a recipe as TOML, found an unreadable file ({error})") from error
    return typed(content, RecipeKeys, where=path, what=_WHAT)
