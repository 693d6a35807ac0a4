"""Run the notebooks and store what their cells show, and nothing else.

From the top of the project: python docs/refresh_notebooks.py
"""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent / "notebooks"


def main() -> None:
    """Run each notebook in its folder."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
        for cell in notebook.cells:
            cell.metadata.clear()
            for output in cell.get("outputs", []):
                output.get("metadata", {}).clear()
                if "image/svg+xml" in output.get("data", {}):
                    output.data.pop("text/plain", None)
        notebook.metadata["language_info"] = {"name": "python"}  # not the version of this machine
        nbformat.write(notebook, path)
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
