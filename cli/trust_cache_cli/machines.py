"""The command doctor."""

from pathlib import Path
from typing import Annotated

import typer

from trust_cache_cli.options import AsJson, Log, Verbose
from trust_cache_cli.output import console, say, show_json

DOCTOR_EXAMPLES = """
**Examples**

    trust-cache doctor

    trust-cache doctor manifest.csv --views 8 --json
"""
_SIGNS = {"good": "✓", "note": "·", "missing": "✗"}
_STYLES = {"good": "", "note": "", "missing": "yellow"}


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog=DOCTOR_EXAMPLES)(doctor)


def doctor(
    manifest: Annotated[
        Path | None, typer.Argument(help="A manifest: is there room for the cache of its images?")
    ] = None,
    views: Annotated[int, typer.Option(metavar="K", help="Augmented views of each image.")] = 8,
    folder: Annotated[
        Path, typer.Option("--in", metavar="DIR", help="Where the cache would lie. [here]")
    ] = Path(),
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Say what this machine can do, with the command that mends each missing thing.

    A laptop for training and certifying needs nothing of [extract] and [cluster]: what is missing there is
    said, and is no error.
    """
    from trust_cache.service.doctor.doctor import as_document, examine

    findings = examine(folder, manifest, views)
    if json:
        show_json(as_document(findings))
        return
    screen = console()
    for topic in dict.fromkeys(finding.topic for finding in findings):
        say(screen, topic, style="bold")
        for finding in findings:
            if finding.topic == topic:
                sign, style = _SIGNS[finding.state], _STYLES[finding.state]
                say(screen, f"  {sign} {finding.name}: {finding.found}", style=style)
                if finding.mend is not None:
                    say(screen, f"      mend: {finding.mend}", style=style)
    missing = sum(finding.state == "missing" for finding in findings)
    say(screen, f"\n{missing} missing." if missing else "\nNothing is missing.")
