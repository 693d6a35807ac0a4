"""What a manifest cannot do without: each check names the rows that stand against it."""

from collections.abc import Callable, Sequence

import polars as pl

from trust_cache.manifest.findings import Finding, Findings, Item, Severity, counted, finding

Check = Callable[[pl.DataFrame], Findings]

# No one calls a case or an image so; programs write it where an id was missing.
_NO_ID = ("nan", "none", "null")


def columns_present(found: Sequence[str], required: Sequence[str]) -> Findings:
    """Every column that the manifest is made of is there."""
    missing = [name for name in required if name not in found]
    if not missing:
        return ()
    sentence = f"missing column {', '.join(missing)}; found {', '.join(found[:20])}"
    return (Finding("columns-present", Severity.ERROR, sentence),)


def columns_free(further: Sequence[str], standard: Sequence[str]) -> Findings:
    """No further column has the name of one that the manifest makes itself."""
    taken = [name for name in further if name in standard]
    if not taken:
        return ()
    sentence = (
        f"column {', '.join(taken)} has the name of one that the manifest makes from other columns;"
        " rename it in the metadata"
    )
    return (Finding("columns-free", Severity.ERROR, sentence),)


def ids_given(images: pl.DataFrame) -> Findings:
    """Every image has an image_id and a case_id."""
    found: list[Finding] = []
    for name in ("image_id", "case_id"):
        text = pl.col(name)
        absent = images.filter(text.is_null() | text.str.to_lowercase().is_in(_NO_ID))
        items = _items(absent, pl.format("line {}", "line"))
        found += finding("ids-given", Severity.ERROR, f"no {name} on {counted(absent.height, 'row')}", items)
    return tuple(found)


def images_distinct(images: pl.DataFrame) -> Findings:
    """No image_id stands twice."""
    repeated = (
        images.filter(pl.col("image_id").is_not_null() & pl.col("image_id").is_duplicated())
        .group_by("image_id", maintain_order=True)
        .agg(pl.col("case_id").first(), pl.col("line"))
        .with_columns(pl.col("line").cast(pl.List(pl.String)).list.join(", "))
    )
    items = _items(repeated, pl.format("lines {}", "line"))
    summary = f"{counted(len(items), 'image_id')} on more than one row, expected one row per image"
    return finding("images-distinct", Severity.ERROR, summary, items)


def labels_binary(images: pl.DataFrame) -> Findings:
    """Every label is 0 or 1."""
    wrong = images.filter(pl.col("label").is_null())
    text = pl.format("line {}: {}", "line", pl.col("label_text").fill_null("nothing"))
    summary = f"expected a label of 0 or 1, found others on {counted(wrong.height, 'row')}"
    return finding("labels-binary", Severity.ERROR, summary, _items(wrong, text))


def lateralities_known(images: pl.DataFrame) -> Findings:
    """Every laterality that is given is L or R."""
    wrong = images.filter(pl.col("laterality").is_null() & pl.col("laterality_text").is_not_null())
    text = pl.format("line {}: {}", "line", "laterality_text")
    summary = f"expected a laterality of L or R, found others on {counted(wrong.height, 'row')}"
    return finding("lateralities-known", Severity.ERROR, summary, _items(wrong, text))


def lateralities_given(images: pl.DataFrame) -> Findings:
    """Every image has a laterality: without it right breasts cannot be mirrored."""
    absent = images.filter(pl.col("laterality").is_null() & pl.col("laterality_text").is_null())
    summary = f"expected a laterality of L or R, found nothing on {counted(absent.height, 'row')}"
    items = _items(absent, pl.format("line {}", "line"))
    return finding("lateralities-given", Severity.ERROR, summary, items)


def _items(rows: pl.DataFrame, found: pl.Expr) -> list[Item]:
    return [Item(*row) for row in rows.select("case_id", "image_id", found.alias("found")).iter_rows()]
