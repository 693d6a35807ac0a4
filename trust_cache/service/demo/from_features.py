"""The demonstration's second part: simulated features at full size, to tables, studies and a page."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trust_cache.cache.reading import open_cache
from trust_cache.cache.simulate import simulate_cache, simulated_fingerprint
from trust_cache.certificate.certify import Certification, certify
from trust_cache.certificate.folder import write_certification
from trust_cache.certificate.verify import Verification, verify
from trust_cache.heads.fit import fit_heads
from trust_cache.report.evidence import Options
from trust_cache.report.report import make_report
from trust_cache.report.writing import write_report
from trust_cache.service.demo.reuse import cache_is_whole, how_to_start, run_is_whole
from trust_cache.service.demo.steps import Listener
from trust_cache.studies.compare.compare import compare
from trust_cache.studies.compare.folder import write_comparison
from trust_cache.studies.external import evaluate_externally
from trust_cache.studies.sweep.description import describe_space
from trust_cache.studies.sweep.run import sweep

VIEWS = 1  # augmented views: enough to see how it works, and 0.2 GB
SEED = 0
SPLIT_SEED = 2  # a split at which some targets are met and others not, so that both can be seen
SOURCE_CASES = 3_000  # of the other set, that the external models are trained on
GRID = ("lambda_dismiss=0,0.05,0.2", "margin=0.05,0.1")
RESPLITS = 200


@dataclass(frozen=True)
class FromFeatures:
    """What the second part made."""

    cache: Path
    folders: Mapping[str, Path]  # run, certified, external, sweep, compare
    report: Path
    certification: Certification
    verification: Verification


def show_from_features(out: Path, listen: Listener, *, cases: int | None = None) -> FromFeatures:
    """Simulate cohorts, train the heads, certify, verify, evaluate externally, sweep, compare, report.

    What an earlier start left whole is used again; `cases` makes the cohorts smaller.
    """
    out.mkdir(parents=True, exist_ok=True)
    made = {name: out / name for name in ("run", "certified", "external", "sweep", "compare")}
    cache, source = out / "nlbs.zarr", out / "rsna.zarr"
    listen.step(f"an invented cohort in the shape of NLBS, as features: {cache}")
    _simulate("nlbs", cache, cases)
    listen.step(f"five configurations over five folds, out-of-fold scores: {made['run']}")
    opened = open_cache(cache)
    if not run_is_whole(made["run"], opened):
        start = how_to_start(made["run"])
        fit_heads(
            opened,
            made["run"],
            seed=SEED,
            on_epoch=listen.epoch,
            resume=start.resume,
            overwrite=start.overwrite,
        )
    listen.step(f"operating points, their bounds and certificates: {made['certified']}")
    advance = listen.counter(RESPLITS)
    certification = certify(
        made["run"], seed=SPLIT_SEED, prevalence=0.005, resplits=RESPLITS, advance=advance
    )
    write_certification(certification, made["certified"])
    certificate = made["certified"] / "certificates" / "closed-loop@0.95.json"
    verification = verify(certificate, made["run"])
    _studies(cache, source, made, listen, cases)
    report = out / "report.html"
    listen.step(f"the page: {report}")
    write_report(make_report(list(made.values()), Options()), report)
    return FromFeatures(cache, made, report, certification, verification)


def _studies(cache: Path, source: Path, made: dict[str, Path], listen: Listener, cases: int | None) -> None:
    """Evaluate externally, sweep and compare, each where it is not there yet."""
    listen.step(f"trained on a cohort in the shape of RSNA, certified on the first: {made['external']}")
    _simulate("rsna", source, SOURCE_CASES if cases is None else cases)
    opened = open_cache(source)
    if not run_is_whole(made["external"], opened):
        start = how_to_start(made["external"])
        evaluate_externally(
            opened,
            cache,
            made["external"],
            seed=SEED,
            on_epoch=listen.epoch,
            resume=start.resume,
            overwrite=start.overwrite,
        )
    listen.step(f"a sweep over {' and '.join(GRID)}: {made['sweep']}")
    if not (made["sweep"] / "results.csv").exists():
        sweep(
            cache,
            made["sweep"],
            describe_space(GRID),
            seed=SEED,
            on_heads=lambda report: listen.part(int(report.done), report.heads),
        )
    listen.step(f"are the differences between configurations real: {made['compare']}")
    write_comparison(compare(made["run"], advance=listen.counter(RESPLITS)), made["compare"])


def _simulate(like: str, path: Path, cases: int | None) -> None:
    if not cache_is_whole(path, simulated_fingerprint(SEED)):
        simulate_cache(like, path, views=VIEWS, seed=SEED, cases=cases)
