"""TrustHeadClassifier: scikit-learn's own checks, its formula, its groups, and other people's pipelines."""

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import sklearn
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from tests.heads.cohorts import a_cohort
from trust_cache import TrustHeadClassifier, closed_loop_threshold
from trust_cache.base.errors import InputError
from trust_cache.heads.head_settings import SETTING_NAMES

pytestmark = pytest.mark.filterwarnings("ignore:tau_ is 0")  # many cohorts here are small
QUICK = {"lr": 3e-3, "epochs": 4, "random_state": 0}


@pytest.fixture(scope="module")
def cohort() -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.str_]]:
    manifest, features = a_cohort(cases=1_400, positives=200, distance=1.5, views=1, dim=32)
    return features[:, 0].astype(float), manifest["label"].to_numpy(), manifest["case_id"].to_numpy()


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize("configuration", ["closed-loop", "ce"])
def test_scikit_learns_checks_pass_without_expected_failures(configuration: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of scikit-learn's own making, about checks it skips
        done = check_estimator(TrustHeadClassifier(configuration, epochs=2), on_fail=None)
    failed = [item["check_name"] for item in done if item["status"] in ("failed", "xfail")]
    assert failed == []
    assert sum(item["status"] == "passed" for item in done) >= 40
    skipped = {item["check_name"] for item in done if item["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}  # asks for an environment variable


def test_the_tags_say_binary_only() -> None:
    tags = TrustHeadClassifier().__sklearn_tags__()
    assert not tags.classifier_tags.multi_class
    assert tags.classifier_tags.poor_score
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        TrustHeadClassifier().fit(np.eye(6), [0, 1, 2, 0, 1, 2])


def test_the_score_is_the_heads_formula(cohort: tuple[NDArray[np.float64], ...]) -> None:
    """LayerNorm and a linear unit in float64 on X itself; what differs is float16's rounding."""
    features, labels, _ = cohort
    fitted = TrustHeadClassifier("ce", **QUICK).fit(features, labels)
    head = fitted.parameters_
    centred = features - features.mean(axis=1, keepdims=True)
    normal = centred / np.sqrt(centred.var(axis=1, keepdims=True) + 1e-5)
    logits = (normal * head.gamma[0] + head.beta[0]) @ head.weight[0].astype(float) + head.bias[0]
    score = 1 / (1 + np.exp(-logits))
    assert np.abs(fitted.predict_proba(features)[:, 1] - score).max() < 2e-3
    assert np.allclose(fitted.decision_function(features), logits, atol=2e-2)
    assert np.array_equal(fitted.predict(features), (fitted.predict_proba(features)[:, 1] > 0.5).astype(int))
    assert roc_auc_score(labels, score) > 0.85


@pytest.mark.parametrize("scale", [2.0**-30, 2.0**20, 2.0**120])
def test_the_scale_of_the_rows_changes_no_bit(cohort: tuple[NDArray[np.float64], ...], scale: float) -> None:
    features, labels, _ = cohort
    few = slice(0, 400)
    plain = TrustHeadClassifier(**QUICK).fit(features[few], labels[few])
    scaled = TrustHeadClassifier(**QUICK).fit(scale * features[few], labels[few])
    assert np.array_equal(plain.predict_proba(features), scaled.predict_proba(features * scale))
    assert np.array_equal(plain.predict_proba(features), plain.predict_proba(features / 8))


def test_dismissal_is_its_own_method_with_the_closed_loops_threshold(
    cohort: tuple[NDArray[np.float64], ...],
) -> None:
    features, labels, groups = cohort
    fitted = TrustHeadClassifier(**QUICK).fit(features, labels, groups=groups)
    aside = fitted.calibration_
    scores = fitted.predict_proba(features)[:, 1]
    assert fitted.tau_ == closed_loop_threshold(scores[aside], labels[aside])
    assert fitted.tau_ > 0
    assert np.array_equal(fitted.dismiss(features), scores < fitted.tau_)
    assert 0 < fitted.dismiss(features).sum() < labels.size
    assert scores[~fitted.dismiss(features)].min() >= fitted.tau_
    fixed = TrustHeadClassifier("fixed-tau", **QUICK).fit(features, labels)
    assert (fixed.tau_, fixed.calibration_.size) == (0.05, 0)
    plain = TrustHeadClassifier("ce", **QUICK).fit(features, labels)
    assert plain.tau_ is None
    with pytest.raises(InputError, match="has no tau"):
        plain.dismiss(features)


def test_groups_stay_on_one_side_and_are_stratified(cohort: tuple[NDArray[np.float64], ...]) -> None:
    features, labels, groups = cohort
    fitted = TrustHeadClassifier(epochs=1).fit(features, labels, groups=groups)
    aside = set(groups[fitted.calibration_])
    assert len(aside) == 140
    assert np.array_equal(np.flatnonzero(np.isin(groups, list(aside))), np.sort(fitted.calibration_))
    positive = {case for case, label in zip(groups, labels, strict=True) if label}
    assert len(positive & aside) == len(positive) // 10
    with pytest.raises(ValueError, match="groups: expected one for each of"):
        TrustHeadClassifier().fit(features, labels, groups=groups[:5])


def test_patients_stay_on_one_side(cohort: tuple[NDArray[np.float64], ...]) -> None:
    features, labels, groups = cohort
    patients = groups.astype(int) // 2  # two cases each
    fitted = TrustHeadClassifier(epochs=1).fit(features, labels, groups=groups, patients=patients)
    aside = np.isin(np.arange(labels.size), fitted.calibration_)
    assert set(patients[aside]).isdisjoint(patients[~aside])
    assert len(set(patients[aside])) == 70
    positive = set(patients[labels == 1])
    assert len(positive & set(patients[aside])) == len(positive) // 10
    by_case, own = (
        TrustHeadClassifier(epochs=1).fit(features, labels, groups=groups, patients=given)
        for given in (None, groups)
    )
    assert np.array_equal(by_case.calibration_, own.calibration_)
    assert not np.array_equal(by_case.calibration_, fitted.calibration_)
    for wrong, said in (
        (patients[:5], "patients: expected one for each of"),
        (np.arange(labels.size), "expected one patient for each case"),
    ):
        with pytest.raises(ValueError, match=said):
            TrustHeadClassifier().fit(features, labels, groups=groups, patients=wrong)


def test_a_pipeline_and_a_grid_search(cohort: tuple[NDArray[np.float64], ...]) -> None:
    features, labels, _ = cohort
    pipeline = make_pipeline(StandardScaler(), TrustHeadClassifier(**QUICK | {"epochs": 1}))
    grid = {"trustheadclassifier__lambda_focal": [0.0, 1.0], "trustheadclassifier__lr": [1e-30, 3e-3]}
    search = GridSearchCV(pipeline, grid, cv=2, scoring="roc_auc").fit(features, labels)
    assert search.best_params_["trustheadclassifier__lr"] == 3e-3
    assert search.best_score_ > 0.8


@pytest.mark.usefixtures("routing")
def test_cross_validated_scores_with_groups(cohort: tuple[NDArray[np.float64], ...]) -> None:
    features, labels, groups = cohort
    patients = groups.astype(int) // 2
    head = TrustHeadClassifier(**QUICK | {"epochs": 2}).set_fit_request(groups=True, patients=True)
    pipeline = make_pipeline(StandardScaler(), head)
    given = {"groups": groups, "patients": patients}
    scores = cross_val_predict(
        pipeline, features, labels, cv=GroupKFold(3), params=given, method="predict_proba"
    )[:, 1]
    assert roc_auc_score(labels, scores) > 0.8
    # By hand, to see that groups and patients arrived at fit.
    train, test = next(GroupKFold(3).split(features, labels, groups))
    scaler = StandardScaler().fit(features[train])
    mine = {name: values[train] for name, values in given.items()}
    by_hand = clone(head).fit(scaler.transform(features[train]), labels[train], **mine)
    assert np.array_equal(scores[test], by_hand.predict_proba(scaler.transform(features[test]))[:, 1])


def test_the_parameters_are_the_settings_of_a_head() -> None:
    names = set(TrustHeadClassifier().get_params())
    assert set(SETTING_NAMES) < names
    with pytest.raises(InputError, match=r"configuration: expected ce, .* found 'closedloop'"):
        TrustHeadClassifier("closedloop").fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(InputError, match="lr: expected 0 or more"):
        TrustHeadClassifier(lr=-1.0).fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(InputError, match="calibration_share"):
        TrustHeadClassifier(calibration_share=1.5).fit(np.eye(4), [0, 1, 0, 1])


def test_labels_of_any_kind_and_seeds(cohort: tuple[NDArray[np.float64], ...]) -> None:
    features, labels, _ = cohort
    words = np.where(labels == 1, "cancer", "healthy")  # "cancer" sorts first: it is classes_[0]
    fitted = TrustHeadClassifier("ce", **QUICK).fit(features, words)
    assert fitted.classes_.tolist() == ["cancer", "healthy"]
    assert roc_auc_score(labels, fitted.predict_proba(features)[:, 0]) > 0.85
    assert set(fitted.predict(features)) <= {"cancer", "healthy"}
    first, again, other = (
        TrustHeadClassifier(epochs=1, random_state=state).fit(features, labels).predict_proba(features)
        for state in (3, 3, np.random.RandomState(3))
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("healthy", "cancer"), [("normal", "cancer"), ("benign", "malignant"), (0, 1), (False, True), (2, 1)]
)
def test_every_spelling_of_the_labels_dismisses_the_same_cases(
    cohort: tuple[NDArray[np.float64], ...], healthy: object, cancer: object
) -> None:
    features, labels, groups = cohort
    plain = TrustHeadClassifier(**QUICK).fit(features, labels, groups=groups)
    spelt = np.where(labels == 1, cancer, healthy)
    fitted = TrustHeadClassifier(positive=cancer, **QUICK).fit(features, spelt, groups=groups)
    assert (fitted.positive_, fitted.tau_) == (cancer, plain.tau_)
    assert 0 < plain.dismiss(features).sum() < labels.size
    assert np.array_equal(fitted.dismiss(features), plain.dismiss(features))
    column = fitted.classes_.tolist().index(cancer)
    assert np.array_equal(fitted.predict_proba(features)[:, column], plain.predict_proba(features)[:, 1])
    assert np.array_equal(fitted.predict(features) == cancer, plain.predict(features) == 1)
    assert np.array_equal(
        fitted.decision_function(features) > 0, fitted.predict(features) == fitted.classes_[1]
    )


def test_dismiss_refuses_labels_that_do_not_say_which_is_cancer(
    cohort: tuple[NDArray[np.float64], ...],
) -> None:
    features, labels, _ = cohort
    for healthy, cancer in (("normal", "cancer"), ("0", "1"), (-1, 1)):
        fitted = TrustHeadClassifier(tau=0.5, **QUICK).fit(features, np.where(labels == 1, cancer, healthy))
        with pytest.raises(InputError, match=f"which of '?{min(healthy, cancer)}'? and .* is cancer"):
            fitted.dismiss(features)
    for kind in (bool, float):
        fitted = TrustHeadClassifier(tau=0.5, **QUICK).fit(features, labels.astype(kind))
        assert fitted.dismiss(features)[labels == 0].mean() > fitted.dismiss(features)[labels == 1].mean()
    with pytest.raises(
        InputError, match=r"positive: expected a label of y .'cancer' or 'normal'., found 'Cancer'"
    ):
        TrustHeadClassifier(positive="Cancer").fit(features, np.where(labels == 1, "cancer", "normal"))


def test_a_tau_of_zero_warns(cohort: tuple[NDArray[np.float64], ...]) -> None:
    features, labels, _ = cohort
    with pytest.warns(
        UserWarning, match=r"tau_ is 0: nothing will be dismissed .*on the 20 calibration rows"
    ):
        assert TrustHeadClassifier(**QUICK).fit(features[:200], labels[:200]).tau_ == 0
    with pytest.warns(UserWarning, match="tau is set to 0"):
        TrustHeadClassifier(tau=0.0, **QUICK).fit(features[:200], labels[:200])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TrustHeadClassifier(**QUICK).fit(features, labels)
        TrustHeadClassifier("ce", **QUICK).fit(features[:200], labels[:200])
