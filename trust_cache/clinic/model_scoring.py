"""Apply a model's head to a cache, and recognise the cases and images that the head was trained on."""

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError, shown
from trust_cache.base.files import open_private, refusals_in_words
from trust_cache.cache.cache_reader import Cache
from trust_cache.cache.feature_rows import FeatureRows
from trust_cache.heads.bank import HeadParameters, score_rows
from trust_cache.manifest.cases import Aggregation, Cases, find_cases
from trust_cache.studies.image_sketches import ImageSketches, sketch_images

Floats = NDArray[np.float64]

DIGEST_BYTES = 16
_KEY_BYTES = 32
_KEY_CHECK = "trust-cache key"  # its digest tells one key from another


@dataclass(frozen=True)
class ScoredCache:
    """One head's scores of a cache's images and cases."""

    cases: Cases
    images: Floats
    by_case: Floats


def score_cache(
    cache: Cache, rows: FeatureRows, head: HeadParameters, aggregation: Aggregation
) -> ScoredCache:
    """Score every image and every case of a cache."""
    cases = find_cases(cache.manifest)
    images = score_rows(rows, np.arange(cache.images), head)[0]
    return ScoredCache(cases, images, cases.score(images, aggregation))


def read_key(path: Path, *, create: bool = False) -> bytes:
    """Read the key of the digests of case ids; with `create`, make one (mode 0600) where there is none."""
    if create:
        with refusals_in_words(str(path)):
            try:
                with open_private(path, "xb") as file:
                    file.write(f"{secrets.token_hex(_KEY_BYTES)}\n".encode())
            except FileExistsError:
                pass
    try:
        text, mode = path.read_bytes(), path.stat().st_mode
    except FileNotFoundError as error:
        raise InputError(f"{path}: expected the key that the model was exported with, found none") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if os.name != "nt" and mode & 0o077:
        raise InputError(f"{path}: expected a key that only its owner can read; run chmod 600 {path}")
    try:
        key = bytes.fromhex(text.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:  # the file's content is not shown: it may be another secret
        raise InputError(f"{path}: expected a key of export-model ({2 * _KEY_BYTES} hexadecimal digits)")
    return key


def digest_of(case_id: str, key: bytes) -> bytes:
    """Return what stands for a case id in a model folder: nobody can compute it without the key."""
    text = case_id.encode(errors="surrogatepass")
    return hmac.new(key, text, hashlib.sha256).digest()[:DIGEST_BYTES]


@dataclass(frozen=True)
class TrainedOn:
    """Sketches of the images that a head was trained on and, if there is a key, digests of its case ids."""

    sketches: ImageSketches
    cases: frozenset[bytes] = field(default=frozenset(), repr=False)
    key_check: bytes = b""  # empty: no key, no digests

    @classmethod
    def from_cache(cls, cache: Cache, rows: FeatureRows, key: bytes | None = None) -> "TrainedOn":
        """Return the record of a head that was trained on this cache."""
        sketches = sketch_images(rows)
        if key is None:
            return cls(sketches)
        cases = frozenset(digest_of(name, key) for name in cache.manifest["case_id"].unique())
        return cls(sketches, cases, digest_of(_KEY_CHECK, key))

    def refuse_seen(self, cache: Cache, rows: FeatureRows, key: bytes | None = None) -> tuple[str, ...]:
        """Refuse a cache with cases that the head was trained on; return warnings.

        Images are compared by their features. Where these differ, an equal case id is only a warning:
        different data sets number their cases alike. Where features cannot be compared, the case ids decide.
        """
        shared, warnings = self._shared_cases(cache, key)
        _, others = self.sketches.find(self.sketches.sketch(rows))
        images = cache.manifest["image_id"][others].to_list()
        if images or (shared and not self.sketches.usable):
            kind, names = ("images", images) if images else ("cases", shared)
            raise InputError(
                f"{cache.source}: expected cases that the model never saw, found {len(names)} {kind} that it"
                f" was trained on ({shown(names)}); leave them out with `trust-cache cache subset`"
            )
        if not self.sketches.usable:
            warnings += ("the model has too few features to recognise the images that it was trained on",)
        if shared:
            warnings += (
                f"{len(shared)} case ids also occur among the cases that the model was trained on (the first:"
                f" {shared[0]}). Their images differ, so they count as different cases. If the same patients"
                " occur in both, the certificate is not exact",
            )
        return warnings

    def _shared_cases(self, cache: Cache, key: bytes | None) -> tuple[list[str], tuple[str, ...]]:
        """Return the case ids that the head was trained on, and a warning if they cannot be compared."""
        if key is None:
            said = "the model has keyed digests of its case ids, but no key was given (--key)"
            return [], (f"{said}: only images were compared",) if self.key_check else ()
        if not self.key_check:
            return [], ("the model was exported without a key: only images were compared",)
        if not hmac.compare_digest(digest_of(_KEY_CHECK, key), self.key_check):
            raise InputError("key: expected the key that the model was exported with, found another")
        names = cache.manifest["case_id"].unique()
        return sorted(name for name in names if digest_of(name, key) in self.cases), ()
