"""Decode compressed frames on an NVIDIA GPU with nvImageCodec, where it was asked for by name.

The first frame of each kind in a process is decoded twice: unless the GPU's values equal those of the CPU's
decoder, the command stops.
"""

import importlib
from collections.abc import Callable, Hashable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError

NVIMAGECODEC = "nvimagecodec"
_MODULE = "nvidia.nvimgcodec"
_PACKAGES = ("nvidia-nvimgcodec-cu13", "nvidia-nvimgcodec-cu12")  # one for each version of CUDA

Values = NDArray[Any]


class GpuDecoder:
    """nvImageCodec, and the kinds of frames on which it has agreed with the CPU's decoder."""

    def __init__(self) -> None:
        self.package = installed_package()
        self._module = importlib.import_module(_MODULE)
        try:
            self._decoder = self._module.Decoder()
        except RuntimeError as error:
            raise InputError(f"decoder {NVIMAGECODEC}: it finds no GPU here ({error})") from error
        unchanged = self._module.ColorSpec.UNCHANGED
        self._params = self._module.DecodeParams(allow_any_depth=True, color_spec=unchanged)
        self._agreed: set[Hashable] = set()

    def decode(self, stream: bytes, kind: Hashable, on_cpu: Callable[[], Values]) -> Values:
        """Return the values of a grey frame; `on_cpu` decodes it for the comparison of its kind."""
        decoded = self._decoder.decode(stream, params=self._params)
        if decoded is None:
            raise ValueError("nvImageCodec returned no image")
        values = np.asarray(decoded.cpu())
        values = values.reshape(values.shape[:2])
        if kind not in self._agreed:
            expected = on_cpu()
            if values.dtype != expected.dtype or not np.array_equal(values, expected):
                raise InputError(
                    f"decoder {NVIMAGECODEC}: expected the pixels of imagecodecs, found others ({kind});"
                    " leave --decoder out"
                )
            self._agreed.add(kind)
        return values


@cache
def gpu_decoder() -> GpuDecoder:
    """Return this process's decoder; refuse a machine without one."""
    return GpuDecoder()


def installed_package() -> str:
    """Return the name of the installed package; refuse a machine without one."""
    for package in _PACKAGES:
        try:
            version(package)
        except PackageNotFoundError:
            continue
        return package
    raise InputError(
        f"decoder {NVIMAGECODEC}: expected the package {_PACKAGES[1]} (or cu13), found none; install it on a"
        f" machine with an NVIDIA GPU (pip install '{_PACKAGES[1]}[all]') or leave --decoder out"
    )
