"""The command images synthesize."""

from pathlib import Path
from typing import Annotated

import typer

from trust_cache_cli.options import AsJson, Log, Verbose
from trust_cache_cli.output import console, progress, say, show_json

SYNTHESIZE_EXAMPLES = """
**Examples**

    trust-cache images synthesize --like rsna --cases 150 --out synthetic/

    trust-cache images synthesize --like nlbs --cases 20 --out synthetic/ --size full --broken 0.1
"""


def synthesize(
    like: Annotated[str, typer.Option(metavar="SET", help="The data set to resemble: rsna or nlbs.")],
    cases: Annotated[int, typer.Option(metavar="N", help="How many women, each with at least four images.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the files and their metadata.")],
    seed: Annotated[int, typer.Option(help="The seed of the cohort: the same one gives the same files.")] = 0,
    size: Annotated[
        str, typer.Option(metavar="small|full", help="Images of about 280x220 pixels, or of the real sizes.")
    ] = "small",
    prevalence: Annotated[float, typer.Option(metavar="P", help="The share of cases with a lesion.")] = 0.3,
    contrast: Annotated[
        float, typer.Option(metavar="C", help="How much brighter than tissue a lesion is, 0 to 1.")
    ] = 0.35,
    broken: Annotated[
        float, typer.Option(metavar="P", help="The share of files broken on purpose, listed in broken.csv.")
    ] = 0.0,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes at work. [as many as there are cores]")
    ] = None,
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Draw mammograms of nobody as DICOM files, in the layout of a public data set."""
    from trust_cache.images.synthesize import CohortSettings, plan_cohort, synthesize_cohort

    settings = CohortSettings(
        like=like,
        cases=cases,
        seed=seed,
        size=size,
        prevalence=prevalence,
        lesion_contrast=contrast,
        broken=broken,
    )
    with progress("drawing", len(plan_cohort(settings))) as advance:
        cohort = synthesize_cohort(settings, out, workers=workers, advance=advance)
    positive = len({image.case_id for image in cohort.images if image.label})
    if json:
        show_json(
            {
                "folder": str(cohort.folder),
                "metadata": str(cohort.metadata),
                "images": len(cohort.images),
                "cases": cases,
                "positive_cases": positive,
                "broken": cohort.broken,
            }
        )
        return
    damaged = f" {len(cohort.broken)} files are broken: see {out / 'broken.csv'}." if cohort.broken else ""
    say(
        console(),
        f"Written to {out}: {len(cohort.images):,} images of {cases:,} cases, {positive:,} of them with a"
        f" lesion.{damaged}",
    )
    say(
        console(),
        "Drawings of nobody: figures made of them mean nothing clinically. Next:"
        f" trust-cache manifest {like} {cohort.metadata} --images {out} --out manifest.csv",
    )
