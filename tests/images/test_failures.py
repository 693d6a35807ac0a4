"""failures.csv and warnings.csv: opened in a spreadsheet it runs nothing, read back it says the same."""

import csv
import io

import pytest

from trust_cache.images.image_failures import (
    Failure,
    ImageWarning,
    failures_bytes,
    parse_failures,
    parse_warnings,
    warnings_bytes,
)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "'", "''="])
def test_no_cell_is_a_formula_and_nothing_is_lost(start: str) -> None:
    rows = (
        Failure(f"{start}HYPERLINK(1)", "read", f"{start}cmd|' /C calc'!A0"),
        Failure("x=1", "mask", "none"),
    )
    content = failures_bytes(rows)
    cells = [cell for row in csv.reader(io.StringIO(content.decode())) for cell in row]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells)
    assert "x=1" in cells  # what begins no formula stays as it is
    assert set(parse_failures(content)) == set(rows)
    warnings = (ImageWarning(f"{start}A1", f"{start}1+1"), ImageWarning(f"{start}A1", "second"))
    content = warnings_bytes(warnings)
    cells = [cell for row in csv.reader(io.StringIO(content.decode())) for cell in row]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells)
    assert parse_warnings(content) == warnings
