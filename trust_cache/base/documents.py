"""JSON documents as every command writes them: readable, UTF-8, never NaN."""

import json


def json_bytes(document: object) -> bytes:
    """Return a document as readable JSON; NaN and infinity have no place in it."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    # A lone surrogate, which UTF-8 cannot write, becomes the escape that JSON has for it.
    return f"{text}\n".encode(errors="backslashreplace")
