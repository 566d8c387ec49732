"""Encoders of the elements of sets, vectors or flattened images, and image distortion.

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

AMOUNTS = 7  # numbers between -1 and 1 that distort an image: two stretches, two shears, two shifts and a rotation


def distort(
    images: Float[Tensor, "M C H W"],
    amounts: Float[Tensor, "7 M"],
    *,
    max_degrees: float,
    max_stretch: float,
    max_shift: float,
) -> Float[Tensor, "M C H W"]:
    """Distort each image by its amounts of the largest rotation, stretch and shift; zeros come in from outside."""
    along, across, shear_x, shear_y, right, down, angle = amounts
    angle = math.radians(max_degrees) * angle
    rotation = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=1).reshape(-1, 2, 2)
    identity = torch.eye(2, device=images.device)
    stretch = identity + max_stretch * torch.stack([along, shear_x, shear_y, across], dim=1).reshape(-1, 2, 2)
    # The grid runs from -1 to 1 along both sides, however long they are; a rotation needs pixels.
    pixels = torch.tensor([float(images.shape[3]), float(images.shape[2])], device=images.device)
    matrix = (rotation @ stretch) * pixels / pixels.unsqueeze(1)
    shift = 2 * max_shift * torch.stack([right, down], dim=1)
    theta = torch.cat([matrix, shift.unsqueeze(2)], dim=2)
    grid = affine_grid(theta, list(images.shape), align_corners=False)
    return grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


STAGES: Final = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
"""Blocks per stage; the first keeps the size of images, each other one halves it and doubles the channels."""


class Block(nn.Module):
    """A residual block of two convolutions."""

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
        """Add the convolutions to the shortcut."""
        return torch.relu(self.way(x) + self.around(x))


def residual_network(kind: str, in_channels: int, channels: int) -> tuple[nn.Sequential, int]:
    """Build a residual network; return it and its number of features."""
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
VIEW_DISTORTION = {"max_degrees": 10.0, "max_stretch": 0.1, "max_shift": 0.05}  # largest one of additional views
VGG_OUT = 80  # features of the VGG-like network, as published


class ElementEncoder(nn.Module):
    """Encode each element of a set by itself, into ``out_width`` features.

    Parameters
    ----------
    kind : {"identity", "mlp", "conv", "strided", "vgg", "resnet18", "resnet34"}
        No encoder; two hidden layers; four blocks of convolution, normalisation, ReLU and pooling (Vinyals et al.,
        2016); the same with a strided first convolution, at half the cost; five wider blocks; residual networks for
        small images.
    n_features : int
        D.
    image : (channels, height, width) or None
        Shape of the images that elements are, flattened with the channels first.
    channels : int
        Width of the hidden layers.
    views : int
        Views of an image whose encodings are averaged in evaluation mode: the image and fixed small distortions of it.
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
            raise ConfigError(f"views={views} must be 1, or at least 1 for images.")
        self.views = views
        if kind not in get_args(Encoder):
            raise ConfigError(f"encoder={kind!r} must be one of {', '.join(map(repr, get_args(Encoder)))}.")
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
                shape = _check_image(image, n_features, kind)
                network, self.out_width = _convolutions(kind, shape, channels)
                # Memory of one-channel images fits both formats; the format of the weights decides then.
                self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # it is not declared

    def forward(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N E"]:
        """Encode the valid elements of all sets at once; padding becomes zeros and does not enter batch statistics."""
        if isinstance(self.network, nn.Identity):
            return x if valid is None else x.masked_fill(~valid.unsqueeze(2), 0.0)
        if valid is None or bool(valid.all()):
            return self._encode(x.flatten(0, 1)).reshape(*x.shape[:2], self.out_width)
        encoded = x.new_zeros(*x.shape[:2], self.out_width)
        if bool(valid.any()):
            encoded[valid] = self._encode(x[valid])
        return encoded

    def _encode(self, elements: Float[Tensor, "R D"]) -> Float[Tensor, "R E"]:
        encoded = self._encode_view(elements)
        if self.training or self.views == 1 or self.image is None:
            return encoded
        images = elements.reshape(-1, *self.image)
        fixed = Generator().manual_seed(0)  # the same distortions for all images, in any order
        for _ in range(self.views - 1):
            amounts = (2 * torch.rand((AMOUNTS, 1), generator=fixed) - 1).to(elements)
            view = distort(images, amounts.expand(-1, len(images)), **VIEW_DISTORTION)
            encoded = encoded + self._encode_view(view.flatten(1))
        return encoded / self.views

    def _encode_view(self, elements: Float[Tensor, "R D"]) -> Float[Tensor, "R E"]:
        if isinstance(self.network[0], nn.Conv2d) and self.image is not None:  # type: ignore[index]  # a Sequential
            elements = elements.reshape(-1, *self.image).contiguous(memory_format=torch.channels_last)
        encoded: Tensor = self.network(elements)
        return encoded


def _check_image(image: tuple[int, int, int] | None, n_features: int, kind: str) -> tuple[int, int, int]:
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
    """Build a convolutional network; return it and its number of features."""
    if kind in STAGES:
        return residual_network(kind, image[0], channels)
    factors = (1, 2, 4, 8, 8) if kind == "vgg" else (1, 1, 1, 1)
    widths = (image[0], *(channels * factor for factor in factors))
    height, width = image[1:]
    layers: list[nn.Module] = []
    for layer, (before, after) in enumerate(pairwise(widths)):
        strided = kind == "strided" and layer == 0
        if strided:
            layers += [nn.Conv2d(before, after, 5, stride=2, padding=2, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        else:
            layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
            layers.append(nn.MaxPool2d(2))
        height, width = (height + strided) // 2, (width + strided) // 2  # a strided convolution rounds up
    layers.append(nn.Flatten())
    flat = widths[-1] * height * width
    if kind == "vgg":
        return nn.Sequential(*layers, nn.Linear(flat, VGG_OUT)), VGG_OUT
    return nn.Sequential(*layers), flat
