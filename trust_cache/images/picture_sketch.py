"""Recognise equal and nearly equal pictures by a sketch of each."""

from collections import defaultdict
from collections.abc import Mapping

import cv2
import numpy as np
from numpy.typing import NDArray

from trust_cache.manifest.picture_checks import finding
from trust_cache.statistics.sketches import SKETCH_NUMBERS, same_pairs, sketch_vector

_SIDE = 32  # pixels of the reduced picture that is sketched
_SHOWN = 3  # other pictures named in a finding


def sketch_of_picture(picture: NDArray[np.uint16]) -> str:
    """Return the sketch of a canonical picture as text; noise and rounding hardly change it."""
    small = cv2.resize(picture.astype(np.float32), (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
    return sketch_vector(np.asarray(small).ravel()).astype(">i2").tobytes().hex()


def same_pictures(sketches: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Return a finding for each image whose picture another one has too; `sketches` has case and sketch.

    No two exposures give the same picture, within a case or in different cases.
    """
    names = sorted(sketches)
    rows = [np.frombuffer(bytes.fromhex(sketches[name][1]), dtype=">i2").astype(np.int16) for name in names]
    usable = [row if row.size == SKETCH_NUMBERS else np.zeros(SKETCH_NUMBERS, dtype=np.int16) for row in rows]
    others: dict[str, list[str]] = defaultdict(list)
    for first, second in same_pairs(np.stack(usable)) if usable else ():
        others[names[first]].append(names[second])
        others[names[second]].append(names[first])
    found = {}
    for name, equal in others.items():
        further = any(sketches[other][0] != sketches[name][0] for other in equal)
        place = " of another case" if further else ""
        more = ", ..." if len(equal) > _SHOWN else ""
        words = f"the same picture as image {', '.join(sorted(equal)[:_SHOWN])}{more}{place}"
        found[name] = finding("same-picture", words)
    return found
