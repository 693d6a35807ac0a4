"""The entry point: the commands put together, and the one place that turns outcomes into exit codes."""

import io
import logging
import sys
from typing import Annotated

import typer

from trust_cache.base.durable import NO_ROOM
from trust_cache.base.errors import InputError, StoppedError, TrustCacheError
from trust_cache_cli import (
    caches,
    certificates,
    comparisons,
    demonstration,
    examinations,
    external,
    extraction,
    images,
    machines,
    manifests,
    models,
    monitoring,
    planning,
    reports,
    rivals,
    sweeps,
    training,
    trajectories,
    weights,
)
from trust_cache_cli.output import fail

app = typer.Typer(
    name="trust-cache",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
OUR_FAULT = 70


def _print_version(wanted: bool) -> None:
    if wanted:
        from trust_cache.base.versions import revision, versions_of

        found = revision()
        typer.echo(f"trust-cache {versions_of()['trust-cache']}{f' ({found})' if found else ''}")
        raise typer.Exit


@app.callback(
    epilog="Results go to stdout, progress and warnings to stderr. Exit codes: 0 done, 1 finished but"
    " something failed or does not agree, 2 wrong use or bad input, 3 stopped early and resumable,"
    " 70 our own fault, 130 Ctrl-C."
)
def describe(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Certified dismissal in breast cancer screening.

    From scores of examinations to a dismissal threshold with an exact upper bound on the cancer rate
    below it. A research tool: not a medical device.
    """


manifests.register(app)
images.register(app)
weights.register(app)
extraction.register(app)
caches.register(app)
training.register(app)
certificates.register(app)
comparisons.register(app)
external.register(app)
reports.register(app)
sweeps.register(app)
trajectories.register(app)
planning.register(app)
rivals.register(app)
models.register(app)
examinations.register(app)
monitoring.register(app)
machines.register(app)
demonstration.register(app)


def main() -> None:
    """Run the command line; no traceback for a user's mistake."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a pipe that is not UTF-8 cannot show a tau
    try:
        try:
            app(prog_name="trust-cache")
        finally:
            sys.stdout.flush()
    except TrustCacheError as error:
        fail(str(error))
        sys.exit(error.exit_code)
    except OSError as error:  # of a file that the user named, wherever it was touched
        fail(f"{error.filename or 'the output'}: {error.strerror or error}")
        sys.exit(StoppedError.exit_code if error.errno in NO_ROOM else InputError.exit_code)
    except MemoryError:
        fail("there is not enough memory for this; nothing was written")
        sys.exit(StoppedError.exit_code)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("trust_cache"):
            fail(
                f"this needs the package {error.name}, which is not installed here:"
                ' pip install "trust-cache[extract]" (images, encoder) or "trust-cache[cluster]"'
            )
            sys.exit(InputError.exit_code)
        logging.getLogger("trust_cache").debug("unexpected", exc_info=True)
        fail(
            f"an error of trust-cache itself: {type(error).__name__}: {error}."
            " Please report it with the file that `--log FILE -v` writes"
        )
        sys.exit(OUR_FAULT)


if __name__ == "__main__":
    main()
