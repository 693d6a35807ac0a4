"""The commands export-model, triage and monitor."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache.base.errors import parse_day
from trust_cache_cli.options import (
    AsJson,
    Overwrite,
    RunArgument,
    Runtime,
    Threads,
    command,
    command_group,
)
from trust_cache_cli.output import bar, note, note_kept, say, show_json, show_list, warn

if TYPE_CHECKING:
    from trust_cache.clinic.model_folder import StoredModel
    from trust_cache.clinic.monitoring.monitor import MonitorSettings
    from trust_cache.clinic.triage import Triage, TriageSettings


ALARM = 1
SOME_FAILED = 1
DISCLAIMER = "Research tool, not a medical device: make no decision about a person from this list."
HistoryOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The history of the model. [MODEL.history.jsonl beside the model folder]"
    ),
]
app = command_group()


@command(
    app,
    "export-model run/ --configuration closed-loop --out model/",
    "export-model external/ --configuration closed-loop --out model/ --target 0.95",
    "export-model run/ --configuration closed-loop --out model/ --key model.key",
    name="export-model",
)
def export_model(
    run: RunArgument,
    configuration: Annotated[str, typer.Option(metavar="NAME", help="One of the run's configurations.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The model folder to write.")],
    target: Annotated[float, typer.Option(metavar="R", help="The recall that the threshold keeps.")] = 0.98,
    cache: Annotated[
        str | None,
        typer.Option(metavar="CACHE", help="The cache it was trained on. [the path in the run folder]"),
    ] = None,
    test_cache: Annotated[
        str | None,
        typer.Option(
            metavar="CACHE",
            help="For an external run: the cache it was scored on. [the path in the run folder]",
        ),
    ] = None,
    certified: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For an external run: its certificates. [certified/ in the run]"),
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What triage asks of a case: screening, or a .toml file with projections. An external run's"
            " certificate has its own.",
        ),
    ] = "screening",
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A key, made if the file does not exist (mode 0600): the model then has keyed digests of its"
            " case ids. Keep it apart from the model. [no digests]",
        ),
    ] = None,
    valid_until: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="The last day (YYYY-MM-DD) on which triage applies the model."),
    ] = None,
    overwrite: Overwrite = False,
    threads: Threads = None,
    json: AsJson = False,
) -> None:
    """Write one head with its threshold to a model folder for `triage`.

    From a run of `fit-heads` the head is trained again on the whole cache and is not certified, because no
    unseen case is left. From a run of `external --protocol screening` it is the same head, with its
    certificate if its status is certified. `certify --model` certifies a model on new cases.
    """
    from trust_cache.clinic.export_model import export_model as export

    with bar("training epochs") as shown:
        made = export(
            run,
            out,
            configuration=configuration,
            target=target,
            cache=cache,
            test_cache=test_cache,
            certified=certified,
            protocol=protocol,
            key=key,
            valid_until=valid_until,
            overwrite=overwrite,
            threads=threads,
            on_epoch=shown.show,
        )
    warn(made.warnings)
    show_json(_document(made.stored)) if json else _show(made.stored)


def _document(stored: "StoredModel") -> dict[str, object]:
    model = stored.model
    return {
        "folder": str(stored.folder),
        "sha256": stored.sha256,
        "configuration": model.configuration,
        "origin": model.origin,
        "tau": model.threshold.tau,
        "target": model.threshold.target,
        "chosen_by": model.threshold.chosen_by,
        "protocol": model.protocol.as_document(),
        "certified": model.certified,
        "bound": None if model.certificate is None else model.certificate.bound,
        "valid_until": model.valid_until,
        "terms": {part: [item.as_document() for item in found] for part, found in model.terms.items()},
        "attempts": 0 if model.certificate is None else len(model.certificate.attempts),
    }


def _show(stored: "StoredModel") -> None:
    from trust_cache.base.text_tables import confidence, percent, whole_percent

    model = stored.model
    threshold = "no threshold" if model.threshold.tau is None else f"tau {model.threshold.tau:.6g}"
    say(
        f"Written to {stored.folder}: the {model.configuration} head ({model.origin}), {threshold} for"
        f" {whole_percent(model.threshold.target)} recall, chosen by {model.threshold.chosen_by}."
    )
    if model.certificate is None:
        say(
            "Not certified: triage writes review for every case. Certify it on cases it was not trained on:"
            f" trust-cache certify --model {stored.folder} --cache new.zarr --out certified/ --attach"
        )
        return
    if model.valid_until is not None:
        say(f"Valid until {model.valid_until}: afterwards triage refuses it.")
    bound, sure = percent(model.certificate.bound), confidence(model.certificate.delta)
    say(f"Certified: with {sure} confidence at most {bound} of dismissed cases like those have cancer.")
    attempts = len(model.certificate.attempts)
    if attempts > 1:
        say(f"It took {attempts} attempts with different settings or splits; certificate.json lists them.")


@dataclass(frozen=True)
class MonitorOptions:
    """How to count, apart from the files."""

    follow_up: Annotated[
        str,
        typer.Option(metavar="TIME", help="A dismissed case counts after this time: 24m, 90d, 12w or 2y."),
    ] = "24m"
    reading_time: Annotated[
        str, typer.Option(metavar="TIME", help="An audited case counts after this time, read or not.")
    ] = "3m"
    window: Annotated[str, typer.Option(metavar="TIME", help="The time of the recent cases.")] = "12m"
    as_of: Annotated[
        str | None, typer.Option(metavar="DATE", help="The day of the count, YYYY-MM-DD. [today]")
    ] = None
    site: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="A column of worklists and outcomes that tells sites with equal ids apart."
        ),
    ] = None
    delta: Annotated[float | None, typer.Option(help="One minus the confidence. [the certificate's]")] = None

    def settings(self) -> "MonitorSettings":
        """Return the settings that the options mean."""
        from trust_cache.clinic.monitoring.monitor import MonitorSettings

        as_of = None if self.as_of is None else parse_day(self.as_of, "as of")
        return MonitorSettings(self.follow_up, self.reading_time, self.window, as_of, self.site, self.delta)


@command(
    app,
    "monitor worklist.csv --outcomes outcomes.csv --model model/ --page monitoring.html",
    "monitor worklist.csv --readings readings.csv --model model/ --audit-key model.audit.key",
    "monitor worklist.csv --outcomes outcomes.csv --model model/ --follow-up 24m --as-of 2026-06-30 --json",
)
def monitor(
    worklists: Annotated[list[Path], typer.Argument(help="Worklists from `triage`.")],
    model: Annotated[Path, typer.Option(metavar="DIR", help="The model folder that decided.")],
    options: MonitorOptions,
    outcomes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A CSV of dismissed cases: case_id, label (1 cancer, 0 none, empty unknown), date (of the"
            " diagnosis, or until when it was followed) and examined (the day of the examination).",
        ),
    ] = None,
    readings: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A CSV of what readers found in audited cases, same columns."),
    ] = None,
    audit_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Check that the audited cases were drawn with this key."),
    ] = None,
    history: HistoryOption = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a page with figures (.html).")
    ] = None,
    json: AsJson = False,
) -> None:
    """Watch the outcomes of dismissed and audited cases beside the certificate.

    The bounds are a confidence sequence: they hold at every moment, so you may look at any time and as often
    as you like. A case counts once its follow-up time has passed, in the order of examinations. A matured
    case with an unknown outcome counts as cancer for the confirmation and as healthy for the alarm. Exit code
    1 if the rate is above the certified bound (alarm). This is a research tool, not a medical device.
    """
    from trust_cache.clinic.monitoring.monitor import monitor as watch
    from trust_cache.clinic.monitoring.monitor_page import write_monitor_page
    from trust_cache.clinic.monitoring.monitor_words import MEANINGS, sentences

    found = watch(
        worklists,
        model,
        outcomes=outcomes,
        readings=readings,
        settings=options.settings(),
        history=history,
        audit_key=audit_key,
    )
    warn((*found.warnings, *found.drift.warnings))
    if page is not None:
        write_monitor_page(found, model.resolve().name, page)
    if json:
        show_json(found.as_document())
    else:
        show_list(f"As of {found.as_of}: {found.status}", sentences(found))
        show_list("What these numbers mean", MEANINGS)
        where = "" if page is None else f" Page: {page}."
        say(f"Recorded in {found.history}.{where} Research tool: not a medical device.")
    if found.status == "alarm":
        raise typer.Exit(ALARM)


@dataclass(frozen=True)
class TriageOptions:
    """How to triage, apart from the model."""

    weights: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The weights of the model's encoder. [random, if the model's are]",
        ),
    ] = None
    uncertified: Annotated[
        bool,
        typer.Option(
            "--uncertified", help="Dismiss with a model that has no certificate; every row records it."
        ),
    ] = False
    device: Annotated[
        str,
        typer.Option(
            metavar="DEVICE",
            help="auto, cpu or cuda; auto: cuda for a model that was made on it, if there is one, else cpu.",
        ),
    ] = "auto"
    runtime: Runtime = "auto"
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Decoding processes. [all cores but one, which encodes]"),
    ] = None
    audit: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Mark this share of the dismissed cases `audit`: drawn by a key, read anyway.",
        ),
    ] = None
    audit_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The key of the draw; made if it is missing. [MODEL.audit.key beside the model folder]",
        ),
    ] = None
    expired: Annotated[
        bool,
        typer.Option("--expired", help="Apply a model after its last day; every row records it."),
    ] = False
    history: HistoryOption = None

    def settings(self) -> "TriageSettings":
        """Return the settings that the options mean."""
        from trust_cache.clinic.triage import TriageSettings

        return TriageSettings(
            weights=self.weights,
            uncertified=self.uncertified,
            device=self.device,
            runtime=self.runtime,
            workers=self.workers,
            audit=self.audit,
            audit_key=self.audit_key,
            expired=self.expired,
            history=self.history,
        )


@command(
    app,
    "triage dicoms/ --model model/ --weights encoder.safetensors --out worklist.csv",
    "triage new.csv --model model/ --weights encoder.safetensors --out worklist.csv",
    "triage dicoms/ --model model/ --weights encoder.safetensors --out worklist.csv --audit 0.05",
    "triage dicoms/ --model model/ --out worklist.csv --uncertified --device cpu --json",
    kept="finished cases are kept beside {out}; the same command resumes",
)
def triage(
    dicoms: Annotated[
        Path,
        typer.Argument(
            help="A folder of DICOM files, where each StudyInstanceUID is a case, or a manifest of files"
            " (.csv) with the columns case_id, laterality, projection and path."
        ),
    ],
    model: Annotated[Path, typer.Option(metavar="DIR", help="A model folder from export-model.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The worklist to write (.csv).")],
    options: TriageOptions,
    manifest: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Take cases, sides and projections from this manifest, for files whose headers lack them;"
            " its paths are relative to the folder DICOMS. A warning counts files that it does not list.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Score new cases with a model and write a worklist: dismiss, audit or review.

    **A research tool, not a medical device.** A case with any failed, missing or unexpected image, with
    implausible pixels or with features unlike those of the fitting cases is never dismissed; the column
    reason names the check and what to do. In a folder, every file, link and folder is explained or is a
    reason for review. Without a certificate every case is review, unless --uncertified. With --audit, a
    random share of the dismissed cases is marked audit, to be read anyway. The scores are added to the
    model's history, and a warning says when they drift away from those of the evaluation. An encoder or
    preprocessing that differs from the model's, and a model folder with any changed byte, are refused.
    After an interruption, the same command resumes. Exit code 1 if some cases could not be scored.
    """
    from trust_cache.clinic.triage import triage as triage_all

    settings = options.settings()
    note(DISCLAIMER)
    with bar("cases") as shown:
        done = triage_all(
            dicoms, model, out, settings, manifest=manifest, on_start=shown.start, advance=shown.advance
        )
    note_kept(out, done.kept, "another worklist")
    if done.resumed:
        note(f"{done.resumed:,} cases were finished before and reused")
    warn(done.warnings)
    if json:
        show_json(_triage_document(done))
    else:
        _show_triage(done, uncertified=options.uncertified)
    if done.failed:
        raise typer.Exit(SOME_FAILED)


def _triage_document(done: "Triage") -> dict[str, object]:
    from dataclasses import asdict

    return {
        "worklist": str(done.out),
        **_counts(done),
        "folder": None if done.counts is None else asdict(done.counts),
        "drift": asdict(done.drift),
        "warnings": list(done.warnings),
        "rows": [asdict(row) for row in done.rows],
    }


def _counts(done: "Triage") -> dict[str, int]:
    return {
        "cases": len(done.rows),
        "dismissed": sum(row.decision == "dismiss" for row in done.rows),
        "audited": sum(row.decision == "audit" for row in done.rows),
        "incomplete": sum(not row.complete for row in done.rows),
        "failed": done.failed,
    }


def _show_triage(done: "Triage", *, uncertified: bool) -> None:
    counts = _counts(done)
    say(
        f"Written to {done.out}: {counts['cases']:,} cases, {counts['dismissed']:,} dismiss,"
        + (f" {counts['audited']:,} audit (read them too)," if counts["audited"] else "")
        + f" {counts['cases'] - counts['dismissed'] - counts['audited']:,} review.",
    )
    if done.counts is not None:
        say(f"The folder has {done.counts.sentence}.")
    if counts["incomplete"]:
        say(
            f"{counts['incomplete']:,} are incomplete and therefore review ({counts['failed']:,} with an"
            " image that could not be scored): the column reason explains each.",
        )
    if done.rows and not done.rows[0].certified:
        allowed = "cases are dismissed without one" if uncertified else "everything is review"
        say(f"The model has no certificate: {allowed}.")
    say(DISCLAIMER)
