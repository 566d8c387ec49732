"""Classical baselines and their grids, as the ClAM paper searched them.

Each function returns experiments; nothing is computed before `Results.run` asks for it.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np
from scipy.sparse import csr_array
from sklearn.cluster import AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors

from benchmarks.quality.records import Experiment, Floats, LabelledTable, Labels, Setting

GAMMAS: Final = (0.001, 0.01, 0.05, 0.1, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0)
NEIGHBOURS: Final = (10, 15, 20, 50)
LABELLERS: Final = ("kmeans", "discretize")
# l2 is euclidean and l1 is manhattan: the paper's five metrics are three.
LINKAGES: Final = (
    *(
        (metric, linkage)
        for metric in ("euclidean", "manhattan", "cosine")
        for linkage in ("single", "average", "complete")
    ),
    ("euclidean", "ward"),
)
# With a larger gamma the affinity may fall apart into many components, on which ARPACK does not converge to its
# default, machine precision, within half an hour. Below, that precision matters: the eigenvalues lie close together.
LAST_EXACT_GAMMA: Final = 0.1
LOOSE_TOLERANCE: Final = 1e-4


def kmeans(table: LabelledTable, n_init: int, seeds: Sequence[int] = (0,)) -> Experiment:
    """k-means++ with many starts, of which the one with the least inertia counts."""

    def fit(wanted: Sequence[int]) -> Iterator[Labels]:
        for seed in wanted:
            model = KMeans(table.n_clusters, n_init=n_init, max_iter=1000, random_state=seed)
            yield model.fit_predict(table.X)

    return Experiment("kmeans", {"n_init": n_init, "max_iter": 1000}, fit, seeds)


def agglomerative(table: LabelledTable) -> Iterator[Experiment]:
    """Every linkage with every metric that it allows."""
    for metric, linkage in LINKAGES:
        model = AgglomerativeClustering(table.n_clusters, metric=metric, linkage=linkage)

        def fit(seeds: Sequence[int], model: AgglomerativeClustering = model) -> list[Labels]:
            return [model.fit_predict(table.X) for _ in seeds]

        yield Experiment("agglomerative", {"metric": metric, "linkage": linkage}, fit)


@dataclass(frozen=True)
class _SpectralSolver:
    """Spectral clustering of one table; distances are computed once for the whole grid."""

    table: LabelledTable
    n_init: int
    eigen_solver: str
    most_neighbours: int

    @cached_property
    def squared_distances(self) -> Floats:
        squared: Floats = pairwise_distances(self.table.X, metric="sqeuclidean")
        return squared

    @cached_property
    def neighbour_graph(self) -> csr_array:
        # Asking with the rows themselves makes each row its own first neighbour, which is also what
        # scikit-learn's affinity="nearest_neighbors" does.
        finder = NearestNeighbors(n_neighbors=self.most_neighbours).fit(self.table.X)
        graph: csr_array = finder.kneighbors_graph(self.table.X, mode="distance")
        return graph

    def tolerance(self, gamma: float) -> str | float:
        exact = self.eigen_solver != "arpack" or gamma <= LAST_EXACT_GAMMA
        return "auto" if exact else LOOSE_TOLERANCE

    def fit_gaussian(self, seeds: Sequence[int], gamma: float, labeller: str) -> Iterator[Labels]:
        affinity = np.exp(-gamma * self.squared_distances)
        for seed in seeds:
            yield self._fit(affinity, seed, labeller, affinity="precomputed", eigen_tol=self.tolerance(gamma))

    def fit_neighbours(self, seeds: Sequence[int], count: int, labeller: str) -> Iterator[Labels]:
        kind = "precomputed_nearest_neighbors"
        for seed in seeds:
            yield self._fit(self.neighbour_graph, seed, labeller, affinity=kind, n_neighbors=count)

    def _fit(self, graph: Floats | csr_array, seed: int, labeller: str, **kind: str | float) -> Labels:
        model = SpectralClustering(
            self.table.n_clusters,
            eigen_solver=self.eigen_solver,
            assign_labels=labeller,
            n_init=self.n_init,
            random_state=seed,
            **kind,
        )
        with warnings.catch_warnings():
            # Parts of the grid make graphs that fall apart; the warning is no news, the score says it.
            warnings.simplefilter("ignore")
            labels: Labels = model.fit_predict(graph)
        return labels


def spectral(
    table: LabelledTable,
    n_init: int,
    eigen_solver: str = "arpack",
    gammas: Sequence[float] = GAMMAS,
    neighbours: Sequence[int] = NEIGHBOURS,
) -> Iterator[Experiment]:
    """Gaussian and nearest-neighbour affinities, each with two ways to turn eigenvectors into labels.

    Distances are computed once for the grid, so only the first record of each affinity counts their time.
    """
    solver = _SpectralSolver(table, n_init, eigen_solver, most_neighbours=max(neighbours))
    for labeller in LABELLERS:
        shared: dict[str, Setting] = {"assign_labels": labeller, "eigen_solver": eigen_solver}
        if labeller == "kmeans":
            shared["n_init"] = n_init
        for gamma in gammas:
            yield Experiment(
                "spectral",
                {"affinity": "rbf", "gamma": gamma, "eigen_tol": solver.tolerance(gamma), **shared},
                partial(solver.fit_gaussian, gamma=gamma, labeller=labeller),
            )
        for count in neighbours:
            yield Experiment(
                "spectral",
                {"affinity": "nearest_neighbors", "n_neighbors": count, **shared},
                partial(solver.fit_neighbours, count=count, labeller=labeller),
            )
