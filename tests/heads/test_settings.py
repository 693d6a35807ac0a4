"""Settings are checked when they are made; configurations come from TOML."""

from pathlib import Path

import pytest

from trust_cache.base.errors import InputError
from trust_cache.heads.head_settings import (
    HeadSettings,
    TrainingSettings,
    head_settings,
    presets,
    read_configurations,
)


def test_the_presets_are_the_papers() -> None:
    focal = {"lambda_focal": 1.0, "focal_gamma": 2.0}
    dismiss = {**focal, "lambda_dismiss": 0.05, "margin": 0.10}
    assert dict(presets()) == {
        "ce": HeadSettings(),
        "ce-brier": HeadSettings(lambda_brier=0.1),
        "ce-focal": HeadSettings(**focal),
        "fixed-tau": HeadSettings(**dismiss, tau=0.05),
        "closed-loop": HeadSettings(**dismiss, tau="closed-loop", loop_level=0.01, loop_delta=0.05),
    }
    assert list(presets()) == ["ce", "ce-brier", "ce-focal", "fixed-tau", "closed-loop"]
    assert all((head.lr, head.weight_decay, head.clip) == (3e-5, 1e-4, 5.0) for head in presets().values())


def test_a_users_file_adds_configurations(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[strict]\nlambda_dismiss = 1\ntau = "closed-loop"\nloop_level = 0.005\n["other one"]\n')
    read = read_configurations(path)
    assert read["strict"] == HeadSettings(lambda_dismiss=1.0, tau="closed-loop", loop_level=0.005)
    assert read["strict"].closed_loop
    assert isinstance(read["strict"].lambda_dismiss, float)
    assert read["other one"] == HeadSettings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[mine]\nlambda_dissmiss = 0.1\n", r"\[mine\].*'lambda_dissmiss'.*did you mean lambda_dismiss\?"),
        ("[mine]\nmargins = 0.1\n", r"did you mean margin\?"),
        ("[mine]\ntau = 'open-loop'\n", "tau: expected a number or \"closed-loop\", found 'open-loop'"),
        ("[mine]\nlr = 'fast'\n", "lr: expected a finite number, found 'fast'"),
        ("[mine]\nlr = true\n", "lr: expected a finite number, found True"),
        ("lr = 3e-5\n", "expected a table of settings, found 3e-05"),
        ("", "expected one table per configuration, found none"),
        ("[mine", "not a TOML file"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_configurations(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: no such file"):
        read_configurations(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lambda_focal": -1.0}, "lambda_focal: expected 0 or more, found -1"),
        ({"focal_gamma": float("nan")}, "focal_gamma: expected a finite number, found nan"),
        ({"clip": 0.0}, "clip: expected a number above 0, found 0"),
        ({"loop_level": 1.0}, "loop_level: expected a number strictly between 0 and 1, found 1"),
        ({"loop_delta": 0.0}, "loop_delta: expected a number strictly between 0 and 1, found 0"),
        ({"lambda_dismiss": 0.05}, "lambda_dismiss = 0.05 needs a tau"),
        ({"tau": float("inf")}, "tau: expected a finite number, found inf"),
    ],
)
def test_wrong_values_are_refused(values: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        HeadSettings(**values)


@pytest.mark.parametrize(
    "values", [{"epochs": 0}, {"batch_positives": 0}, {"batch_negatives": -1}, {"dropped_of_256": 256}]
)
def test_wrong_training_settings_are_refused(values: dict) -> None:
    with pytest.raises(InputError, match=f"{next(iter(values))}: expected"):
        TrainingSettings(**values)


def test_settings_may_start_from_a_base() -> None:
    base = presets()["closed-loop"]
    assert head_settings({"margin": 0.2}, base) == HeadSettings(
        lambda_focal=1.0, focal_gamma=2.0, lambda_dismiss=0.05, margin=0.2, tau="closed-loop"
    )
