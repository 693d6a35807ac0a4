"""The commands certify and verify."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trust_cache.base.errors import InputError
from trust_cache_cli.options import (
    AsJson,
    Delta,
    Log,
    Prevalence,
    Resplits,
    Rule,
    SplitFile,
    Targets,
    Verbose,
)
from trust_cache_cli.output import console, note, progress, say, show_json, show_list, show_table, warn

if TYPE_CHECKING:
    from trust_cache.certificate.certify import Certification
    from trust_cache.service.models.certification import ModelCertification

DISAGREES = 1
NOT_ATTACHED = 1

CERTIFY_EXAMPLES = """
**Examples**

    trust-cache certify scores.csv --out certified/

    trust-cache certify run/ --out certified/ --target 0.98 --by site --resplits 200

    trust-cache certify scores.csv --out certified/ --rule ltt --prevalence 0.005 --json

    trust-cache certify --model model/ --cache new.zarr --out certified/ --attach
"""
VERIFY_EXAMPLES = """
**Example**

    trust-cache verify certified/certificates/closed-loop@0.98.json --scores run/scores.csv
"""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog=CERTIFY_EXAMPLES)(certify)
    app.command(epilog=VERIFY_EXAMPLES)(verify)


def certify(
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to write.")],
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
        str | None, typer.Option(metavar="CACHE", help="With --model: a cache of cases that it never saw.")
    ] = None,
    attach: Annotated[
        bool,
        typer.Option(
            "--attach", help="With --model: put the certificate and its threshold into the model folder."
        ),
    ] = False,
    target: Targets = None,
    delta: Delta = 0.01,
    seed: Annotated[int, typer.Option(help="The seed of the search/evaluation split.")] = 0,
    split: SplitFile = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Certify the same thresholds per group of a column."),
    ] = None,
    prevalence: Prevalence = None,
    resplits: Resplits = 0,
    rule: Rule = "recall",
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Choose a threshold per recall target on 20 % of the cases and certify it on the rest.

    A target that is not met on the evaluation subset is printed as N/A; that is a result. The files
    always carry the counts. With --model the scores are made first, by a model's head on a cache of new
    cases; the default target is then the model's own. With --attach the exit code is 1 if there was nothing
    to attach.
    """
    from trust_cache.certificate.folder import as_document

    terms = {"delta": delta, "seed": seed, "split": split, "by": by, "prevalence": prevalence}
    terms |= {"resplits": resplits, "rule": rule}
    attached = None
    with progress("resplits", resplits) as advance:
        if model is not None or cache is not None or attach:
            made = _certify_model(scores, model, cache, out, target, attach, terms | {"advance": advance})
            certification, kept, attached = made.certification, made.kept, made
        else:
            certification, kept = _certify_scores(scores, out, target, terms | {"advance": advance})
    if kept is not None:
        note(f"{out} held other results: they are kept in {kept}")
    warn(certification.warnings)
    if json:
        show_json(as_document(certification))
    else:
        show_certification(certification, out)
    if attached is not None and attach:
        _say_attached(attached, model)


def _certify_scores(
    scores: Path | None, out: Path, targets: list[float] | None, terms: dict[str, Any]
) -> "tuple[Certification, Path | None]":
    from trust_cache.base.files import refuse_foreign
    from trust_cache.certificate.certify import certify as certify_scores
    from trust_cache.certificate.folder import OWN, write_certification

    if scores is None:
        raise InputError("expected scores (a CSV file or a run folder), or --model with --cache, found none")
    refuse_foreign(out, own=OWN)
    certification = certify_scores(scores, targets=tuple(targets or (0.98, 0.95)), **terms)
    return certification, write_certification(certification, out)


def _certify_model(
    scores: Path | None,
    model: Path | None,
    cache: str | None,
    out: Path,
    targets: list[float] | None,
    attach: bool,
    terms: dict[str, Any],
) -> "ModelCertification":
    from trust_cache.service.models.certification import certify_model

    if scores is not None or model is None or cache is None:
        raise InputError(
            "expected either scores, or --model together with --cache (and --attach only with them)"
        )
    return certify_model(model, cache, out, targets=targets, attach=attach, **terms)


def _say_attached(made: "ModelCertification", model: Path | None) -> None:
    if not made.attached:
        note(f"{model} is as it was, the certificate was not attached: {made.not_attached}")
        raise typer.Exit(NOT_ATTACHED)
    note(f"{model} is now certified; as it was before it is kept in {made.model_kept}")


def show_certification(certification: "Certification", out: Path) -> None:
    """Print the tables, the sentences with their warrant, and what they do not say."""
    from trust_cache.certificate.tables import all_tables, reasons, sentences

    screen = console()
    for table in all_tables(certification):
        show_table(screen, table)
    for title, found in (("In words", sentences(certification)), ("Why N/A", reasons(certification))):
        if found:
            show_list(screen, title, found)
    show_list(screen, "What this does not say", certification.limits)
    say(screen, f"Written to {out}. A third party recomputes a certificate with")
    say(screen, f"  trust-cache verify {out}/certificates/NAME.json --scores {certification.scores.source}")


def verify(
    certificate: Annotated[Path, typer.Argument(help="A file of certified/certificates/.")],
    scores: Annotated[
        Path, typer.Option(metavar="FILE", help="The scores (or the run folder) it speaks of.")
    ],
    split: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The split. [split.csv of the certificate's folder]"),
    ] = None,
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Recompute a certificate from its scores and split.

    Exit code 1 and the fields' names where anything does not agree.
    """
    from trust_cache.certificate.verify import as_document
    from trust_cache.certificate.verify import verify as verify_it

    verification = verify_it(certificate, scores, split)
    if json:
        show_json(as_document(verification))
    else:
        screen = console()
        if verification.holds:
            say(screen, f"{certificate} agrees with these scores and this split.", style="green")
        else:
            title = f"{certificate} does not agree with these scores and this split:"
            show_list(screen, title, (str(item) for item in verification.disagreements))
    if not verification.holds:
        raise typer.Exit(DISAGREES)
