"""What holds for every model that is trained on labelled sets; its cases are those of tests/test_laws.py."""

import math
from functools import cache

import pytest
import torch
from torch import Tensor

from coterie.nn.model import SetModel, TaskBatch
from coterie.ops.partitions import Clustering
from tests.test_laws import CASES, Case, clustering_of_points, learned, seeded

SET_CASES = {key: case for key, case in CASES.items() if isinstance(case.batch, TaskBatch)}


@pytest.fixture(params=SET_CASES.values(), ids=[" ".join(key) for key in SET_CASES])
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def set_model(case: Case) -> SetModel:
    model = learned(case)
    assert isinstance(model, SetModel)
    return model


@pytest.fixture
def model(case: Case) -> SetModel:
    return set_model(case)


@cache
def found_in_sets(case: Case) -> list[Clustering]:
    """What the model finds in the case's sets, side by side."""
    return set_model(case).cluster_sets(case.batch.x, case.batch.valid, seeded(4))


def all_of(x: Tensor) -> Tensor:
    return torch.ones(x.shape[:2], dtype=torch.bool)


def check(model: SetModel, x: Tensor, valid: Tensor, found: Clustering) -> None:
    """Labels are 0..k-1, the largest cluster first, and -1 where there is no point; memberships agree with them."""
    assert (found.labels.shape, found.labels.dtype) == (valid.shape, torch.int64)
    assert (found.labels[~valid] == -1).all()
    sizes = found.labels[valid].bincount(minlength=found.n_clusters)
    assert len(sizes) == found.n_clusters
    assert (sizes > 0).all()
    assert (sizes.diff() <= 0).all()
    if found.probabilities is not None and found.n_clusters:
        assert torch.equal(found.probabilities[valid].argmax(dim=1), found.labels[valid])
        torch.testing.assert_close(found.probabilities.sum(dim=1), valid.float())
    belonging = model.memberships(x[valid], found)
    assert belonging.shape == (int(valid.sum()), found.n_clusters)
    if len(belonging):
        torch.testing.assert_close(belonging.sum(dim=1), torch.ones(len(belonging)))
    assert (belonging >= 0).all()
    if found.probabilities is not None and found.n_clusters:
        torch.testing.assert_close(belonging, found.probabilities[valid])
        assert torch.equal(belonging.argmax(dim=1), found.labels[valid])


def same(first: Clustering, second: Clustering) -> None:
    assert torch.equal(first.labels, second.labels)
    assert first.n_clusters == second.n_clusters
    assert first.extras.keys() == second.extras.keys()
    for name, value in first.extras.items():
        torch.testing.assert_close(value, second.extras[name], atol=1e-4, rtol=1e-4)


def test_results_are_sound(model: SetModel, case: Case) -> None:
    batch: TaskBatch = case.batch
    for i, found in enumerate(found_in_sets(case)):
        check(model, batch.x[i], batch.valid[i], found)


def test_sets_do_not_see_each_other(model: SetModel, case: Case) -> None:
    batch: TaskBatch = case.batch
    backwards = model.cluster_sets(batch.x.flip(0), batch.valid.flip(0), seeded(4))[::-1]
    for i, (one, other) in enumerate(zip(found_in_sets(case), backwards, strict=True)):
        same(one, other)
        same(one, model.cluster_sets(batch.x[i : i + 1], batch.valid[i : i + 1], seeded(4))[0])


@pytest.mark.parametrize("fill", [0.0, -1e4, math.nan])
def test_padding_changes_nothing(fill: float, model: SetModel, case: Case) -> None:
    batch: TaskBatch = case.batch
    x, valid = batch.x[1:, :25], batch.valid[1:, :25]
    assert valid.all()
    alone = model.cluster_sets(x, valid, seeded(4))[0]
    # Before, between and after the points.
    place = torch.tensor([2, 3, *range(5, 20), *range(22, 30)])
    padded = torch.full((1, 33, 2), fill)
    padded[:, place] = x
    there = torch.zeros((1, 33), dtype=torch.bool)
    there[:, place] = True
    found = model.cluster_sets(padded, there, seeded(4))[0]
    check(model, padded[0], there[0], found)
    assert torch.equal(found.labels[place], alone.labels)


@pytest.mark.parametrize("fill", [0.0, -1e4, math.nan])
def test_padding_leaves_the_loss_as_it_is(fill: float, model: SetModel, case: Case) -> None:
    batch: TaskBatch = case.batch
    more = TaskBatch(
        torch.cat([batch.x, torch.full((2, 5, 2), fill)], dim=1),
        torch.cat([batch.labels, torch.full((2, 5), 99)], dim=1),
        torch.cat([batch.valid, torch.zeros((2, 5), dtype=torch.bool)], dim=1),
    )
    losses = [model.loss(each, seeded(4)).total.detach() for each in (batch, more)]
    assert losses[0].isfinite()
    assert losses[1].isfinite()
    # Anchors are drawn from as many places as the batch has, and codes for padding, too: these are other draws then.
    drawn = {getattr(model.config, name, None) for name in ("filtering", "density")} & {"anchored", "statistician"}
    if not drawn:
        torch.testing.assert_close(losses[1], losses[0])


@pytest.mark.parametrize(
    "x",
    [torch.zeros(1, 2), torch.full((1, 2), -7.0), torch.full((9, 2), 3.0), torch.eye(2), 1e4 * torch.eye(2)],
    ids=["one point", "one point far out", "all points equal", "two points", "two points far out"],
)
def test_odd_sets(x: Tensor, model: SetModel) -> None:
    found = model.cluster(x, seeded(4))
    check(model, x, all_of(x.unsqueeze(0))[0], found)
    assert all(part.isfinite().all() for part in found.extras.values())
    assert model.memberships(1e4 * torch.ones(3, 2), found).isfinite().all()
    if (x == x[0]).all():
        assert found.n_clusters == 1 or not torch.equal(found.labels, torch.zeros_like(found.labels))
    batch = TaskBatch(x.unsqueeze(0), torch.zeros((1, len(x)), dtype=torch.int64), all_of(x.unsqueeze(0)))
    assert model.loss(batch, seeded()).total.isfinite()


def test_a_set_of_no_points_has_no_clusters(model: SetModel, case: Case) -> None:
    batch: TaskBatch = case.batch
    valid = batch.valid.clone()
    valid[0] = False
    none, some = model.cluster_sets(batch.x, valid, seeded(4))
    check(model, batch.x[0], valid[0], none)
    assert none.n_clusters == 0
    same(some, model.cluster_sets(batch.x[1:], valid[1:], seeded(4))[0])
    assert model.memberships(batch.x[0], none).shape == (40, 0)


def test_memberships_of_a_row_do_not_depend_on_the_others(model: SetModel, case: Case) -> None:
    clusters = clustering_of_points(case)
    belonging = model.memberships(case.points, clusters)
    torch.testing.assert_close(model.memberships(case.points[3:8], clusters), belonging[3:8])
    order = torch.randperm(len(case.points), generator=seeded(5))
    torch.testing.assert_close(model.memberships(case.points[order], clusters), belonging[order])
    assert model.memberships(case.points[:0], clusters).shape == (0, clusters.n_clusters)
