"""How AMCP clusters: every point gets a label whatever the network says, passes end, small clusters are put right."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from coterie.amortized.amcp.network import AmcpModel, Pass
from coterie.ops.correlation import MIN_CLUSTER_SIZES
from coterie.ops.partitions import Clustering
from tests.amortized.test_amcp_network import easy_sets, make_model, seeded

DECODINGS: list[dict[str, Any]] = [
    {"decoding": decoding, "update_previous": update_previous, "density": density}
    for decoding, update_previous, density in product(
        ("robust", "faithful"), (False, True), ("gaussian", "flow", "none")
    )
]
VARIANTS: dict[str, dict[str, Any]] = {
    **{" ".join(map(str, each.values())): each for each in DECODINGS},
    "anchored": {"filtering": "anchored", "density": "none"},
    "decoded": {"references": "decoded", "e_step": "transport", "density": "none"},
    "leftover_fraction": {"leftover_fraction": 0.3, "density": "none"},
    "leftovers, kept": {"leftover_fraction": 0.3, "decoding": "faithful"},
    "leftovers, anchored": {"leftover_fraction": 0.3, "filtering": "anchored", "decoding": "faithful"},
    "decoded, kept": {"references": "decoded", "decoding": "faithful", "update_previous": True},
}
EACH_VARIANT = pytest.mark.parametrize("settings", VARIANTS.values(), ids=list(VARIANTS))


def sound(model: AmcpModel, x: Tensor, valid: Tensor, found: Clustering) -> None:
    """All points have labels, the largest cluster comes first and none is empty, and memberships say the same."""
    assert (found.labels[valid] >= 0).all()
    assert (found.labels[~valid] == -1).all()
    sizes = found.labels[valid].bincount(minlength=found.n_clusters)
    assert (sizes > 0).all(), f"{sizes.tolist()} has an empty cluster"
    assert (sizes.diff() <= 0).all(), f"{sizes.tolist()} is not in order"
    assert torch.equal(model.memberships(x[valid], found).argmax(dim=1), found.labels[valid])


def both_decodings(model: AmcpModel) -> Iterator[AmcpModel]:
    """The network twice, with clusters that are put right and with those that the passes made."""
    for decoding in ("robust", "faithful"):
        model.config = replace(model.config, decoding=decoding)
        yield model


@EACH_VARIANT
def test_untrained_networks_label_every_point_in_any_order(settings: dict[str, Any]) -> None:
    batch = easy_sets(2, n=25, seed=2)
    valid = batch.valid.clone()
    valid[1, 4::3] = False
    order = torch.randperm(25, generator=seeded(5))
    for seed in range(2 if settings.get("density") == "flow" else 4):
        model = make_model(seed, **settings)
        together = model.cluster_sets(batch.x, valid, seeded(4))
        for x, there, found in zip(batch.x, valid, together, strict=True):
            sound(model, x, there, found)
        permuted = model.cluster_sets(batch.x[:, order], valid[:, order], seeded(4))
        for found, other in zip(together, permuted, strict=True):
            assert torch.equal(other.labels, found.labels[order])
        removed = model.cluster(batch.x[1, valid[1]], seeded(4))
        assert torch.equal(removed.labels, together[1].labels[valid[1]])


def leaning(model: AmcpModel, logit: float) -> AmcpModel:
    """The network with this much added to all memberships: if it is much, they are all decided by it."""
    last = model.membership.rest[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.bias.fill_(logit)
    return model


def passes_of(model: AmcpModel) -> list[Pass]:
    """What the passes of the model find, one after the other; the list grows as it makes them."""
    passes: list[Pass] = []
    real = model.find_cluster
    model.find_cluster = lambda *given: passes.append(real(*given)) or passes[-1]  # type: ignore[method-assign, func-returns-value]  # notes
    return passes


@pytest.mark.parametrize("filtering", ["min-loss", "anchored"])
@pytest.mark.parametrize("logit", [-1e3, -1.0, 1e3])
@pytest.mark.parametrize("update_previous", [False, True])
def test_clustering_ends_if_networks_always_or_never_fire(filtering: Any, logit: float, update_previous: bool) -> None:
    model = make_model(filtering=filtering, update_previous=update_previous, decoding="faithful", max_passes=99)
    leaning(model, logit)
    passes = passes_of(model)
    x = easy_sets(1, n=13).x[0]
    x[4:6] = x[3]  # equal points go together
    sound(model, x, torch.ones(13, dtype=torch.bool), model.cluster(x, seeded()))
    assert len(passes) == 1 if logit > 100 else len(passes) <= 11
    if logit < -100 and filtering == "min-loss":
        assert len(passes) == 11


def test_a_network_trained_with_leftovers_may_stop() -> None:
    x = easy_sets(1, n=20).x[0]
    for filtering, n_passes in (("min-loss", {2}), ("anchored", {19, 20})):  # at once, or one anchor after the other
        model = leaning(make_model(leftover_fraction=0.3, filtering=filtering, decoding="faithful"), -1e3)
        passes = passes_of(model)
        assert model.cluster(x, seeded()).n_clusters == 1  # the first pass must take somebody, the others join
        assert len(passes) in n_passes


def test_passes_have_a_limit() -> None:
    model = leaning(make_model(density="none", decoding="faithful", max_passes=3), -1e3)  # one point at a time
    x = easy_sets(1, n=20).x[0]
    passes = passes_of(model)
    found = model.cluster(x, seeded())
    assert len(passes) == 3
    assert (found.labels >= 0).all()
    assert found.n_clusters <= 3


def test_points_of_found_clusters_move_to_the_nearest() -> None:
    """AMCP*: what is nearer to another cluster goes there; what has no cluster yet has no say in where clusters are."""
    model = make_model(update_previous=True)
    with torch.no_grad():
        model.mixing.pair_scores.log_temperature.fill_(0.0)
    h = torch.zeros(1, 9, 8)
    h[0, :, 0] = torch.tensor([0.0, 0.1, 0.2, 9.9, 10.0, 10.1, 10.2, 5.0, 10.0])
    labels = torch.tensor([[0, 0, 0, 0, 1, 1, 1, -1, -1]])
    valid = torch.tensor([[True] * 8 + [False]])
    assert model._nearest(h, valid, labels)[0, :7].tolist() == [0, 0, 0, 1, 1, 1, 1]
    # Of two that are as near, the larger; and an empty cluster gets nobody, though its middle be near.
    h[0, :, 0] = torch.tensor([-1.0, -1.0, -1.0, -1.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    labels = torch.tensor([[0, 0, 0, 0, 3, 3, 3, -1, -1]])
    h[0, 4, 0] = -0.1
    assert model._nearest(h, valid, labels)[0, :7].tolist() == [0, 0, 0, 0, 0, 3, 3]


def test_points_move_between_clusters_until_nothing_changes() -> None:
    model = make_model(density="none")
    h, valid = torch.zeros(2, 10, 8), torch.ones((2, 10), dtype=torch.bool)
    h[:, :, 0] = 10.0 * torch.arange(10)
    valid[1, 9] = False
    at_rest = [0] * 4 + [1] * 5 + [-1]  # the border, 37.5, is in the middle of the means, 15 and 60
    labels = torch.tensor([[0] + [1] * 8 + [-1], at_rest])
    once = torch.where(labels >= 0, model._nearest(h, valid, labels), labels)
    assert once.tolist() == [[0] * 3 + [1] * 6 + [-1], at_rest]
    assert model._reassign(h, valid, labels).tolist() == [at_rest, at_rest]


@pytest.mark.parametrize("filtering", ["min-loss", "anchored"])
def test_robust_decoding_without_a_density_ends_at_a_fixed_point(filtering: Any) -> None:
    batch = easy_sets(6, n=25, seed=2)
    moved = False
    for seed in range(4):
        model = make_model(seed, density="none", filtering=filtering)
        kept, as_found = (each.filter_encoded(batch.x, batch.valid, seeded()) for each in both_decodings(model))
        h = model.embed_points(batch.x)
        for points, robust, faithful in zip(h, kept, as_found, strict=True):
            share = (robust["count"] / len(points)).log()
            labels = (model.mixing.pair_scores(points[None], robust["centre"][None])[0] + share).argmax(dim=1)
            assert torch.equal(labels.bincount(minlength=len(share)), robust["count"])
            for cluster in labels.unique().tolist():
                torch.testing.assert_close(points[labels == cluster].mean(dim=0), robust["centre"][cluster])
            moved |= not torch.equal(robust["count"], faithful["count"])
    assert moved  # else the passes had left nothing to be moved


def test_calibration_finds_the_minimum_cluster_size() -> None:
    model, batches = make_model(density="none"), [easy_sets(3), easy_sets(2, seed=5)]
    before = model.config
    asked: list[int] = []

    def score(truth: Tensor, labels: Tensor) -> float:
        assert truth.shape == labels.shape
        asked.append(model.config.min_cluster_size)
        return float(model.config.min_cluster_size in {3, 4})

    assert model.calibrate(batches, score) == replace(before, min_cluster_size=3)
    assert asked == [smallest for smallest in MIN_CLUSTER_SIZES for _ in range(5)]
    assert model.config is before
    for other in (make_model(density="gaussian"), make_model(density="none", decoding="faithful")):
        assert other.calibrate(batches, score) is other.config
    assert len(asked) == 25


def test_points_of_small_clusters_go_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    group = torch.arange(4).repeat_interleave(torch.tensor([10, 6, 3, 1]))
    x = torch.stack((group + 0.01 * torch.arange(20), torch.zeros(20)), dim=1)  # in order of value, as passes see them
    model = make_model(density="none")
    with torch.no_grad():
        model.mixing.pair_scores.log_temperature.fill_(-9.0)  # points go to the nearest
    real = model.find_cluster

    def in_turn(h: Tensor, valid: Tensor, labels: Tensor, anchor: Tensor | None) -> Pass:
        next_group = group == labels.amax(dim=1, keepdim=True) + 1
        return replace(real(h, valid, labels, anchor), logits=torch.where(next_group, 1.0, -1.0))

    monkeypatch.setattr(model, "find_cluster", in_turn)
    labels = {}
    for smallest in (1, 4, 99):
        model.config = replace(model.config, min_cluster_size=smallest)
        labels[smallest] = model.cluster(x, seeded()).labels
    assert torch.equal(labels[1], group)
    assert torch.equal(labels[4][:16], group[:16])  # those of large clusters stay
    assert torch.equal(labels[4][16:], torch.ones(4, dtype=torch.int64))  # others go to the nearest that is left
    assert not labels[99].any()  # where all are too small, the largest takes everybody


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Notes the size of the largest tensor that any operation gives."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, Tensor):
                self.size = max(self.size, value.numel())
        return result


@pytest.mark.parametrize("density", ["gaussian", "none"])
def test_no_step_compares_points_with_each_other(density: Any) -> None:
    n = 20_000
    model = make_model(density=density, max_points=n, max_passes=3, e_step="transport", sinkhorn_steps=3)
    x = easy_sets(1, n=n).x[0]
    with Largest() as largest:  # type: ignore[no-untyped-call]  # torch leaves it untyped
        found = model.cluster(x, seeded())
    assert (found.labels >= 0).all()
    assert largest.size <= 100 * n  # points times hidden numbers or clusters, far from points times points
