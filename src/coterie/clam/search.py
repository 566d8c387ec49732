"""Train a grid of ClAM runs as one tensor program and select the best.

Restarts, numbers of clusters and every parameter with several values span the grid. With successive halving, all runs
are trained briefly (on a subsample of large inputs) and only the better ones to the end.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice, product
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.covariance import ledoit_wolf
from torch import Generator, Tensor
from torch.nn.functional import normalize

from coterie.clam.model import ClamConfig, ClamModel
from coterie.errors import InputError, TableError
from coterie.metrics import silhouettes
from coterie.ops.partitions import data_start, k_means_start, normal_start, spread_start
from coterie.progress import Callback, Progress
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import as_table
from coterie.training.batches import point_batches
from coterie.training.loop import TrainConfig, train
from coterie.validation import check_n_clusters

Fill = Literal["mean", "min", "max"]
Select = Literal["silhouette", "loss"]

INITS = ("k-means", "k-means++", "data", "normal", "spread")
# What ``init="mixed"`` cycles through.
MIXED_INITS = ("k-means", "k-means++", "data", "k-means", "normal", "k-means++", "k-means", "data")
SPREAD_POWERS = (2.0, 4.0, 16.0, 64.0)  # of the restarts of ``init="spread"``, from k-means++ to farthest-point
RELATIVE_BETAS = (1.0, 4.0, 16.0, 64.0)  # ``beta="auto"``, divided by the mean distance of the rows from their mean
AUTO_RESTARTS = 4  # most restarts per setting with ``n_clusters="auto"``, which multiplies the runs
SAMPLE_ROWS = 20_000  # rows for initialisation, and most rows in the first round of halving
MIN_ROWS = 2_500  # fewest rows in the first round of halving
SELECTION_ROWS = 2_500  # rows for the silhouette
K_MEANS_RESTARTS = 8  # restarts of the k-means that bounds the cluster size
MAX_REVIVALS = 8  # attempts to move prototypes that own no row
FIRST_BUDGET, SECOND_BUDGET = (
    1.2e8,
    2.0e8,
)  # rows x prototypes x runs x steps x epochs of the rounds; about a second each
MAX_STEPS = (150, 450)  # optimiser steps of the two rounds, after which the loss hardly changes
FORMER_RUN_KEYS = {"found": "n_clusters_found", "start": "init", "rate": "learning_rate"}  # in earlier model files


@dataclass(slots=True)
class Run:
    """One setting of the grid; training adds the scores."""

    n_clusters: int
    init: str
    beta: float
    learning_rate: float
    mask_rate: float
    fill: Fill
    n_clusters_found: int = 0  # clusters with at least one row
    loss: float = math.nan
    silhouette: float = math.nan
    chosen: bool = False


@dataclass(slots=True)
class Search:
    """A grid of runs, how to train them, and how to select one."""

    runs: list[Run]  # all runs; after ``train`` those that were trained to the end, with their scores
    config: ClamConfig
    epochs: int | None  # none to stay within the budget
    batch_size: int
    halving: bool
    select: Select
    min_cluster_size: int | None  # none for a lower bound from k-means; 0 allows empty clusters
    train_config: TrainConfig
    init_prototypes: Tensor | None = None  # prototypes (K, D) given by the user
    prototype_weights: Tensor | None = None  # epsilon (K,) of Eq. 10.
    whitening: Tensor | None = None  # matrix (D, D) that makes Mahalanobis distances Euclidean
    notes: list[str] = field(default_factory=list)  # what ``train`` and ``best_model`` decided, one sentence each

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], x: Tensor, table: TableEncoder) -> "Search":
        """Lay out the grid that the estimator's parameters describe."""
        rows, features = x.shape
        clusters = _cluster_counts(parameters, rows)
        weights = parameters["prototype_weights"]
        whitening = _whitening(x) if parameters["metric"] == "mahalanobis" else None
        betas = _betas(parameters, x if whitening is None else x @ whitening)
        rates, mask_rates = (map(float, _as_list(parameters[name])) for name in ("learning_rate", "mask_rate"))
        grid = product(clusters, _inits(parameters), betas, rates, mask_rates, _as_list(parameters["fill"]))
        runs = [Run(*values) for values in grid]
        if parameters["legacy_mask"] and int(features * min(run.mask_rate for run in runs)) < 1:
            raise InputError(
                f"legacy_mask=True masks int({features} * mask_rate) = 0 features. Raise mask_rate, or use "
                "legacy_mask=False."
            )
        return cls(
            runs=runs,
            config=ClamConfig(
                n_features=features,
                n_prototypes=max(clusters),
                n_runs=len(runs),
                steps=int(parameters["steps"]),
                weighting="equal" if weights is None else "learned" if isinstance(weights, str) else "given",
                rows_per_mask=1 if parameters["legacy_mask"] else 32,
                **{name: parameters[name] for name in ("metric", "objective", "legacy_mask", "plateau")},
            ),
            epochs=None if parameters["epochs"] == "auto" else int(parameters["epochs"]),
            batch_size=batch_size_for(parameters["batch_size"], rows),
            halving=parameters["halving"],
            select=parameters["select"],
            min_cluster_size=None if parameters["min_cluster_size"] == "auto" else int(parameters["min_cluster_size"]),
            train_config=TrainConfig(
                steps=0,
                learning_rate=1.0,
                schedule="constant" if parameters["plateau"] else "cosine",
                betas=(0.9, 0.999) if parameters["plateau"] else (0.9, 0.99),
                epsilon=1e-7,
            ),
            init_prototypes=_init_prototypes(parameters["init"], clusters, x, table),
            prototype_weights=_prototype_weights(weights, clusters, x),
            whitening=whitening,
        )

    def train(
        self, x: Tensor, *, generator: Generator, weight: Tensor | None = None, callback: Callback | None = None
    ) -> ClamModel:
        """Train all runs on the rows of x (TrainClAM of Algorithm 1), score them and mark the best as chosen.

        The model has the runs that were trained to the end, in the order of ``self.runs``.
        """
        order = torch.randperm(len(x), generator=generator, device=x.device)
        sample = x if len(x) <= SAMPLE_ROWS else x[order[:SAMPLE_ROWS]]
        scored = x if len(x) <= SELECTION_ROWS else x[order[:SELECTION_ROWS]]
        model = self.initial_model(sample, generator)
        min_fractions = self._min_fractions(model.to_memory_space(sample), generator)
        rounds = self._rounds(len(x), len(sample))
        total = sum(_n_steps(rows, epochs, self.batch_size) for rows, epochs, _ in rounds)
        done = 0
        for number, (rows, epochs, survivors) in enumerate(rounds, start=1):
            subset = slice(None) if rows == len(x) else order[:rows]
            steps = _n_steps(rows, epochs, self.batch_size)
            row_weight = None if weight is None else weight[subset]
            batches = point_batches(
                x[subset], batch_size=self.batch_size, epochs=epochs, generator=generator, weight=row_weight
            )
            report = None if callback is None else _offset_callback(callback, done, total)
            train(model, batches, replace(self.train_config, steps=steps), generator=generator, callback=report)
            done += steps
            model.restore_best()
            ranking, large_enough = self._rank(model, scored, min_fractions)
            if number < len(rounds):
                kept = np.sort(ranking[:survivors])
                where = f"{rows:,} of {len(x):,} rows" if rows < len(x) else "all rows"
                self.notes.append(
                    f"{len(self.runs)} runs were trained for {epochs} epochs on {where}; "
                    f"the best {len(kept)} of them were trained to the end"
                )
                model = model.select_runs(torch.from_numpy(kept).to(x.device))
                self.runs = [self.runs[i] for i in kept]
        self.runs[ranking[0]].chosen = True
        where = f"{len(scored):,} of {len(x):,} rows" if len(scored) < len(x) else "all rows"
        note = self._selection_note(rounds[-1][1], where, list(min_fractions))
        if not large_enough[ranking[0]]:
            note += "; no run kept every cluster above the minimum size"
        self.notes.append(note)
        return model

    @torch.no_grad()
    def best_model(self, model: ClamModel, x: Tensor, chosen: int | None = None) -> ClamModel:
        """Extract the chosen run (or another one), its clusters ordered by size.

        Unless ``min_cluster_size`` is 0, a prototype that owns no row is moved to the row whose x^T is farthest from
        its prototype, and beta is doubled: for a large beta every prototype owns at least the rows at its position.
        """
        if chosen is None:
            chosen = next(i for i, run in enumerate(self.runs) if run.chosen)
        model = model.select_runs(torch.tensor([chosen], device=x.device))
        wanted = int(model.present[0].sum())
        sizes = _cluster_sizes(model, x)
        revivals = 0
        while self.min_cluster_size != 0 and (sizes > 0).sum() < wanted and revivals < MAX_REVIVALS:
            revivals += 1
            for dead in torch.nonzero(model.present[0] & (sizes == 0)).flatten().tolist():
                distances = torch.cat([model.final_distances(block)[0] for block in model.blocks(x)])
                farthest = x[distances.amin(dim=1).argmax()].unsqueeze(0)
                model.prototypes[0, dead] = model.to_memory_space(farthest)[0]
            model.beta *= 2.0
            sizes = _cluster_sizes(model, x)
        occupied = int((sizes > 0).sum())
        if revivals:
            self.notes.append(f"prototypes without rows were moved to distant rows, in {revivals} rounds")
        if occupied < wanted:
            self.notes.append(f"{wanted - occupied} of {wanted} prototypes own no row and are not counted as clusters")
        order = torch.argsort(sizes, descending=True, stable=True).unsqueeze(0)
        ordered = model.select_runs(torch.zeros(1, dtype=torch.long, device=x.device), order)
        ordered.occupied.copy_(torch.arange(len(sizes), device=x.device) < occupied)
        return ordered

    def initial_model(self, sample: Tensor, generator: Generator) -> ClamModel:
        """Build a model of all runs with initialised prototypes."""
        model = ClamModel(self.config).to(sample.device)
        if self.whitening is not None:
            model.whitening.copy_(self.whitening)
        if self.config.metric != "cosine":
            model.centre.copy_(sample.mean(dim=0))
        sample = model.to_memory_space(sample)
        fills = {"mean": sample.mean(dim=0), "min": sample.amin(dim=0), "max": sample.amax(dim=0)}
        with torch.no_grad():
            model.beta.copy_(torch.tensor([run.beta for run in self.runs]))
            model.rate.copy_(torch.tensor([run.learning_rate for run in self.runs]))
            model.mask_rate.copy_(torch.tensor([run.mask_rate for run in self.runs]))
            model.fill.copy_(torch.stack([fills[run.fill] for run in self.runs]))
            # Encoded columns are centred: means that are not zero are rounding errors.
            model.fill[model.fill.abs() < 1e-6] = 0.0
            counts = torch.tensor([run.n_clusters for run in self.runs], device=sample.device)
            model.present.copy_(torch.arange(self.config.n_prototypes, device=sample.device) < counts.unsqueeze(1))
            if self.prototype_weights is not None:
                model.log_weights.copy_(self.prototype_weights.log().expand_as(model.log_weights))
            for init, clusters in dict.fromkeys((run.init, run.n_clusters) for run in self.runs):
                members = [i for i, run in enumerate(self.runs) if (run.init, run.n_clusters) == (init, clusters)]
                model.prototypes[members, :clusters] = (
                    _initial_prototypes(sample, init, len(members), clusters, generator)
                    if self.init_prototypes is None
                    else model.to_memory_space(self.init_prototypes).expand(len(members), -1, -1)
                )
        return model

    def _rounds(self, rows: int, sample_rows: int) -> list[tuple[int, int, int]]:
        """Return rows, epochs and number of surviving runs of each round of training."""
        runs = len(self.runs)
        # A step costs K cells per row, and the products with the features about one step per hundred of them.
        row_cost = self.config.n_prototypes * (self.config.steps + self.config.n_features / 100)
        if not self.halving or runs < 8:
            affordable = (FIRST_BUDGET + SECOND_BUDGET) / (row_cost * rows * runs)
            return [(rows, self.epochs or _n_epochs(affordable, rows, self.batch_size, sum(MAX_STEPS)), runs)]
        survivors = _clip(SECOND_BUDGET / (row_cost * rows * 5), 2, runs // 4)
        affordable = SECOND_BUDGET / (row_cost * rows * survivors)
        second = self.epochs or _n_epochs(affordable, rows, self.batch_size, MAX_STEPS[1])
        first_rows = _clip(FIRST_BUDGET / (row_cost * runs * 5), min(rows, MIN_ROWS), sample_rows)
        affordable = FIRST_BUDGET / (row_cost * first_rows * runs)
        first = min(_n_epochs(affordable, first_rows, self.batch_size, MAX_STEPS[0]), max(3, second // 3))
        return [(first_rows, first, survivors), (rows, second, survivors)]

    def _rank(
        self, model: ClamModel, scored: Tensor, min_fractions: Mapping[int, float]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Score the runs; return their order, and which have no missing or tiny cluster: these come first."""
        labels = model.assign(scored).cpu().numpy()
        counts = (labels[:, :, None] == np.arange(self.config.n_prototypes)).sum(axis=1)
        wanted = np.array([run.n_clusters for run in self.runs])
        found = (counts > 0).sum(axis=1)
        smallest = np.where(found < wanted, 0, np.where(counts > 0, counts, len(scored)).min(axis=1)) / len(scored)
        large_enough = smallest >= np.array([min_fractions[run.n_clusters] for run in self.runs])
        silhouette = silhouettes(model.to_memory_space(scored).cpu().numpy(), labels)
        loss = model.final_loss().cpu().numpy()
        for i, run in enumerate(self.runs):
            run.n_clusters_found, run.loss, run.silhouette = int(found[i]), float(loss[i]), float(silhouette[i])
        score = np.round(silhouette if self.select == "silhouette" else -loss, 6)
        return np.lexsort((np.arange(len(score)), -score, ~large_enough)), large_enough

    def _min_fractions(self, sample: Tensor, generator: Generator) -> dict[int, float]:
        """Return the smallest fraction of the rows that a cluster should have, for each number of clusters."""
        counts = sorted({run.n_clusters for run in self.runs})
        if self.min_cluster_size is not None:
            return dict.fromkeys(counts, self.min_cluster_size / len(sample))
        # Half of 1/K, since silhouettes favour a large cluster and a few outliers; less if k-means finds small ones.
        return {k: min(1.0 / (2 * k), 0.75 * _smallest_fraction(sample, k, generator)) for k in counts}

    def _selection_note(self, epochs: int, where: str, counts: Sequence[int]) -> str:
        run = next(run for run in self.runs if run.chosen)
        rule = "highest silhouette" if self.select == "silhouette" else "smallest loss"
        note = (
            f"of {len(self.runs)} runs of {epochs} epochs the one with the {rule} was selected: k = {run.n_clusters}, "
            f"init {run.init!r}, beta {run.beta:.4g}, learning rate {run.learning_rate:g}, mask rate "
            f"{run.mask_rate:g}, fill {run.fill!r} (silhouette {run.silhouette:.3f} on {where})"
        )
        if len(counts) > 1:
            note += f"; k was chosen from {counts[0]} to {counts[-1]} by that rule"
        return note


def batch_size_for(batch_size: int | Literal["auto"], rows: int) -> int:
    """Return the rows of a training step; "auto" is about a sixth of the data, between 32 and 512."""
    if batch_size == "auto":
        return min(rows, 1 << min(9, max(5, math.ceil(math.log2(max(rows / 6, 1))))))
    return min(rows, int(batch_size))


def check_sample_weight(sample_weight: npt.ArrayLike | None, x: Tensor) -> Tensor | None:
    """Return row weights as a tensor; raise an error unless there is one per row, none negative, not all zero."""
    if sample_weight is None:
        return None
    values = _to_floats("sample_weight", sample_weight)
    if values.shape != (len(x),):
        raise InputError(f"sample_weight.shape == {values.shape}, expected ({len(x)},): one weight for each row of X.")
    if not np.isfinite(values).all() or (values < 0).any() or not values.any():
        raise InputError("sample_weight must be finite, not negative, and not zero for all rows.")
    return torch.from_numpy(values).to(x.device)


def _cluster_counts(parameters: Mapping[str, Any], rows: int) -> list[int]:
    if parameters["n_clusters"] == "auto":
        return list(range(2, min(int(parameters["max_clusters"]), rows - 1) + 1)) or [1]
    check_n_clusters(parameters["n_clusters"], rows)
    return [int(parameters["n_clusters"])]


def _inits(parameters: Mapping[str, Any]) -> list[str]:
    """Return the initialisation of each restart."""
    restarts, init = int(parameters["n_restarts"]), parameters["init"]
    if not isinstance(init, str):
        return ["given"] * restarts
    if parameters["n_clusters"] == "auto":
        restarts = min(restarts, AUTO_RESTARTS)
    return list(islice(cycle(MIXED_INITS), restarts)) if init == "mixed" else [init] * restarts


def _betas(parameters: Mapping[str, Any], x: Tensor) -> list[float]:
    if isinstance(parameters["beta"], str):
        spread = _mean_distance(x, parameters["metric"])
        relative = RELATIVE_BETAS if parameters["n_clusters"] != "auto" else RELATIVE_BETAS[1::2]
        return [value / spread if spread > 0 else value for value in relative]
    betas = [float(beta) for beta in _as_list(parameters["beta"])]
    return [beta / 2.0 for beta in betas] if parameters["code_beta"] else betas


def _mean_distance(x: Tensor, metric: str) -> float:
    """Return the mean distance of the rows from their mean."""
    if metric == "cosine":
        unit = normalize(x, dim=1)
        return float(1.0 - (unit @ normalize(unit.mean(dim=0), dim=0)).mean())
    centred = x - x.mean(dim=0)
    return float((centred.abs() if metric == "manhattan" else centred.square()).sum(dim=1).mean())


def _whitening(x: Tensor) -> Tensor:
    """Return the symmetric square root of the precision matrix, from Ledoit and Wolf's shrunk covariance."""
    if len(x) == 1:  # no covariance
        return torch.eye(x.shape[1], device=x.device)
    covariance, _ = ledoit_wolf(x.cpu().numpy().astype(np.float64))
    values, vectors = np.linalg.eigh(covariance)
    root = vectors / np.sqrt(np.maximum(values, 1e-12)) @ vectors.T
    return torch.from_numpy(root.astype(np.float32)).to(x.device)


def _init_prototypes(init: Any, clusters: Sequence[int], x: Tensor, table: TableEncoder) -> Tensor | None:
    """Encode prototypes that were given as an array."""
    if isinstance(init, str):
        return None
    try:
        rows = as_table(init)
        encoded = table.transform(rows)
    except TableError as error:
        raise InputError(f"init cannot be used: {error}") from error
    if len(clusters) > 1 or rows.n_rows != clusters[0]:
        raise InputError(
            f"init has {rows.n_rows} rows; it needs one row per cluster, and n_clusters as an integer "
            f"(now {clusters[0] if len(clusters) == 1 else 'auto'!r})."
        )
    return torch.from_numpy(encoded).to(x.device)


def _prototype_weights(weights: Any, clusters: Sequence[int], x: Tensor) -> Tensor | None:
    """Return epsilon of Eq. 10 if it was given as an array."""
    if weights is None or isinstance(weights, str):
        return None
    values = _to_floats("prototype_weights", weights)
    if values.shape != (max(clusters),) or not ((values > 0) & np.isfinite(values)).all():
        raise InputError(f"prototype_weights={weights!r} must be {max(clusters)} positive numbers, one per cluster.")
    return torch.from_numpy(values).to(x.device)


def _initial_prototypes(sample: Tensor, init: str, runs: int, clusters: int, generator: Generator) -> Tensor:
    if init == "normal":
        return normal_start(runs, clusters, sample.shape[1], generator)
    if init == "data":
        return data_start(sample, runs, clusters, generator)
    if init == "k-means":
        return k_means_start(sample, runs, clusters, generator)
    if init == "spread":
        powers = Counter(islice(cycle(SPREAD_POWERS), runs))
        starts = [spread_start(sample, count, clusters, generator, power=power) for power, count in powers.items()]
        return torch.cat(starts)
    return spread_start(sample, runs, clusters, generator)


def _smallest_fraction(sample: Tensor, clusters: int, generator: Generator) -> float:
    """Return the fraction of the rows in the smallest cluster of k-means."""
    centres = k_means_start(sample, K_MEANS_RESTARTS, clusters, generator)
    scores = centres.square().sum(dim=2, keepdim=True) - 2.0 * centres @ sample.T
    nearest, labels = scores.min(dim=1)
    sizes = torch.bincount(labels[int(nearest.sum(dim=1).argmin())], minlength=clusters)
    return float(sizes[sizes > 0].min()) / len(sample)


def _cluster_sizes(model: ClamModel, x: Tensor) -> Tensor:
    return torch.bincount(model.assign(x)[0], minlength=model.config.n_prototypes)


def _n_epochs(affordable: float, rows: int, batch_size: int, max_steps: int) -> int:
    """Return the epochs within the budget, between 2 and 80, and within the number of steps."""
    return _clip(min(affordable, max_steps * batch_size / rows), 2, 80)


def _n_steps(rows: int, epochs: int, batch_size: int) -> int:
    return epochs * math.ceil(rows / batch_size)


def _clip(value: float, low: int, high: int) -> int:
    return int(min(max(value, low), high))


def _offset_callback(callback: Callback, done: int, total: int) -> Callback:
    """Report the progress of one round as part of all rounds."""

    def report(progress: Progress) -> None:
        seconds = progress.seconds * (done + progress.step) / progress.step
        callback(Progress(done + progress.step, total, progress.loss, seconds))

    return report


def _as_list(values: Any) -> list[Any]:
    """Return the values of a parameter that takes one or several."""
    return [values] if isinstance(values, str) or np.ndim(values) == 0 else list(values)


def _to_floats(name: str, values: Any) -> npt.NDArray[np.float32]:
    try:
        return np.asarray(values, dtype=np.float32)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}={values!r} must be an array of numbers.") from error
