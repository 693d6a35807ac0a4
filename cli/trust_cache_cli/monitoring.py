"""The command monitor."""

from pathlib import Path
from typing import Annotated

import typer

from trust_cache_cli.options import AsJson, Log, Verbose
from trust_cache_cli.output import console, note, say, show_json, show_list, warn

CONTRADICTED = 1

EXAMPLES = """
**Examples**

    trust-cache monitor worklist.csv --outcomes outcomes.csv --model model/

    trust-cache monitor worklist.csv --outcomes outcomes.csv --model model/ --history looks.json --json
"""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog=EXAMPLES)(monitor)


def monitor(
    worklists: Annotated[list[Path], typer.Argument(help="Worklists that `triage` wrote.")],
    outcomes: Annotated[
        Path,
        typer.Option(metavar="FILE", help="A CSV with case_id, label (1: cancer) and, if known, date."),
    ],
    model: Annotated[Path, typer.Option(metavar="DIR", help="The model folder that decided.")],
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where looks are recorded; keep it, without it the count starts anew."
            " [WORKLIST.looks.json beside the first worklist]",
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="One minus the confidence over all looks. [the certificate's]"),
    ] = None,
    looks_before: Annotated[
        int, typer.Option(metavar="N", help="Looks taken earlier that the history does not know of.")
    ] = 0,
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Recalculate a certificate's bound as outcomes of dismissed examinations arrive.

    Dismissed cases without an outcome are counted, and bounded as if each had cancer. Look j spends
    delta / (j (j + 1)), so that all looks together keep the confidence; plan when to look, do not let a
    result decide it. Exit code 1 where the outcomes contradict the certificate. A research tool: not a
    medical device.
    """
    from trust_cache.service.monitor.monitor import monitor as look_at
    from trust_cache.service.monitor.monitor import sentences

    found = look_at(worklists, outcomes, model, history=history, delta=delta, looks_before=looks_before)
    warn(found.warnings)
    if found.repeated:
        note(f"the same data as at look {found.look.number}: nothing further is spent")
    if json:
        show_json(found.as_document())
    else:
        show_list(console(), f"Look {found.look.number}: {found.look.status}", sentences(found))
        say(console(), f"Recorded in {found.history}. Research tool: not a medical device.")
    if found.look.status == "contradicted":
        raise typer.Exit(CONTRADICTED)
