"""What is worth knowing of a data set before trusting it: everything is kept, the odd is named."""

from collections.abc import Sequence
from dataclasses import asdict

import polars as pl

from trust_cache.manifest.descriptions import ExpectedCounts
from trust_cache.manifest.findings import Finding, Findings, Item, Severity, counted, finding

MOST_IMAGES = 20  # of one examination; the public sets have up to 14
STANDARD_IMAGES = ("L CC", "L MLO", "R CC", "R MLO")
POSITIVE_CATEGORY = "abnormal"
CATEGORIES = ("normal", "False Positive", POSITIVE_CATEGORY)


def count(images: pl.DataFrame) -> ExpectedCounts:
    """Return the counts that a description states; a case is positive if one of its images is."""
    positive = images.filter(pl.col("label") == 1)
    return ExpectedCounts(
        images=images.height,
        cases=images["case_id"].n_unique(),
        positive_cases=positive["case_id"].n_unique(),
        positive_images=positive.height,
    )


def counts_expected(images: pl.DataFrame, expected: ExpectedCounts) -> Findings:
    """The metadata have as many images and cases as a complete copy."""
    found = asdict(count(images))
    apart = [
        f"{number:,} {name.replace('_', ' ')} expected, {found[name]:,} found"
        for name, number in asdict(expected).items()
        if found[name] != number
    ]
    if not apart:
        return ()
    sentence = f"not the counts of a complete copy: {'; '.join(apart)}"
    return (Finding("counts-expected", Severity.ODDITY, sentence),)


def images_plausible(images: pl.DataFrame) -> Findings:
    """No case has more images than one examination takes."""
    ages = pl.col("age").drop_nulls().n_unique() if "age" in images.columns else pl.lit(0)
    many = _by_case(images, n_images=pl.len(), n_ages=ages).filter(pl.col("n_images") > MOST_IMAGES)
    items = [
        Item(case_id, None, counted(number, "image") + (f" with {counted(n_ages, 'age')}" if n_ages else ""))
        for case_id, number, n_ages in many.iter_rows()
    ]
    summary = (
        f"{counted(len(items), 'case')} with more than {MOST_IMAGES} images,"
        " perhaps of several women, kept as one case"
    )
    return finding("images-plausible", Severity.ODDITY, summary, items)


def ages_agree(images: pl.DataFrame) -> Findings:
    """All images of a case are of a woman of one age."""
    if "age" not in images.columns:
        return ()
    ages = pl.col("age").drop_nulls().unique(maintain_order=True)
    several = _by_case(images, ages=ages).filter(pl.col("ages").list.len() > 1)
    items = [
        Item(case_id, None, f"ages {', '.join(_sorted(found))}") for case_id, found in several.iter_rows()
    ]
    summary = f"{counted(len(items), 'case')} whose images have different ages"
    return finding("ages-agree", Severity.ODDITY, summary, items)


def ages_given(images: pl.DataFrame) -> Findings:
    """Every image has an age, if the metadata have ages at all."""
    if "age" not in images.columns:
        return ()
    absent = images.filter(pl.col("age").is_null())
    return finding("ages-given", Severity.ODDITY, f"no age of {_images(absent)}", _items(absent))


def standard_images_given(images: pl.DataFrame) -> Findings:
    """Every case has CC and MLO of both breasts."""
    if (
        images["laterality"].null_count() == images.height
        or images["projection"].null_count() == images.height
    ):
        return ()
    kind = pl.concat_str("laterality", pl.col("projection").str.to_uppercase(), separator=" ")
    kinds = kind.filter(kind.is_in(STANDARD_IMAGES)).unique()
    some = _by_case(images, kinds=kinds).filter(pl.col("kinds").list.len() < len(STANDARD_IMAGES))
    items = [
        Item(case_id, None, f"no {', no '.join(name for name in STANDARD_IMAGES if name not in found)}")
        for case_id, found in some.iter_rows()
    ]
    summary = f"{counted(len(items), 'case')} without some of the four standard images"
    return finding("standard-images-given", Severity.ODDITY, summary, items)


def lateralities_agree(images: pl.DataFrame) -> Findings:
    """The laterality is that of the folder."""
    wrong = images.filter(pl.col("laterality") != pl.col("folder_laterality"))
    text = pl.format("laterality {}, folder {}", "laterality", "folder_laterality")
    summary = f"laterality and side folder disagree for {_images(wrong)}, the metadata's is kept"
    return finding("lateralities-agree", Severity.ODDITY, summary, _items(wrong, text))


def projections_agree(images: pl.DataFrame) -> Findings:
    """The projection is that of the folder."""
    given = pl.col("projection").str.to_uppercase()
    wrong = images.filter(given != pl.col("folder_projection").str.to_uppercase())
    text = pl.format("projection {}, folder {}", "projection", "folder_projection")
    summary = f"projection and folder disagree for {_images(wrong)}, the metadata's is kept"
    return finding("projections-agree", Severity.ODDITY, summary, _items(wrong, text))


def labels_agree(images: pl.DataFrame) -> Findings:
    """An image is positive iff its side folder is that of a cancer (`-c`)."""
    wrong = images.filter(pl.col("label") != pl.col("folder_label"))
    text = pl.format("label {}, side folder {}", "label", "folder_label")
    summary = f"label and side folder (-c is cancer) disagree for {_images(wrong)}, the metadata's is kept"
    return finding("labels-agree", Severity.ODDITY, summary, _items(wrong, text))


def categories_agree(images: pl.DataFrame) -> Findings:
    """A case lies in one category, and exactly those of `abnormal` have positive images."""
    by_case = _by_case(
        images, categories=pl.col("category").unique(maintain_order=True), label=pl.col("label").max()
    )
    spread = by_case.filter(pl.col("categories").list.len() > 1)
    one = by_case.filter(pl.col("categories").list.len() == 1).with_columns(pl.col("categories").list.first())
    wrong = one.filter((pl.col("categories") == POSITIVE_CATEGORY) != (pl.col("label") == 1))
    items = [Item(case_id, None, f"in {' and '.join(found)}") for case_id, found, _ in spread.iter_rows()]
    items += [
        Item(case_id, None, f"in {found}, {'a' if label else 'no'} positive image")
        for case_id, found, label in wrong.iter_rows()
    ]
    summary = f"{counted(len(items), 'case')} whose category does not fit"
    return finding("categories-agree", Severity.ODDITY, summary, items)


def categories_known(images: pl.DataFrame) -> Findings:
    """Every category is one of the published three."""
    strange = images.filter(~pl.col("category").is_in(CATEGORIES))
    summary = f"a category other than {', '.join(CATEGORIES)} of {_images(strange)}"
    return finding("categories-known", Severity.ODDITY, summary, _items(strange, pl.col("category")))


def breasts_agree(images: pl.DataFrame) -> Findings:
    """All images of one breast have one label, where labels are given by breast."""
    mixed = (
        images.group_by("case_id", "laterality", maintain_order=True)
        .agg(pl.col("label").n_unique().alias("labels"))
        .filter(pl.col("labels") > 1)
    )
    items = [Item(case_id, None, str(side)) for case_id, side, _ in mixed.iter_rows()]
    summary = f"{counted(len(items), 'breast')} with both positive and negative images"
    return finding("breasts-agree", Severity.ODDITY, summary, items)


def lateralities_read(images: pl.DataFrame) -> Findings:
    """No laterality had to be taken from the folder because the metadata have none."""
    taken = images.filter(pl.col("laterality_text").is_null() & pl.col("laterality").is_not_null())
    summary = f"no laterality of {_images(taken)}, taken from the side folder"
    return finding("lateralities-read", Severity.ODDITY, summary, _items(taken))


def lateralities_present(images: pl.DataFrame) -> Findings:
    """Every image has a laterality, which features made elsewhere do not need."""
    absent = images.filter(pl.col("laterality").is_null() & pl.col("laterality_text").is_null())
    summary = f"no laterality of {_images(absent)}, which `preprocess` needs"
    return finding("lateralities-present", Severity.ODDITY, summary, _items(absent))


def paths_present(images: pl.DataFrame) -> Findings:
    """Every image has a path, which features made elsewhere do not need."""
    absent = images.filter(pl.col("path").is_null())
    summary = f"no path of {_images(absent)}, which `preprocess` needs"
    return finding("paths-present", Severity.ODDITY, summary, _items(absent))


def files_distinct(images: pl.DataFrame) -> Findings:
    """No two images have one file."""
    repeated = images.filter(pl.col("path").is_not_null() & pl.col("path").is_duplicated())
    summary = f"{_images(repeated)} whose file is that of another image, too"
    return finding("files-distinct", Severity.ODDITY, summary, _items(repeated, pl.col("path")))


def _by_case(images: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
    return images.group_by("case_id", maintain_order=True).agg(**columns)


def _images(rows: pl.DataFrame) -> str:
    return counted(rows.height, "image")


def _items(rows: pl.DataFrame, found: pl.Expr | None = None) -> list[Item]:
    text = pl.lit("") if found is None else found
    return [Item(*row) for row in rows.select("case_id", "image_id", text.alias("found")).iter_rows()]


def _sorted(ages: Sequence[str]) -> list[str]:
    return sorted(ages, key=lambda age: (not age.isdecimal(), int(age) if age.isdecimal() else 0, age))
