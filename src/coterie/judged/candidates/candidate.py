"""A proposed partition of rows, and its one canonical way to be written down."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]

Algorithm = Literal[
    "k-means",
    "Gaussian mixture",
    "Gaussian mixture, diagonal",
    "Gaussian mixture, shared shape",
    "Ward linkage",
    "average linkage",
    "complete linkage",
    "single linkage",
    "Genie linkage",
    "HDBSCAN",
    "spectral",
    "density peaks",
    "density modes",
]
"""Who can propose."""
Rule = Literal["centres", "gaussians", "neighbours"]
"""How rows that the proposal has not seen are given to its clusters."""

RULES: dict[Algorithm, Rule] = {
    "k-means": "centres",
    "Gaussian mixture": "gaussians",
    "Gaussian mixture, diagonal": "gaussians",
    "Gaussian mixture, shared shape": "gaussians",
    "Ward linkage": "neighbours",
    "average linkage": "neighbours",
    "complete linkage": "neighbours",
    "single linkage": "neighbours",
    "Genie linkage": "neighbours",
    "HDBSCAN": "neighbours",
    "spectral": "neighbours",
    "density peaks": "neighbours",
    "density modes": "neighbours",
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A partition that some algorithm proposes.

    Attributes
    ----------
    labels : int64 array (N,)
        The cluster of each row, 0 to ``n_clusters - 1``, all in use, the largest cluster first; of clusters of
        equal size the one whose first row comes first.
    n_clusters : int
        Number of clusters.
    algorithm : str
        What proposes it, such as "Ward linkage".
    view : str
        The form of the columns that it saw: "raw", "standardised", "whitened" or "ranks".
    rule : {"centres", "gaussians", "neighbours"}
        How new rows are to be assigned, if this partition wins.
    refined : bool
        Whether it is a step away from what the algorithm proposed.
    """

    labels: Labels
    n_clusters: int
    algorithm: Algorithm
    view: str
    rule: Rule
    refined: bool = False


def by_size(labels: npt.NDArray[np.integer]) -> tuple[Labels, int]:
    """Rename clusters to 0, 1, ... from the largest down, ties by first occurrence; return their number too."""
    found, first, inverse, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    rank = np.empty(len(found), dtype=np.int64)
    rank[order] = np.arange(len(found))
    return rank[inverse], len(found)


def distinct(partitions: Iterable[tuple[Algorithm, str, npt.NDArray[np.integer]]], accepted: range) -> list[Proposal]:
    """Turn (algorithm, view, labels) into proposals: of equal partitions the first, none with an unwanted number."""
    proposals: dict[bytes, Proposal] = {}
    for algorithm, view, labels in partitions:
        ordered, n_clusters = by_size(labels)
        key = ordered.tobytes()
        if n_clusters in accepted and key not in proposals:
            proposals[key] = Proposal(ordered, n_clusters, algorithm, view, RULES[algorithm])
    return list(proposals.values())
