"""Score pictures one at a time, so that a score does not depend on the other pictures of the list."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.base.executor import ItemOutcome, WorkerDiedError
from trust_cache.cache.extract.extraction_record import Origin, describe_preprocessing
from trust_cache.cache.extract.view_features import EncoderChoice, Runner, encode_clean_view, make_fingerprint
from trust_cache.cache.feature_rows import rows_of_array
from trust_cache.cache.fingerprint import imported_warning, require_same_encoder
from trust_cache.clinic.incoming_cases import IncomingImage
from trust_cache.clinic.model_folder import Model, StoredModel
from trust_cache.encoders.known_encoders import RANDOM
from trust_cache.encoders.torch_runtime import choose_devices, precision_of
from trust_cache.heads.bank import score_rows
from trust_cache.images.dicom_file import digested_dicom
from trust_cache.images.image_failures import ImageError
from trust_cache.images.picture import process_image
from trust_cache.images.picture_folder import ImageSettings


@dataclass(frozen=True)
class Task:
    """A picture of the case at a position of the list."""

    case: int
    picture: IncomingImage


@dataclass(frozen=True)
class PreparedPicture:
    """The pixels that `preprocess` would write to a PNG, the warnings about the file, and its digest.

    Without pixels, the file cannot be scored for the reason in `failure`; one that cannot be read has no
    digest.
    """

    pixels: NDArray[np.uint16] | None
    warnings: tuple[str, ...]
    digest: str | None
    sketch: str = ""
    failure: str | None = None


def prepare(task: Task, settings: ImageSettings) -> PreparedPicture:
    """Decode, mirror and crop a picture exactly as `preprocess` does; the digest is of the bytes decoded."""
    picture, digest = task.picture, None
    try:
        with digested_dicom(picture.location) as (file, digest):
            made = process_image(file, picture.laterality or "", settings, picture.projection)
        if made.png_pixels.min() == made.png_pixels.max():
            raise ImageError("intensity", f"the image is constant: every pixel is {made.png_pixels.flat[0]}")
    except ImageError as error:
        return PreparedPicture(None, (), digest, failure=str(error))
    return PreparedPicture(made.png_pixels, made.warnings, digest, made.sketch)


def failure_of(outcome: ItemOutcome[Task, PreparedPicture]) -> str:
    """Return why nothing is known of a picture; internal errors are raised."""
    error = outcome.error
    if isinstance(error, WorkerDiedError):
        return "decode: the decoder ended its whole process: the file is damaged or hostile"
    if isinstance(error, MemoryError):
        return "decode: there was not enough memory"
    if isinstance(error, OSError):
        return f"read: the file cannot be read ({error.strerror or 'input error'})"
    raise error if error is not None else RuntimeError("an outcome without value and error")


@dataclass(frozen=True)
class PictureScore:
    """A picture's score, and the share of fitting images that are as unusual to the encoder."""

    score: float
    feature_tail: float


def score_picture(runner: Runner, model: Model, pixels: NDArray[np.uint16]) -> PictureScore:
    """Return a picture's score, equal to that of `extract` and the head; ImageError if it has none."""
    features = encode_clean_view(runner, torch.from_numpy(pixels))
    rows = rows_of_array(features[None, None])
    score = float(score_rows(rows, np.zeros(1, dtype=np.int64), model.head)[0, 0])
    if not np.isfinite(score):
        raise ImageError("encode", "the score is not a number")
    return PictureScore(score, float(model.gate.tails(features[None])[0]))


def input_size(stored: StoredModel) -> tuple[int, int]:
    """Return the size of the encoder's input; refuse a model of imported features, which have no encoder."""
    made = stored.model.fingerprint
    if made.image_size is None:
        raise InputError(f"{stored.folder}: {imported_warning(made)}")
    return made.image_size


def choose_device(stored: StoredModel, word: str) -> str:
    """Return the device; `auto` means one with the precision of the model."""
    input_size(stored)  # before anything else is asked for
    if word == "auto":
        word = "cpu" if stored.model.fingerprint.precision == precision_of("cpu") else "cuda"
    devices = choose_devices(word)
    if len(devices) > 1:
        raise InputError(f"device: expected one, found {word}")
    return devices[0]


def choose_weights(stored: StoredModel, given: str | None) -> str:
    """Return the weights to load: the given file, or `random` if the model was made with random weights."""
    if given is not None:
        return given
    known = stored.model.fingerprint.weights_sha256
    if known.startswith(f"{RANDOM}:"):
        return RANDOM
    raise InputError(
        f"{stored.folder}: give the encoder's weights with --weights: the file with sha256 {known}"
    )


def choose_encoder(stored: StoredModel, weights: str, device: str, settings: ImageSettings) -> EncoderChoice:
    """Return the model's encoder; refuse one whose network, weights or input differ."""
    expected = stored.model.fingerprint
    choice = EncoderChoice(weights, expected.encoder, expected.seed, input_size(stored))
    identity = choice.identify()
    origin = Origin(describe_preprocessing(settings), expected.decoder)
    found = make_fingerprint(identity, origin, seed=expected.seed, device=device)
    require_same_encoder(expected, found, f"{stored.folder} with {weights} on {device}")
    if identity.dim != stored.model.head.dim:
        raise InputError(
            f"{stored.folder}: expected an encoder of {stored.model.head.dim} features, as the head has,"
            f" found {identity.dim} of {identity.encoder}"
        )
    return choice
