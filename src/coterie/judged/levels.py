"""Levels: coarser and finer clusterings that nest with the chosen one, as topics have sub-topics.

Letters: N rows, K clusters of a level, P clusters of the next coarser level.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int

from coterie.judged.assign import HOLD_ROWS, Arrays, Assigner
from coterie.judged.candidates.registry import Candidate
from coterie.judged.judge import ScoredCandidates
from coterie.judged.space import Floats, Integers, Labels

NESTED: Final = 0.9  # fraction of rows that are within their coarser cluster by their finer one, from which levels nest
NEARLY_AS_GOOD: Final = 0.03  # score that a candidate that nests may lack to the best one with its number of clusters
_GROWTH: Final = 1.3  # least ratio of the numbers of clusters of a finer level and of the one before
_MAX_FINER: Final = 6  # finer levels than the chosen one; each has an assigner of its own


@final
@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Nested levels, from few clusters to many, with the chosen clusters among them.

    Coarser levels are unions of the chosen clusters. In finer levels, a row gets the most probable part of the cluster
    that it is in.
    """

    numbers: tuple[int, ...]  # of clusters of each level, ascending
    parents: tuple[Int[Integers, " K"], ...]  # of the clusters of each level but the coarsest, in the one before
    position: int  # of the chosen clusters
    indices: Mapping[int, int] = field(default_factory=dict)  # of the candidates of other levels; none from a file
    assigners: dict[int, Assigner] = field(default_factory=dict)  # of finer levels, as far as they were needed

    @classmethod
    def find(cls, scored: ScoredCandidates, chosen: Candidate) -> Self:
        """Find the levels that nest with the chosen candidate, among the best ones of each number of clusters."""
        coarser = list(_coarser_levels(scored, chosen))[::-1]
        finer = list(_finer_levels(scored, chosen))
        indices = {scored.candidates[index].n_clusters: index for index, _ in (*coarser, *finer)}
        numbers = tuple(sorted([*indices, chosen.n_clusters]))
        return cls(numbers, tuple(parents for _, parents in (*coarser, *finer)), len(coarser), indices)

    def fit_assigners(self, scored: ScoredCandidates, n_clusters: int, chosen: Assigner) -> None:
        """Fit the assigners that rows need to reach a level, unless that was done before.

        If the assigner of the chosen clusters holds no rows of the table, they hold none either: rows go to the part
        whose centre is nearest.
        """
        for number in self.numbers[self.position + 1 : self.numbers.index(n_clusters) + 1]:
            if number not in self.assigners:
                candidate = scored.candidates[self.indices[number]]
                if candidate.rule in HOLD_ROWS and chosen.rule not in HOLD_ROWS:
                    candidate = replace(candidate, rule="centres")
                self.assigners[number] = Assigner.fit(scored.space, candidate)

    def assign(self, x: npt.NDArray[Any], labels: Int[Labels, " N"], n_clusters: int) -> Int[Labels, " N"]:
        """Return the cluster of each row at a level, given the chosen clusters that they are in; -1 stays."""
        target = self.numbers.index(n_clusters)
        known = labels >= 0
        found = labels[known]
        for parents in self.parents[target : self.position][::-1]:
            found = parents[found].astype(np.int64)
        for number, parents in zip(
            self.numbers[self.position + 1 : target + 1], self.parents[self.position : target], strict=True
        ):
            memberships: Float[Floats, "N K"] = self.assigners[number].memberships(x[known])
            found = np.where(parents == found[:, None], memberships, -1.0).argmax(axis=1).astype(np.int64)
        result = labels.copy()
        result[known] = found
        return result

    def parents_of(self, n_clusters: int, order: Labels) -> list[int] | None:
        """Return the parent of each cluster of a level; None for the coarsest one, and for a number that does not nest.

        `order` has the chosen clusters in the order of their labels.
        """
        if n_clusters not in self.numbers[1:]:
            return None
        level = self.numbers.index(n_clusters)
        parents = self.parents[level - 1]
        if level == self.position:
            parents = parents[order]
        elif level == self.position + 1:
            parents = np.argsort(order)[parents]
        found: list[int] = parents.tolist()
        return found

    def without_finer(self) -> "Levels":
        """Return the same without finer levels."""
        numbers = self.numbers[: self.position + 1]
        return Levels(numbers, self.parents[: self.position], self.position, self.indices)

    def to_arrays(self, chosen: Assigner) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return the arrays and the part of the card to save, given the assigner of the chosen clusters.

        A model file that holds no rows of the table for the chosen clusters holds none for finer levels either: levels
        from the first one on for which centres are not enough are left out.
        """
        shared, _ = chosen.to_arrays()  # levels mostly have the same view, and the same rows
        saved: dict[str, npt.NDArray[Any]] = {}
        rules: dict[str, dict[str, str]] = {}
        for number in self.numbers[self.position + 1 :]:
            if self.assigners[number].rule in HOLD_ROWS and chosen.rule not in HOLD_ROWS:
                break
            own, rules[str(number)] = self.assigners[number].to_arrays()
            saved |= {
                f"levels.{number}.{name}": value
                for name, value in own.items()
                if name not in shared or not np.array_equal(value, shared[name])
            }
        numbers = self.numbers[: self.position + 1 + len(rules)]
        saved |= {f"levels.parents.{i}": self.parents[i] for i in range(len(numbers) - 1)}
        return saved, {"numbers": list(numbers), "position": self.position, "rules": rules}

    @classmethod
    def from_arrays(cls, chosen: Assigner, arrays: Arrays, card: Mapping[str, Any]) -> Self:
        """Restore from ``to_arrays``."""
        shared, _ = chosen.to_arrays()
        assigners = {}
        for number, names in card["rules"].items():
            prefix = f"levels.{number}."
            own = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
            assigners[int(number)] = Assigner.from_arrays(shared | own, names)
        parents = tuple(arrays[f"levels.parents.{i}"] for i in range(len(card["numbers"]) - 1))
        return cls(tuple(card["numbers"]), parents, int(card["position"]), {}, assigners)


def _good_candidates(scored: ScoredCandidates) -> dict[int, list[int]]:
    """Return the candidates of each number of clusters that are nearly as good as the best one, the best first."""
    best = scored.best_by_number()
    good: dict[int, list[int]] = {number: [] for number in best}
    for index in scored.ranking():
        number = scored.candidates[index].n_clusters
        if scored.scores[index] >= scored.scores[best[number]] - NEARLY_AS_GOOD:
            good[number].append(index)
    return good


def _coarser_levels(scored: ScoredCandidates, chosen: Candidate) -> Iterator[tuple[int, Int[Integers, " K"]]]:
    """Yield ever coarser candidates that nest, and in which of their clusters those of the level before are."""
    labels, good = chosen.labels, _good_candidates(scored)
    for number in sorted((k for k in good if k < chosen.n_clusters), reverse=True):
        for index in good[number]:
            coarse = scored.candidates[index].labels
            parents = _find_parents(labels, coarse)
            if (parents[labels] == coarse).mean() >= NESTED and len(np.unique(parents)) == number:
                yield index, parents
                labels = parents[labels]
                break


def _finer_levels(scored: ScoredCandidates, chosen: Candidate) -> Iterator[tuple[int, Int[Integers, " K"]]]:
    """Yield ever finer candidates that nest, and in which clusters of the level before theirs are."""
    labels, last, found, good = chosen.labels, chosen.n_clusters, 0, _good_candidates(scored)
    for number in sorted(k for k in good if k > chosen.n_clusters):
        if number < _GROWTH * last or found == _MAX_FINER:
            continue
        for index in good[number]:
            fine = scored.candidates[index].labels
            parents = _find_parents(fine, labels)
            inside = parents[fine] == labels
            if inside.mean() >= NESTED and len(np.unique(parents)) == last:
                yield index, parents
                # Rows outside count for the largest part, until they are assigned to the most probable one.
                sizes = np.bincount(fine)
                largest = np.array([np.where(parents == one, sizes, -1).argmax() for one in range(last)])
                labels, last, found = np.where(inside, fine, largest[labels]), number, found + 1
                break


def _find_parents(fine: Labels, coarse: Labels) -> Int[Integers, " K"]:
    """Return the coarse cluster that has most of the rows of each fine cluster."""
    counts = np.zeros((int(fine.max()) + 1, int(coarse.max()) + 1), dtype=np.int64)
    np.add.at(counts, (fine, coarse), 1)
    parents: Int[Integers, " K"] = counts.argmax(axis=1)
    return parents
