"""Residual networks for small images (He et al., 2016), with a first convolution that does not shrink them.

As contrastive clustering uses them (MiCE, TCC): no convolution has a bias, and an average over all places ends it.
"""

from itertools import pairwise
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor, nn

STAGES: Final = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
"""Blocks of each stage; the first keeps the size of images, each of the others halves it and doubles the channels."""


class Block(nn.Module):
    """Two convolutions, and the way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        is_same = stride == 1 and before == after
        shrunk = nn.Sequential(nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after))
        self.around: nn.Module = nn.Identity() if is_same else shrunk

    def forward(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N D P Q"]:
        """Both ways together."""
        return torch.relu(self.way(x) + self.around(x))


def residual_network(kind: str, in_channels: int, channels: int) -> tuple[nn.Sequential, int]:
    """The network, of so many channels in its first stage, and how many features it gives."""
    widths = [channels * 2**stage for stage in range(len(STAGES[kind]))]
    layers: list[nn.Module] = [
        nn.Conv2d(in_channels, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
    ]
    for (before, after), count in zip(pairwise([channels, *widths]), STAGES[kind], strict=True):
        layers += [Block(before, after, 1 if after == channels else 2)]
        layers += [Block(after, after, 1) for _ in range(count - 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), widths[-1]
