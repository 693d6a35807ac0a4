"""No word of a header reaches an output, a log or a message, whatever element it is in."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydicom import Dataset, dcmread
from pydicom.datadict import DicomDictionary

from tests.cli.conftest import Run
from tests.clinic.dicom_files import PROJECTIONS, write_case
from tests.clinic.triage_material import place_model, scores_by_extract, tiny_head, tiny_model

SENTINEL = "QWZXKJ"
DATE = "19610203"
_TEXTS = {"AE", "AS", "CS", "LO", "LT", "PN", "SH", "ST", "UC", "UR", "UT"}
# An image whose case is known and whose pixels can be decoded.
_DECODED = {"PhotometricInterpretation", "ImageLaterality", "ViewPosition", "SpecificCharacterSet"}


def plant(dataset: Dataset, kept: set[str]) -> int:
    """Write the sentinel into every text element of the dictionary, and a date into every date."""
    planted = 0
    for tag, (vr, _, _, retired, keyword) in DicomDictionary.items():
        if keyword and not retired and keyword not in kept and tag >> 16 > 2 and vr in {*_TEXTS, "DA"}:
            dataset.add_new(tag, vr, DATE if vr == "DA" else SENTINEL)
            planted += 1
    return planted


@pytest.fixture
def handlers() -> Iterator[None]:
    """Later tests do not log to this test's files."""
    logger = logging.getLogger("trust_cache")
    before = logger.handlers[:]
    yield
    logger.handlers[:] = before


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("handlers")
def test_sentinels_in_every_text_element(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_case(tmp_path / "some", 9001)
    scores_by_extract(tmp_path / "some", [9001], tiny_head(), tmp_path)
    model = place_model(tmp_path / "model", tiny_model(tmp_path / "cache.zarr", 0.999))
    for case, kept in ((1, _DECODED), (2, {"SpecificCharacterSet"})):
        for name in PROJECTIONS:
            path = write_case(tmp_path / "dicoms", case) / f"{name}.dcm"
            dataset = dcmread(path)
            assert plant(dataset, kept) > 1000
            dataset.save_as(path)
    rows = [
        f"{case}/{name},{case},0,{name[0]},{name[2:]},dicoms/{case:04d}/{name}.dcm"
        for case in (1, 2)
        for name in PROJECTIONS
    ]
    header = "image_id,case_id,label,laterality,projection,path"
    (tmp_path / "manifest.csv").write_text("\n".join([header, *rows]))
    caplog.clear()  # what pydicom said when the files were written
    log = tmp_path / "log.txt"
    words = ["-v", "--log", log]
    outcomes = [
        run("triage", tmp_path / source, "--model", model, "--out", tmp_path / f"{number}.csv", *more, *words)
        for number, (source, more) in enumerate(
            (("dicoms", ()), ("dicoms", ("--json",)), ("manifest.csv", ()))
        )
    ]
    outcomes.append(run("preprocess", tmp_path / "manifest.csv", "--out", tmp_path / "png", *words))
    outcomes.append(
        run("images", "show", tmp_path / "dicoms/0001/L-CC.dcm", "--out", tmp_path / "s.png", *words)
    )
    assert outcomes[1].out, outcomes[1].err
    listed = json.loads(outcomes[1].out)
    assert {row["decision"] for row in listed["rows"]} == {"review"}
    assert listed["folder"]["entries"] == 10
    said = "".join(outcome.out + outcome.err for outcome in outcomes)
    assert "Written to" in said
    assert "The folder has 10 entries: 2 folders, 8 " in said
    written = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and path.suffix in (".csv", ".json", ".txt", ".png")
    ]
    assert len(written) > 8
    for content in (said.encode(), caplog.text.encode(), *(path.read_bytes() for path in written)):
        assert SENTINEL.encode() not in content.upper()
        assert DATE.encode() not in content
