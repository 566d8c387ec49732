"""Circles: where points lie, how many on each, and which circles cross."""

import math
from typing import Any

import pytest
import torch
from torch import Generator

from coterie.amortized.tasks.synthetic import CircleTasks, crossing
from coterie.config import from_dict
from coterie.errors import ConfigError
from coterie.recipes import TASKS


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@pytest.mark.usefixtures("untouched_random_state")
@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize(("n_points", "n_circles"), [(20, 4), (4, 4), (100, 2), (30, 7)])
def test_points_lie_on_their_circles(n_points: int, n_circles: int, overlapping: bool) -> None:
    tasks = CircleTasks(n_points, n_circles, overlapping)
    batch, centre, radius = tasks.sample_with_circles(50, seeded())
    assert torch.equal(tasks.sample(50, seeded()).x, batch.x)
    assert batch.x.shape == (50, n_points, 2)
    assert batch.valid.all()
    for x, labels, own_centre, own_radius in zip(batch.x, batch.labels, centre, radius, strict=True):
        assert set(labels.tolist()) == set(range(n_circles))
        torch.testing.assert_close((x - own_centre[labels]).norm(dim=1), own_radius[labels])
    assert (centre.norm(dim=2) <= 0.5).all()
    assert ((radius >= 0.2) & (radius <= 0.4)).all()
    if overlapping:
        assert crossing(centre, radius).any(dim=2).all()


def test_points_are_spread_around_their_circle() -> None:
    batch, centre, _ = CircleTasks(60, 3).sample_with_circles(20, seeded())
    for x, labels, own_centre in zip(batch.x, batch.labels, centre, strict=True):
        for circle in range(3):
            away = x[labels == circle] - own_centre[circle]
            arcs = torch.atan2(away[:, 1], away[:, 0]).remainder(2 * math.pi) / (2 * math.pi) * len(away)
            assert set(arcs.floor().tolist()) == set(range(len(away)))


def test_laws_of_centres_radii_and_counts() -> None:
    batch, centre, radius = CircleTasks(20, 4).sample_with_circles(3000, seeded())
    # Uniform in a disc: the square of the distance is uniform.
    share = (centre.norm(dim=2) / 0.5) ** 2
    assert abs(float(share.mean()) - 0.5) < 0.02
    assert abs(float((share < 0.25).float().mean()) - 0.25) < 0.02
    # Beyond one standard deviation to either side, where radii are cut off, lie 15.9 % each.
    assert abs(float((radius == 0.2).float().mean()) - 0.159) < 0.02
    assert abs(float((radius == 0.4).float().mean()) - 0.159) < 0.02
    counts = torch.nn.functional.one_hot(batch.labels, 4).sum(dim=1).float()
    assert abs(float(counts.mean()) - 5) < 1e-6
    assert abs(float(counts.var()) - 16 * 0.25 * 0.75) < 0.15
    assert not (batch.labels == batch.labels.sort(dim=1).values).all(dim=1).any(), "points are in random order"


def test_circles_cross_and_recipes_know_them() -> None:
    centre = torch.tensor([[[0.0, 0.0], [0.5, 0.0], [2.0, 0.0], [0.0, 0.0]]])
    radius = torch.tensor([[0.3, 0.3, 0.3, 0.1]])
    wanted = torch.zeros((1, 4, 4), dtype=torch.bool)
    wanted[0, 0, 1] = wanted[0, 1, 0] = True
    assert torch.equal(crossing(centre, radius), wanted)
    kind: Any = TASKS["circles"]
    assert from_dict(kind, {"n_points": 50, "overlapping": True}) == CircleTasks(50, 4, overlapping=True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_points": 3}, "n_circles=4 must be between 1 and n_points=3"),
        ({"n_circles": 0}, "n_circles=0"),
        ({"n_circles": 1, "overlapping": True}, "overlapping=True needs n_circles"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CircleTasks(**settings)
