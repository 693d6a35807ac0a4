"""Score pictures one at a time, so that a score does not depend on the other pictures of the list."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from trust_cache.base.errors import InputError
from trust_cache.cache.extract.extraction_record import Origin, describe_preprocessing
from trust_cache.cache.extract.view_features import (
    EncoderChoice,
    Runner,
    encode_clean_view,
    encode_probe,
    load_runner,
    make_fingerprint,
)
from trust_cache.cache.feature_rows import rows_of_array
from trust_cache.cache.fingerprint import (
    Fingerprint,
    require_comparable,
    require_same_encoder,
)
from trust_cache.clinic.model_folder import Model, StoredModel, recipe_of
from trust_cache.encoders.known_encoders import RANDOM
from trust_cache.encoders.known_runtimes import Runtime, choose_runtime, precision_of
from trust_cache.encoders.torch_runtime import choose_devices
from trust_cache.heads.bank import score_rows
from trust_cache.images.image_failures import ImageError
from trust_cache.images.picture_folder import ImageSettings


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


def choose_device(stored: StoredModel, word: str) -> str:
    """Return the device; `auto` means one with the precision of the model if there is one, else the CPU."""
    if word == "auto" and stored.model.fingerprint.precision == precision_of("cpu"):
        word = "cpu"
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


def choose_encoder(
    stored: StoredModel, weights: str, device: str, runtime: Runtime, settings: ImageSettings
) -> tuple[EncoderChoice, Fingerprint]:
    """Return the model's encoder and the fingerprint of its features here.

    An encoder is refused if its network, weights or input differ.
    """
    expected = stored.model.fingerprint
    choice = EncoderChoice(weights, expected.encoder, expected.seed, recipe_of(stored))
    identity = choice.identify()
    origin = Origin(describe_preprocessing(settings), expected.decoder)
    found = make_fingerprint(identity, origin, seed=expected.seed, device=device, runtime=runtime)
    require_same_encoder(expected, found, f"{stored.folder} with {weights} on {device}")
    if identity.dim != stored.model.head.dim:
        raise InputError(
            f"{stored.folder}: expected an encoder of {stored.model.head.dim} features, as the head has,"
            f" found {identity.dim} of {identity.encoder}"
        )
    return choice, found


@dataclass(frozen=True)
class ModelEncoder:
    """A model and its encoder, ready to run here."""

    model: Model
    runner: Runner
    probe_difference: float | None  # from the runtime that the model was trained with

    def score(self, pixels: NDArray[np.uint16]) -> PictureScore:
        """Return a picture's score, equal to that of `extract` and the head; ImageError if it has none."""
        return score_picture(self.runner, self.model, pixels)


@dataclass(frozen=True)
class EncoderPlan:
    """Where and by what a model's encoder runs here, and the function that loads it."""

    device: str
    runtime: str  # with its version
    threads: int
    load: Callable[[], ModelEncoder]


def plan_encoder(
    stored: StoredModel, weights: str | None, device: str, runtime: str, images: ImageSettings
) -> EncoderPlan:
    """Refuse at once a model that cannot run here, and plan its encoder."""
    place, given = choose_device(stored, device), choose_weights(stored, weights)
    # A model without a probe can only be compared by the name and version of its runtime.
    made = stored.model.fingerprint
    chosen = choose_runtime(runtime, place, made.runtime if stored.model.probe is None else None)
    threads = torch.get_num_threads()
    load = partial(_load_encoder, stored, given, place, chosen, images, threads)
    return EncoderPlan(place, chosen.words, threads, load)


def _load_encoder(
    stored: StoredModel, weights: str, device: str, runtime: Runtime, images: ImageSettings, threads: int
) -> ModelEncoder:
    """Load a model's encoder on a device; refuse one that gives other features of the model's probe."""
    model = stored.model
    choice, found = choose_encoder(stored, weights, device, runtime, images)
    with ThreadPoolExecutor(1) as beside:
        beside.submit(_load_kernels, model)
        runner = load_runner(choice, device, runtime=runtime, threads=threads)
        probe = None if model.probe is None else encode_probe(runner, threads)
    source = f"{stored.folder} with {weights} on {device}"
    difference = require_comparable((model.fingerprint, model.probe), (found, probe), source)
    return ModelEncoder(model, runner, difference)


def _load_kernels(model: Model) -> None:
    """Score once without a picture: loading the compiled kernels on first use takes half a second."""
    nothing = rows_of_array(np.zeros((1, 1, model.head.dim), dtype=np.float16))
    score_rows(nothing, np.zeros(1, dtype=np.int64), model.head)
