"""Toy data of the ClAM paper (its Figures 1, 4, 11 to 13 and 15, Table 10) and what is found on them.

The elongated clusters and the given memories are those of the authors' code. Runs are chosen without labels: by the
silhouette under the Mahalanobis distance of all rows, as that code does, or by the loss.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from torch import Tensor

from benchmarks.baselines import dec
from benchmarks.quality.records import (
    Floats,
    Labels,
    Metrics,
    Record,
    Setting,
    Settings,
    current_commit,
    library_versions,
)
from coterie.clam.estimator import ClAM
from coterie.clam.model import ClamConfig, ClamModel
from coterie.clam.search import Found, Plan, build, make_plan, search, settle
from coterie.metrics import adjusted_rand_index, normalized_mutual_information, silhouettes
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import as_table

SUITE: Final = "clam-figures"
COVARIANCE: Final = ((0.0105, 0.01), (0.01, 0.0105))
"""Of every elongated cluster: standard deviations 0.143 along the diagonal and 0.022 across."""
OUTLIERS: Final = ((-0.05, -0.7), (0.1, 0.1), (0.3, -0.5))
FIVE_MEMORIES: Final = ((0.1, 0.3), (0.2, 0.1), (0.4, 0.7), (0.6, 0.5), (0.9, 0.2))
THREE_MEMORIES: Final = FIVE_MEMORIES[1:4]
BETAS: Final = (2.5, 7.5, 15.0, 20.0, 37.5)
"""Half of 5, 15, 30, 40 and 75, since the authors' code halves beta."""
BASIN_STEPS: Final = 10
NEAR: Final = 0.95
"""Adjusted Rand index from which a run counts as near the truth."""


@dataclass(frozen=True)
class Toy:
    """Elongated clusters; outliers come last and have the label -1."""

    name: str
    X: Floats
    y: Labels
    n_clusters: int

    @property
    def inliers(self) -> npt.NDArray[np.bool_]:
        """Rows that belong to a cluster."""
        inside: npt.NDArray[np.bool_] = self.y >= 0
        return inside

    def with_outliers(self) -> "Toy":
        """The same rows, followed by three far ones."""
        y = np.concatenate([self.y, np.full(len(OUTLIERS), -1)])
        return replace(self, name=f"{self.name}-outliers", X=np.vstack([self.X, OUTLIERS]), y=y)


TOYS: Final = MappingProxyType(
    {
        "elongated-two": (((0.3, 0.6), (0.65, 0.6)), (275, 225)),
        "elongated-three": (((0.2, 0.5), (0.5, 0.5), (0.8, 0.5)), (275, 125, 225)),
        "elongated-triangle": (((0.3, 0.6), (0.45, 0.15), (0.65, 0.6)), (275, 125, 225)),
    }
)
"""Means and sizes; the authors draw sizes from ranges of which these are the middles."""


def elongated(name: str, seed: int) -> Toy:
    """Draw one of `TOYS`."""
    means, sizes = TOYS[name]
    rng = np.random.default_rng(seed)
    X = np.vstack([rng.multivariate_normal(mean, COVARIANCE, size) for mean, size in zip(means, sizes, strict=True)])
    return Toy(name, X, np.repeat(np.arange(len(means)), sizes), len(means))


def mahalanobis_silhouettes(X: Floats, labels: Labels) -> npt.NDArray[np.float64]:
    """Silhouettes of partitions (R, N) where distances are those of the whitened rows."""
    root = np.linalg.cholesky(np.linalg.inv(np.cov(X.T)))
    return silhouettes(X @ root, labels)


def memory_model(memories: Sequence[Sequence[float]], beta: float, steps: int = BASIN_STEPS) -> ClamModel:
    """An associative memory with given memories, nothing learned."""
    model = ClamModel(ClamConfig(n_features=len(memories[0]), n_prototypes=len(memories), steps=steps))
    with torch.no_grad():
        model.prototypes.copy_(torch.tensor(memories))
        model.beta.fill_(beta)
    return model


def unit_grid(size: int) -> Floats:
    """Points (size², 2) of a regular grid on the unit square, row by row from below."""
    side = np.arange(size) / size
    return np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)


def basins(memories: Sequence[Sequence[float]], beta: float, size: int = 500) -> Labels:
    """Memory (size, size) that each point of the grid is drawn to."""
    points = torch.from_numpy(unit_grid(size).astype(np.float32))
    drawn: Labels = memory_model(memories, beta).assign(points)[0].numpy().reshape(size, size)
    return drawn


def voronoi(memories: Sequence[Sequence[float]], size: int = 500) -> Labels:
    """Memory (size, size) that is nearest to each point of the grid."""
    nearest: Labels = cdist(unit_grid(size), np.asarray(memories)).argmin(axis=1).reshape(size, size)
    return nearest


@dataclass(frozen=True)
class Solution:
    """A partition of a toy, and how it was found."""

    method: str
    labels: Labels
    centres: Floats
    settings: dict[str, Setting]
    seconds: float
    counts: dict[str, int] = field(default_factory=dict)
    """Of the runs that it was chosen from."""


# The authors' toy runs: no mask, 10 epochs, batches of 32, T = 10, random starts, and a grid of beta and rate.
_AUTHORS: Final[dict[str, Any]] = {
    "objective": "unmasked",
    "metric": "euclidean",
    "beta": (0.005, 0.05, 0.5, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0),
    "learning_rate": (1e-3, 1e-2, 1e-1),
    "steps": 10,
    "epochs": 10,
    "batch_size": 32,
    "n_restarts": 20,
    "init": "normal",
}
SEARCHES: Final[MappingProxyType[str, dict[str, Any]]] = MappingProxyType(
    {
        "authors": _AUTHORS,
        "masked": _AUTHORS | {"objective": "masked"},
        "manhattan": _AUTHORS | {"metric": "manhattan"},
        "mahalanobis": {
            "objective": "unmasked",
            "metric": "mahalanobis",
            "steps": 10,
            "epochs": 30,
            "batch_size": 32,
        },
    }
)
VARIANTS: Final = MappingProxyType(
    {
        "clam": ("authors", "silhouette"),
        "clam-loss": ("authors", "loss"),
        "clam-masked": ("masked", "silhouette"),
        "clam-manhattan": ("manhattan", "silhouette"),
        "clam-mahalanobis": ("mahalanobis", "silhouette"),
        "clam-mahalanobis-loss": ("mahalanobis", "loss"),
        "clam-nearest-truth": ("authors", "labels"),
    }
)
"""Which of the searches, and how its best run is told. "labels" is no clustering: it says what was there to choose."""


def solve_kmeans(toy: Toy, seed: int) -> Solution:
    """k-means, the best inertia of many starts."""
    began = time.perf_counter()
    model = KMeans(toy.n_clusters, n_init=100, random_state=seed).fit(toy.X)
    return Solution("kmeans", model.labels_, model.cluster_centers_, {"n_init": 100}, time.perf_counter() - began)


def solve_dec(toy: Toy, seed: int) -> Solution:
    """DEC's relaxation from the centres of k-means, its update interval chosen as ClAM's runs are."""
    began = time.perf_counter()
    z = torch.from_numpy(toy.X)
    start = dec.mean_centres(z, solve_kmeans(toy, seed).labels).unsqueeze(0)
    found = [
        dec.train(z, start, dec.DecConfig(interval, max_iter=2000))[0].numpy() for interval in dec.UPDATE_INTERVALS
    ]
    best = int(mahalanobis_silhouettes(toy.X, np.stack(found)).argmax())
    settings: dict[str, Setting] = {"start": "kmeans", "update_interval": dec.UPDATE_INTERVALS[best], "max_iter": 2000}
    centres = dec.mean_centres(z, found[best]).numpy()
    return Solution("dec", found[best], centres, settings, time.perf_counter() - began)


def solve_default(toy: Toy, seed: int) -> Solution:
    """ClAM as it comes."""
    began = time.perf_counter()
    model = ClAM(toy.n_clusters, random_state=seed).fit(toy.X)
    prototypes = model.table_.inverse(model.prototypes_)
    return Solution("clam-default", model.labels_, prototypes, {"beta": model.beta_}, time.perf_counter() - began)


@dataclass(frozen=True)
class _Runs:
    """All runs of one search on a toy."""

    x: Tensor
    plan: Plan
    found: Found
    labels: Labels
    starts: Labels
    """What as many untrained starts make of the rows."""
    seconds: float

    @classmethod
    def train(cls, toy: Toy, parameters: dict[str, Any], seed: int) -> "_Runs":
        began = time.perf_counter()
        rows = as_table(toy.X)
        encoder = TableEncoder("none").fit(rows)
        x = torch.from_numpy(encoder.transform(rows))
        estimator = ClAM(toy.n_clusters, min_cluster_size=0, halving=False, **parameters)
        plan = make_plan(estimator.get_params(deep=False), x, encoder)
        generator = torch.Generator().manual_seed(seed)
        found = search(x, plan, generator=generator)
        starts = build(x, plan, generator).assign(x).numpy()
        return cls(x, plan, found, found.finalists.assign(x).numpy(), starts, time.perf_counter() - began)

    def take(self, chosen: int) -> tuple[Labels, Floats]:
        """Partition and prototypes of one run."""
        model, _ = settle(replace(self.found, chosen=chosen), self.x, self.plan)
        return model.assign(self.x)[0].numpy(), model.leave(model.prototypes[0].detach()).numpy()


def solve_clam(toy: Toy, seed: int, methods: Sequence[str]) -> list[Solution]:
    """Some of `VARIANTS`; those of the same search choose from the same runs."""
    names = dict.fromkeys(VARIANTS[method][0] for method in methods)
    searches = {name: _Runs.train(toy, SEARCHES[name], seed) for name in names}
    solutions = []
    for method in methods:
        name, rule = VARIANTS[method]
        runs = searches[name]
        chosen = _choose(toy, runs, rule)
        run = runs.found.runs[chosen]
        settings: dict[str, Setting] = {
            "search": name,
            "rule": rule,
            "runs": len(runs.labels),
            "beta": round(float(str(run["beta"])), 6),
            "rate": float(str(run["rate"])),
            "start": str(run["start"]),
        }
        labels, prototypes = runs.take(chosen)
        near = {
            "runs_near_truth": int((_agreement(toy, runs.labels) > NEAR).sum()),
            "starts_near_truth": int((_agreement(toy, runs.starts) > NEAR).sum()),
        }
        solutions.append(Solution(method, labels, prototypes, settings, runs.seconds, near))
    return solutions


def _agreement(toy: Toy, labels: Labels) -> Floats:
    """Adjusted Rand index of each partition (R, N) with the truth, outliers aside."""
    inside = toy.inliers
    return np.array([adjusted_rand_index(toy.y[inside], partition[inside]) for partition in labels])


def _choose(toy: Toy, runs: _Runs, rule: str) -> int:
    """Best run; those with a cluster of less than half an equal share are passed over while there are others."""
    sizes = (runs.labels[:, :, None] == np.arange(toy.n_clusters)).sum(axis=1)
    balanced = sizes.min(axis=1) >= len(toy.X) / (2 * toy.n_clusters)
    if rule == "loss":
        merit = -np.array([float(str(run["loss"])) for run in runs.found.runs])
    else:
        merit = _agreement(toy, runs.labels) if rule == "labels" else mahalanobis_silhouettes(toy.X, runs.labels)
    return int(np.lexsort((-merit, ~balanced))[0])


def record_of(toy: Toy, solution: Solution, seed: int) -> Record:
    """One line of the results; outliers count in no score."""
    inside, X, y = toy.inliers, toy.X[toy.inliers], toy.y[toy.inliers]
    labels = solution.labels[inside]
    scores = {
        "silhouette": silhouettes(X, labels[None])[0],
        "silhouette_mahalanobis": mahalanobis_silhouettes(X, labels[None])[0],
        "nmi": normalized_mutual_information(y, labels),
        "ari": adjusted_rand_index(y, labels),
    }
    metrics = {name: round(float(score), 6) for name, score in scores.items()} | solution.counts
    return new_record(toy.name, solution.method, seed, solution.settings, metrics, solution.seconds, toy)


def truth_of(toy: Toy) -> Solution:
    """The clusters that the rows were drawn from; outliers are a group of their own."""
    means = np.stack([toy.X[toy.y == label].mean(axis=0) for label in range(toy.n_clusters)])
    return Solution("truth", np.where(toy.inliers, toy.y, toy.n_clusters), means, {}, 0.0)


def new_record(
    data: str,
    method: str,
    seed: int,
    settings: Settings,
    metrics: Metrics,
    seconds: float,
    shape: Any,
) -> Record:
    """A record of this suite; `shape` is a toy or a table."""
    n, d = shape.X.shape
    return Record(
        suite=SUITE,
        data=data,
        method=method,
        seed=seed,
        settings=settings,
        metrics=metrics,
        seconds=round(seconds, 4),
        n=n,
        d=d,
        k=shape.n_clusters,
        commit=current_commit(),
        versions=library_versions(),
    )
