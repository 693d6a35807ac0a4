"""The command external."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache_cli.certificates import show_certification
from trust_cache_cli.options import (
    AsJson,
    Delta,
    Epochs,
    Log,
    LowMemory,
    Overwrite,
    Prevalence,
    Resplits,
    Resume,
    Rule,
    Targets,
    Threads,
    Verbose,
    Views,
)
from trust_cache_cli.output import console, note, say, show_json, show_table, warn
from trust_cache_cli.training import training_bars

if TYPE_CHECKING:
    from trust_cache.studies.external import External

EXAMPLES = """
**Examples**

    trust-cache external rsna.zarr nlbs.zarr --out external/

    trust-cache external rsna.zarr nlbs.zarr --out external/ --target 0.95 --prevalence 0.005 --by none

    trust-cache external rsna.zarr nlbs.zarr --out external/ --configurations ce,closed-loop,mine.toml --json
"""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog=EXAMPLES)(external)


def external(
    source: Annotated[str, typer.Argument(help="The cache to train on, all of it.")],
    target: Annotated[str, typer.Argument(help="The cache to certify on, of the same encoder.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The run folder to write.")],
    configurations: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Presets by name, separated by commas, and .toml files with more. [ce,closed-loop]",
        ),
    ] = None,
    epochs: Epochs = 20,
    seed: Annotated[int, typer.Option(help="The seed of both splits, batches and masks.")] = 0,
    views: Views = None,
    splits: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Reuse fit and calibrate of an external run's splits.csv."),
    ] = None,
    target_recall: Targets = None,
    delta: Delta = 0.01,
    split: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Reuse the target's split of an earlier split.csv.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Certify the same thresholds per group of a column of the target; none: no groups."
            " [site_id or site, where there are several]",
        ),
    ] = None,
    prevalence: Prevalence = None,
    resplits: Resplits = 0,
    rule: Rule = "recall",
    threads: Threads = None,
    low_memory: LowMemory = False,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Train on the whole of one set, freeze, and certify on another that the model never saw.

    Writes a run folder with the one fold `external` and, in certified/ inside it, the certificates. The
    target lends its search subset (20 %) for the thresholds; the bounds are from the other 80 %.
    """
    from trust_cache.certificate.settings import CertifySettings
    from trust_cache.heads.settings import choose_configurations
    from trust_cache.studies.external import evaluate_externally

    targets = tuple(target_recall or (0.98, 0.95))
    with training_bars() as (on_shard, on_epoch):
        result = evaluate_externally(
            source,
            target,
            out,
            configurations=choose_configurations(configurations) if configurations else None,
            epochs=epochs,
            seed=seed,
            views=views,
            splits=splits,
            threads=threads,
            low_memory=low_memory,
            resume=resume,
            overwrite=overwrite,
            terms=CertifySettings(targets, delta, seed, rule, by, prevalence, resplits),
            split=split,
            on_shard=on_shard,
            on_epoch=on_epoch,
        )
    _show(result, as_json=json)


def _show(result: "External", *, as_json: bool) -> None:
    """Print what was found, with the warnings last, where they are read."""
    from trust_cache.studies.ranking import ranking_table

    if result.resumed:
        note("the heads were trained before and reused")
    if result.kept is not None:
        note(f"{result.folder} held an earlier run: it is kept in {result.kept}")
    if as_json:
        show_json(result.as_document())
    else:
        if result.rankings:
            show_table(console(), ranking_table(result.rankings))
        show_certification(result.certification, result.certified)
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in result.seconds.items())
        say(console(), f"The run is {result.folder} ({parts}).")
    warn(result.warnings)
