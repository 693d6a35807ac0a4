"""Minimise an objective with corners: BFGS with a weak Wolfe line search (Lewis and Overton 2013).

At a corner of the objective the slope along a step jumps over zero, so the strong Wolfe condition of scipy's
line searches may hold nowhere, and they stop there. The weak condition can always be met, and BFGS learns
the corners as directions of high curvature.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Objective = Callable[[Floats], tuple[float, Floats]]
_FALL, _SLOPE = 1e-4, 0.9  # the constants of the Wolfe conditions
_HALVINGS = 50
_WINDOW = 20  # iterations over which the gain is judged
FLAT = 1e-6  # relative gain of an iteration below which a start ends
ENOUGH = 1e-4  # relative gain of a start below which a minimum is reached
_IDLE_STARTS = 3
_KICK = 0.1  # length of a way to a near point, as a share of the model's


class _Place(NamedTuple):
    model: Floats
    value: float
    gradient: Floats


def minimise_with_corners(objective: Objective, start: Floats, iterations: int) -> tuple[Floats, bool]:
    """Return the lowest point and whether a minimum was reached.

    An objective with corners may have several minima close together. So the search starts again from seeded
    points near the lowest one, until three starts in a row gain next to nothing.
    """
    generator = np.random.default_rng(0)
    lowest, taken = _descend(objective, _Place(start, *objective(start)), iterations)
    left, idle = iterations - taken, 0
    while left > 0 and idle < _IDLE_STARTS:
        kick = generator.standard_normal(start.size)
        kick *= _KICK * np.linalg.norm(lowest.model) / np.linalg.norm(kick)
        near = lowest.model + kick
        found, taken = _descend(objective, _Place(near, *objective(near)), left)
        left -= max(1, taken)
        gained = lowest.value - found.value > ENOUGH * abs(found.value)
        idle = 0 if gained else idle + 1
        lowest = min(lowest, found, key=lambda place: place.value)
    return lowest.model, idle == _IDLE_STARTS


def _descend(objective: Objective, place: _Place, iterations: int) -> tuple[_Place, int]:
    """Take BFGS steps until they gain next to nothing; return the place and the number of steps."""
    inverse: Floats | None = None
    values = [place.value]
    while len(values) <= iterations:
        if inverse is None:
            direction = -place.gradient / max(1.0, float(np.linalg.norm(place.gradient)))
        else:
            direction = -(inverse @ place.gradient)
        found = _search(objective, place, direction)
        if found is None:
            if inverse is None:
                break
            inverse = None  # rounding has spoilt it
            continue
        inverse = _update(inverse, found.model - place.model, found.gradient - place.gradient)
        place = found
        values.append(place.value)
        if len(values) > _WINDOW and values[-_WINDOW - 1] - place.value <= FLAT * _WINDOW * abs(place.value):
            break
    return place, len(values) - 1


def _search(objective: Objective, place: _Place, direction: Floats) -> _Place | None:
    """Return a place that meets both Wolfe conditions, or only the fall; None if no step falls."""
    slope = float(place.gradient @ direction)
    if not slope < 0.0:
        return None
    low, high, length = 0.0, np.inf, 1.0
    fallen = None
    for _ in range(_HALVINGS):
        there = place.model + length * direction
        found = _Place(there, *objective(there))
        if not found.value <= place.value + _FALL * length * slope:
            high = length
        elif float(found.gradient @ direction) < _SLOPE * slope:
            low, fallen = length, found
        else:
            return found
        length = 2.0 * low if np.isinf(high) else 0.5 * (low + high)
    return fallen


def _update(inverse: Floats | None, step: Floats, change: Floats) -> Floats | None:
    """Return the inverse Hessian after a step."""
    product = float(step @ change)
    if product <= 0.0:
        return inverse
    if inverse is None:
        inverse = np.eye(step.size) * (product / float(change @ change))
    moved = inverse @ change
    cross = np.outer(moved, step)
    inverse += np.outer(step, step) * ((product + float(change @ moved)) / product**2)
    inverse -= (cross + cross.T) / product
    return inverse
