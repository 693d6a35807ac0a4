"""The commands report, show and reproduce."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache_cli.options import (
    AsJson,
    By,
    ColumnOptions,
    Limit,
    OutFolder,
    Prevalence,
    RunOptions,
    SplitFile,
    Targets,
    TrainingOptions,
    command,
    command_group,
    names,
)
from trust_cache_cli.output import bar, say, show_json, show_list, show_table, warn

if TYPE_CHECKING:
    from trust_cache.api.reproduce import ReproduceResult
    from trust_cache.certificate.evidence import Options

app = command_group()


@dataclass(frozen=True)
class PointOptions:
    """How the points are certified, where no certified folder is given."""

    target: Targets = None
    delta: Annotated[float | None, typer.Option(help="One minus the confidence of the bounds. [0.01]")] = None
    seed: Annotated[int | None, typer.Option(help="Seed of the search/evaluation split. [0]")] = None
    split: SplitFile = None
    limit: Limit = None
    rule: Annotated[
        str | None, typer.Option(help="How thresholds are chosen: recall, crc, rcps or ltt. [recall]")
    ] = None
    protocol: Annotated[
        str | None, typer.Option(metavar="NAME", help="paper, screening or a .toml file. [paper]")
    ] = None

    def options(self, columns: ColumnOptions) -> "Options":
        """Return them as the library takes them."""
        from trust_cache.certificate.evidence import Options

        given = vars(self) | {"targets": None if self.target is None else tuple(self.target)}
        given.pop("target")
        return Options(**given, columns=columns.given())


@command(
    app,
    "report run/ --out report.html",
    "report run/ certified/ external/ sweep/ compare/ --out report.html --figures figures/",
    "report run_b5/ run_b2/ compare/ --out report.html",
    "report run/ --out report.html --by site --prevalence 0.005 --title 'NLBS, five heads'",
)
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [FOLDER]...",
            help="A run folder (or a table of scores), and further folders to include: other runs, and"
            " folders of certify, external, sweep, compare, rivals, in any order.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The HTML page to write.")],
    points: PointOptions,
    columns: ColumnOptions,
    figures: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Also write all figures as SVG and PNG, all tables as md, tex and csv."
        ),
    ] = None,
    configuration: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The configuration shown first. [closed-loop, else by search]"),
    ] = None,
    by: By = None,
    prevalence: Prevalence = None,
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The title of the page. [the name of the run]")
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace the folder of --figures; the page is always replaced."),
    ] = False,
) -> None:
    """Write one offline HTML page of a run: the result, an explorer, figures, tables, provenance.

    With a certified folder the page shows its points and certificates. Without one, the run is certified as
    by `certify` with these options.
    """
    from trust_cache.api.study_functions import write_report

    options = replace(
        points.options(columns),
        by=tuple(by) if by else None,
        prevalence=prevalence,
        configuration=configuration,
    )
    with bar("figures") as shown:
        made = write_report(
            folders, out, figures=figures, options=options, words=sys.argv[2:], title=title,
            overwrite=overwrite, on_figures=shown.start, advance=shown.advance,
        )  # fmt: skip
    warn(made.warnings)
    say(f"Written to {out} ({made.bytes_written / 1e6:.1f} MB). It needs no network: open it in any browser.")
    if figures is not None:
        say(f"Figures and tables for a paper: {figures}")


@command(app, "show run/", "show run/ certified/")
def show(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [CERTIFIED]", help="A run folder or a table of scores, and its certified folder."
        ),
    ],
    points: PointOptions,
    columns: ColumnOptions,
) -> None:
    """Print the essentials of a run: the status of each point, its meaning, and tau by epoch."""
    from trust_cache.api.study_functions import show as find_essentials

    for found in find_essentials(folders, points.options(columns)).runs:
        warn(found.warnings)
        say(found.title, style="bold")
        show_table(found.table)
        show_list("In words", found.sentences)
        show_list("Not certified", found.reasons)
        show_list("Tau by epoch", found.courses)
        show_list("What this does not say", found.limits)


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
