"""What ClAM's figures say about real data: sensitivity (Figures 7 to 10), entropies (14), evolving prototypes (6).

Each parameter is varied alone, around the tabled setting of the data set (Table 6 of the paper); all settings of one
data set and one T are trained as one tensor program.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from benchmarks.quality.clam_suite import TABLED
from benchmarks.quality.clam_toys import new_record
from benchmarks.quality.records import Floats, LabelledTable, Record, Setting
from coterie.clam.estimator import ClAM
from coterie.clam.model import ClamModel
from coterie.clam.search import Run, build, make_plan, search
from coterie.progress import Progress
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import as_table
from coterie.training.batches import point_batches
from coterie.training.loop import train

Flags: TypeAlias = npt.NDArray[np.bool_]

SWEEP_DATA: Final = ("zoo", "ecoli", "movlib", "ctg", "segment")
SWEEP_STEPS: Final = (2, 5, 10, 15)
RESTARTS: Final = 5
BETA_FACTORS: Final = (1 / 64, 1 / 16, 1 / 4, 1.0, 4.0, 16.0, 64.0)
RATES: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
MASK_RATES: Final = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
FILLS: Final = ("min", "mean", "max")
AXES: Final = MappingProxyType(
    {"beta": "inverse temperature β", "rate": "learning rate", "mask_rate": "mask rate", "fill": "fill value"}
)
"""Name of a parameter in a run, and in words."""
ENTROPY_DATA: Final = ("zoo", "yale", "ecoli", "movlib", "micepe", "usps", "ctg", "segment", "fmnist-10k")
EPOCHS_SHOWN: Final = (0, 5, 10, 20, 50, 100)
IMAGES: Final[MappingProxyType[str, Any]] = MappingProxyType(
    {"beta": 0.005, "steps": 10, "learning_rate": 0.01, "mask_rate": 0.1, "fill": "mean", "batch_size": 256}
)
"""Ours for Figure 6. With the tabled fill, the largest value, pixels that are hardly ever lit are filled with up to 99
standard deviations, and all images end with two prototypes, at this beta and at the tabled one."""


@dataclass(frozen=True)
class Sweep:
    """Scores of one data set: for each T and parameter, the values tried and what each restart reached."""

    table: LabelledTable
    kmeans: float
    base: dict[str, Any]
    silhouette: dict[tuple[int, str], Floats]
    """(values, restarts) for each (T, parameter)."""
    full: dict[tuple[int, str], Flags]
    """Whether each of these kept all clusters."""
    values: dict[str, tuple[Any, ...]]
    seconds: float

    def best(self, steps: int, axis: str) -> tuple[Floats, Flags]:
        """Best silhouette of each value, and whether that run kept all clusters; the paper let them end empty."""
        score, full = self.silhouette[steps, axis], self.full[steps, axis]
        winner = score.argmax(axis=1)[:, None]
        return np.take_along_axis(score, winner, 1)[:, 0], np.take_along_axis(full, winner, 1)[:, 0]

    def median(self, steps: int, axis: str) -> Floats:
        """Median silhouette of each value; a run that puts all rows into one cluster counts as 0."""
        medians: Floats = np.median(np.maximum(self.silhouette[steps, axis], 0.0), axis=1)
        return medians

    def records(self, seed: int) -> Iterator[Record]:
        """One line for each point of the figures."""
        for (steps, axis), scores in self.silhouette.items():
            best, whole = self.best(steps, axis)
            for index, value in enumerate(self.values[axis]):
                settings: dict[str, Setting] = {**self.base, "steps": steps, "varied": axis, axis: value}
                metrics = {
                    "silhouette_best": round(float(best[index]), 6),
                    "silhouette_median": round(float(self.median(steps, axis)[index]), 6),
                    "best_keeps_all_clusters": int(whole[index]),
                    "runs_that_keep_all_clusters": int(self.full[steps, axis][index].sum()),
                    "runs": scores.shape[1],
                    "silhouette_kmeans": round(self.kmeans, 6),
                }
                seconds = self.seconds / sum(len(s) for s in self.silhouette.values())
                yield new_record(self.table.name, "clam-sensitivity", seed, settings, metrics, seconds, self.table)


def sweep(table: LabelledTable, seed: int) -> Sweep:
    """Vary each parameter alone, for every T."""
    began = time.perf_counter()
    tabled = TABLED[table.name]
    base = {
        "beta": tabled["beta"] / 2.0,  # the table has the authors' code's, which is twice the paper's
        "rate": tabled["learning_rate"],
        "mask_rate": tabled["mask_rate"],
        "fill": tabled["fill"],
    }
    values: dict[str, tuple[Any, ...]] = {
        "beta": tuple(base["beta"] * factor for factor in BETA_FACTORS),
        "rate": RATES,
        "mask_rate": MASK_RATES,
        "fill": FILLS,
    }
    settings = [(axis, base | {axis: value}) for axis, tried in values.items() for value in tried]
    runs = tuple(
        Run(n_clusters=table.n_clusters, start="normal", **setting) for _, setting in settings for _ in range(RESTARTS)
    )
    varied = np.array([axis for axis, _ in settings])
    silhouette, full = {}, {}
    for steps in SWEEP_STEPS:
        score, found = _train(table, runs, steps, seed)
        for axis in values:
            silhouette[steps, axis] = score.reshape(-1, RESTARTS)[varied == axis]
            full[steps, axis] = (found == table.n_clusters).reshape(-1, RESTARTS)[varied == axis]
    kmeans = KMeans(table.n_clusters, n_init=50, random_state=seed).fit_predict(table.X)
    reference = table.silhouette(kmeans)
    return Sweep(
        table, np.nan if reference is None else reference, base, silhouette, full, values, time.perf_counter() - began
    )


def _train(table: LabelledTable, runs: Sequence[Run], steps: int, seed: int) -> tuple[Floats, Floats]:
    x, encoder = _encoded(table)
    batch_size = 32 if len(x) < 1000 else 128
    estimator = ClAM(
        table.n_clusters,
        steps=steps,
        epochs=max(30, 600 * batch_size // len(x)),
        batch_size=batch_size,
        min_cluster_size=0,
        halving=False,
        n_restarts=1,
        beta=1.0,
    )
    plan = make_plan(estimator.get_params(deep=False), x, encoder)
    plan = replace(plan, runs=tuple(runs), model=replace(plan.model, n_runs=len(runs)))
    found = search(x, plan, generator=torch.Generator().manual_seed(seed))
    score = np.array([run["silhouette"] for run in found.runs], dtype=np.float64)
    return score, np.array([run["found"] for run in found.runs], dtype=np.float64)


def entropies(table: LabelledTable, seed: int) -> Iterator[tuple[Floats, Record]]:
    """Entropy of every row (Eq. 13) over its largest value, by default and with the tabled setting."""
    for method, model in _entropy_models(table, seed).items():
        began = time.perf_counter()
        entropy = model.fit(table.X).entropy(table.X).astype(np.float64)
        relative = entropy / np.log(table.n_clusters)
        metrics = {
            "silhouette": round(float(model.silhouette_), 6),
            "n_clusters": model.n_clusters_,
            "entropy_mean": round(float(entropy.mean()), 6),
            "entropy_median": round(float(np.median(entropy)), 6),
            "share_below_tenth_of_largest": round(float((relative < 0.1).mean()), 6),
        }
        settings: dict[str, Setting] = {"beta": model.beta_, "steps": model.steps, "scaling": model.scaling}
        seconds = time.perf_counter() - began
        yield relative, new_record(table.name, method, seed, settings, metrics, seconds, table)


def _entropy_models(table: LabelledTable, seed: int) -> dict[str, ClAM]:
    models = {"clam-entropy-default": ClAM(table.n_clusters, random_state=seed)}
    if table.name in TABLED:
        # Ten restarts, but larger batches and fewer epochs than tabled: this is a picture, not Table 1.
        setting = TABLED[table.name] | {"batch_size": 32 if len(table.X) < 1000 else 128}
        models["clam-entropy-tabled"] = ClAM(
            table.n_clusters,
            code_beta=True,
            scaling="none",
            init="normal",
            n_restarts=10,
            min_cluster_size=0,
            halving=False,
            epochs=max(50, min(200, 60_000 // len(table.X))),
            random_state=seed,
            **setting,
        )
    return models


def prototype_history(table: LabelledTable, seed: int) -> tuple[Floats, Record]:
    """Prototypes (epochs shown, K, D) of one run on images, and its loss."""
    began = time.perf_counter()
    x, encoder = _encoded(table)
    generator = torch.Generator().manual_seed(seed)
    epochs = max(EPOCHS_SHOWN)
    estimator = ClAM(table.n_clusters, n_restarts=1, init="normal", plateau=True, **IMAGES)
    plan = make_plan(estimator.get_params(deep=False), x, encoder)
    model = build(x, plan, generator)
    shown = [_pixels(model)]
    steps_of_epoch = -(-len(x) // plan.batch_size)

    def keep(progress: Progress) -> None:
        epoch, rest = divmod(progress.step, steps_of_epoch)
        if rest == 0 and epoch in EPOCHS_SHOWN:
            shown.append(_pixels(model))

    train(
        model,
        point_batches(x, batch_size=plan.batch_size, epochs=epochs, generator=generator),
        replace(plan.train, steps=epochs * steps_of_epoch),
        generator=generator,
        on_log=keep,
    )
    losses = [float(entry[0]) / steps_of_epoch for entry in model.history]
    metrics: dict[str, Any] = {f"loss_epoch_{epoch}": round(losses[epoch - 1], 6) for epoch in EPOCHS_SHOWN if epoch}
    metrics["n_clusters"] = len(np.unique(model.assign(x).numpy()))
    settings: dict[str, Setting] = {**IMAGES, "epochs": epochs}
    seconds = time.perf_counter() - began
    return np.stack(shown), new_record(table.name, "clam-prototypes", seed, settings, metrics, seconds, table)


def _pixels(model: ClamModel) -> Floats:
    pixels: Floats = model.prototypes[0].detach().clone().numpy()
    return pixels


def _encoded(table: LabelledTable) -> tuple[Tensor, TableEncoder]:
    rows = as_table(table.X)
    encoder = TableEncoder("none").fit(rows)
    return torch.from_numpy(encoder.transform(rows)), encoder
