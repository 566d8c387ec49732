"""DEC's mathematics, and how runs on tables are measured and recorded."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.baselines import dec
from benchmarks.data.tables import LabelledTable
from benchmarks.lines import read_lines
from benchmarks.protocols.tables import Experiment, _keep_if_best, _measure, best_labels
from benchmarks.suite import load_suite
from coterie.errors import InputError


def random_tensors(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    centres = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    return z, centres


def three_blobs() -> LabelledTable:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 30)
    X = rng.normal(size=(90, 2)) + 12 * np.eye(3)[y][:, :2]
    return LabelledTable("blobs", X, y, n_clusters=3)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_memberships_and_targets_are_distributions(seed: int) -> None:
    q = dec.soft_assignment(*random_tensors(seed))
    p = dec.target_distribution(q)
    for memberships in (q, p):
        assert (memberships >= 0).all()
        torch.testing.assert_close(memberships.sum(-1), torch.ones(2, 20, dtype=torch.float64))


@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
def test_the_gradient_of_the_centres_is_the_closed_form(alpha: float) -> None:
    z, centres = random_tensors(0)
    centres.requires_grad_()
    q = dec.soft_assignment(z, centres, alpha)
    p = dec.target_distribution(q).detach()
    (gradient,) = torch.autograd.grad(dec.divergence(p, q).sum() * len(z), centres)
    pull = dec.student_kernel(z, centres, alpha) * (p - q)
    offsets = z[None, :, None] - centres[:, None]
    expected = -(alpha + 1) / alpha * (pull[..., None] * offsets).sum(dim=1)
    torch.testing.assert_close(gradient, expected)


def test_restarts_are_independent_and_keep_correct_partitions() -> None:
    z = torch.from_numpy(three_blobs().X)
    starts = torch.stack([dec.random_centres(3, 2, seed) for seed in range(3)])
    config = dec.DecConfig(update_interval=10, max_iter=60)
    together = dec.train(z, starts, config)
    alone = torch.cat([dec.train(z, start[None], config) for start in starts])
    assert torch.equal(together, alone)
    table = three_blobs()
    z = torch.from_numpy(table.X)
    labels = dec.train(z, dec.mean_centres(z, table.y)[None], dec.DecConfig(10, max_iter=50))[0]
    assert labels.tolist() == table.y.tolist()


def test_the_best_labels_fill_all_clusters_before_they_have_the_best_silhouette(tmp_path: Path) -> None:
    table, suite = three_blobs(), load_suite("clam_baselines", results=tmp_path / "results.jsonl")
    one_outlier = np.where(np.arange(90) == 0, 2, table.y // 2)
    for labels in (one_outlier, table.y // 2, np.zeros(90, dtype=int)):
        line = {"data": "blobs", "method": "kmeans", "k": 3, "metrics": table.metrics(labels)}
        _keep_if_best(suite, line, labels)
    np.testing.assert_array_equal(best_labels(suite, "blobs", "kmeans"), one_outlier)
    assert table.metrics(np.zeros(90, dtype=int))["silhouette"] is None
    with pytest.raises(InputError, match="no labels of dec"):
        best_labels(suite, "blobs", "dec")


def test_failures_of_linear_algebra_are_recorded_and_damaged_results_named(tmp_path: Path) -> None:
    def fit(_: object) -> list[np.ndarray]:
        raise np.linalg.LinAlgError("SVD did not converge")

    (line,) = _measure(load_suite("tables"), three_blobs(), Experiment({}, fit), [{"seed": 0}])
    assert line["note"] == "failed: SVD did not converge"
    path = tmp_path / "runs.jsonl"
    path.write_text('{"suite": "te', encoding="utf-8")
    with pytest.raises(InputError, match=r"runs\.jsonl, line 1"):
        read_lines(path)


def test_silhouettes_of_many_rows_are_sampled() -> None:
    X = np.random.default_rng(0).normal(size=(10_001, 1))
    table = LabelledTable("long", X, np.zeros(10_001, dtype=int), n_clusters=2)
    assert len(table.silhouette_rows) == 10_000
    assert table.silhouette_settings == {"silhouette_rows": 10_000, "silhouette_seed": 0}
