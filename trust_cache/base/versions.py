"""What computed a result: the interpreter's and the packages' versions."""

import platform
from importlib.metadata import version


def versions_of(*packages: str) -> dict[str, str]:
    """Return the versions of Python, of trust-cache and of these packages."""
    names = ("trust-cache", *packages)
    return {"python": platform.python_version()} | {name: version(name) for name in names}
