"""Where prototypes begin."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from torch import Generator, Tensor

from coterie.ops.partitions import data_start, lloyd, normal_start, spread_start


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def rows(count: int, features: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(count, features, generator=generator(seed))


def rows_drawn(x: Tensor, centres: Tensor) -> Tensor:
    """Index of the row that each centre is; fails where it is none."""
    same = (centres.unsqueeze(2) == x).all(dim=3)
    assert same.any(dim=2).all()
    return same.int().argmax(dim=2)


def test_normal_start_has_the_published_moments() -> None:
    start = normal_start(200, 10, 20, generator())
    assert start.shape == (200, 10, 20)
    assert float(start.mean()) == pytest.approx(0.1, abs=2e-3)
    assert float(start.std()) == pytest.approx(0.1, abs=2e-3)


def test_data_start_samples_distinct_rows_if_there_are_enough() -> None:
    x = rows(12)
    index = rows_drawn(x, data_start(x, 50, 12, generator()))
    assert (index.sort(dim=1).values == torch.arange(12)).all()
    assert (index[0] != index[1]).any()
    x = rows(3)
    assert rows_drawn(x, data_start(x, 4, 7, generator())).shape == (4, 7)


@given(st.integers(0, 1000), st.sampled_from([1.0, 2.0, 16.0]))
def test_spread_start_samples_distinct_rows(seed: int, power: float) -> None:
    x = rows(12, seed=seed)
    index = rows_drawn(x, spread_start(x, 5, 12, generator(seed), power=power))
    assert (index.sort(dim=1).values == torch.arange(12)).all()


def test_spread_start_skips_copies_if_there_are_enough_distinct_rows() -> None:
    x = rows(4).repeat_interleave(5, dim=0)
    index = rows_drawn(x, spread_start(x, 50, 4, generator()))
    assert (torch.div(index, 5, rounding_mode="floor").sort(dim=1).values == torch.arange(4)).all()
    x = torch.ones(6, 2)
    assert torch.equal(spread_start(x, 3, 5, generator()), torch.ones(3, 5, 2))
    assert spread_start(rows(2), 3, 5, generator()).shape == (3, 5, 3)


def test_spread_start_is_k_means_plus_plus_or_takes_the_farthest_row() -> None:
    x = torch.tensor([[0.0], [1.0], [3.0]])
    start = spread_start(x, 30_000, 2, generator()).squeeze(2)
    assert float((start[:, 0] == 0).float().mean()) == pytest.approx(1 / 3, abs=0.02)
    second = start[start[:, 0] == 0][:, 1]
    assert float((second == 3).float().mean()) == pytest.approx(9 / 10, abs=0.02)
    x = torch.tensor([[0.0], [1.0], [2.0], [10.0]])
    start = spread_start(x, 200, 2, generator(), power=200.0).squeeze(2)
    far = torch.where(start[:, 0] == 10.0, 0.0, 10.0)
    assert torch.equal(start[:, 1], far)


def test_lloyd_ends_where_k_means_does_and_keeps_empty_clusters() -> None:
    x = rows(80)
    starts = data_start(x, 4, 5, generator(1))
    for start, found in zip(starts, lloyd(x, starts, steps=50), strict=True):
        expected = KMeans(5, init=start.numpy(), n_init=1, tol=0.0).fit(x.numpy()).cluster_centers_
        np.testing.assert_allclose(found, expected, atol=1e-5)
    x = torch.tensor([[0.0], [1.0], [2.0]])
    centres = lloyd(x, torch.tensor([[[1.0], [50.0]]]))
    assert centres.flatten().tolist() == [1.0, 50.0]


def test_lloyd_never_raises_the_objective() -> None:
    x = rows(100)
    centres = data_start(x, 6, 7, generator(2))
    costs = []
    for _ in range(10):
        costs.append(torch.cdist(x, centres).square().amin(dim=2).sum(dim=1))
        centres = lloyd(x, centres, 1)
    assert (torch.stack(costs).diff(dim=0) <= 1e-3).all()


@pytest.mark.usefixtures("untouched_random_state")
def test_same_seed_same_start() -> None:
    x = rows(30)
    draws: list[Callable[[int], Tensor]] = [
        lambda seed: normal_start(2, 3, 4, generator(seed)),
        lambda seed: data_start(x, 2, 3, generator(seed)),
        lambda seed: spread_start(x, 2, 3, generator(seed)),
    ]
    for draw in draws:
        assert torch.equal(draw(1), draw(1))
        assert not torch.equal(draw(1), draw(2))
