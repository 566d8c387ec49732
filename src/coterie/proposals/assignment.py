"""How rows that were not there when clusters were made are given to them, to a degree."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from coterie.errors import InputError
from coterie.proposals.centres import cluster_means
from coterie.proposals.mixtures import Moments, design, softmax
from coterie.proposals.partitions import Floats, Labels, Rule

_VOTERS = 5
_CELLS_AT_ONCE = 2**21
_TINY = float(np.finfo(np.float64).tiny)

Arrays = Mapping[str, npt.NDArray[Any]]


@final
@dataclass(frozen=True, eq=False)
class Assignment:
    """A rule that gives rows to clusters, in the space of the view that the clusters were found in.

    Attributes
    ----------
    kind : {"centres", "gaussians", "neighbours"}
        "centres": equal round Gaussians about the clusters' means, so that the nearest mean is the likeliest.
        "gaussians": a Gaussian of its own shape and share for each cluster.
        "neighbours": the five nearest rows of `fit` vote, nearer ones with more weight.
    arrays : dict of arrays
        What the rule needs to know: for "centres" `means` (K, D) and `variance` (); for "gaussians" `centre` (D,)
        and `coefficients` (P, K) of the log density; for "neighbours" `rows` (N, D), `labels` (N,) and `near` (),
        the distance within which all rows weigh alike.
    """

    kind: Rule
    arrays: dict[str, npt.NDArray[Any]]

    @classmethod
    def fit(cls, kind: Rule, x: Floats, labels: Labels) -> Self:
        """Make the rule from rows (N, D) and their clusters 0..K-1, all in use."""
        n_clusters = len(np.unique(labels))
        if labels.min() != 0 or labels.max() != n_clusters - 1:
            raise InputError(
                f"labels run from {labels.min()} to {labels.max()} with {n_clusters} distinct values, expected 0 to "
                f"{n_clusters - 1}, all in use: rename the clusters first."
            )
        return cls(kind, _FITS[kind](x, labels))

    def memberships(self, x: Floats) -> Floats:
        """Degrees (N', K) to which rows (N', D) belong to each cluster; they add up to one."""
        rule = _MEMBERSHIPS[self.kind]
        # A row of the widest intermediate has products of all pairs of columns.
        width = max(self.n_clusters, (x.shape[1] + 1) ** 2)
        step = max(1, _CELLS_AT_ONCE // width)
        result = np.empty((len(x), self.n_clusters))
        for start in range(0, len(x), step):
            result[start : start + step] = rule(self, x[start : start + step])
        return result

    @cached_property
    def n_clusters(self) -> int:
        """Number of clusters."""
        if self.kind == "neighbours":
            return int(self.arrays["labels"].max()) + 1
        return len(self.arrays["means"]) if self.kind == "centres" else self.arrays["coefficients"].shape[1]

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self.arrays["rows"])

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All but the kind, to be saved."""
        return dict(self.arrays)

    @classmethod
    def from_arrays(cls, kind: Rule, arrays: Arrays) -> Self:
        """Undo `to_arrays`."""
        return cls(kind, dict(arrays))


def _fit_centres(x: Floats, labels: Labels) -> dict[str, npt.NDArray[Any]]:
    means = cluster_means(x, labels)
    variance = ((x - means[labels]) ** 2).mean()
    return {"means": means, "variance": np.array(max(float(variance), _TINY))}


def _by_centres(rule: Assignment, x: Floats) -> Floats:
    squares = cdist(x, rule.arrays["means"], "sqeuclidean")
    squares -= squares.min(axis=1, keepdims=True)  # before the division, which may overflow for equal rows
    with np.errstate(over="ignore"):
        return softmax(-squares / (2.0 * rule.arrays["variance"]))


def _fit_gaussians(x: Floats, labels: Labels) -> dict[str, npt.NDArray[Any]]:
    moments = Moments(x, "full")
    one_hot = np.eye(int(labels.max()) + 1)[labels]
    return {"centre": moments.centre, "coefficients": moments.coefficients(one_hot)}


def _by_gaussians(rule: Assignment, x: Floats) -> Floats:
    return softmax(design(x - rule.arrays["centre"], "full") @ rule.arrays["coefficients"])


def _fit_neighbours(x: Floats, labels: Labels) -> dict[str, npt.NDArray[Any]]:
    nearest = np.asarray(cKDTree(x).query(x, k=[2])[0])  # the first is the row itself
    apart = nearest[(nearest > 0) & np.isfinite(nearest)]
    # A tenth of the usual distance lets a row of `fit` outvote its neighbours, and still shows that they disagree.
    near = 0.1 * float(np.median(apart)) if apart.size else 1.0
    return {"rows": x, "labels": labels, "near": np.array(max(near, _TINY))}


def _by_neighbours(rule: Assignment, x: Floats) -> Floats:
    rows, labels = rule.arrays["rows"], rule.arrays["labels"]
    count = min(_VOTERS, len(rows))
    distances, voters = rule._tree.query(x, k=np.arange(1, count + 1))
    weights = rule.arrays["near"] / (distances + rule.arrays["near"])
    votes = np.zeros((len(x), rule.n_clusters))
    np.add.at(votes, (np.arange(len(x))[:, None], labels[voters]), weights)
    votes /= votes.sum(axis=1, keepdims=True)
    return votes


_FITS: dict[Rule, Callable[[Floats, Labels], dict[str, npt.NDArray[Any]]]] = {
    "centres": _fit_centres,
    "gaussians": _fit_gaussians,
    "neighbours": _fit_neighbours,
}
_MEMBERSHIPS: dict[Rule, Callable[[Assignment, Floats], Floats]] = {
    "centres": _by_centres,
    "gaussians": _by_gaussians,
    "neighbours": _by_neighbours,
}
