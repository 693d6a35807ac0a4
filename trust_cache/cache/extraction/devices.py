"""Which devices a word means, and the precision in which an encoder runs on them."""

from collections.abc import Iterable

import torch

from trust_cache.base.errors import InputError

_BATCH = {"cpu": 4, "cuda": 16}  # views at once at the paper's size: about 2.5 GB on a CPU, 6 GB on a GPU


def choose_devices(word: str, processes: int | None = None) -> tuple[str, ...]:
    """Return a device for each process: `auto`, `cpu`, `cuda`, or several such as `cuda:0,cuda:1`."""
    names = tuple(_resolved(part.strip()) for part in word.split(","))
    kinds = {name.partition(":")[0] for name in names}
    if len(kinds) > 1:
        raise InputError(f"device: expected devices of one kind, found {word}: their features would differ")
    if processes is None:
        return names
    if processes < len(names):
        raise InputError(f"processes: expected at least {len(names)}, one for each device, found {processes}")
    return tuple(names[number % len(names)] for number in range(processes))


def choose_cluster_device(word: str, resources: Iterable[str]) -> str:
    """Return the device of every worker of a cluster; none of them need be one that this machine has."""
    if word == "auto":
        return "cuda" if any(name.upper().startswith("GPU") for name in resources) else "cpu"
    if word not in _BATCH:
        raise InputError(
            f"device: expected auto, cpu or cuda on a cluster, found {word}: each of its workers has a device"
            " of its own"
        )
    return word


def precision_of(device: str) -> str:
    """Return the precision of an encoder's arithmetic there, as the fingerprint has it."""
    return "float32" if device == "cpu" else "float16 autocast"


def default_batch(device: str) -> int:
    """Return how many views go through the encoder at once unless the user says otherwise."""
    return _BATCH[device.partition(":")[0]]


def _resolved(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, colon, number = name.partition(":")
    if name != "cpu" and (kind != "cuda" or (colon and not number.isdecimal())):
        raise InputError(f"device: expected auto, cpu, cuda or cuda:N, found {name!r}")
    if kind == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if found <= int(number or 0):
            raise InputError(
                f"device: expected {name}, found {found} CUDA devices (torch {torch.__version__});"
                " use --device cpu, or install a torch for your GPU"
            )
    return name
