"""Draw the audited cases: a random share of what would be dismissed, read by a person anyway.

A case is drawn if the keyed hash of its case_id, as a number between 0 and 1, is below the share. Without the
key nobody can know or steer the draw; with it anybody can repeat it. It depends on nothing else: not on the
score, the order, the worklist or the number of attempts. A larger share keeps the cases of a smaller one.
"""

import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from blake3 import blake3

from trust_cache.base.errors import InputError, check_fraction
from trust_cache.base.files import open_private, refusals_in_words, sync
from trust_cache.clinic.monitoring.outcomes import DecidedCases
from trust_cache.clinic.worklist import AUDIT, DISMISS, WorklistRow

_KEY_BYTES = 32
_NUMBER_BYTES = 8
_WHOLE = 2 ** (8 * _NUMBER_BYTES)
_PURPOSE = b"trust-cache audit\0"


def key_file(model: Path) -> Path:
    """Return the default place of the key: beside the model folder, never inside it."""
    place = model.resolve()
    return place.with_name(f"{place.name}.audit.key")


def make_or_read_key(path: Path) -> tuple[bytes, bool]:
    """Return the key of a file and whether it was made now: 32 random bytes that only the owner can read."""
    text = f"{secrets.token_hex(_KEY_BYTES)}\n".encode()
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with refusals_in_words(str(path)):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with open_private(scratch, "xb") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(scratch, path)  # fails if another process was faster: its key counts
                sync(path.parent)
                return bytes.fromhex(text.decode()), True
            except FileExistsError:
                pass
            finally:
                scratch.unlink(missing_ok=True)
    return read_key(path), False


def read_key(path: Path) -> bytes:
    """Read a key file; refuse one that others can read."""
    try:
        readable = os.name != "nt" and path.stat().st_mode & 0o077
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; name the key of the audit with --audit-key") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected {2 * _KEY_BYTES} hexadecimal digits, found others") from error
    if readable:
        raise InputError(
            f"{path}: others can read this key, and could know which cases will be audited; run `chmod 600"
            f" {path}`"
        )
    if len(key) != _KEY_BYTES:
        raise InputError(f"{path}: expected {2 * _KEY_BYTES} hexadecimal digits, found {2 * len(key)}")
    return key


def audit_number(case_id: str, key: bytes) -> int:
    """Return the number of a case, uniform from 0 to 2**64 - 1 and the same for the same key."""
    digest = blake3(_PURPOSE + case_id.encode(errors="surrogatepass"), key=key)
    return int.from_bytes(digest.digest(length=_NUMBER_BYTES), "big")


def is_drawn(case_id: str, key: bytes, share: float) -> bool:
    """Return whether a case is audited at this share."""
    return bool(audit_number(case_id, key) < Fraction(str(share)) * _WHOLE)


def mark_audited(rows: Sequence[WorklistRow], key: bytes, share: float) -> tuple[WorklistRow, ...]:
    """Return the rows, with the decision `audit` where a dismissed case is drawn."""
    check_fraction("audit", share)
    return tuple(
        replace(row, decision=AUDIT) if row.decision == DISMISS and is_drawn(row.case_id, key, share) else row
        for row in rows
    )


def draw_problems(decided: DecidedCases, key: bytes) -> list[str]:
    """Return what shows that audited cases were not drawn with this key.

    In each worklist the audited cases must be those with the smallest numbers, whatever the share was.
    """
    problems = []
    for number, keys in enumerate(decided.worklists, start=1):
        rows = [row for key_ in keys if (row := decided.rows[key_]).decision in (AUDIT, DISMISS)]
        audited = [audit_number(row.case_id, key) for row in rows if row.decision == AUDIT]
        least = min(
            (audit_number(row.case_id, key) for row in rows if row.decision == DISMISS), default=_WHOLE
        )
        wrong = sum(value > least for value in audited)
        if wrong:
            problems.append(
                f"worklist {number}: {wrong} of {len(audited)} audited cases were not drawn with this key;"
                " the worklist was changed, or the draw was made with another key"
            )
    return problems
