"""A head as a scikit-learn estimator: the rows of X take the place of a cache."""

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from trust_cache.base.errors import InputError
from trust_cache.cache.feature_rows import FeatureRows, rows_of_array
from trust_cache.heads.bank import score_rows
from trust_cache.heads.closed_loop import closed_loop_threshold
from trust_cache.heads.draws import Draws
from trust_cache.heads.fold_training import train_fold
from trust_cache.heads.head_settings import (
    SETTING_NAMES,
    HeadSettings,
    TrainingSettings,
    head_settings,
    known_configurations,
)
from trust_cache.heads.trainer import COMPILED, FoldImages, FoldJob, Trainer
from trust_cache.manifest.cases import case_maxima
from trust_cache.statistics.stratified_draws import count_patients, draw_patients, random_keys

_LARGEST = 64.0  # the largest feature of every row: float16 then neither overflows nor loses small values
_LARGEST_SEED = 2**31 - 1


class TrustHeadClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """LayerNorm, dropout and a linear unit, trained with a configuration's losses and closed-loop threshold.

    Parameters
    ----------
    configuration : its name: ce, ce-brier, ce-focal, fixed-tau, closed-loop or tuned (which has no tau and
        no setting).
    positive : the label of cancer. None: `classes_[1]`, and `dismiss` refuses unless labels are 0 and 1 or
        booleans: of words, the alphabetically last would be cancer ("normal", not "cancer").
    lambda_brier .. clip : settings of a head (`HeadSettings`); None keeps the configuration's.
    epochs, batch_positives, batch_negatives : the training's.
    calibration_share : of the patients, set aside for tau where the configuration has a closed loop.
    random_state : the seed of the calibration part, the initial weights, batches and masks.
    trainer : what trains the head; None is the compiled trainer.

    After `fit`: `classes_`, `positive_` (the label that the head scores), `tau_` (None where the
    configuration has none), `parameters_` (the head), `calibration_` (row numbers set aside).

    Rows are normalised one by one (LayerNorm) and kept as float16, as in a cache. LayerNorm does not depend
    on the scale of a row, so each row is first divided by its largest magnitude: no X overflows, and features
    keep 11 bits. Only a row's pattern counts, never its mean or scale: one feature alone teaches nothing.
    Rows of one case share a value of `groups`, cases of one patient a value of `patients` (without it each
    case is its own patient). Pipelines pass both by metadata routing
    (`set_fit_request(groups=True, patients=True)`).
    """

    def __init__(
        self,
        configuration: str = "closed-loop",
        *,
        positive: object = None,
        lambda_brier: float | None = None,
        lambda_focal: float | None = None,
        focal_gamma: float | None = None,
        lambda_dismiss: float | None = None,
        margin: float | None = None,
        tau: float | str | None = None,
        loop_level: float | None = None,
        loop_delta: float | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        clip: float | None = None,
        epochs: int = 20,
        batch_positives: int = 20,
        batch_negatives: int = 60,
        calibration_share: float = 0.1,
        random_state: int | np.random.RandomState | None = 0,
        trainer: Trainer | None = None,
    ) -> None:
        self.configuration = configuration
        self.positive = positive
        self.lambda_brier = lambda_brier
        self.lambda_focal = lambda_focal
        self.focal_gamma = focal_gamma
        self.lambda_dismiss = lambda_dismiss
        self.margin = margin
        self.tau = tau
        self.loop_level = loop_level
        self.loop_delta = loop_delta
        self.lr = lr
        self.weight_decay = weight_decay
        self.clip = clip
        self.epochs = epochs
        self.batch_positives = batch_positives
        self.batch_negatives = batch_negatives
        self.calibration_share = calibration_share
        self.random_state = random_state
        self.trainer = trainer

    def __sklearn_tags__(self) -> Any:
        """Declare two classes only, and poor_score.

        scikit-learn's checks ask for an accuracy of 0.83 on two features; after LayerNorm only the order of
        the two is left.
        """
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True
        return tags

    def fit(
        self,
        X: ArrayLike,  # noqa: N803
        y: ArrayLike,
        groups: ArrayLike | None = None,
        patients: ArrayLike | None = None,
    ) -> Self:
        """Train one head on the rows of X; the rows of a patient calibrate all or none.

        `groups` are the cases of the rows, `patients` their patients.
        """
        features, labels = validate_data(self, X, y, dtype=(np.float64, np.float32), order="C")
        check_classification_targets(labels)
        kind = type_of_target(labels, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_ = np.unique(labels)
        if self.classes_.size < 2:  # noqa: PLR2004
            raise ValueError(f"Classifier can't train when only one class is present: {self.classes_[0]!r}")
        self.positive_ = self._positive_label()
        positive = (labels == self.positive_).astype(np.int64)
        settings, state = self._head_settings(), self.random_state
        if not isinstance(state, int | np.integer):
            state = check_random_state(state).randint(_LARGEST_SEED)
        seed = int(state)
        cases = _numbers("groups", groups, positive.size)
        self.calibration_ = self._calibration(settings, positive, cases, _patients(patients, cases), seed)
        fitted = np.setdiff1d(np.arange(positive.size), self.calibration_)
        of_patient = _patients(patients, cases)[np.unique(cases, return_inverse=True)[1]]
        images = FoldImages(positive, fitted, self.calibration_, cases, of_patient)
        training = TrainingSettings(self.epochs, self.batch_positives, self.batch_negatives)
        rows = _rows(features)
        job = FoldJob(rows, images, [settings], training, Draws(seed, 0))
        self.parameters_ = train_fold(job, self.trainer or COMPILED).parameters
        self.tau_ = self._final_tau(settings, rows, positive)
        if self.tau_ == 0:
            self._warn_of_zero(settings)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Return the logit of classes_[1]."""
        scores = self._scores(X)
        with np.errstate(divide="ignore"):  # a score of 0 or 1 has an infinite logit
            logits = np.log(scores) - np.log1p(-scores)
        return np.asarray(logits if self._last_is_positive else -logits)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Return the scores of both classes, as `classes_` has them; that of `positive_` is the head's."""
        scores = self._scores(X)
        pair = (1.0 - scores, scores) if self._last_is_positive else (scores, 1.0 - scores)
        return np.column_stack(pair)

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Return `positive_` where the score is above 0.5; `dismiss` uses the threshold instead."""
        above = self._scores(X) > 0.5  # noqa: PLR2004
        return np.asarray(self.classes_[(above == self._last_is_positive).astype(np.intp)])

    def dismiss(self, X: ArrayLike) -> NDArray[np.bool_]:  # noqa: N803
        """Mark the rows to dismiss: score < tau_.

        tau_ is from training and carries no certificate: certify scores of cases that were not in it.
        """
        scores = self._scores(X)
        if self.positive is None and not _are_zero_and_one(self.classes_):
            first, last = self.classes_.tolist()
            raise InputError(
                f"dismiss: expected labels 0 and 1 or booleans, or `positive` that says which of {first!r}"
                f" and {last!r} is cancer, found none; the head was trained as if it were {last!r}. Set"
                f" positive={first!r} or positive={last!r} and fit again"
            )
        if self.tau_ is None:
            raise InputError(
                f"dismiss: the configuration {self.configuration!r} has no tau; choose fixed-tau or"
                " closed-loop, or set tau"
            )
        return np.asarray(scores < self.tau_)

    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        check_is_fitted(self)
        features = validate_data(self, X, dtype=(np.float64, np.float32), order="C", reset=False)
        rows = _rows(features)
        return np.asarray(score_rows(rows, np.arange(rows.images), self.parameters_)[0])

    @property
    def _last_is_positive(self) -> bool:
        return bool(self.classes_[1] == self.positive_)

    def _positive_label(self) -> object:
        """Return the label of cancer as `classes_` has it."""
        if self.positive is None:
            return self.classes_[1]
        found = [label for label in self.classes_ if label == self.positive]
        if not found:
            expected = " or ".join(map(repr, self.classes_.tolist()))
            raise InputError(f"positive: expected a label of y ({expected}), found {self.positive!r}")
        return found[0]

    def _warn_of_zero(self, settings: HeadSettings) -> None:
        """Warn that `dismiss` will mark no row."""
        rows = self.calibration_.size
        reason = (
            f"no threshold keeps the bound on the cancer rate of the dismissed at or below"
            f" {settings.loop_level:g} on the {rows} calibration rows"
            if settings.closed_loop and rows
            else "no rows could be set aside for the closed loop"
            if settings.closed_loop
            else "tau is set to 0"
        )
        warnings.warn(
            f"tau_ is 0: nothing will be dismissed ({reason}). More rows, a larger calibration_share or a"
            " higher loop_level may help",
            stacklevel=3,
        )

    def _head_settings(self) -> HeadSettings:
        known = known_configurations()
        if self.configuration not in known:
            raise InputError(f"configuration: expected {', '.join(known)}, found {self.configuration!r}")
        values = {name: getattr(self, name) for name in SETTING_NAMES}
        given = {name: value for name, value in values.items() if value is not None}
        return head_settings(given, known[self.configuration])

    def _calibration(
        self,
        settings: HeadSettings,
        positive: NDArray[np.int64],
        cases: NDArray[np.int64],
        patients: NDArray[np.int64],
        seed: int,
    ) -> NDArray[np.int64]:
        """Return the rows of the patients set aside for tau; none where tau is not searched for."""
        if not 0 < self.calibration_share < 1:
            raise InputError(
                "calibration_share: expected a fraction strictly between 0 and 1,"
                f" found {self.calibration_share}"
            )
        if not settings.closed_loop:
            return np.empty(0, dtype=np.int64)
        labels = case_maxima(positive, cases)
        count = count_patients(patients)
        size = round(count * self.calibration_share)
        aside = draw_patients(labels, patients, size, random_keys(count, seed))[cases]
        too_few = np.unique(positive[~aside]).size < 2  # noqa: PLR2004
        return np.empty(0, dtype=np.int64) if too_few else np.flatnonzero(aside)

    def _final_tau(
        self, settings: HeadSettings, rows: FeatureRows, positive: NDArray[np.int64]
    ) -> float | None:
        """Return tau of the trained head; 0 for a closed loop without cases to calibrate on."""
        if not settings.closed_loop:
            return settings.tau if isinstance(settings.tau, float) else None
        if not self.calibration_.size:
            return 0.0
        scores = score_rows(rows, self.calibration_, self.parameters_)[0]
        return closed_loop_threshold(
            scores, positive[self.calibration_], settings.loop_level, settings.loop_delta
        )


def _are_zero_and_one(classes: NDArray[Any]) -> bool:
    return bool(classes.dtype.kind in "biuf" and classes.astype(float).tolist() == [0.0, 1.0])


def _rows(features: NDArray[np.floating[Any]]) -> FeatureRows:
    """Return the rows as a cache has them, each scaled to the range of float16."""
    largest = np.abs(features).max(axis=1, keepdims=True)
    scaled = features / np.where(largest > 0, largest, 1.0) * _LARGEST
    return rows_of_array(np.ascontiguousarray(scaled[:, np.newaxis, :], dtype=np.float16))


def _numbers(name: str, given: ArrayLike | None, rows: int) -> NDArray[np.int64]:
    """Number the rows by their value of `groups` or `patients`; without one each row has its own number."""
    if given is None:
        return np.arange(rows, dtype=np.int64)
    values = np.asarray(given)
    if values.shape != (rows,):
        raise ValueError(
            f"{name}: expected one for each of the {rows} rows, found an array of shape {values.shape}"
        )
    return np.asarray(np.unique(values, return_inverse=True)[1], dtype=np.int64)


def _patients(given: ArrayLike | None, cases: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the patient of each case by number; without patients each case is its own."""
    if given is None:
        return np.unique(cases)
    of_rows = _numbers("patients", given, cases.size)
    pairs = np.unique(np.column_stack([cases, of_rows]), axis=0)
    if pairs.shape[0] > np.unique(cases).size:
        raise ValueError("patients: expected one patient for each case (a value of groups), found several")
    return np.asarray(pairs[:, 1])
