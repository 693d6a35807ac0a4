"""A run folder as a model is made from it: its settings, its seed, its caches, the heads of its folds."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from trust_cache.base.errors import InputError
from trust_cache.cache.fingerprint import Fingerprint, require_same_fingerprint
from trust_cache.cache.reading import Cache, open_cache
from trust_cache.heads.bank import HeadParameters
from trust_cache.heads.final_split import EXTERNAL
from trust_cache.heads.preparation import labels_sha256
from trust_cache.heads.run_files import SCHEMA
from trust_cache.heads.settings import HeadSettings, TrainingSettings


@dataclass(frozen=True)
class RunRecord:
    """What run.json says of a run, as far as a model depends on it."""

    folder: Path
    configuration: str
    head: HeadSettings
    training: TrainingSettings
    seed: int
    views: int
    fingerprint: Fingerprint
    manifest_sha256: str
    cache: str
    target: dict[str, Any] | None  # of an external run: the identity of the set it was scored on
    target_cache: str | None

    @property
    def external(self) -> bool:
        """Whether its one head was trained on all of a set and scored on another."""
        return self.target is not None

    def as_document(self) -> dict[str, Any]:
        """Return where a model comes from, without paths of this machine."""
        return {
            "run": self.folder.resolve().name,
            "head": vars(self.head),
            "training": vars(self.training),
            "seed": self.seed,
            "views": self.views,
            "manifest_sha256": self.manifest_sha256,
        }


def read_run(folder: Path, configuration: str) -> RunRecord:
    """Read the record of a run that has this configuration."""
    document = _document(folder)
    try:
        known = document["configurations"]
        if configuration not in known:
            raise InputError(
                f"{folder}: expected one of its configurations ({', '.join(known)}), found {configuration!r}"
            )
        names = {field.name for field in fields(TrainingSettings)}
        return RunRecord(
            folder=folder,
            configuration=configuration,
            head=HeadSettings(**known[configuration]),
            training=TrainingSettings(**{n: v for n, v in document["training"].items() if n in names}),
            seed=int(document["seed"]),
            views=int(document["views"]),
            fingerprint=Fingerprint.from_document(document["fingerprint"], str(folder)),
            manifest_sha256=str(document["manifest_sha256"]),
            cache=str(document["cache"]),
            target=document.get("target"),
            target_cache=document.get("target_cache"),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{folder / 'run.json'}: the record of the run is damaged ({error!r})") from error


def open_source(run: RunRecord, given: str | None) -> Cache:
    """Open the cache that a run was trained on, where it lies now, and make sure that it is the one."""
    return _same_cache(run.cache, given, "--cache", run.fingerprint, run.manifest_sha256)


def open_target(run: RunRecord, given: str | None) -> Cache:
    """Open the cache that an external run was scored on, and make sure that it is the one."""
    if run.target is None or run.target_cache is None:
        raise InputError(f"{run.folder}: expected an external run, found one without a target")
    fingerprint = Fingerprint.from_document(run.target["fingerprint"], str(run.folder))
    return _same_cache(
        run.target_cache, given, "--target-cache", fingerprint, str(run.target["manifest_sha256"])
    )


def read_head(run: RunRecord) -> HeadParameters:
    """Read the one head of a configuration of an external run."""
    path = run.folder / "heads.safetensors"
    try:
        with safe_open(path, framework="np") as file:
            names = json.loads(file.metadata()["names"])
            configuration = names["configurations"].index(run.configuration)
            fold = names["folds"].index(EXTERNAL)
            arrays = {part: file.get_tensor(part) for part in ("gamma", "beta", "weight", "bias")}
    except Exception as error:  # whatever is wrong with the file
        raise InputError(f"{path}: expected the heads of an external run ({error})") from error
    return HeadParameters(*(np.ascontiguousarray(arrays[part][configuration, fold][None]) for part in arrays))


def _document(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{folder}: expected a run folder with run.json in it, found none") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a readable JSON file ({error})") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else document
        raise InputError(
            f"{path}: expected run schema {SCHEMA}, found {found!r}; a newer one needs a newer trust-cache"
        )
    return document


def _same_cache(
    recorded: str, given: str | None, option: str, fingerprint: Fingerprint, manifest_sha256: str
) -> Cache:
    try:
        cache = open_cache(given if given is not None else recorded)
    except InputError as error:
        if given is not None:
            raise
        raise InputError(f"{error}; the run names that one, say where it lies now with {option}") from error
    require_same_fingerprint(fingerprint, cache.fingerprint, cache.source)
    if labels_sha256(cache) != manifest_sha256:
        raise InputError(
            f"{cache.source}: expected the images and labels of the run, found others;"
            f" name the run's cache with {option}"
        )
    return cache
