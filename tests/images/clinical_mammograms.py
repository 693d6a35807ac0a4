"""Further kinds of whole mammograms that archives hold; `harsh_mammograms` draws them.

Pixels are shares of the scale from 0 (black) to 1, the chest wall is on the left, `breast` marks the breast.
"""

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Change = Callable[[Floats, Mask], Floats]


def _noise(shape: tuple[int, ...], deviation: float, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(0, deviation, shape).astype(np.float32)


def _drawn(pixels: Floats, draw: Callable[[NDArray[np.uint8]], object]) -> Mask:
    """What OpenCV draws, as a mask."""
    canvas = np.zeros(pixels.shape, dtype=np.uint8)
    draw(canvas)
    return canvas > 0


def _centre(breast: Mask) -> tuple[int, int]:
    rows, columns = np.nonzero(breast)
    return int(columns.mean()), int(rows.mean())


def sharp_implant(share: float, grey: float) -> Change:
    """A bright ellipse at the chest wall over a share of the breast."""

    def change(pixels: Floats, breast: Mask) -> Floats:
        _, middle = _centre(breast)
        depth = np.count_nonzero(breast.any(axis=0))
        for size in np.linspace(0.3, 1.2, 40):
            axes = (int(size * depth), int(size * depth * 0.95))
            inside = _drawn(
                pixels, lambda canvas, axes=axes: cv2.ellipse(canvas, (0, middle), axes, 0, 0, 360, 1, -1)
            )
            if np.count_nonzero(inside & breast) >= share * np.count_nonzero(breast):
                break
        return np.where(inside & breast, grey + _noise(pixels.shape, 0.004), pixels)

    return change


def skin_markers(pixels: Floats, breast: Mask) -> Floats:
    """Balls on moles, and the wire along a scar."""
    column, row = _centre(breast)
    thick = max(1, len(pixels) // 300)

    def draw(canvas: NDArray[np.uint8]) -> None:
        for number in range(4):
            cv2.circle(canvas, (column - 20 * number, row + 37 * number - 40), 2 * thick, 1, -1)
        cv2.line(canvas, (column // 3, row - 60), (int(1.4 * column), row - 50), 1, thick)
        cv2.ellipse(canvas, (column, row), (column // 2, column // 3), 20, 0, 150, 1, thick)

    return np.where(_drawn(pixels, draw) & breast, 1, pixels)


def straight_wires(pixels: Floats, breast: Mask) -> Floats:
    """A wire that is exactly along the rows, another along the columns."""
    column, row = _centre(breast)
    made = pixels.copy()
    made[row : row + 2, : int(1.3 * column)] = 0.98
    made[row - column // 2 : row + column // 2, column : column + 2] = 0.98
    return made


def film_frame(border: float, grey: float) -> Change:
    """A scanned film: the scanner's border on four sides, and a paper label."""

    def change(pixels: Floats, _: Mask) -> Floats:
        made = 0.06 + 0.86 * pixels + cv2.GaussianBlur(_noise(pixels.shape, 0.04), (0, 0), 0.7)
        rows, columns = pixels.shape
        wide = int(border * columns)
        made[:wide] = made[-wide:] = made[:, -wide:] = grey
        made[:, : wide // 3] = grey
        made[int(0.05 * rows) : int(0.15 * rows), int(0.7 * columns) : int(0.9 * columns)] = 0.9
        return made

    return change


def letters_on_tissue(pixels: Floats, _: Mask) -> Floats:
    """The view and the side, burnt into a large breast."""
    rows, columns = pixels.shape
    part = pixels[int(0.14 * rows) : int(0.86 * rows), : int(0.66 * columns)].copy()
    rows, columns = part.shape
    place = (int(0.35 * columns), int(0.12 * rows))
    text = _drawn(
        part, lambda canvas: cv2.putText(canvas, "L-CC", place, 0, rows / 300, 1, max(2, rows // 100))
    )
    return np.where(text, 1, part)


def label_on_tissue(pixels: Floats, _: Mask) -> Floats:
    """A white box with black letters at the upper border, partly on the breast."""
    rows, columns = pixels.shape
    made = pixels.copy()
    made[int(0.16 * rows) : int(0.24 * rows), int(0.2 * columns) : int(0.5 * columns)] = 1
    place = (int(0.22 * columns), int(0.23 * rows))
    text = _drawn(made, lambda canvas: cv2.putText(canvas, "R MLO", place, 0, rows / 500, 1, 2))
    return np.where(text, 0, made)


def _field(pixels: Floats, above: float, below: float, beyond: float, grey: float) -> Floats:
    rows, columns = pixels.shape
    widths = ((int(above * rows), int(below * rows)), (0, int(beyond * columns)))
    return np.asarray(np.pad(pixels, widths, constant_values=grey), dtype=np.float32)


def small_in_padding(pixels: Floats, _: Mask) -> Floats:
    """A small breast with its air, in a frame of padding three times as large."""
    return _field(np.maximum(pixels, 0.01), 0.5, 0.5, 0.7, 0)


def tiny_in_padding(pixels: Floats, breast: Mask) -> Floats:
    """Three per cent of the image are breast, all else is padding."""
    size = (pixels.shape[1] // 2, pixels.shape[0] // 2)
    small = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    inside = cv2.resize(breast.view(np.uint8), size, interpolation=cv2.INTER_AREA) > 0
    small = np.where(inside, np.maximum(small + _noise(small.shape, 0.006), 0.02), 0)
    return _field(small, 0.6, 0.8, 1.6, 0)


def fills_the_frame(pixels: Floats, breast: Mask) -> Floats:
    """Tissue up to three borders, and the nipple is at the fourth."""
    rows, columns = np.flatnonzero(breast.any(axis=1)), np.flatnonzero(breast.any(axis=0))
    high, wide = rows[-1] - rows[0], columns[-1]
    return pixels[int(rows[0] + 0.12 * high) : int(rows[-1] - 0.1 * high), : int(0.98 * wide)]


def fills_with_muscle(pixels: Floats, breast: Mask) -> Floats:
    """And the muscle takes the upper half of it."""
    made = fills_the_frame(pixels, breast).copy()
    inside = fills_the_frame(breast.astype(np.float32), breast) > 0
    row = np.linspace(0, 1, made.shape[0], dtype=np.float32)[:, None]
    column = np.linspace(0, 1, made.shape[1], dtype=np.float32)[None, :]
    muscle = inside & (column < 0.95 * (1 - row / 0.9))
    return np.where(muscle, 0.7 + 0.05 * (1 - row) + _noise(made.shape, 0.007), made)


def collimated(top: float, bottom: float, far: float) -> Change:
    """Collimators that cut a large breast itself along straight lines."""

    def change(pixels: Floats, _: Mask) -> Floats:
        rows, columns = pixels.shape
        made = pixels[int(0.05 * rows) : int(0.95 * rows), : int(0.8 * columns)].copy()
        rows, columns = made.shape
        made[: int(top * rows)] = made[rows - int(bottom * rows) :] = made[
            :, columns - int(far * columns) :
        ] = 0
        return made

    return change


def clipped_skin(pixels: Floats, breast: Mask) -> Floats:
    """Thin parts of the breast are as black as the air."""
    depth = cv2.distanceTransform(breast.view(np.uint8), cv2.DIST_L2, 5) / len(pixels)
    made = pixels - 0.33 * np.exp(-depth / 0.015)
    return np.clip(np.where(breast, made, 0), 0, 1).astype(np.float32)


def aligned_pacemaker(pixels: Floats, _: Mask) -> Floats:
    """Metal whose edges are exactly along the rows and columns."""
    rows, columns = pixels.shape
    made = pixels.copy()
    made[int(0.2 * rows) : int(0.32 * rows), int(0.02 * columns) : int(0.22 * columns)] = 1
    return made


def saturated_glands(pixels: Floats, breast: Mask) -> Floats:
    """The brightest eight per cent of a dense breast are white."""
    top = float(np.quantile(pixels[breast], 0.92))
    return np.minimum(pixels / top, 1)


def levels(count: int, air: float | None = None) -> Change:
    """So many levels over the whole scale, as of eight bits that were stretched."""

    def change(pixels: Floats, breast: Mask) -> Floats:
        made = pixels if air is None else np.where(breast, pixels, air)
        return np.asarray(np.rint(made * count) / count, dtype=np.float32)

    return change


def equalised(pixels: Floats, breast: Mask) -> Floats:
    """The thin edge is lifted, skin is a bright line, and air is exactly black."""
    depth = cv2.distanceTransform(breast.view(np.uint8), cv2.DIST_L2, 5) / len(pixels)
    within = breast.astype(np.float32)
    around, known = (cv2.GaussianBlur(part, (0, 0), 0.04 * len(pixels)) for part in (pixels * within, within))
    lifted = 0.45 + 1.2 * (pixels - around / np.maximum(known, 1e-3))
    skin = 0.1 * np.exp(-((depth - 0.008) ** 2) / 0.003**2)
    rising = np.minimum(depth / 0.006, 1)  # the outermost skin is thin
    return np.where(breast, np.maximum((lifted + skin) * rising, 0.02), 0).astype(np.float32)


def local_contrast(pixels: Floats, breast: Mask) -> Floats:
    """Contrast is adapted in each part of the breast."""
    adapted = cv2.createCLAHE(2.0, (8, 8)).apply(np.rint(pixels * 65535).astype(np.uint16))
    return np.where(breast, adapted.astype(np.float32) / 65535, 0)


def denoised(pixels: Floats, breast: Mask) -> Floats:
    """No noise is left, and the air is constant."""
    return np.where(breast, cv2.GaussianBlur(pixels, (0, 0), 1.6), 0)


def fatty(pixels: Floats, _: Mask) -> Floats:
    """A breast that is hardly brighter than air, and a white marker."""
    made = 0.25 * pixels + 0.05
    rows, columns = pixels.shape
    made[int(0.03 * rows) : int(0.09 * rows), int(0.8 * columns) : int(0.95 * columns)] = 1
    return made


def dead_lines(pixels: Floats, _: Mask) -> Floats:
    """Some columns do not answer, another is a copy of its neighbour."""
    made = pixels.copy()
    columns = pixels.shape[1]
    made[:, columns // 4] = 0
    made[:, columns // 3] = made[:, columns // 3 + 1]
    made[len(made) // 2] = made[len(made) // 2 + 1]
    return made


def grid_lines(pixels: Floats, _: Mask) -> Floats:
    """The lines of a grid that stood still."""
    return pixels * (1 + 0.05 * np.sin(np.arange(pixels.shape[1], dtype=np.float32) * 1.3)[None, :])


def oblique_blades(pixels: Floats, breast: Mask) -> Floats:
    """White corners beyond oblique collimators of an imaging plate."""
    rows, columns = pixels.shape
    corner = np.array([[columns, rows // 2], [columns, rows], [columns // 2, rows]])
    blade = _drawn(pixels, lambda canvas: cv2.fillPoly(canvas, [corner], 1))
    return np.where(blade & ~breast, 0.93, pixels)


def bright_margin(pixels: Floats, _: Mask) -> Floats:
    """The first columns at the chest wall are white."""
    made = pixels.copy()
    made[:, : made.shape[1] // 30] = 1
    return made


def black_margin(pixels: Floats, _: Mask) -> Floats:
    """A black strip at the chest wall, as wide as a frame's border may be."""
    return np.asarray(np.pad(pixels, ((0, 0), (pixels.shape[1] // 13, 0))), dtype=np.float32)


def chest_wall_away(pixels: Floats, _: Mask) -> Floats:
    """Air between the border and the breast, which is badly placed."""
    made = np.pad(pixels, ((0, 0), (pixels.shape[1] // 8, 0)), constant_values=0.015)
    return np.asarray(np.maximum(made + _noise(made.shape, 0.003), 0), dtype=np.float32)


def male(pixels: Floats, breast: Mask) -> Floats:
    """A breast that is little more than its muscle."""
    rows, columns = pixels.shape
    row = np.linspace(0, 1, rows, dtype=np.float32)[:, None]
    column = np.linspace(0, 1, columns, dtype=np.float32)[None, :]
    width = 0.45 * np.clip(1 - row / 1.1, 0, 1)
    inside = column < width + 0.12 * np.exp(-(((row - 0.6) / 0.12) ** 2))
    tissue = (
        np.where(column < 0.75 * width, 0.66, 0.3) + 0.3 * (pixels - float(pixels[breast].mean())) * breast
    )
    return np.where(inside, tissue, 0.015) + _noise(pixels.shape, 0.006)


def belly(pixels: Floats, _: Mask) -> Floats:
    """A bright belly below the breast at the chest wall, and an armpit that is narrow and dark."""
    rows, columns = pixels.shape
    row = np.linspace(0, 1, rows, dtype=np.float32)[:, None]
    column = np.linspace(0, 1, columns, dtype=np.float32)[None, :]
    low = row > 0.78 + 0.3 * column
    made = np.where(low, 0.55 + _noise(pixels.shape, 0.02), pixels)
    return np.where((row < 0.2) & (column > 0.12 + 0.5 * row) & ~low, 0.015, made) * np.minimum(
        0.5 + 2 * row, 1
    )


def skin_fold(pixels: Floats, breast: Mask) -> Floats:
    """A black fold of air under the breast that reaches the chest wall."""
    rows, columns = pixels.shape
    fold = _drawn(
        pixels,
        lambda canvas: cv2.ellipse(
            canvas, (0, int(0.78 * rows)), (columns // 4, rows // 60), 8, 0, 360, 1, -1
        ),
    )
    return np.where(fold & breast, 0.05, pixels)


CLINICAL_PADDED = {"small in padding", "tiny in padding", "equalised and padded"}
CLINICAL: dict[str, Change] = {
    "near-saturated implant": sharp_implant(0.55, 0.97),
    "saturated implant": sharp_implant(0.68, 1.1),
    "implant alone": sharp_implant(0.8, 0.95),
    "skin markers": skin_markers,
    "straight wires": straight_wires,
    "white film frame": film_frame(0.04, 0.96),
    "grey film frame": film_frame(0.06, 0.5),
    "black film frame": film_frame(0.05, 0.0),
    "letters on tissue": letters_on_tissue,
    "label on tissue": label_on_tissue,
    "small in padding": small_in_padding,
    "tiny in padding": tiny_in_padding,
    "fills the frame": fills_the_frame,
    "fills with muscle": fills_with_muscle,
    "collimated above": collimated(0.22, 0, 0),
    "collimated around": collimated(0.08, 0.1, 0.22),
    "clipped skin": clipped_skin,
    "aligned pacemaker": aligned_pacemaker,
    "saturated glands": saturated_glands,
    "300 levels": levels(300, 0),
    "256 levels": levels(255),
    "100 levels": levels(100, 0),
    "equalised": equalised,
    "equalised and padded": equalised,
    "local contrast": local_contrast,
    "denoised": denoised,
    "fatty": fatty,
    "dead lines": dead_lines,
    "grid lines": grid_lines,
    "oblique blades": oblique_blades,
    "bright margin": bright_margin,
    "black margin": black_margin,
    "chest wall away": chest_wall_away,
    "male": male,
    "belly": belly,
    "skin fold": skin_fold,
}
