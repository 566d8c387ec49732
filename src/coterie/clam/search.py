"""Many runs of ClAM as one tensor program: plan them, train them, keep the best.

Restarts, numbers of clusters and every hyper-parameter that was given several values make the runs. With halving, all
runs are trained briefly (on a sample of the rows where there are many) and only the better ones to the end.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice, product
from numbers import Integral, Real
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
from coterie.progress import Progress
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import as_table
from coterie.training.batches import point_batches
from coterie.training.loop import TrainConfig, train

Fill = Literal["mean", "min", "max"]
Select = Literal["silhouette", "loss"]

STARTS = ("k-means", "k-means++", "data", "normal", "spread")
SPREAD_POWERS = (2.0, 4.0, 16.0, 64.0)
"""Exponents that the "spread" starts take in turn, from nearly k-means++ to nearly farthest-point."""
SAMPLE_ROWS = 20_000
"""Rows that starts are drawn from; the first round of halving sees no more."""
FEWEST_ROWS = 2_500
"""Rows that the first round of halving sees at least."""
SELECTION_ROWS = 2_500
"""Rows on which silhouettes are compared."""
K_MEANS_STARTS = 8
"""Starts of the k-means that tells how small a cluster may be."""
REVIVALS = 8
"""Rounds in which prototypes that own nothing are moved."""
FIRST_BUDGET, SECOND_BUDGET = 1.2e8, 2.0e8
"""Cells (rows x prototypes x runs x steps x epochs) of the two rounds; about a second each."""
MOST_STEPS = (150, 450)
"""Optimiser steps of the two rounds, after which more change little."""


@dataclass(frozen=True, slots=True)
class Run:
    """One setting to train."""

    n_clusters: int
    start: str
    beta: float
    rate: float
    mask_rate: float
    fill: Fill


@dataclass(frozen=True, slots=True)
class Plan:
    """All that the search needs to know."""

    runs: tuple[Run, ...]
    model: ClamConfig
    epochs: int | None
    batch_size: int
    halving: bool
    select: Select
    min_cluster_size: int | None
    """None for half of an equal share, or about what k-means has if that is less; 0 lets prototypes own nothing."""
    train: TrainConfig
    start: Tensor | None = None
    """Prototypes (K, D) that all runs begin at."""
    prototype_weights: Tensor | None = None
    """Relative attraction (K,) of the prototypes."""
    whitening: Tensor | None = None
    """Matrix (D, D) that makes Mahalanobis distances Euclidean."""


@dataclass(frozen=True, slots=True)
class Scores:
    """How the runs compare."""

    silhouette: np.ndarray
    loss: np.ndarray
    found: np.ndarray
    large_enough: np.ndarray

    def order(self, select: Select) -> np.ndarray:
        """Runs from best to worst, those with a missing or tiny cluster last; ties go to the earlier run."""
        merit = np.round(self.silhouette if select == "silhouette" else -self.loss, 6)
        return np.lexsort((np.arange(len(merit)), -merit, ~self.large_enough))


@dataclass(frozen=True, slots=True)
class Found:
    """The runs that were trained to the end, which of them was chosen, and the account of all."""

    finalists: ClamModel
    chosen: int
    runs: list[dict[str, object]]
    notes: tuple[str, ...]


def search(
    x: Tensor,
    plan: Plan,
    *,
    generator: Generator,
    weight: Tensor | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Found:
    """Train the planned runs on the rows of x and return the best by the plan's rule."""
    notes = []
    order = torch.randperm(len(x), generator=generator, device=x.device)
    sample = x if len(x) <= SAMPLE_ROWS else x[order[:SAMPLE_ROWS]]
    judged = x if len(x) <= SELECTION_ROWS else x[order[:SELECTION_ROWS]]
    model = build(sample, plan, generator)
    floors = _size_floors(model.enter(sample), plan, generator)
    rounds = _rounds(len(x), len(sample), plan)
    total = sum(_steps(rows, epochs, plan.batch_size) for rows, epochs, _ in rounds)
    done = 0
    kept = torch.arange(len(plan.runs), device=x.device)
    for number, (rows, epochs, survivors) in enumerate(rounds):
        last = number == len(rounds) - 1
        # All rows, or those that the permutation has first.
        seen = x if rows == len(x) else x[order[:rows]]
        seen_weight = weight if weight is None or rows == len(x) else weight[order[:rows]]
        steps = _steps(rows, epochs, plan.batch_size)
        train(
            model,
            point_batches(seen, batch_size=plan.batch_size, epochs=epochs, generator=generator, weight=seen_weight),
            replace(plan.train, steps=steps),
            generator=generator,
            on_log=None if on_progress is None else _shifted(on_progress, done, total),
        )
        done += steps
        model.restore_best()
        if not last:
            scores = _compare(model, plan, [plan.runs[i] for i in kept.tolist()], judged, floors)
            best = torch.from_numpy(scores.order(plan.select)[:survivors].copy()).to(x.device).sort().values
            where = f"{rows:,} of {len(x):,} rows" if rows < len(x) else "all rows"
            notes.append(
                f"{len(kept)} runs were trained for {epochs} epochs on {where}; "
                f"the best {len(best)} of them went on to the end"
            )
            model, kept = model.take(best), kept[best]
    runs = [plan.runs[i] for i in kept.tolist()]
    scores = _compare(model, plan, runs, judged, floors)
    chosen = int(scores.order(plan.select)[0])
    rows, epochs, _ = rounds[-1]
    notes.append(_verdict(len(runs), epochs, chosen, runs, scores, plan, len(judged), len(x)))
    account = [_describe(run, scores, i, chosen=i == chosen) for i, run in enumerate(runs)]
    return Found(model, chosen, account, tuple(notes))


def build(sample: Tensor, plan: Plan, generator: Generator) -> ClamModel:
    """A model with one run for each planned one, its prototypes at their starts."""
    model = ClamModel(plan.model).to(sample.device)
    if plan.whitening is not None:
        model.whitening.copy_(plan.whitening)
    if plan.model.metric != "cosine":
        model.centre.copy_(sample.mean(dim=0))
    sample = model.enter(sample)
    fills = {"mean": sample.mean(dim=0), "min": sample.amin(dim=0), "max": sample.amax(dim=0)}
    with torch.no_grad():
        for name, values in (("beta", "beta"), ("rate", "rate"), ("mask_rate", "mask_rate")):
            getattr(model, name).copy_(torch.tensor([getattr(run, values) for run in plan.runs]))
        model.fill.copy_(torch.stack([fills[run.fill] for run in plan.runs]))
        # Columns are centred when they are encoded: what is left of their means is rounding.
        model.fill[model.fill.abs() < 1e-6] = 0.0
        sizes = torch.tensor([run.n_clusters for run in plan.runs], device=sample.device)
        model.present.copy_(torch.arange(plan.model.n_prototypes, device=sample.device) < sizes.unsqueeze(1))
        if plan.prototype_weights is not None:
            model.log_weights.copy_(plan.prototype_weights.log().expand_as(model.log_weights))
        for start, clusters in dict.fromkeys((run.start, run.n_clusters) for run in plan.runs):
            members = [i for i, run in enumerate(plan.runs) if (run.start, run.n_clusters) == (start, clusters)]
            centres = (
                model.enter(plan.start).expand(len(members), -1, -1)
                if plan.start is not None
                else _starts(sample, start, len(members), clusters, generator)
            )
            model.prototypes[members, :clusters] = centres
    return model


def _starts(sample: Tensor, start: str, runs: int, clusters: int, generator: Generator) -> Tensor:
    if start == "normal":
        return normal_start(runs, clusters, sample.shape[1], generator)
    if start == "data":
        return data_start(sample, runs, clusters, generator)
    if start == "spread":
        shares = [len(range(i, runs, len(SPREAD_POWERS))) for i in range(len(SPREAD_POWERS))]
        drawn = [
            spread_start(sample, share, clusters, generator, power=power)
            for share, power in zip(shares, SPREAD_POWERS, strict=True)
            if share
        ]
        return torch.cat(drawn)
    if start == "k-means":
        return k_means_start(sample, runs, clusters, generator)
    return spread_start(sample, runs, clusters, generator)


def _rounds(rows: int, sample_rows: int, plan: Plan) -> list[tuple[int, int, int]]:
    """Rows, epochs and survivors of each round of training."""
    runs = len(plan.runs)
    # A step costs K cells a row, and the products with the features about as much as one step per hundred of them.
    row_cost = plan.model.n_prototypes * (plan.model.steps + plan.model.n_features / 100)
    if not plan.halving or runs < 8:
        affordable = (FIRST_BUDGET + SECOND_BUDGET) / (row_cost * rows * runs)
        return [(rows, plan.epochs or _epochs(affordable, rows, plan.batch_size, sum(MOST_STEPS)), runs)]
    survivors = _clip(SECOND_BUDGET / (row_cost * rows * 5), 2, runs // 4)
    affordable = SECOND_BUDGET / (row_cost * rows * survivors)
    second = plan.epochs or _epochs(affordable, rows, plan.batch_size, MOST_STEPS[1])
    first_rows = _clip(FIRST_BUDGET / (row_cost * runs * 5), min(rows, FEWEST_ROWS), sample_rows)
    affordable = FIRST_BUDGET / (row_cost * first_rows * runs)
    first = min(_epochs(affordable, first_rows, plan.batch_size, MOST_STEPS[0]), max(3, second // 3))
    return [(first_rows, first, survivors), (rows, second, survivors)]


def _epochs(affordable: float, rows: int, batch_size: int, most_steps: int) -> int:
    """Epochs that the budget pays for, at least two and at most 80, and no more steps than learning needs."""
    return _clip(min(affordable, most_steps * batch_size / rows), 2, 80)


def _clip(value: float, low: int, high: int) -> int:
    return int(min(max(value, low), high))


def _steps(rows: int, epochs: int, batch_size: int) -> int:
    return epochs * math.ceil(rows / batch_size)


def _shifted(on_progress: Callable[[Progress], None], done: int, total: int) -> Callable[[Progress], None]:
    """Report one round's progress as part of all rounds."""

    def report(progress: Progress) -> None:
        seconds = progress.seconds * (done + progress.step) / progress.step
        on_progress(Progress(done + progress.step, total, progress.loss, seconds))

    return report


def _compare(model: ClamModel, plan: Plan, runs: Sequence[Run], judged: Tensor, floors: Mapping[int, float]) -> Scores:
    labels = model.assign(judged).cpu().numpy()
    counts = (labels[:, :, None] == np.arange(plan.model.n_prototypes)).sum(axis=1)
    wanted = np.array([run.n_clusters for run in runs])
    found = (counts > 0).sum(axis=1)
    smallest = np.where(found < wanted, 0, np.where(counts > 0, counts, len(judged)).min(axis=1)) / len(judged)
    return Scores(
        silhouettes(model.enter(judged).cpu().numpy(), labels),
        model.final_loss().cpu().numpy(),
        found,
        smallest >= np.array([floors[run.n_clusters] for run in runs]),
    )


def _size_floors(sample: Tensor, plan: Plan, generator: Generator) -> dict[int, float]:
    """Smallest share of the rows that a cluster should have, for each number of clusters.

    By default half of an equal share, since silhouettes favour one large cluster and a few outliers; but no more
    than three quarters of the smallest cluster of k-means, since then small clusters are really there.
    """
    counts = sorted({run.n_clusters for run in plan.runs})
    if plan.min_cluster_size is not None:
        return dict.fromkeys(counts, plan.min_cluster_size / len(sample))
    return {
        clusters: min(1.0 / (2 * clusters), 0.75 * _smallest_share(sample, clusters, generator)) for clusters in counts
    }


def _smallest_share(sample: Tensor, clusters: int, generator: Generator) -> float:
    centres = k_means_start(sample, K_MEANS_STARTS, clusters, generator)
    scores = centres.square().sum(dim=2, keepdim=True) - 2.0 * centres @ sample.T
    nearest, labels = scores.min(dim=1)
    sizes = torch.bincount(labels[int(nearest.sum(dim=1).argmin())], minlength=clusters)
    return float(sizes[sizes > 0].min()) / len(sample)


def _verdict(
    trained: int, epochs: int, chosen: int, runs: Sequence[Run], scores: Scores, plan: Plan, judged: int, rows: int
) -> str:
    run = runs[chosen]
    where = f"{judged:,} of {rows:,} rows" if judged < rows else "all rows"
    rule = "highest silhouette" if plan.select == "silhouette" else "smallest loss"
    text = (
        f"of {trained} runs of {epochs} epochs the one with the {rule} was taken: k = {run.n_clusters}, "
        f"start {run.start!r}, beta {run.beta:.4g}, rate {run.rate:g}, mask rate {run.mask_rate:g}, fill {run.fill!r} "
        f"(silhouette {scores.silhouette[chosen]:.3f} on {where})"
    )
    ks = sorted({run.n_clusters for run in plan.runs})
    if len(ks) > 1:
        text += f"; k was chosen from {ks[0]} to {ks[-1]} by that rule"
    if not scores.large_enough[chosen]:
        text += "; no run kept every cluster above the smallest size that was asked for"
    return text


def _describe(run: Run, scores: Scores, index: int, *, chosen: bool) -> dict[str, object]:
    return {
        "n_clusters": run.n_clusters,
        "found": int(scores.found[index]),
        "start": run.start,
        "beta": run.beta,
        "rate": run.rate,
        "mask_rate": run.mask_rate,
        "fill": run.fill,
        "loss": float(scores.loss[index]),
        "silhouette": float(scores.silhouette[index]),
        "chosen": chosen,
    }


def grid(
    clusters: Sequence[int],
    starts: Sequence[str],
    betas: Sequence[float],
    rates: Sequence[float],
    mask_rates: Sequence[float],
    fills: Sequence[Fill],
) -> tuple[Run, ...]:
    """Every combination, as runs."""
    return tuple(Run(*values) for values in product(clusters, starts, betas, rates, mask_rates, fills))


@torch.no_grad()
def settle(found: Found, x: Tensor, plan: Plan) -> tuple[ClamModel, tuple[str, ...]]:
    """The chosen run as a model of its own, its clusters ordered by size; where none may be empty, none is.

    A dead prototype is put on the row that ends farthest from its own, and beta is doubled, since a large enough one
    gives every prototype at least the rows on top of it.
    """
    notes: tuple[str, ...] = ()
    model = found.finalists.take(torch.tensor([found.chosen], device=x.device))
    wanted = int(model.present[0].sum())
    sizes = _sizes(model, x)
    tries = 0
    while plan.min_cluster_size != 0 and (sizes > 0).sum() < wanted and tries < REVIVALS:
        tries += 1
        for dead in torch.nonzero(model.present[0] & (sizes == 0)).flatten().tolist():
            distances = torch.cat([model.final_distances(block)[0] for block in model.blocks(x)])
            model.prototypes[0, dead] = model.enter(x[distances.amin(dim=1).argmax()].unsqueeze(0))[0]
        model.beta *= 2.0
        sizes = _sizes(model, x)
    alive = int((sizes > 0).sum())
    if tries:
        notes = (f"prototypes that owned no row were put on rows far from the others, in {tries} rounds",)
    if alive < wanted:
        notes += (f"{wanted - alive} of {wanted} prototypes own no row and are not counted as clusters",)
    order = torch.argsort(sizes, descending=True, stable=True).unsqueeze(0)
    ordered = model.take(torch.zeros(1, dtype=torch.long, device=x.device), order)
    ordered.occupied.copy_(torch.arange(len(sizes), device=x.device) < alive)
    return ordered, notes


def _sizes(model: ClamModel, x: Tensor) -> Tensor:
    return torch.bincount(model.assign(x)[0], minlength=model.config.n_prototypes)


RELATIVE_BETAS = (1.0, 4.0, 16.0, 64.0)
"""What ``beta="auto"`` tries, over the mean distance of the rows from their centre."""
MIXED_STARTS = ("k-means", "k-means++", "data", "k-means", "normal", "k-means++", "k-means", "data")
"""What ``init="mixed"`` takes in turn."""
CHOICES = {
    "select": ("silhouette", "loss"),
    "objective": ("masked", "unmasked"),
    "metric": ("euclidean", "cosine", "manhattan", "mahalanobis"),
}


def make_plan(parameters: Mapping[str, Any], x: Tensor, table: TableEncoder) -> Plan:
    """Check the parameters against the rows and lay out all runs."""
    for name, known in CHOICES.items():
        _choice(name, parameters[name], known)
    clusters = _cluster_counts(parameters, len(x))
    rows, features = x.shape
    fills = parameters["fill"]
    fills = list(fills) if isinstance(fills, Sequence) and not isinstance(fills, str) else [fills]
    for fill in fills or [()]:
        _choice("fill", fill, ("mean", "min", "max"))
    metric = parameters["metric"]
    whitening = _whitening(x) if metric == "mahalanobis" else None
    weights = parameters["prototype_weights"]
    runs = grid(
        clusters,
        _checked_starts(parameters),
        _betas(parameters, x if whitening is None else x @ whitening),
        _numbers("learning_rate", parameters["learning_rate"], low=0.0),
        _numbers("mask_rate", parameters["mask_rate"], low=0.0, high=1.0),
        fills,
    )
    learned = isinstance(weights, str)
    if parameters["legacy_mask"] and int(features * min(run.mask_rate for run in runs)) < 1:
        raise InputError(
            f"legacy_mask hides int({features} x mask_rate) features, which is none: raise mask_rate, or turn it off."
        )
    return Plan(
        runs=runs,
        model=ClamConfig(
            n_features=features,
            n_prototypes=max(clusters),
            n_runs=len(runs),
            steps=_whole("steps", parameters["steps"]),
            metric=metric,
            objective=parameters["objective"],
            weighting="equal" if weights is None else "learned" if learned else "given",
            rows_per_mask=1 if parameters["legacy_mask"] else 32,
            legacy_mask=parameters["legacy_mask"],
            plateau=parameters["plateau"],
        ),
        epochs=None if parameters["epochs"] == "auto" else _whole("epochs", parameters["epochs"]),
        batch_size=batch_size_for(parameters["batch_size"], rows),
        halving=parameters["halving"],
        select=parameters["select"],
        min_cluster_size=_minimum(parameters["min_cluster_size"]),
        train=TrainConfig(
            steps=0,
            learning_rate=1.0,
            schedule="constant" if parameters["plateau"] else "cosine",
            betas=(0.9, 0.999) if parameters["plateau"] else (0.9, 0.99),
            epsilon=1e-7,
        ),
        start=_given_start(parameters["init"], clusters, x, table),
        prototype_weights=_given_weights(weights, clusters, x),
        whitening=whitening,
    )


def batch_size_for(setting: Any, rows: int) -> int:
    """Rows of a training step: by default about a sixth of the data, from 32 to 512."""
    if setting == "auto":
        return min(rows, 1 << min(9, max(5, math.ceil(math.log2(max(rows / 6, 1))))))
    return min(rows, _whole("batch_size", setting))


def check_weight(sample_weight: npt.ArrayLike | None, x: Tensor) -> Tensor | None:
    """Row weights as a tensor; they must be as many as rows, not negative, and not all zero."""
    if sample_weight is None:
        return None
    values = _floats("sample_weight", sample_weight)
    if values.shape != (len(x),):
        raise InputError(f"sample_weight.shape == {values.shape}, expected ({len(x)},): one weight for each row of X.")
    if not np.isfinite(values).all() or (values < 0).any() or not values.any():
        raise InputError("sample_weight has values that are negative, not finite, or all zero. Give weights from 0 up.")
    return torch.from_numpy(values).to(x.device)


def _cluster_counts(parameters: Mapping[str, Any], rows: int) -> list[int]:
    setting = parameters["n_clusters"]
    if setting == "auto":
        largest = _whole("max_clusters", parameters["max_clusters"])
        return list(range(2, min(largest, rows - 1) + 1)) or [1]
    clusters = _whole("n_clusters", setting)
    if clusters > rows:
        raise InputError(f"n_samples={rows} should be >= n_clusters={clusters}: ask for fewer clusters.")
    return [clusters]


def _checked_starts(parameters: Mapping[str, Any]) -> list[str]:
    restarts, init = _whole("n_restarts", parameters["n_restarts"]), parameters["init"]
    if not isinstance(init, str):
        return ["given"] * restarts
    _choice("init", init, ("mixed", *STARTS))
    if parameters["n_clusters"] == "auto":  # many k share the work
        restarts = min(restarts, 4)
    return list(islice(cycle(MIXED_STARTS), restarts)) if init == "mixed" else [init] * restarts


def _betas(parameters: Mapping[str, Any], x: Tensor) -> list[float]:
    if isinstance(parameters["beta"], str):
        _choice("beta", parameters["beta"], ("auto",))
        spread = _mean_distance(x, parameters["metric"])
        relative = RELATIVE_BETAS if parameters["n_clusters"] != "auto" else RELATIVE_BETAS[1::2]
        return [value / spread if spread > 0 else value for value in relative]
    betas = _numbers("beta", parameters["beta"], low=0.0)
    return [beta / 2.0 for beta in betas] if parameters["code_beta"] else betas


def _mean_distance(x: Tensor, metric: str) -> float:
    if metric == "cosine":
        unit = normalize(x, dim=1)
        return float(1.0 - (unit @ normalize(unit.mean(dim=0), dim=0)).mean())
    centred = x - x.mean(dim=0)
    return float((centred.abs() if metric == "manhattan" else centred.square()).sum(dim=1).mean())


def _whitening(x: Tensor) -> Tensor:
    """Symmetric square root of the precision of the rows, by Ledoit and Wolf's shrunk covariance."""
    if len(x) == 1:  # which has no covariance
        return torch.eye(x.shape[1], device=x.device)
    covariance, _ = ledoit_wolf(x.cpu().numpy().astype(np.float64))
    values, vectors = np.linalg.eigh(covariance)
    root = vectors / np.sqrt(np.maximum(values, 1e-12)) @ vectors.T
    return torch.from_numpy(root.astype(np.float32)).to(x.device)


def _given_start(init: Any, clusters: Sequence[int], x: Tensor, table: TableEncoder) -> Tensor | None:
    if isinstance(init, str):
        return None
    try:
        start = as_table(init)
        encoded = table.transform(start)
    except TableError as error:
        raise InputError(f"init cannot be used: {error}") from error
    if len(clusters) > 1 or start.n_rows != clusters[0]:
        raise InputError(
            f"init has {start.n_rows} rows; it needs one for each cluster, and a number for n_clusters "
            f"(now {clusters[0] if len(clusters) == 1 else 'auto'!r})."
        )
    return torch.from_numpy(encoded).to(x.device)


def _given_weights(weights: Any, clusters: Sequence[int], x: Tensor) -> Tensor | None:
    if weights is None:
        return None
    if isinstance(weights, str):
        _choice("prototype_weights", weights, ("learned",))
        return None
    values = _floats("prototype_weights", weights)
    if values.shape != (max(clusters),) or not ((values > 0) & np.isfinite(values)).all():
        raise InputError(f"prototype_weights must be {max(clusters)} positive numbers, one a cluster; got {weights!r}.")
    return torch.from_numpy(values).to(x.device)


def _floats(name: str, values: Any) -> npt.NDArray[np.float32]:
    try:
        return np.asarray(values, dtype=np.float32)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} must be numbers; got {values!r}.") from error


def _choice(name: str, value: Any, known: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}.")


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name} must be a whole number from 1 up; got {value!r}.")
    return int(value)


def _minimum(value: Any) -> int | None:
    if value == "auto":
        return None
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise InputError(f"min_cluster_size must be 'auto' or a whole number from 0 up; got {value!r}.")
    return int(value)


def _numbers(name: str, values: Any, *, low: float, high: float = math.inf) -> list[float]:
    numbers = list(values) if isinstance(values, Iterable) else [values]
    if not numbers or not all(isinstance(number, Real) and low < float(number) < high for number in numbers):
        upper = "" if math.isinf(high) else f" and below {high:g}"
        raise InputError(f"{name} must be one or several numbers above {low:g}{upper}; got {values!r}.")
    return [float(number) for number in numbers]
