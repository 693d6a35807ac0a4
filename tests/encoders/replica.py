"""A replica of Mammo-CLIP's archive around an oracle of efficientnet_pytorch, with live features."""

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from efficientnet_pytorch import EfficientNet
from torch import Tensor, nn

from trust_cache.encoders.efficientnet_names import timm_name
from trust_cache.encoders.mammo_clip import B2, B5
from trust_cache.encoders.random_weights import random_efficientnet

PREFIX = "image_encoder."


def make_oracle(name: str = "efficientnet-b5", seed: int = 0) -> nn.Module:
    """A network of another author with random weights and random statistics of batch normalisation.

    Its own initialisation would not do: features fade to the same constant for all images, and a wrong
    padding would go unseen.
    """
    oracle: nn.Module = EfficientNet.from_name(name, include_top=False)
    generator = torch.Generator().manual_seed(seed)
    depths = {"efficientnet-b5": B5.depths, "efficientnet-b2": B2.depths}[name]
    names = {name: timm_name(name, depths) or "" for name in oracle.state_dict()}
    shapes = {names[name]: tensor.shape for name, tensor in oracle.state_dict().items()}
    live = random_efficientnet(shapes, seed)
    oracle.load_state_dict({name: live[names[name]] for name in names})
    for module in oracle.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.2, generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
            module.weight.data.uniform_(0.7, 1.4, generator=generator)
            module.bias.data.normal_(0, 0.2, generator=generator)
    return oracle.eval().requires_grad_(False)


def oracle_features(oracle: nn.Module, images: Tensor) -> Tensor:
    features: Tensor = oracle(images)
    return features.flatten(1)


def make_images(size: tuple[int, int], count: int = 1, seed: int = 0) -> Tensor:
    """Standardised pictures: dark ground, smooth clouds, a little noise; three equal channels."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.zeros(count, 1, *size)
    for cells in (3, 8, 24):
        clouds = torch.randn(count, 1, cells, cells, generator=generator)
        pixels += nn.functional.interpolate(clouds, size, mode="bilinear", align_corners=False)
    pixels = (0.3 + 0.15 * pixels + 0.02 * torch.randn(pixels.shape, generator=generator)).clamp(0, 1)
    return ((pixels - 0.3089279) / 0.25053555408335154).expand(-1, 3, -1, -1)


def relative_difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@contextmanager
def stand_in_modules(classes: dict[str, tuple[str, ...]]) -> Iterator[dict[str, type]]:
    """Modules with empty classes for as long as something is pickled; gone when it is read."""
    made = {}
    before = set(sys.modules)
    for module_name, names in classes.items():
        parts = module_name.split(".")
        for end in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
        for name in names:
            made[name] = type(name, (), {"__module__": module_name})
            setattr(sys.modules[module_name], name, made[name])
    try:
        yield made
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]


OMEGACONF = {
    "omegaconf.listconfig": ("ListConfig",),
    "omegaconf.dictconfig": ("DictConfig",),
    "omegaconf.base": ("ContainerMetadata", "Metadata"),
    "omegaconf.nodes": ("AnyNode",),
}


def save_archive(path: Path, model: dict[str, Tensor], **further: object) -> None:
    """Write what Mammo-CLIP's training writes: model, optimizer, scheduler, config, epoch, train_loss."""
    with stand_in_modules(OMEGACONF) as classes:
        document = {
            "model": model,
            "optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 5e-5}]},
            "scheduler": {"last_epoch": 7, "_last_lr": [5e-5]},
            "config": _configuration(classes),
            "epoch": 7,
            "train_loss": 0.5,
        }
        torch.save({**document, **further}, path)
    assert not any(name.startswith("omegaconf") for name in sys.modules)


def _configuration(classes: dict[str, type]) -> dict[str, Any]:
    """A configuration with objects nested as omegaconf nests them: content, metadata, a way back up."""
    from collections import defaultdict  # noqa: PLC0415
    from typing import Any as AnyType  # noqa: PLC0415

    metadata = classes["ContainerMetadata"]()
    metadata.__dict__.update(
        ref_type=AnyType, object_type=list, optional=True, key_type=int, element_type=AnyType,
        resolver_cache=defaultdict(dict),
    )  # fmt: skip
    node, leaf = classes["ListConfig"](), classes["AnyNode"]()
    leaf.__dict__.update(_metadata=classes["Metadata"](), _parent=node, _val=912)
    node.__dict__.update(_metadata=metadata, _parent=None, _content=[leaf, leaf])
    top = classes["DictConfig"]()
    top.__dict__.update(_metadata=metadata, _parent=None, _content={"size": node})
    return {"model": {"image_encoder": {"name": "tf_efficientnet_b5_ns-detect"}}, "size": node, "all": top}


class Hostile:
    """Writes a file when a pickle of it is loaded by the usual means."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[object, ...]:
        return exec, (f"open({str(self.victim)!r}, 'w').close()",)
