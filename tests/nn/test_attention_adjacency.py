"""Attention over a graph: what an adjacency does to the weights of keys."""

import pytest
import torch
from torch import Generator, Tensor

from coterie.nn.attention import MAB, SAB, AttentionConfig

WIDTH = 12
FLAVOURS = {
    "multiplicative": AttentionConfig(WIDTH, 3, residual="input", feed_forward="linear", output_map=True),
    "additive": AttentionConfig(WIDTH, 3, compatibility="additive", residual="input", scale="none"),
    "gated": AttentionConfig(WIDTH, 3, residual="gated", output_map=True),
    "projected": AttentionConfig(WIDTH, 3, layer_norm=False, scale="model"),
}


@pytest.fixture(params=FLAVOURS.values(), ids=list(FLAVOURS))
def block(request: pytest.FixtureRequest) -> MAB:
    """A block in double precision; torch's own random state stays."""
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(Generator().manual_seed(0).get_state())
        return MAB(WIDTH, WIDTH, request.param).double()


def points(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def edges(*shape: int, seed: int = 2) -> Tensor:
    """Weights of edges, a third of them absent, and at least one of each point."""
    drawn = torch.rand(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)
    drawn = torch.where(drawn < 1 / 3, 0.0, 3 * drawn)
    drawn[..., 0] = 1.0
    return drawn


def alone(block: MAB, x: Tensor) -> Tensor:
    """What becomes of points that attend to nothing."""
    nothing = torch.zeros(x.shape[:2], dtype=torch.bool)
    result: Tensor = block(x, x, nothing)
    return result


def assert_same(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left, right, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("weight", [1.0, 0.2, 30.0])
def test_equal_edges_are_as_none(block: MAB, weight: float) -> None:
    """Weights are made to sum to one, so that how large all of a point's edges are is of no matter."""
    x, y = points(2, 5, WIDTH), points(2, 7, WIDTH, seed=3)
    assert_same(block(x, y, None, torch.full((2, 5, 7), weight, dtype=torch.float64)), block(x, y))


def test_a_key_without_an_edge_is_absent(block: MAB) -> None:
    x, y = points(2, 5, WIDTH), points(2, 7, WIDTH, seed=3)
    adjacency = torch.ones((2, 5, 7), dtype=torch.float64)
    adjacency[:, :, [1, 4]] = 0.0
    others = [0, 2, 3, 5, 6]
    assert_same(block(x, y, None, adjacency), block(x, y[:, others]))


def test_each_point_has_its_own_edges_in_any_order(block: MAB) -> None:
    x, adjacency = points(2, 5, WIDTH), edges(2, 5, 5)
    result = block(x, x, None, adjacency)
    for i in range(2):
        for j in range(5):
            near = adjacency[i, j].nonzero().squeeze(1).flip(0)
            alone = block(x[i, j].view(1, 1, -1), x[i : i + 1, near], None, adjacency[i, j, near].view(1, 1, -1))
            assert_same(result[i, j], alone[0, 0])
    sab = SAB(WIDTH, block.config).double()
    sab.block.load_state_dict(block.state_dict())
    assert torch.equal(sab(x, None, adjacency), result)


def test_the_gradient_of_edge_weights_is_right_and_finite_where_there_is_no_edge(block: MAB) -> None:
    x, adjacency = points(1, 4, WIDTH), edges(1, 4, 4)
    present = adjacency > 0

    def by_weights(weights: Tensor) -> Tensor:
        result: Tensor = block(x, x, None, torch.zeros_like(adjacency).masked_scatter(present, weights))
        return result

    assert torch.autograd.gradcheck(by_weights, [adjacency[present].requires_grad_()])
    (slope,) = torch.autograd.grad(block(x, x, None, adjacency.requires_grad_()).sum(), adjacency)
    assert slope.isfinite().all()
    assert not slope[~present].any()


def test_an_edge_of_weight_two_is_two_keys(block: MAB) -> None:
    x, y = points(2, 5, WIDTH), points(2, 3, WIDTH, seed=3)
    adjacency = torch.tensor([2.0, 1.0, 3.0], dtype=torch.float64).expand(2, 5, 3)
    assert_same(block(x, y, None, adjacency), block(x, y[:, [0, 0, 1, 2, 2, 2]]))


def test_a_point_without_any_edge_gets_nothing_added(block: MAB) -> None:
    x = points(2, 5, WIDTH).requires_grad_()
    adjacency = edges(2, 5, 5)
    adjacency[0, 3] = adjacency[1, 1] = 0.0
    result = block(x, x, None, adjacency)
    expected = alone(block, x)
    assert_same(result[0, 3], expected[0, 3])
    assert_same(result[1, 1], expected[1, 1])
    assert not torch.isclose(result[0, 0], expected[0, 0]).any()
    result.square().sum().backward()
    for value in (x, *block.parameters()):
        assert value.grad is not None
        assert value.grad.isfinite().all()


@pytest.mark.parametrize("fill", [0.0, 1.0, 1e8])
def test_masking_is_removal_whatever_edges_lead_there(block: MAB, fill: float) -> None:
    x, adjacency = points(2, 6, WIDTH), edges(2, 6, 6)
    valid = torch.tensor([True, True, False, True, False, True]).expand(2, -1)
    adjacency[:, :, 2] = fill
    there = valid[0]
    removed = block(x[:, there], x[:, there], None, adjacency[:, there][:, :, there])
    assert_same(block(x, x, valid, adjacency)[:, there], removed)


def test_a_point_with_edges_to_masked_ones_alone_gets_nothing_added(block: MAB) -> None:
    x = points(1, 4, WIDTH)
    adjacency = torch.eye(4, dtype=torch.float64).unsqueeze(0).roll(1, 2)
    valid = torch.tensor([[True, False, True, True]])
    result = block(x, x, valid, adjacency)
    assert_same(result[0, 0], alone(block, x)[0, 0])
    assert_same(result[0, 1], block(x[:, 1:2], x[:, 2:3])[0, 0])
