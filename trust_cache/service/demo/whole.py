"""The whole demonstration: from images, then from features."""

from dataclasses import dataclass
from pathlib import Path

from trust_cache.service.demo.from_features import FromFeatures, show_from_features
from trust_cache.service.demo.from_images import CASES, FromImages, show_from_images
from trust_cache.service.demo.steps import Listener


@dataclass(frozen=True)
class Demonstration:
    """What both parts made."""

    images: FromImages
    features: FromFeatures


def run_demo(
    out: Path,
    listen: Listener | None = None,
    *,
    image_cases: int = CASES,
    feature_cases: int | None = None,
) -> Demonstration:
    """Go the whole way twice; started again, it finishes what is unfinished and keeps what is whole."""
    listen = listen or Listener()
    return Demonstration(
        show_from_images(out / "images", listen, cases=image_cases),
        show_from_features(out / "features", listen, cases=feature_cases),
    )
