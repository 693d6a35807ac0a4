"""The command export-model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache_cli.options import AsJson, Log, Threads, Verbose
from trust_cache_cli.output import console, note, say, show_json, warn

if TYPE_CHECKING:
    from trust_cache.service.models.folder import StoredModel

EXAMPLES = """
**Examples**

    trust-cache export-model run/ --configuration closed-loop --out model/

    trust-cache export-model external/ --configuration closed-loop --out model/ --target 0.95
"""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("export-model", epilog=EXAMPLES)(export_model)


def export_model(
    run: Annotated[Path, typer.Argument(help="A run folder of fit-heads or external.")],
    configuration: Annotated[str, typer.Option(metavar="NAME", help="Which of its configurations.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The model folder to write.")],
    target: Annotated[float, typer.Option(metavar="R", help="The recall that the threshold keeps.")] = 0.98,
    cache: Annotated[
        str | None,
        typer.Option(metavar="CACHE", help="The cache it was trained on. [where the run found it]"),
    ] = None,
    target_cache: Annotated[
        str | None,
        typer.Option(
            metavar="CACHE", help="Of an external run: the cache it was scored on. [where the run found it]"
        ),
    ] = None,
    certified: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Of an external run: its certificates. [certified/ in the run]"),
    ] = None,
    threads: Threads = None,
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Put one head with its threshold into a model folder for `triage`.

    From a run of `fit-heads` the head is refit on the whole cache, and not certified: no case is left that it
    never saw. From a run of `external` it is that very head, with its certificate if the target was met. A
    model without one is certified on new cases by `certify --model`.
    """
    from trust_cache.service.models.export import export_model as export

    with _bar() as on_epoch:
        made = export(
            run,
            out,
            configuration=configuration,
            target=target,
            cache=cache,
            target_cache=target_cache,
            certified=certified,
            threads=threads,
            on_epoch=on_epoch,
        )
    warn(made.warnings)
    if made.kept is not None:
        note(f"{out} held another model: it is kept in {made.kept}")
    if json:
        show_json(_document(made.stored))
    else:
        _show(made.stored)


def _document(stored: "StoredModel") -> dict[str, object]:
    model = stored.model
    return {
        "folder": str(stored.folder),
        "sha256": stored.sha256,
        "configuration": model.configuration,
        "origin": model.origin,
        "tau": model.threshold.tau,
        "target": model.threshold.target,
        "chosen_by": model.threshold.chosen_by,
        "certified": model.certified,
        "bound": None if model.certificate is None else model.certificate["bound"],
    }


def _show(stored: "StoredModel") -> None:
    from trust_cache.base.text_tables import confidence, percent, whole_percent

    model, screen = stored.model, console()
    threshold = "no threshold" if model.threshold.tau is None else f"tau {model.threshold.tau:.6g}"
    say(
        screen,
        f"Written to {stored.folder}: the {model.configuration} head ({model.origin}), {threshold} for"
        f" {whole_percent(model.threshold.target)} recall, chosen by {model.threshold.chosen_by}.",
    )
    if model.certificate is not None:
        bound, sure = percent(model.certificate["bound"]), confidence(model.certificate["delta"])
        say(
            screen,
            f"Certified: with {sure} confidence at most {bound} of dismissed cases like those have cancer.",
        )
        return
    say(
        screen,
        "Not certified: triage writes review for every examination. Certify it on cases it never saw:"
        f" trust-cache certify --model {stored.folder} --cache new.zarr --out certified/ --attach",
    )


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """Show people the epochs of a refit and the time left."""
    out = console(error=True)
    if not out.is_terminal:
        yield lambda _done, _of: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("training epochs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, of: bar.update(task, total=of, completed=done)
