"""Write and read the model folder: one head, its threshold, its certificate, and digests of every file."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from trust_cache.base.digests import digests_of
from trust_cache.base.documents import Document, json_bytes, parse_json, typed
from trust_cache.base.errors import InputError, parse_day
from trust_cache.base.files import write_folder
from trust_cache.base.versions import versions_of
from trust_cache.cache.fingerprint import Fingerprint, imported_warning
from trust_cache.certificate.certified_folder import Certificate, SubgroupRow
from trust_cache.certificate.verify import verify_counts
from trust_cache.clinic.model_card import render_card
from trust_cache.clinic.model_scoring import DIGEST_BYTES, TrainedOn
from trust_cache.encoders.probe import Probe
from trust_cache.encoders.recipe import RecipeKeys, recipe_of_text
from trust_cache.heads.bank import HeadParameters
from trust_cache.manifest.cases import Aggregation
from trust_cache.manifest.data_terms import DataTerms
from trust_cache.manifest.protocol import Protocol
from trust_cache.statistics.confidence_sequences import MixturePrior, prior_of
from trust_cache.statistics.feature_gate import FeatureGate
from trust_cache.studies.image_sketches import LEAST, MOST, NUMBERS, ImageSketches

SCHEMA = 1
RECORD, CERTIFICATE, REFERENCE = "model.json", "certificate.json", "reference.csv"
HEAD, TRAINED_ON, GATE = "head.safetensors", "trained_on.safetensors", "gate.safetensors"
CARD = "MODEL_CARD.md"
OWN = frozenset({RECORD, HEAD, REFERENCE, TRAINED_ON, GATE, CERTIFICATE, CARD})
_GATE_ARRAYS = ("centre", "scale", "basis", "variances")
_GATE_NUMBERS = ("residual", "start", "spread", "shape")
_PARTS = ("gamma", "beta", "weight", "bias")
_FIX = "copy the folder again, or export the model again"

Kind = Literal["trust-cache model"]
ModelOrigin = Literal["refit", "external"]


class ModelRecord(Document, frozen=True, kw_only=True):
    """The content of model.json."""

    schema: int
    kind: Kind
    configuration: str
    aggregation: Aggregation  # of a case's image scores to its own
    origin: ModelOrigin
    tau: float | None
    target: float
    chosen_by: str
    protocol: Protocol
    certified: bool
    certificate: str | None  # the name of its file
    valid_until: str | None  # the last day on which triage applies it
    prior: MixturePrior | None  # of the confidence sequences of `monitor`; fixed with the certificate
    terms: dict[str, tuple[DataTerms, ...]]  # of the training and the evaluation data
    subgroups: tuple[SubgroupRow, ...]  # certified with the point of the certificate
    fingerprint: Fingerprint
    probe: Probe | None  # in the runtime of the training cache; None: imported features
    dim: int
    made_from: dict[str, Any]
    files: dict[str, str]  # digests by name
    versions: dict[str, str]
    sha256: str  # of everything above


@dataclass(frozen=True)
class ModelThreshold:
    """A dismissal threshold for case scores, its target, and how it was chosen."""

    tau: float | None  # None: nothing is dismissed
    target: float
    chosen_by: str


@dataclass(frozen=True)
class Model:
    """A head to apply to new cases, with everything that its use depends on."""

    configuration: str
    aggregation: Aggregation  # of a case's image scores to its own
    origin: ModelOrigin
    fingerprint: Fingerprint
    head: HeadParameters = field(repr=False)  # of one head
    threshold: ModelThreshold
    protocol: Protocol  # what a case must be to be dismissed
    reference: NDArray[np.float64] = field(repr=False)  # sorted scores of cases it was not fitted on
    trained_on: TrainedOn = field(repr=False)
    gate: FeatureGate = field(repr=False)
    made_from: Mapping[str, Any]
    certificate: Certificate | None = None
    valid_until: str | None = None  # the last day on which triage applies it
    terms: Mapping[str, tuple[DataTerms, ...]] = field(default_factory=dict)  # of training and evaluation
    subgroups: tuple[SubgroupRow, ...] = ()
    probe: Probe | None = field(default=None, repr=False)  # its features in the runtime of the training cache

    def __post_init__(self) -> None:
        if self.valid_until is not None:
            parse_day(self.valid_until, "valid until")
        if self.head.heads != 1:
            raise InputError(f"model: expected one head, found {self.head.heads}")
        for name in _PARTS:
            if not np.all(np.isfinite(getattr(self.head, name))):
                raise InputError(f"model: expected finite numbers in the head's {name}, found others")
        if not np.all(np.isfinite(self.reference)):
            raise InputError("model: expected finite reference scores, found others")
        if not self.protocol.for_models:
            raise InputError(
                "protocol: expected one with projections, review_warnings and feature_tail, found"
                f" {self.protocol.name!r} without {self.protocol.lacking}"
            )
        if self.certificate is not None:
            self._check_certificate(self.certificate)

    def _check_certificate(self, certificate: Certificate) -> None:
        """Refuse one that is not of this model, not certified, or that its own counts contradict."""
        if not certificate.certified:
            raise InputError(
                f"certificate: expected one with the status certified, found {certificate.status!r}"
                f" ({certificate.reason}); it certifies nothing"
            )
        for name, expected, found in (
            ("tau", self.threshold.tau, certificate.tau),
            ("target", self.threshold.target, certificate.target),
            ("configuration", self.configuration, certificate.configuration),
            ("aggregation", self.aggregation, certificate.aggregation),
            ("protocol", self.protocol, certificate.protocol),
        ):
            if found != expected:
                raise InputError(f"certificate: expected {name} {expected!r} of the model, found {found!r}")
        for problem in verify_counts(certificate):
            raise InputError(
                f"certificate: it does not follow from its own counts: {problem}; certify the model again"
            )

    @property
    def certified(self) -> bool:
        """Whether it has a certificate of this head at this threshold."""
        return self.certificate is not None

    @property
    def prior(self) -> MixturePrior | None:
        """The prior of the confidence sequences of `monitor`, which the certificate's counts fix."""
        found = self.certificate
        return None if found is None else prior_of(found.bound_positives_dismissed, found.bound_dismissed)

    def expired(self, today: date) -> bool:
        """Whether the last day on which it may be applied has passed."""
        return self.valid_until is not None and today > date.fromisoformat(self.valid_until)


def certificate_problem(certificate: Certificate) -> str | None:
    """Return why a certificate does not certify a model; None if it does."""
    if not certificate.certified:
        return certificate.explained
    if not certificate.protocol.for_models:
        return (
            f"the protocol {certificate.protocol.name} is without {certificate.protocol.lacking};"
            " certify with --protocol screening"
        )
    return None


@dataclass(frozen=True)
class StoredModel:
    """A model and its folder; its digest is that of model.json, which has the digests of all other files."""

    folder: Path
    model: Model
    sha256: str


def recipe_of(stored: StoredModel) -> RecipeKeys:
    """Return the recipe of the model's encoder; refuse a model of imported features, which has none."""
    made = stored.model.fingerprint
    recipe = recipe_of_text(made.recipe)
    if recipe is None:
        raise InputError(f"{stored.folder}: {imported_warning(made)}")
    return RecipeKeys(**recipe.as_document())


def write_model(model: Model, out: Path, *, keep: bool = True) -> Path | None:
    """Write the model folder; return where an earlier model in its place went, if it is to be kept."""
    return write_folder(out, render_model(model), own=OWN, keep=keep)


def render_model(model: Model) -> dict[str, bytes]:
    """Return the files of a model folder by name."""
    reference = "".join(f"{score!r}\n" for score in np.sort(model.reference).tolist())
    files = {
        HEAD: save({name: np.ascontiguousarray(getattr(model.head, name)) for name in _PARTS}),
        REFERENCE: f"score\n{reference}".encode(),
        TRAINED_ON: save(_arrays_of(model.trained_on)),
        GATE: _gate_bytes(model.gate),
        CARD: render_card(model).encode(),
    }
    if model.certificate is not None:
        # In the order of the certified folder: the same certificate has the same bytes.
        certificate = model.certificate.as_document()
        files[CERTIFICATE] = json_bytes({"schema": certificate["schema"]} | certificate)
    record = ModelRecord(
        schema=SCHEMA,
        kind="trust-cache model",
        configuration=model.configuration,
        aggregation=model.aggregation,
        origin=model.origin,
        **asdict(model.threshold),
        protocol=model.protocol,
        certified=model.certified,
        certificate=CERTIFICATE if model.certified else None,
        valid_until=model.valid_until,
        prior=model.prior,
        terms=dict(model.terms),
        subgroups=model.subgroups,
        fingerprint=model.fingerprint,
        probe=model.probe,
        dim=model.head.dim,
        made_from=dict(model.made_from),
        files=digests_of(files),
        versions=versions_of("numpy", "numba", "safetensors"),
        sha256="",
    )
    return {RECORD: _sealed(record.as_document()), **files}


def _gate_bytes(gate: FeatureGate) -> bytes:
    arrays = {name: np.ascontiguousarray(getattr(gate, name), dtype=np.float32) for name in _GATE_ARRAYS}
    numbers = np.array([getattr(gate, name) for name in _GATE_NUMBERS], dtype=np.float64)
    return save(arrays | {"numbers": numbers})


def _gate_of(content: bytes, dim: int) -> FeatureGate:
    arrays = load(content)
    residual, start, spread, shape = (float(number) for number in arrays.pop("numbers"))
    if arrays["centre"].shape != (dim,) or arrays["basis"].shape != (arrays["variances"].size, dim):
        raise InputError(f"{GATE}: expected a feature gate of {dim} features, found another shape")
    centre, scale, basis, variances = (arrays[name] for name in _GATE_ARRAYS)
    return FeatureGate(centre, scale, basis, variances, residual, start, spread, shape)


def _arrays_of(trained_on: TrainedOn) -> dict[str, NDArray[Any]]:
    """Return the arrays of what a head was trained on, sorted, so that their order reveals nothing."""
    sketches = trained_on.sketches
    used = sketches.codes[sketches.codes.any(axis=1)]
    cases = np.frombuffer(b"".join(sorted(trained_on.cases)), np.uint8).reshape(-1, DIGEST_BYTES)
    return {
        "cases": cases,
        "key_check": np.frombuffer(trained_on.key_check, np.uint8),
        "centre": sketches.centre,
        "scale": np.array([sketches.spread, sketches.same_to]),
        "codes": used[np.lexsort(used.T)],
    }


def _trained_on_of(arrays: Mapping[str, NDArray[Any]], dim: int) -> TrainedOn:
    """Return what a head was trained on; refuse arrays that could not recognise it."""
    found = {name: (array.dtype.name, array.shape) for name, array in arrays.items()}
    counts = {name: array.shape[:1] for name, array in arrays.items()}
    if found != {
        "cases": ("uint8", (*counts["cases"], DIGEST_BYTES)),
        "key_check": ("uint8", (DIGEST_BYTES if arrays["cases"].size else 0,)),
        "centre": ("float32", (dim,)),
        "scale": ("float64", (2,)),
        "codes": ("int16", (*counts["codes"], NUMBERS)),
    }:
        raise InputError(f"{TRAINED_ON}: expected sketches of {dim} features, found {found}")
    spread, same_to = arrays["scale"].tolist()
    if not (np.isfinite(arrays["centre"]).all() and 0 <= spread < np.inf and LEAST <= same_to <= MOST):
        raise InputError(
            f"{TRAINED_ON}: expected a finite centre, a spread and a limit of {LEAST} to {MOST}, found a"
            f" spread of {spread} and a limit of {same_to}"
        )
    sketches = ImageSketches(arrays["centre"], spread, same_to, arrays["codes"])
    return TrainedOn(sketches, frozenset(map(bytes, arrays["cases"])), bytes(arrays["key_check"]))


def read_model(folder: Path) -> StoredModel:
    """Read a model folder; refuse one in which any byte has changed."""
    content = _read(folder, RECORD)
    record = _read_record(content, folder / RECORD)
    files = _read_files(record, folder)
    try:
        model = _model_of(record, files)
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error
    except (SafetensorError, KeyError, ValueError, AttributeError) as error:
        raise InputError(f"{folder}: the model cannot be read ({error!r}); {_FIX}") from error
    return StoredModel(folder, model, _sha256(content))


def _model_of(record: ModelRecord, files: Mapping[str, bytes]) -> Model:
    arrays, trained_on = load(files[HEAD]), load(files[TRAINED_ON])
    shapes, dim = {name: arrays[name].shape for name in _PARTS}, record.dim
    if shapes != {"gamma": (1, dim), "beta": (1, dim), "weight": (1, dim), "bias": (1,)}:
        raise InputError(f"expected a head of {dim} features, found {shapes}")
    header, *scores = files[REFERENCE].decode().splitlines()
    if header != "score":
        raise InputError(f"{REFERENCE}: expected the header 'score', found {header!r}")
    certificate = None
    if (content := files.get(CERTIFICATE)) is not None:
        certificate = typed(parse_json(content), Certificate, where=CERTIFICATE, what="a certificate")
    if record.certified is not (certificate is not None):
        raise InputError(f"{RECORD} says certified {record.certified!r}, but {CERTIFICATE} does not agree")
    model = Model(
        configuration=record.configuration,
        aggregation=record.aggregation,
        origin=record.origin,
        fingerprint=record.fingerprint,
        head=HeadParameters(**{name: arrays[name].astype(np.float32, copy=False) for name in _PARTS}),
        threshold=ModelThreshold(record.tau, record.target, record.chosen_by),
        protocol=record.protocol,
        reference=np.array([float(score) for score in scores]),
        trained_on=_trained_on_of(trained_on, dim),
        gate=_gate_of(files[GATE], dim),
        made_from=record.made_from,
        certificate=certificate,
        valid_until=record.valid_until,
        terms=record.terms,
        subgroups=record.subgroups,
        probe=record.probe,
    )
    if record.prior != model.prior:
        raise InputError(
            f"{RECORD}: expected the prior {model.prior} of its certificate, found {record.prior}"
        )
    return model


def _read_record(content: bytes, path: Path) -> ModelRecord:
    try:
        document = parse_json(content)
    except ValueError as error:
        raise InputError(f"{path}: not a readable JSON file ({error}); {_FIX}") from error
    record = typed(document, ModelRecord, where=path, what="the record of a model", schema=SCHEMA)
    try:
        unchanged = _sealed(document) == content
    except (ValueError, RecursionError):  # Python reads NaN, which JSON does not have
        unchanged = False
    if not unchanged:
        raise InputError(f"{path}: was changed after the model was exported; {_FIX}")
    return record


def _sealed(document: Mapping[str, Any]) -> bytes:
    """Return a document with the digest of its other entries as the last one."""
    rest = {name: value for name, value in document.items() if name != "sha256"}
    return json_bytes(rest | {"sha256": _sha256(json_bytes(rest))})


def _read_files(record: ModelRecord, folder: Path) -> dict[str, bytes]:
    """Read the other files; refuse missing, unlisted and changed ones."""
    needed = {HEAD, REFERENCE, TRAINED_ON, GATE, CARD} | ({CERTIFICATE} if record.certificate else set())
    if set(record.files) != needed:
        raise InputError(f"{folder / RECORD}: expected the digests of {', '.join(sorted(needed))}")
    unlisted = sorted(name for name in OWN - {RECORD} - needed if (folder / name).exists())
    if unlisted:
        raise InputError(f"{folder / unlisted[0]}: does not belong to this model; remove it")
    files = {name: _read(folder, name) for name in sorted(needed)}
    for name, content in files.items():
        if _sha256(content) != record.files[name]:
            raise InputError(
                f"{folder / name}: was changed after the model was exported (sha256 expected"
                f" {record.files[name]}, found {_sha256(content)}); {_FIX}"
            )
    return files


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(
            f"{folder}: expected a model folder with {name} in it, found none;"
            " make one with `trust-cache export-model`"
        ) from error
    except OSError as error:
        raise InputError(f"{folder / name}: cannot be read ({error.strerror or error})") from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
