"""Protocols: what a case must be to be dismissed; a case that is not so is reviewed, whatever its score."""

from pathlib import Path

from trust_cache.base.documents import Document, parse_toml, typed
from trust_cache.base.errors import InputError
from trust_cache.manifest.picture_checks import CHECKS, check_of

STANDARD = ("L-CC", "L-MLO", "R-CC", "R-MLO")


class Protocol(Document, frozen=True, kw_only=True):
    """What a case must be to be dismissed. In each protocol every image of the case must have a score."""

    name: str
    projections: tuple[str, ...] = ()  # that must be there, with no others; empty: any
    review_warnings: bool = False  # whether a warning about one of its pictures is enough for review
    accepted_checks: tuple[str, ...] = ()  # checks of pictures and headers whose warnings are not
    # The feature gate: an image is stopped if a smaller share of images like the fitting ones is as far from
    # them as it is. 0: no gate.
    feature_tail: float = 0.0

    def __post_init__(self) -> None:
        for part in self.projections:
            side, dash, projection = part.partition("-")
            if side not in ("L", "R") or not dash or not projection.isalnum() or part != part.upper():
                raise InputError(f"projections: expected names such as {', '.join(STANDARD)}, found {part!r}")
        if len(set(self.projections)) < len(self.projections):
            raise InputError(f"projections: expected different ones, found {', '.join(self.projections)}")
        for name in self.accepted_checks:
            if name not in CHECKS:
                raise InputError(f"accepted_checks: expected some of {', '.join(CHECKS)}, found {name!r}")
        if not 0 <= self.feature_tail < 1:
            raise InputError(f"feature_tail: expected a share from 0 to 1, found {self.feature_tail}")

    @property
    def for_models(self) -> bool:
        """Whether a model may be certified by it: it has projections, the pixel gate and the feature gate."""
        return not self.lacking

    @property
    def lacking(self) -> str:
        """What it lacks for a model, in words; empty if it lacks nothing."""
        parts = {
            "projections": bool(self.projections),
            "review_warnings": self.review_warnings,
            "feature_tail": self.feature_tail > 0,
        }
        return " and ".join(name for name, there in parts.items() if not there)

    @property
    def examines_pictures(self) -> bool:
        """Whether it asks for more than scores."""
        return bool(self.projections) or self.review_warnings or self.feature_tail > 0

    def stops(self, warning: str) -> bool:
        """Return whether a warning about a picture keeps its case from being dismissed."""
        return self.review_warnings and self.counts(warning)

    def counts(self, warning: str) -> bool:
        """Return whether the check that a warning comes from is not accepted."""
        return check_of(warning) not in self.accepted_checks


PAPER = Protocol(name="paper")
FEATURE_TAIL = 0.001  # of ordinary images; the estimate is cautious, so that fewer are stopped
SCREENING = Protocol(name="screening", projections=STANDARD, review_warnings=True, feature_tail=FEATURE_TAIL)
PROTOCOLS = {protocol.name: protocol for protocol in (PAPER, SCREENING)}


def find_protocol(given: "Protocol | str | Path") -> Protocol:
    """Return a protocol by its name, or from a TOML file with its settings."""
    if isinstance(given, Protocol):
        return given
    text = str(given)
    if text in PROTOCOLS:
        return PROTOCOLS[text]
    if not text.endswith(".toml"):
        raise InputError(f"protocol: expected {', '.join(PROTOCOLS)} or a .toml file, found {text!r}")
    try:
        settings = parse_toml(Path(text).read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(
            f"{text}: expected a protocol as TOML, found an unreadable file ({error})"
        ) from error
    found = typed(settings, Protocol, where=text, what="a protocol")
    if found.name in PROTOCOLS:
        raise InputError(f"{text}: name: expected a name of its own, found {found.name!r}")
    return found
