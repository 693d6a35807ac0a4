"""Mammo-CLIP's image encoder: timm's B5 with the padding that its training froze."""

from torch import Tensor, nn
from torch.nn import functional

from trust_cache.base.errors import InputError
from trust_cache.cache.backbone.timm_import import import_timm

ARCHITECTURE = "tf_efficientnet_b5"
DIM = 2048
STAGE_DEPTHS = (3, 5, 5, 7, 7, 9, 3)  # blocks
PADDING = "static-456"  # TF-SAME padding as it falls for a 456 x 456 input, at every input size

# Left, right, top, bottom of the strided convolutions; all others pad the same in both. timm computes the
# padding from each input's size instead: at 1520 x 912 its features are then 6-8 % off.
STATIC_PADS = {
    "conv_stem": (0, 1, 0, 1),
    "blocks.1.0.conv_dw": (0, 1, 0, 1),
    "blocks.2.0.conv_dw": (1, 2, 1, 2),
    "blocks.3.0.conv_dw": (1, 1, 1, 1),
    "blocks.5.0.conv_dw": (2, 2, 2, 2),
}


class StaticPaddingConv(nn.Conv2d):
    """A convolution with the same zeros around every input, whatever its size."""

    def __init__(self, original: nn.Conv2d, pads: tuple[int, int, int, int]) -> None:
        super().__init__(
            original.in_channels,
            original.out_channels,
            (original.kernel_size[0], original.kernel_size[1]),
            stride=(original.stride[0], original.stride[1]),
            groups=original.groups,
            bias=original.bias is not None,
            device=original.weight.device,
        )
        self.pads = pads

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as in torch
        """Pad, then convolve."""
        return super().forward(functional.pad(input, self.pads))


def build_mammo_clip() -> nn.Module:
    """Return B5 without a classifier, (N, 3, H, W) -> (N, 2048); its weights are still to be filled."""
    network: nn.Module = import_timm().create_model(ARCHITECTURE, pretrained=False, num_classes=0)
    strided = {
        name
        for name, module in network.named_modules()
        if isinstance(module, nn.Conv2d) and module.stride != (1, 1)
    }
    if strided != set(STATIC_PADS):
        raise InputError(f"this timm builds another {ARCHITECTURE}: its strided convolutions are {strided}")
    for name, pads in STATIC_PADS.items():
        original = network.get_submodule(name)
        assert isinstance(original, nn.Conv2d)  # noqa: S101 - for the type checker; the set above says it
        network.set_submodule(name, StaticPaddingConv(original, pads))
    return network
