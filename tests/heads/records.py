"""Records of runs for tests that write a run folder by hand."""

import msgspec

from tests.cache.material import FINGERPRINT
from trust_cache.heads.head_settings import HeadSettings
from trust_cache.heads.run_folder import SCHEMA, RecordedTraining, RunRecord


def a_record(**changes: object) -> RunRecord:
    """The record of a small run of `ce`, with these keys changed."""
    record = RunRecord(
        schema=SCHEMA,
        configurations={"ce": HeadSettings()},
        training=RecordedTraining(epochs=4, dropout=77 / 256),
        seed=0,
        repeats=1,
        views=8,
        fingerprint=FINGERPRINT,
        images=100,
        dim=16,
        manifest_sha256="0" * 64,
        folds_sha256=["1" * 64],
        repeat=0,
        cache="cache.zarr",
        threads=1,
        low_memory=False,
        resumed_folds=0,
        seconds={"load": 0.1, "train": 0.2},
        warnings=[],
        versions={"numpy": "2.0"},
    )
    return msgspec.structs.replace(record, **changes)
