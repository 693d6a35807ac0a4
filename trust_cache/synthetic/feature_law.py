"""The law of synthetic features: lesions, sites, tails and what images share, with named presets."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from trust_cache.base.documents import Document, parse_toml, typed
from trust_cache.base.errors import InputError, did_you_mean

NUISANCES = 8
_SHARES = ("case_share", "patients", "patient_share")
_SCALES = ("view_shift", "view_noise", "noise")
_FEWEST_DEGREES = 2  # of freedom: below, Student's t has no variance
_ROUNDING = 1e-9  # of shares that add up to 1


class Lesion(Document, frozen=True):
    """A kind of lesion, in all images of one breast: its share of the cases and its shift.

    The shift is in standard deviations of a single image, along the first, second, ... true direction.
    """

    name: str
    share: float
    shift: tuple[float, ...]


class Site(Document, frozen=True):
    """A site: its shares of the normal cases and of the cases with cancer, and its shift of the nuisances."""

    name: str
    share: float
    cancer_share: float
    shift: tuple[float, ...]


class FeatureLaw(Document, frozen=True):
    """How features differ between cases, images and views; the defaults are the preset `plain`.

    The shift of the only kind of cancer is chosen so that a head trained as in the paper reaches a case AUROC
    near 0.72 on both cohorts.
    """

    cancers: tuple[Lesion, ...] = (Lesion(name="cancer", share=1.0, shift=(1.15,)),)
    benign: tuple[Lesion, ...] = ()  # shares of the normal cases; the others have no lesion
    sites: tuple[Site, ...] = ()  # none: two sites that make no difference
    degrees: float | None = None  # of freedom of Student's t, in place of normal coordinates
    case_share: float = 0.5  # of the variance of each coordinate that a case's images share
    patients: float = 0.0  # share of patients with two or three cases
    patient_share: float = 0.8  # of the variance that a case's images share, where patients have several
    noise: float = 0.2  # of each feature
    view_shift: float = 0.25  # of coordinates between views, in their standard deviations
    view_noise: float = 0.05  # of each feature between views

    def __post_init__(self) -> None:
        for name in _SHARES:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"{name}: expected a share from 0 to 1, found {getattr(self, name)}")
        for name in _SCALES:
            if not 0.0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name}: expected 0 or more, found {getattr(self, name)}")
        if self.degrees is not None and not _FEWEST_DEGREES < self.degrees < math.inf:
            raise InputError(f"degrees: expected a number above {_FEWEST_DEGREES}, found {self.degrees}")
        _require_shares("cancers", [kind.share for kind in self.cancers], whole=True)
        _require_shares("benign", [kind.share for kind in self.benign], whole=False)
        if self.sites:
            _require_shares("sites", [site.share for site in self.sites], whole=True)
            _require_shares("sites: cancer_share", [site.cancer_share for site in self.sites], whole=True)
        if any(len(site.shift) > NUISANCES for site in self.sites):
            raise InputError(f"sites: shift: expected at most {NUISANCES} numbers, one for each nuisance")

    @property
    def lesions(self) -> tuple[Lesion, ...]:
        """All kinds of lesions, cancers first."""
        return (*self.cancers, *self.benign)

    @property
    def directions(self) -> int:
        """The number of true directions."""
        return max(len(kind.shift) for kind in self.lesions)

    @property
    def kind_names(self) -> tuple[str, ...]:
        """The names of the kinds of lesions; the last is that of a case without any."""
        return (*(kind.name for kind in self.lesions), "none")


@dataclass(frozen=True)
class CaseTraits:
    """For each case: the number of its kind of lesion (the last is none) and of its site."""

    kind: NDArray[np.int64]
    site: NDArray[np.int64]


def draw_traits(law: FeatureLaw, positive: NDArray[np.bool_], generator: Generator) -> CaseTraits:
    """Draw the kind and the site of each case; a law with one kind and no sites takes no random numbers."""
    of_cancers = _draw(generator, [kind.share for kind in law.cancers], positive.size)
    of_normals = len(law.cancers) + _draw(generator, _with_rest(law.benign), positive.size)
    site = np.where(
        positive,
        _draw(generator, [place.cancer_share for place in law.sites], positive.size),
        _draw(generator, [place.share for place in law.sites], positive.size),
    )
    return CaseTraits(np.where(positive, of_cancers, of_normals), site)


def lesion_shifts(law: FeatureLaw) -> NDArray[np.float64]:
    """Return the shift [kind, true direction] of each kind of lesion; the last is none."""
    shifts = np.zeros((len(law.lesions) + 1, law.directions))
    for row, kind in zip(shifts, law.lesions, strict=False):
        row[: len(kind.shift)] = kind.shift
    return shifts


def site_shifts(law: FeatureLaw, nuisances: int) -> NDArray[np.float64]:
    """Return the shift [site, nuisance] of each site; one row of zeros where there are none."""
    shifts = np.zeros((max(1, len(law.sites)), nuisances))
    for row, place in zip(shifts, law.sites, strict=False):
        row[: len(place.shift)] = place.shift[:nuisances]
    return shifts


@cache
def preset_laws() -> Mapping[str, FeatureLaw]:
    """Return the named laws of laws.toml."""
    path = Path(__file__).with_name("laws.toml")
    content = parse_toml(path.read_bytes())
    laws = typed(content, dict[str, FeatureLaw], where=path, what="laws of synthetic features")
    return MappingProxyType(laws)


def choose_law(preset: str) -> FeatureLaw:
    """Return the law of this name."""
    if preset not in preset_laws():
        hint = did_you_mean(preset, list(preset_laws()))
        raise InputError(f"preset: expected one of {', '.join(preset_laws())}, found {preset!r}{hint}")
    return preset_laws()[preset]


def _require_shares(name: str, shares: list[float], *, whole: bool) -> None:
    total = sum(shares)
    fits = abs(total - 1.0) < _ROUNDING if whole else total < 1.0 + _ROUNDING
    if not fits or any(not 0.0 <= share <= 1.0 for share in shares):
        expected = "shares that add up to 1" if whole else "shares of at most 1 in all"
        raise InputError(f"{name}: expected {expected}, found {shares}")


def _with_rest(lesions: tuple[Lesion, ...]) -> list[float]:
    shares = [kind.share for kind in lesions]
    return [*shares, max(0.0, 1.0 - sum(shares))]


def _draw(generator: Generator, shares: list[float], size: int) -> NDArray[np.int64]:
    if len(shares) < 2:  # noqa: PLR2004  # nothing to choose
        return np.zeros(size, dtype=np.int64)
    return np.asarray(generator.choice(len(shares), size=size, p=shares), dtype=np.int64)
