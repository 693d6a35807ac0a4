"""The limits of the pixel gate, each with its reason. The record of a picture folder has them."""

from trust_cache.base.documents import Document


class PixelLimits(Document, frozen=True):
    """The limits of the pixel gate, each with its reason."""

    # Tissue absorbs: in a presentation image it is brighter than air (PS3.3 C.8.11.7.1.2). Balance of areas.
    polarity: float = 0.0
    # Where padding is the air: by how much of the range the breast is brighter at its edge, which is thin,
    # than inside. A skin line or sharpening makes it a little brighter.
    edge: float = 0.05
    # 8-bit images have 20 to 200 levels in the breast without the two ends of the scale. Effective number.
    grey_levels: float = 10.0
    # Windows clip fat near the skin; implants saturate half of a breast. Shares of the breast.
    dark_saturation: float = 0.6
    bright_saturation: float = 0.55
    # An implant has a sharp edge, by so much of the range; clipped tissue does not.
    implant_edge: float = 0.35
    implant_saturation: float = 0.9
    # Padding marks what is outside of the image (PS3.3 C.7.5.1.1.2). Share of the brighter half of the image.
    padding: float = 0.002
    # Collimators blacken up to a quarter of the image, seldom more. Share of the lines.
    constant_block: float = 0.3
    # At the chest wall detectors and films have a black margin of less than a tenth. Share of the columns.
    chest_wall_block: float = 0.15
    # Of the breast's width at the edge of a constant block: an outline is round, and ends narrow.
    block_edge: float = 0.35
    # Share of the breast's lines that equal another one: noise makes every line different.
    equal_lines: float = 0.005
    # Share of the breast's width in which all pixels jump between two lines.
    straight_cut: float = 0.3
    # Mean step between neighbouring pixels as a share of the range: quantum noise is 0.5 to 3 %.
    neighbours: float = 0.1
    # Share of the breast's pixels unlike all around them: clips, calcifications and dust are few.
    specks: float = 0.01
    # Steps between rows in units of those between columns: detectors have 0.5 to 2.
    row_ratio: float = 4.0
    # Pixels by which a typical row must be moved to fit the next: the skin line is oblique, up to 1 or 2.
    row_shift: float = 2.0
    # Where rows jump sideways: the share of the difference of two rows that is left once one is moved.
    # Neighbouring rows fit as they are; moved by 12 pixels or more, two thirds and more are left.
    row_jump: float = 0.4
    # Height of the breast away from the chest wall in units of that beside it: there it is highest.
    breast_side: float = 1.1
    # Length of the breast's upper or lower end in units of that at the chest wall: more in a turned image.
    turned: float = 1.5
    # Light of an MLO breast beside the chest wall, at the bottom in units of that at the top, where the wide
    # and bright muscle is.
    upside_down: float = 2.0
    # The nipple belongs below the middle. Share of the breast's height: farther below, it is not upside down.
    nipple_below: float = 0.55
    # Less light is enough where the nipple is this high.
    upside_down_above: float = 1.3
    nipple_above: float = 0.4


LIMITS = PixelLimits()
