"""Points of the plane, turned around the origin."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def rotate(x: Float[Tensor, "*B 2"], angle: Float[Tensor, "*B"]) -> Float[Tensor, "*B 2"]:
    """Points turned by an angle each, counterclockwise."""
    first, second = x.unbind(-1)
    return torch.stack((angle.cos() * first - angle.sin() * second, angle.sin() * first + angle.cos() * second), dim=-1)


def turned(x: Float[Tensor, "*B 2"], turns: int) -> list[Float[Tensor, "*B 2"]]:
    """The points as they are seen from so many sides, equally far apart; first as they are."""
    sides = [x.new_tensor(2 * math.pi * side / turns).expand(x.shape[:-1]) for side in range(1, turns)]
    return [x, *(rotate(x, angle) for angle in sides)]
