"""Images turned, stretched, slanted and shifted."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

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
