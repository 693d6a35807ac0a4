"""The numbers that the paper printed, read from published.toml."""

from functools import cache
from pathlib import Path

from trust_cache.base.documents import Document, parse_toml, typed

SCHEMA = 1
NLBS, RSNA, EXTERNAL = "nlbs", "rsna", "rsna-to-nlbs"  # the paper's three settings
PROPOSED = "closed-loop"
ENCODER = "Mammo-CLIP's EfficientNet-B5 at 1520x912"  # the paper's


class PublishedPoint(Document, frozen=True):
    """One operating point as printed, in percent; without a dismissal it is N/A."""

    target: float
    dismissal: float | None = None
    bound: float | None = None
    dismissed: int | None = None
    positives_dismissed: int | None = None
    image_dismissal: float | None = None
    image_dismissal_at_least: float | None = None  # set where the printed one is impossible


class PublishedHead(Document, frozen=True):
    """The points of one configuration and its case AUROC."""

    auroc: float
    points: tuple[PublishedPoint, ...]

    def point(self, target: float) -> PublishedPoint | None:
        """Return the point at a target, if it was published."""
        return next((point for point in self.points if point.target == target), None)


class PublishedSetting(Document, frozen=True):
    """One of the paper's three settings: its table, its evaluation cases and its configurations."""

    table: int
    title: str
    cases: int
    positives: int
    heads: dict[str, PublishedHead]


class PublishedEconomics(Document, frozen=True):
    """The paper's economic estimate."""

    setting: str
    configuration: str
    target: float
    fee: float
    programme: int
    dismissed_per_1000: int
    saved_per_1000: int
    dismissed: int
    saved: int


class Published(Document, frozen=True):
    """Everything that the paper printed."""

    schema: int
    names: dict[str, str]  # of the configurations in the paper
    economics: PublishedEconomics
    settings: dict[str, PublishedSetting]


@cache
def published() -> Published:
    """Read the published numbers."""
    path = Path(__file__).with_name("published.toml")
    content = parse_toml(path.read_bytes())
    return typed(content, Published, where=path, what="the published numbers", schema=SCHEMA)
