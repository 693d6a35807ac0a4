"""The examples that `--help` shows, read off the commands themselves."""

from typing import Any

import typer

from trust_cache_cli.main import app

GROUP: Any = typer.main.get_command(app)


def all_examples() -> list[str]:
    """Return every example line of every command."""
    return [line for command in _commands(GROUP) for line in _lines(command)]


def examples_of(*commands: str) -> list[str]:
    """Return the example lines that start with one of these commands."""
    starts = tuple(f"trust-cache {command} " for command in commands)
    return [line for line in all_examples() if f"{line} ".startswith(starts)]


def command_names() -> list[str]:
    """Return the names of the commands and groups of commands."""
    return list(GROUP.commands)


def commands_without_example() -> list[str]:
    """Return the commands whose help shows none."""
    return [command.name for command in _commands(GROUP) if not _lines(command)]


def _commands(group: Any) -> list[Any]:
    found: list[Any] = []
    for command in group.commands.values():
        found += _commands(command) if hasattr(command, "commands") else [command]
    return found


def _lines(command: Any) -> list[str]:
    lines = (line.strip() for line in (command.epilog or "").splitlines())
    return [line for line in lines if line.startswith("trust-cache ")]
