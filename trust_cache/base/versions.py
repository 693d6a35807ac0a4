"""What computed a result: the interpreter's and the packages' versions, and the revision of this copy."""

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
    """Return the git revision of this copy: as its wheel was built from, or of the source tree it lies in.

    A tree with changes that are not committed ends in `-dirty`; None where nothing tells.
    """
    recorded = package / REVISION_FILE
    if recorded.is_file():
        return recorded.read_text(encoding="utf-8").strip() or None
    return tree_revision(package.parent)


def tree_revision(tree: Path) -> str | None:
    """Ask git for the revision of a source tree; None if it is none, or without git."""
    git = shutil.which("git")
    if git is None or not (tree / ".git").exists():  # a repository further up is somebody else's
        return None
    words = [git, "-C", str(tree), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603  fixed words
    return done.stdout.strip() or None
