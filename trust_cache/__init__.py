"""Certified dismissal in breast cancer screening: features cached once, heads and bounds in seconds.

Every command of the command line has its function here. Paths or data frames go in; results have a short
repr, `to_polars()`, `to_pandas()` and, where there is something to draw, `plot()`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trust_cache.api.certificate_functions import certify, plan
    from trust_cache.api.clinic_functions import certify_model, export_model, monitor
    from trust_cache.api.data_functions import (
        build_manifest,
        cache_info,
        convert_cache,
        export_features,
        import_features,
        simulate,
        subset_cache,
        verify_cache,
    )
    from trust_cache.api.demo import demo
    from trust_cache.api.doctor import doctor
    from trust_cache.api.encoder_functions import convert_weights, extract, triage
    from trust_cache.api.estimate import estimate
    from trust_cache.api.image_functions import preprocess, show_image, synthesize_images
    from trust_cache.api.reproduce import reproduce
    from trust_cache.api.study_functions import compare, rivals, show, write_report
    from trust_cache.api.training_functions import external, fit_heads, sweep, trajectories
    from trust_cache.api.verify_folder import verify
    from trust_cache.cache.cache_reader import open_cache
    from trust_cache.encoders.known_encoders import load_encoder
    from trust_cache.heads.closed_loop import closed_loop_threshold
    from trust_cache.heads.estimator import TrustHeadClassifier
    from trust_cache.statistics.bounds import clopper_pearson_lower, clopper_pearson_upper
    from trust_cache.statistics.thresholds import select_threshold

__all__ = [
    "TrustHeadClassifier",
    "build_manifest",
    "cache_info",
    "certify",
    "certify_model",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "closed_loop_threshold",
    "compare",
    "convert_cache",
    "convert_weights",
    "demo",
    "doctor",
    "estimate",
    "export_features",
    "export_model",
    "external",
    "extract",
    "fit_heads",
    "import_features",
    "load_encoder",
    "monitor",
    "open_cache",
    "plan",
    "preprocess",
    "reproduce",
    "rivals",
    "select_threshold",
    "show",
    "show_image",
    "simulate",
    "subset_cache",
    "sweep",
    "synthesize_images",
    "trajectories",
    "triage",
    "verify",
    "verify_cache",
    "write_report",
]

# Imported when first used: `import trust_cache` itself costs nothing.
_HOMES = {
    "TrustHeadClassifier": "trust_cache.heads.estimator",
    "build_manifest": "trust_cache.api.data_functions",
    "cache_info": "trust_cache.api.data_functions",
    "certify": "trust_cache.api.certificate_functions",
    "certify_model": "trust_cache.api.clinic_functions",
    "clopper_pearson_lower": "trust_cache.statistics.bounds",
    "clopper_pearson_upper": "trust_cache.statistics.bounds",
    "closed_loop_threshold": "trust_cache.heads.closed_loop",
    "compare": "trust_cache.api.study_functions",
    "convert_cache": "trust_cache.api.data_functions",
    "convert_weights": "trust_cache.api.encoder_functions",
    "demo": "trust_cache.api.demo",
    "doctor": "trust_cache.api.doctor",
    "estimate": "trust_cache.api.estimate",
    "export_features": "trust_cache.api.data_functions",
    "export_model": "trust_cache.api.clinic_functions",
    "external": "trust_cache.api.training_functions",
    "extract": "trust_cache.api.encoder_functions",
    "fit_heads": "trust_cache.api.training_functions",
    "import_features": "trust_cache.api.data_functions",
    "load_encoder": "trust_cache.encoders.known_encoders",
    "monitor": "trust_cache.api.clinic_functions",
    "open_cache": "trust_cache.cache.cache_reader",
    "plan": "trust_cache.api.certificate_functions",
    "preprocess": "trust_cache.api.image_functions",
    "reproduce": "trust_cache.api.reproduce",
    "rivals": "trust_cache.api.study_functions",
    "select_threshold": "trust_cache.statistics.thresholds",
    "show": "trust_cache.api.study_functions",
    "show_image": "trust_cache.api.image_functions",
    "simulate": "trust_cache.api.data_functions",
    "subset_cache": "trust_cache.api.data_functions",
    "sweep": "trust_cache.api.training_functions",
    "synthesize_images": "trust_cache.api.image_functions",
    "trajectories": "trust_cache.api.training_functions",
    "triage": "trust_cache.api.encoder_functions",
    "verify": "trust_cache.api.verify_folder",
    "verify_cache": "trust_cache.api.data_functions",
    "write_report": "trust_cache.api.study_functions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
