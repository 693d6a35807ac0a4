"""What an earlier start of the demonstration left, and whether it still belongs to what it was made from."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from trust_cache.base.documents import parse_json
from trust_cache.base.errors import InputError
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.cache.reading import Cache, open_cache
from trust_cache.heads.partial import PartialRun
from trust_cache.heads.preparation import labels_sha256


def run_is_whole(run: Path, cache: Cache) -> bool:
    """Tell whether a run folder is there and was trained on features of this cache's making and images."""
    try:
        record = parse_json((run / "run.json").read_bytes())
        return bool(
            record["fingerprint"] == cache.fingerprint.as_document()
            and record["manifest_sha256"] == labels_sha256(cache)
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


@dataclass(frozen=True)
class Start:
    """Whether a training goes on with an interrupted one, or takes the place of a stale one."""

    resume: bool
    overwrite: bool


def how_to_start(run: Path) -> Start:
    """Return how to train a run that is not whole."""
    stale = (run / "run.json").exists()
    return Start(resume=not stale and PartialRun(run).exists, overwrite=stale)


def cache_is_whole(path: Path, fingerprint: Fingerprint) -> bool:
    """Tell whether a simulated cache is there and finished; one of ours that is not is removed."""
    if not path.exists():
        return False
    cache = open_cache(path)
    if cache.fingerprint != fingerprint:
        raise InputError(
            f"{path}: expected a cache of the demonstration, found another; choose another --out"
        )
    if cache.done.all():
        return True
    shutil.rmtree(path)
    return False
