"""Small mammograms made of numbers: half an ellipse of tissue in the air, and DICOM files of them."""

import io
from pathlib import Path
from typing import Any

import gdcm
import numpy as np
from numpy.typing import NDArray
from pydicom import Dataset, dcmread
from pydicom.dataset import FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import (
    UID,
    DigitalMammographyXRayImageStorageForPresentation,
    ExplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGLossless,
    JPEGLosslessSV1,
    generate_uid,
)

ROWS, COLUMNS = 420, 330


def breast(rows: int = ROWS, columns: int = COLUMNS) -> NDArray[np.bool_]:
    """The outline: half an ellipse on the left edge."""
    y = (np.arange(rows)[:, None] - rows / 2) / (0.4 * rows)
    x = np.arange(columns)[None, :] / (0.7 * columns)
    return y**2 + x**2 < 1


def mammogram(
    rows: int = ROWS, columns: int = COLUMNS, *, bits: int = 12, air: float = 0.01, seed: int = 0
) -> NDArray[np.uint16]:
    """Tissue with texture in a little noise of the air, chest wall at the left."""
    generator = np.random.default_rng(seed)
    texture = np.sin(np.arange(rows) / 17)[:, None] * np.cos(np.arange(columns) / 11)[None, :]
    tissue = 0.4 + 0.15 * texture + 0.02 * generator.standard_normal((rows, columns))
    outside = air * (1 + 0.1 * generator.standard_normal((rows, columns)))
    share = np.where(breast(rows, columns), tissue, outside)
    return np.rint(np.clip(share, 0, 1) * (2**bits - 1)).astype(np.uint16)


def dataset(pixels: NDArray[Any], *, bits: int = 12, **elements: object) -> Dataset:
    """An uncompressed data set of these pixels."""
    ds = Dataset()
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    ds.SOPClassUID = DigitalMammographyXRayImageStorageForPresentation
    ds.file_meta.MediaStorageSOPClassUID = ds.SOPClassUID
    ds.file_meta.MediaStorageSOPInstanceUID = ds.SOPInstanceUID = generate_uid()
    ds.Modality = "MG"
    ds.PatientName, ds.PatientBirthDate = "Planted^Name", "19610203"
    ds.Rows, ds.Columns = pixels.shape
    ds.SamplesPerPixel, ds.PhotometricInterpretation = 1, "MONOCHROME2"
    ds.BitsAllocated, ds.BitsStored, ds.HighBit = 8 * pixels.dtype.itemsize, bits, bits - 1
    ds.PixelRepresentation = 0
    for keyword, value in elements.items():
        setattr(ds, keyword, value)
    ds.PixelData = pixels.tobytes()
    ds["PixelData"].VR = "OW"
    return ds


def lut_item(table: NDArray[np.uint16], first: int = 0, depth: int = 16) -> Dataset:
    item = Dataset()
    item.LUTDescriptor = [table.size % 65536, first, depth]
    item.LUTData = table.astype("<u2").tobytes()
    item["LUTData"].VR = "OW"
    return item


def save(ds: Dataset, path: Path) -> Path:
    ds.save_as(path, enforce_file_format=True)
    return path


def as_bytes(ds: Dataset) -> bytes:
    buffer = io.BytesIO()
    ds.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def as_jpeg_2000(ds: Dataset) -> Dataset:
    ds.compress(JPEG2000Lossless, encoding_plugin="pylibjpeg")
    return ds


def as_jpeg_lossless(ds: Dataset, folder: Path, *, first_order: bool = True) -> Dataset:
    """Compressed by gdcm: process 14, with or without selection value 1 (.70 and .57)."""
    return compressed_by_gdcm(ds, JPEGLosslessSV1 if first_order else JPEGLossless, folder)


def compressed_by_gdcm(ds: Dataset, syntax: UID, folder: Path) -> Dataset:
    source, target = save(ds, folder / "native.dcm"), folder / "compressed.dcm"
    reader = gdcm.ImageReader()
    reader.SetFileName(str(source))
    assert reader.Read()
    change = gdcm.ImageChangeTransferSyntax()
    change.SetTransferSyntax(gdcm.TransferSyntax(gdcm.TransferSyntax.GetTSType(str(syntax))))
    change.SetInput(reader.GetImage())
    assert change.Change()
    writer = gdcm.ImageWriter()
    writer.SetFileName(str(target))
    writer.SetFile(reader.GetFile())
    writer.SetImage(change.GetOutput())
    assert writer.Write()
    return dcmread(target)


def with_frame(ds: Dataset, syntax: UID, frame: bytes) -> Dataset:
    """The same data set with this compressed frame."""
    ds.file_meta.TransferSyntaxUID = syntax
    ds.PixelData = encapsulate([frame])
    ds["PixelData"].VR = "OB"
    ds["PixelData"].is_undefined_length = True
    return ds
