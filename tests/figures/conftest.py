"""The command line for figures of its folders."""

from tests.cli.conftest import run

__all__ = ["run"]
