"""The scores of a sweep on disk: a file for each bank, repeat and fold, written once it is whole."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from trust_cache.base.durable import PARTIAL
from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file
from trust_cache.heads.folds import FOLDS, TEST
from trust_cache.heads.preparation import Preparation
from trust_cache.studies.sweep.catalogue import Bank

FOLDER = "scores"


@dataclass(frozen=True)
class FoldScores:
    """The scores [head, image] of a bank on the test images of one fold."""

    images: NDArray[np.int64]  # by their number in the cache
    scores: NDArray[np.float64]


class ScoreFiles:
    """The folder of scores inside a sweep."""

    def __init__(self, out: Path, work: Preparation) -> None:
        self.folder = out / FOLDER
        self.work = work

    def missing(self, bank: Bank, repeat: int) -> list[int]:
        """Return the folds that have no scores yet."""
        return [fold for fold in range(FOLDS) if not self._file(bank, repeat, fold).exists()]

    def keep(self, bank: Bank, repeat: int, fold: int, scores: NDArray[np.float64]) -> None:
        """Write the scores of one fold, on the disk when this returns."""
        write_file(self._file(bank, repeat, fold), save({"scores": np.ascontiguousarray(scores)}))

    def read(self, bank: Bank, repeat: int) -> list[FoldScores]:
        """Read the scores of all folds."""
        return [self._read(bank, repeat, fold) for fold in range(FOLDS)]

    def clean(self) -> None:
        """Remove what a kill left in the middle of being written."""
        for path in self.folder.rglob(f"*{PARTIAL}"):
            path.unlink()

    def _read(self, bank: Bank, repeat: int, fold: int) -> FoldScores:
        path = self._file(bank, repeat, fold)
        images = self.work.images(repeat, fold, TEST)
        try:
            scores = load(path.read_bytes())["scores"]
        except Exception as error:  # whatever safetensors finds wrong with it
            raise InputError(f"{path}: damaged ({error}); {_REMOVE}") from error
        expected = (len(bank.settings), images.size)
        if scores.shape != expected or scores.dtype != np.float64:
            raise InputError(f"{path}: expected scores of shape {expected}, found {scores.shape}; {_REMOVE}")
        return FoldScores(images, scores)

    def _file(self, bank: Bank, repeat: int, fold: int) -> Path:
        return self.folder / bank.name / f"repeat-{repeat}-fold-{fold}.safetensors"


_REMOVE = "remove it and run the same command again: only this part is trained again"
