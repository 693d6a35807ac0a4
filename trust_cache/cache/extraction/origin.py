"""How the PNGs of a manifest were made: by `preprocess`, as its record says, or elsewhere."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trust_cache.base.documents import parse_json
from trust_cache.base.errors import InputError
from trust_cache.base.places import is_url, join, read_bytes
from trust_cache.images.settings import ImageSettings

EXTERNAL = "external"
_RECORD = "preprocess.json"  # what `trust-cache preprocess` leaves with its PNGs
_NEWEST = 1


@dataclass(frozen=True)
class Origin:
    """Two fields of a cache's fingerprint."""

    preprocessing: str
    decoder: str


def read_origin(manifest: Path | str) -> Origin:
    """Return what the record beside a manifest says, or that the PNGs are from elsewhere."""
    place = str(manifest)
    path = join(place.rsplit("/", 1)[0] if is_url(place) else str(Path(place).parent), _RECORD)
    try:
        record = parse_json(read_bytes(path))
    except FileNotFoundError:
        return Origin(EXTERNAL, EXTERNAL)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read ({error}); run `trust-cache preprocess` again") from error
    try:
        schema, settings = int(record["schema"]), dict(record["settings"])
        decoders = sorted(str(name) for name in record.get("decoders", {}))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: damaged ({error!r}); run `trust-cache preprocess` again") from error
    if schema > _NEWEST:
        raise InputError(
            f"{path}: has schema {schema}, this version reads up to {_NEWEST}; install a newer trust-cache"
        )
    return Origin(_words(schema, settings), "; ".join(decoders) or EXTERNAL)


def describe_preprocessing(settings: ImageSettings) -> str:
    """Return what the fingerprint says of images that `preprocess` makes with these settings."""
    return _words(_NEWEST, asdict(settings))


def _words(schema: int, settings: Mapping[str, Any]) -> str:
    words = ", ".join(f"{name} {settings[name]}" for name in sorted(settings))
    return f"trust-cache {schema}: {words}"
