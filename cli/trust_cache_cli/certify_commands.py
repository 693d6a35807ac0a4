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
    from trust_cache.certificate.certification import Certification
    from trust_cache.clinic.certify_model import ModelCertification


DISAGREES = 1
NOT_ATTACHED = 1
_ASSURANCE, _COHORT, _BOUND = {"rate", "limit", "dismissal"}, {"cases", "positives"}, {"bound", "dismissal"}
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
    from trust_cache.base.files import refuse_unknown
    from trust_cache.certificate.attempts import record_attempt
    from trust_cache.certificate.certified_folder import OWN, as_document, write_certification
    from trust_cache.certificate.certify import certify as certify_scores

    made = None
    with bar("resplits", terms.resplits) as resplits:
        options = {**vars(terms), "seed": seed, "by": by, "patient": patient, "advance": resplits.advance}
        targets = options.pop("target")
        if model is not None or cache is not None or attach:
            made = _certify_model(scores, model, cache, out, targets, attach, options)
            certification, kept = made.certification, made.kept
        elif scores is None:
            raise InputError(
                "expected scores (a CSV file or run folder), or --model with --cache, found none"
            )
        else:
            refuse_unknown(out, own=OWN)
            options["protocol"] = options["protocol"] or "paper"
            certification = certify_scores(scores, targets=tuple(targets or TARGETS), **options)
            certification = record_attempt(certification, scores)
            kept = write_certification(certification, out)
    note_kept(out, kept)
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
    targets: list[float] | None,
    attach: bool,
    options: dict[str, Any],
) -> "ModelCertification":
    from trust_cache.clinic.certify_model import certify_model

    if scores is not None or model is None or cache is None:
        raise InputError(
            "expected either scores, or --model together with --cache (and --attach only with them)"
        )
    return certify_model(model, cache, out, targets=targets, attach=attach, **options)


def _say_attached(made: "ModelCertification", model: Path | None) -> None:
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
)
def verify(
    artefact: Annotated[
        Path,
        typer.Argument(
            help="A file of certified/certificates/, or any folder, cache or worklist that a command wrote."
        ),
    ],
    scores: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The scores or the run folder that were certified."),
    ] = None,
    split: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The split. [split.csv of the certificate's folder]"),
    ] = None,
    patient: PatientColumn = "patient_id",
    json: AsJson = False,
) -> None:
    """Recompute a certificate from its scores and split, or compare a folder with its records.

    Lists the fields, files and images that do not agree; the exit code is then 1. A run is followed to its
    cache, and a cache to its pictures.
    """
    if artefact.suffix != ".json":
        _verify_folder(artefact, scores, json=json)
        return
    if scores is None:
        raise InputError(f"{artefact}: expected the scores that it certifies; give them with --scores")
    from trust_cache.certificate.verify import as_document
    from trust_cache.certificate.verify import verify as verify_certificate

    verification = verify_certificate(artefact, scores, split, patient=patient)
    if json:
        show_json(as_document(verification))
    elif verification.holds:
        say(f"{artefact} agrees with these scores and this split.", style="green")
    else:
        title = f"{artefact} does not agree with these scores and this split:"
        show_list(title, (str(item) for item in verification.disagreements))
    if not verification.holds:
        raise typer.Exit(DISAGREES)


def _verify_folder(folder: Path, scores: Path | None, *, json: bool) -> None:
    """Print each link of a folder's chain with its mismatches."""
    from trust_cache.api.verify_folder import verify_folder

    links = verify_folder(folder, scores)
    if json:
        show_json([asdict(link) for link in links])
    else:
        for link in links:
            for text in link.notes:
                note(text)
            if link.mismatches:
                show_list(f"{link.place} ({link.kind}) does not agree with its record:", link.mismatches)
            else:
                say(f"{link.place} ({link.kind}) agrees with its record.", style="green")
    if any(link.mismatches for link in links):
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
    given = {name for name, value in vars(options).items() if value is not None}
    given |= {"target"} if target else set()
    given |= {"figure"} if figure is not None else set()
    if _ASSURANCE <= given <= _ASSURANCE | {"cases", "assurance", "figure"}:
        _plan_assurance(options, delta, figure, json=json)
    elif _COHORT <= given <= _COHORT | {"dismissal", "target"}:
        _plan_reach(options, target, delta, json=json)
    elif _BOUND <= given <= _BOUND | {"misses", "audit", "rate", "figure"}:
        _plan_need(options, delta, figure, json=json)
    else:
        raise InputError(
            "plan: expected --bound and --dismissal (with --misses, --audit, --rate), or --cases and"
            " --positives (with --target, --dismissal), or --rate, --limit and --dismissal with --cases or"
            " --assurance"
        )


def _plan_need(options: PlanOptions, delta: float, figure: Path | None, *, json: bool) -> None:
    from trust_cache.certificate.planning.plan import plan_cases
    from trust_cache.certificate.planning.plan_tables import need_in_words, watch_table
    from trust_cache.certificate.planning.watch_plan import plan_watch

    bound, dismissal, misses = options.bound or 0.0, options.dismissal or 0.0, options.misses or 0
    need = plan_cases(bound=bound, dismissal=dismissal, misses=misses, delta=delta)
    watch = plan_watch(bound=bound, misses=misses, audit=options.audit, delta=delta, rate=options.rate)
    if json:
        show_json(asdict(need) | {"watching": _without_curves(asdict(watch))})
    else:
        say(need_in_words(need))
        show_table(watch_table(watch))
    if figure is not None:
        from trust_cache.figures.figure import save_figure
        from trust_cache.figures.monitoring_figures import watch_figure

        save_figure(watch_figure(watch), figure)


def _plan_assurance(options: PlanOptions, delta: float, figure: Path | None, *, json: bool) -> None:
    from trust_cache.certificate.planning.plan_tables import assurance_in_words
    from trust_cache.certificate.planning.watch_plan import plan_assurance

    found = plan_assurance(
        rate=options.rate or 0.0,
        limit=options.limit or 0.0,
        dismissal=options.dismissal or 0.0,
        cases=options.cases,
        wanted=options.assurance,
        delta=delta,
    )
    show_json(_without_curves(asdict(found))) if json else say(assurance_in_words(found))
    if figure is not None:
        from trust_cache.figures.figure import save_figure
        from trust_cache.figures.monitoring_figures import assurance_figure

        save_figure(assurance_figure(found), figure)


def _plan_reach(options: PlanOptions, target: list[float] | None, delta: float, *, json: bool) -> None:
    from trust_cache.certificate.planning.plan import DISMISSALS, plan_reach
    from trust_cache.certificate.planning.plan_tables import reach_in_words, reach_tables

    reach = plan_reach(
        cases=options.cases or 0,
        positives=options.positives or 0,
        targets=tuple(target or TARGETS),
        delta=delta,
        dismissals=DISMISSALS if options.dismissal is None else (options.dismissal,),
    )
    if json:
        show_json(asdict(reach))
        return
    say(reach_in_words(reach))
    for table in reach_tables(reach):
        show_table(table)


def _without_curves(document: Any) -> Any:
    if isinstance(document, dict):
        return {name: _without_curves(value) for name, value in document.items() if name != "curve"}
    return [_without_curves(item) for item in document] if isinstance(document, list | tuple) else document
