"""The entry point: all commands, and the exit codes of errors."""

import io
import logging
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trust_cache.base.errors import InputError, StoppedError, TrustCacheError
from trust_cache.base.executor import keep_freed_memory
from trust_cache.base.files import DISK_FULL
from trust_cache.base.places import redacted, refuse_credentials
from trust_cache_cli import (
    cache_commands,
    certify_commands,
    extract_commands,
    image_commands,
    machine_commands,
    manifest_commands,
    model_commands,
    report_commands,
    study_commands,
    training_commands,
)
from trust_cache_cli.output import fail


class RedactingGroup(TyperGroup):
    """Commands whose complaints about the words of a command line hide the environment's secrets."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the words name."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if hasattr(error, "format_message"):  # of typer, which prints it itself
                error.message = redacted(error.message)  # type: ignore[attr-defined]
            raise


app = typer.Typer(
    name="trust-cache",
    cls=RedactingGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
INTERNAL_ERROR = 70


def _print_version(wanted: bool) -> None:
    if wanted:
        from trust_cache.base.versions import revision, versions_of

        found = revision()
        typer.echo(f"trust-cache {versions_of()['trust-cache']}{f' ({found})' if found else ''}")
        raise typer.Exit


@app.callback(
    epilog="Results go to stdout, progress and warnings to stderr. Exit codes: 0 done, 1 finished but"
    " some items failed or disagree, 2 wrong use or bad input, 3 stopped early and resumable,"
    " 70 internal error, 130 Ctrl-C."
)
def describe(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Certified dismissal in breast cancer screening.

    From scores of cases to a dismissal threshold with an exact upper bound on the cancer rate below it. A
    case is one screening examination. This is a research tool, not a medical device.
    """


for module in (
    manifest_commands,
    image_commands,
    extract_commands,
    cache_commands,
    training_commands,
    certify_commands,
    study_commands,
    report_commands,
    model_commands,
    machine_commands,
):
    app.add_typer(module.app)


def main() -> None:
    """Run the command line; no traceback for a user's mistake."""
    keep_freed_memory()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # not every pipe can encode a tau
    try:
        for word in sys.argv[1:]:
            refuse_credentials(word)
        try:
            app(prog_name="trust-cache")
        finally:
            sys.stdout.flush()
    except TrustCacheError as error:
        fail(str(error))
        sys.exit(error.exit_code)
    except OSError as error:  # from a file that the user named
        fail(f"{error.filename or 'the output'}: {error.strerror or error}")
        sys.exit(StoppedError.exit_code if error.errno in DISK_FULL else InputError.exit_code)
    except MemoryError:
        fail(
            "there is not enough memory for this command; finished work is kept. Close other programs or"
            " use a machine with more memory (`trust-cache doctor` shows it), try --low-memory or fewer"
            " --workers where the command has them, and run the same command again"
        )
        sys.exit(StoppedError.exit_code)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("trust_cache"):
            fail(
                f"this command needs the package {error.name}, which is not installed:"
                ' pip install "trust-cache[extract]" (images, encoder) or "trust-cache[cluster]"'
            )
            sys.exit(InputError.exit_code)
        logging.getLogger("trust_cache").debug("unexpected", exc_info=True)
        fail(
            f"internal error: {type(error).__name__}: {error}."
            " Please report it with the file that `--log FILE -v` writes"
        )
        sys.exit(INTERNAL_ERROR)


if __name__ == "__main__":
    main()
