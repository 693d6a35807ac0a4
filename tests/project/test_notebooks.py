"""The notebooks run from the first cell to the last and still print what is stored in them."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.project.pages import DOCS

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
LARGEST = 150_000  # bytes


def printed(notebook: Any) -> list[str]:
    """Return what the cells print, without the pictures and the records of the system."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return [
        "".join(output.text)
        for output in outputs
        if output.output_type == "stream" and output.name == "stdout"
    ]


def test_there_are_two_and_they_are_small() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["cache", "scores"]
    for path in NOTEBOOKS:
        assert path.stat().st_size < LARGEST
        notebook = nbformat.read(path, as_version=4)
        assert any(
            "image/svg+xml" in output.get("data", {})
            for cell in notebook.cells
            for output in cell.get("outputs", [])
        )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the kernel's own machinery, which is not this project's
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_prints_what_is_stored(path: Path, tmp_path: Path) -> None:
    shutil.copytree(DOCS / "notebooks", tmp_path / "notebooks")
    notebook = nbformat.read(path, as_version=4)
    stored = printed(notebook)
    client = NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(tmp_path / "notebooks")}}
    )
    asyncio.run(client.async_execute())
    assert printed(notebook) == stored
    assert stored
