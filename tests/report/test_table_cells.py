"""The CSV of a table that people open in a spreadsheet: no name is a formula."""

from trust_cache.base.text_tables import Table
from trust_cache.report.page_tables import table_files


def test_no_cell_is_a_formula() -> None:
    table = Table("t", ("Configuration", "Dismissal"), (("=1+1", "12.5%"), ("@x", "N/A"), ("plain", "-3%")))
    content = table_files(table, "points")["points.csv"].decode()
    assert content.splitlines() == ["Configuration,Dismissal", "'=1+1,12.5%", "'@x,N/A", "plain,'-3%"]
