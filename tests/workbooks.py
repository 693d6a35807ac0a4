"""Write small .xlsx files by hand: the format is a zip of XML files."""

import zipfile
from pathlib import Path

import polars as pl

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def _relations(*targets: tuple[str, str]) -> str:
    items = "".join(
        f'<Relationship Id="rId{number}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, start=1)
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{items}</Relationships>'


def _cell(value: object) -> str:
    if value is None:
        return "<c/>"
    if isinstance(value, bool):
        return f'<c t="b"><v>{int(value)}</v></c>'
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
    return f"<c><v>{value!r}</v></c>"


def _sheet(table: pl.DataFrame) -> str:
    rows = "".join(
        f"<row>{''.join(map(_cell, row))}</row>" for row in (tuple(table.columns), *table.iter_rows())
    )
    return f'<worksheet xmlns="{_SHEETS}"><sheetData>{rows}</sheetData></worksheet>'


def write_workbook(path: Path, **sheets: pl.DataFrame) -> Path:
    """Write one sheet per table; text cells are text, numbers numbers."""
    names = "".join(
        f'<sheet name="{name}" sheetId="{number}" r:id="rId{number}"/>'
        for number, name in enumerate(sheets, start=1)
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("_rels/.rels", _relations(("officeDocument", "xl/workbook.xml")))
        archive.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{_PACKAGE}/content-types">'
            '<Default Extension="xml" ContentType="application/xml"/></Types>',
        )
        archive.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{_SHEETS}" xmlns:r="{_OFFICE}"><sheets>{names}</sheets></workbook>',
        )
        targets = [("worksheet", f"worksheets/sheet{number}.xml") for number in range(1, len(sheets) + 1)]
        archive.writestr("xl/_rels/workbook.xml.rels", _relations(*targets))
        for (_, target), table in zip(targets, sheets.values(), strict=True):
            archive.writestr(f"xl/{target}", _sheet(table))
    return path
