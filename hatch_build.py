"""The build's one step of its own: a wheel carries the git revision that it was built from."""

import importlib.util
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RevisionHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts `trust_cache/revision.txt` into what is built, where git or an earlier build knows it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file to the wheel; an editable install asks git itself."""
        root = Path(self.root)
        source = root / "trust_cache" / "base" / "versions.py"
        spec = importlib.util.spec_from_file_location("versions", source)
        assert spec is not None and spec.loader is not None  # noqa: PT018  it is a file of this tree
        versions = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(versions)
        found = versions.revision(root / "trust_cache")
        if found is None or version == "editable":
            return
        self._scratch = TemporaryDirectory()
        path = Path(self._scratch.name) / versions.REVISION_FILE
        path.write_text(found + "\n", encoding="utf-8")
        build_data["force_include"][str(path)] = f"trust_cache/{versions.REVISION_FILE}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the file once it is packed."""
        if hasattr(self, "_scratch"):
            self._scratch.cleanup()
