"""Each algorithm finds what it is made for; all candidates together obey some laws."""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pytest
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import softmax
from scipy.stats import multivariate_normal
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import adjusted_rand_score

from coterie.judged.candidates import kmeans
from coterie.judged.candidates.graphs import (
    Dendrogram,
    density_modes,
    density_peaks,
    divisive_tree,
    genie,
    hdbscan,
    single_linkage,
    spectral,
)
from coterie.judged.candidates.registry import (
    ALGORITHMS,
    EFFORTS,
    Candidate,
    Effort,
    cluster_numbers,
    find_max_clusters,
    generate_candidates,
    order_by_size,
)
from coterie.judged.space import Floats, Geometry, Labels, SpanningTree
from tests.judged.sets import blobs, rings, slanted

KS = [2, 3, 5, 8, 13, 30]


def same(first: Labels, second: Labels) -> bool:
    return bool((order_by_size(first)[0] == order_by_size(second)[0]).all())


def normal(n: int, d: int, seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize(
    ("find", "make"),
    [
        (kmeans.k_means, blobs),
        (single_linkage, rings),
        (partial(genie, gini=0.5), rings),
        (divisive_tree, blobs),
        (divisive_tree, rings),
        (density_peaks, blobs),
        (density_modes, blobs),
        (density_modes, rings),
    ],
)
def test_clusters_of_suitable_shape_are_found(find: Callable[..., list[Labels]], make: Callable[..., Any]) -> None:
    x, truth = make()
    (labels,) = find(Geometry(x), [len(np.unique(truth))])
    assert adjusted_rand_score(truth, labels) == 1.0


def test_k_means_improves_a_partition() -> None:
    x = normal(200, 3, seed=0)

    def scatter(labels: np.ndarray) -> float:
        _, inverse = np.unique(labels, return_inverse=True)
        return float(((x - kmeans.cluster_means(x, labels)[inverse]) ** 2).sum())

    for start in kmeans.linkage_cuts(Geometry(x), [3, 6]):
        labels = kmeans.improve_by_k_means(x, start)
        assert scatter(labels) < scatter(start)
        assert scatter(labels) < 1.1 * KMeans(len(np.unique(start)), n_init=10, random_state=0).fit(x).inertia_


@pytest.mark.parametrize("covariance", ["full", "shared"])
def test_mixtures_find_slanted_clusters(covariance: kmeans.Covariance) -> None:
    x, truth = slanted()
    (start,) = kmeans.linkage_cuts(Geometry(x), [2])
    assert adjusted_rand_score(truth, start) < 0.5
    worse = np.where(np.arange(len(truth)) % 5 == 0, 1 - truth, truth)
    (labels,) = kmeans.improve_by_mixture(x, [worse], covariance, steps=40)
    assert adjusted_rand_score(truth, labels) > 0.97


def test_diagonal_mixtures_separate_clusters_by_their_spread() -> None:
    truth = np.arange(600) % 2
    x = normal(600, 4, seed=0) * np.where(truth == 0, 0.1, 2.0)[:, None]
    (labels,) = kmeans.improve_by_mixture(x, [(np.abs(x).sum(axis=1) > 2).astype(np.int64)], "diagonal", steps=40)
    assert adjusted_rand_score(truth, labels) > 0.97


def test_responsibilities_are_those_of_the_normal_densities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmeans, "_PRIOR_ROWS", 0.0)  # without what keeps covariances regular
    monkeypatch.setattr(kmeans, "_MIN_VARIANCE", 0.0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3)) + 5.0
    labels = (x[:, 0] > 5).astype(np.int64) + (x[:, 1] > 6)
    moments = kmeans.GaussianMoments(x, "full")
    ours = softmax(
        kmeans.quadratic_design(x - moments.centre, "full") @ moments.coefficients(np.eye(3)[labels]), axis=1
    )
    parts = [x[labels == k] for k in range(3)]
    densities = [multivariate_normal(part.mean(axis=0), np.cov(part.T, bias=True)).pdf(x) * len(part) for part in parts]
    theirs = np.stack(densities, axis=1)
    assert np.allclose(ours, theirs / theirs.sum(axis=1, keepdims=True))


def test_full_mixtures_need_many_rows() -> None:
    assert kmeans.has_enough_rows(100, 2, 5, "full")
    assert not kmeans.has_enough_rows(100, 10, 5, "full")
    assert kmeans.has_enough_rows(100, 10, 5, "diagonal")


@pytest.mark.parametrize("method", ["ward", "average", "complete", "single"])
def test_linkage_cuts_are_those_of_scipy(method: Any) -> None:
    geometry = Geometry(normal(60, 3, seed=1))
    cuts = single_linkage(geometry, KS) if method == "single" else kmeans.linkage_cuts(geometry, KS, method=method)
    expected = cut_tree(linkage(geometry.rows, method), KS)
    assert all(same(*pair) for pair in zip(cuts, expected.T, strict=True))


def test_every_number_of_clusters_can_be_cut_though_all_heights_are_equal() -> None:
    geometry = Geometry(np.eye(12))
    for cuts in (kmeans.linkage_cuts(geometry, KS[:4], method="average"), single_linkage(geometry, KS[:4])):
        assert [order_by_size(cut)[1] for cut in cuts] == KS[:4]


def slow_genie(tree: SpanningTree, k: int, gini: float) -> Labels:
    """Recompute everything at every merge."""
    n = len(tree.edges) + 1
    labels = np.arange(n)
    left = [tuple(edge) for edge in tree.edges.tolist()]
    for _ in range(n - k):
        sizes = np.bincount(labels, minlength=n)
        present = sizes[sizes > 0]
        index = sum(abs(int(a) - int(b)) for a, b in combinations(present, 2)) / ((len(present) - 1) * n)
        touching = [(a, b) for a, b in left if min(sizes[labels[a]], sizes[labels[b]]) == present.min()]
        a, b = touching[0] if index > gini else left[0]
        left.remove((a, b))
        labels[labels == labels[b]] = labels[a]
    return labels


@pytest.mark.parametrize("gini", [0.1, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_genie_is_what_its_definition_says(seed: int, gini: float) -> None:
    geometry = Geometry(normal(50, 2, seed) ** 3)
    ks = [2, 3, 4, 7, 12, 25]
    cuts = list(genie(geometry, ks, gini=gini))
    assert all(same(cut, slow_genie(geometry.tree, k, gini)) for k, cut in zip(ks, cuts, strict=True))
    if gini == 1.0:
        assert all(same(*pair) for pair in zip(cuts, single_linkage(geometry, ks), strict=True))


def test_genie_without_leaves_joins_each_leaf_to_its_neighbour() -> None:
    x, truth = blobs(n=120)
    geometry = Geometry(x)
    (labels,) = genie(geometry, [4], gini=0.3, skip_leaves=True)
    assert adjusted_rand_score(truth, labels) == 1.0
    edges = geometry.reachability_tree(5).edges
    leaves = np.flatnonzero(np.bincount(edges.ravel()) == 1)
    to_leaf = edges[np.isin(edges, leaves).any(axis=1)]
    assert (labels[to_leaf[:, 0]] == labels[to_leaf[:, 1]]).all()
    star = Geometry(np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.5], [0.0, -1.2]]))
    assert list(genie(star, [2, 3], gini=0.3, skip_leaves=True)) == []


def slow_divisive_tree(tree: SpanningTree, k: int) -> Labels | None:
    """Find the parts of the tree again after every cut."""
    n = len(tree.edges) + 1
    counts = np.bincount(tree.edges.ravel()) > 1

    def parts(edges: list[list[int]]) -> Labels:
        graph = coo_array((np.ones(len(edges)), np.array(edges).T), shape=(n, n))
        return connected_components(graph)[1].astype(np.int64)

    left = tree.edges.tolist()
    for edge in tree.edges[::-1].tolist():
        cut = parts([each for each in left if each != edge])
        if len(np.unique(parts(left))) < k and min(counts[cut == cut[end]].sum() for end in edge) >= max(
            1.0, 0.25 * counts.sum() / k
        ):
            left.remove(edge)
    return found if len(np.unique(found := parts(left))) == k else None


@pytest.mark.parametrize("seed", range(3))
def test_divisive_tree_is_what_its_definition_says(seed: int) -> None:
    geometry = Geometry(normal(60, 2, seed) ** 3)
    found = {len(np.unique(labels)): labels for labels in divisive_tree(geometry, KS)}
    for k in KS:
        expected = slow_divisive_tree(geometry.reachability_tree(5), k)
        assert (k in found) == (expected is not None)
        assert expected is None or same(found[k], expected)
    assert 2 in found


def test_divisive_tree_finds_clusters_of_unequal_size_in_background_noise() -> None:
    x, truth = blobs(n=400, d=2)
    kept = (truth > 0) | (np.arange(400) % 5 == 0)
    noise = np.random.default_rng(0).uniform(-3, 9, size=(60, 2))
    (labels,) = divisive_tree(Geometry(np.concatenate([x[kept], noise])), [4])
    assert adjusted_rand_score(truth[kept], labels[: kept.sum()]) > 0.97


def test_divisive_tree_yields_only_numbers_that_its_edges_allow() -> None:
    star = Geometry(np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.5], [0.0, -1.2]]))
    assert list(divisive_tree(star, [2, 3])) == []
    assert list(divisive_tree(Geometry(np.array([[0.0], [1.0]])), [2])) == []


@pytest.mark.parametrize("selection", ["eom", "leaf"])
def test_hdbscan_finds_blobs_and_leaves_no_noise(selection: Literal["eom", "leaf"]) -> None:
    x, truth = blobs(spread=0.5)
    outliers = np.random.default_rng(1).uniform(-3, 9, size=(15, 3))
    (labels,) = hdbscan(Geometry(np.concatenate([x, outliers])), [], min_size=20, selection=selection)
    assert labels.min() >= 0
    assert adjusted_rand_score(truth, labels[: len(x)]) > 0.97


@pytest.mark.parametrize("selection", ["eom", "leaf"])
@pytest.mark.parametrize("seed", range(3))
def test_hdbscan_is_that_of_scikit_learn(seed: int, selection: Literal["eom", "leaf"]) -> None:
    x = np.concatenate([normal(150, 2, seed), 0.3 * normal(100, 2, seed + 10) + 3.0, 8.0 * normal(50, 2, seed + 20)])
    dendrogram = Dendrogram.from_tree(Geometry(x).tree)  # lengths of mutual reachability would often be equal
    for size in (5, 12, 30):
        model = HDBSCAN(min_cluster_size=size, min_samples=1, cluster_selection_method=selection, copy=True)
        expected, labels = model.fit(x).labels_, dendrogram.label(size, selection)
        if expected.max() >= 1:
            np.testing.assert_array_equal(labels < 0, expected < 0)
            assert adjusted_rand_score(expected, labels) == 1.0
        else:
            assert labels.max() == -1


@pytest.mark.parametrize(("n", "size"), [(60, 25), (8, 5)])
def test_hdbscan_yields_nothing_for_one_cluster_or_too_few_rows(n: int, size: int) -> None:
    assert list(hdbscan(Geometry(normal(n, 2, seed=0)), [], min_size=size, selection="eom")) == []


@pytest.mark.parametrize("n", [150, 450])
def test_spectral_finds_rings_and_blobs(n: int) -> None:
    for (x, truth), k in ((rings(n), 2), (blobs(n), 4)):
        labels = list(spectral(Geometry(x), [k, k + 1], n_neighbours=8, seed=0))
        assert adjusted_rand_score(truth, labels[0]) == 1.0
        assert len(np.unique(labels[1])) == k + 1


def test_density_peaks_and_modes_find_every_number_and_modes_are_nested() -> None:
    geometry = Geometry(normal(200, 2, seed=0))
    assert [len(np.unique(each)) for each in density_peaks(geometry, [2, 4, 7])] == [2, 4, 7]
    coarse, fine = density_modes(geometry, [2, 5])
    assert (len(np.unique(coarse)), len(np.unique(fine))) == (2, 5)
    assert len({(a, b) for a, b in zip(coarse.tolist(), fine.tolist(), strict=True)}) == 5
    assert list(density_modes(Geometry(np.array([[0.0], [1.0]])), [2, 3])) == []


def tabular(n: int = 150) -> Floats:
    """Skewed, unequal, correlated columns, so that all views exist."""
    x, _ = blobs(n, d=4, spread=1.0)
    return np.exp(0.3 * x + 0.2 * x[:, :1]) * [1.0, 2.0, 3.0, 4.0]


def as_set(candidates: list[Candidate]) -> set[tuple[str, str, bytes]]:
    return {(each.algorithm, each.view, each.labels.tobytes()) for each in candidates}


@pytest.mark.parametrize("effort", EFFORTS)
def test_candidates_are_ordered_by_size_distinct_and_reproducible(effort: Effort) -> None:
    candidates, again = (generate_candidates(tabular(), effort=effort, max_clusters=8, seed=3) for _ in range(2))
    for each in candidates:
        sizes = np.bincount(each.labels)
        assert each.labels.dtype == np.int64
        assert each.labels.shape == (150,)
        assert 2 <= each.n_clusters == len(sizes) <= 8
        assert sizes.min() > 0
        assert np.array_equal(order_by_size(each.labels)[0], each.labels)
        assert each.rule == ALGORITHMS[each.algorithm].rule
    assert len({each.labels.tobytes() for each in candidates}) == len(candidates)
    assert len({each.view for each in candidates}) >= (2 if effort == "fast" else 4)
    assert [each.labels.tolist() for each in candidates] == [each.labels.tolist() for each in again]


@pytest.mark.parametrize("n_jobs", [2, -1])
def test_threads_do_not_change_the_candidates(n_jobs: int) -> None:
    alone, together = (
        generate_candidates(tabular(), effort="balanced", max_clusters=8, seed=3, n_jobs=jobs)
        for jobs in (None, n_jobs)
    )
    assert [str(each) for each in together] == [str(each) for each in alone]
    assert [each.labels.tolist() for each in together] == [each.labels.tolist() for each in alone]


def many_blobs(n_clusters: int, n: int = 600) -> tuple[Floats, Labels]:
    labels = np.arange(n) % n_clusters
    rng = np.random.default_rng(0)
    return 8.0 * rng.normal(size=(n_clusters, 6))[labels] + 0.5 * rng.normal(size=(n, 6)), labels


def test_many_clusters_are_tried_where_there_are_many() -> None:
    x, truth = many_blobs(100)
    assert find_max_clusters(Geometry(x)) >= 100
    candidates = generate_candidates(x, effort="fast", seed=0)
    assert max(adjusted_rand_score(truth, each.labels) for each in candidates) > 0.97
    limited = generate_candidates(x, effort="fast", max_clusters=20, seed=0)
    assert max(each.n_clusters for each in limited) <= 20


@pytest.mark.parametrize(("n_clusters", "n"), [(5, 600), (5, 60)])
def test_many_clusters_are_not_tried_where_there_are_few(n_clusters: int, n: int) -> None:
    x, _ = many_blobs(n_clusters, n)
    assert find_max_clusters(Geometry(x)) == 50
    assert max(each.n_clusters for each in generate_candidates(x, effort="fast", seed=0)) <= 50


def test_more_effort_means_more_candidates_of_more_algorithms() -> None:
    found = {effort: generate_candidates(tabular(), effort=effort, max_clusters=5, seed=0) for effort in EFFORTS}
    counts = [len(found[effort]) for effort in EFFORTS]
    assert counts == sorted(counts)
    for_tables = {name for name, each in ALGORITHMS.items() if each.metric == "euclidean"}
    assert {each.algorithm for each in found["balanced"]} == for_tables - {"mixed mixture"}  # no discrete column


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("make", [blobs, rings, slanted])
def test_the_truth_of_easy_sets_is_a_candidate(effort: Effort, make: Callable[..., tuple[Floats, Labels]]) -> None:
    x, truth = make(n=240)
    candidates = generate_candidates(x, effort=effort, max_clusters=4, seed=0)
    assert max(adjusted_rand_score(truth, each.labels) for each in candidates) > 0.97


@pytest.mark.parametrize("factor", [0.25, 1e-12, 7e5])
def test_the_scale_of_the_rows_does_not_matter(factor: float) -> None:
    x = tabular()
    before, after = (generate_candidates(rows, effort="balanced", max_clusters=12, seed=0) for rows in (x, factor * x))
    assert as_set(before) == as_set(after)


def test_the_order_of_rows_hardly_matters() -> None:
    x = tabular()
    order = np.random.default_rng(0).permutation(len(x))
    permuted = generate_candidates(x[order], effort="fast", seed=0)
    found = {order_by_size(each.labels[np.argsort(order)])[0].tobytes() for each in permuted}
    expected = {each.labels.tobytes() for each in generate_candidates(x, effort="fast", seed=0)}
    assert len(found & expected) >= 0.97 * len(expected)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("k", [1, 2, 7, 40])
def test_all_algorithms_are_asked_for_the_given_number_of_clusters(effort: Effort, k: int) -> None:
    candidates = generate_candidates(tabular(), effort=effort, n_clusters=k, max_clusters=5, seed=0)
    assert {each.n_clusters for each in candidates} == ({1} if k == 1 else {2, 3, 4, 5, k})
    assert sum(each.n_clusters == k for each in candidates) >= (1 if k == 1 else 4)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize(
    ("x", "most"),
    [
        pytest.param(np.zeros((0, 2)), 0, id="no rows"),
        pytest.param(np.zeros((1, 2)), 0, id="one row"),
        pytest.param(np.full((30, 3), 0.1), 0, id="all rows equal"),
        pytest.param(np.array([[0.0], [1.0]]), 2, id="two rows"),
        pytest.param(np.array([[0.0], [1.0], [5.0]]), 2, id="three rows"),
        pytest.param(np.repeat([[0.0, 1.0], [1.0, 0.0]], 40, axis=0), 2, id="two distinct rows"),
        pytest.param(np.repeat(np.eye(5), 12, axis=0), 4, id="five distinct rows"),
        pytest.param(normal(60, 1, seed=0), 4, id="one column"),
        pytest.param(np.random.default_rng(0).integers(0, 2, size=(80, 6)).astype(float), 4, id="binary"),
        pytest.param(normal(12, 200, seed=0), 4, id="more columns than rows"),
        pytest.param(normal(60, 2, seed=0) * 1e300, 4, id="huge"),
        pytest.param(normal(60, 2, seed=0) * 1e-300, 4, id="tiny"),
        pytest.param(np.random.default_rng(0).standard_cauchy(size=(90, 3)), 4, id="heavy tails"),
        pytest.param(np.concatenate([np.zeros((70, 2)), np.eye(2)]), 3, id="mostly equal rows"),
    ],
)
def test_unusual_rows_have_the_candidates_that_are_possible(effort: Effort, x: Floats, most: int) -> None:
    candidates = generate_candidates(x, effort=effort, max_clusters=4, seed=0)
    assert bool(candidates) == bool(most)
    assert all(2 <= each.n_clusters <= most for each in candidates)
    for k in (2, 6):
        candidates = generate_candidates(x, effort=effort, n_clusters=k, max_clusters=4, seed=0)
        assert {each.n_clusters for each in candidates} <= {*range(2, most + 1), k}


def test_numbers_and_stages_of_candidates() -> None:
    assert generate_candidates(np.repeat(np.eye(3), 9, axis=0), effort="fast", n_clusters=4, seed=0) == []
    assert generate_candidates(np.repeat(np.eye(3), 9, axis=0), effort="fast", n_clusters=3, seed=0)
    stages: list[str] = []
    generate_candidates(blobs()[0], effort="fast", seed=0, on_stage=stages.append)
    assert stages[0] == "Ward linkage, standardised columns"
    assert len(stages) == len(set(stages)) >= 6
    labels, n_clusters = order_by_size(np.array([7, 3, 3, 7, 4, 4, 4]))
    assert (labels.tolist(), n_clusters) == ([1, 2, 2, 1, 0, 0, 0], 3)
    labels, n_clusters = order_by_size(np.array([-7, 3_000_000, -7]))
    assert (labels.tolist(), n_clusters) == ([0, 1, 0], 2)


def test_numbers_of_clusters_thin_out_and_are_limited_by_the_rows() -> None:
    assert cluster_numbers(1000, 1000, 50) == (*range(2, 13), 14, 16, 18, 20, 23, 26, 30, 35, 40, 45, 50)
    assert cluster_numbers(1000, 1000, 9) == tuple(range(2, 10))
    assert (cluster_numbers(9, 9, 50), cluster_numbers(100, 5, 50)) == ((2, 3, 4), (2, 3, 4, 5))
    assert cluster_numbers(2, 2, 50) == cluster_numbers(3, 3, 50) == (2,)
    assert cluster_numbers(9, 1, 50) == ()
    assert 150 < cluster_numbers(1000, 1000, 200)[-1] <= 200
    wide = cluster_numbers(1000, 1000, 50, fine=False)
    assert wide[:7] == (2, 3, 4, 5, 6, 7, 8)
    assert len(wide) < len(cluster_numbers(1000, 1000, 50))
