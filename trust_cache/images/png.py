"""Pictures as PNG files' bytes, and back."""

import cv2
import numpy as np
from numpy.typing import NDArray

from trust_cache.base.errors import InputError

# Measured on a 4755 x 4000 crop of tissue: 0.36 s and 19.3 MB, where OpenCV's own level 6 with all
# filters takes 1.7 s for 19.8 MB. The low bytes of 16 bits are noise, in which nothing repeats.
_FAST = (
    cv2.IMWRITE_PNG_COMPRESSION, 1,
    cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE,
    cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_SUB,
)  # fmt: skip


def encode_png(picture: NDArray[np.uint16] | NDArray[np.uint8]) -> bytes:
    """Return a grey picture (8 or 16 bit) or a colour one (8 bit, red first) as a PNG file."""
    if picture.dtype not in (np.uint8, np.uint16) or 0 in picture.shape:
        raise InputError(f"expected a picture of 8 or 16 bit, found {picture.dtype} {picture.shape}")
    ordered = picture if picture.ndim == 2 else picture[:, :, ::-1]  # noqa: PLR2004 (rows and columns)
    done, data = cv2.imencode(".png", ordered, _FAST)
    if not done:
        raise InputError(f"a picture of {picture.shape} cannot be written as PNG")
    return data.tobytes()


def decode_png(data: bytes) -> NDArray[np.uint16]:
    """Return the pixels of a grey 16-bit PNG file."""
    picture = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), cv2.IMREAD_UNCHANGED) if data else None
    if picture is None:
        raise InputError("expected a PNG file, found none or a damaged one")
    if picture.dtype != np.uint16 or picture.ndim != 2:  # noqa: PLR2004 (rows and columns)
        raise InputError(f"expected a grey PNG of 16 bit, found {picture.dtype} with shape {picture.shape}")
    return np.asarray(picture, dtype=np.uint16)
