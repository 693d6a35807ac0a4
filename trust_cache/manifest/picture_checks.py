"""The checks of pictures and headers: a name for each, and what to do about a finding.

A finding is one sentence that begins with its check's name, such as `polarity: ...`. It is a warning
wherever it is found. Under a protocol with `review_warnings` it also keeps its case from being dismissed,
unless the protocol accepts the check.
"""

SEPARATOR = "; "  # between findings in one cell: no finding contains it

_EXPORT = "Export the image again, or review the case"
_HEADER = "Correct the header, or review the case"
_ACCEPT = "Leave it out, or accept the check in a protocol of your own"

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
    "patient": "Find out whose images these are before anything else",
    "study": "Put one examination into a case",
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
