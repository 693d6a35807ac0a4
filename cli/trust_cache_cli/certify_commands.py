"""The commands certify, verify and plan."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trust_cache.base.errors import InputError
from trust_cache_cli.options import (
    TARGETS,
    AsJson,
    By,
    CertifyOptions,
    ColumnOptions,
    Delta,
    OutFolder,
    Overwrite,
    Seed,
    Targets,
    command,
    command_group,
)
from trust_cache_cli.output import bar, note, say, show_json, show_list, show_table, warn

if TYPE_CHECKING:
    from trust_cache.certificate.certification import Certification
    from trust_cache.certificate.plan import Need, Reach, RuleOutlook
    from trust_cache.clinic.certify_model import ModelCertification


DISAGREES = 1
NOT_ATTACHED = 1
app = command_group()


@command(
    app,
    "certify scores.csv --out certified/",
    "certify results.xlsx --out certified/ --case accession --score prob --label class --positive malignant",
    "certify run/ --out certified/ --target 0.98 --by site --by age=50,60,70 --resplits 200",
    "certify scores.csv --out certified/ --rule ltt --prevalence 0.005 --json",
    "certify --model model/ --cache new.zarr --out certified/ --attach",
)
def certify(
    out: OutFolder,
    terms: CertifyOptions,
    columns: ColumnOptions,
    scores: Annotated[
        Path | None,
        typer.Argument(
            help="A run folder, or a table (CSV, Parquet, Excel) with case_id, label, score (and optionally"
            " configuration, image_id, further columns), one row per image or case."
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
    overwrite: Overwrite = False,
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
    from trust_cache.base.files import refuse_existing
    from trust_cache.certificate.attempts import record_attempt
    from trust_cache.certificate.certified_folder import OWN, as_document, write_certification
    from trust_cache.certificate.certify import certify as certify_scores

    made = None
    with bar("resplits", terms.resplits) as resplits:
        options = {**vars(terms), **columns.given(), "seed": seed, "by": by, "advance": resplits.advance}
        targets = options.pop("target")
        if model is not None or cache is not None or attach:
            options["overwrite"] = overwrite
            made = _certify_model(scores, model, cache, out, targets, attach, options)
            certification = made.certification
        elif scores is None:
            raise InputError("expected scores (a table or a run folder), or --model with --cache, found none")
        else:
            refuse_existing(out, own=OWN, overwrite=overwrite)
            options["protocol"] = options["protocol"] or "paper"
            certification = certify_scores(scores, targets=tuple(targets or TARGETS), **options)
            certification = record_attempt(certification, scores)
            write_certification(certification, out, overwrite=overwrite)
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
    columns: ColumnOptions,
    scores: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The scores or the run folder that were certified."),
    ] = None,
    split: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The split. [split.csv of the certificate's folder]"),
    ] = None,
    json: AsJson = False,
) -> None:
    """Recompute a certificate from its scores and split, or compare a folder with its records.

    Lists the fields, files and images that do not agree; the exit code is then 1. The names of the scores'
    columns are those that `certify` was given, if the certificate is in its folder. A run is followed to its
    cache, and a cache to its pictures.
    """
    if artefact.suffix != ".json":
        _verify_folder(artefact, scores, columns.given(), json=json)
        return
    if scores is None:
        raise InputError(f"{artefact}: expected the scores that it certifies; give them with --scores")
    from trust_cache.certificate.verify import as_document
    from trust_cache.certificate.verify import verify as verify_certificate

    verification = verify_certificate(artefact, scores, split, columns=columns.given())
    if json:
        show_json(as_document(verification))
    elif verification.holds:
        say(f"{artefact} agrees with these scores and this split.", style="green")
    else:
        title = f"{artefact} does not agree with these scores and this split:"
        show_list(title, (str(item) for item in verification.disagreements))
    if not verification.holds:
        raise typer.Exit(DISAGREES)


def _verify_folder(folder: Path, scores: Path | None, columns: dict[str, str], *, json: bool) -> None:
    """Print each link of a folder's chain with its mismatches."""
    from trust_cache.api.verify_folder import verify_folder

    links = verify_folder(folder, scores, columns)
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


@command(app, "plan --bound 0.01 --dismissal 0.2 --misses 2", "plan --cases 5997 --positives 149")
def plan(
    bound: Annotated[float | None, typer.Option(metavar="B", help="The wanted bound, a fraction.")] = None,
    dismissal: Annotated[
        float | None, typer.Option(metavar="D", help="The expected dismissal, a fraction.")
    ] = None,
    misses: Annotated[
        int | None, typer.Option(metavar="K", help="The expected cancers among the dismissed. [0]")
    ] = None,
    cases: Annotated[int | None, typer.Option(metavar="N", help="Cases of the cohort.")] = None,
    positives: Annotated[int | None, typer.Option(metavar="C", help="Positive cases of the cohort.")] = None,
    target: Targets = None,
    delta: Delta = 0.01,
    json: AsJson = False,
) -> None:
    """Print how many cases a bound needs, or which bounds a cohort can reach and how often.

    Give either --bound and --dismissal (and --misses), or --cases and --positives.
    """
    from trust_cache.certificate.plan import DISMISSALS, plan_cases, plan_reach

    if cases is not None and positives is not None and bound is None and misses is None:
        reach = plan_reach(
            cases=cases,
            positives=positives,
            targets=tuple(target or TARGETS),
            delta=delta,
            dismissals=DISMISSALS if dismissal is None else (dismissal,),
        )
        show_json(asdict(reach)) if json else _show_reach(reach)
    elif bound is not None and dismissal is not None and (cases, positives, target) == (None,) * 3:
        need = plan_cases(bound=bound, dismissal=dismissal, misses=misses or 0, delta=delta)
        show_json(asdict(need)) if json else _show_need(need)
    else:
        raise InputError(
            "plan: expected either --bound and --dismissal (with --misses), or --cases and --positives"
            " (with --target and --dismissal)"
        )


def _show_need(need: "Need") -> None:
    from trust_cache.base.text_tables import confidence, whole_percent
    from trust_cache.manifest.manifest_checks import counted

    say(
        f"A bound of {whole_percent(need.bound)} at {confidence(need.delta)} confidence with"
        f" {counted(need.misses, 'cancer')} among the dismissed needs"
        f" {counted(need.dismissed, 'dismissed case')}."
        f" At a dismissal of {whole_percent(need.dismissal)} that is {need.evaluation_cases:,} evaluation"
        f" cases, and {need.cases:,} cases with the 20 % for the threshold search.",
    )


def _show_reach(reach: "Reach") -> None:
    from trust_cache.base.text_tables import Table, confidence, percent, whole_percent

    say(
        f"{reach.cases:,} cases with {reach.positives:,} positive: search"
        f" {reach.search_cases:,} ({reach.search_positives:,}), evaluation"
        f" {reach.evaluation_cases:,} ({reach.evaluation_positives:,})."
        f" On search, recall moves in steps of {percent(reach.recall_step)}."
        f" No model can have a bound below {percent(reach.best_bound, 4)}"
        " (every negative dismissed, no positive).\n",
    )
    others = reach.targets[0].rules[1:]
    show_table(Table(
        "How often the paper's rule meets its target on evaluation (Beta-binomial law)",
        ("Target", "Misses allowed, search", "evaluation", "Target met", *(item.rule for item in others)),
        tuple(
            (
                whole_percent(row.target),
                f"{row.rules[0].search_misses}",
                f"{row.allowed}",
                percent(row.rules[0].chance_met, 0),
                *(_feasible(item) for item in row.rules[1:]),
            )
            for row in reach.targets
        ),
        "The last columns: the rules with a promise about the miss rate, and the search positives they need.",
    ))  # fmt: skip
    allowed = [
        f"{row.allowed} miss{'' if row.allowed == 1 else 'es'} ({whole_percent(row.target)})"
        for row in reach.targets
    ]
    bounds = [{at.dismissal: at.bound for at in row.bounds} for row in reach.targets]
    show_table(Table(
        f"Bound at {confidence(reach.delta)} confidence by dismissal and by the cancers among the dismissed",
        ("Dismissal", "Dismissed", "no miss", *allowed),
        tuple(
            (
                whole_percent(at.dismissal),
                f"{at.dismissed:,}",
                percent(at.bound),
                *(percent(column.get(at.dismissal)) for column in bounds),
            )
            for at in reach.bounds
        ),
    ))  # fmt: skip


def _feasible(outlook: "RuleOutlook") -> str:
    if outlook.needed is None:
        return "impossible"
    if outlook.search_misses is None:
        return f"infeasible, needs {outlook.needed}"
    return f"feasible (needs {outlook.needed})"
