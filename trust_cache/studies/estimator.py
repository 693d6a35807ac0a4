"""A head as a scikit-learn estimator, for other people's pipelines: X stands in the place of a cache."""

from dataclasses import fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from trust_cache.base.errors import InputError
from trust_cache.cache.rows import FeatureRows, rows_of_array
from trust_cache.heads.bank import HeadParameters, score_rows
from trust_cache.heads.draws import Draws
from trust_cache.heads.fold_task import FoldImages, FoldTask
from trust_cache.heads.settings import HeadSettings, TrainingSettings, head_settings, presets
from trust_cache.heads.threshold import closed_loop_threshold
from trust_cache.statistics.splits import draw_stratified, random_keys

_SETTINGS = tuple(field.name for field in fields(HeadSettings))
_LARGEST = 64.0  # what each row's largest feature becomes: float16 then neither overflows nor thins out
_LARGEST_SEED = 2**31 - 1


class TrustHeadClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """LayerNorm, dropout and a linear unit, trained with a configuration's losses and closed-loop threshold.

    Parameters
    ----------
    configuration : a preset's name: ce, ce-brier, ce-focal, fixed-tau or closed-loop.
    lambda_brier .. clip : settings of a head (`HeadSettings`); None keeps the configuration's.
    epochs, batch_positives, batch_negatives : the training's.
    calibration_share : of the cases (groups), set aside for tau where the configuration has a closed loop.
    random_state : the seed of the calibration part, the initial weights, batches and masks.

    After `fit`: `classes_`, `tau_` (None where the configuration has none), `parameters_` (the head),
    `calibration_` (row numbers set aside).

    Rows are normalised one by one (LayerNorm) and kept as float16, as a cache keeps them. Since LayerNorm
    does not depend on the scale of a row, each row is first divided by its largest magnitude, so that no X
    overflows; its features keep 11 bits. Only a row's pattern counts, never its mean or scale: with a single
    feature there is nothing to learn from. Rows of one examination share a value of `groups`, which a
    pipeline hands on by metadata routing (`set_fit_request(groups=True)`).
    """

    def __init__(
        self,
        configuration: str = "closed-loop",
        *,
        lambda_brier: float | None = None,
        lambda_focal: float | None = None,
        gamma: float | None = None,
        lambda_dismiss: float | None = None,
        margin: float | None = None,
        tau: float | str | None = None,
        level: float | None = None,
        delta: float | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        clip: float | None = None,
        epochs: int = 20,
        batch_positives: int = 20,
        batch_negatives: int = 60,
        calibration_share: float = 0.1,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.configuration = configuration
        self.lambda_brier = lambda_brier
        self.lambda_focal = lambda_focal
        self.gamma = gamma
        self.lambda_dismiss = lambda_dismiss
        self.margin = margin
        self.tau = tau
        self.level = level
        self.delta = delta
        self.lr = lr
        self.weight_decay = weight_decay
        self.clip = clip
        self.epochs = epochs
        self.batch_positives = batch_positives
        self.batch_negatives = batch_negatives
        self.calibration_share = calibration_share
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """State what the estimator is: for two classes only, since dismissal is of one class.

        poor_score: scikit-learn's checks ask for an accuracy of 0.83 on blobs of two features, and LayerNorm
        leaves of two features only which is the larger.
        """
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:  # noqa: N803
        """Train one head on the rows of X; rows of one group (case) stay on one side of the calibration."""
        features, labels = validate_data(self, X, y, dtype=(np.float64, np.float32), order="C")
        check_classification_targets(labels)
        kind = type_of_target(labels, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_, positive = np.unique(labels, return_inverse=True)
        if self.classes_.size < 2:  # noqa: PLR2004
            raise ValueError(f"Classifier can't train when only one class is present: {self.classes_[0]!r}")
        settings, seed = self._head_settings(), self._seed()
        cases = _cases(groups, positive.size)
        self.calibration_ = self._calibration(settings, positive, cases, seed)
        fitted = np.setdiff1d(np.arange(positive.size), self.calibration_)
        images = FoldImages(positive.astype(np.int64), fitted, self.calibration_)
        training = TrainingSettings(self.epochs, self.batch_positives, self.batch_negatives)
        rows = _rows(features)
        task = FoldTask(rows, images, [settings], training, Draws(seed, 0))
        for _ in range(training.epochs):
            task.run_epoch()
        self.parameters_ = task.parameters
        self.tau_ = self._final_tau(settings, rows, positive)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Return the logit of classes_[1]."""
        scores = self._scores(X)
        with np.errstate(divide="ignore"):  # a score of 0 or 1 has an infinite logit
            return np.asarray(np.log(scores) - np.log1p(-scores))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Return the scores of both classes; that of classes_[1] is the head's."""
        scores = self._scores(X)
        return np.column_stack([1.0 - scores, scores])

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Return classes_[1] where the score is above 0.5; dismissal is another question: see `dismiss`."""
        above = self._scores(X) > 0.5  # noqa: PLR2004
        return np.asarray(self.classes_[above.astype(np.intp)])

    def dismiss(self, X: ArrayLike) -> NDArray[np.bool_]:  # noqa: N803
        """Mark the rows to dismiss: score < tau_.

        tau_ is from training and carries no certificate: certify scores of cases that were not in it.
        """
        scores = self._scores(X)
        if self.tau_ is None:
            raise InputError(
                f"dismiss: the configuration {self.configuration!r} has no tau; choose fixed-tau or"
                " closed-loop, or set tau"
            )
        return np.asarray(scores < self.tau_)

    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        check_is_fitted(self)
        features = validate_data(self, X, dtype=(np.float64, np.float32), order="C", reset=False)
        return _score(_rows(features), self.parameters_)

    def _head_settings(self) -> HeadSettings:
        if self.configuration not in presets():
            raise InputError(f"configuration: expected {', '.join(presets())}, found {self.configuration!r}")
        given = {name: getattr(self, name) for name in _SETTINGS if getattr(self, name) is not None}
        return head_settings(given, presets()[self.configuration])

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(_LARGEST_SEED))

    def _calibration(
        self,
        settings: HeadSettings,
        positive: NDArray[np.int64],
        cases: NDArray[np.int64],
        seed: int,
    ) -> NDArray[np.int64]:
        """Return the rows of the cases set aside for tau; none where no tau is to be found."""
        if not 0 < self.calibration_share < 1:
            raise InputError(
                "calibration_share: expected a fraction strictly between 0 and 1,"
                f" found {self.calibration_share}"
            )
        if not settings.closed_loop:
            return np.empty(0, dtype=np.int64)
        labels = np.zeros(int(cases.max()) + 1, dtype=np.int64)
        np.maximum.at(labels, cases, positive)
        drawn = draw_stratified(
            labels, round(labels.size * self.calibration_share), random_keys(labels.size, seed)
        )
        aside = drawn[cases]
        if np.unique(positive[~aside]).size < 2:  # noqa: PLR2004  # too few to spare any
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(aside)

    def _final_tau(
        self, settings: HeadSettings, rows: FeatureRows, positive: NDArray[np.int64]
    ) -> float | None:
        """Return tau of the trained head; that of a closed loop without cases to calibrate on is 0."""
        if not settings.closed_loop:
            return settings.tau if isinstance(settings.tau, float) else None
        if not self.calibration_.size:
            return 0.0
        scores = score_rows(rows, self.calibration_, self.parameters_)[0]
        return closed_loop_threshold(scores, positive[self.calibration_], settings.level, settings.delta)


def _score(rows: FeatureRows, parameters: HeadParameters) -> NDArray[np.float64]:
    return np.asarray(score_rows(rows, np.arange(rows.images), parameters)[0])


def _rows(features: NDArray[np.floating[Any]]) -> FeatureRows:
    """Return the rows as a cache would have them, each scaled so that float16 holds it."""
    largest = np.abs(features).max(axis=1, keepdims=True)
    scaled = features / np.where(largest > 0, largest, 1.0) * _LARGEST
    return rows_of_array(np.ascontiguousarray(scaled[:, np.newaxis, :], dtype=np.float16))


def _cases(groups: ArrayLike | None, n: int) -> NDArray[np.int64]:
    """Return each row's case by number: its group, or itself."""
    if groups is None:
        return np.arange(n, dtype=np.int64)
    given = np.asarray(groups)
    if given.shape != (n,):
        raise ValueError(
            f"groups: expected one for each of the {n} rows, found an array of shape {given.shape}"
        )
    return np.asarray(np.unique(given, return_inverse=True)[1], dtype=np.int64)
