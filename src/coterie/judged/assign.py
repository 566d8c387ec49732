"""How rows that were not there when clusters were made are given to them, to a degree."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, final, get_args

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.special import expit

from coterie.errors import InputError
from coterie.judged.candidates.candidate import Labels, Proposal, Rule
from coterie.judged.candidates.kmeans import Moments, cluster_means, design, softmax
from coterie.judged.candidates.registry import Effort
from coterie.judged.features.table import rand_indices
from coterie.judged.space import Floats, View, fit_views
from coterie.tables.encoder import TableEncoder

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


Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

COMPANY = 6
"""Rows, itself included, that a row must have near it not to be an outlier."""
FENCE = 3.0
"""Times the distance between the quarters that outliers lie beyond the upper one."""
BLOCK_ROWS = 1 << 16
"""Rows that are assigned at once."""
FARTHEST_SCALE = 200.0
"""Natural logarithm beyond which one column's scale over another's makes no difference."""
TOLERANCE = 0.4
"""Logits by which a proposal may fall short of the best and still be taken, if it has fewer clusters."""
PULL = 0.5
"""By how much a granularity of one favours twice the number of clusters, in logits of the predicted score."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Opinions:
    """What was proposed for some rows, and what the judge thinks of it."""

    rows: Floats
    proposals: list[Proposal]
    logits: Floats
    """Of the predicted adjusted Rand index of each with the truth."""
    single: float
    """Probability that there is one cluster only."""

    @property
    def scores(self) -> Floats:
        """Predicted adjusted Rand index of each proposal with the truth."""
        scores: Floats = expit(self.logits)
        return scores

    def choice(self, granularity: float = 0.0) -> int:
        """Place of the proposal that is taken; a positive granularity favours many clusters."""
        return preferred(self.logits, np.array([each.n_clusters for each in self.proposals]), granularity)

    def ranking(self) -> list[int]:
        """Places of the proposals, the best first."""
        order: list[int] = np.argsort(-self.logits, kind="stable").tolist()
        return order

    def best_of_each_number(self) -> dict[int, int]:
        """The best proposal for each number of clusters, from few to many."""
        best: dict[int, int] = {}
        for place in self.ranking():
            best.setdefault(self.proposals[place].n_clusters, place)
        return dict(sorted(best.items()))

    def best_of_number(self, n_clusters: int) -> Proposal:
        """The best proposal of that number of clusters."""
        best = self.best_of_each_number()
        if n_clusters not in best:
            numbers = ", ".join(map(str, best))
            raise InputError(f"n_clusters={n_clusters!r} was not proposed. Ask for one of these: {numbers}.")
        return self.proposals[best[n_clusters]]

    def runner_up(self, chosen: int, another: float) -> int | None:
        """The best proposal whose agreement with the chosen one is below a bound."""
        labels = np.stack([each.labels for each in self.proposals])
        agreement = rand_indices(labels)[chosen]
        return next((place for place in self.ranking() if agreement[place] < another), None)

    def distinct(self, taken: int | None, another: float, at_most: int) -> list[int]:
        """The best proposals, the best first, of which no two agree by a bound or more; what was taken is in."""
        agreement = rand_indices(np.stack([each.labels for each in self.proposals]))
        kept = [] if taken is None else [taken]
        for place in self.ranking():
            if len(kept) < at_most and (agreement[place, kept] < another).all():
                kept.append(place)
        return sorted(kept, key=lambda place: -self.logits[place])

    def described(self, place: int) -> dict[str, Any]:
        """A proposal as a row of a table."""
        proposal = self.proposals[place]
        return {
            "algorithm": proposal.algorithm,
            "refined": proposal.refined,
            "columns": proposal.view,
            "n_clusters": proposal.n_clusters,
            "score": float(self.scores[place]),
        }


@final
@dataclass(frozen=True, eq=False)
class Partitioner:
    """The proposal that was taken, as a rule for any row."""

    view: View
    assignment: Assignment

    @classmethod
    def of(cls, rows: Floats, proposal: Proposal) -> Self:
        """Make the rule; a rule by which a cluster would lose all of its rows gives way to that by neighbours."""
        view = next(view for view in fit_views(rows) if view.name == proposal.view)
        seen = view.transform(rows)
        assignment = Assignment.fit(proposal.rule, seen, proposal.labels)
        if len(np.unique(assignment.memberships(seen).argmax(axis=1))) < proposal.n_clusters:
            assignment = Assignment.fit("neighbours", seen, proposal.labels)
        return cls(view, assignment)

    def memberships(self, x: Floats) -> Floats:
        """Degrees (N, K) to which rows belong to each cluster."""
        return self.assignment.memberships(self.view.transform(x))

    def to_arrays(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
        """Arrays to save, and the names that go with them."""
        arrays = {f"view.{name}": value for name, value in self.view.to_arrays().items()}
        arrays |= {f"assignment.{name}": value for name, value in self.assignment.to_arrays().items()}
        return arrays, {"view": self.view.name, "rule": self.assignment.kind}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]], card: dict[str, Any]) -> Self:
        """Undo ``to_arrays``."""

        def part(prefix: str) -> dict[str, npt.NDArray[Any]]:
            return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}

        return cls(
            View.from_arrays(card["view"], part("view.")), Assignment.from_arrays(card["rule"], part("assignment."))
        )


@final
@dataclass(frozen=True, eq=False)
class Outliers:
    """How far from the rows that were looked at a row may lie without being an outlier, in each cluster."""

    rows: Floats
    reach: Floats

    @classmethod
    def of(cls, partitioner: Partitioner, rows: Floats, *, dissolve: bool = False) -> Self:
        """Learn it: far beyond the upper quarter of the distances within the cluster.

        A cluster too small to be company has nothing to be compared with but all rows; if it may be dissolved and they
        say that each of its rows is an outlier, then so is whatever is assigned to it.
        """
        seen = partitioner.view.transform(rows)
        memberships = partitioner.assignment.memberships(seen)
        labels = memberships.argmax(axis=1)
        loneliness = _loneliness(cKDTree(seen), seen)
        reach = np.full(memberships.shape[1], np.inf)
        for cluster in np.unique(labels).tolist():
            own = loneliness[labels == cluster]
            if not dissolve or len(own) >= COMPANY:
                reach[cluster] = _fence(own)
            else:
                usual = _fence(loneliness)
                reach[cluster] = usual if own.min() <= usual else -np.inf
        return cls(seen, reach)

    def among(self, seen: Floats, cluster: Integers) -> npt.NDArray[np.bool_]:
        """Which of some rows, in the view's space, are outliers of their clusters."""
        far: npt.NDArray[np.bool_] = _loneliness(self._tree, seen) > self.reach[cluster]
        return far

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self.rows)

    def to_arrays(self) -> dict[str, Floats]:
        """Arrays to save."""
        return {"outliers.rows": self.rows, "outliers.reach": self.reach}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> Self | None:
        """Undo ``to_arrays``; None if there is nothing to undo."""
        if "outliers.rows" not in arrays:
            return None
        return cls(arrays["outliers.rows"], arrays["outliers.reach"])


def check_parameters(n_clusters: object, max_clusters: object, granularity: object, effort: object) -> None:
    """Refuse what cannot be meant."""
    if effort not in get_args(Effort):
        raise InputError(f"effort={effort!r} must be one of {', '.join(get_args(Effort))}.")
    for name, value, least in (("n_clusters", n_clusters, 1), ("max_clusters", max_clusters, 2)):
        if name == "n_clusters" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise InputError(f"{name}={value!r} must be a whole number of at least {least}.")
    if not isinstance(granularity, int | float | np.integer | np.floating) or not np.isfinite(granularity):
        raise InputError(f"granularity={granularity!r} must be a finite number; 0 leaves the choice to the judge.")


def preferred(logits: Floats, n_clusters: Integers, granularity: float = 0.0) -> int:
    """Place of what is taken: of all that is about as good as the best, the best with the fewest clusters.

    A positive granularity favours many clusters.
    """
    leaning = logits + granularity * PULL * np.log2(n_clusters)
    good = leaning >= leaning.max() - TOLERANCE
    return int(np.where(good & (n_clusters == n_clusters[good].min()), leaning, -np.inf).argmax())


def drawn(n: int, at_most: int, seed: int) -> Integers:
    """Places of at most so many rows, in rising order."""
    if n <= at_most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, at_most, replace=False))


def blocks(n: int) -> list[slice]:
    """Where the rows that are assigned at once begin and end."""
    return [slice(start, min(n, start + BLOCK_ROWS)) for start in range(0, n, BLOCK_ROWS)]


def relative_scales(table: TableEncoder) -> Floats:
    """The scale of each encoded column over that of a usual number, which categories get."""
    numbers = np.log(table.numbers.scales)  # a quotient of huge and tiny scales would overflow
    usual = float(np.median(numbers)) if numbers.size else 0.0
    scales = iter(numbers.tolist())
    units = [usual if feature.kind == "category" else next(scales) for feature in table.features]
    return np.exp(np.clip(np.array(units) - usual, -FARTHEST_SCALE, FARTHEST_SCALE))


def assign(
    x: Floats, partitioner: Partitioner, outliers: Outliers | None, order: Integers
) -> tuple[npt.NDArray[np.float32], Integers]:
    """Memberships of rows in the clusters in the given order, and labels; clusters that it lacks are dissolved."""
    every = partitioner.memberships(x)
    some = every[:, order] + np.finfo(np.float64).tiny  # what belongs to none of them belongs to all alike
    memberships = (some / some.sum(axis=1, keepdims=True)).astype(np.float32)
    labels = memberships.argmax(axis=1).astype(np.int64)
    if outliers is not None:
        labels[outliers.among(partitioner.view.transform(x), every.argmax(axis=1))] = -1
    return memberships, labels


def means_of(encoded: npt.NDArray[np.float32], labels: Integers, n_clusters: int) -> npt.NDArray[np.float32]:
    """Mean of each cluster; outliers count nowhere."""
    inside = labels >= 0
    sums = np.stack(
        [np.bincount(labels[inside], column[inside], n_clusters) for column in encoded.T.astype(np.float64)], axis=1
    )
    return (sums / np.maximum(np.bincount(labels[inside], minlength=n_clusters), 1)[:, None]).astype(np.float32)


def matched(before: Integers, now: Integers, order: Integers) -> Integers:
    """The clusters of now in the order that lets as many rows as possible keep their numbers."""
    shared = np.zeros((len(order), int(order.max()) + 1))
    kept = (before >= 0) & (before < len(order)) & (now >= 0)
    np.add.at(shared, (before[kept], now[kept]), 1.0)
    reordered: Integers = order[linear_sum_assignment(shared[:, order], maximize=True)[1]]
    return reordered


def _fence(loneliness: Floats) -> float:
    low, high = np.quantile(loneliness, (0.25, 0.75))
    return float(high + FENCE * (high - low))


def _loneliness(tree: cKDTree, x: Floats) -> Floats:
    """Distance to the last of a few nearest rows."""
    distances = np.asarray(tree.query(x, k=[min(COMPANY, tree.n)])[0], dtype=np.float64)
    return distances[:, 0]
