"""The probe: one synthetic picture whose features tell whether two runtimes compute the same.

A cache keeps the features that its runtime gave of the probe's clean view, in float32. Whoever uses features
of another runtime or precision compares: two caches by what they keep, `triage` by what its runtime gives.
"""

import base64
import binascii
import hashlib

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.documents import Document
from trust_cache.base.errors import InputError
from trust_cache.encoders.known_runtimes import FLOAT16, FLOAT32

PICTURE = "trust-cache probe 1"  # another picture has another number
# Largest difference of two features of the probe, relative to their norm. Between runtimes in float32 it is
# 1e-7 to 3e-6 (the order of sums); 1e-4 is half of what storing float16 rounds away. Arithmetic with float16
# rounds to 11 bits: B5 then differs by 2.4e-3 to 3.1e-3 from 152x92 to 1520x912, other networks by less.
# bfloat16 has 8 bits: B5 differs by 2.4e-2 to 3.5e-2, which is refused.
TOLERANCES = {FLOAT32: 1e-4, FLOAT16: 6e-3}
_ROWS, _COLUMNS = 608, 368
_HALF_HEIGHT, _DEPTH = 280, 330  # of the half ellipse that stands for a breast

Floats = NDArray[np.float32]


class Probe(Document, frozen=True):
    """The features of the probe's clean view in one runtime."""

    picture: str  # which picture was encoded
    features: str  # float32, little endian, in base64
    sha256: str  # of the picture's name and the features

    @property
    def vector(self) -> Floats:
        """The features [dim]."""
        return np.frombuffer(base64.b64decode(self.features), dtype="<f4").astype(np.float32)

    def refuse_damage(self, source: str) -> None:
        """Refuse features that do not fit their digest or cannot be compared."""
        try:
            sound = self.sha256 == _digest(self.picture, self.features) and np.isfinite(self.vector).all()
        except (binascii.Error, ValueError):
            sound = False
        if not sound:
            raise InputError(f"{source}: the features of its probe are damaged; copy or make it again")


def make_probe(features: NDArray[np.generic]) -> Probe | None:
    """Return the record of the probe's features [dim]; None if they are not finite."""
    values = np.ascontiguousarray(features, dtype="<f4")
    if not np.isfinite(values).all():
        return None
    text = base64.b64encode(values.tobytes()).decode()
    return Probe(picture=PICTURE, features=text, sha256=_digest(PICTURE, text))


def draw_probe() -> NDArray[np.uint16]:
    """Return the probe's pixels: a half ellipse with coarse and fine structure, by integers alone.

    The same bytes on every machine and with every version of a library.
    """
    rows, columns = np.indices((_ROWS, _COLUMNS), dtype=np.int64)
    height, depth = rows - _ROWS // 2, columns
    inside = height**2 * _DEPTH**2 + depth**2 * _HALF_HEIGHT**2 < (_HALF_HEIGHT * _DEPTH) ** 2
    value = 14_000 + (_DEPTH - depth) * 20
    for period, weight in ((97, 60), (41, 90), (17, 130)):
        value += np.abs((rows + 2 * columns) % period - period // 2) * weight
        value += np.abs((3 * columns - rows) % (period + 6) - period // 2) * weight
    noise = (rows * 73_856_093) ^ (columns * 19_349_663)
    value += (noise % 2**20 * 2_654_435_761 % 2**32) >> 20  # below 4096
    return np.where(inside, np.clip(value, 0, 65_535), 0).astype(np.uint16)


def probe_difference(one: Floats, other: Floats) -> float:
    """Return the distance of two feature vectors relative to the larger norm; 0 for two zeros."""
    if one.shape != other.shape:
        raise InputError(f"probe: expected {one.size} features, found {other.size}")
    a, b = one.astype(np.float64), other.astype(np.float64)
    scale = max(float(np.linalg.norm(a)), float(np.linalg.norm(b)))
    return float(np.linalg.norm(a - b)) / scale if scale else 0.0


def tolerance_of(one: str, other: str) -> float | None:
    """Return the tolerance of the coarser of two precisions; None if one is not known."""
    known = [TOLERANCES.get(precision) for precision in (one, other)]
    found = [tolerance for tolerance in known if tolerance is not None]
    return max(found) if len(found) == len(known) else None


def _digest(picture: str, features: str) -> str:
    return hashlib.sha256(f"{picture}\n{features}".encode()).hexdigest()
