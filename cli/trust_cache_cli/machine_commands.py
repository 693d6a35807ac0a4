"""The commands doctor, estimate and demo."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trust_cache_cli.options import (
    AsJson,
    AugmentedViews,
    Encoder,
    ImageSize,
    Recipe,
    Runtime,
    command,
    command_group,
)
from trust_cache_cli.output import bar, program, say, show_json, show_list, show_table, warn

if TYPE_CHECKING:
    from trust_cache.api.demo import Demonstration


_SIGNS = {"good": "✓", "note": "·", "missing": "✗"}
app = command_group()


@command(app, "doctor", "doctor manifest.csv --views 8 --json")
def doctor(
    manifest: Annotated[
        Path | None, typer.Argument(help="A manifest: check the disk space for the cache of its images.")
    ] = None,
    views: AugmentedViews = 8,
    folder: Annotated[
        Path, typer.Option("--in", metavar="DIR", help="The folder for the cache. [this one]")
    ] = Path(),
    json: AsJson = False,
) -> None:
    """Print what this machine can do, with the command that fixes each missing thing.

    A laptop for training and certifying does not need [extract] and [cluster]: what is missing there is
    printed, and is not an error.
    """
    from trust_cache.api.doctor import as_document, examine

    findings = examine(folder, manifest, views)
    if json:
        show_json(as_document(findings))
        return
    for topic in dict.fromkeys(finding.topic for finding in findings):
        say(topic, style="bold")
        for finding in findings:
            if finding.topic == topic:
                style = "yellow" if finding.state == "missing" else ""
                say(f"  {_SIGNS[finding.state]} {finding.name}: {finding.found}", style=style)
                if finding.fix is not None:
                    say(f"      fix: {finding.fix}", style=style)
    missing = sum(finding.state == "missing" for finding in findings)
    say(f"\n{missing} missing." if missing else "\nNothing is missing.")


@command(
    app,
    "estimate manifest.csv --views 8",
    "estimate png/manifest.csv --views 8 --weights encoder.safetensors --device cpu --json",
)
def estimate(
    manifest: Annotated[
        Path, typer.Argument(help="A manifest of DICOM files, or of the PNGs made from them.")
    ],
    views: AugmentedViews = 8,
    weights: Annotated[
        str, typer.Option(metavar="FILE", help="The encoder's weights; random ones take as long.")
    ] = "random",
    encoder: Encoder = None,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu or cuda.")] = "auto",
    runtime: Runtime = "auto",
    image_size: ImageSize = None,
    recipe: Recipe = None,
    json: AsJson = False,
) -> None:
    """Print the size of a manifest's cache, and how long extraction takes on this device.

    The size is exact for a Zarr cache. The time is measured now on a few images of the manifest: use an idle
    machine, with the files in their final place. `trust-cache doctor MANIFEST` prints the size without torch.
    """
    from trust_cache.api.estimate import as_document, sentences
    from trust_cache.api.estimate import estimate as estimate_extraction

    found = estimate_extraction(
        manifest,
        views,
        weights=weights,
        encoder=encoder,
        device=device,
        runtime=runtime,
        image_size=image_size,
        recipe=recipe,
    )
    if json:
        show_json(as_document(found))
        return
    for sentence in sentences(found):
        say(sentence)


@command(app, "demo --out demo/", kept="finished steps are kept in {out}; the same command resumes")
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to write (1 GB).")] = Path("demo"),
    cases: Annotated[
        int | None,
        typer.Option(metavar="N", help="The number of cases of the feature cohort. [as in NLBS]"),
    ] = None,
    image_cases: Annotated[
        int | None, typer.Option(metavar="N", help="The number of cases of the image cohort. [150]")
    ] = None,
) -> None:
    """Run the full pipeline on synthetic data: DICOMs, pictures, features, heads, certificates, pages.

    Reuses the finished parts of an earlier start. Needs `trust-cache[extract]`.
    """
    from trust_cache.api.demo import CASES
    from trust_cache.api.demo import demo as run_demo
    from trust_cache.api.reproduce import Listener

    with bar("  ") as shown:
        listener = Listener(step=shown.announce, part=shown.show)
        made = run_demo(out, listener, image_cases=image_cases or CASES, feature_cases=cases)
    _show_images(made)
    _show_features(made)
    folders = made.features.folders
    show_list(
        "Look at",
        (
            f"{made.features.report}: the page of the full-size cohort, with all studies",
            f"{made.features.paper}: the paper's tables and figures, published and of these cohorts",
            f"{made.images.report}: the page of the small cohort",
            f"{made.images.sheet}: its pictures",
            f"{folders['certified']}/table.md: the table above, in the folder of the certificates",
        ),
    )
    show_list("Try next, as typed", next_commands(made))
    show_list(
        "With your own data",
        (
            "certify SCORES --out certified: a table with case_id, label and score",
            "manifest rsna METADATA --images FOLDER --out manifest.csv: then preprocess and extract",
        ),
    )
    say("All data are synthetic: the results have no clinical meaning.", style="bold")


def next_commands(made: "Demonstration") -> list[str]:
    """Return commands that work as typed in the current folder."""
    folders, out = made.features.folders, made.features.cache.parent.parent
    run, certified = str(folders["run"]), str(folders["certified"])
    commands = (
        ("show", run, certified),
        ("verify", certified, "--scores", run),
        ("certify", run, "--out", str(out / "another"), "--target", "0.9"),
        ("sweep", str(made.features.cache), "--grid", "lr=1e-5,3e-5,1e-4", "--out", str(out / "lr")),
    )
    return [shlex.join((program(), *words)) for words in commands]


def _show_images(made: "Demonstration") -> None:
    part = made.images
    warn(part.warnings)
    auroc = "not defined" if part.auroc is None else f"{part.auroc:.2f}"
    say(
        f"\nFrom images: {part.images - part.failed} of {part.images} files were usable (some are broken on"
        f" purpose). With random weights, small images and long training the case AUROC is {auroc}."
    )


def _show_features(made: "Demonstration") -> None:
    from trust_cache.certificate.point_tables import paper_table, sentences

    part = made.features
    warn(part.certification.warnings)
    show_table(paper_table(part.certification))
    show_list("In words", sentences(part.certification))
    holds = "agrees" if part.verification.holds else "does not agree"
    say(f"Verified: {part.verification.certificate} {holds} with the scores of {part.folders['run']}.\n")
