"""Pages of documentation taken apart: their sections, and the code and commands in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"


def section(title: str, page: Path = README) -> str:
    """Return the text under a heading of the second level."""
    text = page.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def blocks(language: str, text: str) -> list[str]:
    """Return the blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands(text: str) -> list[str]:
    """Return the trust-cache lines of the console blocks."""
    lines = (line for block in blocks("console", text) for line in block.splitlines())
    return [line.split("  # ")[0].rstrip() for line in lines if line.startswith("trust-cache")]


def run_python(text: str) -> None:
    """Run a block of Python. Files that it leaves open would be warnings, and warnings are errors here."""
    closed = re.sub(
        r"open\((\"[^\"]+\")\)",
        r"__import__('io').StringIO(__import__('pathlib').Path(\1).read_text())",
        text,
    )
    exec(compile(closed, "page.md", "exec"), {})  # noqa: S102
