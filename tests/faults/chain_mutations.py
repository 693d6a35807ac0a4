"""Changes to artefacts between two commands: files, rows, cells, keys, shards with their marks."""

import csv
import io
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Change = Callable[[Path, random.Random, list[Path], Path], str | None]
"""(file, random, all files of the artefact, the same file of another pipeline) -> what was done, or None
where it does not apply."""


def delete(file: Path, _draw: random.Random, _files: list[Path], _other: Path) -> str | None:
    file.unlink()
    return "deleted"


def truncate(file: Path, draw: random.Random, _files: list[Path], _other: Path) -> str | None:
    content = file.read_bytes()
    if not content:
        return None
    file.write_bytes(content[: draw.randrange(len(content))])
    return "truncated"


def flip(file: Path, draw: random.Random, _files: list[Path], _other: Path) -> str | None:
    content = bytearray(file.read_bytes())
    if not content:
        return None
    at = draw.randrange(len(content))
    content[at] ^= 1 << draw.randrange(8)
    file.write_bytes(bytes(content))
    return f"flipped a bit of byte {at}"


def repeat(file: Path, _draw: random.Random, _files: list[Path], _other: Path) -> str | None:
    file.write_bytes(file.read_bytes() * 2)
    return "doubled"


def swap(file: Path, draw: random.Random, files: list[Path], _other: Path) -> str | None:
    alike = [path for path in files if path.suffix == file.suffix and path != file]
    if not alike:
        return None
    partner = draw.choice(alike)
    one, two = file.read_bytes(), partner.read_bytes()
    file.write_bytes(two)
    partner.write_bytes(one)
    return f"swapped with {partner.name}"


def swap_shards(file: Path, draw: random.Random, files: list[Path], other: Path) -> str | None:
    """Exchange two shards of a Zarr cache together with their marks."""
    if file.parent.name not in ("features", "marks") or not file.name.startswith("c"):
        return None
    shards = sorted(
        {path.name.split(".")[1] for path in files if path.parent.name == "marks" and "." in path.name}
    )
    numbers = [number for number in shards if number.isdecimal()]
    if len(numbers) < 2:
        return None
    one, two = draw.sample(numbers, 2)
    root = file.parent.parent
    for name in (f"features/c.{one}.0.0", f"marks/c.{one}.0"):
        swap_with = root / name.replace(f"c.{one}.", f"c.{two}.")
        held = (root / name).read_bytes()
        (root / name).write_bytes(swap_with.read_bytes())
        swap_with.write_bytes(held)
    del other
    return f"shards {one} and {two} exchanged with their marks"


def take_other(file: Path, _draw: random.Random, _files: list[Path], other: Path) -> str | None:
    """Put the same file of another pipeline in its place."""
    if not other.is_file() or other.read_bytes() == file.read_bytes():
        return None
    shutil.copyfile(other, file)
    return "replaced by that of another pipeline"


def change_table(file: Path, draw: random.Random, _files: list[Path], _other: Path) -> str | None:
    """Delete, repeat, move or exchange rows; exchange or edit cells."""
    if file.suffix != ".csv":
        return None
    header, *rows = list(csv.reader(io.StringIO(file.read_text(encoding="utf-8"))))
    if len(rows) < 2:
        return None
    one, two = draw.sample(range(len(rows)), 2)
    column = draw.randrange(len(header))
    kind = draw.choice(
        ["delete rows", "repeat a row", "reverse rows", "exchange cells", "edit a cell", "columns"]
    )
    if kind == "delete rows":
        del rows[one : one + draw.randrange(1, 4)]
    elif kind == "repeat a row":
        rows.insert(two, rows[one])
    elif kind == "reverse rows":
        rows.reverse()
    elif kind == "exchange cells":
        rows[one][column], rows[two][column] = rows[two][column], rows[one][column]
    elif kind == "columns":
        other = draw.randrange(len(header))
        for row in (header, *rows):
            row[column], row[other] = row[other], row[column]
    else:
        rows[one][column] = draw.choice(["", "0", "1", "0.5", "L", "R", "x", "dismiss", "review", "true"])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    if text.getvalue().encode() == file.read_bytes():
        return None
    file.write_text(text.getvalue(), encoding="utf-8")
    return f"{kind} ({header[column]})"


def change_document(file: Path, draw: random.Random, _files: list[Path], _other: Path) -> str | None:
    """Delete a key or an entry, reorder a list, or give a key another value, at any depth."""
    if file.suffix not in (".json", ".jsonl"):
        return None
    try:
        lines = (
            file.read_text(encoding="utf-8").splitlines() if file.suffix == ".jsonl" else [file.read_text()]
        )
        at = draw.choice([number for number, line in enumerate(lines) if line.strip()])
        document = json.loads(lines[at])
    except (ValueError, IndexError):
        return None
    before = json.dumps(document)
    done = _change_inside(document, draw)
    if json.dumps(document) == before:
        return None
    lines[at] = json.dumps(document, indent=None if file.suffix == ".jsonl" else 2, ensure_ascii=False)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return done


def _change_inside(document: Any, draw: random.Random) -> str:
    node, key = document, None
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return "nothing"
        key = draw.choice(keys)
        child = node[key]
        if not (isinstance(child, dict | list) and child) or draw.random() < 0.2:
            break
        node = child
    kind = draw.choice(["delete", "other value", "reorder"])
    if kind == "delete":
        del node[key]
    elif kind == "reorder" and isinstance(node[key], list):
        node[key].reverse()
    else:
        node[key] = _other_value(node[key], draw)
    return f"{kind} {key}"


def _other_value(value: Any, draw: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return draw.choice([0, 1, value + 1, value / 2, -value])
    if isinstance(value, str):
        return draw.choice(["", "x", value[::-1], value + "0"])
    return draw.choice([None, 0, "x", []])


CHANGES: tuple[Change, ...] = (
    delete, truncate, flip, repeat, swap, swap_shards, take_other, change_table, change_document,
)  # fmt: skip
