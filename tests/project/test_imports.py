"""What an import costs: the certificate needs neither torch nor zarr nor the command line's libraries."""

import subprocess
import sys

import pytest

import trust_cache
from tests.project.examples import GROUP
from tests.project.test_plain_words import help_texts


def modules_after(code: str) -> set[str]:
    words = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(words, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import trust_cache.certificate",
        "import trust_cache.certificate.certify, trust_cache.certificate.verify",
        "from trust_cache import certify, select_threshold, clopper_pearson_upper",
    ],
)
def test_the_certificate_is_light(code: str) -> None:
    assert not modules_after(code) & {"torch", "zarr", "typer", "h5py", "numba", "sklearn", "rich"}


def test_the_package_and_the_command_line_import_lazily() -> None:
    heavy = {"numpy", "scipy", "polars", "torch", "zarr"}
    assert not modules_after("import trust_cache") & heavy
    assert not modules_after("import trust_cache_cli.main") & heavy


def test_help_of_every_command_imports_lazily() -> None:
    """Help must answer within half a second (`python -m benchmarks start`): it loads no numeric library."""
    words = [path.split()[1:] for path in help_texts(GROUP)]
    code = f"""
import contextlib, io, sys
from trust_cache_cli.main import main
for words in {words!r}:
    sys.argv = ["trust-cache", *words, "--help"]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
        main()
    assert "Usage" in out.getvalue(), words
"""
    assert len(words) > 20
    assert not modules_after(code) & {"numpy", "scipy", "polars", "torch", "zarr"}


def test_every_public_name_is_there() -> None:
    for name in trust_cache.__all__:
        assert callable(getattr(trust_cache, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = trust_cache.nothing
