"""What is special in the relatives of TCC: their losses, computed again by plain loops, and clusters that they find."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor
from torch.nn.functional import normalize

from benchmarks.baselines.cc import CcModel
from benchmarks.baselines.mice import MiceModel
from benchmarks.baselines.moco import MocoModel
from benchmarks.baselines.swav import SwavModel
from coterie.errors import ConfigError
from coterie.nn.model import ViewBatch, build
from coterie.ops.partitions import k_means_start
from coterie.tcc.losses import spread_centres
from coterie.tcc.model import ContrastiveModel
from coterie.training.loop import TrainConfig, train

TOWER: dict[str, Any] = {"encoder": "mlp", "channels": 8, "hidden": 16, "width": 8}
SMALL: dict[type[ContrastiveModel], dict[str, Any]] = {
    MocoModel: {"memory": 12},
    SwavModel: {"frozen_steps": 5},
    CcModel: {},
    MiceModel: {"memory": 12, "refreshed_every": 10},
}
kinds = pytest.mark.parametrize("kind", SMALL)
with_twins = pytest.mark.parametrize("kind", [MocoModel, MiceModel])


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def model_of(kind: type[ContrastiveModel], **settings: Any) -> Any:
    return build(kind, kind.Config(6, 3, **(TOWER | SMALL[kind] | settings)), seeded(1))


def views(n_rows: int = 10, seed: int = 2) -> ViewBatch:
    x = torch.randn(n_rows, 6, generator=seeded(seed))
    noise = 0.1 * torch.randn(2, n_rows, 6, generator=seeded(seed + 1))
    return ViewBatch(x + noise[0], x + noise[1], torch.arange(n_rows))


def learn(model: Any, steps: int, seed: int = 3) -> None:
    train(model, [views(seed=seed + step) for step in range(steps)], TrainConfig(steps), generator=seeded(seed))


def loss_of(model: Any, batch: ViewBatch) -> float:
    return float(model.loss(batch, seeded()).total.detach())


def array(x: Tensor) -> NDArray[np.float64]:
    return x.detach().double().numpy()


def surprise(query: Any, key: Any, others: list[Any], temperature: float) -> float:
    """Of a key among others, as its definition has it."""
    candidates = [math.exp(query @ other / temperature) for other in (key, *others)]
    return -math.log(candidates[0] / sum(candidates))


@pytest.mark.parametrize("in_batch", [True, False])
def test_moco_tells_places_apart(in_batch: bool) -> None:
    model, batch = model_of(MocoModel, in_batch=in_batch), views(4, seed=20)
    learn(model, 2)
    place, known = array(model.online(batch.first)), array(model.twin(batch.second))
    past = list(array(model.instances.held()))
    assert len(past) == 12
    expected = [
        surprise(place[i], known[i], past + [known[j] for j in range(4) if in_batch and j != i], 0.5) for i in range(4)
    ]
    assert loss_of(model, batch) == pytest.approx(np.mean(expected), rel=1e-5)


def test_prototypes_of_moco_stay_where_they_are_put() -> None:
    model, x = model_of(MocoModel), views().first
    torch.testing.assert_close(model.prototypes, spread_centres(3, 8))
    centres = torch.randn(3, 8, generator=seeded(4))
    model.begin_at(centres)
    learn(model, 2)
    torch.testing.assert_close(model.prototypes, normalize(centres, dim=1))
    cosines = array(model.places(x)) @ array(normalize(centres, dim=1)).T
    odds = np.exp(cosines / 0.1)
    np.testing.assert_allclose(array(model.memberships(x)), odds / odds.sum(axis=1, keepdims=True), rtol=1e-4)


def equal_shares(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """SwAV's assignments, by its own steps."""
    codes = np.exp(scores / 0.05)
    codes /= codes.sum(axis=1, keepdims=True)
    for _ in range(3):
        codes /= codes.sum(axis=0)
        codes /= codes.sum(axis=1, keepdims=True)
    return codes


def test_swav_foresees_what_the_other_view_is_assigned_to() -> None:
    model, batch = model_of(SwavModel), views(7)
    one, other = (array(model.tower(view) @ model.prototypes.mT) for view in (batch.first, batch.second))
    total = 0.0
    for seen, codes in ((one, equal_shares(other)), (other, equal_shares(one))):
        for i in range(7):
            odds = np.exp(seen[i] / 0.1)
            total -= sum(codes[i, k] * math.log(odds[k] / odds.sum()) for k in range(3)) / 14
    assert loss_of(model, batch) == pytest.approx(total, rel=1e-4)


def test_prototypes_of_swav_move_after_a_while_and_have_length_one() -> None:
    model = model_of(SwavModel, frozen_steps=3)
    before = model.prototypes.detach().clone()
    learn(model, 3)
    torch.testing.assert_close(model.prototypes, before)
    resumed = model_of(SwavModel, frozen_steps=3)
    resumed.load_state_dict(model.state_dict())
    learn(resumed, 1)
    assert (resumed.prototypes - before).abs().max() > 1e-4
    torch.testing.assert_close(resumed.prototypes.norm(dim=1), torch.ones(3))


def all_pairs(one: NDArray[np.float64], other: NDArray[np.float64], temperature: float) -> float:
    """Mean surprise at the other view, among all views of other rows."""
    total = 0.0
    for seen, known in ((one, other), (other, one)):
        for i in range(len(one)):
            others = [table[j] for table in (seen, known) for j in range(len(one)) if j != i]
            total += surprise(seen[i], known[i], others, temperature) / (2 * len(one))
    return total


def test_cc_tells_rows_and_columns_apart() -> None:
    model, batch = model_of(CcModel), views(5)
    places = [array(model.tower(view)) for view in (batch.first, batch.second)]
    probs = [array(model.clusters(model.tower.encoded(view)).softmax(dim=1)) for view in (batch.first, batch.second)]
    columns = [prob.T / np.linalg.norm(prob.T, axis=1, keepdims=True) for prob in probs]
    shares = [prob.mean(axis=0) for prob in probs]
    expected = {
        "instance": all_pairs(places[0], places[1], 0.5),
        "cluster": all_pairs(columns[0], columns[1], 1.0),
        "uneven": sum(math.log(3) + float((share * np.log(share)).sum()) for share in shares),
    }
    found = model.loss(batch, seeded())
    assert dict(found.parts) == pytest.approx(expected, rel=1e-4)
    assert found.total.item() == pytest.approx(sum(expected.values()), rel=1e-4)
    np.testing.assert_allclose(array(model.memberships(batch.first)), probs[0], rtol=1e-5)


def mixture(model: Any, seen: Any, known: Any, *, in_batch: bool) -> NDArray[np.float64]:
    """π times φ of each row and expert, as their definitions have it."""
    place, sights, v = (array(each) for each in (seen.place, seen.sights, known))
    middles, past = array(normalize(model.middles, dim=1)), array(model.instances.held())
    joint = np.zeros((len(v), 3))
    for i in range(len(v)):
        gate = np.exp(array(model.gate) @ place[i])
        for k in range(3):
            others = [entry[k] for entry in past] + [v[j, k] for j in range(len(v)) if in_batch and j != i]
            joint[i, k] = gate[k] / gate.sum() * math.exp(-surprise(sights[i, k] + middles[k], v[i, k], others, 1.0))
    return joint


@pytest.mark.parametrize("in_batch", [True, False])
def test_the_loss_of_mice_is_the_bound_and_the_likelihood(in_batch: bool) -> None:
    model, batch = model_of(MiceModel, in_batch=in_batch), views(4, seed=20)
    learn(model, 2)
    joint = mixture(model, model.online(batch.first), model.twin(batch.second).sights, in_batch=in_batch)
    posterior = joint / joint.sum(axis=1, keepdims=True)
    bound = (posterior * (np.log(joint) - np.log(posterior))).sum(axis=1).mean()
    assert loss_of(model, batch) == pytest.approx(-bound, rel=1e-5)
    assert loss_of(model, batch) == pytest.approx(-np.log(joint.sum(axis=1)).mean(), rel=1e-5)


def test_the_gradient_of_mice_is_that_of_the_bound() -> None:
    """Which flows through the posterior as well."""
    model, batch = model_of(MiceModel), views(4)
    learn(model, 2)
    log_joint = model.log_joint(model.online(batch.first), model.twin(batch.second).sights, in_batch=True)
    log_posterior = log_joint.log_softmax(dim=1)
    bound = -(log_posterior.exp() * (log_joint - log_posterior)).sum(dim=1).mean()
    learned = [value for value in model.parameters() if value.requires_grad]
    expected = torch.autograd.grad(bound, learned)
    for one, other in zip(torch.autograd.grad(model.loss(batch, seeded()).total, learned), expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-3)


def test_mice_goes_by_the_posterior_and_without_a_past_by_the_gate() -> None:
    model, x = model_of(MiceModel), views(6).first
    odds = np.exp(array(model.places(x)) @ array(spread_centres(3, 8)).T)
    np.testing.assert_allclose(array(model.memberships(x)), odds / odds.sum(axis=1, keepdims=True), rtol=1e-4)
    learn(model, 2)
    joint = mixture(model, model.online(x), model.twin(x).sights, in_batch=False)
    np.testing.assert_allclose(array(model.memberships(x)), joint / joint.sum(axis=1, keepdims=True), rtol=1e-4)


def test_middles_of_mice_are_made_anew_of_what_the_teacher_saw() -> None:
    model, expected = model_of(MiceModel, refreshed_every=2), np.zeros((3, 8))
    with torch.no_grad():
        model.online.tower.projection[-1].bias.copy_(-20 * model.gate[2])  # hardly any row goes to the last
    before = model.middles.detach().clone()
    for step in (1, 2):
        batch = views(seed=30 + step)
        known = model.twin(batch.second).sights
        labels = mixture(model, model.online(batch.first), known, in_batch=True).argmax(axis=1)
        for i, k in enumerate(labels):
            expected[k] += array(known)[i, k]
        model.loss(batch, seeded())
        model.after_step()
        assert bool(model.sums.any()) == (step == 1)
    assert np.linalg.norm(expected[:2], axis=1).min() > 0
    assert not expected[2].any()
    middles = array(model.middles)
    np.testing.assert_allclose(
        middles[:2], expected[:2] / np.linalg.norm(expected[:2], axis=1, keepdims=True), rtol=1e-4
    )
    np.testing.assert_array_equal(middles[2], array(before[2]))


@with_twins
def test_no_gradient_reaches_a_twin_that_follows(kind: type[ContrastiveModel]) -> None:
    model = model_of(kind, momentum=0.9)
    model.loss(views(), seeded()).total.backward()
    assert all(value.grad is None for value in model.twin.parameters())
    assert all(value.grad is not None for value in model.online.parameters())
    before = [value.clone() for value in model.twin.parameters()]
    with torch.no_grad():
        for value in model.online.parameters():
            value.add_(1.0)
    assert len(model.instances.held()) == 0
    model.after_step()
    assert len(model.instances.held()) == 10
    for value, start in zip(model.twin.parameters(), before, strict=True):
        torch.testing.assert_close(value, start + 0.1)


def blobs() -> tuple[Tensor, Tensor]:
    """Three clusters that are easy to tell apart."""
    labels = torch.arange(60) % 3
    return 4 * torch.eye(3, 6)[labels] + 0.3 * torch.randn(60, 6, generator=seeded(9)), labels


@pytest.mark.parametrize(("kind", "steps"), [(MocoModel, 60), (SwavModel, 60), (CcModel, 60), (MiceModel, 300)])
def test_clusters_are_learned(kind: type[ContrastiveModel], steps: int) -> None:
    model, (x, labels) = model_of(kind), blobs()
    generator = seeded(10)

    def batches() -> Any:
        while True:
            noise = 0.3 * torch.randn(2, *x.shape, generator=generator)
            yield ViewBatch(x + noise[0], x + noise[1], torch.arange(len(x)))

    train(model, batches(), TrainConfig(steps, learning_rate=5e-3), generator=generator)
    if model.begins_at_places:
        model.begin_at(k_means_start(model.places(x), 1, 3, generator)[0])
    found = model.cluster(x, seeded()).labels
    assert len(torch.unique(found)) == 3
    assert len(torch.unique(found * 3 + labels)) == 3  # each cluster is one of the true ones


@kinds
def test_what_is_kept_is_all_that_counts(kind: type[ContrastiveModel]) -> None:
    """For memberships, and for training that goes on."""
    model, other, batch = model_of(kind), model_of(kind), views(seed=20)
    if model.begins_at_places:
        model.begin_at(torch.randn(3, 8, generator=seeded(4)))
    learn(model, 3)
    other.load_state_dict(model.state_dict())
    assert torch.equal(model.memberships(batch.first), other.memberships(batch.first))
    assert loss_of(model, batch) == loss_of(other, batch)


@kinds
def test_only_moco_is_told_where_clusters_begin(kind: type[ContrastiveModel]) -> None:
    assert kind.begins_at_places == (kind is MocoModel)
    if not kind.begins_at_places:
        with pytest.raises(NotImplementedError, match=f"{kind.__name__} begins its clusters by itself"):
            model_of(kind).begin_at(torch.eye(3, 8))


@pytest.mark.parametrize(
    ("kind", "settings", "named"),
    [
        (MocoModel, {"temperature": 0.0}, "temperature=0.0 must be above 0"),
        (MocoModel, {"momentum": 1.5}, "momentum=1.5 must be from 0 to 1"),
        (MocoModel, {"memory": -1}, "memory=-1 must be at least 0"),
        (MocoModel, {"width": 1}, "width=1 is too small for n_clusters=3 .* raise width"),
        (SwavModel, {"epsilon": 0.0}, "epsilon=0.0 must be above 0"),
        (SwavModel, {"frozen_steps": -1}, "frozen_steps=-1 must be at least 0"),
        (SwavModel, {"width": 1}, "width=1 is too small"),
        (CcModel, {"cluster_temperature": -1.0}, "cluster_temperature=-1.0 must be above 0"),
        (CcModel, {"hidden": -1}, "hidden=-1 must be at least 0"),
        (MiceModel, {"gate_temperature": 0.0}, "gate_temperature=0.0 must be above 0"),
        (MiceModel, {"refreshed_every": 0}, "refreshed_every=0 must be at least 1"),
        (MiceModel, {"width": 1}, "width=1 is too small"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    kind: type[ContrastiveModel], settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        model_of(kind, **settings)
