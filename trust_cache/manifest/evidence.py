"""What metadata say of each image, brought to common columns that every check understands."""

from dataclasses import dataclass

import polars as pl

STANDARD = ("image_id", "case_id", "label", "laterality", "projection", "path")
_NO_VALUE = ("", "nan", "none", "null", "na", "n/a")
_LATERALITIES = {"l": "L", "left": "L", "r": "R", "right": "R"}
_LABELS = {"false": 0, "true": 1}


@dataclass(frozen=True)
class Adapted:
    """Metadata of a data set after its adapter.

    `images` has the standard columns, with `line`, `label_text` and `laterality_text` as they were found;
    where the metadata tell: `age` (a number as text), and what the folders say (`folder_laterality`,
    `folder_label`, `folder_projection`, `category`). A path is relative to the images' folder.
    `further` has all other columns of the metadata, verbatim.
    """

    images: pl.DataFrame
    further: pl.DataFrame


def stripped(column: str) -> pl.Expr:
    """Return the cells without white space around them, null where nothing is left."""
    text = pl.col(column).str.strip_chars()
    return pl.when(text != "").then(text)


def value(column: str) -> pl.Expr:
    """Return the cells without the words that programs write for a missing value (nan, None, NA)."""
    text = stripped(column)
    return pl.when(~text.str.to_lowercase().is_in(_NO_VALUE)).then(text)


def label_of(text: pl.Expr) -> pl.Expr:
    """Return 0 or 1 for the texts that mean it (also 1.0, True), null for all others."""
    number = text.cast(pl.Float64, strict=False)
    whole = pl.when(number.is_in([0.0, 1.0])).then(number).cast(pl.Int8)
    words = text.str.to_lowercase().replace_strict(_LABELS, default=None, return_dtype=pl.Int8)
    return pl.coalesce(whole, words)


def laterality_of(text: pl.Expr) -> pl.Expr:
    """Return L or R for the texts that mean it (also left, Right), null for all others."""
    return text.str.to_lowercase().replace_strict(_LATERALITIES, default=None, return_dtype=pl.String)


def age_of(column: str) -> pl.Expr:
    """Return ages that are equal iff they mean the same: 61, 61.0 and DICOM's 061Y are one age."""
    text = value(column)
    number = text.str.strip_suffix("Y").cast(pl.Float64, strict=False)
    whole = pl.when(number == number.floor()).then(number.cast(pl.Int64, strict=False).cast(pl.String))
    return pl.coalesce(whole, number.cast(pl.String), text)
