"""The commands doctor and estimate."""

from pathlib import Path
from typing import Annotated

import typer

from trust_cache.base.errors import InputError
from trust_cache_cli.options import AsJson, Log, Verbose
from trust_cache_cli.output import console, say, show_json

DOCTOR_EXAMPLES = """
**Examples**

    trust-cache doctor

    trust-cache doctor manifest.csv --views 8 --json
"""
ESTIMATE_EXAMPLES = """
**Examples**

    trust-cache estimate manifest.csv --views 8

    trust-cache estimate png/manifest.csv --views 8 --weights encoder.safetensors --device cpu --json
"""
_SIGNS = {"good": "✓", "note": "·", "missing": "✗"}
_STYLES = {"good": "", "note": "", "missing": "yellow"}


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog=DOCTOR_EXAMPLES)(doctor)
    app.command(epilog=ESTIMATE_EXAMPLES)(estimate)


def doctor(
    manifest: Annotated[
        Path | None, typer.Argument(help="A manifest: is there room for the cache of its images?")
    ] = None,
    views: Annotated[int, typer.Option(metavar="K", help="Augmented views of each image.")] = 8,
    folder: Annotated[
        Path, typer.Option("--in", metavar="DIR", help="Where the cache would lie. [here]")
    ] = Path(),
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Say what this machine can do, with the command that mends each missing thing.

    A laptop for training and certifying needs nothing of [extract] and [cluster]: what is missing there is
    said, and is no error.
    """
    from trust_cache.service.doctor.doctor import as_document, examine

    findings = examine(folder, manifest, views)
    if json:
        show_json(as_document(findings))
        return
    screen = console()
    for topic in dict.fromkeys(finding.topic for finding in findings):
        say(screen, topic, style="bold")
        for finding in findings:
            if finding.topic == topic:
                sign, style = _SIGNS[finding.state], _STYLES[finding.state]
                say(screen, f"  {sign} {finding.name}: {finding.found}", style=style)
                if finding.mend is not None:
                    say(screen, f"      mend: {finding.mend}", style=style)
    missing = sum(finding.state == "missing" for finding in findings)
    say(screen, f"\n{missing} missing." if missing else "\nNothing is missing.")


def estimate(
    manifest: Annotated[Path, typer.Argument(help="A manifest of DICOM files, or of the PNGs made of them.")],
    views: Annotated[int, typer.Option(metavar="K", help="Augmented views of each image.")] = 8,
    weights: Annotated[
        str, typer.Option(metavar="FILE", help="The encoder's weights; random ones take as long.")
    ] = "random",
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME", help="Any timm model. [Mammo-CLIP's B5]")
    ] = None,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu or cuda.")] = "auto",
    image_size: Annotated[
        str, typer.Option(metavar="HxW", help="Height and width of the encoder's input.")
    ] = "1520x912",
    json: AsJson = False,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Say how large the cache of a manifest will be, and how long extracting it takes on this device.

    The size is exact for a Zarr cache. The time comes from a few images of the manifest, measured now: on
    an idle machine, with the files where they will be.
    """
    try:
        from trust_cache.service.estimate.estimate import as_document, estimate_extraction, sentences
    except ModuleNotFoundError as error:
        raise InputError(
            f'estimate: needs the package {error.name}; install with pip install "trust-cache[extract]",'
            " or ask `trust-cache doctor MANIFEST --views K` for the size alone"
        ) from error

    found = estimate_extraction(
        manifest, views, weights=weights, encoder=encoder, device=device, image_size=image_size
    )
    if json:
        show_json(as_document(found))
    else:
        for sentence in sentences(found):
            say(console(), sentence)
