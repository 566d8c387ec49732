"""Evidence from the other proposals: what several ways of looking agree on."""

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int

from coterie.evidence.partitions import Integers, Labels, Partitions, Reals, Singles, rand_index

CONTEXT: tuple[str, ...] = (
    "agreement_mean",
    "agreement_best",
    "agreement_top_3",
    "agreement_top_10",
    "agreement_median",
    "agreement_same_k_best",
    "agreement_same_k_mean",
    "agreement_near_k_mean",
    "agreement_fewer_best",
    "agreement_more_best",
    "share_same_k",
    "share_fewer",
    "share_alike",
    "agreement_same_k_overall",
)
"""Names of the columns of context, in their order. New ones go to the end."""

_ALIKE = 0.9


def context_of(labels: Int[Labels, "R N"], n_clusters: Int[Integers, " R"]) -> Float[Singles, "R C"]:
    """Agreement (adjusted Rand index) of each partition with the others of the same rows; columns as in `CONTEXT`.

    Parameters
    ----------
    labels : integer array (R, N)
        Cluster of each row under each partition, from 0.
    n_clusters : integer array (R,)
        Number of clusters of each partition.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.array([[0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 2, 2]])
    >>> context_of(labels, np.array([2, 2, 3]))[:, CONTEXT.index("agreement_best")].tolist()
    [1.0, 1.0, 0.5714285969734192]
    """
    counts = np.asarray(n_clusters)
    others = ~np.eye(len(counts), dtype=np.bool_)
    agreement = rand_indices(labels)
    same = (counts[:, None] == counts) & others
    near = (np.abs(counts[:, None] - counts) <= 1) & others
    fewer, more = counts < counts[:, None], counts > counts[:, None]
    ordered = -np.sort(-np.where(others, agreement, -np.inf), axis=1)[:, : max(len(counts) - 1, 0)]
    among_same = (agreement * same).sum(axis=1)
    # How much partitions of this number agree with each other, whether with this one or not.
    at_k = counts[:, None] == counts
    pairs = at_k @ same.sum(axis=1)
    columns = (
        _mean(agreement, others),
        _best(agreement, others),
        _leading(ordered, 3),
        _leading(ordered, 10),
        np.median(ordered, axis=1) if ordered.shape[1] else np.zeros(len(counts)),
        _best(agreement, same),
        _mean(agreement, same),
        _mean(agreement, near),
        _best(agreement, fewer),
        _best(agreement, more),
        at_k.mean(axis=1),
        fewer.mean(axis=1),
        ((agreement > _ALIKE) & others).mean(axis=1),
        np.where(pairs > 0, at_k @ among_same / np.maximum(pairs, 1), 0.0),
    )
    return np.stack(columns, axis=1).astype(np.float32)


def _mean(values: Reals, chosen: npt.NDArray[np.bool_]) -> Reals:
    """Mean over the chosen of each line; zero where none is."""
    mean: Reals = (values * chosen).sum(axis=1) / np.maximum(chosen.sum(axis=1), 1)
    return mean


def _best(values: Reals, chosen: npt.NDArray[np.bool_]) -> Reals:
    """Largest of the chosen of each line; zero where none is."""
    best: Reals = np.where(chosen, values, -np.inf).max(axis=1)
    return np.where(np.isfinite(best), best, 0.0)


def _leading(ordered: Reals, count: int) -> Reals:
    """Mean of the first so many of each line."""
    if not ordered.shape[1]:
        return np.zeros(len(ordered))
    mean: Reals = ordered[:, :count].mean(axis=1)
    return mean


def rand_indices(labels: Int[Labels, "R N"]) -> Float[Reals, "R R"]:
    """Adjusted Rand index of every pair of partitions."""
    parts = Partitions.of(labels)
    runs, rows = parts.cluster.shape
    together = np.zeros((runs, runs))  # sums of squared cells of the contingency tables
    for run in range(runs):
        first = parts.starts[run]
        width = len(parts.sizes) - int(first)  # clusters of this partition and of all after it
        own = parts.cluster[run] - first
        cells = np.bincount((parts.cluster[run:] + (own * width - first)).ravel()).astype(np.float64)
        table = np.pad(cells, (0, -len(cells) % width)).reshape(-1, width)
        sums = np.add.reduceat(np.einsum("kc,kc->c", table, table), parts.starts[run:] - first)
        together[run, run:] = sums
        together[run:, run] = sums
    pairs = together - rows  # ordered pairs of different rows that both put together
    own = np.diagonal(pairs)
    return rand_index(pairs, own[:, None], own, rows)
