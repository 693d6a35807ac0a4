"""The functions of the commands certify --model, export-model and monitor."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl

from trust_cache.api.certificate_functions import CertifyResult
from trust_cache.api.result import Result, lifted
from trust_cache.base.text_tables import whole_percent
from trust_cache.clinic import certify_model as certifying
from trust_cache.clinic import export_model as exporting
from trust_cache.clinic.monitoring import monitor as monitoring
from trust_cache.clinic.monitoring.monitor_words import sentences
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
    overwrite: bool = False,
    **terms: Any,
) -> ModelCertifyResult:
    """Score a cache of new cases with a model's head and certify the scores.

    The default target and protocol are the model's own; `terms` are the further arguments of `certify`. With
    `attach`, the certificate and its threshold are written to the model folder, if it is certified. `key` is
    the one that the model was exported with: case ids are then compared too, not only images. A folder that
    exists is refused unless `overwrite` is set.
    """
    place = Path(out)
    options = terms | {"targets": targets, "attach": attach, "key": _path(key), "overwrite": overwrite}
    made = certifying.certify_model(Path(model), str(cache), place, **options)
    how = {name: getattr(made, name) for name in ("attached", "not_attached", "model_kept")}
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
    valid_until: str | None = None,
    overwrite: bool = False,
    threads: int | None = None,
    on_epoch: Callable[[int, int], None] = lambda _done, _of: None,
) -> ExportResult:
    """Write one head with its threshold to a model folder for `triage`.

    From a run of `fit_heads` the head is trained again on all cases and is not certified, because no unseen
    case is left. From a run of `external` it is the same head, with its certificate. With `key`, a file that
    is made if there is none, the model has keyed digests of its case ids. `valid_until` is the last day
    (YYYY-MM-DD) on which `triage` applies the model.

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
        certified=_path(certified),
        protocol=protocol,
        key=_path(key),
        valid_until=valid_until,
        overwrite=overwrite,
        threads=threads,
        on_epoch=on_epoch,
    )
    return lifted(ExportResult, made)


@dataclass(frozen=True, repr=False)
class MonitorResult(Result, monitoring.Monitoring):
    """What is known about a model on a day: counts, bounds that hold at any time, drift."""

    def to_polars(self) -> pl.DataFrame:
        """Return one row for the dismissed and one for the audited cases, where they were given."""
        rates = {"dismissed": self.dismissed, "audited": self.audited}
        rows = [{"cases": name, **asdict(rate)} for name, rate in rates.items() if rate is not None]
        return pl.DataFrame(rows, infer_schema_length=None)

    def _lines(self) -> Iterator[str]:
        yield f"As of {self.as_of}: {self.status}"
        yield from sentences(self)


def monitor(
    worklists: Sequence[Path | str],
    model: Path | str,
    *,
    outcomes: Path | str | None = None,
    readings: Path | str | None = None,
    follow_up: str = "24m",
    reading_time: str = "3m",
    window: str = "12m",
    as_of: date | None = None,
    site: str | None = None,
    delta: float | None = None,
    history: Path | str | None = None,
    audit_key: Path | str | None = None,
    page: Path | str | None = None,
) -> MonitorResult:
    """Watch the outcomes of dismissed cases and the readings of audited ones beside the certificate.

    The bounds are a confidence sequence: they hold at every moment, so you may look as often as you like. A
    case counts once its follow-up time has passed, in the order of examinations. `outcomes` and `readings`
    are CSV files with case_id, label, date and examined. `page` also writes a page with figures.
    """
    from trust_cache.clinic.monitoring.monitor_page import write_monitor_page

    found = monitoring.monitor(
        [Path(item) for item in worklists],
        Path(model),
        outcomes=_path(outcomes),
        readings=_path(readings),
        settings=monitoring.MonitorSettings(follow_up, reading_time, window, as_of, site, delta),
        history=_path(history),
        audit_key=_path(audit_key),
    )
    if page is not None:
        write_monitor_page(found, Path(model).resolve().name, Path(page))
    return lifted(MonitorResult, found)


def _path(place: Path | str | None) -> Path | None:
    return None if place is None else Path(place)
