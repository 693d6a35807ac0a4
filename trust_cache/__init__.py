"""Certified dismissal in breast cancer screening: features cached once, heads and bounds in seconds."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trust_cache.cache.cache_reader import open_cache
    from trust_cache.certificate.certify import certify
    from trust_cache.encoders.known_encoders import load_encoder
    from trust_cache.heads.closed_loop import closed_loop_threshold
    from trust_cache.heads.estimator import TrustHeadClassifier
    from trust_cache.heads.fit import fit_heads
    from trust_cache.statistics.bounds import clopper_pearson_lower, clopper_pearson_upper
    from trust_cache.statistics.thresholds import select_threshold

__all__ = [
    "TrustHeadClassifier",
    "certify",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "closed_loop_threshold",
    "fit_heads",
    "load_encoder",
    "open_cache",
    "select_threshold",
]

# Imported when first used: `import trust_cache` itself costs nothing.
_HOMES = {
    "TrustHeadClassifier": "trust_cache.heads.estimator",
    "certify": "trust_cache.certificate.certify",
    "closed_loop_threshold": "trust_cache.heads.closed_loop",
    "clopper_pearson_lower": "trust_cache.statistics.bounds",
    "clopper_pearson_upper": "trust_cache.statistics.bounds",
    "fit_heads": "trust_cache.heads.fit",
    "load_encoder": "trust_cache.encoders.known_encoders",
    "open_cache": "trust_cache.cache.cache_reader",
    "select_threshold": "trust_cache.statistics.thresholds",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
