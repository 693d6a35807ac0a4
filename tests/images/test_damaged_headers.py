"""Damaged headers, seeded: a picture or one reason, never another error."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from trust_cache.images.image_failures import ImageError
from trust_cache.images.picture import process_image
from trust_cache.synthetic.phantom import PhantomSettings, draw_phantom
from trust_cache.synthetic.synthetic_dicom import Encoding, mammogram_bytes

HEADER_BYTES = 1_200
TRIES = 150


@pytest.mark.parametrize("syntax", ["explicit", "implicit"])
def test_a_picture_or_one_reason(tmp_path: Path, syntax: str) -> None:
    encoding = Encoding(bits=12, photometric="MONOCHROME2", syntax=syntax, windows=2)
    whole = mammogram_bytes(draw_phantom(PhantomSettings(150, 120, "L", "CC"), 0), encoding)
    generator = np.random.default_rng(1)
    pictures, reasons = 0, []
    path = tmp_path / "image.dcm"
    for _ in range(TRIES):
        content = bytearray(whole)
        for place in generator.integers(0, HEADER_BYTES, int(generator.choice([1, 3, 10, 50]))):
            content[place] = generator.integers(256)
        path.write_bytes(content[: generator.integers(len(content))] if generator.random() < 0.1 else content)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # pydicom's, about values that the damage made
                process_image(path, "L")
            pictures += 1
        except ImageError as error:
            reasons.append(error.reason)
    assert all(reason and "\n" not in reason for reason in reasons)
    assert pictures >= 10
    assert len(reasons) >= 10
