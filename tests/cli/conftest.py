"""The command line as a user meets it: output, errors and exit code."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from trust_cache_cli.main import main


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]
SENTINEL = "Sentinel8f2c"
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_CONNECTION_STRING", "GOOGLE_API_KEY", "HF_TOKEN")


def files_with_the_secret(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [path for path in files if SENTINEL.encode() in path.read_bytes()]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run commands; whatever they do, no secret of the environment is printed or written."""
    for name in SECRETS:
        if name not in os.environ:
            monkeypatch.setenv(name, SENTINEL)

    logger = logging.getLogger("trust_cache")
    before = list(logger.handlers)

    def call(*words: object) -> Outcome:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["trust-cache", *(str(word) for word in words)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        for handler in [one for one in logger.handlers if one not in before]:  # of -v and --log
            logger.removeHandler(handler)
            handler.close()
        printed = capsys.readouterr()
        assert SENTINEL not in printed.out + printed.err
        return Outcome(code, printed.out, printed.err)

    yield call
    assert files_with_the_secret(tmp_path) == []
