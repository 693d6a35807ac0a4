"""What people see: tables and sentences on stdout, warnings, progress and errors on stderr."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from trust_cache.base.text_tables import Table

_WIDTH_OF_A_PIPE = 180  # columns; a terminal tells its own


def console(*, error: bool = False) -> "Console":
    """Return a console that neither wraps tables in a pipe nor marks up what users wrote."""
    from rich.console import Console

    made = Console(stderr=error, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _WIDTH_OF_A_PIPE
    return made


def show_table(out: "Console", table: "Table") -> None:
    """Print one table, numbers to the right."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(title=Text(table.title), title_justify="left", box=box.SIMPLE_HEAD)
    for position, name in enumerate(table.header):
        shown.add_column(Text(name), justify="left" if position == 0 else "right")
    for row in table.rows:
        shown.add_row(*(Text(cell) for cell in row))
    out.print(shown)
    if table.legend:
        say(out, table.legend + "\n", style="dim")


def show_list(out: "Console", title: str, items: Iterable[str]) -> None:
    """Print a titled list."""
    say(out, title, style="bold")
    for item in items:
        say(out, f"  - {item}")
    out.print()


def say(out: "Console", sentence: str, style: str = "") -> None:
    """Print a sentence as one line: a terminal wraps it, a file keeps it whole."""
    out.print(sentence, style=style, soft_wrap=not out.is_terminal)


def warn(messages: Iterable[str]) -> None:
    """Print warnings to stderr."""
    out = console(error=True)
    for message in messages:
        say(out, f"warning: {message}", style="yellow")


def note(message: str) -> None:
    """Print a remark that is no result to stderr."""
    say(console(error=True), message, style="dim")


def fail(message: str) -> None:
    """Print the one sentence that explains why nothing came of it."""
    say(console(error=True), f"error: {message}", style="bold red")


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar with the time left on stderr (only for people); yield what advances it."""
    out = console(error=True)
    if total == 0 or not out.is_terminal:
        yield lambda: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=out, transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def work_bars(
    work: str,
) -> Iterator[tuple[Callable[[int, int], None], Callable[[float, int, str], None]]]:
    """Show people the shards while they load, then the work with the time left and a word on it.

    Yield what takes shards (done, of) and what takes the work's own (done, of, the latest word).
    """
    out = console(error=True)
    if not out.is_terminal:
        yield (lambda _done, _of: None), (lambda _done, _of, _latest: None)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[latest]}"),
    )  # fmt: skip
    with Progress(*columns, console=out, transient=True) as bars:
        loading = bars.add_task("loading shards", total=None, latest="")
        working = bars.add_task(work, total=None, visible=False, latest="")

        def on_shard(done: int, of: int) -> None:
            bars.update(loading, total=of, completed=done)

        def on_work(done: float, of: int, latest: str) -> None:
            bars.update(working, total=of, completed=int(done), visible=True, latest=latest)

        yield on_shard, on_work


def show_json(document: object) -> None:
    """Print a document for a program to read, alone on stdout."""
    from trust_cache.base.documents import json_bytes

    sys.stdout.flush()
    sys.stdout.buffer.write(json_bytes(document))  # UTF-8 whatever the terminal speaks
