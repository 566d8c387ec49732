"""Each algorithm finds what it is made for."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from coterie.judged.candidates import kmeans as mixtures
from coterie.judged.candidates.candidate import Labels
from coterie.judged.candidates.density import density_modes, density_peaks, hdbscan
from coterie.judged.candidates.kmeans import (
    Covariance,
    Moments,
    cluster_means,
    design,
    enough_rows,
    k_means_from,
    k_means_plus_plus,
    mixtures_from,
    softmax,
)
from coterie.judged.candidates.linkage import linkage_cuts
from coterie.judged.candidates.spectral import spectral
from coterie.judged.space import Floats, ViewGeometry
from tests.proposals.sets import blobs, rings, slanted


def test_k_means_finds_blobs_from_either_start() -> None:
    x, truth = blobs()
    ward = linkage_cuts(ViewGeometry.of(x), "ward", [4])
    for (labels,) in (k_means_from(x, ward), k_means_plus_plus(x, [4], seed=1)):
        assert adjusted_rand_score(truth, labels) == 1.0


def test_k_means_from_a_partition_improves_it() -> None:
    x = np.random.default_rng(0).normal(size=(200, 3))

    def scatter(labels: np.ndarray) -> float:
        _, inverse = np.unique(labels, return_inverse=True)
        return float(((x - cluster_means(x, labels)[inverse]) ** 2).sum())

    ward = list(linkage_cuts(ViewGeometry.of(x), "ward", [3, 6]))
    for start, labels in zip(ward, k_means_from(x, ward), strict=True):
        assert scatter(labels) < scatter(start)
        restarts = KMeans(len(np.unique(start)), n_init=10, random_state=0).fit(x).inertia_
        assert scatter(labels) < 1.1 * restarts


@pytest.mark.parametrize("covariance", ["full", "shared"])
def test_mixtures_find_slanted_clusters(covariance: Covariance) -> None:
    x, truth = slanted()
    (start,) = linkage_cuts(ViewGeometry.of(x), "ward", [2])
    assert adjusted_rand_score(truth, start) < 0.5
    worse = np.where(np.arange(len(truth)) % 5 == 0, 1 - truth, truth)
    (labels,) = mixtures_from(x, [worse], covariance, steps=40)
    assert adjusted_rand_score(truth, labels) > 0.97


def test_diagonal_mixture_tells_clusters_apart_by_their_spread() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(600) % 2
    x = rng.normal(size=(600, 4)) * np.where(truth == 0, 0.1, 2.0)[:, None]
    (labels,) = mixtures_from(x, [(np.abs(x).sum(axis=1) > 2).astype(np.int64)], "diagonal", steps=40)
    assert adjusted_rand_score(truth, labels) > 0.97


def test_responsibilities_are_those_of_the_normal_densities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixtures, "_PRIOR_ROWS", 0.0)  # what keeps covariances from being singular is left out here
    monkeypatch.setattr(mixtures, "_SMALLEST_VARIANCE", 0.0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3)) + 5.0
    labels = (x[:, 0] > 5).astype(np.int64) + (x[:, 1] > 6)
    moments = Moments(x, "full")
    ours = softmax(design(x - moments.centre, "full") @ moments.coefficients(np.eye(3)[labels]))
    parts = [x[labels == k] for k in range(3)]
    densities = [multivariate_normal(part.mean(axis=0), np.cov(part.T, bias=True)).pdf(x) * len(part) for part in parts]
    theirs = np.stack(densities, axis=1)
    assert np.allclose(ours, theirs / theirs.sum(axis=1, keepdims=True))


def test_full_mixtures_need_rows() -> None:
    assert enough_rows(100, 2, 5, "full")
    assert not enough_rows(100, 10, 5, "full")
    assert enough_rows(100, 10, 5, "diagonal")


@pytest.mark.parametrize("selection", ["eom", "leaf"])
def test_hdbscan_finds_blobs_and_leaves_no_noise(selection: Literal["eom", "leaf"]) -> None:
    x, truth = blobs(spread=0.5)
    strays = np.random.default_rng(1).uniform(-3, 9, size=(15, 3))
    geometry = ViewGeometry.of(np.concatenate([x, strays]))
    (labels,) = hdbscan(geometry, 20, selection, 5)
    assert labels.min() >= 0
    assert adjusted_rand_score(truth, labels[: len(x)]) > 0.97


def test_hdbscan_yields_nothing_where_there_is_but_one_cluster_or_too_few_rows() -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    assert list(hdbscan(ViewGeometry.of(x), 25, "eom", 5)) == []
    assert list(hdbscan(ViewGeometry.of(x[:8]), 5, "eom", 5)) == []


@pytest.mark.parametrize("n", [150, 450])
def test_spectral_finds_rings_and_blobs(n: int) -> None:
    for (x, truth), k in ((rings(n), 2), (blobs(n), 4)):
        labels = list(spectral(ViewGeometry.of(x), [k, k + 1], n_neighbours=8, seed=0))
        assert adjusted_rand_score(truth, labels[0]) == 1.0
        assert len(np.unique(labels[1])) == k + 1


def test_density_peaks_find_blobs() -> None:
    x, truth = blobs()
    labels = list(density_peaks(ViewGeometry.of(x), [2, 4, 7], smoothing=5))
    assert [len(np.unique(each)) for each in labels] == [2, 4, 7]
    assert adjusted_rand_score(truth, labels[1]) == 1.0


@pytest.mark.parametrize("made", [blobs, rings])
def test_density_modes_find_clusters_of_any_shape(made: Callable[[], tuple[Floats, Labels]]) -> None:
    x, truth = made()
    k = len(np.unique(truth))
    (labels,) = density_modes(ViewGeometry.of(x), [k], smoothing=10)
    assert adjusted_rand_score(truth, labels) == 1.0


def test_density_modes_are_nested() -> None:
    x = np.random.default_rng(0).normal(size=(200, 2))
    coarse, fine = density_modes(ViewGeometry.of(x), [2, 5], smoothing=10)
    assert len(np.unique(coarse)) == 2
    assert len(np.unique(fine)) == 5
    assert len({(a, b) for a, b in zip(coarse.tolist(), fine.tolist(), strict=True)}) == 5


def test_density_modes_of_very_few_rows_are_none() -> None:
    assert list(density_modes(ViewGeometry.of(np.array([[0.0], [1.0]])), [2, 3], smoothing=10)) == []
