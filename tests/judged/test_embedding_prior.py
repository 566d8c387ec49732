"""Tasks of embeddings: parts of corpora, changed or not, synthetic groups, broad classes, and sets without clusters."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

from coterie.errors import ConfigError
from coterie.judged.features.table import column_names
from coterie.judged.prior.embeddings import EmbeddingPrior, load_corpus
from coterie.judged.prior.task import SyntheticTask
from coterie.judged.training import score_candidates

SEEDS = range(12)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A corpus of 12 classes of 40 rows, each class around a direction of its own."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 40) * 3  # numbers with gaps
    x = rng.normal(size=(12, 40))[y // 3] + 0.4 * rng.normal(size=(len(y), 40))
    np.savez(tmp_path / "topics.npz", X=x.astype(np.float16), y=y)
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    load_corpus.cache_clear()
    return "topics.npz"


def sample(prior: EmbeddingPrior, seed: int) -> SyntheticTask:
    return prior.sample_task(Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_synthetic_sets_are_finite_and_use_all_labels(seed: int) -> None:
    task = sample(EmbeddingPrior(min_points=60, max_points=400, max_clusters=40), seed)
    assert 60 <= len(task.x) <= 400 * 1.3  # classes have at least four rows
    assert task.x.shape[1] >= 64
    assert bool(task.x.isfinite().all())
    assert (torch.bincount(task.labels) > 0).all()


def test_the_same_seed_gives_the_same_set() -> None:
    first, second = (sample(EmbeddingPrior(max_points=300), 5) for _ in range(2))
    torch.testing.assert_close(first.x, second.x)
    torch.testing.assert_close(first.labels, second.labels)


def test_parts_of_a_corpus_keep_what_belongs_together(corpus: str) -> None:
    prior = EmbeddingPrior(min_points=60, max_points=300, corpora=(corpus,), synthetic=0.0, structureless=0.0)
    for seed in SEEDS:
        task = sample(prior, seed)
        assert task.kind == "corpus/topics"
        assert 2 <= task.n_clusters <= 12
        unit = torch.nn.functional.normalize(task.x, dim=1)
        means = torch.stack([unit[task.labels == label].mean(dim=0) for label in range(task.n_clusters)])
        nearest = torch.cdist(unit, means).argmin(dim=1)
        assert float((nearest == task.labels).double().mean()) > 0.7  # even where rows were blurred


def test_broad_classes_are_fewer(corpus: str) -> None:
    prior = EmbeddingPrior(
        min_points=100, max_points=300, corpora=(corpus,), synthetic=0.0, structureless=0.0, broad=1.0
    )
    merged = [sample(prior, seed) for seed in SEEDS]
    counts = [(task.n_clusters, task.description["merged"]) for task in merged if "merged" in task.description]
    assert counts
    assert all(2 <= broad < float(narrow) / 2 + 1 for broad, narrow in counts)


def test_sets_without_clusters_have_one_label(corpus: str) -> None:
    kinds = set()
    for seed in SEEDS:
        task = sample(EmbeddingPrior(min_points=50, max_points=200, corpora=(corpus,), structureless=1.0), seed)
        assert task.n_clusters == 1
        kinds.add(task.kind)
    assert "embedding/structureless" in kinds


def test_candidates_of_a_task_are_scored_by_the_features_of_embeddings() -> None:
    scored = score_candidates(sample(EmbeddingPrior(max_points=250), 0), "fast", 0, "cosine")
    assert scored is not None
    assert scored.columns.shape == (len(scored.score), len(column_names("cosine")))
    assert float(scored.score.max()) > 0.2


def test_what_is_missing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    with pytest.raises(ConfigError, match="the folder COTERIE_DATA, which is not set"):
        load_corpus("nothing.npz")
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match="There is no corpus"):
        load_corpus("nothing.npz")
    np.savez(tmp_path / "rows.npz", rows=np.zeros((3, 2)))
    with pytest.raises(ConfigError, match="has the arrays rows; a corpus needs X, Xq or images, and y"):
        load_corpus("rows.npz")
    with pytest.raises(ConfigError, match="min_points=500 must be at most max_points=400"):
        EmbeddingPrior(min_points=500, max_points=400)
