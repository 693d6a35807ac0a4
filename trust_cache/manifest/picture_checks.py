"""The checks of pictures and headers: a name for each, and what to do about a finding.

A finding is one sentence that begins with its check's name, such as `polarity: ...`. It is a warning
wherever it is found. Under a protocol with `review_warnings` it also keeps its case from being dismissed,
unless the protocol accepts the check.
"""

from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations

import numpy as np

from trust_cache.statistics.sketches import SKETCH_NUMBERS, same_pairs

SEPARATOR = "; "  # between findings in one cell: no finding contains it
_SHOWN = 3  # other pictures named in a finding

_EXPORT = "Export the image again, or review the case"
_HEADER = "Correct the header, or review the case"
_ACCEPT = "Leave it out, or accept the check in a protocol of your own"
_DE_IDENTIFIED = "For de-identified data, accept the check in a protocol of your own"

# What to do about a finding, by the name of its check.
CHECKS: dict[str, str] = {
    # What an image is, by its header
    "sop-class": _ACCEPT,
    "presentation-intent": "Export the FOR PRESENTATION image",
    "image-kind": _ACCEPT,
    "body-part": _ACCEPT,
    "view-modifier": "Read it with the case: it is no standard projection",
    "laterality": _HEADER,
    "projection": _HEADER,
    "orientation": _EXPORT,
    "patient": f"Find out whose images these are. {_DE_IDENTIFIED}",
    "study": f"Put one examination into a case. {_DE_IDENTIFIED}",
    "same-image": "Remove the copy, or find the image that it replaced",
    # Whether its pixels are plausible
    "bits": _EXPORT,
    "window": "Correct the window in the header, or export the image again",
    "pixel-data": _EXPORT,
    "polarity": "Correct PhotometricInterpretation or the rescale slope, or export the image again",
    "grey-levels": "Correct the window or the bits stored, or export the image again",
    "dark-saturation": "Correct the window in the header, or export the image again",
    "bright-saturation": "Correct the window in the header, or export the image again",
    "padding": "Correct PixelPaddingValue and PixelPaddingRangeLimit in the header",
    "constant-band": _EXPORT,
    "straight-cut": _EXPORT,
    "neighbours": _EXPORT,
    "row-shift": _EXPORT,
    "breast-side": "Check the laterality, or export the image again",
    "upside-down": _EXPORT,
    "breast": "Look at the picture: it may not be a mammogram",
    "unexamined": "Run `trust-cache extract` again, which examines it",
    "same-picture": "Remove the copy, or find the image that it replaced",
    # Whether its features are those of a mammogram
    "feature-gate": "Look at the picture: it is unlike those that the model was trained on",
}


# Checks of several images together; the others look at one image alone.
TOGETHER = frozenset({"patient", "study", "same-image", "same-picture"})


def finding(check: str, found: str) -> str:
    """Return the sentence about a finding, with what to do."""
    return f"{check}: {found}. {CHECKS[check]}"


def check_of(text: str) -> str | None:
    """Return the name of the check that a warning comes from; None if it names none."""
    name = text.partition(":")[0]
    return name if name in CHECKS else None


def same_pictures(sketches: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Return a finding for each image whose picture another one has too; `sketches` has case and sketch.

    No two exposures give the same picture, within a case or in different cases. A sketch may end with the
    digest of the stored values; equal ones are of one picture too, whatever window it is shown with.
    """
    names = sorted(sketches)
    texts = [sketches[name][1].partition("-") for name in names]
    rows = [np.frombuffer(bytes.fromhex(text), dtype=">i2").astype(np.int16) for text, _, _ in texts]
    usable = [row if row.size == SKETCH_NUMBERS else np.zeros(SKETCH_NUMBERS, dtype=np.int16) for row in rows]
    by_digest: dict[str, list[int]] = defaultdict(list)
    for number, (_, _, digest) in enumerate(texts):
        by_digest[digest or str(number)].append(number)
    pairs = {pair for numbers in by_digest.values() for pair in combinations(numbers, 2)}
    others: dict[str, list[str]] = defaultdict(list)
    for first, second in sorted({*pairs, *same_pairs(np.stack(usable))}) if usable else ():
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
