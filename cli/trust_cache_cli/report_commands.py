"""The commands report and show."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache_cli.options import By, Limit, Prevalence, SplitFile, Targets, command, command_group
from trust_cache_cli.output import bar, note_kept, say, show_list, show_table, warn

if TYPE_CHECKING:
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
    protocol: Annotated[
        str | None, typer.Option(metavar="NAME", help="paper, screening or a .toml file. [paper]")
    ] = None
    patient: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column of patients, if the scores have one. [patient_id]"),
    ] = None

    def options(self) -> "Options":
        """Return them as the library takes them."""
        from trust_cache.certificate.evidence import Options

        given = vars(self) | {"targets": None if self.target is None else tuple(self.target)}
        given.pop("target")
        return Options(**given)


@command(
    app,
    "report run/ --out report.html",
    "report run/ certified/ external/ sweep/ compare/ --out report.html --figures figures/",
    "report run/ --out report.html --by site --prevalence 0.005",
)
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [FOLDER]...",
            help="A run folder (or a CSV of scores), and further folders to include: from certify,"
            " external, sweep, compare, in any order.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The HTML page to write.")],
    points: PointOptions,
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
) -> None:
    """Write one offline HTML page of a run: the result, an explorer, figures, tables, provenance.

    With a certified folder the page shows its points and certificates. Without one, the run is certified as
    by `certify` with these options.
    """
    from trust_cache.api.study_functions import write_report

    options = replace(points.options(), by=by, prevalence=prevalence, configuration=configuration)
    with bar("figures") as shown:
        made = write_report(
            folders, out, figures=figures, options=options, words=sys.argv[2:], on_figures=shown.start,
            advance=shown.advance,
        )  # fmt: skip
    warn(made.warnings)
    say(f"Written to {out} ({made.bytes_written / 1e6:.1f} MB). It needs no network: open it in any browser.")
    if figures is not None:
        note_kept(figures, made.kept)
        say(f"Figures and tables for a paper: {figures}")


@command(app, "show run/", "show run/ certified/")
def show(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [CERTIFIED]", help="A run folder or a CSV of scores, and its certified folder."
        ),
    ],
    points: PointOptions,
) -> None:
    """Print the essentials of a run: the status of each point, its meaning, and tau by epoch."""
    from trust_cache.api.study_functions import show as find_essentials

    for found in find_essentials(folders, points.options()).runs:
        warn(found.warnings)
        say(found.title, style="bold")
        show_table(found.table)
        show_list("In words", found.sentences)
        show_list("Not certified", found.reasons)
        show_list("Tau by epoch", found.courses)
        show_list("What this does not say", found.limits)
