"""From elements of sets, flattened images or vectors, to the features that set networks read.

Letters: B sets, N elements, D numbers per element, E numbers per encoded element.
"""

import math
from itertools import pairwise
from typing import Final, Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn
from torch.nn.functional import affine_grid, grid_sample

from coterie.errors import ConfigError

AMOUNTS = 7
"""Numbers from -1 to 1 that say how one image is distorted: two stretches, two slants, two shifts and a turn."""


def distorted(
    images: Float[Tensor, "M C H W"],
    amounts: Float[Tensor, "7 M"],
    *,
    turn_by: float,
    stretched: float,
    shifted: float,
) -> Float[Tensor, "M C H W"]:
    """All images, each distorted by its amounts, in degrees and in shares of its size; zeros come in from outside."""
    along, across, slant, tilt, right, down, turn = amounts
    angle = math.radians(turn_by) * turn
    rotation = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=1).reshape(-1, 2, 2)
    identity = torch.eye(2, device=images.device)
    stretch = identity + stretched * torch.stack([along, slant, tilt, across], dim=1).reshape(-1, 2, 2)
    # The grid runs from -1 to 1 along both sides, however long they are; a turn needs pixels.
    pixels = torch.tensor([float(images.shape[3]), float(images.shape[2])], device=images.device)
    matrix = (rotation @ stretch) * pixels / pixels.unsqueeze(1)
    shift = 2 * shifted * torch.stack([right, down], dim=1)
    theta = torch.cat([matrix, shift.unsqueeze(2)], dim=2)
    grid = affine_grid(theta, list(images.shape), align_corners=False)
    return grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


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


Encoder = Literal["identity", "mlp", "conv", "strided", "vgg", "resnet18", "resnet34"]
VIEW_TURNED, VIEW_STRETCHED, VIEW_SHIFTED = 10.0, 0.1, 0.05
"""Most degrees, and shares of the size, by which a further view of an image is moved."""
VGG_OUT = 80
"""Features that the VGG-like network gives, as published."""


class ElementEncoder(nn.Module):
    """Encodes every element of a set alike; ``out_width`` says how wide.

    Parameters
    ----------
    kind : {"identity", "mlp", "conv", "strided", "vgg", "resnet18", "resnet34"}
        Nothing; two hidden layers; four times convolution, normalisation, ReLU and pooling (Vinyals et al., 2016); the
        same with a first convolution that strides, which costs half as much; the like with five wider layers; residual
        networks for small images.
    n_features : int
        D.
    image : (channels, height, width) or None
        Shape of the images that elements are, flattened with the channels first.
    channels : int
        Width of the hidden layers.
    views : int
        How often an image is looked at once training is over: as it is, and turned, stretched and shifted a little in
        ways that are always the same; what is seen is averaged.
    """

    def __init__(
        self,
        kind: Encoder,
        n_features: int,
        image: tuple[int, int, int] | None = None,
        channels: int = 64,
        views: int = 1,
    ) -> None:
        super().__init__()
        if views < 1 or (views > 1 and image is None):
            raise ConfigError(f"views={views} must be 1, or more for images.")
        self.views = views
        if kind not in get_args(Encoder):
            raise ConfigError(f"encoder={kind!r} is not known; use {' or '.join(get_args(Encoder))}.")
        if channels < 1:
            raise ConfigError(f"channels={channels} must be at least 1.")
        self.image = image
        match kind:
            case "identity":
                self.network: nn.Module = nn.Identity()
                self.out_width = n_features
            case "mlp":
                widths = (n_features, 4 * channels, 4 * channels, channels)
                layers = [part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())]
                self.network = nn.Sequential(*layers[:-1])
                self.out_width = channels
            case _:
                shape = _checked(image, n_features, kind)
                network, self.out_width = _convolutions(kind, shape, channels)
                # Images of one channel lie in memory as either format would have them: it goes by the weights then.
                self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # it is not declared

    def forward(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N E"]:
        """Encode the valid elements of all sets at once; the others become zeros, and leave no trace in statistics."""
        if isinstance(self.network, nn.Identity):
            return x if valid is None else x.masked_fill(~valid.unsqueeze(2), 0.0)
        if valid is None or bool(valid.all()):
            return self._encode(x.flatten(0, 1)).reshape(*x.shape[:2], self.out_width)
        encoded = x.new_zeros(*x.shape[:2], self.out_width)
        if bool(valid.any()):
            encoded[valid] = self._encode(x[valid])
        return encoded

    def _encode(self, elements: Float[Tensor, "R D"]) -> Float[Tensor, "R E"]:
        encoded = self._seen(elements)
        if self.training or self.views == 1 or self.image is None:
            return encoded
        pictures = elements.reshape(-1, *self.image)
        draws = Generator().manual_seed(0)  # the same for all images, wherever they stand
        for _ in range(self.views - 1):
            amounts = (2 * torch.rand((AMOUNTS, 1), generator=draws) - 1).to(elements)
            moved = distorted(
                pictures,
                amounts.expand(-1, len(pictures)),
                turn_by=VIEW_TURNED,
                stretched=VIEW_STRETCHED,
                shifted=VIEW_SHIFTED,
            )
            encoded = encoded + self._seen(moved.flatten(1))
        return encoded / self.views

    def _seen(self, elements: Float[Tensor, "R D"]) -> Float[Tensor, "R E"]:
        if isinstance(self.network[0], nn.Conv2d) and self.image is not None:  # type: ignore[index]  # a Sequential
            pictures = elements.reshape(-1, *self.image)
            elements = pictures.contiguous(memory_format=torch.channels_last)
        encoded: Tensor = self.network(elements)
        return encoded


def _checked(image: tuple[int, int, int] | None, n_features: int, kind: str) -> tuple[int, int, int]:
    if image is None or min(image) < 1 or image[0] * image[1] * image[2] != n_features:
        raise ConfigError(
            f"encoder={kind!r} needs image=(channels, height, width) whose product is n_features={n_features}; "
            f"got image={image}."
        )
    layers = {"vgg": 5, "resnet18": 3, "resnet34": 3}.get(kind, 4)
    if min(image[1:]) < 2**layers:
        raise ConfigError(f"encoder={kind!r} halves images {layers} times; image={image} is too small for that.")
    return image


def _convolutions(kind: str, image: tuple[int, int, int], channels: int) -> tuple[nn.Sequential, int]:
    """The network, and how many features it gives."""
    if kind in STAGES:
        return residual_network(kind, image[0], channels)
    factors = (1, 2, 4, 8, 8) if kind == "vgg" else (1, 1, 1, 1)
    widths = (image[0], *(channels * factor for factor in factors))
    layers: list[nn.Module] = []
    for place, (before, after) in enumerate(pairwise(widths)):
        if kind == "strided" and place == 0:
            layers += [nn.Conv2d(before, after, 5, stride=2, padding=2, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        else:
            layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
            layers.append(nn.MaxPool2d(2))
    layers.append(nn.Flatten())
    height, width = image[1:]
    for place in range(len(factors)):
        rounds_up = kind == "strided" and place == 0
        height, width = ((height + rounds_up) // 2, (width + rounds_up) // 2)
    flat = widths[-1] * height * width
    if kind == "vgg":
        return nn.Sequential(*layers, nn.Linear(flat, VGG_OUT)), VGG_OUT
    return nn.Sequential(*layers), flat
