"""The command weights."""

from pathlib import Path
from typing import Annotated

import typer

from trust_cache_cli.options import Log, Verbose
from trust_cache_cli.output import console, note, say

EXAMPLES = """
**Examples**

    trust-cache weights b5-model-best-epoch-7.tar --out encoder.safetensors

    trust-cache weights resnet50.safetensors --encoder resnet50 --out resnet50-encoder.safetensors
"""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog=EXAMPLES)(weights)


def weights(
    checkpoint: Annotated[Path, typer.Argument(help="Mammo-CLIP's archive, or another checkpoint.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The safetensors file to write.")],
    encoder: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The timm model that tensors with timm's names are for."),
    ] = None,
    _verbose: Verbose = False,
    _log: Log = None,
) -> None:
    """Convert a checkpoint once to a file that extract can trust; nothing in it is run.

    Takes Mammo-CLIP's released archive, a state dict of efficientnet_pytorch's B5, or a timm model's weights.
    """
    from trust_cache.cache.weights import convert_weights

    done = convert_weights(checkpoint, out, encoder=encoder)
    for remark in done.notes:
        note(f"note: {remark}")
    record = done.record
    say(console(), f"Written to {out}: {done.tensors} tensors of {record.encoder}, padding {record.padding}.")
    say(console(), f"  sha256 of {checkpoint.name}: {record.source_sha256}")
    say(console(), f"  sha256 of {out.name}: {done.sha256}")
