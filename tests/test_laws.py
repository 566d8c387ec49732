"""What holds for every model. A new one joins by an entry in CASES."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.config import from_dict, to_dict
from coterie.models import MODELS
from coterie.models.base import ClusterModel
from coterie.models.clam import ClamConfig, ClamModel
from coterie.ops.starts import normal_start
from coterie.structures import PointBatch
from coterie.training import TrainConfig, train


@dataclass(frozen=True)
class Case:
    """A small model with its parameters at some start, a batch to train on, and points to cluster."""

    build: Callable[[], ClusterModel[Any]]
    batch: Any
    points: Tensor


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def _points() -> Tensor:
    return torch.randn(24, 4, generator=seeded(1))


def _clam(**settings: Any) -> Case:
    def build() -> ClamModel:
        model = ClamModel(ClamConfig(n_features=4, n_prototypes=3, n_runs=2, **settings))
        with torch.no_grad():
            model.prototypes.copy_(5 * normal_start(2, 3, 4, seeded(2)))
            model.mask_rate.fill_(0.5)
        return model

    return Case(build, PointBatch(_points(), torch.arange(24), ends_epoch=True), _points())


CASES: dict[tuple[str, str], Case] = {
    ("clam", "euclidean"): _clam(weighting="learned"),
    ("clam", "cosine"): _clam(metric="cosine", weighting="learned"),
    ("clam", "manhattan"): _clam(metric="manhattan"),
    ("clam", "mahalanobis"): _clam(metric="mahalanobis"),
    ("clam", "unmasked"): _clam(objective="unmasked"),
    ("clam", "legacy"): _clam(legacy_mask=True, plateau=True, rows_per_mask=1),
}


@pytest.fixture(params=CASES.values(), ids=[" ".join(key) for key in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def learn(case: Case, *, steps: int = 3) -> ClusterModel[Any]:
    model = case.build()
    train(model, [case.batch] * steps, TrainConfig(steps, learning_rate=1.0), generator=seeded(3))
    return model


def test_every_model_has_a_case() -> None:
    assert {method for method, _ in CASES} == set(MODELS)
    for (method, _), case in CASES.items():
        assert type(case.build()) is MODELS[method]


def test_gradient_reaches_every_parameter(case: Case) -> None:
    model = case.build()
    model.loss(case.batch, seeded(3)).total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    for name, value in model.named_parameters():
        if value.requires_grad:
            assert value.grad is not None, name
            assert torch.isfinite(value.grad).all(), name
            assert value.grad.any(), name


def test_loss_is_finite_and_says_its_parts(case: Case) -> None:
    loss = case.build().loss(case.batch, seeded(3))
    assert loss.total.shape == ()
    assert torch.isfinite(loss.total)
    assert loss.parts


def test_result_is_a_clustering(case: Case) -> None:
    clustering = learn(case).cluster(case.points, seeded(4))
    assert clustering.labels.shape == (len(case.points),)
    assert clustering.labels.min() >= 0
    assert clustering.labels.max() < clustering.n_clusters
    if clustering.probabilities is not None:
        assert clustering.probabilities.shape == (len(case.points), clustering.n_clusters)
        torch.testing.assert_close(clustering.probabilities.sum(dim=1), torch.ones(len(case.points)))
        assert torch.equal(clustering.probabilities.argmax(dim=1), clustering.labels)


def test_permuting_points_permutes_labels(case: Case) -> None:
    model = learn(case)
    order = torch.randperm(len(case.points), generator=seeded(5))
    labels = model.cluster(case.points, seeded(4)).labels
    assert torch.equal(model.cluster(case.points[order], seeded(4)).labels, labels[order])


@pytest.mark.usefixtures("untouched_random_state")
def test_same_seed_same_result(case: Case) -> None:
    first, second = learn(case), learn(case)
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name
    assert torch.equal(first.cluster(case.points, seeded(4)).labels, second.cluster(case.points, seeded(4)).labels)


@pytest.mark.usefixtures("untouched_random_state")
def test_building_a_model_draws_nothing(case: Case) -> None:
    case.build()


def test_clustering_changes_no_parameter(case: Case) -> None:
    model = learn(case)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.cluster(case.points, seeded(4))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_saved_and_loaded_models_are_equal(case: Case, tmp_path: Path) -> None:
    model = learn(case)
    config: Any = model.config
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, model.state_dict(), {"config": to_dict(config)}, force=False)
    tensors, card = load_checkpoint(path)
    loaded = type(model)(from_dict(model.Config, card["config"]))
    loaded.load_state_dict(tensors)
    first, second = model.cluster(case.points, seeded(4)), loaded.cluster(case.points, seeded(4))
    assert torch.equal(first.labels, second.labels)
    assert first.n_clusters == second.n_clusters
    if first.probabilities is not None and second.probabilities is not None:
        assert torch.equal(first.probabilities, second.probabilities)
