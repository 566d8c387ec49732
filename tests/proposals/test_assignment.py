"""How new rows are given to clusters."""

from typing import get_args

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from coterie.errors import InputError
from coterie.judged import assign as assignment
from coterie.judged.assign import Assignment
from coterie.judged.candidates.candidate import Rule, by_size
from coterie.judged.candidates.kmeans import cluster_means
from tests.proposals.sets import blobs, rings, slanted

KINDS: tuple[Rule, ...] = get_args(Rule)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 3, 30])
def test_memberships_reproduce_clusters_that_lie_apart(kind: Rule, d: int) -> None:
    x, truth = blobs(d=d, k=2 if d == 1 else 4)
    new, expected = blobs(d=d, k=2 if d == 1 else 4, seed=1)
    rule = Assignment.fit(kind, x, truth)
    for rows, labels in ((x, truth), (new, expected)):
        memberships = rule.memberships(rows)
        assert memberships.shape == (len(rows), rule.n_clusters)
        assert np.allclose(memberships.sum(axis=1), 1.0)
        assert (memberships >= 0).all()
        assert (memberships.argmax(axis=1) == labels).all()


def test_the_nearest_centre_is_the_likeliest_whatever_the_sizes() -> None:
    x = np.random.default_rng(0).normal(size=(300, 3))
    labels = by_size((x[:, 0] > 1).astype(np.int64) + (x[:, 1] > 1.5))[0]
    nearest = cdist(x, cluster_means(x, labels)).argmin(axis=1)
    assert (Assignment.fit("centres", x, labels).memberships(x).argmax(axis=1) == nearest).all()


def test_gaussians_have_shapes() -> None:
    x, truth = slanted()
    agreement = {kind: (Assignment.fit(kind, x, truth).memberships(x).argmax(axis=1) == truth).mean() for kind in KINDS}
    assert agreement["gaussians"] > 0.99
    assert agreement["centres"] < 0.9


def test_neighbours_follow_rings_and_rows_of_fit_keep_their_cluster() -> None:
    x, truth = rings()
    new, expected = rings(seed=1)
    rule = Assignment.fit("neighbours", x, truth)
    assert (rule.memberships(x).argmax(axis=1) == truth).all()
    assert (rule.memberships(new).argmax(axis=1) == expected).all()
    noise = np.arange(len(x)) % 2  # even where all neighbours disagree
    assert (Assignment.fit("neighbours", x, noise).memberships(x).argmax(axis=1) == noise).mean() > 0.95


@pytest.mark.parametrize("kind", KINDS)
def test_memberships_are_graded_between_clusters(kind: Rule) -> None:
    x, truth = blobs(d=2, k=2, spread=1.0)
    memberships = Assignment.fit(kind, x, truth).memberships(np.stack([np.linspace(0, 6, 101), np.zeros(101)], axis=1))
    assert memberships[0, 0] > 0.95
    assert memberships[-1, 1] > 0.95
    assert ((memberships[:, 0] > 0.1) & (memberships[:, 0] < 0.9)).any()


@pytest.mark.parametrize("kind", KINDS)
def test_equal_rows_have_equal_memberships_and_blocks_do_not_matter(
    kind: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, truth = blobs(n=90, spread=2.0)
    rule = Assignment.fit(kind, x, truth)
    twice = np.concatenate([x, x])
    whole = rule.memberships(twice)
    assert np.allclose(whole[: len(x)], whole[len(x) :], rtol=0, atol=1e-12)
    monkeypatch.setattr(assignment, "_CELLS_AT_ONCE", 100)
    assert np.allclose(rule.memberships(twice), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_scale_does_not_matter(kind: Rule) -> None:
    x, truth = blobs(n=90, spread=2.0)
    before = Assignment.fit(kind, x, truth).memberships(x)
    assert np.allclose(before, Assignment.fit(kind, 1e-4 * x, truth).memberships(1e-4 * x))


@pytest.mark.parametrize("kind", KINDS)
def test_rules_survive_saving(kind: Rule) -> None:
    x, truth = blobs(n=60)
    rule = Assignment.fit(kind, x, truth)
    again = Assignment.from_arrays(kind, rule.to_arrays())
    assert np.array_equal(again.memberships(x), rule.memberships(x))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("x", "labels"),
    [
        pytest.param([[0.0], [1.0]], [0, 1], id="two rows"),
        pytest.param([[0.0, 0.0]] * 3 + [[1.0, 0.0]] * 2, [0, 0, 0, 1, 1], id="copies"),
        pytest.param([[1.0], [1.0], [1.0]], [0, 0, 1], id="all equal"),
        pytest.param([[1.0, 2.0]], [0], id="one row"),
    ],
)
def test_odd_sets(kind: Rule, x: list[list[float]], labels: list[int]) -> None:
    rows, truth = np.array(x), np.array(labels)
    memberships = Assignment.fit(kind, rows, truth).memberships(np.concatenate([rows, rows + 1e6]))
    assert np.isfinite(memberships).all()
    assert np.allclose(memberships.sum(axis=1), 1.0)
    if len(np.unique(rows, axis=0)) > 1:
        assert (memberships[: len(rows)].argmax(axis=1) == truth).all()


def test_labels_with_gaps_are_refused() -> None:
    with pytest.raises(InputError, match="labels run from 0 to 2 with 2 distinct values, expected 0 to 1"):
        Assignment.fit("centres", np.zeros((2, 1)), np.array([0, 2]))
