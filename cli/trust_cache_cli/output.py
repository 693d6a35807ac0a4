"""Print tables and sentences to stdout; warnings, progress and errors to stderr."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trust_cache.base.places import redacted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from trust_cache.base.text_tables import Table


_PIPE_WIDTH = 180  # columns


def console(*, error: bool = False) -> "Console":
    """Return a console that neither wraps tables in a pipe nor interprets markup in users' text."""
    from rich.console import Console

    made = Console(stderr=error, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _PIPE_WIDTH
    return made


def show_table(table: "Table") -> None:
    """Print one table, numbers aligned right."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(title=Text(redacted(table.title)), title_justify="left", box=box.SIMPLE_HEAD)
    for position, name in enumerate(table.header):
        shown.add_column(Text(redacted(name)), justify="left" if position == 0 else "right")
    for row in table.rows:
        shown.add_row(*(Text(redacted(cell)) for cell in row))
    console().print(shown)
    if table.legend:
        say(table.legend + "\n", style="dim")


def show_list(title: str, items: Iterable[str]) -> None:
    """Print a titled list, or nothing if it is empty."""
    items = list(items)
    if not items:
        return
    say(title, style="bold")
    for item in items:
        say(f"  - {item}")
    say("")


def say(sentence: str, style: str = "", *, error: bool = False) -> None:
    """Print a sentence as one line: a terminal wraps it, a file does not."""
    out = console(error=error)
    out.print(redacted(sentence), style=style, soft_wrap=not out.is_terminal)


def warn(messages: Iterable[str]) -> None:
    """Print warnings to stderr."""
    for message in messages:
        say(f"warning: {message}", style="yellow", error=True)


def note(message: str) -> None:
    """Print a message to stderr that is not a result."""
    say(message, style="dim", error=True)


def note_kept(out: Path, kept: Path | None, what: str = "other results") -> None:
    """Print where the earlier contents of the output were moved, if there were any."""
    if kept is not None:
        note(f"{out} held {what}, now in {kept}")


def fail(message: str) -> None:
    """Print why the command failed."""
    say(f"error: {message}", style="bold red", error=True)


def show_json(document: object) -> None:
    """Print a JSON document, alone on stdout."""
    from trust_cache.base.documents import json_bytes

    sys.stdout.flush()
    content = redacted(json_bytes(document).decode()).encode()
    sys.stdout.buffer.write(content)  # UTF-8 whatever the encoding of the terminal


class Bar:
    """A progress bar, visible from its first report."""

    def __init__(self, progress: "Progress", task: "TaskID") -> None:
        self._progress, self._task = progress, task

    def show(self, done: float, of: int, latest: str = "") -> None:
        """Show how many of how many are done, and the latest news."""
        self._progress.update(self._task, total=of, completed=int(done), visible=True, latest=latest)

    def start(self, of: int, done: int) -> None:
        """Show how many there are, and how many of them were done before."""
        self.show(done, of)

    def advance(self) -> None:
        """Count one more, and show the rate."""
        task = self._progress.tasks[self._task]
        self._progress.advance(self._task)
        self._progress.update(self._task, visible=True, latest=f"{task.speed:.1f}/s" if task.speed else "")

    def announce(self, step: str) -> None:
        """Print the name of a step, and count its parts from zero."""
        out = self._progress.console
        out.print(redacted(step), style="dim", soft_wrap=not out.is_terminal)
        self._progress.reset(self._task, total=None)


@contextmanager
def bars(*titles: str) -> Iterator[list[Bar]]:
    """Show progress bars with the time left on stderr, if it is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    out = console(error=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[latest]}"),
    )  # fmt: skip
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as progress:
        yield [
            Bar(progress, progress.add_task(title, total=None, visible=False, latest="")) for title in titles
        ]


@contextmanager
def bar(title: str, of: int | None = None) -> Iterator[Bar]:
    """Show one progress bar."""
    with bars(title) as (only,):
        if of:
            only.start(of, 0)
        yield only
