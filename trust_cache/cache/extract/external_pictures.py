"""Examine external pictures, which `preprocess` did not make.

`preprocess` examines the pixels of the DICOM file and records what it finds. An external picture has no such
record: `extract` examines the pixels that it encodes.
"""

import numpy as np

from trust_cache.images.examined_table import ExaminedPicture
from trust_cache.images.gate.pixel_gate import PixelEvidence, pixel_findings
from trust_cache.images.image_failures import ImageError
from trust_cache.images.mask import find_breast, reduce_padding
from trust_cache.images.picture import sketch_of_picture
from trust_cache.images.picture_folder import CLOSING
from trust_cache.images.png_files import Pixels
from trust_cache.manifest.picture_checks import finding


def examine_picture(
    image_id: str, digest: str, pixels: Pixels, projection: str | None = None
) -> ExaminedPicture:
    """Apply the pixel gate to the pixels of a picture, whole or cut out, facing either side."""
    image = np.asarray(pixels, dtype=np.uint16)
    image = image if pixels.dtype == np.uint16 else image * np.uint16(257)  # 255 becomes 65535
    sketch = sketch_of_picture(image)
    try:
        mask = find_breast(image, np.zeros_like(reduce_padding(image), dtype=np.bool_), CLOSING)
    except ImageError as error:
        return ExaminedPicture(image_id, digest, sketch, (finding("breast", error.reason),))
    # The chest wall is where most of the breast touches the border.
    mirrored = int(np.count_nonzero(mask[:, -1])) > int(np.count_nonzero(mask[:, 0]))
    evidence = PixelEvidence(
        pixels=image,
        shown=np.arange(2**16, dtype=np.uint16),
        is_padding=np.zeros(2**16, dtype=np.bool_),
        mask=mask[:, ::-1] if mirrored else mask,
        mirrored=mirrored,
        projection=projection,
    )
    return ExaminedPicture(image_id, digest, sketch, pixel_findings(evidence))
