"""Assignment of any row to the clusters found, its membership probabilities, and outliers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.special import softmax

from coterie.errors import InputError
from coterie.judged.candidates.kmeans import GaussianMoments, cluster_means, improve_by_k_means, quadratic_design
from coterie.judged.candidates.mixed import LevelIndicators, MixedMoments, mixed_design
from coterie.judged.candidates.registry import Candidate
from coterie.judged.space import Floats, Geometry, Labels, Singles, Space
from coterie.judged.views import AnyView, restore_view
from coterie.ops.neighbours import most_similar

Arrays = Mapping[str, npt.NDArray[Any]]

HOLD_ROWS = frozenset({"neighbours", "similar rows"})  # rules that hold rows of the table
_VOTING_NEIGHBOURS = 5
_VOTING_SIMILAR = 10
_NEARBY = 0.1  # of the median distance to the nearest row: within, a training row outvotes its neighbours
_ROUNDING = 1e-3  # distance below which directions in single precision are equal
_CELLS_AT_ONCE = 2**21
_TINY = float(np.finfo(np.float64).tiny)
_OUTLIER_NEIGHBOURS = 6  # the row itself included
_OUTLIER_FENCE = 3.0  # interquartile ranges above the upper quartile
_BLOCK_ROWS = 1 << 16


@final
class Centres:
    """Equal spherical Gaussians around the cluster means, so that the nearest mean is the most probable."""

    @staticmethod
    def fit(geometry: Geometry, labels: Labels) -> dict[str, npt.NDArray[Any]]:
        """Return `means` (K, D) and `variance` ()."""
        x = geometry.rows
        means = cluster_means(x, labels)
        variance = ((x - means[labels]) ** 2).mean()
        return {"means": means, "variance": np.array(max(float(variance), _TINY))}

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.n_clusters = len(arrays["means"])

    def memberships(self, x: Floats) -> Floats:
        """Compute the membership probabilities (N, K) of rows (N, D)."""
        squares = cdist(x, self.arrays["means"], "sqeuclidean")
        squares -= squares.min(axis=1, keepdims=True)  # before the division, which may overflow for equal rows
        with np.errstate(over="ignore"):
            return softmax(-squares / (2.0 * self.arrays["variance"]), axis=1)


@final
class Gaussians:
    """A Gaussian with its own covariance and weight for each cluster."""

    @staticmethod
    def fit(geometry: Geometry, labels: Labels) -> dict[str, npt.NDArray[Any]]:
        """Return the features `kept` (C,), their `centre` (C,) and the `coefficients` (P, K) of the log densities."""
        moments = GaussianMoments(geometry.rows[:, geometry.continuous], "full")
        coefficients = moments.coefficients(np.eye(int(labels.max()) + 1)[labels])
        return {"kept": geometry.continuous, "centre": moments.centre, "coefficients": coefficients}

    def __init__(self, arrays: Arrays) -> None:
        # Models saved by version 0.2 have no discrete columns, and keep all features.
        self.arrays = {"kept": np.arange(len(arrays["centre"])), **arrays}
        self.n_clusters = arrays["coefficients"].shape[1]

    def memberships(self, x: Floats) -> Floats:
        """Compute the membership probabilities (N, K) of rows (N, D)."""
        centred = x[:, self.arrays["kept"]] - self.arrays["centre"]
        memberships: Floats = softmax(quadratic_design(centred, "full") @ self.arrays["coefficients"], axis=1)
        return memberships


@final
class Mixture:
    """Gaussians for the continuous columns and proportions of levels for the discrete ones, of each cluster."""

    @staticmethod
    def fit(geometry: Geometry, labels: Labels) -> dict[str, npt.NDArray[Any]]:
        """Return the `levels` of the discrete columns, and `centre` and `coefficients` (P, K) of the log densities."""
        levels = LevelIndicators.fit(geometry)
        moments = MixedMoments(geometry.rows, levels)
        coefficients = moments.coefficients(np.eye(int(labels.max()) + 1)[labels])
        learned = {f"levels.{name}": getattr(levels, name) for name in LevelIndicators.ARRAYS}
        return learned | {"centre": moments.centre, "coefficients": coefficients}

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.n_clusters = arrays["coefficients"].shape[1]
        self._levels = LevelIndicators(*(arrays[f"levels.{name}"] for name in LevelIndicators.ARRAYS))

    def memberships(self, x: Floats) -> Floats:
        """Compute the membership probabilities (N, K) of rows (N, D)."""
        return softmax(mixed_design(x, self._levels, self.arrays["centre"]) @ self.arrays["coefficients"], axis=1)


@final
class Neighbours:
    """A vote of the five nearest training rows, weighted by inverse distance."""

    @staticmethod
    def fit(geometry: Geometry, labels: Labels) -> dict[str, npt.NDArray[Any]]:
        """Return `rows` (N, D), `labels` (N,) and `near` (), the distance within which all rows weigh alike."""
        x = geometry.rows
        nearest = np.asarray(cKDTree(x).query(x, k=[2])[0])  # the first is the row itself
        apart = nearest[(nearest > 0) & np.isfinite(nearest)]
        near = _NEARBY * float(np.median(apart)) if apart.size else 1.0
        return {"rows": x, "labels": labels, "near": np.array(max(near, _TINY))}

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.n_clusters = int(arrays["labels"].max()) + 1
        self._tree = cKDTree(arrays["rows"])

    def memberships(self, x: Floats) -> Floats:
        """Compute the membership probabilities (N, K) of rows (N, D)."""
        rows, labels, near = (self.arrays[name] for name in ("rows", "labels", "near"))
        distances, voters = self._tree.query(x, k=np.arange(1, min(_VOTING_NEIGHBOURS, len(rows)) + 1))
        votes = np.zeros((len(x), self.n_clusters))
        np.add.at(votes, (np.arange(len(x))[:, None], labels[voters]), near / (distances + near))
        votes /= votes.sum(axis=1, keepdims=True)
        return votes


@final
class SimilarRows:
    """A vote of the most similar training rows, for directions, which have too many dimensions for trees."""

    @staticmethod
    def fit(geometry: Geometry, labels: Labels) -> dict[str, npt.NDArray[Any]]:
        """Return `rows` (N, D), `labels` (N,) and `near` (), the distance within which all rows weigh alike."""
        rows = geometry.rows.astype(np.float32)
        products = most_similar(rows, rows, 1, without_self=True)[1]
        apart = np.sqrt(np.maximum(2.0 - 2.0 * products.astype(np.float64), 0.0))
        apart = apart[(apart > _ROUNDING) & np.isfinite(apart)]  # a single row has no other
        near = _NEARBY * float(np.median(apart)) if apart.size else 1.0
        return {"rows": rows, "labels": labels, "near": np.array(near)}

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.n_clusters = int(arrays["labels"].max()) + 1

    def memberships(self, x: Floats) -> Floats:
        """Compute the membership probabilities (N, K) of rows (N, D)."""
        rows, labels, near = (self.arrays[name] for name in ("rows", "labels", "near"))
        voters, products = most_similar(x, rows, min(_VOTING_SIMILAR, len(rows)))
        squares = 2.0 - 2.0 * products.astype(np.float64)
        distances = np.sqrt(np.where(squares > _ROUNDING**2, squares, 0.0))
        votes = np.zeros((len(x), self.n_clusters))
        np.add.at(votes, (np.arange(len(x))[:, None], labels[voters]), near / (distances + near))
        votes /= votes.sum(axis=1, keepdims=True)
        return votes


@final
@dataclass(frozen=True, eq=False)
class Assigner:
    """Assigns rows to clusters, by a rule fitted in the view that the clusters were found in."""

    RULES: ClassVar[dict[str, Any]] = {
        "centres": Centres,
        "gaussians": Gaussians,
        "mixture": Mixture,
        "neighbours": Neighbours,
        "similar rows": SimilarRows,
    }
    """Rules by the name that algorithms declare."""

    view: AnyView
    rule: str
    arrays: Arrays  # what the rule has learned

    @classmethod
    def fit(cls, x: Floats | Space, candidate: Candidate) -> Self:
        """Fit the candidate's rule; use "neighbours" if a cluster would lose all of its rows by it."""
        space = Space.of(x)
        view, geometry = space.view(candidate.view), space.geometry(candidate.view)
        assigner = cls.fit_rule(view, candidate.rule, geometry, candidate.labels)
        if len(np.unique(assigner.memberships_of_view(geometry.rows).argmax(axis=1))) < candidate.n_clusters:
            vote = "similar rows" if space.metric == "cosine" else "neighbours"
            assigner = cls.fit_rule(view, vote, geometry, candidate.labels)
        return assigner

    @classmethod
    def fit_rule(cls, view: AnyView, rule: str, geometry: Geometry, labels: Labels) -> Self:
        """Fit a rule to the rows of the view and their labels 0 to K - 1, all in use."""
        if rule not in cls.RULES:
            raise InputError(f"There is no assignment rule {rule!r}. Use one of: {', '.join(cls.RULES)}.")
        n_clusters = len(np.unique(labels))
        if labels.min() != 0 or labels.max() != n_clusters - 1:
            raise InputError(
                f"labels have {n_clusters} distinct values from {labels.min()} to {labels.max()}; expected 0 to "
                f"{n_clusters - 1}, all in use. Renumber the clusters first."
            )
        return cls(view, rule, cls.RULES[rule].fit(geometry, labels))

    def move_centres(self, x: npt.NDArray[Any]) -> "Assigner":
        """Continue k-means on more rows than the clusters were found among; other rules stay as they are.

        If a cluster would lose all of its rows, nothing changes.
        """
        if self.rule != "centres":
            return self
        rows = self.view.transform(x)
        labels = improve_by_k_means(rows, self.memberships_of_view(rows).argmax(axis=1))
        kept = len(np.unique(labels)) == self.n_clusters
        return self.fit_rule(self.view, self.rule, Geometry(rows), labels) if kept else self

    @cached_property
    def _fitted_rule(self) -> Centres | Gaussians | Mixture | Neighbours | SimilarRows:
        rule: Centres | Gaussians | Mixture | Neighbours | SimilarRows = self.RULES[self.rule](self.arrays)
        return rule

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return self._fitted_rule.n_clusters

    def memberships(self, x: npt.NDArray[Any]) -> Floats:
        """Compute the membership probabilities (N, K) of rows (N, D) as the view takes them."""
        return self.memberships_of_view(self.view.transform(x))

    def memberships_of_view(self, rows: Floats) -> Floats:
        """Compute the membership probabilities (N, K) of rows of the view, in blocks."""
        # The widest intermediate of mixtures has the products of all pairs of columns for each row.
        squared = self.rule in {"gaussians", "mixture"}
        width = max(self.n_clusters, (rows.shape[1] + 1) ** 2 if squared else rows.shape[1])
        step = max(1, _CELLS_AT_ONCE // width)
        result = np.empty((len(rows), self.n_clusters))
        for start in range(0, len(rows), step):
            result[start : start + step] = self._fitted_rule.memberships(rows[start : start + step])
        return result

    def to_arrays(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
        """Return the arrays and names to save."""
        arrays = {f"view.{name}": value for name, value in self.view.to_arrays().items()}
        return arrays | {f"assignment.{name}": value for name, value in self.arrays.items()}, {
            "view": self.view.name,
            "rule": self.rule,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, names: Mapping[str, Any]) -> Self:
        """Restore an assigner from ``to_arrays``."""

        def part(prefix: str) -> dict[str, npt.NDArray[Any]]:
            return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}

        return cls(restore_view(names["view"], part("view.")), names["rule"], part("assignment."))


@final
@dataclass(frozen=True, eq=False)
class Outliers:
    """Largest distance to its neighbours that a row may have without being an outlier, per cluster."""

    rows: Floats  # training rows (N, D) of the view
    reach: Floats  # largest distance (K,) to the last of the nearest six training rows

    @classmethod
    def fit(cls, assigner: Assigner, x: Floats, *, dissolve: bool = False) -> Self:
        """Learn the distances from rows: three interquartile ranges above the upper quartile within the cluster.

        A cluster of fewer than six rows is compared with all rows instead if `dissolve`; if each of its rows is an
        outlier among them, everything assigned to it is.
        """
        rows = assigner.view.transform(x)
        memberships = assigner.memberships_of_view(rows)
        labels = memberships.argmax(axis=1)
        distances = _neighbour_distance(cKDTree(rows), rows)
        reach = np.full(memberships.shape[1], np.inf)
        for cluster in np.unique(labels).tolist():
            own = distances[labels == cluster]
            if not dissolve or len(own) >= _OUTLIER_NEIGHBOURS:
                reach[cluster] = _upper_fence(own)
            else:
                usual = _upper_fence(distances)
                reach[cluster] = usual if own.min() <= usual else -np.inf
        return cls(rows, reach)

    def find(self, rows: Floats, cluster: Labels) -> npt.NDArray[np.bool_]:
        """Return which rows of the view are outliers of their clusters."""
        far: npt.NDArray[np.bool_] = _neighbour_distance(self._tree, rows) > self.reach[cluster]
        return far

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self.rows)

    def to_arrays(self) -> dict[str, Floats]:
        """Return the arrays to save."""
        return {"outliers.rows": self.rows, "outliers.reach": self.reach}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self | None:
        """Restore from ``to_arrays``; None if nothing was saved."""
        return cls(arrays["outliers.rows"], arrays["outliers.reach"]) if "outliers.rows" in arrays else None


def _upper_fence(distances: Floats) -> float:
    low, high = np.quantile(distances, (0.25, 0.75))
    return float(high + _OUTLIER_FENCE * (high - low))


def _neighbour_distance(tree: cKDTree, x: Floats) -> Floats:
    """Return the distance to the last of a few nearest rows."""
    distances = np.asarray(tree.query(x, k=[min(_OUTLIER_NEIGHBOURS, tree.n)])[0], dtype=np.float64)
    return distances[:, 0]


def expected_accuracy(confidence: float) -> float:
    """Return the fraction of rows that are in the right cluster, if the expected adjusted Rand index is `confidence`.

    If this fraction is right and the cluster of every other row is random, the index of the partition is its square.
    """
    return float(np.sqrt(np.clip(confidence, 0.0, 1.0)))


def assign(
    x: Floats, assigner: Assigner, outliers: Outliers | None, order: Labels, accuracy: float = 1.0
) -> tuple[Singles, Labels]:
    """Return the membership probabilities in the clusters in the given order, and labels.

    Clusters that `order` lacks are dissolved: their rows belong to the others. The clusters themselves are right for a
    fraction `accuracy` of the rows; otherwise, a row may be in any of them.
    """
    every = assigner.memberships(x)
    some = every[:, order] + _TINY  # a row that belongs to none of them belongs to all alike
    some /= some.sum(axis=1, keepdims=True)
    memberships = (accuracy * some + (1.0 - accuracy) / len(order)).astype(np.float32)
    labels = memberships.argmax(axis=1).astype(np.int64)
    if outliers is not None:
        labels[outliers.find(assigner.view.transform(x), every.argmax(axis=1))] = -1
    return memberships, labels


def blocks(n: int) -> list[slice]:
    """Return the slices of rows that are assigned at once."""
    return [slice(start, min(n, start + _BLOCK_ROWS)) for start in range(0, max(n, 1), _BLOCK_ROWS)]


def encoded_means(encoded: Singles, labels: Labels, n_clusters: int) -> Singles:
    """Return the mean of each cluster, without outliers."""
    inside = labels >= 0
    sums = np.stack([np.bincount(labels[inside], column[inside], n_clusters) for column in encoded.T], axis=1)
    return (sums / np.maximum(np.bincount(labels[inside], minlength=n_clusters), 1)[:, None]).astype(np.float32)


def match_order(before: Labels, now: Labels, order: Labels) -> Labels:
    """Reorder the clusters so that the largest number of rows keep their former labels."""
    overlap = np.zeros((len(order), int(order.max()) + 1))
    kept = (before >= 0) & (before < len(order)) & (now >= 0)
    np.add.at(overlap, (before[kept], now[kept]), 1.0)
    reordered: Labels = order[linear_sum_assignment(overlap[:, order], maximize=True)[1]]
    return reordered
