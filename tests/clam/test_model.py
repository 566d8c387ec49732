"""ClAM's model: equations of the paper, masks, and the training of several runs."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call

from coterie.clam.model import ClamConfig, ClamModel, am_recursion, residual
from coterie.nn.model import PointBatch
from coterie.training.batches import point_batches
from coterie.training.loop import TrainConfig, train

METRICS = ["euclidean", "cosine", "manhattan", "mahalanobis"]
VORONOI_MEMORIES = [[0.1, 0.3], [0.2, 0.1], [0.4, 0.7], [0.6, 0.5], [0.9, 0.2]]


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def make_model(*, runs: int = 2, clusters: int = 4, features: int = 5, **settings: Any) -> ClamModel:
    """A model in float64 whose runs differ in prototypes and beta."""
    config = ClamConfig(n_features=features, n_prototypes=clusters, n_runs=runs, **settings)
    model = ClamModel(config).double()
    with torch.no_grad():
        model.prototypes.copy_(normal(runs, clusters, features, seed=1))
        model.beta.copy_(torch.linspace(0.3, 1.5, runs))
        if config.weighting != "equal":
            model.log_weights.copy_(normal(runs, clusters, seed=2))
        if config.metric == "mahalanobis":
            root = normal(features, features, seed=3)
            model.whitening.copy_(root @ root.T / features + torch.eye(features))
    return model


def with_memories(memories: Tensor, beta: float, **settings: Any) -> ClamModel:
    model = make_model(runs=1, clusters=len(memories), features=memories.shape[1], **settings)
    with torch.no_grad():
        model.prototypes.copy_(memories.unsqueeze(0))
        model.beta.fill_(beta)
    return model


def recursion_end(model: ClamModel, run: int, start: Tensor, moving: Tensor | None = None) -> Tensor:
    """Where points end under the paper's recursion, one run at a time and without absent prototypes."""
    there = model.present[run]
    prototypes, log_weights = model.prototypes[run, there], model.log_weights[run, there]

    def logits(v: Tensor) -> Tensor:
        return log_weights - model.beta[run] * (v.unsqueeze(2) - prototypes).square().sum(dim=3)

    path = am_recursion(start.unsqueeze(0), prototypes.unsqueeze(0), logits, model.config.steps, moving=moving)
    return path[-1][0]


def recursion_losses(model: ClamModel, x: Tensor, seed: int) -> Tensor:
    rates = sorted(set(model.mask_rate.tolist()))
    masks = model._sample_masks(len(x), seeded(seed))
    losses = []
    for run, rate in enumerate(model.mask_rate.tolist()):
        groups = torch.arange(len(x)) // model._rows_per_mask(len(x))
        hidden = masks[rates.index(rate)][groups].double()
        start = torch.where(hidden.bool(), model.fill[run], x)
        losses.append(((x - recursion_end(model, run, start, hidden)) * hidden).square().mean(dim=1))
    return torch.stack(losses)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("rows_per_mask", [1, 4, 32])
@pytest.mark.parametrize("mask_rates", [(0.3, 0.3, 0.3), (0.1, 0.5, 0.3), (0.999, 0.999, 0.001)])
@pytest.mark.parametrize("filled", [True, False])
def test_masked_loss_is_equation_9(steps: int, rows_per_mask: int, mask_rates: tuple[float, ...], filled: bool) -> None:
    model = make_model(runs=3, steps=steps, rows_per_mask=rows_per_mask, weighting="learned")
    model.mask_rate.copy_(torch.tensor(mask_rates))
    model.present[1, 2:] = False
    if filled:
        model.fill.copy_(normal(3, 5, seed=4))
    x = normal(10, 5, seed=5)
    losses, literal = model.pointwise_loss(x, seeded(6)), recursion_losses(model, x, 6)
    torch.testing.assert_close(losses, literal)
    learned = [model.prototypes, model.log_weights]
    for gradient, expected in zip(
        torch.autograd.grad(losses.sum(), learned), torch.autograd.grad(literal.sum(), learned), strict=True
    ):
        torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("steps", [1, 4])
def test_unmasked_loss_equals_equation_8(steps: int) -> None:
    model = make_model(steps=steps, objective="unmasked", weighting="learned")
    x = normal(10, 5, seed=5)
    losses = model.pointwise_loss(x, seeded())
    literal = torch.stack([(x - recursion_end(model, run, x)).square().mean(dim=1) for run in range(2)])
    torch.testing.assert_close(losses, literal)
    learned = [model.prototypes, model.log_weights]
    for gradient, expected in zip(
        torch.autograd.grad(losses.sum(), learned), torch.autograd.grad(literal.sum(), learned), strict=True
    ):
        torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_inference_assigns_the_end_of_the_recursion_to_the_nearest_prototype(steps: int) -> None:
    model = make_model(steps=steps, weighting="given")
    model.present[1, 3] = False
    x = normal(30, 5, seed=5)
    distances = model.final_distances(x)
    for run in range(2):
        literal = torch.cdist(recursion_end(model, run, x), model.prototypes[run]).square()
        there = model.present[run]
        torch.testing.assert_close(distances[run][:, there], literal[:, there])
        assert torch.isinf(distances[run][:, ~there]).all()
        assert torch.equal(model.assign(x)[run], literal.masked_fill(~there, torch.inf).argmin(dim=1))


class PointwiseLoss(nn.Module):
    """``pointwise_loss`` as a module, so that its parameters can be replaced."""

    def __init__(self, model: ClamModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model.pointwise_loss(self.model.to_memory_space(x), seeded(7))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("objective", ["masked", "unmasked"])
def test_gradient_equals_finite_differences(metric: str, objective: str) -> None:
    model = make_model(
        clusters=3, features=3, steps=3, metric=metric, objective=objective, weighting="learned", rows_per_mask=2
    )
    model.fill.copy_(0.3 * normal(2, 3, seed=4))
    model.mask_rate.copy_(torch.tensor([0.4, 0.6]))
    losses, x = PointwiseLoss(model), normal(3, 3, seed=5)

    def by_parameters(prototypes: Tensor, log_weights: Tensor) -> Tensor:
        replaced: Tensor = functional_call(
            losses, {"model.prototypes": prototypes, "model.log_weights": log_weights}, (x,)
        )
        return replaced

    assert torch.autograd.gradcheck(by_parameters, (model.prototypes, model.log_weights))


def test_one_step_with_a_large_beta_is_the_k_means_objective() -> None:
    model = make_model(steps=1, objective="unmasked")
    model.beta.fill_(1e8)
    x = normal(40, 5, seed=5)
    nearest = torch.cdist(x, model.prototypes).square().amin(dim=2)
    torch.testing.assert_close(model.pointwise_loss(x, seeded()) * 5, nearest)


def test_labels_approach_the_voronoi_partition_as_beta_grows() -> None:
    memories = torch.tensor(VORONOI_MEMORIES).double()
    axis = torch.arange(60).double() / 60
    grid = torch.cartesian_prod(axis, axis)
    distances = torch.cdist(grid, memories)
    nearest = distances.sort(dim=1).values
    inside = nearest[:, 1] - nearest[:, 0] > 0.01
    disagreements = []
    for beta in (2.5, 7.5, 15.0, 20.0, 37.5, 500.0):
        labels = with_memories(memories, beta, steps=10).assign(grid)[0]
        disagreements.append(int((labels != distances.argmin(dim=1)).sum()))
    assert disagreements == sorted(disagreements, reverse=True)
    assert disagreements[0] > 100
    labels = with_memories(memories, 1e5, steps=10).assign(grid)[0]
    assert torch.equal(labels[inside], distances.argmin(dim=1)[inside])


def test_a_small_beta_moves_all_points_to_the_mean_of_the_prototypes() -> None:
    memories = torch.tensor([[0.1, -0.1], [3.0, 3.0], [-3.0, -3.0], [3.0, -3.0], [-3.0, 3.0]]).double()
    model = with_memories(memories, 1e-9, steps=5)
    x = 2 * normal(100, 2, seed=5).clamp(-1.5, 1.5)
    path = model.trajectories(x)
    torch.testing.assert_close(path[-1], residual(5) * x + (1 - residual(5)) * memories.mean(dim=0))
    clustering = model.cluster(x, seeded())
    assert (clustering.labels == 0).all()
    assert clustering.probabilities is not None
    torch.testing.assert_close(clustering.probabilities, torch.full((100, 5), 0.2).double())
    torch.testing.assert_close(model.entropy(x), torch.full((100,), 5.0).double().log())


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "mahalanobis"])
def test_energy_falls_along_trajectories(metric: str) -> None:
    model = make_model(metric=metric, weighting="given", steps=6)
    energies = torch.stack([model.energy(v) for v in model.trajectories(normal(50, 5, seed=5))])
    assert energies.shape == (7, 50)
    assert (energies.diff(dim=0) <= 1e-9).all()


@pytest.mark.parametrize("metric", METRICS)
def test_permuting_prototypes_permutes_labels_only(metric: str) -> None:
    model = make_model(metric=metric, weighting="given")
    x = normal(60, 5, seed=5)
    order = torch.tensor([[2, 0, 3, 1], [1, 3, 2, 0]])
    permuted = model.select_runs(torch.arange(2), order).double()
    labels = order.gather(1, permuted.assign(x))
    assert torch.equal(labels, model.assign(x))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("objective", ["masked", "unmasked"])
def test_equal_weights_change_nothing(metric: str, objective: str) -> None:
    plain = make_model(metric=metric, objective=objective)
    weighted = make_model(metric=metric, objective=objective, weighting="given")
    with torch.no_grad():
        weighted.log_weights.fill_(1.7)
    x = plain.to_memory_space(normal(30, 5, seed=5))
    torch.testing.assert_close(weighted.pointwise_loss(x, seeded()), plain.pointwise_loss(x, seeded()))
    assert torch.equal(weighted.assign(x), plain.assign(x))


def test_a_larger_weight_enlarges_the_basin() -> None:
    memories = torch.tensor([[-1.0], [1.0]]).double()
    model = with_memories(memories, 1.0, weighting="given")
    x = torch.linspace(-2, 2, 101).double().unsqueeze(1)
    before = int((model.assign(x) == 1).sum())
    with torch.no_grad():
        model.log_weights.copy_(torch.tensor([[0.0, 1.0]]))
    assert int((model.assign(x) == 1).sum()) > before


@pytest.mark.parametrize("scale", [0.01, 7.0, 1000.0])
def test_scaling_data_and_beta_together_changes_no_label(scale: float) -> None:
    model = make_model()
    x = normal(60, 5, seed=5)
    labels = model.assign(x)
    with torch.no_grad():
        model.prototypes.mul_(scale)
        model.beta.div_(scale**2)
    assert torch.equal(model.assign(scale * x), labels)


def test_mahalanobis_is_euclidean_after_whitening() -> None:
    model = make_model(metric="mahalanobis")
    euclidean = make_model()
    x = normal(30, 5, seed=5)
    assert torch.equal(model.assign(x), euclidean.assign(x @ model.whitening))
    torch.testing.assert_close(model.from_memory_space(model.to_memory_space(x)), x)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    x = normal(200, 5, seed=5)
    whole, clustering = model.assign(x), model.cluster(x, seeded())
    monkeypatch.setattr("coterie.clam.model.BLOCK_ELEMENTS", 1)
    assert len(model.blocks(x)) == 13
    assert torch.equal(model.assign(x), whole)
    assert torch.equal(model.cluster(x, seeded()).labels, clustering.labels)


def test_entropy_and_energy_with_one_relevant_prototype() -> None:
    memories = torch.tensor([[0.0, 0.0], [10.0, 0.0]]).double()
    model = with_memories(memories, 2.0)
    entropies = model.entropy(torch.tensor([[0.0, 0.0], [5.0, 0.0], [10.0, 0.0]]).double())
    torch.testing.assert_close(
        entropies, torch.tensor([0.0, 2.0, 0.0]).double().clamp_max(1.0) * torch.tensor(2.0).log()
    )
    model = with_memories(torch.tensor([[1.0, 2.0]]).double(), 3.0)
    energies = model.energy(torch.tensor([[1.0, 2.0], [1.0, 4.0]]).double())
    torch.testing.assert_close(energies, torch.tensor([0.0, 4.0]).double())


def float_rows(count: int = 50, features: int = 5, seed: int = 3) -> Tensor:
    return torch.randn(count, features, generator=seeded(seed))


def make_runs(*, runs: int = 3, features: int = 5, **settings: Any) -> ClamModel:
    """Build runs that differ in prototypes, beta, rate, mask rate and fill."""
    model = ClamModel(ClamConfig(n_features=features, n_prototypes=4, n_runs=runs, **settings))
    with torch.no_grad():
        model.prototypes.copy_(float_rows(runs * 4, features, seed=1).view(runs, 4, features))
        model.beta.copy_(torch.linspace(0.3, 1.5, runs))
        model.rate.copy_(torch.logspace(-1, -3, runs))
        model.mask_rate.copy_(torch.tensor([0.15, 0.4, 0.15, 0.6])[:runs])
        model.fill.copy_(float_rows(runs, features, seed=2))
    return model


def fit(
    model: ClamModel, x: Tensor, *, epochs: int = 4, schedule: Any = "cosine", weight: Tensor | None = None
) -> None:
    batches = point_batches(x, batch_size=16, epochs=epochs, generator=seeded(4), weight=weight)
    steps = epochs * -(-len(x) // 16)
    train(model, batches, TrainConfig(steps, learning_rate=1.0, schedule=schedule), generator=seeded(5))


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
@pytest.mark.parametrize("weighting", ["equal", "learned"])
def test_runs_trained_together_equal_runs_trained_alone(metric: str, weighting: str) -> None:
    settings: Any = {"metric": metric, "weighting": weighting, "rows_per_mask": 4}
    together = make_runs(**settings)
    alone = [make_runs(**settings).select_runs(torch.tensor([run])) for run in range(3)]
    before = together.prototypes.detach().clone()
    fit(together, float_rows())
    for run, model in enumerate(alone):
        fit(model, float_rows())
        torch.testing.assert_close(model.prototypes[0], together.prototypes[run], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model.log_weights[0], together.log_weights[run], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(torch.stack(model.history)[:, 0], torch.stack(together.history)[:, run])
    assert (together.prototypes != before).all()


def test_each_run_has_its_own_learning_rate() -> None:
    """A unit step shortened by ``after_step`` is Adam at the run's rate."""
    model = make_runs(weighting="learned")
    fit(model, float_rows(), schedule="constant")
    for run, rate in enumerate(torch.logspace(-1, -3, 3).tolist()):
        expected = make_runs(weighting="learned").select_runs(torch.tensor([run]))
        optimiser = torch.optim.Adam([expected.prototypes, expected.log_weights], lr=rate)
        generator = seeded(5)
        for batch in point_batches(float_rows(), batch_size=16, epochs=4, generator=seeded(4)):
            optimiser.zero_grad()
            expected.pointwise_loss(batch.x, generator).mean().backward()  # type: ignore[no-untyped-call]  # torch's own
            optimiser.step()
        torch.testing.assert_close(model.prototypes[run], expected.prototypes[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(model.log_weights[run], expected.log_weights[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan", "mahalanobis"])
@pytest.mark.parametrize("objective", ["masked", "unmasked"])
def test_training_lowers_the_loss(metric: Any, objective: Any) -> None:
    x = torch.cat([float_rows(30) * 0.1 + 2, float_rows(30) * 0.1 - 2])
    model = make_runs(runs=1, metric=metric, objective=objective)
    model.fill.zero_()
    fit(model, x, epochs=30)
    assert len(model.history) == 30
    assert float(model.history[-1]) < 0.7 * float(model.history[0])


def test_absent_prototypes_never_move() -> None:
    model = make_runs(weighting="learned")
    model.present[1, 2:] = False
    before = model.prototypes.detach().clone()
    fit(model, float_rows())
    assert torch.equal(model.prototypes[1, 2:], before[1, 2:])
    assert (model.prototypes[1, :2] != before[1, :2]).all()


def test_equal_row_weights_change_nothing_and_rows_of_weight_zero_do_not_count() -> None:
    plain, weighted = make_runs(), make_runs()
    fit(plain, float_rows())
    fit(weighted, float_rows(), weight=torch.full((50,), 3.0))
    torch.testing.assert_close(weighted.prototypes, plain.prototypes)
    # With one mask for the batch, since a row less would shift the masks of the others.
    x, weight = float_rows(10), torch.tensor([1.0, 2.0] * 3 + [0.0] * 4)
    model = make_runs(rows_per_mask=32)
    every = model.loss(PointBatch(x, torch.arange(10), weight), seeded())
    only = model.loss(PointBatch(x[:6], torch.arange(6), weight[:6]), seeded())
    torch.testing.assert_close(every.total, only.total)


def test_batches_without_weight_are_harmless() -> None:
    model = make_runs()
    before = model.prototypes.detach().clone()
    fit(model, float_rows(), weight=torch.zeros(50).index_fill(0, torch.tensor([7]), 1.0))
    assert torch.isfinite(model.prototypes).all()
    assert not torch.equal(model.prototypes, before)


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.6])
def test_masks_hide_the_mask_rate_and_at_least_one_feature(rate: float) -> None:
    model = make_runs(runs=1, features=40, rows_per_mask=1)
    model.mask_rate.fill_(rate)
    hidden = model._sample_masks(2000, seeded())
    assert (hidden.shape, set(hidden.flatten().tolist())) == ((1, 2000, 40), {0.0, 1.0})
    assert (hidden.sum(dim=2) >= 1).all()
    assert float(hidden.mean()) == pytest.approx(rate, abs=0.01)


def test_a_higher_mask_rate_hides_a_superset() -> None:
    model = make_runs(runs=3)
    model.mask_rate.copy_(torch.tensor([0.5, 0.1, 0.3]))
    hidden = model._sample_masks(200, seeded())
    assert (hidden.diff(dim=0) >= 0).all()
    assert model._mask_rate_index().tolist() == [2, 0, 1]


def test_legacy_masks() -> None:
    model = make_runs(runs=1, features=20, legacy_mask=True, rows_per_mask=1)
    model.mask_rate.fill_(0.3)
    shared = []
    for epoch in range(6):
        model.history = [torch.zeros(1)] * epoch
        hidden = model._sample_masks(64, seeded(epoch))
        shared.append(hidden.shape[1] == 1)
        assert (hidden[:, :, 0] == 0).all(), "the first feature is never hidden"
        counts = hidden.sum(dim=2)
        assert (counts <= 6).all()  # int(20 * 0.3) draws, of which some coincide
        assert (counts >= 1).all()
    assert shared == [False, False, True, False, False, True]
    model.history = []
    hidden = model._sample_masks(3000, seeded())[0]
    assert (hidden[:, 1:].mean(dim=0) - (1 - (18 / 19) ** 6)).abs().max() < 0.05


def end_epoch(model: ClamModel, losses: Sequence[float]) -> None:
    """End an epoch with these losses, without moving a prototype."""
    model._before_step = [value.detach().clone() for value in model._trained_parameters()]
    model._batch_loss = torch.tensor(losses)
    model._ends_epoch = True
    model.after_step()


def test_plateau_rule() -> None:
    """A mean over 10 epochs that gains less than 0.001 in 5 epochs on end costs a fifth of the rate."""
    model = make_runs(runs=3, plateau=True)
    model.rate.fill_(0.1)
    rates = []
    for epoch in range(25):
        slowly = 10.0 - 0.0009 * epoch
        steadily = 10.0 - 0.01 * epoch
        late = 10.0 if epoch < 13 else 9.0 - 0.5 * epoch
        end_epoch(model, (slowly, steadily, late))
        rates.append(model.rate.tolist())
    slow, steady, late_rates = (torch.tensor(rates)[:, run] for run in range(3))
    cuts = (torch.nonzero(slow.diff() < 0).flatten() + 1).tolist()
    assert cuts == [14, 19, 24], "the first mean of 10 to compare with ends the tenth epoch"
    torch.testing.assert_close(slow[-1], torch.tensor(0.1 * 0.8**3))
    assert (steady == 0.1).all()
    assert (late_rates == 0.1).all(), "three stalled epochs are forgiven once the loss falls again"


def test_a_run_stops_when_its_rate_is_negligible() -> None:
    model = make_runs(runs=2, plateau=True)
    model.rate.copy_(torch.tensor([1.1e-6, 0.1]))
    for _ in range(15):
        end_epoch(model, (1.0, 1.0))
    assert float(model.rate[0]) == 0.0
    torch.testing.assert_close(float(model.rate[1]), 0.08, rtol=1e-5, atol=0)


def test_the_best_epoch_is_restored() -> None:
    model = make_runs(runs=2, plateau=True, weighting="learned")
    losses = [(3.0, 1.0), (1.0, 2.0), (2.0, 3.0)]
    for epoch, pair in enumerate(losses):
        with torch.no_grad():
            model.prototypes.fill_(epoch)
            model.log_weights.fill_(epoch)
        end_epoch(model, pair)
    model.restore_best()
    for value in (model.prototypes, model.log_weights):
        assert (value[0] == 1).all()
        assert (value[1] == 0).all()


def test_selected_runs_forget_the_best_epoch() -> None:
    """A later round sees more rows, so that all of its sums may be larger than those of an earlier one."""
    model = make_runs(runs=2, plateau=True)
    end_epoch(model, (1.0, 1.0))
    model = model.select_runs(torch.tensor([1]))
    for epoch, loss in enumerate((5.0, 4.0, 6.0)):
        with torch.no_grad():
            model.prototypes.fill_(epoch)
        end_epoch(model, (loss,))
    model.restore_best()
    assert (model.prototypes == 1).all()


def test_selected_runs_keep_their_state() -> None:
    model = make_runs(metric="mahalanobis")
    fit(model, float_rows())
    taken = model.select_runs(torch.tensor([2, 0]))
    assert torch.equal(taken.prototypes, model.prototypes[[2, 0]])
    assert torch.equal(taken.beta, model.beta[[2, 0]])
    assert torch.equal(taken.fill, model.fill[[2, 0]])
    assert torch.equal(torch.stack(taken.history), torch.stack(model.history)[:, [2, 0]])
    assert torch.equal(taken.assign(float_rows()), model.assign(float_rows())[[2, 0]])
