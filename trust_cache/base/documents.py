"""Write readable JSON, and read JSON and TOML into typed records.

A sealed document has a digest of its other keys: one that was edited or cut is refused.

A record is a frozen `msgspec.Struct` or dataclass. A document that does not fit it is an `InputError` that
names the file, the path of the key, what was expected and what was found.
"""

import hashlib
import json
import re
import tomllib
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import msgspec.inspect

from trust_cache.base.digests import canonical_json
from trust_cache.base.errors import InputError, TrustCacheError
from trust_cache.base.places import read_bytes

T = TypeVar("T")
SEAL = "sha256"  # the key of a sealed document for the digest of its other keys
_KEY = re.compile(r"Object (contains unknown|missing required) field `(.*?)`*", re.DOTALL)
_NO_CHOICE = re.compile(r"Invalid enum value (.*)", re.DOTALL)
_WRONG = re.compile(r"Expected `(.*)`, got `(.*)`", re.DOTALL)


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A typed document; keys that it does not name are refused."""

    def as_document(self) -> dict[str, Any]:
        """Return it as plain values, ready for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def json_bytes(document: object) -> bytes:
    """Return a document as readable JSON; NaN and infinity are refused."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    # UTF-8 cannot hold a lone surrogate: it becomes JSON's escape.
    return f"{text}\n".encode(errors="backslashreplace")


def sealed_bytes(document: dict[str, Any]) -> bytes:
    """Return a document as readable JSON with its seal."""
    return json_bytes(seal(document))


def seal(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with its seal, the digest of its other keys."""
    return document | {SEAL: hashlib.sha256(canonical_json(document)).hexdigest()}


def unseal(content: object) -> tuple[Any, bool]:
    """Return a document without its seal, and whether it fits it."""
    if not isinstance(content, dict):
        return content, False
    rest = {name: value for name, value in content.items() if name != SEAL}
    try:
        return rest, seal(rest) == content
    except ValueError:  # Python reads NaN, which JSON does not have
        return rest, False


def parse_json(content: bytes | str) -> Any:
    """Parse JSON; any damage, including endless nesting, is a ValueError."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def parse_toml(content: bytes) -> dict[str, Any]:
    """Parse TOML; any damage, including endless nesting, is a ValueError."""
    try:
        return tomllib.loads(content.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_json(
    path: Path | str, kind: type[T], *, what: str, schema: int | None = None, sealed: bool = False
) -> T:
    """Read a JSON file, of the file system or a URL, as a record of this kind.

    `what` names the document for messages ("the record of a run"). With `schema`, the file's `schema` must
    have this value: a newer one needs a newer trust-cache. With `sealed`, the document must fit its seal. A
    missing file raises FileNotFoundError.
    """
    if not sealed:
        return typed(_content_of(path, what), kind, where=path, what=what, schema=schema)
    found, unchanged = read_sealed(path, kind, what=what, schema=schema)
    if not unchanged:
        raise InputError(
            f"{path}: changed since it was written: its keys do not fit its {SEAL}; copy the whole folder"
            " again, or make it again"
        )
    return found


def read_sealed(path: Path | str, kind: type[T], *, what: str, schema: int | None = None) -> tuple[T, bool]:
    """Read a sealed JSON file as `read_json` does; also return whether it fits its seal."""
    content, unchanged = unseal(_content_of(path, what))
    return typed(content, kind, where=path, what=what, schema=schema), unchanged


def _content_of(path: Path | str, what: str) -> Any:
    try:
        return parse_json(read_bytes(str(path)))
    except (FileNotFoundError, TrustCacheError):
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected {what} as JSON, found an unreadable file ({error})") from error


def typed(
    content: object, kind: type[T], *, where: str | PathLike[str], what: str, schema: int | None = None
) -> T:
    """Return plain values as a record of this kind, or raise an InputError that names the key."""
    if schema is not None:
        found = content.get("schema") if isinstance(content, dict) else None
        if found != schema or isinstance(found, bool):
            newer = isinstance(found, int) and found > schema
            hint = "; a newer file needs a newer trust-cache" if newer else ""
            raise InputError(f"{where}: expected {what} with schema {schema}, found schema {found!r}{hint}")
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: not {what}: {explain(error, kind)}") from error
    except UnicodeEncodeError as error:  # JSON may escape a lone surrogate, which is no character
        raise InputError(f"{where}: not {what}: a text that UTF-8 cannot hold") from error


def explain(error: msgspec.ValidationError, kind: Any = None) -> str:
    """Return msgspec's message in this project's pattern: key, expected, found; `kind` names the words."""
    message, _, path = str(error).rpartition(" - at `") if " - at `" in str(error) else (str(error), "", "")
    key = path.rstrip("`").removeprefix("$").removeprefix(".")
    if match := _KEY.fullmatch(message):
        name = f"{key}.{match[2]}" if key else match[2]
        return (
            f"unknown key {name}"
            if match[1] == "contains unknown"
            else f"expected the key {name}, found none"
        )
    if match := _NO_CHOICE.fullmatch(message):
        words = _words(kind, key)
        message = f"expected {' or '.join(words) if words else 'one of its words'}, found {match[1]}"
    elif match := _WRONG.fullmatch(message):
        message = f"expected {match[1]}, found {match[2]}"
    return f"{key}: {message[:1].lower()}{message[1:]}" if key else message


def _words(kind: Any, key: str) -> tuple[str, ...]:
    """Return the words that a key of a record may be; none where they are not known."""
    fields: Any = getattr(msgspec.inspect.type_info(kind), "fields", ())
    types = [field.type for field in fields if field.encode_name == key]
    types = [part for found in types for part in getattr(found, "types", (found,))]
    return tuple(
        str(word) for part in types if isinstance(part, msgspec.inspect.LiteralType) for word in part.values
    )
