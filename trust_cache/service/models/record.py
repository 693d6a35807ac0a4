"""What a model is: one head, the encoder it belongs to, a threshold, and what warrants it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.cache.reading import Cache, shown
from trust_cache.cache.rows import FeatureRows
from trust_cache.heads.bank import HeadParameters
from trust_cache.service.models.sketches import TELLING_DIMS, Sketches, same_images, sketch_images

Origin = Literal["refit", "external"]


@dataclass(frozen=True)
class Threshold:
    """A dismissal threshold for case scores, the recall it aims at, and what it was chosen from."""

    tau: float | None  # None: nothing is dismissed
    target: float
    chosen_by: str


@dataclass(frozen=True)
class TrainedOn:
    """What a head was trained on, as far as a case or a picture of it is known again.

    A check, no anonymisation: who can guess an id can find its digest.
    """

    cases: frozenset[str]  # digests of case ids
    sketches: Sketches = field(repr=False)  # [image, number]

    def refuse_seen(self, cache: Cache, rows: FeatureRows) -> tuple[str, ...]:
        """Refuse cases that the head has seen: a certificate on them would say nothing; return warnings.

        Pictures are compared by their features. Where these differ, the same case id is only a warning:
        different sets number their cases alike. Features too few to tell leave the ids to decide.
        """
        manifest = cache.manifest
        pictures = manifest["image_id"][same_images(self.sketches, sketch_images(rows))].to_list()
        shared = sorted(name for name in manifest["case_id"].unique() if digest_of(name) in self.cases)
        if pictures or (shared and rows.dim < TELLING_DIMS):
            kind, names = ("images", pictures) if pictures else ("cases", shared)
            raise InputError(
                f"{cache.source}: expected cases that the model never saw, found {len(names)} {kind} that it"
                f" was trained on ({shown(names)}); leave them out with `trust-cache cache subset`"
            )
        if not shared:
            return ()
        return (
            f"{len(shared)} case ids are also among those that the model was trained on (the first:"
            f" {shared[0]}); their pictures differ, so they are taken for different examinations. If some are"
            " of the same women, the certificate is not exact",
        )


def digest_of(case_id: str) -> str:
    """Return the digest under which a case id is remembered."""
    return hashlib.blake2b(case_id.encode(errors="surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Model:
    """A head to apply to new examinations, with everything that its use depends on."""

    configuration: str
    origin: Origin
    fingerprint: Fingerprint
    head: HeadParameters = field(repr=False)  # of one head
    threshold: Threshold
    reference: NDArray[np.float64] = field(repr=False)  # sorted scores of cases it was not fitted on
    trained_on: TrainedOn = field(repr=False)
    made_from: Mapping[str, Any]
    certificate: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.head.heads != 1:
            raise InputError(f"model: expected one head, found {self.head.heads}")
        for name in ("gamma", "beta", "weight", "bias"):
            if not np.all(np.isfinite(getattr(self.head, name))):
                raise InputError(f"model: expected finite numbers in the head's {name}, found others")
        if not np.all(np.isfinite(self.reference)):
            raise InputError("model: expected finite reference scores, found others")
        if self.certificate is not None:
            _check_certificate(self.certificate, self)

    @property
    def certified(self) -> bool:
        """Whether a certificate vouches for this head at this threshold."""
        return self.certificate is not None


def _check_certificate(certificate: Mapping[str, Any], model: Model) -> None:
    """Refuse a certificate that certifies nothing, or something else than this threshold."""
    if certificate.get("met") is not True:
        raise InputError(
            f"certificate: expected one whose target was met, found met = {certificate.get('met')!r}"
            f" ({certificate.get('reason')}); it certifies nothing"
        )
    expected = {"tau": model.threshold.tau, "target": model.threshold.target}
    expected["configuration"] = model.configuration  # type: ignore[assignment]  # a text among numbers
    for name, value in expected.items():
        if certificate.get(name) != value:
            raise InputError(
                f"certificate: expected {name} {value!r} of the model, found {certificate.get(name)!r}"
            )
