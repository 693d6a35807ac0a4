"""JSON and TOML documents: written readable, in UTF-8, never NaN; read so that all damage is a ValueError."""

import json
import tomllib
from typing import Any


def json_bytes(document: object) -> bytes:
    """Return a document as readable JSON; NaN and infinity have no place in it."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    # A lone surrogate, which UTF-8 cannot write, becomes the escape that JSON has for it.
    return f"{text}\n".encode(errors="backslashreplace")


def parse_json(content: bytes | str) -> Any:
    """Return a JSON document; whatever is wrong with it is a ValueError, nesting without end too."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def parse_toml(content: bytes) -> dict[str, Any]:
    """Return a TOML document; whatever is wrong with it is a ValueError, nesting without end too."""
    try:
        return tomllib.loads(content.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
