"""Laws that hold for every model. A new model joins by an entry in CASES.

Further laws of models that are trained on labelled sets are in tests/test_set_laws.py.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from benchmarks.baselines.cc import CcModel
from benchmarks.baselines.mice import MiceModel
from benchmarks.baselines.moco import MocoModel
from benchmarks.baselines.ncp import NcpConfig, NcpModel
from benchmarks.baselines.set_transformer import ActStConfig, ActStModel, SetTransformerConfig, SetTransformerModel
from benchmarks.baselines.swav import SwavModel
from coterie.amortized.abc.config import AttentionBasedConfig
from coterie.amortized.abc.network import AttentionBasedModel
from coterie.amortized.amcp.config import AmcpConfig
from coterie.amortized.amcp.network import AmcpModel
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel
from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.clam.model import ClamConfig, ClamModel
from coterie.config import from_dict, to_dict
from coterie.nn.model import ClusterModel, PointBatch, TaskBatch, ViewBatch, build, to_arrays, to_tensors
from coterie.ops.partitions import Clustering, normal_start
from coterie.tcc.model import TccModel
from coterie.training.loop import TrainConfig, train
from tests.conftest import MODELS


@dataclass(frozen=True, eq=False)
class Case:
    """A small model, a batch to train it on, and points to cluster."""

    build: Callable[[], ClusterModel[Any]]
    batch: Any
    points: Tensor
    steps: int = 3
    learning_rate: float = 1.0


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


def _sets() -> TaskBatch:
    """Two sets of 40 and 25 points, in three groups and in two; the second is padded with arbitrary values."""
    labels = torch.stack([torch.arange(40) * 7 % 20 // 9, (torch.arange(40) % 5 > 2).long()])
    labels[0, :4] = 2
    centres = torch.tensor([[0.0, 0.0], [4.0, 1.0], [-3.0, 4.0]])
    x = centres[labels] + 0.4 * torch.randn(2, 40, 2, generator=seeded(1))
    valid = torch.ones((2, 40), dtype=torch.bool)
    valid[1, 25:] = False
    return TaskBatch(x.masked_fill(~valid.unsqueeze(2), 1e3), labels.masked_fill(~valid, -1), valid)


def _set_model(kind: type[ClusterModel[Any]], config: Any) -> Case:
    batch = _sets()
    return Case(lambda: build(kind, config, seeded(2)), batch, batch.x[0], steps=25, learning_rate=1e-2)


SMALL: dict[str, Any] = {"width": 16, "heads": 2, "inducing": 4, "depth": 1}


def _dac(**settings: Any) -> Case:
    return _set_model(DacModel, DacConfig(2, **(SMALL | {"mask_depth": 1, "context_width": 8} | settings)))


def _amcp(**settings: Any) -> Case:
    small = {"width": 8, "hidden": 16, "depth": 1, "em_steps": 2, "context_width": 8}
    return _set_model(AmcpModel, AmcpConfig(2, **(small | settings)))


def _attention_based(**settings: Any) -> Case:
    return _set_model(
        AttentionBasedModel, AttentionBasedConfig(2, **({"width": 16, "heads": 2, "depth": 1} | settings))
    )


SMALL_ENCODER: dict[str, Any] = {"encoder": "mlp", "channels": 4, "projection_hidden": 8, "embedding_dim": 8}


def _of_views(kind: type[ClusterModel[Any]], **settings: Any) -> Case:
    config = kind.Config(4, 3, **(SMALL_ENCODER | settings))
    x, noise = _points(), 0.1 * torch.randn(24, 4, generator=seeded(6))
    batch = ViewBatch(x, x + noise, torch.arange(24))
    return Case(lambda: build(kind, config, seeded(2)), batch, x, steps=5, learning_rate=1e-2)


def _tcc(**settings: Any) -> Case:
    return _of_views(TccModel, **({"queue_size": 16, "cluster_queue_size": 2} | settings))


CASES: dict[tuple[str, str], Case] = {
    ("act-st", "default"): _set_model(ActStModel, ActStConfig(2, most_clusters=5, decoder_depth=1, **SMALL)),
    ("amcp", "default"): _amcp(),
    ("amcp", "transport"): _amcp(e_step="transport", sinkhorn_steps=4),
    ("amcp", "anchored"): _amcp(filtering="anchored", prefixes_per_set=2, kernel="linear"),
    ("amcp", "flow"): _amcp(density="flow", kernel="neural"),
    ("amcp", "no density"): _amcp(density="none", min_cluster_size=3),
    ("amcp", "previous updated"): _amcp(update_previous=True, decoding="faithful"),
    ("amcp", "faithful"): _amcp(
        e_step="transport", sinkhorn_steps=4, references="decoded", prefixes_per_set=0, decoding="faithful", em_steps=1
    ),
    ("amcp", "subsampled"): _amcp(max_points=8),
    ("amcp", "leftovers"): _amcp(leftover_fraction=0.3, density="none", decoding="faithful"),
    ("amcp", "encoded"): _amcp(encoder="mlp", channels=4, filtering="anchored", density="none"),
    ("amcp", "principal axes"): _amcp(n_principal_axes=2, density="none"),
    ("amcp", "principal axes and features"): _amcp(n_principal_axes=2, keep_features=True, density="none"),
    ("attention-based", "default"): _attention_based(),
    ("attention-based", "additive"): _attention_based(compatibility="additive", symmetrise="probability"),
    ("attention-based", "faithful"): _attention_based(
        scale="model", feed_forward="linear", offset=False, pos_weight=2.0, decoding="eigengap"
    ),
    ("attention-based", "contraction"): _attention_based(decoding="contraction", residual="gated"),
    ("attention-based", "pairwise"): _attention_based(depth=0, compatibility="additive"),
    ("attention-based", "encoded"): _attention_based(encoder="mlp", channels=4, n_clusters=2),
    ("attention-based", "subsampled"): _attention_based(max_points=8),
    ("cc", "default"): _of_views(CcModel),
    ("cc", "linear heads"): _of_views(CcModel, projection_hidden=0),
    ("clam", "euclidean"): _clam(weighting="learned"),
    ("clam", "cosine"): _clam(metric="cosine", weighting="learned"),
    ("clam", "manhattan"): _clam(metric="manhattan"),
    ("clam", "mahalanobis"): _clam(metric="mahalanobis"),
    ("clam", "unmasked"): _clam(objective="unmasked"),
    ("clam", "legacy"): _clam(legacy_mask=True, plateau=True, rows_per_mask=1),
    ("dac", "gaussian"): _dac(),
    ("dac", "flow"): _dac(density="flow"),
    ("dac", "statistician"): _dac(density="statistician"),
    ("dac", "no density"): _dac(density="none"),
    ("dac", "anchored input"): _dac(filtering="anchored", anchor_position="input", density="none"),
    ("dac", "anchored latent"): _dac(filtering="anchored", anchor_position="latent"),
    ("dac", "compared input"): _dac(filtering="anchored", anchoring="compared", anchors=2, density="none"),
    ("dac", "kernel"): _dac(
        filtering="anchored",
        anchor_position="latent",
        anchoring="compared",
        anchors=3,
        density="none",
        decoding="kernel",
    ),
    ("dac", "faithful"): _dac(tie_blocks=True, layer_norm=False, scale="model", decoding="faithful", depth=2),
    ("dac", "faithful and anchored"): _dac(filtering="anchored", decoding="faithful"),
    ("dac", "subsampled"): _dac(max_points=8),
    ("dac", "encoded"): _dac(encoder="mlp", channels=4, filtering="anchored", density="none"),
    ("dac", "encoded statistician"): _dac(encoder="mlp", channels=4, density="statistician"),
    ("dac", "principal axes"): _dac(n_principal_axes=2, filtering="anchored", density="none"),
    ("dac", "principal axes and features"): _dac(
        n_principal_axes=2, keep_features=True, filtering="anchored", density="none"
    ),
    ("mice", "default"): _of_views(MiceModel, queue_size=16),
    ("mice", "refreshed"): _of_views(MiceModel, queue_size=16, refreshed_every=2, gate_temperature=0.5),
    ("moco", "default"): _of_views(MocoModel, queue_size=16),
    ("moco", "linear projection"): _of_views(MocoModel, queue_size=16, projection_hidden=0),
    ("ncp", "default"): _set_model(NcpModel, NcpConfig(2, width=16, depth=1, n_samples=3)),
    ("ncp", "encoded"): _set_model(NcpModel, NcpConfig(2, encoder="mlp", channels=4, width=16, depth=1, n_samples=3)),
    ("swav", "default"): _of_views(SwavModel, frozen_steps=0),
    ("swav", "linear projection"): _of_views(SwavModel, frozen_steps=0, projection_hidden=0),
    ("tcc", "default"): _tcc(),
    ("tcc", "faithful"): _tcc(
        projection_hidden=0,
        assignment_temperature=1.0,
        temperature=1.0,
        cluster_temperature=1.0,
        balance="per_sample",
        sinkhorn_weight=0.0,
    ),
    ("tcc", "gumbel"): _tcc(aggregation="gumbel", cluster_noise=0.0),
    ("tcc", "without x"): _tcc(condition_on_x=False),
    ("set-transformer", "default"): _set_model(
        SetTransformerModel, SetTransformerConfig(2, 3, decoder_depth=1, **SMALL)
    ),
}


@pytest.fixture(params=CASES.values(), ids=[" ".join(key) for key in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def learn(case: Case) -> ClusterModel[Any]:
    model = case.build()
    config = TrainConfig(case.steps, learning_rate=case.learning_rate)
    train(model, [case.batch] * case.steps, config, generator=seeded(3))
    return model


learned = cache(learn)
"""Cached, for all laws that do not change the model."""


@cache
def clustering_of_points(case: Case) -> Clustering:
    """Cluster the points of the case, cached."""
    return learned(case).cluster(case.points, seeded(4))


WITHOUT_EFFECT = ("show_anchor.key.", "show_cluster.key.")
"""Parameters of attention to a single key, whose weight is one whatever they are."""


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
            if name.startswith(WITHOUT_EFFECT):
                assert value.grad.abs().max() < 1e-6, name
            else:
                assert value.grad.any(), name


def test_loss_and_its_terms_are_finite(case: Case) -> None:
    loss = case.build().loss(case.batch, seeded(3))
    assert loss.total.shape == ()
    assert torch.isfinite(loss.total)
    assert all(math.isfinite(part) for part in loss.parts.values())  # a loss with one term has none


def test_result_is_a_clustering(case: Case) -> None:
    clustering = clustering_of_points(case)
    assert clustering.labels.shape == (len(case.points),)
    assert clustering.labels.min() >= 0
    assert clustering.labels.max() < clustering.n_clusters
    if clustering.probabilities is not None:
        assert clustering.probabilities.shape == (len(case.points), clustering.n_clusters)
        torch.testing.assert_close(clustering.probabilities.sum(dim=1), torch.ones(len(case.points)))
        assert torch.equal(clustering.probabilities.argmax(dim=1), clustering.labels)


def test_permuting_points_permutes_labels(case: Case) -> None:
    order = torch.randperm(len(case.points), generator=seeded(5))
    assert torch.equal(
        learned(case).cluster(case.points[order], seeded(4)).labels, clustering_of_points(case).labels[order]
    )


@pytest.mark.usefixtures("untouched_random_state")
def test_same_seed_same_result(case: Case) -> None:
    first, second = learned(case), learn(case)
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name
    assert torch.equal(clustering_of_points(case).labels, second.cluster(case.points, seeded(4)).labels)


@pytest.mark.usefixtures("untouched_random_state")
def test_building_a_model_leaves_global_random_states_alone(case: Case) -> None:
    case.build()


def test_clustering_changes_no_parameter(case: Case) -> None:
    model = learned(case)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.cluster(case.points, seeded(4))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_saved_and_loaded_models_are_equal(case: Case, tmp_path: Path) -> None:
    model = learned(case)
    config: Any = model.config
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, to_arrays(model.state_dict()), {"config": to_dict(config)}, force=False)
    arrays, card = load_checkpoint(path)
    loaded = type(model)(from_dict(model.Config, card["config"]))
    loaded.load_state_dict(to_tensors(arrays))
    first, second = clustering_of_points(case), loaded.cluster(case.points, seeded(4))
    assert torch.equal(first.labels, second.labels)
    assert first.n_clusters == second.n_clusters
    if first.probabilities is not None and second.probabilities is not None:
        assert torch.equal(first.probabilities, second.probabilities)
