"""Synthetic metadata files: the public sets with their published counts and traps, and small ones."""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

RSNA_HEADER = (
    "site_id", "patient_id", "image_id", "laterality", "view", "age", "cancer", "biopsy", "invasive",
    "BIRADS", "implant", "density", "machine_id", "difficult_negative_case",
)  # fmt: skip
NLBS_HEADER = (
    "File Path", "Anode Target Material", "Energy Settings", "Exam Date", "Image Laterality",
    "View Position", "Age", "Window Center", "Window Width", "Collimator Shape", "Collimator Left",
    "Collimator Right", "Collimator Upper", "Collimator Lower", "Cancer", "Hard to State Negative",
)  # fmt: skip
FOUR = (("L", "CC"), ("L", "MLO"), ("R", "CC"), ("R", "MLO"))
SIDES = {"L": "left", "R": "right"}


def write_table(path: Path, header: Iterable[str], rows: Iterable[Mapping[str, object]]) -> Path:
    header = list(header)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header)
        writer.writeheader()
        writer.writerows(rows)
    return path


def rsna_row(
    patient: int, image: int, side: str, view: str, cancer: int = 0, age: str = "61.0"
) -> dict[str, object]:
    return dict(
        zip(
            RSNA_HEADER,
            (1, patient, image, side, view, age, cancer, 0, 0, "", 0, "B", 49, "False"),
            strict=True,
        )
    )


def nlbs_row(
    category: str, case: str, side: str, view: str, number: int = 1, cancer: int = 0, age: str = "61"
) -> dict[str, object]:
    folder = SIDES[side] + ("-c" if cancer else "")
    path = "\\".join((category, case, folder, view, f"IM-0100-{number:04d}-0001.dcm"))
    window = "[[2797, 2851, 2683]]" if number % 2 else "[820]"
    cells = (
        path, "RHODIUM", "29", "nan", side, view, age, window, "nan", "RECTANGULAR", 0, 1914, 0, 2294,
        cancer, 0,
    )  # fmt: skip
    return dict(zip(NLBS_HEADER, cells, strict=True))


def rsna_rows() -> list[dict[str, object]]:
    """RSNA's counts: 492 positive breasts of 486 patients, up to 14 images a patient, 37 without age."""
    rows: list[dict[str, object]] = []
    for number in range(11_913):
        positive = number < 486
        sides = {"L", "R"} if number < 6 else {"L"} if positive else set()
        extras = (
            int(number < 174) if positive else int(number - 486 < 6_870) + (10 if number == 11_912 else 0)
        )
        kinds = FOUR + (("L", "AT"),) * extras
        age = "" if 500 <= number < 507 else "61.0"  # five images each, and two more below
        for side, view in kinds:
            image = 1_000_000 + 17 * len(rows)
            rows.append(rsna_row(10_000 + number, image, side, view, int(side in sides), age))
    rows[-1]["age"] = rows[-2]["age"] = ""
    return rows


def nlbs_rows() -> list[dict[str, object]]:
    """NLBS's counts and traps: a case of 180 images, 320 of several ages, 1,073 ages missing, 88 short."""
    rows: list[dict[str, object]] = []
    for number in range(4_332):
        case = f"p_{number:04d}"
        extras = 176 if number == 3_280 else int(number < 2_438)
        for index, (side, view) in enumerate(FOUR + (("R", "MLO"),) * extras):
            age = 61 + index % 15 if number == 3_280 else 62 if number < 319 and index == 3 else 61
            rows.append(nlbs_row("normal", case, side, view, index, age=str(age)))
    for number in range(1_516):
        kinds = FOUR[:3] if number < 88 else FOUR + (("L", "CC"),) * int(number < 88 + 418)
        for index, (side, view) in enumerate(kinds):
            rows.append(nlbs_row("False Positive", f"p_{5_000 + number}", side, view, index))
    for row in rows[-1_073:]:
        row["Age"] = "nan"
    for number in range(149):
        extra = (("L", "CC"),) * int(number < 39) + (("R", "CC"),) * int(39 <= number < 56)
        for index, (side, view) in enumerate(FOUR + extra):
            rows.append(nlbs_row("abnormal", f"p_{7_000 + number}", side, view, index, int(side == "L")))
    return rows


def write_rsna(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    return write_table(path, RSNA_HEADER, rows)


def write_nlbs(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    return write_table(path, NLBS_HEADER, rows)


def few_rsna() -> list[dict[str, object]]:
    """Two whole cases, the second with cancer on the left; ids with leading zeros would be text."""
    return [
        rsna_row(10 + case, 100 * case + index, side, view, int(case == 1 and side == "L"))
        for case in range(2)
        for index, (side, view) in enumerate(FOUR)
    ]


def few_nlbs() -> list[dict[str, object]]:
    """Three whole cases, one of each category."""
    return [
        nlbs_row(category, f"p_000{case}", side, view, index, int(category == "abnormal" and side == "R"))
        for case, category in enumerate(("normal", "False Positive", "abnormal"))
        for index, (side, view) in enumerate(FOUR)
    ]


def touch_files(folder: Path, paths: Iterable[str]) -> None:
    for path in paths:
        file = folder / path.replace("\\", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"DICM")
