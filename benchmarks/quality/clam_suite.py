"""ClAM on the data of its paper's Tables 1 and 9, with its ablation, its weighted variant and its published settings.

    python -m benchmarks.quality.clam_suite --data zoo,yale --methods clam,clam-faithful

One search per data set and method trains a whole grid as tensors; three rules then choose from the same runs:
``silhouette`` (the paper's Table 1; clusters may end empty), ``silhouette-full`` (only runs that fill every cluster)
and ``loss`` (the paper's appendix B.1). What is in the results file already is not run again.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from benchmarks.quality import clam_data
from benchmarks.quality.records import Experiment, LabelledTable, Labels, Results, Setting
from coterie.base import one_thread
from coterie.clam.estimator import ClAM
from coterie.clam.search import make_plan, search
from coterie.metrics import silhouettes
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import as_table

SUITE: Final = "clam"
DEFAULT_OUT: Final = Path("benchmarks/results/clam.jsonl")
RULES: Final = ("silhouette", "silhouette-full", "loss")
VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "clam": {},
    "clam-unmasked": {"objective": "unmasked"},
    "clam-weighted": {"prototype_weights": "learned"},
}


@dataclass(frozen=True)
class Grid:
    """The search of one data set: every combination, restarted."""

    relative_betas: Sequence[float] = (1.0, 4.0, 8.0, 16.0, 32.0, 64.0, 256.0)
    """Over the mean squared distance of the rows from their mean."""
    rates: Sequence[float] = (0.2, 0.1, 0.02)
    restarts: tuple[tuple[str, int], ...] = (
        ("k-means", 10),
        ("k-means++", 10),
        ("data", 10),
        ("normal", 10),
        ("spread", 40),
    )
    epochs: int = 60
    batch_size: int = 64
    steps: int = 5

    def settings(self) -> dict[str, Setting]:
        """What goes into the results file."""
        runs = len(self.relative_betas) * len(self.rates) * sum(count for _, count in self.restarts)
        return {
            "runs": runs,
            "relative_betas": " ".join(f"{beta:g}" for beta in self.relative_betas),
            "rates": " ".join(f"{rate:g}" for rate in self.rates),
            "restarts": ", ".join(f"{count} {start}" for start, count in self.restarts),
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "steps": self.steps,
            "mask_rate": 0.15,
            "fill": "mean",
        }


FULL_GRID: Final = Grid()
_FEW_STARTS: Final = (("k-means", 2), ("k-means++", 2), ("normal", 2), ("spread", 4))
OTHER_GRIDS: Final = {
    # Images by the ten thousand: fewer runs of fewer epochs, each of many more steps.
    "fmnist-10k": Grid((1.0, 4.0, 16.0, 64.0), (0.1, 0.02), _FEW_STARTS, epochs=20, batch_size=256),
    "fmnist": Grid((1.0, 4.0, 16.0, 64.0), (0.1, 0.02), _FEW_STARTS, epochs=5, batch_size=256),
}

# Table 6 of the paper: code beta, T, rate, batch size, mask rate, fill; ten restarts of that one setting.
TABLED: Final[dict[str, dict[str, Any]]] = {
    "zoo": {"beta": 2.4, "steps": 10, "learning_rate": 0.1, "batch_size": 8, "mask_rate": 0.2, "fill": "mean"},
    "yale": {"beta": 0.06, "steps": 10, "learning_rate": 0.1, "batch_size": 8, "mask_rate": 0.15, "fill": "mean"},
    "ecoli": {"beta": 0.095, "steps": 12, "learning_rate": 0.1, "batch_size": 16, "mask_rate": 0.15, "fill": "mean"},
    "movlib": {"beta": 0.7, "steps": 7, "learning_rate": 0.01, "batch_size": 8, "mask_rate": 0.15, "fill": "mean"},
    "micepe": {"beta": 0.1, "steps": 5, "learning_rate": 0.2, "batch_size": 8, "mask_rate": 0.15, "fill": "mean"},
    "usps": {"beta": 0.1, "steps": 5, "learning_rate": 0.001, "batch_size": 16, "mask_rate": 0.15, "fill": "min"},
    "ctg": {"beta": 0.4, "steps": 12, "learning_rate": 0.1, "batch_size": 8, "mask_rate": 0.1, "fill": "mean"},
    "segment": {"beta": 0.1, "steps": 7, "learning_rate": 0.1, "batch_size": 8, "mask_rate": 0.1, "fill": "mean"},
}


@dataclass(frozen=True)
class Pool:
    """Every run of a search: its partition of the rows, and what the rules go by."""

    labels: Labels
    silhouette: np.ndarray
    loss: np.ndarray
    full: np.ndarray

    def choose(self, rule: str) -> Labels:
        """The partition that a rule takes."""
        if rule == "loss":
            merit = -self.loss
        else:
            merit = self.silhouette if rule == "silhouette" else np.where(self.full, self.silhouette, -1.0)
        labels: Labels = self.labels[int(merit.argmax())]
        return labels


@one_thread()
def train_pool(table: LabelledTable, estimators: Sequence[ClAM], seed: int) -> Pool:
    """Train every run of the estimators' grids and label all rows by each."""
    rows = as_table(table.X)
    encoder = TableEncoder("none").fit(rows)
    x = torch.from_numpy(encoder.transform(rows))
    generator = torch.Generator().manual_seed(seed)
    labels, losses = [], []
    for estimator in estimators:
        plan = make_plan(estimator.get_params(deep=False), x, encoder)
        found = search(x, plan, generator=generator)
        labels.append(found.finalists.assign(x).numpy().astype(np.int16))
        losses.append([float(str(run["loss"])) for run in found.runs])
    everyone = np.concatenate(labels)
    judged = table.silhouette_rows
    parts = np.array_split(everyone[:, judged], min(16, len(everyone)))
    scores = np.concatenate([silhouettes(table.X[judged], part) for part in parts])
    counts = (everyone[:, :, None] == np.arange(table.n_clusters)).any(axis=1).sum(axis=1)
    return Pool(everyone, scores, np.concatenate(losses), counts == table.n_clusters)


def grid_estimators(table: LabelledTable, grid: Grid, variant: dict[str, Any]) -> list[ClAM]:
    """Every kind of start, in blocks of restarts that fit the processor's cache; a block is one tensor program."""
    block_size = 10 if table.X.shape[1] < 200 else 3
    spread = float(np.square(table.X - table.X.mean(axis=0)).sum(axis=1).mean())
    return [
        ClAM(
            table.n_clusters,
            beta=[beta / spread for beta in grid.relative_betas],
            learning_rate=grid.rates,
            init=start,
            n_restarts=min(block_size, count - first),
            min_cluster_size=0,
            steps=grid.steps,
            epochs=grid.epochs,
            batch_size=grid.batch_size,
            halving=False,
            **variant,
        )
        for start, count in grid.restarts
        for first in range(0, count, block_size)
    ]


def experiments(table: LabelledTable, method: str) -> list[Experiment]:
    """The three rules on one search; the first one's seconds are those of the search."""
    if method == "clam-faithful":
        estimators = [ClAM.faithful(table.n_clusters, **TABLED[table.name])]
        settings: dict[str, Setting] = {"runs": 10, **TABLED[table.name]}
    elif method == "clam-faithful-grid":
        estimators = [ClAM.faithful(table.n_clusters)]
        settings = {"runs": 360, "grid": "the released configuration: 4 betas, 3 rates, 3 fills, 10 restarts"}
    else:
        grid = OTHER_GRIDS.get(table.name, FULL_GRID)
        estimators, settings = grid_estimators(table, grid, VARIANTS[method]), grid.settings()

    @cache
    def pool(seed: int) -> Pool:
        return train_pool(table, estimators, seed)

    def rule_by(rule: str) -> Callable[[Sequence[int]], list[Labels]]:
        return lambda seeds: [pool(seed).choose(rule) for seed in seeds]

    return [Experiment(method, {**settings, "rule": rule}, rule_by(rule)) for rule in RULES]


def methods_for(name: str) -> list[str]:
    """All methods that are defined on a data set."""
    faithful = ["clam-faithful"] if name in TABLED else []
    return [*VARIANTS, *faithful, *(["clam-faithful-grid"] if name == "zoo" else [])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for and print a line for each result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default=",".join(clam_data.NAMES), help="names, separated by commas")
    parser.add_argument("--methods", default="", help="names, separated by commas; all by default")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    options = parser.parse_args(arguments)
    results = Results(options.out, SUITE)
    for name in options.data.split(","):
        table = clam_data.load(name)
        for method in options.methods.split(",") if options.methods else methods_for(name):
            if method not in methods_for(name):
                continue
            began = time.perf_counter()
            for experiment in experiments(table, method):
                for record in results.run(table, experiment):
                    print(
                        f"{time.perf_counter() - began:7.1f} s  {name:10} {method:18} {record.settings['rule']:16} "
                        f"silhouette {record.metrics['silhouette']} clusters {record.metrics['n_clusters']}/{record.k} "
                        f"nmi {record.metrics['nmi']:.3f} ari {record.metrics['ari']:.3f}",
                        flush=True,
                    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
