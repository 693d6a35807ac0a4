"""Complete and broken cases to triage, the model of a tiny encoder, and a cache made by extract."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from tests.clinic.dicom_files import PROJECTIONS, content, tags_of, write_case
from tests.clinic.material import a_model
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.extract.extract import extract
from trust_cache.cache.extract.extraction_plan import ExtractSettings
from trust_cache.cache.feature_rows import load_rows
from trust_cache.clinic.model_folder import Model, write_model
from trust_cache.encoders.known_encoders import identify_encoder
from trust_cache.heads.bank import HeadParameters, score_rows
from trust_cache.images.preprocess import preprocess
from trust_cache.manifest.protocol import SCREENING, Protocol
from trust_cache.synthetic.synthetic_dicom import BROKEN_KINDS

ENCODER, IMAGE_SIZE = "test_efficientnet", (32, 32)
SETTINGS = ExtractSettings("random", ENCODER, views=0, image_size=IMAGE_SIZE, device="cpu", batch=1)

# Every way to break a case; BROKEN_KINDS are those of single files.
KINDS = (
    *BROKEN_KINDS,
    "unknown laterality",
    "unknown projection",
    "unexpected projection",
    "missing file",
    "copied file",
    "another patient",
    "wrong side",
    "no study",
    "stray beside it",
    "half a header",
)


def break_case(place: Path, case: int, kind: str) -> None:
    """Damage a complete case in the named way."""
    target = place / "R-CC.dcm"
    if kind in BROKEN_KINDS:
        found = content(case, "R-CC", broken=kind)
        target.unlink() if found is None else target.write_bytes(found)
        return
    changes: dict[str, dict[str, object]] = {
        "unknown laterality": {"laterality": None},
        "unknown projection": {"view_position": ""},
        "unexpected projection": {"view_position": "ML"},
        "another patient": {"patient_id": "somebody else"},
        "no study": {"further": (("StudyInstanceUID", ""),)},
    }
    if kind in changes:
        tags = tags_of(str(case), "R-CC", **changes[kind])
        target.write_bytes(content(case, "R-CC", tags=tags) or b"")
    elif kind == "wrong side":  # a left breast's picture that the header calls right, beside the true one
        tags = tags_of(str(case), "R-CC", "2")
        (place / "more.dcm").write_bytes(content(case, "L-CC", tags=tags) or b"")
    elif kind == "missing file":
        target.unlink()
    elif kind == "copied file":
        (place / "copy.dcm").write_bytes(target.read_bytes())
    elif kind == "stray beside it":
        (place / "stray.dcm").write_bytes(b"something")
    elif kind == "half a header":
        target.write_bytes(target.read_bytes()[:200])
    else:
        raise AssertionError(kind)


def write_clinic(folder: Path, whole: Iterable[int], broken: Iterable[tuple[int, str]]) -> None:
    for case in whole:
        write_case(folder, case)
    for case, kind in broken:
        break_case(write_case(folder, case), case, kind)


@dataclass(frozen=True)
class Truth:
    """The scores that extract and the head give to complete cases, by image_id and by folder."""

    images: dict[str, float]
    cases: dict[str, float]


def scores_by_extract(folder: Path, cases: Iterable[int], head: HeadParameters, work: Path) -> Truth:
    """Score through a cache: manifest, preprocess, extract, head."""
    rows = [
        {
            "image_id": f"{case:04d}/{name}",
            "case_id": f"{case:04d}",
            "label": case % 2,
            "laterality": name[0],
            "projection": name[2:],
            "path": str(folder / f"{case:04d}" / f"{name}.dcm"),
        }
        for case in cases
        for name in PROJECTIONS
    ]
    pl.DataFrame(rows).write_csv(work / "manifest.csv")
    done = preprocess(work / "manifest.csv", work / "png", workers=1)
    assert not done.failures
    extract(work / "png" / "manifest.csv", work / "cache.zarr", SETTINGS)
    cache = open_cache(work / "cache.zarr")
    scores = score_rows(load_rows(cache), np.arange(cache.images), head)[0].tolist()
    images = dict(zip(cache.manifest["image_id"].to_list(), scores, strict=True))
    by_case: dict[str, float] = {}
    for name, score in images.items():
        by_case[name[:4]] = max(by_case.get(name[:4], 0.0), score)
    return Truth(images, by_case)


def tiny_head(seed: int = 3) -> HeadParameters:
    """A head that scores different images differently."""
    generator = np.random.default_rng(seed)
    dim = identify_encoder("random", ENCODER, image_size=IMAGE_SIZE).dim
    weight = generator.standard_normal((1, dim)).astype(np.float32)
    shape = (1, dim)
    return HeadParameters(
        np.ones(shape, dtype=np.float32),
        np.zeros(shape, dtype=np.float32),
        weight / np.float32(np.sqrt(dim)),
        np.zeros(1, dtype=np.float32),
    )


def tiny_model(cache: Path, tau: float, *, certified: bool = True, protocol: Protocol = SCREENING) -> Model:
    """A model with the fingerprint and the probe of extract's cache."""
    made = open_cache(cache)
    given = {"head": tiny_head(), "fingerprint": made.fingerprint, "protocol": protocol}
    return replace(a_model(tau=tau, certified=certified, **given), probe=made.probe)


def place_model(folder: Path, model: Model) -> Path:
    write_model(model, folder)
    return folder
