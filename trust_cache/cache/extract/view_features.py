"""Run an encoder on its device: pixels to views, views to features."""

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from trust_cache.base.errors import InputError
from trust_cache.cache.extract.extraction_record import Origin
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.cache.layout import Features, as_half, finite_images
from trust_cache.cache.views import ImageViews, ViewParameters, ViewSettings, make_views
from trust_cache.encoders.encoder import Encoder, EncoderIdentity
from trust_cache.encoders.known_encoders import identify_encoder, load_encoder
from trust_cache.encoders.known_runtimes import OPENVINO, TORCH, Runtime, precision_of
from trust_cache.encoders.openvino_runtime import OpenVinoEncoder, load_openvino
from trust_cache.encoders.probe import Probe, draw_probe, make_probe
from trust_cache.encoders.recipe import NO_KEYS, RecipeKeys
from trust_cache.encoders.torch_runtime import CUDA_PARTS, CudaParts, Fetched, queue_of
from trust_cache.images.image_failures import ImageError

_NO_MEMORY = "can't allocate memory"  # from the CPU's allocator, which has no error type of its own
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncoderChoice:
    """The encoder that a user asks for: weights (a place or `random`), name, seed of random ones, recipe."""

    weights: str
    encoder: str
    seed: int
    recipe: RecipeKeys = NO_KEYS  # instead of those of the encoder's own recipe

    def identify(self) -> EncoderIdentity:
        """Return the encoder's identity without building the network."""
        return identify_encoder(self.weights, self.encoder, self.seed, recipe=self.recipe)


class Runner:
    """Makes views and features on one device. On CUDA its calls queue work and return at once."""

    def __init__(self, encoder: Encoder, device: str, parts: CudaParts = CUDA_PARTS) -> None:
        self.device = torch.device(device)
        self.queue = queue_of(self.device, parts)
        self._parts = parts
        self.recipe = encoder.identity.recipe
        self._encoder = encoder
        self._batch_memory = torch.empty(0, device=self.device)

    def views(self, pixels: Tensor, parameters: Sequence[ViewParameters]) -> ImageViews:
        """Return the standardised views of an image: the clean one and one for each of the parameters.

        On a processor one thread makes them: the others would wait for each other between the steps and take
        the cores from the decoders. So a sum over the image has the same last bits on any machine, too.
        """
        threads = torch_threads(1) if self.device.type == "cpu" else nullcontext()
        with torch.inference_mode(), threads:
            here = self.queue.load(pixels)
            with self.queue.working():
                return make_views(here, self.recipe, parameters)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Return parts of a batch as one tensor; the next call may use its memory.

        On a processor new memory for each batch costs more time than the copy: every page of it is a fault.
        """
        if len(parts) == 1:
            return parts[0]
        shape = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
        with torch.inference_mode():
            if self._batch_memory.numel() < math.prod(shape):
                self._batch_memory = torch.empty(math.prod(shape), device=self.device)
            return torch.cat(list(parts), out=self._batch_memory[: math.prod(shape)].view(shape))

    def encode(self, views: Tensor) -> Tensor:
        """Return the features of standardised views [N, planes, H, W], in float32."""
        channels = self.recipe.channels
        with torch.inference_mode(), self.queue.working():
            if self.device.type != "cuda":
                # The expanded channels share memory; the encoder copies them where it needs to.
                return self._encoder(views.expand(-1, channels, -1, -1)).float()
            colours = views.half().expand(-1, channels, -1, -1)
            # cuDNN's algorithms are fixed, not timed: a resumed run must give the same bytes.
            with (
                torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True),
                self._parts.autocast(),
            ):
                return self._encoder(colours.contiguous(memory_format=torch.channels_last)).float()

    def encode_once(self, views: Tensor) -> Tensor:
        """Return the features of views that every start encodes; OpenVINO keeps them for the next start."""
        if isinstance(self._encoder, OpenVinoEncoder):
            return self._encoder.encode_once(views.expand(-1, self.recipe.channels, -1, -1))
        return self.encode(views)


def load_runner(
    choice: EncoderChoice,
    device: str,
    *,
    runtime: Runtime = TORCH,
    threads: int | None = None,
    compiled: bool = False,
) -> Runner:
    """Load an encoder on a device, ready to run; `threads` are OpenVINO's (default: as many as torch's)."""
    _logger.info("loading %s (%s) on %s with %s", choice.encoder, choice.weights, device, runtime.words)
    load = partial(
        load_encoder,
        choice.weights,
        None,
        encoder=choice.encoder,
        recipe=choice.recipe,
        seed=choice.seed,
        device=device,
    )
    if runtime == OPENVINO:
        if compiled:
            raise InputError("compile: expected the runtime torch, found openvino, which always compiles")
        return Runner(load_openvino(choice.identify(), load, threads or torch.get_num_threads()), device)
    module = load()
    if torch.device(device).type == "cuda":
        # Mixed-precision convolutions are faster with channels last; on CPUs they were slower.
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Runner(torch.compile(module) if compiled else module, device)  # type: ignore[arg-type]  # keeps its attributes


def encode_probe(runner: Runner, threads: int) -> Probe | None:
    """Return the features that a runner gives of the probe's clean view; None if they are not finite."""
    with torch_threads(threads):
        views = runner.views(torch.from_numpy(draw_probe()), ()).views
        return make_probe(runner.queue.fetch(runner.encode_once(views))()[0])


def encode_clean_view(runner: Runner, pixels: Tensor) -> Features:
    """Return the features [dim] of one picture's clean view as `extract` stores them; ImageError if none."""
    made = runner.views(pixels, ())
    features = stored_features(runner.queue.fetch(runner.encode(made.views)))
    error = unusable(bool(made.varied), bool(finite_images(features)[0]))
    if error is not None:
        raise error
    clean: Features = features[0]
    return clean


def stored_features(fetched: Fetched) -> Features:
    """Wait for features and return them as they are stored; infinities are checked later."""
    return as_half(fetched())


def unusable(varied: bool, finite: bool) -> ImageError | None:
    """Return why an image has no features in spite of its pixels, if so."""
    if not varied:
        return ImageError("intensity", "the image is constant at the encoder's size")
    if not finite:
        return ImageError("encode", "the encoder's features are NaN, infinite or beyond float16's 65,504")
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that the device has no memory for a batch."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and _NO_MEMORY in str(error)
    )


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run torch with this many threads for a while: their number changes the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_fingerprint(
    encoder: EncoderIdentity, origin: Origin, *, seed: int, device: str, runtime: Runtime
) -> Fingerprint:
    """Return the fingerprint of features of this encoder in this runtime, of images from this origin."""
    return Fingerprint(
        encoder=encoder.encoder,
        weights_sha256=encoder.weights_sha256,
        recipe=encoder.recipe.text,
        preprocessing=origin.preprocessing,
        runtime=runtime.words,
        precision=precision_of(device),
        view_settings=ViewSettings().words(),
        seed=seed,
        decoder=origin.decoder,
    )
