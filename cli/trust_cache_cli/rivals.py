"""The command rivals."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache_cli.options import AsJson, Delta, Folds, Log, LowMemory, Targets, Threads, Verbose
from trust_cache_cli.output import console, note, progress, say, show_json, show_list, show_table, warn

if TYPE_CHECKING:
    from trust_cache.studies.rivals.study import Study

EXAMPLES = """
**Examples**

    trust-cache rivals cache.zarr --out rivals/

    trust-cache rivals cache.zarr --out rivals/ --models ce,closed-loop,selectivenet --level 0.02

    trust-cache rivals --scores run/ --out rivals/ --target 0.95 --rules recall,crc,ltt --json
"""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog=EXAMPLES)(rivals)


def rivals(
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to write.")],
    cache: Annotated[
        str | None, typer.Argument(help="A cache of features: a .zarr folder or an .h5 file.")
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
    seed: Annotated[int, typer.Option(help="The seed of folds, batches and the search split.")] = 0,
    split: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Reuse the search/evaluation split of a split.csv.")
    ] = None,
    splits: Folds = None,
    models: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Score models, separated by commas. [all]")
    ] = None,
    rules: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Threshold rules, separated by commas. [all]")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Epochs of the paper's heads.")] = 20,
    threads: Threads = None,
    low_memory: LowMemory = False,
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Compare score models and threshold rules on the same cases, folds and split.

    Score models: the paper's ce and closed-loop heads, logistic regression, SelectiveNet's selection head,
    conformal risk training. Rules: the paper's, conformal risk control, RCPS, Learn then Test, SGR. A rule
    without a threshold says how many positives or dismissed cases it needs; that is a result.
    """
    from trust_cache.base.errors import InputError
    from trust_cache.base.files import refuse_foreign
    from trust_cache.studies.rivals.folder import OWN, as_document, write_study
    from trust_cache.studies.rivals.settings import RivalSettings
    from trust_cache.studies.rivals.study import study_cache, study_scores

    if (cache is None) == (scores is None):
        raise InputError("expected a cache or --scores, found " + ("both" if cache else "neither"))
    if scores is not None and (splits is not None or models is not None):
        raise InputError("--splits and --models are for training; --scores trains nothing, leave them out")
    named = {
        name: tuple(word.strip() for word in text.split(","))
        for name, text in (("models", models), ("rules", rules))
        if text is not None
    }
    settings = RivalSettings(tuple(target or (0.98, 0.95)), level, delta, seed, epochs=epochs, **named)
    refuse_foreign(out, own=OWN)
    if cache is None:
        study = study_scores(scores or Path(), settings, split=split)
    else:
        with progress("fitting score models", settings.steps) as advance:
            study = study_cache(
                cache, settings, split=split, splits=splits, threads=threads, low_memory=low_memory,
                advance=advance,
            )  # fmt: skip
    kept = write_study(study, out)
    if kept is not None:
        note(f"{out} held other results: they are kept in {kept}")
    warn(study.warnings)
    if json:
        show_json(as_document(study))
    else:
        show_study(study, out)


def show_study(study: "Study", out: Path) -> None:
    """Print the table, what each rule promises, and what the bounds do not say."""
    from trust_cache.studies.rivals.tables import promises, rivals_table

    screen = console()
    show_table(screen, rivals_table(study))
    show_list(screen, "What each rule promises", promises(study))
    show_list(screen, "What this does not say", study.limits)
    say(screen, f"Written to {out}.")
