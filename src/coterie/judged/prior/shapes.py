"""Shapes of single clusters around the origin, with a radius of about 1."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import torch
from jaxtyping import Float, Num
from torch import Tensor

from coterie.judged.prior.sampling import Memberships, Rng

Sampler = TypeVar("Sampler", bound=Callable[..., object])


def by_name(*samplers: Sampler) -> Mapping[str, Sampler]:
    """Return functions by their names, with hyphens."""
    return MappingProxyType({sampler.__name__.replace("_", "-"): sampler for sampler in samplers})


def columns(first: Num[Tensor, " N"], second: Num[Tensor, " N"]) -> Num[Tensor, "N 2"]:
    """Join two columns."""
    return torch.stack((first, second), dim=1)


def polar(radius: Float[Tensor, "#N"] | float, angle: Float[Tensor, "#N"]) -> Float[Tensor, "N 2"]:
    """Convert polar to Cartesian coordinates."""
    return columns(radius * angle.cos(), radius * angle.sin())


def directions(n_points: int, n_features: int, rng: Rng) -> Float[Tensor, "N D"]:
    """Sample unit vectors uniformly."""
    return torch.nn.functional.normalize(rng.normal(n_points, n_features), dim=1)


def _stretch(members: Memberships, n_features: int, rng: Rng, max_ratio: float) -> Float[Tensor, "N D"]:
    """Sample the axis lengths of each cluster, the longest 1, with ratios of up to ``max_ratio``."""
    count = members.n_distinct
    lengths = 1 / rng.log_uniform(1.0, max_ratio, count, 1) ** rng.uniform(0, 1, count, n_features)
    return members.per_point(lengths / lengths.amax(dim=1, keepdim=True))


def ball_gaussian(members: Memberships, n_features: int, rng: Rng) -> Float[Tensor, "N D"]:
    """Spherical Gaussians."""
    return rng.normal(members.n_points, n_features) * (1 / (1 + math.sqrt(n_features)))


def gaussian(members: Memberships, n_features: int, rng: Rng) -> Float[Tensor, "N D"]:
    """Gaussians with a full covariance matrix, once they are rotated."""
    return ball_gaussian(members, n_features, rng) * _stretch(members, n_features, rng, 6.0)


def student(members: Memberships, n_features: int, rng: Rng) -> Float[Tensor, "N D"]:
    """Student's t: heavy tails."""
    rows = rng.student_t(members.uniform(2.0, 6.0, rng), n_features)
    return rows * (0.8 / (1 + math.sqrt(n_features))) * _stretch(members, n_features, rng, 3.0)


def ball(members: Memberships, n_features: int, rng: Rng) -> Float[Tensor, "N D"]:
    """Uniform balls and ellipsoids."""
    radius = rng.uniform(0, 1, members.n_points, 1) ** (1 / n_features)
    return radius * directions(members.n_points, n_features, rng) * _stretch(members, n_features, rng, 3.0)


def box(members: Memberships, n_features: int, rng: Rng) -> Float[Tensor, "N D"]:
    """Uniform boxes."""
    return 0.85 * rng.uniform(-1, 1, members.n_points, n_features) * _stretch(members, n_features, rng, 5.0)


def shell(members: Memberships, n_features: int, rng: Rng) -> Float[Tensor, "N D"]:
    """Thick spherical shells."""
    thickness = members.uniform(0.05, 0.4, rng)
    radius = 1 - thickness * rng.uniform(0, 1, members.n_points)
    return radius.unsqueeze(1) * directions(members.n_points, n_features, rng)


def peaked(members: Memberships, n_features: int, rng: Rng) -> Float[Tensor, "N D"]:
    """Balls whose density falls from the centre outwards."""
    radius = rng.uniform(0, 1, members.n_points) ** members.uniform(0.8, 2.5, rng)
    return radius.unsqueeze(1) * directions(members.n_points, n_features, rng)


def skewed(members: Memberships, n_features: int, rng: Rng) -> Float[Tensor, "N D"]:
    """Gamma distributions along every axis: a dense corner with a tail."""
    shape = members.uniform(0.8, 4.0, rng).unsqueeze(1).expand(-1, n_features)
    return (rng.gamma(shape.contiguous()) - shape) / (shape.sqrt() * (1 + math.sqrt(n_features)))


def triangle(members: Memberships, rng: Rng) -> Float[Tensor, "N 2"]:
    """Uniform triangles."""
    corners = torch.tensor([[0.0, 1.0], [-0.87, -0.5], [0.87, -0.5]])
    parts = -rng.uniform(1e-6, 1, members.n_points, 3).log()
    flat = (parts / parts.sum(dim=1, keepdim=True)) @ corners
    return flat * columns(members.uniform(0.5, 1, rng), members.uniform(0.7, 1.2, rng))


def sector(members: Memberships, rng: Rng) -> Float[Tensor, "N 2"]:
    """Uniform sectors of rings."""
    angle = members.uniform(0.5, 2.6, rng) * rng.uniform(-1, 1, members.n_points)
    inner = members.uniform(0.3, 0.8, rng)
    return polar((inner**2 + (1 - inner**2) * rng.uniform(0, 1, members.n_points)).sqrt(), angle)


def frame(members: Memberships, rng: Rng) -> Float[Tensor, "N 2"]:
    """Outlines of rectangles."""
    along = rng.uniform(-1, 1, members.n_points)
    across = 1 - members.uniform(0.05, 0.3, rng) * rng.uniform(0, 1, members.n_points)
    side = rng.integers(0, 3, members.n_points)
    across = torch.where(side % 2 == 0, across, -across)
    upright = side < 2
    flat = columns(torch.where(upright, along, across), torch.where(upright, across, along))
    return 0.85 * flat * columns(torch.ones(members.n_points), members.uniform(0.5, 1, rng))


def lobed(members: Memberships, rng: Rng) -> Float[Tensor, "N 2"]:
    """Uniform star-shaped regions with a wavy outline."""
    angle = rng.uniform(-math.pi, math.pi, members.n_points)
    edge = torch.full((members.n_points,), 0.75)
    for wave in (1, 2, 3, 4):
        strength = members.uniform(0, 0.3 / math.sqrt(wave), rng)
        edge = edge + strength * torch.cos(wave * angle + members.uniform(0, 2 * math.pi, rng))
    return polar(edge * rng.uniform(0, 1, members.n_points).sqrt(), angle)


def banana(members: Memberships, rng: Rng) -> Float[Tensor, "N 2"]:
    """Gaussians bent along a parabola."""
    along, across = 0.45 * rng.normal(2, members.n_points)
    bent = members.uniform(0.5, 1.6, rng) * (along.square() - 0.2)
    return columns(along, bent + members.uniform(0.15, 0.5, rng) * across)


def cross(members: Memberships, rng: Rng) -> Float[Tensor, "N 2"]:
    """Two bars that cross, or that meet at a corner."""
    offset = torch.where(members.uniform(0, 1, rng) < 0.5, 0.0, 0.8)
    along = rng.uniform(-1, 1, members.n_points)
    across = members.uniform(0.05, 0.2, rng) * rng.uniform(-1, 1, members.n_points) - offset
    upright = rng.uniform(0, 1, members.n_points) < 0.5
    return columns(torch.where(upright, along, across), torch.where(upright, across, along))


def lattice(members: Memberships, rng: Rng) -> Float[Tensor, "N 2"]:
    """A square grid with jitter."""
    side = members.per_point(members.sizes().sqrt().ceil())
    rank = members.rank()
    flat = columns(rank % side, torch.div(rank, side, rounding_mode="floor"))
    jittered = flat + members.uniform(0, 0.5, rng).unsqueeze(1) * rng.uniform(-1, 1, members.n_points, 2)
    return 0.85 * (2 * (jittered + 0.5) / side.unsqueeze(1) - 1)


SOLIDS: Final = by_name(ball_gaussian, gaussian, student, ball, box, shell, peaked, skewed)
"""Shapes in any number of features."""
FLATS: Final = by_name(triangle, sector, frame, lobed, banana, cross, lattice)
"""Shapes in the plane."""


def line(members: Memberships, along: Float[Tensor, " N"], rng: Rng) -> Float[Tensor, "N 2"]:
    """Straight lines."""
    return columns(along * members.uniform(0.6, 1, rng), torch.zeros_like(along))


def circle(_: Memberships, along: Float[Tensor, " N"], __: Rng) -> Float[Tensor, "N 2"]:
    """Whole circles."""
    return polar(1.0, math.pi * along)


def arc(members: Memberships, along: Float[Tensor, " N"], rng: Rng) -> Float[Tensor, "N 2"]:
    """Parts of circles."""
    return polar(1.0, members.uniform(0.6, 2.6, rng) * along)


def spiral(members: Memberships, along: Float[Tensor, " N"], rng: Rng) -> Float[Tensor, "N 2"]:
    """Spirals of 1 to 2.5 revolutions."""
    radius = ((along + 1) / 2).sqrt()
    return polar(radius, members.uniform(1, 2.5, rng) * 2 * math.pi * radius)


def parabola(members: Memberships, along: Float[Tensor, " N"], rng: Rng) -> Float[Tensor, "N 2"]:
    """Parabolas."""
    return columns(along, members.uniform(0.6, 2, rng) * (along.square() - 0.4))


def zigzag(members: Memberships, along: Float[Tensor, " N"], rng: Rng) -> Float[Tensor, "N 2"]:
    """Lines with two to five corners."""
    phase = members.uniform(1, 3, rng) * (along + 1)
    return columns(along, members.uniform(0.3, 0.6, rng) * (2 * (phase % 2 - 1).abs() - 1))


def wave(members: Memberships, along: Float[Tensor, " N"], rng: Rng) -> Float[Tensor, "N 2"]:
    """Sine waves of half a period to two."""
    return columns(along, members.uniform(0.2, 0.5, rng) * (members.uniform(1.5, 6, rng) * along).sin())


def worm(members: Memberships, along: Float[Tensor, " N"], rng: Rng) -> Float[Tensor, "N 2"]:
    """Smooth random curves."""
    curve = columns(0.8 * along, torch.zeros_like(along))
    for frequency in (1, 2, 3):
        angle = frequency * math.pi * along / 2 + members.uniform(0, 2 * math.pi, rng)
        sideways = columns(members.uniform(-1, 1, rng), members.uniform(-1, 1, rng))
        curve = curve + (0.5 / frequency) * sideways * angle.sin().unsqueeze(1)
    return curve


CURVES: Final = by_name(line, circle, arc, spiral, parabola, zigzag, wave, worm)


def sample_curve_parameter(members: Memberships, rng: Rng) -> Float[Tensor, " N"]:
    """Sample the curve parameter of each point, from -1 to 1: uniform, regular, or denser towards one end."""
    position = rng.uniform(0, 1, members.n_points)
    if rng.bernoulli(0.4):
        position = (members.rank() + position) / members.per_point(members.sizes())
    if rng.bernoulli(0.25):
        position = position ** members.uniform(0.5, 2, rng)
    return 2 * position - 1


def thick_curve(name: str, members: Memberships, rng: Rng) -> Float[Tensor, "N 2"]:
    """Sample points around curves, each with its own thickness."""
    curve = CURVES[name](members, sample_curve_parameter(members, rng), rng)
    return curve + members.uniform(0.015, 0.09, rng).unsqueeze(1) * rng.normal(members.n_points, 2)
