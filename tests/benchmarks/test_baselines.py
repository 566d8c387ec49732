"""The benchmark suite's own code: records, DEC, and the classical baselines against the published table."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.baselines import dec
from benchmarks.quality import baselines, clam_baselines, clam_data
from benchmarks.quality.records import Experiment, LabelledTable, Labels, Results, best_record, read_records
from coterie.errors import InputError

needs_data = pytest.mark.skipif(
    not os.environ.get("COTERIE_DATA"), reason="COTERIE_DATA is not set: the ClAM paper's data are not shipped"
)


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


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_target_is_sharper_where_clusters_have_equal_size(seed: int) -> None:
    row = dec.soft_assignment(*random_tensors(seed))[0, 0]
    # All rotations of one row: every cluster then has the same soft size.
    q = torch.stack([row.roll(shift) for shift in range(4)])[None]
    p = dec.target_distribution(q)
    assert torch.special.entr(p).sum() <= torch.special.entr(q).sum() + 1e-12


@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
def test_gradient_of_the_centres_is_the_closed_form(alpha: float) -> None:
    z, centres = random_tensors(0)
    centres.requires_grad_()
    q = dec.soft_assignment(z, centres, alpha)
    p = dec.target_distribution(q).detach()
    (gradient,) = torch.autograd.grad(dec.divergence(p, q).sum() * len(z), centres)
    pull = dec.student_kernel(z, centres, alpha) * (p - q)
    offsets = z[None, :, None] - centres[:, None]
    expected = -(alpha + 1) / alpha * (pull[..., None] * offsets).sum(dim=1)
    torch.testing.assert_close(gradient, expected)


def test_student_kernel_by_hand() -> None:
    z = torch.tensor([[0.0, 0.0]])
    centres = torch.tensor([[[3.0, 4.0], [0.0, 0.0]]])
    torch.testing.assert_close(dec.student_kernel(z, centres), torch.tensor([[[1 / 26, 1.0]]]))


def test_restarts_do_not_see_each_other() -> None:
    z = torch.from_numpy(three_blobs().X)
    starts = torch.stack([dec.random_centres(3, 2, seed) for seed in range(3)])
    config = dec.DecConfig(update_interval=10, max_iter=60)
    together = dec.train(z, starts, config)
    alone = torch.cat([dec.train(z, start[None], config) for start in starts])
    assert torch.equal(together, alone)


def test_dec_keeps_a_partition_that_is_right(tmp_path: Path) -> None:
    table = three_blobs()
    results = Results(tmp_path / "runs.jsonl", "test")
    results.run(table, baselines.kmeans(table, n_init=5))
    for experiment in dec.dec(table, lambda: results.best_labels("blobs", "kmeans"), max_iter=50):
        (record,) = results.run(table, experiment)
        assert record.metrics["ari"] == 1.0


def constant(labels: Labels, calls: list[int]) -> Experiment:
    def fit(seeds: object) -> list[Labels]:
        assert isinstance(seeds, list)
        calls.extend(seeds)
        return [labels for _ in seeds]

    return Experiment("constant", {"clusters": len(np.unique(labels))}, fit, seeds=(0, 1))


def test_a_recorded_run_is_not_run_again(tmp_path: Path) -> None:
    table, calls, path = three_blobs(), list[int](), tmp_path / "runs.jsonl"
    first = Results(path, "test").run(table, constant(table.y, calls))
    assert [record.seed for record in first] == calls == [0, 1]
    assert Results(path, "test").run(table, constant(table.y, calls)) == []
    assert calls == [0, 1]
    Results(path, "another").run(table, constant(table.y, calls))
    assert calls == [0, 1, 0, 1]
    assert read_records(path)[:2] == first


def test_best_fills_all_clusters_before_it_has_the_best_silhouette(tmp_path: Path) -> None:
    table = three_blobs()
    results = Results(tmp_path / "runs.jsonl", "test")
    one_outlier = np.where(np.arange(90) == 0, 2, table.y // 2)
    results.run(table, constant(one_outlier, []))
    results.run(table, constant(table.y // 2, []))
    records = read_records(results.path)
    strict = best_record(records, "blobs", "constant")
    loose = best_record(records, "blobs", "constant", by_silhouette_alone=True)
    assert strict is not None
    assert loose is not None
    assert (strict.metrics["n_clusters"], loose.metrics["n_clusters"]) == (3, 2)
    np.testing.assert_array_equal(results.best_labels("blobs", "constant"), one_outlier)


def test_single_cluster_has_no_silhouette_and_never_wins(tmp_path: Path) -> None:
    table = three_blobs()
    results = Results(tmp_path / "runs.jsonl", "test")
    (record, _) = results.run(table, constant(np.zeros(90, dtype=int), []))
    assert record.metrics["silhouette"] is None
    assert record.rank == (False, -1.0)


def test_breakdown_of_linear_algebra_is_recorded(tmp_path: Path) -> None:
    def fit(_: object) -> list[Labels]:
        raise np.linalg.LinAlgError("SVD did not converge")

    table = three_blobs()
    results = Results(tmp_path / "runs.jsonl", "test")
    (record,) = results.run(table, Experiment("broken", {}, fit))
    assert (record.note, record.metrics) == ("failed: SVD did not converge", {})
    assert best_record(read_records(results.path), "blobs", "broken") is None


def test_damaged_results_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"suite": "te', encoding="utf-8")
    with pytest.raises(InputError, match=r"runs\.jsonl, line 1"):
        read_records(path)


def test_inertia_is_that_of_kmeans() -> None:
    table = three_blobs()
    (labels,) = baselines.kmeans(table, n_init=3).fit([0])
    means = np.stack([table.X[labels == label].mean(axis=0) for label in range(3)])
    assert table.inertia(labels) == pytest.approx(np.square(table.X - means[labels]).sum())


def test_silhouette_of_many_rows_is_sampled_and_says_so() -> None:
    X = np.random.default_rng(0).normal(size=(10_001, 1))
    table = LabelledTable("long", X, np.zeros(10_001, dtype=int), n_clusters=2)
    assert len(table.silhouette_rows) == 10_000
    assert table.silhouette_settings() == {"silhouette_rows": 10_000, "silhouette_seed": 0}


def test_published_tables_cover_the_data_and_the_methods() -> None:
    printed = clam_data.published()
    for table in ("silhouette", "nmi", "ari"):
        for name in set(clam_data.NAMES) - {"fmnist-10k"}:
            assert printed[table][name].keys() >= set(clam_baselines.METHODS)


@pytest.mark.parametrize("options", [["--data", "moon"], ["--methods", "magic", "--data", "zoo"]])
def test_unknown_names_are_refused(options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert clam_baselines.main([*options, "--out", str(tmp_path / "runs.jsonl")]) == 2
    assert "error: " in capsys.readouterr().err


@needs_data
@pytest.mark.parametrize("name", ["zoo", "ecoli"])
@pytest.mark.parametrize("method", ["kmeans", "agglomerative"])
def test_silhouette_is_the_published_one(name: str, method: str, tmp_path: Path) -> None:
    table = clam_data.load(name)
    results = Results(tmp_path / "runs.jsonl", "test")
    grid = [baselines.kmeans(table, n_init=100)] if method == "kmeans" else baselines.agglomerative(table)
    for experiment in grid:
        results.run(table, experiment)
    best = best_record(read_records(results.path), name, method)
    assert best is not None
    assert best.metrics["silhouette"] == pytest.approx(clam_data.published()["silhouette"][name][method], abs=0.002)


@needs_data
def test_constant_column_is_left_at_zero() -> None:
    X = clam_data.load("segment").X
    assert (np.ptp(X, axis=0) == 0).sum() == 1
    assert np.isfinite(X).all()
    assert np.abs(X.mean(axis=0)).max() < 1e-6
