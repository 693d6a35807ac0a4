"""The README taken apart: its sections, and the code and commands in them."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def section(title: str) -> str:
    """Return the text under a heading."""
    text = README.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def titles() -> list[str]:
    """Return the headings in their order."""
    return re.findall(r"^## (.+)$", README.read_text(encoding="utf-8"), flags=re.MULTILINE)


def blocks(language: str, text: str | None = None) -> list[str]:
    """Return the blocks of a language, of the whole README or a part of it."""
    text = README.read_text(encoding="utf-8") if text is None else text
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands(title: str) -> list[str]:
    """Return the trust-cache lines under a heading."""
    lines = (line for block in blocks("console", section(title)) for line in block.splitlines())
    return [line for line in lines if line.startswith("trust-cache")]
