"""The folders that a report is made from, told apart by the files in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trust_cache.base.errors import InputError

# In this order: a sweep's or a comparison's folder may hold scores as well.
_SIGNS = {
    "sweep": "sweep.json",
    "compare": "compare.json",
    "certified": "points.json",
    "run": "scores.csv",
}


@dataclass(frozen=True)
class Folders:
    """The run that the page is about, and what else is to stand on it."""

    run: Path
    further: tuple[Path, ...] = ()  # other runs, an external one above all
    certified: tuple[Path, ...] = ()
    sweep: Path | None = None
    compare: Path | None = None


def sort_folders(paths: Sequence[Path]) -> Folders:
    """Tell the folders apart; the first that holds scores is the run."""
    found: dict[str, list[Path]] = {kind: [] for kind in _SIGNS}
    for path in paths:
        found[_kind(path)].append(path)
    if not found["run"]:
        raise InputError(
            "expected a run folder (with scores.csv in it) among"
            f" {', '.join(map(str, paths)) or 'the arguments'}, found none; name the run first"
        )
    for kind in ("sweep", "compare"):
        if found[kind][1:]:
            raise InputError(f"expected one {kind} folder, found {', '.join(map(str, found[kind]))}")
    return Folders(
        run=found["run"][0],
        further=tuple(found["run"][1:]),
        certified=tuple(found["certified"]),
        sweep=next(iter(found["sweep"]), None),
        compare=next(iter(found["compare"]), None),
    )


def _kind(path: Path) -> str:
    if not path.exists():
        raise InputError(f"{path}: no such folder")
    if not path.is_dir():
        if path.suffix.lower() == ".csv":
            return "run"  # scores from elsewhere
        raise InputError(f"{path}: expected a folder or a CSV of scores, found another file")
    for kind, sign in _SIGNS.items():
        if (path / sign).is_file():
            return kind
    raise InputError(
        f"{path}: expected a folder of fit-heads or external (scores.csv), certify (points.json), sweep"
        " (sweep.json) or compare (compare.json), found none of these files in it"
    )
