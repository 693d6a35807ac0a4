"""A header that takes too much memory, or ends its reader, is a problem of one file in a scan of a folder."""

import resource
import struct
import sys
from pathlib import Path

import pytest
from pydicom.dataset import FileMetaDataset
from pydicom.filebase import DicomBytesIO
from pydicom.filewriter import write_file_meta_info
from pydicom.uid import ImplicitVRLittleEndian

from tests.clinic.dicom_files import content
from trust_cache.images.folders.folder_cases import scan_folder
from trust_cache.manifest.cases import case_problems
from trust_cache.manifest.protocol import SCREENING

HUGE = 3 * 2**29  # bytes


def huge_patient_id(path: Path) -> None:
    """Write a header whose PatientID has 1.5 GiB, as a file with a hole."""
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ImplicitVRLittleEndian
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = "1.2", "1.3"
    start = DicomBytesIO()
    start.write(b"\0" * 128 + b"DICM")
    write_file_meta_info(start, meta, enforce_standard=True)
    start.write(struct.pack("<HHI", 0x0010, 0x0020, HUGE))
    with path.open("wb") as file:
        file.write(start.getvalue())
        file.truncate(file.tell() + HUGE)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited on Linux alone")
def test_a_header_that_takes_too_much_memory(tmp_path: Path) -> None:
    place = tmp_path / "0001"
    place.mkdir()
    for projection in SCREENING.projections:
        (place / f"{projection}.dcm").write_bytes(content(1, projection) or b"")
    huge_patient_id(place / "huge.dcm")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = scan_folder(tmp_path)
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert taken * 1024 < HUGE / 4  # here; the reader itself is not allowed that much
    by_case = {case.case_id: case for case in found.cases}
    (stray,) = by_case.pop("0001/huge").images
    assert (stray.problem or "").startswith("read: the header: reading it takes too much memory. Remove it")
    (case,) = by_case.values()
    assert len(case.images) == 4
    assert case_problems([image.described() for image in case.images], SCREENING) == ()
    assert any("unassignable entry in the same folder: 0001/huge" in text for text in case.problems)
