"""Protocols: what a case must be to be dismissed; a case that is not so is reviewed, whatever its score."""

from pathlib import Path

from trust_cache.base.documents import Document, parse_toml, typed
from trust_cache.base.errors import InputError

STANDARD = ("L-CC", "L-MLO", "R-CC", "R-MLO")


class Protocol(Document, frozen=True, kw_only=True):
    """What a case must be to be dismissed. In each protocol every image of the case must have a score."""

    name: str
    projections: tuple[str, ...] = ()  # that must be there, with no others; empty: any
    review_warnings: bool = False  # whether a warning about one of its pictures is enough for review

    def __post_init__(self) -> None:
        for part in self.projections:
            side, dash, projection = part.partition("-")
            if side not in ("L", "R") or not dash or not projection.isalnum() or part != part.upper():
                raise InputError(f"projections: expected names such as {', '.join(STANDARD)}, found {part!r}")
        if len(set(self.projections)) < len(self.projections):
            raise InputError(f"projections: expected different ones, found {', '.join(self.projections)}")

    @property
    def for_models(self) -> bool:
        """Whether a model may be certified by it: it says which projections a case must have."""
        return bool(self.projections)


PAPER = Protocol(name="paper")
SCREENING = Protocol(name="screening", projections=STANDARD, review_warnings=True)
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
