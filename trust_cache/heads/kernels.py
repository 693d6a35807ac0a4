"""The compiled kernels: draws, rows, logits, gradients and AdamW of a bank of heads.

They are in one file because numba's cache does not notice edits in other files. `kernel_parts.py` holds the
layer below; a test compares its digest with the one here, so that an edit there changes this file too.

With x' the normalised row and d the dropout mask (0, or the scale of a kept feature) a head's logit is
(x' d).(gamma w) + d.(beta w) + b. So all heads of a fold share a batch's rows: two matrix products forward,
two backward. A step makes the rows once, then takes the heads in blocks: logits, slopes, gradients and update
of one block before the next, so that only parameters and moments leave the second-level cache. Every head is
computed by the same operations in the same order, whatever its neighbours and the number of threads.
"""

import math

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray

from trust_cache.heads.kernel_parts import (
    LANES,
    WIDE,
    HeadArrays,
    RowSource,
    Weights,
    Workspace,
    add_products,
    compiled,
    float_of_bits,
    half_numbers,
    kept,
    load,
    prefetch,
    reordered,
    spread,
    store,
    total,
    where_nonzero,
    zeros,
)

PARTS_SHA256 = "4a481903fb5a0a8c"  # the first 16 digits
ROWS = 4 if WIDE else 2  # rows in a block
HEADS = 5  # heads in a block: ROWS * HEADS running sums stay in registers
_AHEAD = 2  # rows asked for before they are read
_TILE = 512 // LANES  # vectors of a block's products that stay in the first-level cache
_BYTES = 4 * LANES
_SUMS = ROWS * HEADS
_PAIRS = 2 * HEADS

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # of splitmix64 (Steele, Lea and Flood 2014), like those of `mix`
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8  # as torch.optim.AdamW
_NORM_EPSILON = 1e-5
_TRACE = np.float32(1e-30)
_SQUARE = 2.0  # the paper's gamma, whose power needs no exponential


# Draws: draws.py is the readable definition; tests compare the two.


@compiled
def mix(word: np.uint64) -> np.uint64:
    """Return splitmix64's output for a state."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@compiled
def step_key(key: np.uint64, step: int) -> np.uint64:
    """Return the key of one step's stream."""
    return mix((key ^ np.uint64(step)) + GOLDEN)


@compiled
def _below(limit: int, state: np.uint64) -> tuple[np.int64, np.uint64]:
    """Return a uniform integer below `limit` and the next state, without bias (Lemire 2019)."""
    size = np.uint64(limit)
    while True:
        state += GOLDEN
        product = (mix(state) >> np.uint64(32)) * size
        low = product & np.uint64(0xFFFFFFFF)
        if low >= size or low >= (np.uint64(1 << 32) - size) % size:
            return np.int64(product >> np.uint64(32)), state


@compiled
def _draw_images(
    pool: NDArray[np.int64], count: int, images: NDArray[np.int64], state: np.uint64
) -> np.uint64:
    """Fill `images[:count]` from the pool, distinct where it is large enough."""
    distinct = pool.size >= count
    drawn = 0
    while drawn < count:
        index, state = _below(pool.size, state)
        image = pool[index]
        seen = False
        if distinct:
            for i in range(drawn):
                seen |= images[i] == image
        if not seen:
            images[drawn] = image
            drawn += 1
    return state


@compiled
def draw_batch(source: RowSource, step: int, images: NDArray[np.int64], views: NDArray[np.int64]) -> None:
    """Draw one step's images, positives first, and the view of each."""
    state = step_key(source.batch_key, step)
    positives, rows = source.batch_positives, source.batch_positives + source.batch_negatives
    state = _draw_images(source.positives, positives, images[:positives], state)
    state = _draw_images(source.negatives, rows - positives, images[positives:rows], state)
    for r in range(rows):
        if source.stored_views == 1:
            views[r] = 0
        else:
            view, state = _below(source.stored_views - 1, state)
            views[r] = view + 1


@compiled
def draw_words(key: np.uint64, first: int, words: NDArray[np.uint64]) -> None:
    """Fill `words` with the stream's words from number `first` on."""
    for i in range(words.size):
        words[i] = mix(key + np.uint64(first + i + 1) * GOLDEN)


@compiled
def widen(address: int, dim: int, row: NDArray[np.float32]) -> None:
    """Fill `row` with the float16 numbers at an address, exactly.

    Exponent and mantissa move under the moved sign; 2^112 corrects the exponent's bias, subnormals included.
    """
    halves = carray(half_numbers(address), (dim,))
    for j in range(dim):
        half = np.uint32(halves[j])
        bits = ((half & np.uint32(0x7FFF)) << np.uint32(13)) | ((half & np.uint32(0x8000)) << np.uint32(16))
        row[j] = float_of_bits(bits) * np.float32(2.0**112)


@reordered
def _centre(row: NDArray[np.float32], dim: int) -> np.float32:
    """Subtract the row's mean and return LayerNorm's factor 1 / sqrt(variance + epsilon)."""
    total = np.float32(0)
    for j in range(dim):
        total += row[j]
    mean = total / np.float32(dim)
    squares = np.float32(0)
    for j in range(dim):
        row[j] -= mean
        squares += row[j] * row[j]
    return np.float32(1.0 / math.sqrt(np.float64(squares) / dim + _NORM_EPSILON))


@compiled
def _make_rows(source: RowSource, count: int, masks: np.uint64, dropped: int, work: Workspace) -> None:
    """Fill the workspace's rows with x' d for its images and views, a block at a time."""
    n_words = (source.dim + 7) // 8
    scale = np.float32(256.0 / (256 - dropped))
    for r in range(count):
        work.addresses[r] = source.addresses[work.images[r]] + 2 * source.dim * work.views[r]
    for first in range(0, count, ROWS):
        for i in range(min(ROWS, count - first)):
            r = first + i
            for offset in range(0, 2 * source.dim if r + _AHEAD < count else 0, 64):
                prefetch(work.addresses[r + _AHEAD] + offset)
            widen(work.addresses[r], source.dim, work.centred[i])
            work.factors[i] = _centre(work.centred[i], source.dim) * scale
            if dropped > 0:
                draw_words(masks, r * n_words, work.words[i, :n_words])
        _mask_rows(first // ROWS, dropped, work)


@compiled
def _mask_rows(block: int, dropped: int, work: Workspace) -> None:
    """Write a block's x' d, vector by vector, as products read them.

    The mask needs no memory: what is kept is not 0, since a trace is added that rounds away from all but 0.
    """
    limit = np.uint8(dropped)
    draws, centred = work.words.ctypes.data, work.centred.ctypes.data
    place = work.rows[block].ctypes.data
    for v in range(work.rows.shape[1]):
        for i in range(ROWS):
            at = draws + i * work.words.strides[0] + v * LANES
            row = load(centred + i * work.centred.strides[0] + v * _BYTES, 1, 0)
            masked = add_products(row, kept(at, limit, work.factors[i]), kept(at, limit, _TRACE))
            store(place + (v * ROWS + i) * _BYTES, _BYTES, masked)


@compiled
def pack_products(weights: Weights, head: int) -> None:
    """Refresh gamma*weight and beta*weight of one head."""
    vectors, dim = weights.products.shape[1], 4 * weights.parameters.shape[2]
    gamma = weights.parameters[head].ctypes.data
    place = weights.products[head // HEADS, 0, head % HEADS].ctypes.data
    for v in range(vectors):
        at = gamma + v * _BYTES
        scales = load(at, 1, 0) + load(at + dim, 1, 0)
        products = add_products(scales, load(at + 2 * dim, 1, 0), zeros(2))
        store(place + v * HEADS * 2 * _BYTES, _BYTES, products)


@compiled
def _sum_logits(weights: Weights, block: int, count: int, scale: np.float32, work: Workspace) -> None:
    """Add up every row's x'd.(gamma w) + d.(beta w) for one block of heads, in LANES partial sums."""
    vectors = work.rows.shape[1]
    rows, sums = work.rows.ctypes.data, work.sums.ctypes.data
    products = weights.products[block].ctypes.data
    work.sums[:] = 0
    for start in range(0, vectors, _TILE):
        end = min(start + _TILE, vectors)
        for b in range((count + ROWS - 1) // ROWS):
            totals = load(sums + b * _SUMS * _BYTES, _SUMS, _BYTES)
            for v in range(start, end):
                x = load(rows + (b * vectors + v) * ROWS * _BYTES, ROWS, _BYTES)
                w = products + v * HEADS * 2 * _BYTES
                totals = add_products(x, load(w, HEADS, 2 * _BYTES), totals)
                mask = where_nonzero(x, scale)
                totals = add_products(mask, load(w + _BYTES, HEADS, 2 * _BYTES), totals)
            store(sums + b * _SUMS * _BYTES, _BYTES, totals)


@compiled
def _slope(
    logit: float, positive: bool, brier: float, focal: float, gamma: float, dismiss: float, floor: float
) -> float:
    """Return the derivative by the logit of one row's losses (losses.py has the formulas)."""
    margin = logit if positive else -logit
    e = math.exp(-abs(margin))
    larger = 1.0 / (1.0 + e)
    p, q = (larger, e * larger) if margin >= 0.0 else (e * larger, larger)
    slope = -q - 2.0 * brier * p * q * q
    if focal != 0.0:
        log_sum = math.log1p(e)
        log_p, log_q = min(margin, 0.0) - log_sum, -max(margin, 0.0) - log_sum
        power = q * q if gamma == _SQUARE else math.exp(gamma * log_q)
        slope += focal * power * (gamma * p * log_p - q)
    if positive and p < floor:
        slope -= dismiss * p * q
    return slope if positive else -slope


@compiled
def _find_slopes(
    source: RowSource, settings: HeadArrays, weights: Weights, first: int, heads: int, work: Workspace
) -> None:
    """Fill the slopes of a block: the derivative of each head's loss by each row's logit."""
    positives, rows = source.batch_positives, source.batch_positives + source.batch_negatives
    sums = work.sums.ctypes.data
    for k in range(heads):
        h = first + k
        brier, focal, gamma = settings.lambda_brier[h], settings.lambda_focal[h], settings.focal_gamma[h]
        dismiss, floor = settings.lambda_dismiss[h] * rows / positives, settings.floor[h]
        for r in range(rows):
            logit = np.float64(total(sums + (r * HEADS + k) * _BYTES)) + weights.bias[h]
            slope = _slope(logit, r < positives, brier, focal, gamma, dismiss, floor)
            work.slopes[r, k] = slope / rows


@compiled
def _sum_gradients(count: int, scale: np.float32, work: Workspace) -> None:
    """Add up the gradients of one block by gamma*weight and by beta*weight."""
    vectors, dim = work.rows.shape[1], 4 * work.gradients.shape[2]
    rows, slopes, gradients = work.rows.ctypes.data, work.slopes.ctypes.data, work.gradients.ctypes.data
    for v in range(vectors):
        totals = zeros(_PAIRS)
        for b in range((count + ROWS - 1) // ROWS):
            x = rows + (b * vectors + v) * ROWS * _BYTES
            g = slopes + b * ROWS * HEADS * 4
            for i in range(ROWS):
                row = load(x + i * _BYTES, 1, 0)
                pair = row + where_nonzero(row, scale)
                totals = add_products(spread(g + i * HEADS * 4, HEADS), pair, totals)
        store(gradients + v * _BYTES, dim, totals)


@reordered
def _find_gradients(
    parameters: NDArray[np.float32], sums: NDArray[np.float32], gradients: NDArray[np.float32]
) -> float:
    """Fill one head's gradients by gamma, beta and weight, and return their squared norm."""
    gamma, beta, weight = parameters[0], parameters[1], parameters[2]
    by_gamma, by_beta, by_weight = gradients[0], gradients[1], gradients[2]
    scaled, shifted = sums[0], sums[1]
    squares = np.float32(0)
    for j in range(gamma.size):
        a = scaled[j] * weight[j]
        b = shifted[j] * weight[j]
        c = scaled[j] * gamma[j] + shifted[j] * beta[j]
        by_gamma[j], by_beta[j], by_weight[j] = a, b, c
        squares += a * a + b * b + c * c
    return np.float64(squares)


@compiled
def _move(
    weights: Weights, head: int, scale: float, decay: float, rate: float, correction: float, work: Workspace
) -> None:
    """AdamW on one head's gamma, beta and weight; gradients are scaled by `scale` first.

    Decay and step are added before they are subtracted: alone, a decay of 3e-9 would round away.
    """
    values, gradients = weights.parameters[head].reshape(-1), work.head_gradients.reshape(-1)
    first, second = weights.first[head].reshape(-1), weights.second[head].reshape(-1)
    scale32, decay32, rate32 = np.float32(scale), np.float32(decay), np.float32(rate)
    correction32, epsilon = np.float32(correction), np.float32(_EPSILON)
    keep1, take1 = np.float32(_BETA1), np.float32(1 - _BETA1)
    keep2, take2 = np.float32(_BETA2), np.float32(1 - _BETA2)
    for j in range(values.size):
        gradient = gradients[j] * scale32
        mean = keep1 * first[j] + take1 * gradient
        square = keep2 * second[j] + take2 * gradient * gradient
        step = rate32 * mean / (np.sqrt(square) * correction32 + epsilon)
        values[j] -= decay32 * values[j] + step
        first[j] = mean
        second[j] = square


@compiled
def _update(step: int, settings: HeadArrays, weights: Weights, head: int, rows: int, work: Workspace) -> None:
    """Clip one head's gradient at its norm and take the AdamW step."""
    k = head % HEADS
    by_bias = 0.0
    for r in range(rows):
        by_bias += work.slopes[r, k]
    squares = _find_gradients(weights.parameters[head], work.gradients[k], work.head_gradients)
    norm = math.sqrt(squares + by_bias * by_bias)
    scale = min(1.0, settings.clip[head] / (norm + 1e-6))
    decay = settings.lr[head] * settings.weight_decay[head]
    rate = settings.lr[head] / (1.0 - _BETA1 ** (step + 1))
    correction = 1.0 / math.sqrt(1.0 - _BETA2 ** (step + 1))
    _move(weights, head, scale, decay, rate, correction, work)
    by_bias *= scale
    moments = weights.bias_moments[head]
    moments[0] = _BETA1 * moments[0] + (1 - _BETA1) * by_bias
    moments[1] = _BETA2 * moments[1] + (1 - _BETA2) * by_bias * by_bias
    change = rate * moments[0] / (math.sqrt(moments[1]) * correction + _EPSILON)
    weights.bias[head] -= decay * weights.bias[head] + change
    pack_products(weights, head)


@compiled
def train_steps(
    source: RowSource,
    settings: HeadArrays,
    weights: Weights,
    heads: int,
    begin: int,
    end: int,
    work: Workspace,
) -> None:
    """Train the first `heads` heads of a bank from step `begin` to before `end`, counted from the first."""
    rows = source.batch_positives + source.batch_negatives
    scale = np.float32(256.0 / (256 - source.dropped))
    for step in range(begin, end):
        draw_batch(source, step, work.images, work.views)
        _make_rows(source, rows, step_key(source.mask_key, step), source.dropped, work)
        for block in range(weights.products.shape[0]):
            first = block * HEADS
            _sum_logits(weights, block, rows, scale, work)
            _find_slopes(source, settings, weights, first, min(HEADS, heads - first), work)
            _sum_gradients(rows, scale, work)
            for head in range(first, min(first + HEADS, heads)):
                _update(step, settings, weights, head, rows, work)


@compiled
def find_logits(
    source: RowSource,
    images: NDArray[np.int64],
    weights: Weights,
    work: Workspace,
    logits: NDArray[np.float32],
) -> None:
    """Fill logits [head, image] of the clean views, without dropout."""
    chunk, sums = work.images.size, work.sums.ctypes.data
    for start in range(0, images.size, chunk):
        count = min(chunk, images.size - start)
        work.images[:count] = images[start : start + count]
        work.views[:count] = 0
        _make_rows(source, count, np.uint64(0), 0, work)
        for block in range(weights.products.shape[0]):
            _sum_logits(weights, block, count, np.float32(1), work)
            for k in range(min(HEADS, logits.shape[0] - block * HEADS)):
                head = block * HEADS + k
                bias = np.float32(weights.bias[head])
                for r in range(count):
                    logits[head, start + r] = total(sums + (r * HEADS + k) * _BYTES) + bias


@compiled
def gather_rows(source: RowSource, begin: int, end: int, work: Workspace) -> None:
    """Gather and widen the rows of the same steps and do nothing else: the lower limit of training time."""
    for step in range(begin, end):
        draw_batch(source, step, work.images, work.views)
        for r in range(source.batch_positives + source.batch_negatives):
            address = source.addresses[work.images[r]] + 2 * source.dim * work.views[r]
            widen(address, source.dim, work.centred[0])
