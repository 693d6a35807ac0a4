"""The tensors of an encoder: efficientnet_pytorch's names in timm's, and the checks on what is there."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from trust_cache.base.errors import InputError
from trust_cache.cache.backbone.mammo_clip import STAGE_DEPTHS

THEIR_FIRST = "_conv_stem.weight"  # by this one tells efficientnet_pytorch's names
_COUNTER = ".num_batches_tracked"  # batches seen in training; features do not use it
_CLASSIFIER = "_fc."
_NAMES_SHOWN = 4

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
_PLACES = [(stage, block) for stage, depth in enumerate(STAGE_DEPTHS) for block in range(depth)]


def from_efficientnet_pytorch(found: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the tensors under timm's names, with remarks; names that B5 has not stay as they are."""
    classifier = sorted(name for name in found if name.startswith(_CLASSIFIER))
    notes = (f"left out the classifier ({', '.join(classifier)})",) if classifier else ()
    return {timm_name(name) or name: found[name] for name in found if name not in classifier}, notes


def timm_name(name: str) -> str | None:
    """Return timm's name for a tensor of efficientnet_pytorch's B5, or None if B5 has no such tensor."""
    if match := _BLOCK.fullmatch(name):
        number, layer, rest = int(match[1]), match[2], match[3]
        if number >= len(_PLACES):
            return None
        stage, block = _PLACES[number]
        translated = (_LATER_STAGES if stage else _FIRST_STAGE).get(layer)
        return translated and f"blocks.{stage}.{block}.{translated}.{rest}"
    layer, _, rest = name.partition(".")
    return f"{_OUTER[layer]}.{rest}" if layer in _OUTER and rest else None


def checked_tensors(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], encoder: str, source: str
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return tensors of exactly the expected names and shapes, floats as float32, with remarks.

    Refuses, by name, what is missing, unexpected, of another shape or kind, not a number or infinite.
    """
    counters = [name for name in expected if name.endswith(_COUNTER) and name not in found]
    complete = {**found, **{name: torch.zeros((), dtype=torch.int64) for name in counters}}
    _require_as_expected(expected, complete, encoder, source)
    notes = [f"{len(counters)} counters of batches were absent and are 0"] if counters else []
    floats = {name for name, tensor in complete.items() if tensor.is_floating_point()}
    types = sorted({str(complete[name].dtype) for name in floats} - {str(torch.float32)})
    if types:
        notes.append(f"converted to float32 from {', '.join(types)}")
    tensors = {name: _as_float32(complete[name]) if name in floats else complete[name] for name in expected}
    for name, tensor in tensors.items():
        _require_sound(name, tensor, source)
    return tensors, tuple(notes)


def _require_as_expected(
    expected: Mapping[str, Tensor], found: Mapping[str, Tensor], encoder: str, source: str
) -> None:
    others = [
        f"{name} {_form(found[name])} instead of {_form(tensor)}"
        for name, tensor in expected.items()
        if name in found and _form(found[name]) != _form(tensor)
    ]
    wrong = {
        "missing": [name for name in expected if name not in found],
        "unexpected": [name for name in found if name not in expected],
        "of another shape": others,
    }
    parts = [
        f"{len(names)} {kind} ({', '.join(names[:_NAMES_SHOWN])}{', ...' if names[_NAMES_SHOWN:] else ''})"
        for kind, names in wrong.items()
        if names
    ]
    if parts:
        raise InputError(
            f"{source}: expected the {len(expected)} tensors of {encoder}; {'; '.join(parts)}."
            " These are weights of another architecture, or damaged ones"
        )


def _form(tensor: Tensor) -> str:
    return f"{list(tensor.shape)}{'' if tensor.is_floating_point() else ' of integers'}"


def _as_float32(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float32, copy=True).contiguous()


def _require_sound(name: str, tensor: Tensor, source: str) -> None:
    """Refuse values that no working encoder has."""
    wrong = int((~torch.isfinite(tensor)).sum())
    if wrong:
        raise InputError(f"{source}: {name} holds {wrong} values that are NaN or infinite; get the file anew")
    if name.endswith("running_var") and bool((tensor < 0).any()):
        raise InputError(f"{source}: {name} holds a negative variance; get the file anew")
