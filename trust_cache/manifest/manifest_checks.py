"""Check the images of a data set.

Each check takes a table of images and returns what it found. An error prevents the manifest; a warning
is worth knowing, and every row is kept.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

import polars as pl

from trust_cache.manifest.dicom_headers import PROJECTIONS

ITEMS_SHOWN = 5
MOST_IMAGES = 20  # of one case; the public sets have up to 14
STANDARD_IMAGES = ("L CC", "L MLO", "R CC", "R MLO")
# Never the name of a case or an image: programs write it for a missing id.
_NO_ID = ("nan", "none", "null")
_SHORTENED = r"^\d(?:\.\d+)?[eE]\+\d+$"  # 4.34909E+15
AGAIN = "the same image again"
PATIENT_LABEL = "patient_label"  # whether a patient ever has cancer, where a data set says so
LEFT_OUT = "left_out"  # the column with the reason why an image is not written
# Whether the case is positive, also where all images of the positive breast are left out or absent.
CASE_POSITIVE = "case_positive"
LEFT_OUT_CHECK = "left-out"


class Severity(StrEnum):
    """How serious a finding is."""

    ERROR = "error"  # no manifest can be made
    FAILURE = "failure"  # of single images; the manifest is made
    WARNING = "warning"  # worth knowing; the manifest is made


@dataclass(frozen=True)
class DatasetCounts:
    """The size of a data set."""

    images: int
    cases: int
    positive_cases: int
    positive_images: int


@dataclass(frozen=True)
class ExpectedCounts:
    """The published size of a data set, before any image is left out; None where it is not published."""

    images: int | None = None
    cases: int | None = None
    patients: int | None = None
    positive_cases: int | None = None
    positive_images: int | None = None
    positive_patients: int | None = None
    breasts: int | None = None  # that have a label
    positive_breasts: int | None = None


@dataclass(frozen=True)
class Item:
    """One case (or one image of it) that a finding is about, and what was found there."""

    case_id: str | None
    image_id: str | None
    found: str

    def __str__(self) -> str:
        name = self.image_id if self.image_id is not None else self.case_id
        return f"{name} ({self.found})" if self.found else str(name)


@dataclass(frozen=True)
class Finding:
    """The result of one check; `sentence` names the first items, `items` has all of them."""

    check: str
    severity: Severity
    sentence: str
    items: tuple[Item, ...] = ()

    def __str__(self) -> str:
        return f"{self.check}: {self.sentence}"


Findings = tuple[Finding, ...]
Check = Callable[[pl.DataFrame], Findings]


def finding(
    check: str, summary: str, items: Sequence[Item], severity: Severity = Severity.WARNING
) -> Findings:
    """Return one finding about these items, or none if there are no items."""
    if not items:
        return ()
    shown = ", ".join(map(str, items[:ITEMS_SHOWN]))
    rest = len(items) - ITEMS_SHOWN
    more = f" and {rest:,} more" if rest > 0 else ""
    return (Finding(check, severity, f"{summary}: {shown}{more}", tuple(items)),)


def items_of(rows: pl.DataFrame, found: pl.Expr | None = None) -> list[Item]:
    """Return one item per image; `found` is the text about it."""
    text = pl.lit("") if found is None else found
    return [Item(*row) for row in rows.select("case_id", "image_id", text.alias("found")).iter_rows()]


def by_case(images: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
    """Return one row per case with these columns, in the order of the images."""
    return images.group_by("case_id", maintain_order=True).agg(**columns)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 case, 5,997 cases."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def counted_images(rows: pl.DataFrame) -> str:
    """Return the number of images with its noun."""
    return counted(rows.height, "image")


def columns_free(further: Sequence[str], standard: Collection[str]) -> Findings:
    """No further column has the name of a column that the manifest makes itself."""
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
        items = items_of(absent, pl.format("line {}", "line"))
        found += finding("ids-given", f"no {name} on {counted(absent.height, 'row')}", items, Severity.ERROR)
    return tuple(found)


def ids_whole(images: pl.DataFrame) -> Findings:
    """No id is a number that a spreadsheet has shortened."""
    found: list[Finding] = []
    for name in ("image_id", "case_id", "patient_id"):
        if name not in images.columns:
            continue
        short = images.filter(pl.col(name).str.contains(_SHORTENED))
        items = items_of(short, pl.format("line {}: {}", "line", name))
        summary = (
            f"expected a whole {name}, found a number shortened by a spreadsheet on"
            f" {counted(short.height, 'row')}; use the table as downloaded"
        )
        found += finding("ids-whole", summary, items, Severity.ERROR)
    return tuple(found)


def images_distinct(images: pl.DataFrame) -> Findings:
    """No image_id occurs twice."""
    repeated = (
        images.filter(pl.col("image_id").is_not_null() & pl.col("image_id").is_duplicated())
        .group_by("image_id", maintain_order=True)
        .agg(pl.col("case_id").first(), pl.col("line"))
        .with_columns(pl.col("line").cast(pl.List(pl.String)).list.join(", "))
    )
    items = items_of(repeated, pl.format("lines {}", "line"))
    summary = f"{counted(len(items), 'image_id')} on more than one row, expected one row per image"
    return finding("images-distinct", summary, items, Severity.ERROR)


def labels_binary(images: pl.DataFrame) -> Findings:
    """Every label is 0 or 1."""
    wrong = images.filter(pl.col("label").is_null())
    text = pl.format("line {}: {}", "line", pl.col("label_text").fill_null("nothing"))
    summary = f"expected a label of 0 or 1, found others on {counted(wrong.height, 'row')}"
    return finding("labels-binary", summary, items_of(wrong, text), Severity.ERROR)


def lateralities_known(images: pl.DataFrame) -> Findings:
    """Every laterality that is given is L or R."""
    wrong = images.filter(pl.col("laterality").is_null() & pl.col("laterality_text").is_not_null())
    text = pl.format("line {}: {}", "line", "laterality_text")
    summary = f"expected a laterality of L or R, found others on {counted(wrong.height, 'row')}"
    return finding("lateralities-known", summary, items_of(wrong, text), Severity.ERROR)


def projections_known(images: pl.DataFrame, severity: Severity = Severity.ERROR) -> Findings:
    """Every projection that is given is one of DICOM's."""
    text = pl.col("projection").str.to_uppercase().str.replace_all(r"[\s_-]", "")
    wrong = images.filter(~text.is_in(list(PROJECTIONS)))
    summary = (
        f"expected a projection of DICOM's (CC, MLO, ...), found others on {counted(wrong.height, 'row')}"
    )
    items = items_of(wrong, pl.format("line {}: {}", "line", "projection"))
    return finding("projections-known", summary, items, severity)


def lateralities_given(images: pl.DataFrame) -> Findings:
    """Every image has a laterality: without it right breasts cannot be mirrored."""
    absent = images.filter(pl.col("laterality").is_null() & pl.col("laterality_text").is_null())
    summary = f"expected a laterality of L or R, found nothing on {counted(absent.height, 'row')}"
    items = items_of(absent, pl.format("line {}", "line"))
    return finding("lateralities-given", summary, items, Severity.ERROR)


def count(images: pl.DataFrame) -> DatasetCounts:
    """Return the counts of a table of images; a case is positive if an image is, or `case_positive`."""
    positive = (pl.col("label") == 1).fill_null(value=False)
    of_case = positive | pl.col(CASE_POSITIVE) if CASE_POSITIVE in images.columns else positive
    return DatasetCounts(
        images=images.height,
        cases=images["case_id"].n_unique(),
        positive_cases=images.filter(of_case)["case_id"].n_unique(),
        positive_images=images.filter(positive).height,
    )


def _all_counts(images: pl.DataFrame) -> dict[str, int]:
    """Return every count that a description may publish."""
    found = asdict(count(images))
    if "patient_id" in images.columns:
        found["patients"] = images["patient_id"].n_unique()
    if PATIENT_LABEL in images.columns:
        found["positive_patients"] = images.filter(pl.col(PATIENT_LABEL) == 1)["patient_id"].n_unique()
    breasts = images.filter(pl.col("label").is_not_null()).select("case_id", "laterality", "label").unique()
    found["breasts"] = breasts.select("case_id", "laterality").n_unique()
    found["positive_breasts"] = breasts.filter(pl.col("label") == 1).height
    return found


def counts_expected(images: pl.DataFrame, releases: Sequence[ExpectedCounts]) -> Findings:
    """The metadata have as many images and cases as a complete copy of some release."""
    found = _all_counts(images)
    apart: list[tuple[float, list[str]]] = []
    for expected in releases:
        known = {name: number for name, number in asdict(expected).items() if number is not None}
        compared = {name: number for name, number in known.items() if name in found}
        differing = [
            f"{number:,} {name.replace('_', ' ')} expected, {found[name]:,} found"
            for name, number in compared.items()
            if found[name] != number
        ]
        if not differing:
            return ()
        apart.append((len(differing) / len(compared), differing))
    _, nearest = min(apart, key=lambda release: release[0])  # a release may publish few counts
    sentence = f"not the counts of a complete copy: {'; '.join(nearest)}"
    return (Finding("counts-expected", Severity.WARNING, sentence),)


def images_left_out(images: pl.DataFrame) -> Findings:
    """Return one finding for each reason in `left_out`, with every image left out."""
    found: list[Finding] = []
    kept = images.filter(pl.col(LEFT_OUT).is_null())["case_id"].unique()
    for (reason,), rows in images.filter(pl.col(LEFT_OUT).is_not_null()).group_by(
        LEFT_OUT, maintain_order=True
    ):
        cases = rows["case_id"].unique()
        gone = int((~cases.is_in(kept.implode())).sum())
        whole = f" ({counted(gone, 'whole case')})" if gone else ""
        summary = f"{counted_images(rows)} of {counted(cases.len(), 'case')}{whole} left out, {reason}"
        found += finding(LEFT_OUT_CHECK, summary, items_of(rows))
    return tuple(found)


def positives_shown(images: pl.DataFrame) -> Findings:
    """Every positive case has an image of a positive breast."""
    if CASE_POSITIVE not in images.columns:
        return ()
    cases = by_case(images, positive=pl.col(CASE_POSITIVE).any(), label=pl.col("label").max())
    unshown = cases.filter(pl.col("positive") & (pl.col("label").fill_null(0) == 0))
    items = [Item(case_id, None, "") for case_id in unshown["case_id"]]
    number = counted(len(items), "positive case")
    summary = f"{number} without an image of a positive breast, kept as positive by the column case_label"
    return finding("positives-shown", summary, items)


def images_plausible(images: pl.DataFrame) -> Findings:
    """No case has more images than one examination takes."""
    ages = pl.col("age").drop_nulls().n_unique() if "age" in images.columns else pl.lit(0)
    many = by_case(images, n_images=pl.len(), n_ages=ages).filter(pl.col("n_images") > MOST_IMAGES)
    items = [
        Item(case_id, None, counted(number, "image") + (f" with {counted(n_ages, 'age')}" if n_ages else ""))
        for case_id, number, n_ages in many.iter_rows()
    ]
    summary = (
        f"{counted(len(items), 'case')} with more than {MOST_IMAGES} images,"
        " perhaps of several patients, kept as one case"
    )
    return finding("images-plausible", summary, items)


def ages_agree(images: pl.DataFrame) -> Findings:
    """All images of a case have one age."""
    if "age" not in images.columns:
        return ()
    several = by_case(images, ages=pl.col("age").drop_nulls().unique(maintain_order=True))
    items = [
        Item(case_id, None, f"ages {', '.join(sorted(found, key=_age_order))}")
        for case_id, found in several.filter(pl.col("ages").list.len() > 1).iter_rows()
    ]
    return finding("ages-agree", f"{counted(len(items), 'case')} whose images have different ages", items)


def ages_given(images: pl.DataFrame) -> Findings:
    """Every image has an age, if the metadata have ages at all."""
    if "age" not in images.columns:
        return ()
    absent = images.filter(pl.col("age").is_null())
    return finding("ages-given", f"no age of {counted_images(absent)}", items_of(absent))


def standard_images_given(images: pl.DataFrame) -> Findings:
    """Every case has CC and MLO of both breasts."""
    if images.height in (images["laterality"].null_count(), images["projection"].null_count()):
        return ()
    kind = pl.concat_str("laterality", pl.col("projection").str.to_uppercase(), separator=" ")
    kinds = kind.filter(kind.is_in(STANDARD_IMAGES)).unique()
    some = by_case(images, kinds=kinds).filter(pl.col("kinds").list.len() < len(STANDARD_IMAGES))
    items = [
        Item(case_id, None, f"no {', no '.join(name for name in STANDARD_IMAGES if name not in found)}")
        for case_id, found in some.iter_rows()
    ]
    summary = f"{counted(len(items), 'case')} without some of the four standard images"
    return finding("standard-images-given", summary, items)


def breasts_agree(images: pl.DataFrame) -> Findings:
    """All images of one breast have one label, where labels are given by breast."""
    mixed = (
        images.group_by("case_id", "laterality", maintain_order=True)
        .agg(pl.col("label").n_unique().alias("labels"))
        .filter(pl.col("labels") > 1)
    )
    items = [Item(case_id, None, str(side)) for case_id, side, _ in mixed.iter_rows()]
    summary = f"{counted(len(items), 'breast')} with both positive and negative images"
    return finding("breasts-agree", summary, items)


def repeated(*columns: str) -> pl.Expr:
    """Tell whether an earlier row has the same values in these columns."""
    key = pl.struct(columns)
    return key.is_duplicated() & ~key.is_first_distinct()


def projections_distinct(images: pl.DataFrame) -> Findings:
    """No case has a projection of one breast twice."""
    again = images.filter(repeated("case_id", "laterality", "projection"))
    text = pl.format("{} {} again", pl.col("laterality").fill_null("?"), pl.col("projection").fill_null("?"))
    summary = f"{counted_images(again)} of a projection that the case already has, kept"
    return finding("projections-distinct", summary, items_of(again, text))


def lateralities_present(images: pl.DataFrame) -> Findings:
    """Every image has a laterality, which imported features do not need."""
    absent = images.filter(pl.col("laterality").is_null() & pl.col("laterality_text").is_null())
    summary = f"no laterality of {counted_images(absent)}, which `preprocess` needs"
    return finding("lateralities-present", summary, items_of(absent))


def paths_present(images: pl.DataFrame) -> Findings:
    """Every image has a path, which imported features do not need."""
    absent = images.filter(pl.col("path").is_null())
    summary = f"no path of {counted_images(absent)}, which `preprocess` needs"
    return finding("paths-present", summary, items_of(absent))


def files_distinct(images: pl.DataFrame) -> Findings:
    """No two images have one file."""
    repeated = images.filter(pl.col("path").is_not_null() & pl.col("path").is_duplicated())
    summary = f"{counted_images(repeated)} with the file of another image"
    return finding("files-distinct", summary, items_of(repeated, pl.col("path")))


def _age_order(age: str) -> tuple[bool, int, str]:
    return (not age.isdecimal(), int(age) if age.isdecimal() else 0, age)


# What every manifest must satisfy, and what is worth knowing of every data set.
ERRORS: tuple[Check, ...] = (ids_given, images_distinct, labels_binary, lateralities_known)
WARNINGS: tuple[Check, ...] = (images_plausible, ages_agree, ages_given, standard_images_given)
