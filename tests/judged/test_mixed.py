"""Mixtures for tables of numbers and categories, and the assignment rule that belongs to them."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from coterie.judged import assign as assign_module
from coterie.judged.assign import Assigner, assign
from coterie.judged.candidates.mixed import LevelIndicators, mixed_mixture
from coterie.judged.candidates.registry import Candidate, generate_candidates, order_by_size
from coterie.judged.space import Floats, Geometry, Labels, Space


def latent_classes(n: int = 600, seed: int = 0, *, numbers: bool = True) -> tuple[Floats, Labels]:
    """Two classes that differ a little in each of several columns, and one junk category of three levels."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % 2
    answers = rng.random((n, 7)) < np.where(truth, 0.9, 0.1)[:, None]
    blocks = [answers.astype(np.float64), np.eye(3)[rng.integers(3, size=n)]]
    if numbers:
        blocks.insert(0, rng.normal(size=(n, 2)) + 2.0 * truth[:, None])
    return np.hstack(blocks), truth


@pytest.mark.parametrize("numbers", [False, True])
def test_latent_classes_are_recovered_beside_a_junk_category(numbers: bool) -> None:
    x, truth = latent_classes(numbers=numbers)
    space = Space(x)
    assert space.discrete.sum() == 8
    (labels,) = mixed_mixture(space.reference, [2], steps=40)
    assert adjusted_rand_score(truth, labels) > 0.9


def test_without_discrete_columns_there_is_nothing_to_do() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    assert list(mixed_mixture(Geometry(rows), [2, 3], steps=5)) == []
    assert "mixed mixture" not in {each.algorithm for each in generate_candidates(rows, effort="fast", seed=0)}


def test_more_clusters_than_the_rows_support_are_left_out() -> None:
    space = Space(latent_classes(40)[0])
    found = list(mixed_mixture(space.reference, [2, 30], steps=5))
    assert len(found) == 1


def test_mixtures_are_among_the_candidates_of_mixed_tables() -> None:
    x, truth = latent_classes(400)
    found = [each for each in generate_candidates(x, effort="fast", seed=0) if each.algorithm == "mixed mixture"]
    assert found
    assert {each.rule for each in found} == {"mixture"}
    assert max(adjusted_rand_score(truth, each.labels) for each in found) > 0.7


@pytest.mark.parametrize("numbers", [False, True])
def test_the_rule_reproduces_the_labels_and_survives_saving(numbers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x, _ = latent_classes(numbers=numbers)
    space = Space(x)
    labels, k = order_by_size(next(iter(mixed_mixture(space.reference, [2], steps=200))))
    assigner = Assigner.fit(space, Candidate(labels, k, "mixed mixture", space.views[0].name, "mixture"))
    assert assigner.rule == "mixture"
    memberships, found = assign(x, assigner, None, np.arange(k))
    np.testing.assert_allclose(memberships.sum(axis=1), 1.0, rtol=1e-5)
    assert (found == labels).mean() > 0.99
    new, expected = latent_classes(seed=1, numbers=numbers)
    assert adjusted_rand_score(expected, assign(new, assigner, None, np.arange(k))[1]) > 0.85
    again = Assigner.from_arrays(*assigner.to_arrays())
    np.testing.assert_array_equal(again.memberships(new), assigner.memberships(new))
    whole = assigner.memberships(x)
    monkeypatch.setattr(assign_module, "_CELLS_AT_ONCE", 1000)
    np.testing.assert_allclose(assigner.memberships(x), whole, atol=1e-12)


def test_new_rows_have_the_nearest_known_level() -> None:
    rows = np.hstack([np.eye(3)[np.arange(30) % 3], (np.arange(30) % 5)[:, None], np.linspace(0, 1, 30)[:, None]])
    levels = LevelIndicators.fit(Geometry(rows, (np.array([0, 1, 2]), np.array([3]))))
    assert levels.continuous.tolist() == [4]
    indicators = levels.transform(rows)
    assert indicators.shape == (30, 8)
    np.testing.assert_array_equal(indicators.sum(axis=1), 2.0)
    np.testing.assert_array_equal(indicators[:, 3:], np.eye(5)[np.arange(30) % 5])
    codes = indicators[:, :3].argmax(axis=1)
    assert len(set(zip(codes.tolist(), (np.arange(30) % 3).tolist(), strict=True))) == 3
    unseen = np.array([[0.9, 0.2, 0.0, 7.0, 0.5], [0.0, 0.0, 0.0, -3.0, 0.5], [0.4, 0.4, 0.5, 2.4, 99.0]])
    found = levels.transform(unseen)
    np.testing.assert_array_equal(found.sum(axis=1), 2.0)
    assert found[:, 3:].argmax(axis=1).tolist() == [4, 0, 2]
    assert found[0, :3].tolist() == indicators[0, :3].tolist()
    assert found[2, :3].tolist() == indicators[2, :3].tolist()


def test_far_and_unseen_rows_have_valid_memberships() -> None:
    x, truth = latent_classes(200)
    space = Space(x)
    assigner = Assigner.fit(space, Candidate(truth, 2, "mixed mixture", space.views[0].name, "mixture"))
    strange = np.concatenate([1e6 * x, -1e300 * x, 0.0 * x, x + 0.3])
    memberships = assigner.memberships(strange)
    assert np.isfinite(memberships).all()
    np.testing.assert_allclose(memberships.sum(axis=1), 1.0)
