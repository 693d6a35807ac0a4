"""sweep.json: what a sweep is, which settings it has, and how often evaluation was looked at."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from trust_cache.base.digests import rows_sha256
from trust_cache.base.documents import json_bytes, parse_json
from trust_cache.base.errors import InputError
from trust_cache.base.files import write_file
from trust_cache.base.versions import versions_of
from trust_cache.heads.settings import HeadSettings, head_settings
from trust_cache.studies.sweep.catalogue import Bank, cut_banks, find_axes, in_order, name_setting

SCHEMA = 1
NAME = "sweep.json"
TRAINING, FINISHED = "training", "finished"
IDENTITY = (
    "seeds", "repeats", "views", "training", "targets", "delta", "rule", "fingerprint", "images", "dim",
    "manifest_sha256", "splits_sha256", "split_sha256",
)  # fmt: skip


@dataclass(frozen=True)
class Look:
    """One look at the evaluation subset: the settings that the winner was chosen from, by their digest."""

    settings: int
    settings_sha256: str
    after_showing: bool = False  # whether evaluation of single settings had been shown before
    winners: dict[str, str] = field(default_factory=dict)  # target -> setting


@dataclass(frozen=True)
class Record:
    """The state of a sweep; everything in its folder follows from it and the scores."""

    identity: dict[str, Any]
    banks: tuple[Bank, ...] = ()
    looks: tuple[Look, ...] = ()
    shown: frozenset[str] = frozenset()  # settings whose evaluation was shown, for good

    @cached_property
    def settings(self) -> tuple[HeadSettings, ...]:
        """All settings in their one order."""
        return in_order(item for bank in self.banks for item in bank.settings)

    @property
    def compared(self) -> int:
        """What delta is divided by: settings x targets x looks at evaluation."""
        return len(self.settings) * len(self.identity["targets"]) * max(len(self.looks), 1)

    def extended(self, settings: Iterable[HeadSettings]) -> "Record":
        """Return the record with the settings that it lacks, cut into banks of their own."""
        known = set(self.settings)
        new = in_order(item for item in settings if item not in known)
        return replace(self, banks=self.banks + cut_banks(new))

    def looked(self, *, show: bool) -> "Record":
        """Return the record with this look counted; the same settings again are the same look."""
        names = [name_setting(item) for item in self.settings]
        look = Look(len(names), rows_sha256([[name] for name in names]), bool(self.shown))
        same = self.looks and self.looks[-1].settings_sha256 == look.settings_sha256
        looks = self.looks if same else (*self.looks, look)
        return replace(self, looks=looks, shown=self.shown | frozenset(names if show else ()))

    def won(self, winners: Mapping[str, str]) -> "Record":
        """Return the record with the winners of its last look."""
        looks = (*self.looks[:-1], replace(self.looks[-1], winners=dict(winners)))
        return replace(self, looks=looks)


def as_document(record: Record, status: str, further: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of sweep.json."""
    settings = record.settings
    return {
        "schema": SCHEMA,
        "status": status,
        "axes": find_axes(settings),
        **{key: record.identity[key] for key in IDENTITY},
        "settings": [{"setting": name_setting(item), **asdict(item)} for item in settings],
        "banks": [
            {"bank": bank.name, "settings": [name_setting(item) for item in bank.settings]}
            for bank in record.banks
        ],
        "looks": [asdict(look) for look in record.looks],
        "evaluation_shown": sorted(record.shown),
        **further,
        "versions": versions_of("numpy", "scipy", "numba", "scikit-learn", "polars"),
    }


def write_record(out: Path, document: Mapping[str, Any]) -> None:
    """Write sweep.json, on the disk when this returns."""
    write_file(out / NAME, json_bytes(document))


def read_record(out: Path) -> Record | None:
    """Return the record of a sweep that is there, finished or not."""
    path = out / NAME
    if not path.exists():
        return None
    try:
        content = parse_json(path.read_bytes())
        if content["schema"] != SCHEMA:
            raise InputError(
                f"{path}: expected schema {SCHEMA}, found {content['schema']!r};"
                " a newer one needs a newer trust-cache"
            )
        settings = {item.pop("setting"): head_settings(item) for item in content["settings"]}
        return Record(
            identity={key: content[key] for key in IDENTITY},
            banks=tuple(
                Bank(tuple(settings[name] for name in bank["settings"])) for bank in content["banks"]
            ),
            looks=tuple(Look(**look) for look in content["looks"]),
            shown=frozenset(content["evaluation_shown"]),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: damaged ({error!r}); choose another --out") from error


def require_same(out: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to go on with a sweep of another cache, of other seeds or other targets, naming what differs."""
    there, here = _flat(found), _flat(json.loads(json_bytes(wanted)))
    differing = [key for key in here | there if there.get(key) != here.get(key)]
    if differing:
        words = "; ".join(
            f"{key}: {_short(there.get(key))} there, {_short(here.get(key))} now" for key in differing
        )
        raise InputError(
            f"{out}: the sweep in this folder differs in {words};"
            " go on with the same options and cache, or choose another --out"
        )


def _flat(content: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat |= (
            {f"{key}.{name}": item for name, item in value.items()}
            if isinstance(value, dict)
            else {key: value}
        )
    return flat


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_LONGEST = 40
