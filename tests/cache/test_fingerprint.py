"""A difference is named; the fields before the bar count alone; JSON loses nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.cache.material import FINGERPRINT, differing_fields
from trust_cache.base.documents import typed
from trust_cache.base.errors import InputError
from trust_cache.cache.fingerprint import (
    ENCODER_FIELDS,
    Fingerprint,
    require_same_encoder,
    require_same_fingerprint,
)

NAMES = Fingerprint.__struct_fields__
OTHER = {"seed": 8}


@pytest.mark.parametrize("name", NAMES)
def test_each_field_is_named(name: str) -> None:
    other = replace(FINGERPRINT, **{name: OTHER.get(name, "other")})  # type: ignore[arg-type]
    assert differing_fields(FINGERPRINT, other) == (name,)
    with pytest.raises(InputError, match=f"b.zarr: .*{name}: expected"):
        require_same_fingerprint(FINGERPRINT, other, "b.zarr")
    if name in ENCODER_FIELDS:
        with pytest.raises(InputError, match=name):
            require_same_encoder(FINGERPRINT, other, "b.zarr")
    else:
        require_same_encoder(FINGERPRINT, other, "b.zarr")


def test_equal_ones_pass() -> None:
    require_same_fingerprint(FINGERPRINT, replace(FINGERPRINT), "b.zarr")


def _read(document: object) -> Fingerprint:
    return typed(document, Fingerprint, where="x", what="a fingerprint")


@given(st.text(), st.integers())
def test_json_round_trip(text: str, seed: int) -> None:
    fingerprint = replace(FINGERPRINT, encoder=text, seed=seed, recipe=text)
    document = json.loads(json.dumps(fingerprint.as_document()))
    assert _read(document) == fingerprint


@pytest.mark.parametrize(
    "change", [{"encoder": 3}, {"seed": "1"}, {"seed": True}, {"recipe": [1]}, {"more": 1}]
)
def test_damaged_ones_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"x: .*fingerprint"):
        _read({**FINGERPRINT.as_document(), **change})
    with pytest.raises(InputError):
        _read(None)
