"""A contact sheet: all pictures of a folder, small, side by side, for people to look over."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file
from trust_cache.base.places import read_bytes
from trust_cache.images.png import decode_png, encode_png
from trust_cache.images.steps import thumbnail

HEIGHT, WIDTH = 160, 96  # of one picture, as the encoder's input is shaped
MOST = 1_000  # pictures on a sheet; a larger folder is shown by every n-th


def write_sheet(pictures: Sequence[str | Path], out: Path) -> int:
    """Write a contact sheet of these PNG files (evenly chosen if they are many); return how many it shows."""
    if not pictures:
        raise InputError("the contact sheet: expected at least one picture, found none")
    shown = pictures[:: math.ceil(len(pictures) / MOST)]
    columns = math.ceil(math.sqrt(len(shown) * HEIGHT / WIDTH))
    rows = math.ceil(len(shown) / columns)
    sheet = np.zeros((rows * HEIGHT, columns * WIDTH), dtype=np.uint8)
    for number, path in enumerate(shown):
        row, column = divmod(number, columns)
        small = thumbnail(decode_png(read_bytes(str(path))), HEIGHT, WIDTH)
        sheet[row * HEIGHT : (row + 1) * HEIGHT, column * WIDTH : (column + 1) * WIDTH] = small
    write_file(out, encode_png(sheet))
    return len(shown)
