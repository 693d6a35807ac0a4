"""Translate the names of tensors from efficientnet_pytorch to timm."""

import re
from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor, nn

HEAD = "_conv_head.weight"
_CLASSIFIER = "_fc."
_OUTER = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2"}
_GATE = {"_se_reduce": "se.conv_reduce", "_se_expand": "se.conv_expand"}
_FIRST_STAGE = {
    "_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2", **_GATE
}  # fmt: skip
_LATER_STAGES = {
    "_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2",
    "_project_conv": "conv_pwl", "_bn2": "bn3", **_GATE,
}  # fmt: skip
_BLOCK = re.compile(r"_blocks\.(\d+)\.(_\w+)\.(\w+)")


def is_efficientnet_pytorch(names: Iterable[str]) -> bool:
    """Return whether tensors have the names of efficientnet_pytorch: blocks are not numbered by stage."""
    return any(_BLOCK.fullmatch(name) or name.partition(".")[0] in _OUTER for name in names)


def translate_names(
    found: Mapping[str, Tensor], network: nn.Module
) -> tuple[Mapping[str, Tensor], tuple[str, ...]]:
    """Return tensors under timm's names, without the classifier; names that timm lacks stay as they are."""
    stages = network.get_submodule("blocks").children()
    depths = [len(list(stage.children())) for stage in stages]
    classifier = sorted(name for name in found if name.startswith(_CLASSIFIER))
    notes = (f"left out the classifier ({', '.join(classifier)})",) if classifier else ()
    kept = {timm_name(name, depths) or name: found[name] for name in found if name not in classifier}
    return kept, notes


def timm_name(name: str, depths: Sequence[int]) -> str | None:
    """Return timm's name for a tensor of a network with so many blocks per stage, None if it has none."""
    if match := _BLOCK.fullmatch(name):
        number, layer, rest = int(match[1]), match[2], match[3]
        places = [(stage, block) for stage, depth in enumerate(depths) for block in range(depth)]
        if number >= len(places):
            return None
        stage, block = places[number]
        translated = (_LATER_STAGES if stage else _FIRST_STAGE).get(layer)
        return translated and f"blocks.{stage}.{block}.{translated}.{rest}"
    layer, _, rest = name.partition(".")
    return f"{_OUTER[layer]}.{rest}" if layer in _OUTER and rest else None
