"""k-prototypes: k-means for numbers and categories together.

Huang, Extensions to the k-means algorithm for clustering large data sets with categorical values, 1998.
"""

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from benchmarks.lines import Floats, Labels

MAX_ROUNDS = 100


def k_prototypes(numbers: Floats, categories: Labels, k: int, *, gamma: float, n_init: int, seed: int) -> Labels:
    """Cluster rows by squared distance of numbers (N, D) plus gamma times the number of unequal categories (N, L).

    Categories are numbers from 0. Prototypes are means and modes, and start at distinct random rows. The best of
    `n_init` starts is returned.
    """
    rng = np.random.default_rng(seed)
    levels = [np.eye(int(column.max()) + 1)[column] for column in categories.T]  # (N, levels) for each
    runs = [_run(numbers, levels, k, gamma, rng) for _ in range(n_init)]
    return min(runs, key=lambda run: run[1])[0]


def _run(
    numbers: Floats, levels: list[npt.NDArray[np.float64]], k: int, gamma: float, rng: Generator
) -> tuple[Labels, float]:
    rows = len(numbers)
    start = rng.choice(rows, k, replace=False)
    means, modes = numbers[start], [level[start].argmax(axis=1) for level in levels]
    labels = np.full(rows, -1)
    for _ in range(MAX_ROUNDS):
        costs = np.square(numbers).sum(axis=1)[:, None] - 2.0 * numbers @ means.T + np.square(means).sum(axis=1)
        for level, mode in zip(levels, modes, strict=True):
            costs = costs + gamma * (1.0 - level[:, mode])
        before, labels = labels, costs.argmin(axis=1)
        if np.array_equal(before, labels):
            break
        members = np.eye(k)[labels].T
        sizes = members.sum(axis=1, keepdims=True)
        means = np.where(sizes > 0, members @ numbers / np.maximum(sizes, 1.0), means)
        modes = [
            np.where(sizes[:, 0] > 0, (members @ level).argmax(axis=1), mode)
            for level, mode in zip(levels, modes, strict=True)
        ]
    return labels, float(costs.min(axis=1).sum())
