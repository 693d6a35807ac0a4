"""The function of the command reproduce: the paper's tables and figures from two caches.

Each step writes the folder of its own command inside `out`. A second start with `resume` reuses complete
steps and continues an interrupted training.
"""

import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from trust_cache.api.certificate_functions import certify
from trust_cache.api.result import Result
from trust_cache.api.study_functions import compare
from trust_cache.api.training_functions import Configurations, chosen_configurations, external, fit_heads
from trust_cache.base.errors import InputError, check_least
from trust_cache.base.files import refuse_existing
from trust_cache.cache.cache_reader import Cache, open_cache, refuse_unfinished
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.certificate.certification import CertifySettings
from trust_cache.certificate.points import Terms
from trust_cache.certificate.score_table import as_scores, build_cohort
from trust_cache.encoders.recipe import DEFAULT_ENCODER
from trust_cache.figures.figure import Figure
from trust_cache.figures.training_figures import loop_figure
from trust_cache.heads.fit import EpochReport
from trust_cache.heads.fold_training import PartialRun
from trust_cache.heads.head_settings import HeadSettings, TrainingSettings, presets
from trust_cache.heads.run_folder import RunFolder, identify_cache
from trust_cache.heads.trainer import count_threads
from trust_cache.heads.training_data import FitSettings, prepare
from trust_cache.report.page import features_notice
from trust_cache.report.paper_folder import OWN, PAGE, SCHEMA, PaperFolder, PaperRequest
from trust_cache.report.paper_page import render_paper_page
from trust_cache.studies.compare.comparison_results import CompareSettings
from trust_cache.studies.external import FINAL, refuse_unlike
from trust_cache.studies.reproduction.cohort_counts import refuse_other_data, unlike_the_data
from trust_cache.studies.reproduction.level_spreads import level_spreads
from trust_cache.studies.reproduction.published import ENCODER, EXTERNAL, NLBS, PROPOSED, RSNA, published
from trust_cache.studies.reproduction.reproduction import Reproduction

REPEATS, RESPLITS, RESAMPLES = 5, 200, 2_000
_PAPER_SIZE = (1520, 912)
_DIGEST, _SHORT = re.compile("[0-9a-f]{64}"), 12


@dataclass(frozen=True)
class Listener:
    """Callbacks: `step` at the start of each step, `part` with the finished and all parts of the step."""

    step: Callable[[str], None] = lambda _title: None
    part: Callable[[int, int], None] = lambda _done, _of: None

    def epoch(self, report: EpochReport) -> None:
        """Report the epochs of a training."""
        self.part(report.done, report.epochs)

    def counter(self, of: int) -> Callable[[], None]:
        """Return a callback for each of a known number of parts."""
        done = 0

        def advance() -> None:
            nonlocal done
            done += 1
            self.part(done, of)

        return advance


@dataclass(frozen=True, repr=False)
class ReproduceResult(Result):
    """A reproduction of the paper: what was found, its folder and its page."""

    folder: Path
    reproduction: Reproduction
    encoders: tuple[str, ...]  # of the caches, in words
    notices: tuple[str, ...]  # what readers must know first
    warnings: tuple[str, ...]

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.folder / PAGE

    def as_document(self) -> dict[str, Any]:
        """Return the content of paper.json."""
        return PaperFolder(self.folder).read_document()

    def to_polars(self) -> pl.DataFrame:
        """Return every published number with ours, one row each, with the columns of numbers.csv."""
        return pl.DataFrame([number.row() for number in self.reproduction.numbers], infer_schema_length=None)

    def _lines(self) -> Iterator[str]:
        yield f"The paper reproduced on {' and '.join(self.reproduction.results) or 'nothing'}"
        yield from (*self.encoders, *self.notices)
        yield from self.reproduction.sentences()
        yield f"written to {self.folder}"


def reproduce(
    rsna: Cache | Path | str | None = None,
    nlbs: Cache | Path | str | None = None,
    out: Path | str = "paper",
    *,
    configurations: Configurations = None,
    epochs: int = 20,
    views: int | None = None,
    seed: int = 0,
    repeats: int = REPEATS,
    resplits: int = RESPLITS,
    resamples: int = RESAMPLES,
    programme: int = published().economics.programme,
    fee: float = published().economics.fee,
    threads: int | None = None,
    low_memory: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    listen: Listener | None = None,
) -> ReproduceResult:
    """Reproduce the paper's tables and figures from a cache of RSNA and one of NLBS, beside what it printed.

    One of the caches may be missing: its part then has the published numbers alone. `configurations` are
    those of `fit_heads` (default: the paper's five); further ones stand beside them. `repeats` trainings and
    `resamples` are for the comparison, `resplits` for the spread over splits, `programme` and `fee` for the
    economic estimate. A folder that exists is refused unless `resume` or `overwrite` is set.

    Examples:
        >>> import trust_cache as tc
        >>> cache = tc.simulate("nlbs", "paper-nlbs.zarr", cases=300, views=1)
        >>> small = {"epochs": 2, "repeats": 1, "resplits": 10, "resamples": 200}
        >>> tc.reproduce(nlbs=cache, out="paper", **small).page.name
        'paper.html'
    """
    listen, folder = listen or Listener(), PaperFolder(Path(out))
    _check_amounts(programme, fee, repeats)
    CompareSettings(resamples=resamples, swaps=resamples, seed=seed, resplits=resplits)  # before training
    threads, caches = count_threads(threads), _open_caches({RSNA: rsna, NLBS: nlbs})
    request = PaperRequest(
        schema=SCHEMA, caches={name: identify_cache(cache) for name, cache in caches.items()},
        configurations=dict(_chosen(configurations)), epochs=epochs, views=views, seed=seed,
        repeats=repeats, resplits=resplits, resamples=resamples,
    )  # fmt: skip
    _check_training(caches, request)
    _clear(folder.path, resume=resume, overwrite=overwrite)
    folder.begin(request, resume=resume)
    training: dict[str, Any] = {
        "epochs": epochs, "views": views, "seed": seed, "threads": threads, "low_memory": low_memory,
    }  # fmt: skip
    for name, cache in caches.items():
        _run_in_domain(folder, name, cache, request, training, listen)
    settings = list(caches)
    if len(caches) == len((RSNA, NLBS)):
        _run_external(folder, caches, request, training, listen)
        settings.append(EXTERNAL)
    listen.step(f"tables, figures and the page: {folder.path / PAGE}")
    for key in settings:
        _measure_levels(folder, key, request)
    results = {key: folder.read_setting(key) for key in published().settings if key in settings}
    return _write(folder, Reproduction(results, programme, fee), caches, request)


def _check_amounts(programme: int, fee: float, repeats: int) -> None:
    check_least("programme", programme)
    check_least("fee", fee)
    if not math.isfinite(fee):
        raise InputError(f"fee: expected an amount of money, found {fee}")
    check_least("repeats", repeats, 1)


def _open_caches(given: Mapping[str, Cache | Path | str | None]) -> dict[str, Cache]:
    caches = {
        name: cache if isinstance(cache, Cache) else open_cache(cache)
        for name, cache in given.items()
        if cache is not None
    }
    if not caches:
        raise InputError("expected a cache of RSNA (--rsna), of NLBS (--nlbs) or both, found none")
    for name, cache in caches.items():
        refuse_unfinished(cache)
        refuse_other_data(name, cache.manifest, cache.source)
    if len(caches) == len(given):
        refuse_unlike(caches[RSNA], caches[NLBS])  # before hours of training
    return caches


def _check_training(caches: Mapping[str, Cache], request: PaperRequest) -> None:
    """Refuse what a training would refuse before there is a folder that remembers it."""
    training = TrainingSettings(epochs=request.epochs)
    settings = FitSettings(
        request.configurations, training, request.seed, request.repeats, views=request.views
    )
    for cache in caches.values():
        prepare(cache, settings, None)


def _chosen(configurations: Configurations) -> Mapping[str, HeadSettings]:
    """Return the configurations; the paper's five by default."""
    chosen = chosen_configurations(configurations) or presets()
    if PROPOSED not in chosen or len(chosen) < 2:  # noqa: PLR2004  # a comparison needs two
        raise InputError(
            f"configurations: expected {PROPOSED} and another one, found {', '.join(chosen) or 'none'}"
        )
    return chosen


def _clear(out: Path, *, resume: bool, overwrite: bool) -> None:
    """Remove what is to be replaced."""
    if resume and overwrite:
        raise InputError("expected --resume or --overwrite, found both")
    if overwrite and out.exists():
        refuse_existing(out, own=OWN, overwrite=True)
        shutil.rmtree(out)


def _run_in_domain(
    folder: PaperFolder,
    name: str,
    cache: Cache,
    request: PaperRequest,
    training: Mapping[str, Any],
    listen: Listener,
) -> None:
    """Train, certify and compare the configurations on one cache; complete steps are reused."""
    run, title = folder.run(name), name.upper()
    listen.step(
        f"{title}: {len(request.configurations)} configurations, five folds, {request.repeats} times: {run}"
    )
    if not folder.has_run(name):
        resume = PartialRun(run).exists
        how: dict[str, Any] = {"repeats": request.repeats, "resume": resume, "on_epoch": listen.epoch}
        fit_heads(cache, run, configurations=request.configurations, **how, **training)
    listen.step(f"{title}: operating points and certificates: {folder.certified(name)}")
    if not folder.has_certified(name):
        advance = listen.counter(request.resplits)
        certify(run, folder.certified(name), seed=request.seed, resplits=request.resplits, advance=advance)
    listen.step(f"{title}: tests of the differences: {folder.compared(name)}")
    if not folder.has_compared(name):
        draws: dict[str, Any] = {
            "resamples": request.resamples,
            "swaps": request.resamples,
            "resplits": request.resplits,
        }
        advance = listen.counter(request.resplits)
        compare(run, folder.compared(name), seed=request.seed, advance=advance, **draws)


def _run_external(
    folder: PaperFolder,
    caches: Mapping[str, Cache],
    request: PaperRequest,
    training: Mapping[str, Any],
    listen: Listener,
) -> None:
    """Train the paper's two final models, and what is not the paper's, on RSNA and certify them on NLBS."""
    run = folder.run(EXTERNAL)
    listen.step(f"RSNA to NLBS: heads trained on all of RSNA, certified on NLBS: {run}")
    if folder.has_run(EXTERNAL):
        return
    final = {
        name: head for name, head in request.configurations.items() if name in FINAL or name not in presets()
    }
    how: dict[str, Any] = {
        "resplits": request.resplits,
        "resume": PartialRun(run).exists,
        "on_epoch": listen.epoch,
    }
    external(caches[RSNA], caches[NLBS], run, configurations=final, by="none", **how, **training)


def _measure_levels(folder: PaperFolder, key: str, request: PaperRequest) -> None:
    """Measure how far case AUROCs and the image level range over the splits of the certification."""
    if folder.has_levels(key):
        return
    settings = CertifySettings()
    terms = Terms(settings.rule, settings.delta, compared=1)
    cohort = build_cohort(as_scores(folder.run(key)))
    how = {"seed": request.seed, "resplits": request.resplits}
    folder.write_levels(key, level_spreads(cohort, settings.targets, terms, **how))


def _write(
    folder: PaperFolder, found: Reproduction, caches: Mapping[str, Cache], request: PaperRequest
) -> ReproduceResult:
    notices = tuple(text for name, cache in caches.items() for text in _notices(name, cache.fingerprint))
    notices += tuple(text for name, cache in caches.items() for text in unlike_the_data(name, cache.manifest))
    missing = [key for key in published().settings if key not in found.results]
    notices += tuple(
        f"{published().settings[key].title}: no cache was given, so only the published numbers stand here."
        for key in missing
    )
    records = {name: RunFolder(folder.run(name)) for name in (*caches, EXTERNAL) if folder.has_run(name)}
    warnings = tuple(
        dict.fromkeys(
            f"{published().settings[name].title}: {text}"
            for name, run in records.items()
            for text in run.record.warnings
        )
    )
    figures = [_loop_figure(name, records[name], request) for name in caches]
    compared = {name: folder.compared(name) for name in caches}
    encoders = tuple(describe_encoder(name, cache.fingerprint) for name, cache in caches.items())
    facts = [("encoders", " ".join(encoders)), *_facts(caches, request)]
    page = render_paper_page(found, figures, compared, notices=notices, warnings=warnings, facts=facts)
    about = {"request": request.as_document(), "encoders": list(encoders), "notices": list(notices)}
    folder.write_results(found, figures, about=about, warnings=warnings, page=page)
    return ReproduceResult(folder.path, found, encoders, notices, warnings)


def _notices(name: str, made: Fingerprint) -> Iterator[str]:
    """Warn where the encoder is not the paper's or the features mean nothing."""
    if (nothing := features_notice(name.upper(), made)) is not None:
        yield nothing
    elif made.encoder != DEFAULT_ENCODER or made.image_size != _PAPER_SIZE:
        yield f"{name.upper()}: the paper's encoder is {ENCODER}; differences may come from the encoder."


def describe_encoder(name: str, made: Fingerprint) -> str:
    """Say which encoder and weights made the features of a cache."""
    size = "" if made.image_size is None else f" at {made.image_size[0]}x{made.image_size[1]}"
    return f"{name.upper()}: features by the encoder {made.encoder}{size}, {_weights(made.weights_sha256)}."


def _weights(known_by: str) -> str:
    """Name weights by a short digest; imported features have the digest of the features, or none."""
    short = _DIGEST.sub(lambda digest: digest[0][:_SHORT], known_by)
    if not short:
        return "weights unknown"
    return f"weights unknown ({short})" if short.startswith("features ") else f"weights {short}"


def _loop_figure(name: str, run: RunFolder, request: PaperRequest) -> Figure:
    margin = request.configurations[PROPOSED].margin
    title = f"Figure 1b. The closed loop in training, {name.upper()}"
    return loop_figure(f"figure-1b-{name}", title, run.trajectories(), run.thresholds(), PROPOSED, margin)


def _facts(caches: Mapping[str, Cache], request: PaperRequest) -> list[tuple[str, str]]:
    facts = [
        (f"cache of {name.upper()}", f"{cache.source}, sha256 {request.caches[name].content_sha256}")
        for name, cache in caches.items()
    ]
    names = ("epochs", "views", "seed", "repeats", "resplits", "resamples")
    told = (f"{name} {getattr(request, name)}" for name in names if getattr(request, name) is not None)
    return [*facts, ("configurations", ", ".join(request.configurations)), ("settings", ", ".join(told))]
