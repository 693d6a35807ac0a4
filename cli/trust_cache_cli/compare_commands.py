"""The commands compare, rivals and reproduce."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache_cli.options import (
    TARGETS,
    AsJson,
    ColumnOptions,
    Delta,
    Epochs,
    Folds,
    Limit,
    LowMemory,
    OutFolder,
    Overwrite,
    ProtocolOption,
    RunOptions,
    Seed,
    SplitFile,
    Targets,
    Threads,
    TrainingOptions,
    command,
    command_group,
    names,
)
from trust_cache_cli.output import bar, say, show_json, show_list, show_table, warn

if TYPE_CHECKING:
    from trust_cache.api.reproduce import ReproduceResult
    from trust_cache.studies.rivals.rivals import RivalsStudy


app = command_group()


@command(
    app,
    "compare run/ --out compare/",
    "compare scores.csv --out compare/ --reference fixed-tau --target 0.95",
    "compare run/ --out compare/ --margin-points 2 --swaps 20000 --resamples 20000 --json",
    "compare run_b5/ run_b2/ --out compare/ --names b5,b2",
)
def compare(
    scores: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="A run folder (fit-heads, external), or a table with configuration, case_id, label, score;"
            " or several, on caches of the same cases.",
        ),
    ],
    out: OutFolder,
    columns: ColumnOptions,
    run_names: Annotated[
        str | None,
        typer.Option(
            "--names", metavar="NAMES", help="Names of the runs, separated by commas. [their encoders]"
        ),
    ] = None,
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
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Test whether one configuration dismisses more than another at the same recall.

    Prints a test and an interval on all cases, whether the sign holds in every repeat of the training, the
    spread over single splits, and DeLong's test of the case AUROCs. The data often cannot decide: that is a
    result. Several runs, on caches of the same cases by several encoders and with the same folds, are also
    compared with each other, configuration by configuration.
    """
    from trust_cache.api.study_functions import compare as compare_scores
    from trust_cache.studies.compare.compare_folder import sentences
    from trust_cache.studies.compare.compare_tables import all_tables

    with bar("resplits", resplits) as shown:
        found = compare_scores(
            scores,
            out,
            names=names(run_names),
            targets=tuple(target or TARGETS),
            reference=reference,
            resamples=resamples,
            swaps=swaps,
            seed=seed,
            resplits=resplits,
            margin_points=margin_points,
            protocol=protocol,
            overwrite=overwrite,
            **columns.given(),
            advance=shown.advance,
        )
    comparison = found.comparison
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
    columns: ColumnOptions,
    cache: Annotated[
        str | None, typer.Argument(help="A cache of features: a .zarr folder or URL, or an .h5 file.")
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Instead of a cache: a run folder or a table of scores; nothing is trained."
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
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Compare score models and threshold rules on the same cases, folds and split.

    Score models: the paper's ce and closed-loop heads, logistic regression, SelectiveNet, conformal risk
    training. Rules: the paper's, conformal risk control, RCPS, Learn then Test, SGR. A rule
    that finds no threshold prints how many positives or dismissed cases it needs; that is a result.
    """
    from trust_cache.api.study_functions import rivals as study_rivals
    from trust_cache.studies.rivals.rivals_folder import as_document

    with bar("fitting score models") as shown:
        study = study_rivals(
            cache, out, scores=scores, targets=tuple(target or TARGETS), level=level, delta=delta,
            limit=limit, protocol=protocol, seed=seed, split=split, folds=folds, models=names(models),
            rules=names(rules), epochs=epochs, threads=threads, low_memory=low_memory, overwrite=overwrite,
            on_start=shown.start, advance=shown.advance, **columns.given(),
        )  # fmt: skip
    warn(study.warnings)
    show_json(as_document(study)) if json else _show_study(study, out)


def _show_study(study: "RivalsStudy", out: Path) -> None:
    from trust_cache.studies.rivals.rivals_folder import promises, rivals_table

    show_table(rivals_table(study))
    show_list("What each rule promises", promises(study))
    show_list("What this does not say", study.limits)
    say(f"Written to {out}.")


@command(
    app,
    "reproduce --rsna rsna.zarr --nlbs nlbs.zarr --out paper/",
    "reproduce --rsna rsna.zarr --nlbs nlbs.zarr --out paper/ --configurations paper,tuned",
    "reproduce --nlbs nlbs.zarr --out paper/ --repeats 1 --resplits 50 --programme 2000000 --fee 40 --json",
    kept="complete steps are kept in {out}; the same command with --resume continues",
)
def reproduce(
    out: OutFolder,
    training: TrainingOptions,
    run: RunOptions,
    rsna: Annotated[str | None, typer.Option(metavar="CACHE", help="The cache of RSNA.")] = None,
    nlbs: Annotated[str | None, typer.Option(metavar="CACHE", help="The cache of NLBS.")] = None,
    configurations: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Presets by name, separated by commas, and .toml files with others. [paper: its five]",
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(metavar="R", help="Trainings, for the comparison.")] = 5,
    resplits: Annotated[int, typer.Option(metavar="R", help="Random splits, for the spread.")] = 200,
    resamples: Annotated[
        int, typer.Option(metavar="B", help="Resamples and random swaps, for the comparison.")
    ] = 2_000,
    programme: Annotated[
        int, typer.Option(metavar="N", help="Examinations of a programme, for the economic estimate.")
    ] = 10_000_000,
    fee: Annotated[
        float, typer.Option(metavar="CAD", help="Fee for one interpretation, for the economic estimate.")
    ] = 31.0,
    json: AsJson = False,
) -> None:
    """Reproduce the paper's tables and figures from two caches, beside what it printed.

    Trains, certifies and compares the configurations on each cache, and evaluates RSNA's heads on NLBS.
    Writes tables 1 to 4, figures 1a and 1b, the economic estimate, a list of every published number, and one
    page. Without one of the caches its part has the published numbers alone.
    """
    from trust_cache.api.reproduce import Listener
    from trust_cache.api.reproduce import reproduce as reproduce_paper

    with bar("  ") as shown:
        found = reproduce_paper(
            rsna, nlbs, out, configurations=names(configurations), repeats=repeats, resplits=resplits,
            resamples=resamples, programme=programme, fee=fee, **vars(training), **vars(run),
            listen=Listener(step=shown.announce, part=shown.show),
        )  # fmt: skip
    warn((*found.notices, *found.warnings))
    show_json(found.as_document()) if json else _show_paper(found)


def _show_paper(found: "ReproduceResult") -> None:
    for item in found.reproduction.tables:
        show_table(item.table)
    show_table(found.reproduction.further_tables["economics"])
    show_list("In words", found.reproduction.sentences())
    show_list("Features", found.encoders)
    say(f"Written to {found.folder}; the page is {found.page}.")
