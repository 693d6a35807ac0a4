"""The demonstration: stage two on an invented cohort in the shape of NLBS, from features to a certificate."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trust_cache.base.errors import InputError
from trust_cache.cache.reading import Cache, open_cache
from trust_cache.cache.simulate import simulate_cache, simulated_fingerprint
from trust_cache.certificate.certify import Certification, certify
from trust_cache.certificate.folder import write_certification
from trust_cache.certificate.verify import Verification, verify
from trust_cache.heads.fit import fit_heads
from trust_cache.heads.partial import PartialRun
from trust_cache.heads.training import EpochReport

VIEWS = 1  # augmented views: enough to see how it works, and 0.2 GB
SEED = 0
SPLIT_SEED = 2  # a split at which some targets are met and others not, so that both can be seen


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration made."""

    cache: Path
    run: Path
    certified: Path
    certification: Certification
    verification: Verification


def run_demo(
    out: Path,
    *,
    cases: int | None = None,
    on_step: Callable[[str], None] = lambda _: None,
    on_epoch: Callable[[EpochReport], None] = lambda _: None,
) -> Demonstration:
    """Simulate features, train the five heads, certify their scores and verify a certificate.

    What an earlier start left whole is used again; `cases` makes the cohort smaller.
    """
    cache, run, certified = out / "nlbs.zarr", out / "run", out / "certified"
    out.mkdir(parents=True, exist_ok=True)
    on_step(f"an invented cohort in the shape of NLBS, as features: {cache}")
    if not _is_whole(cache):
        simulate_cache("nlbs", cache, views=VIEWS, seed=SEED, cases=cases)
    on_step(f"five configurations over five folds, out-of-fold scores: {run}")
    if not (run / "run.json").exists():
        fit_heads(cache, run, seed=SEED, resume=PartialRun(run).exists, on_epoch=on_epoch)
    on_step(f"operating points, their bounds and certificates: {certified}")
    certification = certify(run, seed=SPLIT_SEED, prevalence=0.005, resplits=200)
    write_certification(certification, certified)
    certificate = certified / "certificates" / "closed-loop@0.95.json"
    return Demonstration(cache, run, certified, certification, verify(certificate, run))


def _is_whole(path: Path) -> bool:
    """Tell whether the cache is there and finished; one of ours that is not is removed."""
    if not path.exists():
        return False
    cache: Cache = open_cache(path)
    if cache.fingerprint != simulated_fingerprint(SEED):
        raise InputError(
            f"{path}: expected a cache of the demonstration, found another; choose another --out"
        )
    if cache.done.all():
        return True
    shutil.rmtree(path)
    return False
