"""Levels: which candidates nest, how rows reach a level, and levels of saved models."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from coterie import Coterie
from coterie.errors import InputError
from coterie.judged.levels import NEARLY_AS_GOOD
from coterie.judged.space import Labels, Singles


def topics(n: int = 600, seed: int = 0) -> tuple[Singles, Labels, Labels]:
    """Unit vectors of 4 topics with 3 sub-topics each."""
    rng = np.random.default_rng(seed)
    fine = np.arange(n) % 12
    centres = rng.normal(size=(4, 64))[np.arange(12) // 3] + 0.45 * rng.normal(size=(12, 64))
    x = centres[fine] + 0.25 * rng.normal(size=(n, 64))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), fine // 3, fine


@pytest.fixture(scope="module")
def rows() -> Singles:
    return topics()[0]


@pytest.fixture(scope="module")
def fitted(rows: Singles) -> Coterie:
    return Coterie(random_state=0).fit(rows)


def test_levels_nest_row_by_row_and_parents_say_how(fitted: Coterie, rows: Singles) -> None:
    parents = {level["n_clusters"]: level["parents"] for level in fitted.levels_ if level["parents"] is not None}
    assert fitted.n_clusters_ in parents
    assert len(parents) >= 4
    for coarse, fine in pairwise(sorted(parents)):
        labels, finer = fitted.alternative(coarse, rows), fitted.alternative(fine, rows)
        assert sorted(set(parents[fine])) == list(range(coarse))
        np.testing.assert_array_equal(np.array(parents[fine])[finer], labels)


def test_levels_also_nest_for_rows_that_were_not_clustered(fitted: Coterie) -> None:
    new = topics(200, seed=0)[0] + np.float32(0.02)
    numbers = sorted(level["n_clusters"] for level in fitted.levels_ if level["parents"] is not None)
    for coarse, fine in pairwise(numbers):
        pairs = zip(fitted.alternative(coarse, new).tolist(), fitted.alternative(fine, new).tolist(), strict=True)
        by_fine: dict[int, set[int]] = {}
        for parent, child in pairs:
            by_fine.setdefault(child, set()).add(parent)
        assert all(len(each) == 1 for each in by_fine.values())


def test_the_level_of_the_result_is_the_result(fitted: Coterie, rows: Singles) -> None:
    np.testing.assert_array_equal(fitted.alternative(fitted.n_clusters_, rows), fitted.labels_)


def test_levels_are_nearly_the_best_of_their_number(fitted: Coterie) -> None:
    for level in fitted.levels_:
        best = max(each["score"] for each in fitted.candidates_ if each["n_clusters"] == level["n_clusters"])
        assert best - NEARLY_AS_GOOD <= level["score"] <= best


def test_topics_and_sub_topics_are_levels(fitted: Coterie, rows: Singles) -> None:
    _, coarse, fine = topics()
    nested = {level["n_clusters"] for level in fitted.levels_ if level["parents"] is not None}
    for truth in (coarse, fine):
        number = len(np.unique(truth))
        assert number in nested or number == min(level["n_clusters"] for level in fitted.levels_)
        assert adjusted_rand_score(truth, fitted.alternative(number, rows)) > 0.9


def test_a_saved_model_has_its_levels(fitted: Coterie, rows: Singles, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.safetensors")
    loaded = Coterie.load(tmp_path / "model.safetensors")
    assert loaded.levels_ == fitted.levels_
    new = rows[:50] + np.float32(0.01)
    for level in fitted.levels_:
        if level["parents"] is not None:
            np.testing.assert_array_equal(
                loaded.alternative(level["n_clusters"], new), fitted.alternative(level["n_clusters"], new)
            )
    with pytest.raises(InputError, match=r"this model has the levels .* Choose one of these, or fit it again"):
        loaded.alternative(499, rows)


def test_levels_follow_the_order_of_clusters_that_are_kept(rows: Singles) -> None:
    model = Coterie(effort="fast", keep_ids=True, random_state=0).fit(rows)
    model.fit(rows[100:])  # clusters keep their numbers, so that they are not ordered by size
    parents = {level["n_clusters"]: level["parents"] for level in model.levels_ if level["parents"] is not None}
    own, finer = model.n_clusters_, min(number for number in parents if number > model.n_clusters_)
    labels = model.predict(rows)
    np.testing.assert_array_equal(np.array(parents[finer])[model.alternative(finer, rows)], labels)
    coarse = model.alternative(len(set(parents[own])), rows)
    np.testing.assert_array_equal(np.array(parents[own])[labels], coarse)


def test_outliers_stay_outliers_at_every_level() -> None:
    x, _, _ = topics()
    far = np.random.default_rng(3).normal(size=(3, 64))
    x = np.vstack([x, far / np.linalg.norm(far, axis=1, keepdims=True)]).astype(np.float32)
    model = Coterie(effort="fast", noise=True, random_state=0).fit(x)
    outliers = model.labels_ == -1
    assert outliers[-3:].all()
    for level in model.levels_:
        if level["parents"] is not None:
            np.testing.assert_array_equal(model.alternative(level["n_clusters"], x) == -1, outliers)
