"""The versions of Python and packages, and the git revision, that computed a result."""

import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

REVISION_FILE = "revision.txt"  # in the package of a built wheel; a source tree has git instead
_PACKAGE = Path(__file__).parents[1]


def versions_of(*packages: str) -> dict[str, str]:
    """Return the versions of Python, of trust-cache and of these packages."""
    names = ("trust-cache", *packages)
    return {"python": platform.python_version()} | {name: version(name) for name in names}


def revision(package: Path = _PACKAGE) -> str | None:
    """Return the git revision that the wheel was built from, or that of the source tree.

    It ends in `-dirty` if the tree has uncommitted changes; None if it is unknown.
    """
    recorded = package / REVISION_FILE
    if recorded.is_file():
        return recorded.read_text(encoding="utf-8").strip() or None
    return tree_revision(package.parent)


def tree_revision(tree: Path) -> str | None:
    """Ask git for the revision of a source tree; None for any other folder, or without git."""
    git = shutil.which("git")
    if git is None or not (tree / ".git").exists():  # a repository further up is another project
        return None
    words = [git, "-C", str(tree), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603  fixed arguments
    return done.stdout.strip() or None
