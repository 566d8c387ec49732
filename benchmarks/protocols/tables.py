"""Methods with grids of settings on standardised tables: the ClAM suites and the suite of real tables.

Lines are records of one run. Of each method the labels of the best run are kept in ``labels/`` beside the results file
where the suite asks for it, since DEC starts from the best k-means.
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from scipy.sparse import csr_array
from sklearn.cluster import AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors

from benchmarks.baselines.dec import UPDATE_INTERVALS, DecConfig, mean_centres, random_centres
from benchmarks.baselines.dec import train as train_dec
from benchmarks.data.tables import LabelledTable, load_table, table_names
from benchmarks.lines import Floats, Labels, Line, Settings, key_of, record
from benchmarks.suite import Job, Spec, Suite, merge, resolve
from coterie.base import one_thread
from coterie.clam.estimator import ClAM
from coterie.clam.search import Search
from coterie.errors import InputError
from coterie.metrics import silhouettes
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import as_table

# l2 is euclidean and l1 is manhattan: the paper's five metrics are three.
LINKAGES: Final = (
    *((metric, link) for metric in ("euclidean", "manhattan", "cosine") for link in ("single", "average", "complete")),
    ("euclidean", "ward"),
)
# With a larger gamma the affinity may fall apart into many components, on which ARPACK does not converge to its
# default, machine precision, within half an hour. Below, that precision matters: the eigenvalues lie close together.
LAST_EXACT_GAMMA: Final = 0.1
LOOSE_TOLERANCE: Final = 1e-4
RULES: Final = ("silhouette", "silhouette-full", "loss")
"""Which run of a search counts: best silhouette (the paper's Table 1; clusters may end empty), best silhouette among
runs that fill every cluster, least loss (the paper's appendix B.1)."""
Fit = Callable[[Sequence[int]], Iterable[Labels]]


@dataclass(frozen=True)
class Experiment:
    """One setting of one method; `fit` returns a partition per seed, so that it may train restarts in parallel."""

    settings: Settings
    fit: Fit


def runs(suite: Suite) -> Iterator[Job]:
    """Derive one job per setting of a method on a table."""
    sources = suite["data"]
    if isinstance(sources, list):
        sources = {name: name for name in table_names(*sources)}
    for name, source in sources.items():
        try:
            table = replace(load_table(source), name=name)
        except InputError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        methods = merge(suite["methods"], suite.get("scale-downs", {}).get(name, {}))
        for method in methods:
            spec = resolve(methods, method)
            if name not in spec.get("only", [name]):
                continue
            blank = partial(_blank, suite, table, method)
            if "not_run" in spec:
                yield Job([blank({}) | {"note": spec["not_run"]}], lambda pending: pending)
                continue
            for experiment in GRIDS[spec["grid"]](suite, table, spec):
                lines = [
                    blank(experiment.settings) | {"seed": seed} for seed in spec.get("seeds", suite.get("seeds", [0]))
                ]
                yield Job(lines, partial(_measure, suite, table, experiment))


def _blank(suite: Suite, table: LabelledTable, method: str, settings: Settings) -> Line:
    n, d = table.X.shape
    settings = {**settings, **table.silhouette_settings}
    return record(suite["suite"], table.name, method, 0, settings, n=n, d=d, k=table.n_clusters)


def _measure(suite: Suite, table: LabelledTable, experiment: Experiment, pending: Sequence[Line]) -> Iterator[Line]:
    began = time.perf_counter()
    try:
        partitions = list(experiment.fit([line["seed"] for line in pending]))
    except np.linalg.LinAlgError as error:  # grids reach into corners where linear algebra breaks down
        yield from (line | {"note": f"failed: {error}"} for line in pending)
        return
    seconds = round((time.perf_counter() - began) / len(pending), 4)
    for blank, labels in zip(pending, partitions, strict=True):
        line = blank | {"metrics": table.metrics(labels), "seconds": seconds}
        if suite.get("keep_labels"):
            # Labels before the line: after an interruption between the two, the run is simply repeated.
            _keep_if_best(suite, line, labels)
        yield line


def labels_path(suite: Suite, data: str, method: str) -> Path:
    """File of the labels of a method's best run."""
    return suite.results.parent / "labels" / f"{data}-{method}.npz"


def best_labels(suite: Suite, data: str, method: str) -> Labels:
    """Labels of the best run so far."""
    path = labels_path(suite, data, method)
    if not path.is_file():
        raise InputError(f"There are no labels of {method} on {data} at {path}. Run {method} first.")
    with np.load(path, allow_pickle=False) as kept:
        labels: Labels = kept["labels"]
    return labels


def _keep_if_best(suite: Suite, line: Line, labels: Labels) -> None:
    """Keep labels that fill all k clusters before those that do not, then by silhouette.

    Without the first rule, a method that puts all rows but a few outliers into one cluster would be the best.
    """
    path = labels_path(suite, line["data"], line["method"])
    silhouette = line["metrics"]["silhouette"]
    rank = (line["metrics"]["n_clusters"] == line["k"], -1.0 if silhouette is None else silhouette)
    if path.is_file():
        with np.load(path, allow_pickle=False) as kept:
            if (bool(kept["fills_all"]), float(kept["silhouette"])) >= rank:
                return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".partial.npz")
    np.savez_compressed(
        unfinished,
        labels=labels.astype(np.min_scalar_type(int(labels.max()))),
        silhouette=np.float64(rank[1]),
        fills_all=np.bool_(rank[0]),
        run=np.array(key_of(line, suite.key)),
    )
    unfinished.replace(path)


def kmeans(_: Suite, table: LabelledTable, spec: Spec) -> Iterator[Experiment]:
    """k-means++ with many starts, of which the one with the least inertia counts."""
    settings = spec["settings"]

    def fit(seeds: Sequence[int]) -> Iterator[Labels]:
        for seed in seeds:
            yield KMeans(table.n_clusters, random_state=seed, **settings).fit_predict(table.X)

    yield Experiment(settings, fit)


def clam_estimator(_: Suite, table: LabelledTable, spec: Spec) -> Iterator[Experiment]:
    """ClAM with its defaults."""
    settings = spec.get("settings", {})

    def fit(seeds: Sequence[int]) -> list[Labels]:
        return [ClAM(table.n_clusters, random_state=seed, **settings).fit(table.X).labels_ for seed in seeds]

    yield Experiment(settings, fit)


def agglomerative(_: Suite, table: LabelledTable, __: Spec) -> Iterator[Experiment]:
    """Every linkage with every metric that it allows."""
    for metric, linkage in LINKAGES:
        model = AgglomerativeClustering(table.n_clusters, metric=metric, linkage=linkage)

        def fit(seeds: Sequence[int], model: AgglomerativeClustering = model) -> list[Labels]:
            return [model.fit_predict(table.X) for _ in seeds]

        yield Experiment({"metric": metric, "linkage": linkage}, fit)


def dec(suite: Suite, table: LabelledTable, spec: Spec) -> Iterator[Experiment]:
    """DEC from the best k-means, which leaves it no other randomness, or from random centres (DEC^r in the paper)."""
    from_kmeans = spec["start"] == "kmeans"

    def fit(seeds: Sequence[int], config: DecConfig) -> Iterable[Labels]:
        z = torch.from_numpy(table.X)
        if from_kmeans:
            start = mean_centres(z, best_labels(suite, table.name, "kmeans")).expand(len(seeds), -1, -1)
        else:
            shape = (table.n_clusters, z.shape[1])
            start = torch.stack([random_centres(*shape, seed) for seed in seeds]).to(z.dtype)
        return train_dec(z, start, config).numpy()

    for interval in UPDATE_INTERVALS:
        config = DecConfig(interval, spec["max_iter"])
        yield Experiment({"start": spec["start"], **asdict(config)}, partial(fit, config=config))


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
        # Querying with the rows themselves makes each row its own first neighbour, which is also what
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
            # Parts of the grid make graphs that fall apart, which shows in the score.
            warnings.simplefilter("ignore")
            labels: Labels = model.fit_predict(graph)
        return labels


def spectral(_: Suite, table: LabelledTable, spec: Spec) -> Iterator[Experiment]:
    """Gaussian and nearest-neighbour affinities, each with two ways from eigenvectors to labels.

    Distances are computed once for the grid, so that only the first line of each affinity includes their time.
    """
    n_init, eigen_solver = spec["n_init"], spec["eigen_solver"]
    solver = _SpectralSolver(table, n_init, eigen_solver, most_neighbours=max(spec["neighbours"]))
    for labeller in ("kmeans", "discretize"):
        shared: Spec = {"assign_labels": labeller, "eigen_solver": eigen_solver}
        if labeller == "kmeans":
            shared["n_init"] = n_init
        for gamma in spec["gammas"]:
            settings = {"affinity": "rbf", "gamma": gamma, "eigen_tol": solver.tolerance(gamma), **shared}
            yield Experiment(settings, partial(solver.fit_gaussian, gamma=gamma, labeller=labeller))
        for count in spec["neighbours"]:
            settings = {"affinity": "nearest_neighbors", "n_neighbors": count, **shared}
            yield Experiment(settings, partial(solver.fit_neighbours, count=count, labeller=labeller))


@dataclass(frozen=True)
class _Pool:
    """All runs of a search: their partitions, and what the rules compare."""

    labels: Labels
    silhouette: Floats
    loss: Floats
    full: Any

    def choose(self, rule: str) -> Labels:
        """Return the partition that a rule chooses."""
        if rule == "loss":
            merit = -self.loss
        else:
            merit = self.silhouette if rule == "silhouette" else np.where(self.full, self.silhouette, -1.0)
        labels: Labels = self.labels[int(merit.argmax())]
        return labels


@one_thread()
def _train_pool(table: LabelledTable, estimators: Sequence[ClAM], seed: int) -> _Pool:
    """Train every run of the estimators' grids and label all rows by each."""
    rows = as_table(table.X)
    encoder = TableEncoder("none").fit(rows)
    x = torch.from_numpy(encoder.transform(rows))
    generator = torch.Generator().manual_seed(seed)
    labels, losses = [], []
    for estimator in estimators:
        search = Search.from_parameters(estimator.get_params(deep=False), x, encoder)
        model = search.train(x, generator=generator)
        labels.append(model.assign(x).numpy().astype(np.int16))
        losses.append([run.loss for run in search.runs])
    everyone = np.concatenate(labels)
    scored = table.silhouette_rows
    parts = np.array_split(everyone[:, scored], min(16, len(everyone)))
    scores = np.concatenate([silhouettes(table.X[scored], part) for part in parts])
    counts = (everyone[:, :, None] == np.arange(table.n_clusters)).any(axis=1).sum(axis=1)
    return _Pool(everyone, scores, np.concatenate(losses), counts == table.n_clusters)


def _grid_estimators(table: LabelledTable, spec: Spec) -> list[ClAM]:
    """Every kind of start, in blocks of restarts that fit the processor's cache; a block is one tensor program."""
    block_size = 10 if table.X.shape[1] < 200 else 3
    spread = float(np.square(table.X - table.X.mean(axis=0)).sum(axis=1).mean())
    return [
        ClAM(
            table.n_clusters,
            beta=[beta / spread for beta in spec["relative_betas"]],
            learning_rate=tuple(spec["rates"]),
            init=start,
            n_restarts=min(block_size, count - first),
            min_cluster_size=0,
            steps=spec["steps"],
            epochs=spec["epochs"],
            batch_size=spec["batch_size"],
            halving=False,
            **spec.get("variant", {}),
        )
        for start, count in spec["restarts"]
        for first in range(0, count, block_size)
    ]


def clam(suite: Suite, table: LabelledTable, spec: Spec) -> list[Experiment]:
    """Three rules that choose from one search; the first line's seconds are those of the search."""
    if spec.get("faithful") == "tabled":
        tabled = suite["tabled"][table.name]
        estimators, settings = [ClAM.faithful(table.n_clusters, **tabled)], {"runs": 10, **tabled}
    elif spec.get("faithful") == "grid":
        estimators, settings = [ClAM.faithful(table.n_clusters)], dict(spec["settings"])
    else:
        estimators = _grid_estimators(table, spec)
        settings = {
            "runs": len(spec["relative_betas"]) * len(spec["rates"]) * sum(count for _, count in spec["restarts"]),
            "relative_betas": " ".join(f"{beta:g}" for beta in spec["relative_betas"]),
            "rates": " ".join(f"{rate:g}" for rate in spec["rates"]),
            "restarts": ", ".join(f"{count} {start}" for start, count in spec["restarts"]),
            **{name: spec[name] for name in ("epochs", "batch_size", "steps")},
            "mask_rate": 0.15,
            "fill": "mean",
        }

    @cache
    def found(seed: int) -> _Pool:
        return _train_pool(table, estimators, seed)

    def by(rule: str) -> Fit:
        return lambda seeds: [found(seed).choose(rule) for seed in seeds]

    return [Experiment({**settings, "rule": rule}, by(rule)) for rule in RULES]


GRIDS: Final[dict[str, Callable[[Suite, LabelledTable, Spec], Iterable[Experiment]]]] = {
    "agglomerative": agglomerative,
    "clam": clam,
    "clam-estimator": clam_estimator,
    "dec": dec,
    "kmeans": kmeans,
    "spectral": spectral,
}
