"""Draw phantoms: synthetic mammograms with a known outline and lesion."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import SFC64, Generator, SeedSequence
from numpy.typing import NDArray

from trust_cache.base.errors import InputError

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Seed = int | tuple[int, ...]

LATERALITIES = ("L", "R")
PROJECTIONS = ("CC", "MLO")
STRIPS = ("far", "bottom")
SMALLEST_SIDE = 100  # pixels; below, skin and lesions have no pixels left

# Intensities, from 0 (black) to 1. Tissue ends below 1, so that a lesion can be brighter.
AIR, FAT, SKIN, MUSCLE, BRIGHTEST_TISSUE, MARK = 0.015, 0.22, 0.08, 0.22, 0.72, 0.95
AIR_NOISE, TISSUE_NOISE = 0.004, 0.008
_GRID_ROWS = 384  # tissue is drawn with at most this many rows and enlarged
_ANATOMY, _OUTLINE, _TISSUE, _NOISE, _LESION = range(5)  # independent random streams of one seed


@dataclass(frozen=True)
class Anatomy:
    """What the images of one patient have in common."""

    depth: float  # from the chest wall to the nipple, as a share of the columns
    height: float  # half of the breast's height at the chest wall, as a share of the rows
    density: float  # how bright the glands are


@dataclass(frozen=True)
class PhantomSettings:
    """One image: its size, what it shows, and the marks of a mammography unit beside the breast."""

    rows: int = 280
    columns: int = 220
    laterality: str = "L"
    projection: str = "CC"
    anatomy: Anatomy | None = None  # drawn from the seed when not given
    lesion_contrast: float = 0.0  # added at the lesion's centre; 0: no lesion
    text: str | None = None  # burnt in at the upper corner away from the chest wall
    strip: str | None = None  # a bright strip along the edge opposite to the chest wall, or the bottom
    unexposed: bool = False  # leave a rim of the detector without signal

    def __post_init__(self) -> None:
        if min(self.rows, self.columns) < SMALLEST_SIDE:
            found = f"{self.rows}x{self.columns}"
            raise InputError(f"size: expected at least {SMALLEST_SIDE} rows and columns, found {found}")
        require_one_of("laterality", self.laterality, LATERALITIES)
        require_one_of("projection", self.projection, PROJECTIONS)
        if self.strip is not None:
            require_one_of("strip", self.strip, STRIPS)
        if not 0 <= self.lesion_contrast <= 1:
            raise InputError(f"lesion contrast: expected 0 to 1, found {self.lesion_contrast}")


@dataclass(frozen=True)
class Phantom:
    """A drawn image: intensities in [0, 1] (air is dark) and the truth about each pixel."""

    intensity: Floats
    breast: Mask
    lesion: Mask
    unexposed: Mask


@dataclass(frozen=True)
class _Outline:
    """The breast's edge for a chest wall at the left, with lengths in image heights."""

    depth: Floats  # for each row
    nipple_row: float
    nipple_depth: float


def draw_anatomy(seed: Seed) -> Anatomy:
    """Draw the anatomy of a patient."""
    generator = _stream(seed, _ANATOMY)
    depth, height, density = (generator.uniform(*ends) for ends in ((0.55, 0.78), (0.36, 0.43), (0.2, 0.4)))
    return Anatomy(depth, height, density)


def draw_phantom(settings: PhantomSettings, seed: Seed = 0) -> Phantom:
    """Draw an image. With the same seed, a lesion leaves all else unchanged."""
    anatomy = settings.anatomy or draw_anatomy(seed)
    outline = _draw_outline(settings, anatomy, _stream(seed, _OUTLINE))
    across = _places(settings.columns, settings.rows)
    breast: Mask = across[None, :] < outline.depth[:, None]
    # Each pixel's distance from the air in image heights; the image's edges do not count.
    from_air = cv2.distanceTransform(breast.view(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_5)
    from_skin: Floats = np.asarray(from_air, dtype=np.float32)
    from_skin /= settings.rows
    intensity = _draw_breast(settings, anatomy, outline, from_skin, _stream(seed, _TISSUE))
    lesion = np.zeros_like(breast)
    if settings.lesion_contrast > 0:
        lesion = _add_lesion(intensity, from_skin, outline, settings, _stream(seed, _LESION))
    noise = _stream(seed, _NOISE).standard_normal(breast.shape, dtype=np.float32)
    intensity += TISSUE_NOISE * noise
    np.copyto(intensity, AIR + AIR_NOISE * noise, where=~breast)
    if settings.laterality == "R":
        intensity, breast, lesion = intensity[:, ::-1].copy(), breast[:, ::-1].copy(), lesion[:, ::-1].copy()
    _add_marks(intensity, breast, settings)
    np.clip(intensity, 0, 1, out=intensity)
    unexposed = np.zeros_like(breast)
    if settings.unexposed:
        unexposed[_bottom(settings)] = unexposed[_far_side(settings, 0.03)] = True
    return Phantom(intensity, breast, lesion, unexposed & ~breast)


def require_one_of(name: str, found: object, expected: tuple[object, ...]) -> None:
    """Refuse a setting that is not one of the expected values."""
    if found not in expected:
        raise InputError(f"{name}: expected one of {', '.join(map(str, expected))}, found {found!r}")


def _stream(seed: Seed, part: int) -> Generator:
    return Generator(SFC64(SeedSequence(seed, spawn_key=(part,))))


def _places(pixels: int, rows: int, first: int = 0) -> Floats:
    """Return the centres of pixels along an axis in image heights."""
    return ((np.arange(first, first + pixels) + 0.5) / rows).astype(np.float32)


def _draw_outline(settings: PhantomSettings, anatomy: Anatomy, generator: Generator) -> _Outline:
    """Draw the depth of the breast in each row: half an ellipse in CC, extended to the armpit in MLO."""
    along = (np.arange(settings.rows) + 0.5) / settings.rows
    depth = anatomy.depth * generator.uniform(0.95, 1.02) * settings.columns / settings.rows
    if settings.projection == "CC":
        nipple = 0.5 + generator.uniform(-0.03, 0.03)
        away = np.clip(np.abs(along - nipple) / anatomy.height, 0, 1)
        profile = (1 - away**2.1) ** 0.55
    else:
        nipple = generator.uniform(0.56, 0.64)
        end = generator.uniform(0.88, 0.95)
        at_top = generator.uniform(0.38, 0.5)
        above = np.clip(along / nipple, 0, 1) ** generator.uniform(1.0, 1.3)
        below = np.clip((along - nipple) / (end - nipple), 0, 1)
        rising = at_top + (1 - at_top) * (0.5 - 0.5 * np.cos(np.pi * above))
        profile = np.where(along < nipple, rising, (1 - below**2.2) ** 0.55)
    wobble = sum(
        generator.uniform(-0.008, 0.008) * np.sin(2 * np.pi * (waves * along + generator.random()))
        for waves in (1, 2, 3)
    )
    bump = 0.035 * np.exp(-(((along - nipple) / 0.022) ** 2))
    profile = np.where(profile > 0, profile + wobble * profile + bump, 0)
    return _Outline((depth * profile).astype(np.float32), nipple, float(depth))


def _draw_breast(
    settings: PhantomSettings, anatomy: Anatomy, outline: _Outline, from_skin: Floats, generator: Generator
) -> Floats:
    """Draw skin, fat that thins out towards the skin, glands behind the nipple and the muscle of an MLO."""
    scale = min(1.0, _GRID_ROWS / settings.rows)
    grid = (round(settings.rows * scale), round(settings.columns * scale))
    row, column = _places(grid[0], grid[0])[:, None], _places(grid[1], grid[0])[None, :]
    clouds = _cloud_noise(generator, grid)
    glands = _glands(row, column, outline, clouds, generator)
    tissue: Floats = np.asarray(anatomy.density * glands + 0.03 * clouds, dtype=np.float32)
    if settings.projection == "MLO":
        tissue = tissue + _muscle(row, column, clouds, generator)
    size = (settings.columns, settings.rows)
    tissue = np.asarray(cv2.resize(tissue, size, interpolation=cv2.INTER_LINEAR), dtype=np.float32)
    # In place: allocating another 26 million pixels takes longer than computing them.
    thinning = from_skin / np.float32(-0.03)
    np.subtract(1, np.exp(thinning, out=thinning), out=thinning)
    tissue += 0.08
    tissue *= thinning
    skin = np.square(from_skin / np.float32(0.008), out=thinning)
    np.exp(np.negative(skin, out=skin), out=skin)
    skin *= SKIN
    tissue += skin
    tissue += FAT
    return np.clip(tissue, FAT, BRIGHTEST_TISSUE, out=tissue)


def _glands(row: Floats, column: Floats, outline: _Outline, clouds: Floats, generator: Generator) -> Floats:
    """Draw glandular tissue in [0, 1]: clouds and strands that meet at the nipple."""
    down = row - np.float32(outline.nipple_row)
    inwards = np.float32(outline.nipple_depth) - column
    angle = np.arctan2(down, inwards)
    away = np.hypot(down, inwards)
    fan = generator.standard_normal((160, 12), dtype=np.float32)
    strands = cv2.remap(
        cv2.GaussianBlur(fan, (0, 0), 0.8),
        np.clip(away * 12, 0, 11).astype(np.float32),
        ((angle / np.pi + 1) * 79.5).astype(np.float32),
        cv2.INTER_LINEAR,
    )
    centre = 0.52 * outline.nipple_depth
    spread = np.square(down / 0.24) + np.square((column - centre) / (0.5 * outline.nipple_depth))
    zone = np.exp(-(spread**1.5))
    filled = 1 / (1 + np.exp(-(1.6 * clouds + 1.5 * np.asarray(strands) + 0.4)))
    return np.asarray(zone * filled, dtype=np.float32)


def _muscle(row: Floats, column: Floats, clouds: Floats, generator: Generator) -> Floats:
    """Draw the pectoral muscle: a bright triangle in the upper corner at the chest wall."""
    reach, foot = generator.uniform(0.2, 0.28), generator.uniform(0.5, 0.68)
    edge = reach * np.clip(1 - row / foot, 0, 1) ** 0.85
    inside = 1 / (1 + np.exp(-np.clip((edge - column) / 0.006, -40, 40)))
    return np.asarray(inside * (MUSCLE + 0.02 * clouds) * (edge > 0), dtype=np.float32)


def _cloud_noise(generator: Generator, grid: tuple[int, int]) -> Floats:
    """Return noise of several scales with mean 0 and deviation of about 1, at any resolution."""
    total = np.zeros(grid, dtype=np.float32)
    for cells, weight in ((6, 0.7), (12, 0.5), (28, 0.4), (70, 0.35)):
        shape = (cells, max(4, round(cells * grid[1] / grid[0])))
        coarse = generator.standard_normal(shape, dtype=np.float32)
        total += weight * np.asarray(cv2.resize(coarse, grid[::-1], interpolation=cv2.INTER_CUBIC))
    return total


def _add_lesion(
    intensity: Floats, from_skin: Floats, outline: _Outline, settings: PhantomSettings, generator: Generator
) -> Mask:
    """Add a spiculated mass with microcalcifications to the image and return where the mass is."""
    radius = generator.uniform(0.05, 0.07)
    row, column = _lesion_centre(from_skin, outline, radius, generator)
    rows = settings.rows
    reach = int(np.ceil(3.2 * radius * rows))  # where the rays have faded to a hundredth
    top, left = max(0, int(row * rows) - reach), max(0, int(column * rows) - reach)
    part = (slice(top, top + 2 * reach), slice(left, left + 2 * reach))
    shape = intensity[part].shape
    down = (_places(shape[0], rows, top) - np.float32(row))[:, None]
    across = (_places(shape[1], rows, left) - np.float32(column))[None, :]
    away, angle = np.hypot(down, across) / np.float32(radius), np.arctan2(down, across)
    lobes = sum(
        generator.uniform(0.03, 0.09) * np.cos(k * angle + generator.uniform(0, 2 * np.pi)) for k in (2, 3, 5)
    )
    body = 1 / (1 + np.exp(9 * (away - 0.9 * (1 + lobes))))
    rays = np.clip(np.cos(generator.integers(5, 8) * angle + generator.uniform(0, 2 * np.pi)), 0, 1) ** 10
    added = np.maximum(body, 0.6 * rays * np.exp(-np.square(away / 1.6)))
    for _ in range(generator.integers(6, 12)):
        at = np.clip(generator.normal(0, 0.6, 2), -1.2, 1.2) * radius
        speck = np.hypot(down - np.float32(at[0]), across - np.float32(at[1])) / max(0.004, 0.7 / rows)
        added = added + 0.5 * np.exp(-np.square(speck))
    tissue = from_skin[part] > 0
    intensity[part] += np.where(tissue, settings.lesion_contrast * added, 0).astype(np.float32)
    lesion = np.zeros(intensity.shape, dtype=np.bool_)
    lesion[part] = (body > 0.5) & tissue  # noqa: PLR2004  # half of its height
    return lesion


def _lesion_centre(
    from_skin: Floats, outline: _Outline, radius: float, generator: Generator
) -> tuple[float, float]:
    """Return a place (row, column in image heights) inside the breast, the deepest one if none is found."""
    rows, columns = from_skin.shape
    for _ in range(20):
        row = outline.nipple_row + generator.uniform(-0.18, 0.18)
        column = outline.depth[min(rows - 1, int(row * rows))] * generator.uniform(0.3, 0.65)
        place = (min(rows - 1, int(row * rows)), min(columns - 1, int(column * rows)))
        if column > radius and from_skin[place] > 1.3 * radius:
            return row, float(column)
    deepest = np.unravel_index(int(np.argmax(from_skin)), from_skin.shape)
    return float(deepest[0]) / rows, float(deepest[1]) / rows


def _add_marks(intensity: Floats, breast: Mask, settings: PhantomSettings) -> None:
    """Add the text and the strip, but not on or next to the breast."""
    rows, columns = intensity.shape
    marks = np.zeros(intensity.shape, dtype=np.uint8)
    if settings.text:
        (width, _), _ = cv2.getTextSize(settings.text, cv2.FONT_HERSHEY_SIMPLEX, 1.0, 1)
        scale = 0.2 * columns / width
        left = 0.75 * columns if settings.laterality == "L" else 0.05 * columns
        thick = max(1, round(scale * 2))
        origin = (round(left), round(0.09 * rows))
        cv2.putText(marks, settings.text, origin, cv2.FONT_HERSHEY_SIMPLEX, scale, 255, thick)
    if settings.strip == "bottom":
        marks[_bottom(settings)] = 255
    elif settings.strip == "far":
        marks[_far_side(settings, 0.025)] = 255
    near = cv2.dilate(breast.view(np.uint8), np.ones((7, 7), dtype=np.uint8)) > 0
    intensity[(marks > 0) & ~near] = MARK


def _bottom(settings: PhantomSettings) -> slice:
    return np.s_[settings.rows - max(2, round(0.02 * settings.rows)) :]


def _far_side(settings: PhantomSettings, share: float) -> tuple[slice, slice]:
    width = max(2, round(share * settings.columns))
    return np.s_[:, -width:] if settings.laterality == "L" else np.s_[:, :width]
