"""Explicit vectors for the kernels: LANES float32 numbers in a register, and memory by address.

The compiler's own vectors are half as wide on AVX-512, and it chooses their order of summation. Addresses are
integers, distances are in bytes, counts are literals. A kernel's cached machine code contains these
instructions, but numba does not notice edits here: after an edit, change the digest in kernels.py.
"""

# mypy: disable-error-code="no-untyped-call"
# ruff: noqa: ARG001 - numba matches an instruction's arguments by their number and names

import hashlib
import logging
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import llvmlite.binding  # type: ignore[import-untyped]
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.core.caching import UserProvidedCacheLocator
from numba.extending import intrinsic, models, register_model
from numpy.typing import NDArray

from trust_cache.base.files import claim_private, kernel_folder

# What registers hold: 32 of 16 numbers with AVX-512, else 16 of 8 (AVX2) or 32 of 4 (NEON). NUMBA_CPU_NAME
# compiles for another processor than this one.
_OTHER = getattr(config, "CPU_NAME", None)
WIDE = not _OTHER and bool(llvmlite.binding.get_host_cpu_features().get("avx512f", False))
LANES = 16 if WIDE else 8

_FLOAT, _INT8, _INT16, _INT32, _INT64 = (ir.FloatType(), *(ir.IntType(bits) for bits in (8, 16, 32, 64)))
_FLOATS, _BYTES = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT8, LANES)
_ZEROS = ir.Constant(_FLOATS, [0.0] * LANES)


class _Vector(types.Type):
    pass


_VECTOR = _Vector(name=f"float32x{LANES}")


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _FLOATS)


def _instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of argument types, which returns signature and code generator, callable in kernels."""
    return intrinsic(prefer_literal=True)(function)


def _at(builder: Any, address: Any, kind: Any, offset: Any = None) -> Any:
    place = address if offset is None else builder.add(address, offset)
    return builder.inttoptr(place, kind.as_pointer())


def _fill(builder: Any, number: Any, kind: Any) -> Any:
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, number, _INT32(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_INT32, LANES), [0] * LANES))


def _parts(builder: Any, values: Any, kind: Any) -> list[Any]:
    return [builder.extract_value(values, i) for i in range(kind.count)]


@_instruction
def load(_: Any, address: Any, count: Any, distance: Any) -> Any:
    """Return `count` vectors `distance` apart."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        offsets = [builder.mul(arguments[2], _INT64(i)) for i in range(count.literal_value)]
        values = [builder.load(_at(builder, arguments[0], _FLOATS, offset), align=4) for offset in offsets]
        return context.make_tuple(builder, signature.return_type, values)

    return types.UniTuple(_VECTOR, count.literal_value)(types.int64, count, types.int64), generate


@_instruction
def store(_: Any, address: Any, distance: Any, vectors: Any) -> Any:
    """Store vectors `distance` apart."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        for i, value in enumerate(_parts(builder, arguments[2], vectors)):
            offset = builder.mul(arguments[1], _INT64(i))
            builder.store(value, _at(builder, arguments[0], _FLOATS, offset), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, vectors), generate


@_instruction
def spread(_: Any, address: Any, count: Any) -> Any:
    """Return `count` vectors, each filled with one of `count` consecutive float32 numbers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        offsets = [_INT64(4 * i) for i in range(count.literal_value)]
        numbers = [builder.load(_at(builder, arguments[0], _FLOAT, offset)) for offset in offsets]
        values = [_fill(builder, number, _FLOATS) for number in numbers]
        return context.make_tuple(builder, signature.return_type, values)

    return types.UniTuple(_VECTOR, count.literal_value)(types.int64, count), generate


@_instruction
def zeros(_: Any, count: Any) -> Any:
    """Return `count` vectors of zeros."""

    def generate(context: Any, builder: Any, signature: Any, _: Any) -> Any:
        return context.make_tuple(builder, signature.return_type, [_ZEROS] * count.literal_value)

    return types.UniTuple(_VECTOR, count.literal_value)(count), generate


@_instruction
def add_products(_: Any, left: Any, right: Any, sums: Any) -> Any:
    """Return sums[i, k] + left[i] * right[k] for every pair."""
    kind = ir.FunctionType(_FLOATS, [_FLOATS] * 3)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")
        a, b, c = (_parts(builder, *pair) for pair in zip(arguments, (left, right, sums), strict=True))
        pairs = [(x, y) for x in a for y in b]
        values = [builder.call(function, [x, y, z]) for (x, y), z in zip(pairs, c, strict=True)]
        return context.make_tuple(builder, signature.return_type, values)

    return sums(left, right, sums), generate


@_instruction
def kept(_: Any, address: Any, dropped: Any, value: Any) -> Any:
    """Return one vector: `value` where the byte at the address is at least `dropped`, else 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        draws = builder.load(_at(builder, arguments[0], _BYTES), align=1)
        keep = builder.icmp_unsigned(">=", draws, _fill(builder, arguments[1], _BYTES))
        values = [builder.select(keep, _fill(builder, arguments[2], _FLOATS), _ZEROS)]
        return context.make_tuple(builder, signature.return_type, values)

    return types.UniTuple(_VECTOR, 1)(types.int64, types.uint8, types.float32), generate


@_instruction
def where_nonzero(_: Any, vectors: Any, value: Any) -> Any:
    """Return vectors: `value` where these are not 0, else 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        filled = _fill(builder, arguments[1], _FLOATS)
        values = [
            builder.select(builder.fcmp_unordered("!=", part, _ZEROS), filled, _ZEROS)
            for part in _parts(builder, arguments[0], vectors)
        ]
        return context.make_tuple(builder, signature.return_type, values)

    return vectors(vectors, types.float32), generate


@_instruction
def total(_: Any, address: Any) -> Any:
    """Return the sum of the vector at an address: its halves are added until one number is left."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        value = builder.load(_at(builder, arguments[0], _FLOATS), align=4)
        width = LANES // 2
        while width:
            lanes = [range(width), range(width, 2 * width)]
            masks = [ir.Constant(ir.VectorType(_INT32, width), list(half)) for half in lanes]
            value = builder.fadd(*(builder.shuffle_vector(value, value, mask) for mask in masks))
            width //= 2
        return builder.extract_element(value, _INT32(0))

    return types.float32(types.int64), generate


@_instruction
def half_numbers(_: Any, address: Any) -> Any:
    """Return the address as a pointer to the bits of float16 numbers."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return _at(builder, arguments[0], _INT16)

    return types.CPointer(types.uint16)(types.int64), generate


@_instruction
def float_of_bits(_: Any, bits: Any) -> Any:
    """Return the float32 number that has these 32 bits."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], _FLOAT)

    return types.float32(types.uint32), generate


@_instruction
def prefetch(_: Any, address: Any) -> Any:
    """Ask for the cache line at an address; harmless wherever it points."""

    def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        place = _at(builder, arguments[0], _INT8)
        kind = ir.FunctionType(ir.VoidType(), [place.type, _INT32, _INT32, _INT32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        read, second_level, data = _INT32(0), _INT32(2), _INT32(1)
        builder.call(function, [place, read, second_level, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


class RowSource(NamedTuple):
    """Where a fold's batches come from, and the streams of random numbers that choose them."""

    addresses: NDArray[np.int64]  # of every image of the cache
    stored_views: int
    dim: int
    positives: NDArray[np.int64]  # images to fit on
    negatives: NDArray[np.int64]
    batch_positives: int
    batch_negatives: int
    dropped: int  # of 256
    batch_key: np.uint64
    mask_key: np.uint64


class Weights(NamedTuple):
    """The state of a bank, dim padded to full vectors and heads to full blocks."""

    parameters: NDArray[np.float32]  # [head, gamma / beta / weight, dim]
    bias: NDArray[np.float64]  # [head]; in float32 a step of 3e-5 would be misrounded at a bias of 17
    first: NDArray[np.float32]  # [head, 3, dim], AdamW's moments
    second: NDArray[np.float32]  # [head, 3, dim]
    bias_moments: NDArray[np.float64]  # [head, first / second]
    products: NDArray[np.float32]  # [block, vector, head, gamma*weight / beta*weight, lane]


class HeadArrays(NamedTuple):
    """The settings of the heads, one number per head."""

    lambda_brier: NDArray[np.float64]
    lambda_focal: NDArray[np.float64]
    focal_gamma: NDArray[np.float64]
    lambda_dismiss: NDArray[np.float64]
    floor: NDArray[np.float64]  # tau + margin: what a positive's score should reach
    lr: NDArray[np.float64]
    weight_decay: NDArray[np.float64]
    clip: NDArray[np.float64]


class Workspace(NamedTuple):
    """The buffers of one running kernel."""

    images: NDArray[np.int64]  # [row]
    views: NDArray[np.int64]  # [row]
    addresses: NDArray[np.int64]  # [row]
    centred: NDArray[np.float32]  # [row of a block, dim]
    factors: NDArray[np.float32]  # [row of a block], what a centred row is multiplied by
    words: NDArray[np.uint64]  # [row of a block, word], a random byte for each feature
    rows: NDArray[np.float32]  # [row block, vector, row, lane], masked
    sums: NDArray[np.float32]  # [row block, row, head, lane]
    slopes: NDArray[np.float32]  # [row, head]
    gradients: NDArray[np.float32]  # [head, by gamma*weight / by beta*weight, dim]
    head_gradients: NDArray[np.float32]  # [by gamma / beta / weight, dim]


log = logging.getLogger(__name__)

_Function = TypeVar("_Function", bound=Callable[..., Any])


class KernelLocator(UserProvidedCacheLocator):
    """Puts compiled kernels where all environments of a user find them: by content, not by place."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Return the folder of a source file inside the user's folder."""
        digest = hashlib.sha256(Path(py_file).read_bytes()).hexdigest()
        return f"{Path(py_file).stem}-{digest[:16]}-numba-{numba.__version__}"


def compiled(function: _Function, *, reorder: bool = False) -> _Function:
    """Compile a function that runs without the interpreter's lock: threads train folds side by side."""
    fast = {"contract", "reassoc", "nsz"} if reorder else {"contract"}
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fast}
    numba_settings: Any = config
    before = numba_settings.CACHE_DIR, numba_settings.CACHE_LOCATOR_CLASSES
    try:
        # Numba runs what it finds in its cache, so it must be a folder that only this user can write to.
        numba_settings.CACHE_DIR = str(kernel_folder())
        numba_settings.CACHE_LOCATOR_CLASSES = f"{__name__}.{KernelLocator.__name__}"
        claim_private(kernel_folder())
        kernel = numba.njit(cache=True, **options)(function)
    except (OSError, RuntimeError) as error:  # no folder of the user's own, or none at all
        log.info("%s is compiled anew at each start: %s", function.__name__, error)
        return numba.njit(**options)(function)  # type: ignore[no-any-return]
    finally:
        numba_settings.CACHE_DIR, numba_settings.CACHE_LOCATOR_CLASSES = before
    kernel._cache.load_overload = partial(_load_whole, kernel._cache, kernel._cache.load_overload)
    return kernel  # type: ignore[no-any-return]


def _load_whole(kept: Any, load: Callable[..., Any], *key: Any) -> Any:
    """Load a compiled kernel; a damaged file is forgotten, and the kernel compiled again."""
    try:
        found = load(*key)
        if found is None:
            _say_once()
        return found
    except Exception as error:  # pickle raises nearly anything for damaged bytes
        log.info("%s: damaged, compiled again (%s)", kept.cache_path, type(error).__name__)
        kept.flush()
        return None


@cache
def _say_once() -> None:
    log.warning("compiling kernels, once: about a quarter of a minute")


def reordered(function: _Function) -> _Function:
    """Compile a function whose plain sums may be reordered for vectors."""
    return compiled(function, reorder=True)
