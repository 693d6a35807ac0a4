"""The commands compare and rivals."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache_cli.options import (
    TARGETS,
    AsJson,
    Delta,
    Epochs,
    Folds,
    Limit,
    LowMemory,
    OutFolder,
    PatientColumn,
    ProtocolOption,
    Seed,
    SplitFile,
    Targets,
    Threads,
    command,
    command_group,
    names,
)
from trust_cache_cli.output import bar, note_kept, say, show_json, show_list, show_table, warn

if TYPE_CHECKING:
    from trust_cache.studies.rivals.rivals import RivalsStudy


app = command_group()


@command(
    app,
    "compare run/ --out compare/",
    "compare scores.csv --out compare/ --reference fixed-tau --target 0.95",
    "compare run/ --out compare/ --margin-points 2 --swaps 20000 --resamples 20000 --json",
)
def compare(
    scores: Annotated[
        Path,
        typer.Argument(
            help="A run folder (fit-heads, external), or a CSV with configuration, case_id, label, score."
        ),
    ],
    out: OutFolder,
    target: Targets = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The configuration that the others are compared with. [closed-loop, else the first]",
        ),
    ] = None,
    resamples: Annotated[
        int, typer.Option(metavar="B", help="Resamples of the cases, for the interval.")
    ] = 2_000,
    swaps: Annotated[int, typer.Option(metavar="B", help="Random swaps, for the test.")] = 2_000,
    seed: Seed = 0,
    resplits: Annotated[
        int, typer.Option(metavar="R", help="Random search/evaluation splits, to count missed targets.")
    ] = 200,
    margin_points: Annotated[
        float,
        typer.Option(metavar="POINTS", help="Margin of non-inferiority, in percentage points of dismissal."),
    ] = 1.0,
    protocol: ProtocolOption = "paper",
    patient: PatientColumn = "patient_id",
    json: AsJson = False,
) -> None:
    """Test whether one configuration dismisses more than another at the same recall.

    Prints a test and an interval on all cases, whether the sign holds in every repeat of the training, the
    spread over single splits, and DeLong's test of the case AUROCs. The data often cannot decide: that is a
    result.
    """
    from trust_cache.api.study_functions import compare as compare_scores
    from trust_cache.studies.compare.compare_folder import sentences
    from trust_cache.studies.compare.compare_tables import all_tables

    with bar("resplits", resplits) as shown:
        found = compare_scores(
            scores,
            out,
            targets=tuple(target or TARGETS),
            reference=reference,
            resamples=resamples,
            swaps=swaps,
            seed=seed,
            resplits=resplits,
            margin_points=margin_points,
            protocol=protocol,
            patient=patient,
            advance=shown.advance,
        )
    comparison = found.comparison
    note_kept(out, found.kept)
    warn(comparison.warnings)
    if json:
        show_json(comparison.as_document())
        return
    for table in all_tables(comparison):
        show_table(table)
    show_list("In words", sentences(comparison))
    show_list("What this does not say", comparison.limits)
    say(f"Written to {out}.")


@command(
    app,
    "rivals cache.zarr --out rivals/",
    "rivals cache.zarr --out rivals/ --models ce,closed-loop,selectivenet --level 0.02",
    "rivals --scores run/ --out rivals/ --target 0.95 --rules recall,crc,ltt --json",
)
def rivals(
    out: OutFolder,
    cache: Annotated[
        str | None, typer.Argument(help="A cache of features: a .zarr folder or URL, or an .h5 file.")
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Instead of a cache: a run folder or a scores.csv; nothing is trained."
        ),
    ] = None,
    target: Targets = None,
    level: Annotated[
        float, typer.Option(metavar="P", help="The cancer rate among the dismissed to stay below.")
    ] = 0.01,
    delta: Delta = 0.01,
    limit: Limit = None,
    protocol: ProtocolOption = "paper",
    seed: Seed = 0,
    split: SplitFile = None,
    folds: Folds = None,
    models: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Score models, separated by commas. [all]")
    ] = None,
    rules: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Threshold rules, separated by commas. [all]")
    ] = None,
    epochs: Epochs = 20,
    threads: Threads = None,
    low_memory: LowMemory = False,
    json: AsJson = False,
) -> None:
    """Compare score models and threshold rules on the same cases, folds and split.

    Score models: the paper's ce and closed-loop heads, logistic regression, SelectiveNet's selection head,
    conformal risk training. Rules: the paper's, conformal risk control, RCPS, Learn then Test, SGR. A rule
    that finds no threshold prints how many positives or dismissed cases it needs; that is a result.
    """
    from trust_cache.api.study_functions import rivals as study_rivals
    from trust_cache.studies.rivals.rivals_folder import as_document

    with bar("fitting score models") as shown:
        study = study_rivals(
            cache, out, scores=scores, targets=tuple(target or TARGETS), level=level, delta=delta,
            limit=limit, protocol=protocol, seed=seed, split=split, folds=folds, models=names(models),
            rules=names(rules), epochs=epochs, threads=threads, low_memory=low_memory, on_start=shown.start,
            advance=shown.advance,
        )  # fmt: skip
    note_kept(out, study.kept)
    warn(study.warnings)
    show_json(as_document(study)) if json else _show_study(study, out)


def _show_study(study: "RivalsStudy", out: Path) -> None:
    from trust_cache.studies.rivals.rivals_folder import promises, rivals_table

    show_table(rivals_table(study))
    show_list("What each rule promises", promises(study))
    show_list("What this does not say", study.limits)
    say(f"Written to {out}.")
