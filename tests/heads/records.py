"""Records of runs for tests that write a run folder by hand."""

import json
from pathlib import Path

import msgspec

from tests.cache.material import FINGERPRINT
from trust_cache.base.digests import file_sha256
from trust_cache.base.documents import SEAL, sealed_bytes
from trust_cache.heads.head_settings import HeadSettings
from trust_cache.heads.run_folder import OWN, RECORD, SCHEMA, RecordedTraining, RunRecord


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
        content_sha256="2" * 64,
        folds_sha256=["1" * 64],
        repeat=0,
        cache="cache.zarr",
        threads=1,
        low_memory=False,
        resumed_folds=0,
        seconds={"load": 0.1, "train": 0.2},
        warnings=[],
        versions={"numpy": "2.0"},
        files={},
    )
    return msgspec.structs.replace(record, **changes)


def seal(folder: Path) -> Path:
    """Write the digests of a run folder's files, as they are now, to its run.json."""
    names = sorted(name for name in OWN - {RECORD} if (folder / name).is_file())
    edit_record(folder, files={name: file_sha256(folder / name) for name in names})
    return folder


def edit_record(folder: Path, **changes: object) -> None:
    """Change keys of run.json and seal it again."""
    document = json.loads((folder / RECORD).read_text())
    document.pop(SEAL, None)
    (folder / RECORD).write_bytes(sealed_bytes(document | changes))
