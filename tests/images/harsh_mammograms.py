"""What mammograms of real units have and plain phantoms lack: each function changes a whole mammogram.

Pixels are shares of the scale from 0 (black) to 1, the chest wall is on the left, `breast` marks the breast.
"""

from collections.abc import Callable, Iterator

import cv2
import numpy as np
from numpy.typing import NDArray
from pydicom import Dataset

from tests.images.clinical_mammograms import CLINICAL, CLINICAL_PADDED
from trust_cache.synthetic.phantom import PhantomSettings, draw_phantom
from trust_cache.synthetic.synthetic_dicom import Encoding, Tags, make_dataset

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Change = Callable[[Floats, Mask], Floats]


def _noise(shape: tuple[int, ...], deviation: float, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(0, deviation, shape).astype(np.float32)


def _places(pixels: Floats) -> tuple[Floats, Floats]:
    """Rows and columns as shares of the image."""
    rows, columns = pixels.shape
    return (
        np.linspace(0, 1, rows, dtype=np.float32)[:, None],
        np.linspace(0, 1, columns, dtype=np.float32)[None, :],
    )


def _field(pixels: Floats, above: float, below: float, beyond: float, grey: float) -> Floats:
    """Set the breast into a larger field of air: a small breast."""
    rows, columns = pixels.shape
    widths = ((int(above * rows), int(below * rows)), (0, int(beyond * columns)))
    return np.pad(pixels, widths, constant_values=grey)


def black_air(pixels: Floats, breast: Mask) -> Floats:
    return np.where(breast, pixels, 0)


def small_in_black(pixels: Floats, breast: Mask) -> Floats:
    return _field(black_air(pixels, breast), 0.6, 0.7, 0.8, 0)


def small_in_noisy_air(pixels: Floats, breast: Mask) -> Floats:
    """As units have whose air is not blacked."""
    made = _field(np.where(breast, pixels, 0.08), 0.6, 0.7, 0.8, 0.08)
    top = int(0.6 * breast.shape[0])
    outside = np.ones(made.shape, dtype=np.bool_)
    outside[top : top + breast.shape[0], : breast.shape[1]] = ~breast
    return made + np.where(outside, _noise(made.shape, 0.012), 0)


def uneven_air(pixels: Floats, breast: Mask) -> Floats:
    """Air that brightens by scatter towards the breast and along the scan."""
    row, column = _places(pixels)
    near = cv2.GaussianBlur(breast.astype(np.float32), (0, 0), 0.03 * len(pixels))
    return np.where(
        breast, pixels, 0.05 + 0.06 * near + 0.02 * row + 0.01 * column + _noise(pixels.shape, 0.01)
    )


def small_format(pixels: Floats, _: Mask) -> Floats:
    """A field of 18 x 24 cm on a detector of 24 x 30 cm: what is outside is exactly black."""
    made = pixels.copy()
    rows, columns = pixels.shape
    made[: rows // 10] = made[-rows // 10 :] = 0
    made[:, columns * 3 // 4 :] = 0
    return made


def grey_padding(pixels: Floats, _: Mask) -> Floats:
    """Lines outside of the field have one grey that is not black."""
    rows, columns = pixels.shape
    made = np.pad(pixels, ((rows // 12, rows // 20), (0, columns // 6)), constant_values=0.05)
    return np.asarray(made, dtype=np.float32)


def large(pixels: Floats, _: Mask) -> Floats:
    """The breast touches three borders."""
    rows, columns = pixels.shape
    return pixels[int(0.14 * rows) : int(0.86 * rows), : int(0.66 * columns)]


def large_with_black_margin(pixels: Floats, breast: Mask) -> Floats:
    """And the first columns at the chest wall are black, as at the edge of many detectors."""
    made = large(pixels, breast).copy()
    made[:, : max(3, made.shape[1] // 50)] = 0
    return made


def wide_muscle(pixels: Floats, breast: Mask) -> Floats:
    """A smooth and bright muscle along most of the upper border of a large breast."""
    made, inside = large(pixels, breast), large(breast.astype(np.float32), breast) > 0
    row, column = _places(made)
    muscle = inside & (column < 0.7 * (1 - row / 0.75))
    smooth = 0.72 + _noise(made.shape, 0.006)
    return np.where(muscle, smooth, made)


def implant(pixels: Floats, breast: Mask) -> Floats:
    """Saturated over about half of the breast."""
    middle = cv2.distanceTransform(breast.view(np.uint8), cv2.DIST_L2, 5)
    return np.where(middle > np.quantile(middle[breast], 0.52), 1, pixels)


def pacemaker(pixels: Floats, _: Mask) -> Floats:
    """Metal with straight edges, turned by three degrees, and its wire."""
    rows, columns = pixels.shape
    made = pixels.copy()
    box = cv2.boxPoints(((0.22 * columns, 0.35 * rows), (0.3 * columns, 0.16 * rows), 3.0)).astype(np.int32)
    cv2.fillPoly(made, [box], 0.97)
    cv2.line(made, (int(0.25 * columns), int(0.42 * rows)), (0, int(0.6 * rows)), 0.95, max(1, rows // 200))
    return made


def clips_and_folds(pixels: Floats, breast: Mask) -> Floats:
    rows, columns = pixels.shape
    made = pixels.copy()
    for number in range(6):
        at = (int((0.15 + 0.03 * number) * columns), int((0.45 + 0.02 * number) * rows))
        cv2.circle(made, at, max(1, rows // 150), 1.0, -1)
    fold = np.zeros_like(made)
    cv2.ellipse(fold, (0, int(0.62 * rows)), (columns // 3, rows // 8), 0, -60, 60, 1.0, max(2, rows // 120))
    return made + 0.25 * np.where(breast, fold, 0)


def marker(pixels: Floats, _: Mask) -> Floats:
    """A lead marker and a label with straight edges, beside and on the skin."""
    rows, columns = pixels.shape
    made = pixels.copy()
    made[int(0.05 * rows) : int(0.12 * rows), int(0.78 * columns) : int(0.97 * columns)] = 1
    text = np.zeros(pixels.shape, dtype=np.uint8)
    cv2.putText(text, "R MLO 07", (int(0.6 * columns), int(0.93 * rows)), 0, rows / 900, 255, 2)
    return np.maximum(made, text.astype(np.float32) / 255)


def paddle(pixels: Floats, breast: Mask) -> Floats:
    """The edge of a small paddle, a few per cent brighter inside."""
    rows, columns = pixels.shape
    made = pixels.copy()
    made[int(0.3 * rows) : int(0.7 * rows), : int(0.5 * columns)] += 0.05
    return np.where(breast, made, pixels)


def white_border(pixels: Floats, _: Mask) -> Floats:
    """Unexposed parts of an imaging plate are white."""
    made = pixels.copy()
    rows, columns = pixels.shape
    made[:, -columns // 12 :] = 1
    made[-rows // 30 :] = 1
    return made


def enlarged(times: int) -> Change:
    def change(pixels: Floats, _: Mask) -> Floats:
        small = cv2.resize(pixels, None, fx=1.5 / times, fy=1.5 / times, interpolation=cv2.INTER_AREA)
        return np.repeat(np.repeat(np.asarray(small, dtype=np.float32), times, axis=0), times, axis=1)

    return change


def wider_pixels(pixels: Floats, _: Mask) -> Floats:
    """Enlarged more along rows than along columns, as by resizing to a fixed shape."""
    rows, columns = pixels.shape
    return np.asarray(cv2.resize(pixels, (columns * 2, rows), interpolation=cv2.INTER_LINEAR))


def lossy(pixels: Floats, _: Mask) -> Floats:
    """Eight bits through JPEG with visible blocks."""
    _, data = cv2.imencode(".jpg", np.rint(pixels * 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 35])
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_GRAYSCALE), dtype=np.float32) / 255


def few_levels(pixels: Floats, _: Mask) -> Floats:
    """Eight bits of which the breast takes a third, below a bright marker."""
    made = np.rint(pixels * 90) / 255
    made[: len(made) // 25, -made.shape[1] // 8 :] = 1
    return np.asarray(made, dtype=np.float32)


def saturated(pixels: Floats, _: Mask) -> Floats:
    """A steep sigmoid: fat near black and glands near white."""
    return np.asarray(1 / (1 + np.exp(-10 * (pixels - 0.42))), dtype=np.float32)


def stripes(pixels: Floats, _: Mask) -> Floats:
    """Noise that is alike along the scan, and a gain of each line."""
    smooth = cv2.blur(_noise(pixels.shape, 0.03), (1, 3))
    return pixels + smooth + _noise((pixels.shape[0], 1), 0.004, 1)


def sharpened(pixels: Floats, _: Mask) -> Floats:
    noisy = pixels + _noise(pixels.shape, 0.012)
    return noisy + 1.5 * (noisy - cv2.GaussianBlur(noisy, (0, 0), 2))


def low_position(pixels: Floats, _: Mask) -> Floats:
    """Black above, and the fold below the breast reaches the lower border."""
    rows = len(pixels)
    row, column = _places(pixels)
    belly = (row > 0.86) & (column < 0.3 + (row - 0.86))
    made = np.where(belly, 0.35 + _noise(pixels.shape, 0.02), pixels)
    made[: int(0.12 * rows)] = 0
    return np.asarray(made[: int(0.97 * rows)], dtype=np.float32)


def film(pixels: Floats, _: Mask) -> Floats:
    """A scanned film: grain, dust, and air that is not quite black."""
    made = 0.04 + 0.9 * pixels + cv2.GaussianBlur(_noise(pixels.shape, 0.05), (0, 0), 0.7)
    rows, columns = pixels.shape
    for row, column in np.random.default_rng(0).random((40, 2)):
        made[int(row * (rows - 2)), int(column * (columns - 2))] = 1
    return made


def padded_air(pixels: Floats, breast: Mask) -> Floats:
    """All air is padding, as around a breast that the unit cuts out, and a lead marker is in it."""
    made = np.where(breast, np.maximum(pixels, 0.03), 0)
    return np.where(breast, made, marker(made, breast))


def padded_frame(pixels: Floats, _: Mask) -> Floats:
    """Padding frames air that is not black."""
    made = np.maximum(pixels, 0.04)
    made[: len(made) // 40] = made[-len(made) // 40 :] = made[:, :2] = made[:, -len(made) // 40 :] = 0
    return made


def black_frame(pixels: Floats, breast: Mask) -> Floats:
    """Collimators on three sides, and air that is not black."""
    made = np.where(breast, pixels, 0.06 + _noise(pixels.shape, 0.01))
    rows, columns = pixels.shape
    made[: rows // 9] = made[-rows // 15 :] = made[:, -columns // 7 :] = 0
    return made


PADDED = {"padded air", "padded frame", *CLINICAL_PADDED}  # black is padding
HARSH: dict[str, Change] = {
    "black air": black_air,
    "small in black": small_in_black,
    "small in noisy air": small_in_noisy_air,
    "uneven air": uneven_air,
    "small format": small_format,
    "grey padding": grey_padding,
    "large": large,
    "large with black margin": large_with_black_margin,
    "wide muscle": wide_muscle,
    "implant": implant,
    "pacemaker": pacemaker,
    "clips and folds": clips_and_folds,
    "marker": marker,
    "paddle": paddle,
    "white border": white_border,
    "enlarged 3 times": enlarged(3),
    "enlarged 4 times": enlarged(4),
    "wider pixels": wider_pixels,
    "lossy": lossy,
    "few levels": few_levels,
    "saturated": saturated,
    "stripes": stripes,
    "sharpened": sharpened,
    "low position": low_position,
    "film": film,
    "padded air": padded_air,
    "padded frame": padded_frame,
    "black frame": black_frame,
    **CLINICAL,
}


def harsh_mammograms(name: str, numbers: range, rows: int = 600) -> Iterator[tuple[Dataset, str, str]]:
    """Yield mammograms of one kind, left and right, CC and MLO, of both interpretations and 10 to 16 bits."""
    for number in numbers:
        side, projection = "LR"[number % 2], ("CC", "MLO")[number // 2 % 2]
        photometric = ("MONOCHROME2", "MONOCHROME1")[number // 4 % 2]
        bits = (12, 16, 10)[number % 3]
        phantom = draw_phantom(PhantomSettings(rows, rows * 4 // 5, "L", projection), number)
        made = np.clip(HARSH[name](phantom.intensity.copy(), phantom.breast), 0, 1)
        pixels = np.rint(made * (2**bits - 1)).astype(np.uint16)
        pixels = pixels if side == "L" else pixels[:, ::-1]
        if photometric == "MONOCHROME1":
            pixels = (2**bits - 1 - pixels).astype(np.uint16)
        kind = Encoding(bits, photometric)
        dataset = make_dataset(pixels, kind, Tags(laterality=side, view_position=projection))
        if name in PADDED:
            dataset.add_new("PixelPaddingValue", "US", 2**bits - 1 if photometric == "MONOCHROME1" else 0)
        yield dataset, side, projection
