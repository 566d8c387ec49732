"""Assignment of new rows to clusters; outliers."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from coterie.errors import InputError
from coterie.judged import assign as assign_module
from coterie.judged.assign import Assigner, Outliers, assign
from coterie.judged.candidates.kmeans import cluster_means
from coterie.judged.candidates.registry import Candidate, order_by_size
from coterie.judged.space import Floats, Geometry, Labels
from coterie.judged.views import View
from tests.judged.sets import blobs, candidate, rings, slanted

# Mixtures need discrete columns (test_mixed.py), and similar rows are for directions (test_cosine.py).
RULES = tuple(rule for rule in Assigner.RULES if rule not in {"mixture", "similar rows"})


def fit(rule: str, x: Floats, labels: Labels) -> Assigner:
    """Fit a rule to the rows as they are."""
    none, ones = np.empty((0, x.shape[1])), np.ones(x.shape[1])
    identity = View("raw", 0.0 * ones, ones, np.array(np.inf), none, none, ones, none.T)
    return Assigner.fit_rule(identity, rule, Geometry(x), labels)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("d", [1, 3, 30])
def test_memberships_reproduce_clusters_that_lie_apart(rule: str, d: int) -> None:
    x, truth = blobs(d=d, k=2 if d == 1 else 4)
    new, expected = blobs(d=d, k=2 if d == 1 else 4, seed=1)
    assigner = fit(rule, x, truth)
    for rows, labels in ((x, truth), (new, expected)):
        memberships = assigner.memberships(rows)
        assert memberships.shape == (len(rows), assigner.n_clusters)
        assert np.allclose(memberships.sum(axis=1), 1.0)
        assert (memberships >= 0).all()
        assert (memberships.argmax(axis=1) == labels).all()


def test_gaussians_ignore_sizes_and_fit_elongated_clusters() -> None:
    x = np.random.default_rng(0).normal(size=(300, 3))
    labels = order_by_size((x[:, 0] > 1).astype(np.int64) + (x[:, 1] > 1.5))[0]
    nearest = cdist(x, cluster_means(x, labels)).argmin(axis=1)
    assert (fit("centres", x, labels).memberships(x).argmax(axis=1) == nearest).all()
    x, truth = slanted()
    agreement = {rule: (fit(rule, x, truth).memberships(x).argmax(axis=1) == truth).mean() for rule in RULES}
    assert agreement["gaussians"] > 0.99
    assert agreement["centres"] < 0.9


def test_neighbours_find_rings_and_training_rows_keep_their_cluster() -> None:
    x, truth = rings()
    new, expected = rings(seed=1)
    assigner = fit("neighbours", x, truth)
    assert (assigner.memberships(x).argmax(axis=1) == truth).all()
    assert (assigner.memberships(new).argmax(axis=1) == expected).all()
    noise = np.arange(len(x)) % 2  # even where all neighbours disagree
    assert (fit("neighbours", x, noise).memberships(x).argmax(axis=1) == noise).mean() > 0.95


@pytest.mark.parametrize("rule", RULES)
def test_memberships_change_gradually_between_clusters(rule: str) -> None:
    x, truth = blobs(d=2, k=2, spread=1.0)
    memberships = fit(rule, x, truth).memberships(np.stack([np.linspace(0, 6, 101), np.zeros(101)], axis=1))
    assert memberships[0, 0] > 0.95
    assert memberships[-1, 1] > 0.95
    assert ((memberships[:, 0] > 0.1) & (memberships[:, 0] < 0.9)).any()


@pytest.mark.parametrize("rule", RULES)
def test_equal_rows_have_equal_memberships_and_blocks_do_not_matter(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, truth = blobs(n=90, spread=2.0)
    assigner = fit(rule, x, truth)
    twice = np.concatenate([x, x])
    whole = assigner.memberships(twice)
    assert np.allclose(whole[: len(x)], whole[len(x) :], rtol=0, atol=1e-12)
    monkeypatch.setattr(assign_module, "_CELLS_AT_ONCE", 100)
    assert np.allclose(assigner.memberships(twice), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_scale_does_not_matter(rule: str) -> None:
    x, truth = blobs(n=90, spread=2.0)
    before = fit(rule, x, truth).memberships(x)
    assert np.allclose(before, fit(rule, 1e-4 * x, truth).memberships(1e-4 * x))


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_keeps_the_clusters_and_survives_saving(rule: str) -> None:
    x, truth = blobs(n=120)
    assigner = Assigner.fit(x, Candidate(truth, 4, "k-means", "standardised", rule))
    assert assigner.rule == rule
    memberships, labels = assign(x, assigner, None, np.arange(4))
    np.testing.assert_array_equal(labels, truth)
    again = Assigner.from_arrays(*assigner.to_arrays())
    np.testing.assert_array_equal(assign(x, again, None, np.arange(4))[0], memberships)


def test_neighbours_replace_a_rule_by_which_a_cluster_loses_all_rows() -> None:
    x = np.array([[-1.0], [1.0], [-1.1], [1.1], [-0.01], [0.01]])
    labels = np.array([0, 0, 0, 0, 1, 1])  # both clusters have the same mean
    assigner = Assigner.fit(x, Candidate(labels, 2, "k-means", "standardised", "centres"))
    assert assigner.rule == "neighbours"
    np.testing.assert_array_equal(assign(x, assigner, None, np.arange(2))[1], labels)


def test_means_of_few_rows_move_to_those_of_many() -> None:
    rng = np.random.default_rng(0)
    centres = 2.5 * rng.normal(size=(20, 4))
    many = centres[np.arange(4000) % 20] + rng.normal(size=(4000, 4))
    few = fit("centres", many[:100], np.arange(100) % 20)
    moved = few.move_centres(many)
    before, after = (cdist(centres, each.arrays["means"]).min(axis=1).mean() for each in (few, moved))
    assert after < 0.6 * before
    assert moved.n_clusters == 20


def test_other_rules_and_lost_clusters_do_not_move() -> None:
    x, truth = blobs(n=90)
    gaussians = fit("gaussians", x, truth)
    assert gaussians.move_centres(x) is gaussians
    centres = fit("centres", x, truth)
    assert centres.move_centres(x[truth == 0]) is centres  # no row is in the others


def test_a_cluster_of_outliers_alone_is_dissolved_if_allowed() -> None:
    x, truth = blobs(120)
    x, labels = np.concatenate([x, [[90.0, 90.0, 90.0]]]), np.append(truth, 4)
    assigner = Assigner.fit(x, candidate(labels))
    rows = assigner.view.transform(x)
    assert Outliers.fit(assigner, x, dissolve=True).find(rows, labels)[-1]
    assert not Outliers.fit(assigner, x).find(rows, labels)[-1]
    memberships, found = assign(x, assigner, Outliers.fit(assigner, x, dissolve=True), np.arange(4))
    assert found[-1] == -1
    np.testing.assert_allclose(memberships.sum(axis=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("x", "labels"),
    [
        pytest.param([[0.0], [1.0]], [0, 1], id="two rows"),
        pytest.param([[0.0, 0.0]] * 3 + [[1.0, 0.0]] * 2, [0, 0, 0, 1, 1], id="copies"),
        pytest.param([[1.0], [1.0], [1.0]], [0, 0, 1], id="all equal"),
        pytest.param([[1.0, 2.0]], [0], id="one row"),
    ],
)
def test_unusual_rows_have_valid_memberships(rule: str, x: list[list[float]], labels: list[int]) -> None:
    rows, truth = np.array(x), np.array(labels)
    memberships = fit(rule, rows, truth).memberships(np.concatenate([rows, rows + 1e6]))
    assert np.isfinite(memberships).all()
    assert np.allclose(memberships.sum(axis=1), 1.0)
    if len(np.unique(rows, axis=0)) > 1:
        assert (memberships[: len(rows)].argmax(axis=1) == truth).all()


def test_labels_with_gaps_and_unknown_rules_are_rejected() -> None:
    with pytest.raises(InputError, match="labels have 2 distinct values from 0 to 2; expected 0 to 1"):
        fit("centres", np.zeros((2, 1)), np.array([0, 2]))
    with pytest.raises(
        InputError, match=r"no assignment rule 'oracle'\. Use one of: centres, gaussians, mixture, neighbours"
    ):
        fit("oracle", np.zeros((2, 1)), np.array([0, 1]))
