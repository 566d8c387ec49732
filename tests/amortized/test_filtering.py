"""What filtering methods share: whom passes that come in turn get, sets in another order, and frames of their own."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from coterie.amortized.amcp.network import AmcpModel
from coterie.amortized.dac.network import DacModel
from coterie.amortized.filtering import FilteringModel, gather_points, memberships_by_first_pass
from coterie.nn.model import TaskBatch, build

ANCHORED: dict[str, Any] = {"filtering": "anchored", "density": "none"}
SMALL: dict[type[FilteringModel], dict[str, Any]] = {
    AmcpModel: {"width": 8, "hidden": 16, "depth": 1, "em_steps": 2},
    DacModel: {"width": 16, "heads": 2, "inducing": 4, "depth": 1, "mask_depth": 1},
}
KERNEL = {"anchor_position": "latent", "anchoring": "compared", "decoding": "kernel", "threshold": 0.4}
FRAMED: dict[str, tuple[type[FilteringModel], dict[str, Any]]] = {
    "amcp": (AmcpModel, ANCHORED),
    "amcp not anchored": (AmcpModel, {"density": "none"}),
    "dac": (DacModel, ANCHORED),
    "dac kernel": (DacModel, ANCHORED | KERNEL),
}
DRAW_NOTHING = ("amcp not anchored", "dac kernel")
EACH_FRAMED = pytest.mark.parametrize("name", FRAMED)
WIDTH = 4
"""Features of a point, of which networks see two directions."""


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def framed(name: str, seed: int = 0, **settings: Any) -> FilteringModel:
    """A network that sees sets from frames of their own, in double precision, so that rounding decides nothing."""
    kind, given = FRAMED[name]
    model = build(
        kind, kind.Config(WIDTH, **(SMALL[kind] | given | {"n_principal_axes": 2} | settings)), seeded(seed)
    ).double()
    if isinstance(model, DacModel):
        with torch.no_grad():
            model.membership.weight *= 50.0  # untrained, it hesitates about everybody, and takes all at once
    return model


def groups(sets: int = 2, n: int = 30, seed: int = 1) -> TaskBatch:
    """Three groups in each set, in places of their own, the second set with fewer points."""
    source = seeded(seed)
    labels = torch.arange(n).expand(sets, -1) % 5 % 3
    centres = 4 * torch.randn((sets, 3, WIDTH), generator=source, dtype=torch.float64)
    x = gather_points(centres, labels) + torch.randn((sets, n, WIDTH), generator=source, dtype=torch.float64)
    valid = torch.ones((sets, n), dtype=torch.bool)
    valid[1:, n - 5 :] = False
    return TaskBatch(x, labels, valid)


def turned(x: Tensor, keep: int) -> Tensor:
    """All points turned about the origin alike; as many of the first features stay as they are."""
    turn = torch.eye(WIDTH, dtype=x.dtype)
    free = WIDTH - keep
    turn[keep:, keep:] = torch.linalg.qr(torch.randn((free, free), generator=seeded(3), dtype=x.dtype)).Q
    return x @ turn


def by_hand(claims: Tensor, turn: Tensor, *, leftovers_to_first: bool) -> Tensor:
    """Go from pass to pass, and let the first that takes a point keep those after it away."""
    rows = []
    for row in claims.sigmoid():
        chances, taken = torch.zeros_like(row), False
        for cluster in turn.argsort().tolist():
            chances[cluster] = 0.0 if taken else row[cluster]
            taken = taken or bool(row[cluster] > 0.5)
        if leftovers_to_first and not taken:
            chances = (turn == turn.min()).to(row.dtype)
        rows.append(chances / chances.sum())
    return torch.stack(rows)


@pytest.mark.parametrize("leftovers_to_first", [False, True])
def test_points_belong_to_the_first_pass_that_takes_them(*, leftovers_to_first: bool) -> None:
    claims = torch.randn((200, 4), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turn = torch.tensor([5, 0, 7, 2])  # passes in between found nobody
    belonging = memberships_by_first_pass(claims, turn, leftovers_to_first=leftovers_to_first)
    torch.testing.assert_close(belonging, by_hand(claims, turn, leftovers_to_first=leftovers_to_first))


def test_points_that_no_pass_takes_have_memberships_and_gathering_reorders_sets() -> None:
    claims = torch.tensor([[-2000.0, -3000.0]])
    assert memberships_by_first_pass(claims, torch.tensor([1, 0]), leftovers_to_first=False).tolist() == [[1.0, 0.0]]
    assert memberships_by_first_pass(claims, torch.tensor([1, 0]), leftovers_to_first=True).tolist() == [[0.0, 1.0]]
    x = torch.arange(12.0).reshape(2, 3, 2)
    order = torch.tensor([[2, 0], [1, 1]])
    assert gather_points(x, order).tolist() == [[[4.0, 5.0], [0.0, 1.0]], [[8.0, 9.0], [8.0, 9.0]]]


@EACH_FRAMED
def test_clusters_are_invariant_to_rotation_and_shift(name: str) -> None:
    batch = groups()
    # Anchors are drawn among points in the order of their first feature, which must stay that of the set.
    keep = 0 if name in DRAW_NOTHING else 1
    counts, changed = set(), False
    for seed in range(4):
        model, unframed = framed(name, seed), framed(name, seed, n_principal_axes=0)
        for other in (turned(batch.x, keep) + 3.0, batch.x - 20.0):
            here, there = (model.cluster_sets(x, batch.valid, seeded(4)) for x in (batch.x, other))
            assert all(torch.equal(one.labels, same.labels) for one, same in zip(here, there, strict=True))
            counts |= {one.n_clusters for one in here}
            here, there = (unframed.cluster_sets(x, batch.valid, seeded(4)) for x in (batch.x, other))
            changed |= any(not torch.equal(one.labels, same.labels) for one, same in zip(here, there, strict=True))
    assert max(counts) > 1
    assert changed  # where points are seen as they are


@EACH_FRAMED
def test_new_points_are_projected_on_the_axes_of_the_fitted_set(name: str) -> None:
    batch = groups()
    for seed in range(3):
        model = framed(name, seed)
        for x, there, found in zip(
            batch.x, batch.valid, model.cluster_sets(batch.x, batch.valid, seeded(4)), strict=True
        ):
            belonging = model.memberships(x[there], found)
            assert torch.equal(belonging.argmax(dim=1), found.labels[there])
            # A few alone would have another frame.
            torch.testing.assert_close(model.memberships(x[:3], found), belonging[:3])


@EACH_FRAMED
def test_gradients_reach_the_encoder_through_the_projection(name: str) -> None:
    model, batch = framed(name, encoder="mlp", channels=6), groups()
    model.loss(batch, seeded()).total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    weights = dict(model.embed.named_parameters())
    assert weights
    for each, value in weights.items():
        assert value.grad is not None, each
        assert value.grad.isfinite().all(), each
        assert value.grad.any(), each


def test_axes_are_flipped_at_random_in_training_only() -> None:
    model, batch = framed("amcp"), groups()
    seen = [model.encode_for_training(batch.x, batch.valid, seeded(seed)) for seed in range(9)]
    calm, frames = model.project(batch.x, batch.valid)
    assert frames is not None
    assert calm.shape == (2, 30, 2)
    for each in seen:
        torch.testing.assert_close(each[batch.valid].abs(), calm[batch.valid].abs())
    assert len({tuple((each[0, 0] > 0).tolist()) for each in seen}) == 4  # each of two axes in both directions
    plain = framed("amcp", n_principal_axes=0)
    assert torch.equal(plain.encode_for_training(batch.x, batch.valid, seeded())[0], batch.x[0])
    assert plain.project(batch.x, batch.valid)[1] is None


@EACH_FRAMED
def test_features_can_be_kept_beside_projections(name: str) -> None:
    batch = groups()
    alone, beside = framed(name), framed(name, keep_features=True)
    coordinates, frames = alone.project(batch.x, batch.valid)
    assert frames is not None
    assert torch.equal(beside.project(batch.x, batch.valid)[0], torch.cat((batch.x, coordinates), dim=2))
    assert beside.input_width == batch.x.shape[2] + alone.input_width
    for x, there, found in zip(batch.x, batch.valid, beside.cluster_sets(batch.x, batch.valid, seeded(4)), strict=True):
        belonging = beside.memberships(x[there], found)
        assert torch.equal(belonging.argmax(dim=1), found.labels[there])
        torch.testing.assert_close(beside.memberships(x[:3], found), belonging[:3])
