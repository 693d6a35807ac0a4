"""How long a user waits for help: `trust-cache --help` beside a typer command that does nothing."""

import subprocess
import sys

from benchmarks.memory import children_seconds

AT_MOST_SECONDS, AT_MOST_RIVAL = 0.5, 2.0
BARE = "import typer\napp = typer.Typer()\n@app.command()\ndef one() -> None:\n    pass\napp()"


def run() -> bool:
    """Print processor seconds and their ratio; return whether the targets were met."""
    ours = _best([sys.executable, "-m", "trust_cache_cli", "--help"])
    rival = _best([sys.executable, "-c", BARE, "--help"])
    print(f"trust-cache --help: {ours:.2f} s of processor time, {ours / rival:.2f}x of a bare typer command")
    return ours <= AT_MOST_SECONDS and ours / rival <= AT_MOST_RIVAL


def _best(command: list[str]) -> float:
    return min(_processor_seconds(command) for _ in range(5))


def _processor_seconds(command: list[str]) -> float:
    before = children_seconds()
    subprocess.run(command, check=True, capture_output=True)
    return children_seconds() - before
