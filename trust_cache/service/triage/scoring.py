"""Scores of pictures, each alone through the encoder: what else is in the list has no say in them."""

import numpy as np
import torch

from trust_cache.base.errors import InputError
from trust_cache.cache.encoder import RANDOM, identify_encoder
from trust_cache.cache.extraction.decoding import Decoded
from trust_cache.cache.extraction.devices import choose_devices, precision_of
from trust_cache.cache.extraction.identity import make_fingerprint
from trust_cache.cache.extraction.loading import EncoderWords, load_runner
from trust_cache.cache.extraction.origin import Origin, describe_preprocessing
from trust_cache.cache.extraction.recipe import ImageFile, Recipe, ShardFiles
from trust_cache.cache.extraction.runner import Runner
from trust_cache.cache.extraction.shard_features import encode_shard, finish_shard
from trust_cache.cache.fingerprint import require_same_encoder
from trust_cache.cache.rows import rows_of_array
from trust_cache.heads.bank import HeadParameters, score_rows
from trust_cache.images.errors import ImageError
from trust_cache.images.settings import ImageSettings
from trust_cache.service.models.folder import StoredModel
from trust_cache.service.triage.examinations import Picture
from trust_cache.service.triage.pictures import Prepared

_FIRST = np.zeros(1, dtype=np.int64)


class PictureScorer:
    """A model's head behind its encoder on one device."""

    def __init__(self, runner: Runner, recipe: Recipe, head: HeadParameters) -> None:
        self._runner, self._recipe, self._head = runner, recipe, head

    def score(self, picture: Picture, prepared: Prepared) -> float:
        """Return a picture's score as `extract` and the head give it; ImageError where there is none."""
        files = ShardFiles(0, (ImageFile(picture.image_id, picture.location),))
        decoded = Decoded(torch.from_numpy(prepared.pixels), None, 0.0)
        encoded = encode_shard(files, iter([decoded]), self._recipe, self._runner, 1, self._head.dim)
        finished = finish_shard(files, encoded)
        for failure in finished.failures:
            raise ImageError(failure.stage, failure.reason)  # type: ignore[arg-type]  # one of the stages
        score = float(score_rows(rows_of_array(finished.features), _FIRST, self._head)[0, 0])
        if not np.isfinite(score):
            raise ImageError("encode", "the score is not a number")
        return score


def choose_device(stored: StoredModel, word: str) -> str:
    """Return the device of the model's own precision for `auto`, else the one asked for."""
    if word == "auto":
        word = "cpu" if stored.model.fingerprint.precision == precision_of("cpu") else "cuda"
    devices = choose_devices(word)
    if len(devices) > 1:
        raise InputError(f"device: expected one, found {word}")
    return devices[0]


def choose_weights(stored: StoredModel, given: str | None) -> str:
    """Return the weights to load: those given, or random ones where the model was made with such."""
    if given is not None:
        return given
    known = stored.model.fingerprint.weights_sha256
    if known.startswith(f"{RANDOM}:"):
        return RANDOM
    raise InputError(
        f"{stored.folder}: say with --weights where the encoder's weights lie, the file of sha256 {known}"
    )


def load_scorer(stored: StoredModel, weights: str, device: str, settings: ImageSettings) -> PictureScorer:
    """Load the encoder and refuse any other than the model's, or another way to feed it."""
    expected = stored.model.fingerprint
    if expected.image_size is None:
        raise InputError(
            f"{stored.folder}: the model's features were made elsewhere ({expected.encoder}); expected ones"
            " that `trust-cache extract` made, only those can be made of new images"
        )
    words = EncoderWords(weights, expected.encoder, expected.seed, expected.image_size)
    identity = identify_encoder(words.weights, words.encoder, words.seed, image_size=words.image_size)
    origin = Origin(describe_preprocessing(settings), expected.decoder)
    found = make_fingerprint(identity, origin, image_size=words.image_size, seed=words.seed, device=device)
    require_same_encoder(expected, found, f"{stored.folder} with {weights} on {device}")
    if identity.dim != stored.model.head.dim:
        raise InputError(
            f"{stored.folder}: expected an encoder of {stored.model.head.dim} features, as the head has,"
            f" found {identity.dim} of {identity.encoder}"
        )
    runner = load_runner(words, device, compiled=False)
    return PictureScorer(runner, Recipe(words.image_size, 0, words.seed), stored.model.head)
