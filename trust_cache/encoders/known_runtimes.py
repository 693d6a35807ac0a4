"""Choose what runs an encoder's network: torch, or OpenVINO on processors. Needs neither to be installed."""

import logging
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from trust_cache.base.errors import InputError

_LOG = logging.getLogger(__name__)

AUTO = "auto"
FLOAT32, FLOAT16 = "float32", "float16 autocast"  # as the fingerprint records the arithmetic


@dataclass(frozen=True)
class Runtime:
    """A library that runs networks; `name` is also that of its package and its module."""

    name: str
    extra: str  # of trust-cache, which installs it
    oldest: tuple[int, int]  # version that is known to work
    cuda: bool  # whether it runs on GPUs as well

    @property
    def found(self) -> str | None:
        """The installed version without a build's suffix; None if it is not installed."""
        try:
            return version(self.name).partition("+")[0]
        except PackageNotFoundError:
            return None

    @property
    def problem(self) -> str | None:
        """Why it cannot be used, with the command that fixes it; None if it can."""
        found, oldest = self.found, ".".join(map(str, self.oldest))
        if found is None:
            return (
                f"expected the package {self.name}, found none; run pip install 'trust-cache[{self.extra}]'"
            )
        if tuple(map(int, re.findall(r"\d+", found)[:2])) < self.oldest:
            return (
                f"expected {self.name} {oldest} or newer, found {found};"
                f" run pip install --upgrade 'trust-cache[{self.extra}]'"
            )
        return None

    @property
    def words(self) -> str:
        """The name and the version, as the fingerprint records them."""
        return f"{self.name} {self.found}"


TORCH = Runtime("torch", "extract", (2, 4), cuda=True)
OPENVINO = Runtime("openvino", "openvino", (2025, 4), cuda=False)
RUNTIMES = (TORCH, OPENVINO)


def choose_runtime(word: str, device: str, begun: str | None = None) -> Runtime:
    """Return the runtime for a device: by its name, or `auto`.

    `auto` is the runtime that a cache was `begun` with (the runtime of its fingerprint), otherwise OpenVINO
    on a processor where it is installed, otherwise torch, with a line about OpenVINO in the log.
    """
    names = [runtime.name for runtime in RUNTIMES]
    on_cuda, undecided = device.partition(":")[0] == "cuda", word == AUTO and begun is None
    if word == AUTO:
        earlier = (begun or "").partition(" ")[0]
        word = earlier if earlier in names else TORCH.name
        if undecided and not on_cuda and OPENVINO.problem is None:
            word = OPENVINO.name
    if word not in names:
        raise InputError(f"runtime: expected {', '.join(names)} or {AUTO}, found {word!r}")
    chosen = RUNTIMES[names.index(word)]
    if on_cuda and not chosen.cuda:
        raise InputError(
            f"runtime: expected torch on the device {device}, found {chosen.name}, which runs on processors;"
            " use --runtime torch or --device cpu"
        )
    if chosen.problem is not None:
        raise InputError(f"runtime {chosen.name}: {chosen.problem}")
    if undecided and chosen == TORCH and not on_cuda:
        _LOG.warning(
            "the encoder runs in torch; OpenVINO encodes about three times faster on a processor: %s",
            OPENVINO.problem,
        )
    return chosen


def precision_of(device: str) -> str:
    """Return the precision of an encoder's arithmetic on a device, in every runtime."""
    return FLOAT16 if device.partition(":")[0] == "cuda" else FLOAT32
