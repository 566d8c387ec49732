"""Arcs of ellipses: their statistics, and both formulae."""

import math

import pytest
import torch
from torch import Generator, Tensor

from coterie.amortized.tasks.synthetic import Arcs, WarpedGaussians, around_ellipse, rotate
from coterie.nn.model import TaskBatch

BOTH = pytest.mark.parametrize("paper_eq16", [False, True])


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def before_rotation(batch: TaskBatch, arcs: Arcs) -> tuple[Tensor, Tensor, Tensor]:
    """Points in the frame of their ellipse, its half-axes, and the deviation of its arc."""
    each = batch.labels
    shift, axes = (part.gather(1, each[:, :, None].expand(-1, -1, 2)) for part in (arcs.shift, arcs.axes))
    return rotate(batch.x - shift, -arcs.rotation.gather(1, each)), axes, arcs.deviation.gather(1, each)


def distance_from_ellipse(points: Tensor, axes: Tensor) -> Tensor:
    """Distance of each point from the closest of many on its own ellipse."""
    angle = torch.linspace(0, 2 * math.pi, 2000)
    outline = axes[:, None] * torch.stack((angle.cos(), angle.sin()), dim=1)
    closest: Tensor = torch.linalg.vector_norm(points[:, None] - outline, dim=2).amin(dim=1)
    return closest


def test_a_point_by_hand() -> None:
    # At 60° on the ellipse of half-axes 2 and 1: (1, √3/2); the normal is along (1/2, √3), of length √13/2.
    angle, axes, step = torch.tensor([math.pi / 3]), torch.tensor([[2.0, 1.0]]), torch.tensor([0.1])
    torch.testing.assert_close(
        around_ellipse(angle, axes, step),
        torch.tensor([[1 + 0.1 / math.sqrt(13), math.sqrt(3) / 2 + 0.1 * math.sqrt(12 / 13)]]),
    )
    torch.testing.assert_close(
        around_ellipse(angle, axes, step, axes.norm(dim=1)),
        torch.tensor([[1 + 0.05 / math.sqrt(5), math.sqrt(3) / 2 + 0.1 * math.sqrt(3 / 5)]]),
    )
    torch.testing.assert_close(
        rotate(torch.tensor([[2.0, 1.0]]), torch.tensor([math.pi / 2])), torch.tensor([[-1.0, 2.0]])
    )


def test_an_ellipse_without_extent_is_a_point() -> None:
    assert torch.equal(around_ellipse(torch.ones(1), torch.zeros(1, 2), torch.ones(1)), torch.zeros(1, 2))


def test_steps_away_from_the_ellipse_are_normal() -> None:
    batch, arcs = WarpedGaussians(max_points=60).sample_with_parameters(400, generator())
    points, axes, _ = before_rotation(batch, arcs)
    # Where an ellipse is bent as sharply as the steps are long, another point of it may be closer.
    short, long = axes.abs().amin(dim=2), axes.abs().amax(dim=2)
    gentle = short.square() / long > 0.6
    distance = distance_from_ellipse(points[gentle], axes[gentle])
    assert len(distance) > 3000
    assert float(distance.square().mean().sqrt()) == pytest.approx(0.1, rel=0.05)
    assert float((distance < 0.1).float().mean()) == pytest.approx(0.683, abs=0.03)


def test_the_paper_steps_by_a_tenth_at_most_and_always_outwards() -> None:
    batch, arcs = WarpedGaussians(max_points=60, paper_eq16=True).sample_with_parameters(400, generator())
    points, axes, _ = before_rotation(batch, arcs)
    # On axes of one sign the step leads out of the ellipse, else into it; no point is on the other side.
    outside = (points / axes).norm(dim=2) > 1
    same_sign = axes.prod(dim=2) > 0
    assert outside[same_sign].all()
    clear = ~same_sign & (axes.abs().amin(dim=2) > 0.5)
    assert not outside[clear].any()
    round_enough = same_sign & (axes.abs().amin(dim=2) > 0.8 * axes.abs().amax(dim=2))
    distance = distance_from_ellipse(points[round_enough], axes[round_enough])
    # On a circle of any size the step is 0.1 / √2.
    assert float(distance.mean()) == pytest.approx(0.1 / math.sqrt(2), rel=0.05)


@pytest.mark.parametrize("max_clusters", [1, 3, 4, 12])
def test_centres_of_the_released_program(max_clusters: int) -> None:
    sampler = WarpedGaussians(max_points=10, max_clusters=max_clusters)
    _, arcs = sampler.sample_with_parameters(20_000 // max_clusters, generator())
    assert float(arcs.shift.mean()) == pytest.approx(0.0, abs=0.1)
    assert float(arcs.shift.std()) == pytest.approx(min(max_clusters, 4), rel=0.02)
    assert float(arcs.axes.std()) == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize("max_clusters", [1, 3, 12])
def test_centres_of_the_paper(max_clusters: int) -> None:
    sampler = WarpedGaussians(max_points=200, max_clusters=max_clusters, paper_eq16=True)
    batch, arcs = sampler.sample_with_parameters(6000 // max_clusters, generator())
    count = torch.tensor([len(labels.unique()) for labels in batch.labels])
    deviation = arcs.shift - count.clamp(max=4)[:, None, None]
    assert float(deviation.mean()) == pytest.approx(0.0, abs=0.04)
    assert float(deviation.std()) == pytest.approx(1.0, rel=0.02)
    assert float(arcs.axes.std()) == pytest.approx(math.sqrt(2), rel=0.03)


@BOTH
def test_arcs_are_bent_from_the_mixture_of_one_feature(paper_eq16: bool) -> None:
    sampler = WarpedGaussians(max_points=10, paper_eq16=paper_eq16)
    _, arcs = sampler.sample_with_parameters(5000, generator())
    assert float(arcs.position.std()) == pytest.approx(3.0, rel=0.02)
    assert float(arcs.deviation.log().mean()) == pytest.approx(math.log(0.25), abs=0.005)
    assert float(arcs.deviation.log().std()) == pytest.approx(0.1, rel=0.02)
    assert float(arcs.rotation.mean()) == pytest.approx(math.pi, rel=0.02)
    assert 0 <= float(arcs.rotation.min()) <= float(arcs.rotation.max()) <= 2 * math.pi


def test_points_lie_where_their_arc_is() -> None:
    batch, arcs = WarpedGaussians(max_points=60).sample_with_parameters(400, generator())
    points, axes, deviation = before_rotation(batch, arcs)
    # Near a circle the polar angle tells where on the line a point was.
    long = axes.abs().amin(dim=2) > 1.5
    angle = torch.atan2(points[..., 1] / axes[..., 1], points[..., 0] / axes[..., 0])
    expected = 0.8 * math.pi * arcs.position.gather(1, batch.labels)
    difference = torch.remainder(angle - expected + math.pi, 2 * math.pi) - math.pi
    standard = (difference / (0.8 * math.pi * deviation))[long]
    assert len(standard) > 3000
    assert float(standard.mean()) == pytest.approx(0.0, abs=0.05)
    assert float(standard.std()) == pytest.approx(1.0, rel=0.05)
