"""The functions of the commands certify --model, export-model, triage and monitor."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from trust_cache.api.certificate_functions import CertifyResult
from trust_cache.api.result import Result, lifted
from trust_cache.base.text_tables import percent, whole_percent
from trust_cache.clinic import certify_model as certifying
from trust_cache.clinic import export_model as exporting
from trust_cache.clinic import monitor as monitoring
from trust_cache.clinic import triage as triaging
from trust_cache.manifest.protocol import SCREENING, Protocol


@dataclass(frozen=True, repr=False)
class ModelCertifyResult(CertifyResult):
    """The certification of a model, and whether its folder now has the certificate."""

    attached: bool = False
    not_attached: str | None = None  # the reason, if it was requested
    model_kept: Path | None = None  # where the earlier model went


def certify_model(
    model: Path | str,
    cache: Path | str,
    out: Path | str,
    *,
    targets: Sequence[float] | None = None,
    attach: bool = False,
    key: Path | str | None = None,
    **terms: Any,
) -> ModelCertifyResult:
    """Score a cache of new cases with a model's head and certify the scores.

    The default target and protocol are the model's own; `terms` are the further arguments of `certify`. With
    `attach`, the certificate and its threshold are written to the model folder, if it is certified. `key` is
    the one that the model was exported with: case ids are then compared too, not only images.
    """
    place = Path(out)
    options = terms | {"targets": targets, "attach": attach, "key": None if key is None else Path(key)}
    made = certifying.certify_model(Path(model), str(cache), place, **options)
    how = {name: getattr(made, name) for name in ("kept", "attached", "not_attached", "model_kept")}
    return lifted(ModelCertifyResult, made.certification, folder=place, **how)


@dataclass(frozen=True, repr=False)
class ExportResult(Result, exporting.Export):
    """An exported model and its warnings."""

    def to_polars(self) -> pl.DataFrame:
        """Return the model's threshold as one row."""
        model = self.stored.model
        row = asdict(model.threshold) | {"configuration": model.configuration, "certified": model.certified}
        return pl.DataFrame([row])

    def _lines(self) -> Iterator[str]:
        model = self.stored.model
        yield f"Model {self.stored.folder}: the {model.configuration} head ({model.origin})"
        tau = "no threshold" if model.threshold.tau is None else f"tau {model.threshold.tau:.6g}"
        yield f"{tau} for {whole_percent(model.threshold.target)} recall"
        yield "certified" if model.certified else "not certified: triage writes review for every case"


def export_model(
    run: Path | str,
    out: Path | str,
    *,
    configuration: str,
    target: float = 0.98,
    cache: str | None = None,
    test_cache: str | None = None,
    certified: Path | str | None = None,
    protocol: Protocol | Path | str = SCREENING,
    key: Path | str | None = None,
    threads: int | None = None,
    on_epoch: Callable[[int, int], None] = lambda _done, _of: None,
) -> ExportResult:
    """Write one head with its threshold to a model folder for `triage`.

    From a run of `fit_heads` the head is trained again on all cases and is not certified, because no unseen
    case is left. From a run of `external` it is the same head, with its certificate. With `key`, a file that
    is made if there is none, the model has keyed digests of its case ids.

    Examples:
        >>> import trust_cache as tc
        >>> cache = tc.simulate("nlbs", "exported.zarr", cases=200, views=1)
        >>> run = tc.fit_heads(cache, "exported", configurations=["ce"], epochs=2)
        >>> tc.export_model("exported", "model", configuration="ce").stored.model.certified
        False
    """
    made = exporting.export_model(
        Path(run),
        Path(out),
        configuration=configuration,
        target=target,
        cache=cache,
        test_cache=test_cache,
        certified=None if certified is None else Path(certified),
        protocol=protocol,
        key=None if key is None else Path(key),
        threads=threads,
        on_epoch=on_epoch,
    )
    return lifted(ExportResult, made)


@dataclass(frozen=True, repr=False)
class TriageResult(Result, triaging.Triage):
    """A worklist: one row per case, with the test for drift and the warnings."""

    def to_polars(self) -> pl.DataFrame:
        """Return the rows of the worklist."""
        return pl.DataFrame([asdict(row) for row in self.rows], infer_schema_length=None)

    def _lines(self) -> Iterator[str]:
        dismissed = sum(row.decision == "dismiss" for row in self.rows)
        yield f"Worklist {self.out}: {len(self.rows):,} cases, {dismissed:,} dismiss"
        yield f"{self.failed:,} cases with an image that could not be scored"
        yield "research tool, not a medical device"


def triage(
    dicoms: Path | str,
    model: Path | str,
    out: Path | str,
    *,
    manifest: Path | str | None = None,
    weights: str | None = None,
    uncertified: bool = False,
    device: str = "auto",
    workers: int | None = None,
    on_start: Callable[[int, int], None] = lambda _cases, _resumed: None,
    advance: Callable[[], None] = lambda: None,
) -> TriageResult:
    """Score new cases with a model and write a worklist: dismiss or review.

    A research tool, not a medical device. `dicoms` is a folder of DICOM files or a manifest of them. A case
    with a failed, missing or unexpected image is never dismissed. Needs `trust-cache[extract]`.
    """
    workers = (os.cpu_count() or 1) if workers is None else workers
    settings = triaging.TriageSettings(weights, uncertified, device, workers)
    done = triaging.triage(
        Path(dicoms),
        Path(model),
        Path(out),
        settings,
        manifest=None if manifest is None else Path(manifest),
        on_start=on_start,
        advance=advance,
    )
    return lifted(TriageResult, done)


@dataclass(frozen=True, repr=False)
class MonitorResult(Result, monitoring.Monitoring):
    """A look at the outcomes of dismissed cases, and the file that records it."""

    def to_polars(self) -> pl.DataFrame:
        """Return the counts and bounds of this look as one row."""
        return pl.DataFrame([asdict(self.counts) | asdict(self.look)], infer_schema_length=None)

    def _lines(self) -> Iterator[str]:
        yield f"Look {self.look.number}: {self.look.status}"
        yield f"at most {percent(self.look.bound_worst)} of the dismissed cases have cancer"
        yield from monitoring.sentences(self)


def monitor(
    worklists: Sequence[Path | str],
    outcomes: Path | str,
    model: Path | str,
    *,
    history: Path | str | None = None,
    delta: float | None = None,
    looks_before: int = 0,
) -> MonitorResult:
    """Recompute a certificate's bound as outcomes of dismissed cases arrive, and record the look.

    `outcomes` is a CSV file with case_id, label and, if known, date. All looks together keep the confidence.
    """
    found = monitoring.monitor(
        [Path(item) for item in worklists],
        Path(outcomes),
        Path(model),
        history=None if history is None else Path(history),
        delta=delta,
        looks_before=looks_before,
    )
    return lifted(MonitorResult, found)
