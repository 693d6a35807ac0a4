"""Synthetic CMMD: TCIA's and the clinical table in the published form and size, and files without pixels."""

from io import BytesIO
from pathlib import Path

import polars as pl
from pydicom import Dataset, dcmwrite
from pydicom.dataset import FileMetaDataset
from pydicom.sequence import Sequence
from pydicom.uid import ExplicitVRLittleEndian

from trust_cache.manifest.dicom_headers import PRESENTATION

VIEW_CODES = {"CC": "399162004", "MLO": "399368009"}
# Patients with both breasts labelled: one benign and one malignant, both malignant, both benign.
MIXED, BOTH_MALIGNANT, BOTH_BENIGN, ONE_UNLABELLED = 30, 6, 61, 729
D1, D2, D1_MALIGNANT = 1_026, 749, 561


def header_file(side: str | None, projection: str, **elements: object) -> bytes:
    """A file with the header of an image and no pixels; the projection is only in the view's code."""
    dataset = Dataset()
    dataset.SOPClassUID, dataset.SOPInstanceUID, dataset.Modality = PRESENTATION, "1.2.3", "MG"
    dataset.StudyInstanceUID = "1.2"
    if side:
        dataset.ImageLaterality = side
    view = Dataset()
    view.CodeValue, view.CodingSchemeDesignator = VIEW_CODES[projection], "SCT"
    dataset.ViewCodeSequence = Sequence([view])
    for name, value in elements.items():
        setattr(dataset, name, value)
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = PRESENTATION
    dataset.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    file = BytesIO()
    dcmwrite(file, dataset, enforce_file_format=True)
    return file.getvalue()


def cmmd_patients() -> dict[str, dict[str, str | None]]:
    """The classification of each photographed breast, None where there is none, by patient."""
    patients: dict[str, dict[str, str | None]] = {}
    names = [f"D1-{number:04d}" for number in (*range(1, D1), 1292)]
    benign, malignant = "Benign", "Malignant"
    # D1-0202 is benign, D1-0808 benign and D1-1292 malignant: the last malignant ones come last.
    sick = set(names[-D1_MALIGNANT:]) - {"D1-0808"} | {"D1-0001"}
    healthy = [name for name in names if name not in sick]
    ill = [name for name in names if name in sick] + [f"D2-{number:04d}" for number in range(1, D2 + 1)]
    for number, name in enumerate(healthy):
        second: dict[str, str | None] = {"R": benign} if number < BOTH_BENIGN else {}
        patients[name] = {"L": benign} | (second or ({"R": None} if number < BOTH_BENIGN + 29 else {}))
    for number, name in enumerate(ill):
        side, other = ("L", "R") if number % 2 else ("R", "L")
        breasts: dict[str, str | None] = {side: malignant}
        if number < MIXED:
            breasts[other] = benign
        elif number < MIXED + BOTH_MALIGNANT:
            breasts[other] = malignant
        elif number < MIXED + BOTH_MALIGNANT + ONE_UNLABELLED - 29:
            breasts[other] = None
        patients[name] = breasts
    return patients


def write_cmmd(folder: Path, patients: dict[str, dict[str, str | None]]) -> tuple[Path, pl.DataFrame]:
    """Write metadata.csv and the files; return it with the clinical table."""
    files = {(side, view): header_file(side, view) for side in "LR" for view in VIEW_CODES}
    series, breasts = [], []
    for number, (name, sides) in enumerate(patients.items()):
        place = f"CMMD\\{name}\\07-18-2010-NA-NA-{number}\\1.000000-NA-{number}"
        here = folder / place.replace("\\", "/")
        here.mkdir(parents=True)
        pictures = [(side, view) for side in sides for view in VIEW_CODES]
        for image, picture in enumerate(pictures, start=1):
            (here / f"1-{image}.dcm").write_bytes(files[picture])
        series.append({
            "Series UID": f"1.3.{number}", "Collection": "CMMD", "Subject ID": name, "Modality": "MG",
            "Number of Images": len(pictures), "File Location": f".\\{place}",
        })  # fmt: skip
        breasts += [
            {
                "ID1": name, "LeftRight": side, "Age": 40 + number % 30, "number": 2, "abnormality": "mass",
                "classification": words, "subtype": None,
            }
            for side, words in sides.items() if words
        ]  # fmt: skip
    pl.DataFrame(series).write_csv(folder / "metadata.csv")
    schema = {"subtype": pl.String}
    return folder / "metadata.csv", pl.DataFrame(breasts, schema_overrides=schema, infer_schema_length=None)
