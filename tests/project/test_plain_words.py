"""Help texts, source text and documents contain none of the words that the glossary replaced."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.project.examples import GROUP

ROOT = Path(__file__).parents[2]
REPLACED = {
    "warrant": r"\b(?:un)?warrant(?:s|ed|ing|y|ies)?\b",
    "invented": r"\b(?:re)?invent(?:s|ed|ing|ion|ions|ive)?\b",
    "elsewhere": r"\belsewhere\b",
    "foreign": r"\bforeign(?:er|ers)?\b",
    "oddity": r"\boddit(?:y|ies)\b",
    "remark": r"\bremark(?:s|ed|ing|able|ably)?\b",
    "mend": r"\bmend(?:s|ed|ing)?\b",
    "goes on": r"\b(?:go|goes|going|gone|went)\s+on\b",
    "by that word": r"\bby\s+(?:that|this|those|these)\s+words?\b",
}
SOURCES = sorted(
    path
    for folder in ("trust_cache", "cli", "benchmarks", "docs", "data_manifests", ".")
    for pattern in ("*.py", "*.md", "*.toml")
    for path in ((ROOT / folder).glob(pattern) if folder == "." else (ROOT / folder).rglob(pattern))
)


def found_in(text: str) -> list[str]:
    """Return the replaced words in a text; names in code count word by word."""
    words = re.sub(r"[_\s]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text))
    return [name for name, pattern in REPLACED.items() if re.search(pattern, words, re.IGNORECASE)]


def help_texts(command: Any, path: str = "trust-cache") -> dict[str, str]:
    """Return all that `--help` shows, by command."""
    options = (getattr(parameter, "help", None) for parameter in command.params)
    names = (name for parameter in command.params for name in (*parameter.opts, parameter.metavar))
    texts = (command.help, command.short_help, command.epilog, *options, *names)
    found = {path: "\n".join(text for text in texts if text)}
    for name, inner in getattr(command, "commands", {}).items():
        found |= help_texts(inner, f"{path} {name}")
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It warrants\nmending.", ["warrant", "mend"]),
        ("refuse_foreign(INVENTED)", ["invented", "foreign"]),
        ("Oddities, remarkably, went\n  on elsewhere.", ["elsewhere", "oddity", "remark", "goes on"]),
        ("class ForeignFile: known by that word", ["foreign", "by that word"]),
        ("We recommend the amendment: an inventory of odd numbers; based on it, ongoing.", []),
    ],
)
def test_words_are_found_in_any_form(text: str, words: list[str]) -> None:
    assert found_in(text) == words


@pytest.mark.parametrize(("command", "text"), help_texts(GROUP).items(), ids=lambda item: item[:40])
def test_help_is_plain(command: str, text: str) -> None:
    assert text, command
    assert found_in(text) == []


def test_sources_and_documents_are_plain() -> None:
    """String literals, docstrings, comments and names alike: the whole text of every file."""
    assert len(SOURCES) > 150
    found = {path.relative_to(ROOT): found_in(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {path: words for path, words in found.items() if words} == {}
