"""ClAM's model: its laws, against the literal recursion and hand-made cases."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call

from coterie.clam.model import ClamConfig, ClamModel, descend, fade

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


def literal_end(model: ClamModel, run: int, start: Tensor, moving: Tensor | None = None) -> Tensor:
    """Where points end under the paper's recursion, one run at a time and without absent prototypes."""
    there = model.present[run]
    prototypes, log_weights = model.prototypes[run, there], model.log_weights[run, there]

    def logits(v: Tensor) -> Tensor:
        return log_weights - model.beta[run] * (v.unsqueeze(2) - prototypes).square().sum(dim=3)

    path = descend(start.unsqueeze(0), prototypes.unsqueeze(0), logits, model.config.steps, moving=moving)
    return path[-1][0]


def literal_masked_losses(model: ClamModel, x: Tensor, seed: int) -> Tensor:
    rates = sorted(set(model.mask_rate.tolist()))
    masks = model._draw_masks(len(x), seeded(seed))
    losses = []
    for run, rate in enumerate(model.mask_rate.tolist()):
        groups = torch.arange(len(x)) // model._rows_per_mask(len(x))
        hidden = masks[rates.index(rate)][groups].double()
        start = torch.where(hidden.bool(), model.fill[run], x)
        losses.append(((x - literal_end(model, run, start, hidden)) * hidden).square().mean(dim=1))
    return torch.stack(losses)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("rows_per_mask", [1, 4, 32])
@pytest.mark.parametrize("mask_rates", [(0.3, 0.3, 0.3), (0.1, 0.5, 0.3), (0.999, 0.999, 0.001)])
@pytest.mark.parametrize("filled", [True, False])
def test_masked_loss_is_the_literal_one(
    steps: int, rows_per_mask: int, mask_rates: tuple[float, ...], filled: bool
) -> None:
    model = make_model(runs=3, steps=steps, rows_per_mask=rows_per_mask, weighting="learned")
    model.mask_rate.copy_(torch.tensor(mask_rates))
    model.present[1, 2:] = False
    if filled:
        model.fill.copy_(normal(3, 5, seed=4))
    x = normal(10, 5, seed=5)
    losses, literal = model.row_losses(x, seeded(6)), literal_masked_losses(model, x, 6)
    torch.testing.assert_close(losses, literal)
    learned = [model.prototypes, model.log_weights]
    for gradient, expected in zip(
        torch.autograd.grad(losses.sum(), learned), torch.autograd.grad(literal.sum(), learned), strict=True
    ):
        torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("steps", [1, 4])
def test_unmasked_loss_is_the_literal_one(steps: int) -> None:
    model = make_model(steps=steps, objective="unmasked", weighting="learned")
    x = normal(10, 5, seed=5)
    losses = model.row_losses(x, seeded())
    literal = torch.stack([(x - literal_end(model, run, x)).square().mean(dim=1) for run in range(2)])
    torch.testing.assert_close(losses, literal)
    learned = [model.prototypes, model.log_weights]
    for gradient, expected in zip(
        torch.autograd.grad(losses.sum(), learned), torch.autograd.grad(literal.sum(), learned), strict=True
    ):
        torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_inference_is_the_literal_one(steps: int) -> None:
    model = make_model(steps=steps, weighting="given")
    model.present[1, 3] = False
    x = normal(30, 5, seed=5)
    distances = model.final_distances(x)
    for run in range(2):
        literal = torch.cdist(literal_end(model, run, x), model.prototypes[run]).square()
        there = model.present[run]
        torch.testing.assert_close(distances[run][:, there], literal[:, there])
        assert torch.isinf(distances[run][:, ~there]).all()
        assert torch.equal(model.assign(x)[run], literal.masked_fill(~there, torch.inf).argmin(dim=1))


class RowLosses(nn.Module):
    """``row_losses`` as the forward of a module, so that its parameters can be replaced."""

    def __init__(self, model: ClamModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model.row_losses(self.model.enter(x), seeded(7))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("objective", ["masked", "unmasked"])
def test_gradient_equals_finite_differences(metric: str, objective: str) -> None:
    model = make_model(
        clusters=3, features=3, steps=3, metric=metric, objective=objective, weighting="learned", rows_per_mask=2
    )
    model.fill.copy_(0.3 * normal(2, 3, seed=4))
    model.mask_rate.copy_(torch.tensor([0.4, 0.6]))
    losses, x = RowLosses(model), normal(3, 3, seed=5)

    def by_parameters(prototypes: Tensor, log_weights: Tensor) -> Tensor:
        replaced: Tensor = functional_call(
            losses, {"model.prototypes": prototypes, "model.log_weights": log_weights}, (x,)
        )
        return replaced

    assert torch.autograd.gradcheck(by_parameters, (model.prototypes, model.log_weights))


def test_one_step_with_a_large_beta_is_the_objective_of_k_means() -> None:
    model = make_model(steps=1, objective="unmasked")
    model.beta.fill_(1e8)
    x = normal(40, 5, seed=5)
    nearest = torch.cdist(x, model.prototypes).square().amin(dim=2)
    torch.testing.assert_close(model.row_losses(x, seeded()) * 5, nearest)


def test_labels_approach_the_voronoi_cells_as_beta_grows() -> None:
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


def test_a_small_beta_draws_all_points_to_the_mean_of_the_prototypes() -> None:
    memories = torch.tensor([[0.1, -0.1], [3.0, 3.0], [-3.0, -3.0], [3.0, -3.0], [-3.0, 3.0]]).double()
    model = with_memories(memories, 1e-9, steps=5)
    x = 2 * normal(100, 2, seed=5).clamp(-1.5, 1.5)
    path = model.trajectories(x)
    torch.testing.assert_close(path[-1], fade(5) * x + (1 - fade(5)) * memories.mean(dim=0))
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


def test_spherical_trajectories_stay_on_the_sphere() -> None:
    path = make_model(metric="cosine", steps=6).trajectories(normal(50, 5, seed=5))
    torch.testing.assert_close(path.norm(dim=2), torch.ones(7, 50).double())


@pytest.mark.parametrize("metric", METRICS)
def test_permuting_prototypes_permutes_labels_only(metric: str) -> None:
    model = make_model(metric=metric, weighting="given")
    x = normal(60, 5, seed=5)
    order = torch.tensor([[2, 0, 3, 1], [1, 3, 2, 0]])
    permuted = model.take(torch.arange(2), order).double()
    labels = order.gather(1, permuted.assign(x))
    assert torch.equal(labels, model.assign(x))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("objective", ["masked", "unmasked"])
def test_equal_weights_change_nothing(metric: str, objective: str) -> None:
    plain = make_model(metric=metric, objective=objective)
    weighted = make_model(metric=metric, objective=objective, weighting="given")
    with torch.no_grad():
        weighted.log_weights.fill_(1.7)
    x = plain.enter(normal(30, 5, seed=5))
    torch.testing.assert_close(weighted.row_losses(x, seeded()), plain.row_losses(x, seeded()))
    assert torch.equal(weighted.assign(x), plain.assign(x))


def test_a_heavy_prototype_takes_more() -> None:
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
    torch.testing.assert_close(model.leave(model.enter(x)), x)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    x = normal(200, 5, seed=5)
    whole, clustering = model.assign(x), model.cluster(x, seeded())
    monkeypatch.setattr("coterie.clam.model.BLOCK_ELEMENTS", 1)
    assert len(model.blocks(x)) == 13
    assert torch.equal(model.assign(x), whole)
    assert torch.equal(model.cluster(x, seeded()).labels, clustering.labels)


def test_entropy_is_zero_where_one_prototype_alone_attracts() -> None:
    memories = torch.tensor([[0.0, 0.0], [10.0, 0.0]]).double()
    model = with_memories(memories, 2.0)
    entropies = model.entropy(torch.tensor([[0.0, 0.0], [5.0, 0.0], [10.0, 0.0]]).double())
    torch.testing.assert_close(
        entropies, torch.tensor([0.0, 2.0, 0.0]).double().clamp_max(1.0) * torch.tensor(2.0).log()
    )


def test_energy_at_a_lone_prototype() -> None:
    model = with_memories(torch.tensor([[1.0, 2.0]]).double(), 3.0)
    energies = model.energy(torch.tensor([[1.0, 2.0], [1.0, 4.0]]).double())
    torch.testing.assert_close(energies, torch.tensor([0.0, 4.0]).double())
