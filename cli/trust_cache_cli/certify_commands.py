"""The commands certify, verify and plan."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trust_cache.base.errors import InputError
from trust_cache_cli.options import (
    TARGETS,
    AsJson,
    By,
    CertifyOptions,
    Delta,
    OutFolder,
    PatientColumn,
    Seed,
    Targets,
    command,
    command_group,
)
from trust_cache_cli.output import bar, note, note_kept, say, show_json, show_list, show_table, warn

if TYPE_CHECKING:
    from trust_cache.api.certificate_functions import CertifyResult
    from trust_cache.api.clinic_functions import ModelCertifyResult
    from trust_cache.certificate.certification import Certification


DISAGREES = 1
NOT_ATTACHED = 1
app = command_group()


@command(
    app,
    "certify scores.csv --out certified/",
    "certify run/ --out certified/ --target 0.98 --by site --resplits 200",
    "certify scores.csv --out certified/ --rule ltt --prevalence 0.005 --json",
    "certify --model model/ --cache new.zarr --out certified/ --attach",
)
def certify(
    out: OutFolder,
    terms: CertifyOptions,
    scores: Annotated[
        Path | None,
        typer.Argument(
            help="A run folder, or a CSV with case_id, label, score (and optionally configuration,"
            " image_id, further columns), one row per image or case."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Instead of scores: a model folder, whose head scores --cache."),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(
            metavar="CACHE", help="With --model: a cache of cases that the model was not trained on."
        ),
    ] = None,
    attach: Annotated[
        bool,
        typer.Option(
            "--attach", help="With --model: write the certificate and its threshold to the model folder."
        ),
    ] = False,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --model: the key of export-model. Case ids are then compared too, not only images.",
        ),
    ] = None,
    seed: Seed = 0,
    by: By = None,
    patient: PatientColumn = "patient_id",
    json: AsJson = False,
) -> None:
    """Choose a threshold per recall target on 20 % of the cases and certify it on the rest.

    A target that is not met on the evaluation subset is printed as N/A; that is a result. A point is
    certified if its target is met and its corrected bound is below the limit. The files always contain the
    counts. Each call is recorded in NAME.attempts.json beside the scores, run or model NAME, and the
    certificates list all attempts in that file. With --model, the model's head first scores a cache of new
    cases, and the default target is the model's own. With --attach, the exit code is 1 if there was nothing
    to attach.
    """
    from trust_cache.certificate.certified_folder import as_document

    made: ModelCertifyResult | None = None
    certification: CertifyResult
    with bar("resplits", terms.resplits) as resplits:
        options = {**vars(terms), "seed": seed, "by": by, "patient": patient, "advance": resplits.advance}
        targets = options.pop("target")
        if model is not None or cache is not None or attach or key is not None:
            options |= {"targets": targets, "attach": attach, "key": key}
            certification = made = _certify_model(scores, model, cache, out, options)
        elif scores is None:
            raise InputError(
                "expected scores (a CSV file or run folder), or --model with --cache, found none"
            )
        else:
            from trust_cache.api.certificate_functions import certify as certify_scores

            options["protocol"] = options["protocol"] or "paper"
            certification = certify_scores(scores, out, targets=tuple(targets or TARGETS), **options)
    note_kept(out, certification.kept)
    warn(certification.warnings)
    if json:
        show_json(as_document(certification))
    else:
        show_certification(certification, out)
    if made is not None and attach:
        _say_attached(made, model)


def _certify_model(
    scores: Path | None,
    model: Path | None,
    cache: str | None,
    out: Path,
    options: dict[str, Any],
) -> "ModelCertifyResult":
    from trust_cache.api.clinic_functions import certify_model

    if scores is not None or model is None or cache is None:
        raise InputError(
            "expected either scores, or --model together with --cache (and --attach and --key only with them)"
        )
    return certify_model(model, cache, out, **options)


def _say_attached(made: "ModelCertifyResult", model: Path | None) -> None:
    if not made.attached:
        note(f"{model} is unchanged, the certificate was not attached: {made.not_attached}")
        raise typer.Exit(NOT_ATTACHED)
    note(f"{model} is now certified; the earlier version is in {made.model_kept}")


def show_certification(certification: "Certification", out: Path) -> None:
    """Print the tables, the results in words, and their limits."""
    from trust_cache.certificate.point_tables import all_tables, reasons, sentences

    for table in all_tables(certification).values():
        show_table(table)
    show_list("In words", sentences(certification))
    show_list("Not certified", reasons(certification))
    show_list("What this does not say", certification.limits)
    say(f"Written to {out}. A third party recomputes a certificate with")
    say(f"  trust-cache verify {out}/certificates/NAME.json --scores {certification.scores.source}")


@command(
    app,
    "verify certified/certificates/closed-loop@0.98.json --scores run/scores.csv",
    "verify run/",
    "verify certified/ --scores run/",
    "verify cache.zarr --json",
)
def verify(
    artefact: Annotated[
        str,
        typer.Argument(
            help="A file of certified/certificates/, or any folder, cache, worklist or history that a command"
            " wrote; the cache may be a URL."
        ),
    ],
    scores: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The scores or the run folder that were certified."),
    ] = None,
    split: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The split of a certificate. [split.csv of its folder]"),
    ] = None,
    patient: PatientColumn = "patient_id",
    json: AsJson = False,
) -> None:
    """Recompute a certificate from its scores and split, or compare an artefact with its records.

    Lists the fields, files, rows and images that do not agree; the exit code is then 1. A certified folder is
    followed to its run, a run to its cache, and a cache to its pictures. A worklist is compared with
    NAME.record.json beside it. A report is a page to read: verify what it was made from.
    """
    from trust_cache.api.verify_folder import verify as verify_artefact
    from trust_cache.certificate.verify import as_document

    found = verify_artefact(artefact, scores, split, patient=patient)
    if json and found.verification is not None:
        show_json(as_document(found.verification))
    elif json:
        show_json([asdict(link) for link in found.links])
    else:
        with_what = "its record" if found.verification is None else "these scores and this split"
        for link in found.links:
            for text in link.notes:
                note(text)
            place = link.place if found.verification is not None else f"{link.place} ({link.kind})"
            if link.mismatches:
                show_list(f"{place} does not agree with {with_what}:", link.mismatches)
            else:
                say(f"{place} agrees with {with_what}.", style="green")
    if not found.holds:
        raise typer.Exit(DISAGREES)


@dataclass(frozen=True)
class PlanOptions:
    """What is wanted or known; see the help of the command."""

    bound: Annotated[float | None, typer.Option(metavar="B", help="The wanted bound, a fraction.")] = None
    dismissal: Annotated[
        float | None, typer.Option(metavar="D", help="The expected dismissal, a fraction.")
    ] = None
    misses: Annotated[
        int | None, typer.Option(metavar="K", help="The expected cancers among the dismissed. [0]")
    ] = None
    cases: Annotated[int | None, typer.Option(metavar="N", help="Cases of the cohort.")] = None
    positives: Annotated[int | None, typer.Option(metavar="C", help="Positive cases of the cohort.")] = None
    rate: Annotated[
        float | None, typer.Option(metavar="P", help="The true cancer rate among the dismissed.")
    ] = None
    limit: Annotated[float | None, typer.Option(metavar="L", help="The largest acceptable bound.")] = None
    assurance: Annotated[
        float | None, typer.Option(metavar="A", help="The wanted chance of a bound below the limit.")
    ] = None
    audit: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="The share of dismissed cases that is read anyway after certification."
        ),
    ] = None


@command(
    app,
    "plan --bound 0.01 --dismissal 0.2 --misses 2",
    "plan --bound 0.01 --dismissal 0.2 --misses 2 --audit 0.05 --figure watching.svg",
    "plan --cases 5997 --positives 149",
    "plan --rate 0.002 --limit 0.01 --dismissal 0.2 --cases 6000",
    "plan --rate 0.002 --limit 0.01 --dismissal 0.2 --assurance 0.9 --figure assurance.svg",
)
def plan(
    options: PlanOptions,
    target: Targets = None,
    delta: Delta = 0.01,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw it (.svg, .png, .html, .json).")
    ] = None,
    json: AsJson = False,
) -> None:
    """Print how many cases a bound needs, which bounds a cohort can reach, and how likely each is.

    Give --bound and --dismissal (and --misses) for the cases that a bound needs, and for how soon monitoring
    confirms it or raises the alarm (--audit: from audited cases alone). Give --cases and --positives for what
    a cohort can reach. Give --rate, --limit and --dismissal with --cases for the assurance, the chance that
    the bound will be below the limit, or with --assurance for the cases that it needs.
    """
    from trust_cache.api.certificate_functions import plan as plan_study
    from trust_cache.certificate.planning import plan_tables

    found = plan_study(**vars(options), targets=target, delta=delta)
    if figure is not None:
        from trust_cache.figures.figure import save_figure

        save_figure(found.figure(), figure)
    if json:
        show_json(found.as_document())
        return
    if found.need is not None:
        say(plan_tables.need_in_words(found.need))
    if found.watch is not None:
        show_table(plan_tables.watch_table(found.watch))
    if found.assurance is not None:
        say(plan_tables.assurance_in_words(found.assurance))
    if found.reach is not None:
        say(plan_tables.reach_in_words(found.reach))
        for table in plan_tables.reach_tables(found.reach):
            show_table(table)
