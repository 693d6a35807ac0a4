"""What one trained fold leaves behind, and its form on disk until the run is whole."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file
from trust_cache.cache.rows import FeatureRows
from trust_cache.heads.bank import HeadParameters, score_rows
from trust_cache.heads.fold_task import FoldTask

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class FoldResult:
    """The test scores of one fold's heads, the course of their training, and the heads themselves."""

    images: Integers  # the images scored, by their number in the cache that they are from
    scores: Floats  # [head, image]
    taus: Floats  # [epoch, head]; NaN where a head has none
    dismissed: Integers
    positives_dismissed: Integers
    trajectories: Floats  # [epoch and one more, head, label, quantile]
    gamma: NDArray[np.float32]  # [head, dim]
    beta: NDArray[np.float32]
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]  # [head]

    @property
    def parameters(self) -> HeadParameters:
        """The heads."""
        return HeadParameters(self.gamma, self.beta, self.weight, self.bias)


def finish_fold(task: FoldTask, images: Integers, rows: FeatureRows | None = None) -> FoldResult:
    """Score the fold's test images, of its own rows or of another set's, with its heads of the last epoch."""
    parameters = task.parameters
    return FoldResult(
        images=images,
        scores=score_rows(rows or task.rows, images, parameters),
        taus=task.taus,
        dismissed=task.dismissed,
        positives_dismissed=task.positives_dismissed,
        trajectories=task.trajectories,
        gamma=parameters.gamma,
        beta=parameters.beta,
        weight=parameters.weight,
        bias=parameters.bias,
    )


def write_result(result: FoldResult, path: Path) -> None:
    """Write a fold's result, whole or not at all."""
    arrays = {name: np.ascontiguousarray(value) for name, value in vars(result).items()}
    write_file(path, save(arrays))


def read_result(path: Path) -> FoldResult:
    """Read a fold's result."""
    try:
        return FoldResult(**load(path.read_bytes()))
    except Exception as error:  # whatever safetensors or the record finds wrong with it
        raise InputError(
            f"{path}: not a result of this version ({error}); start over with --overwrite"
        ) from error
