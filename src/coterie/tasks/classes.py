"""Sets drawn from things that are sorted into classes, and classes into groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from coterie.errors import ConfigError, InputError
from coterie.structures import TaskBatch
from coterie.tasks.compositions import fewest_classes, sample_composition

Sizes = Literal["composition", "dirichlet"]
"""How many members of each class a set has.

"composition" is ABC's Algorithm 1: a number of classes that is uniform among those for which any choice of classes has
enough members, and random sizes within what each class has. "dirichlet" is how DAC makes its clustered sets of images:
of the most classes that a set may have, each beyond the least is left out with probability one half, shares are from a
Dirichlet, and members are taken again where a class has too few.
"""

Name = TypeVar("Name", str, int)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """Some sets of one size, as places in the collection that they were drawn from."""

    index: Int[Tensor, "B N"]
    """Which thing each point is."""
    labels: Int[Tensor, "B N"]
    """Cluster of each point, 0..K-1, all in use."""
    variant: Int[Tensor, "B N"]
    """Which of the variants of its class each point shows."""

    def filled(self, points: Float[Tensor, "Q D"]) -> TaskBatch:
        """The sets, given all points, those of one set after those of the other."""
        x = points.reshape(*self.labels.shape, points.shape[1])
        return TaskBatch(x, self.labels, torch.ones_like(self.labels, dtype=torch.bool))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Catalogue:
    """Where the members of each class stand, and which classes each group has."""

    order: Int[Tensor, " N"]
    """All things, one class after the other."""
    start: Int[Tensor, " C"]
    """Where each class begins in that order."""
    count: Int[Tensor, " C"]
    """How many members each class has."""
    groups: tuple[Int[Tensor, " G"], ...]
    """Classes of each group."""

    @classmethod
    def of(cls, classes: Int[Tensor, " N"], groups: Int[Tensor, " N"]) -> "Catalogue":
        """Sort things by group and class; the same class number in two groups is two classes."""
        if len(classes) != len(groups) or len(classes) == 0:
            raise InputError(
                f"There are {len(classes)} classes and {len(groups)} groups; give one of each for every thing, and at "
                "least one thing."
            )
        pairs, place, count = torch.unique(
            torch.stack([groups, classes], dim=1), dim=0, return_inverse=True, return_counts=True
        )
        numbers = torch.arange(len(pairs))
        return cls(
            order=place.argsort(stable=True),
            start=count.cumsum(0) - count,
            count=count,
            groups=tuple(numbers[pairs[:, 0] == group] for group in pairs[:, 0].unique()),
        )


@final
@dataclass(frozen=True, slots=True)
class Instances:
    """How sets are drawn from a catalogue: all points of a set come from classes of one group."""

    points: tuple[int, int]
    """Least and most points of a set; one batch, one number."""
    clusters: tuple[int, int]
    """Least and most clusters of a set."""
    sizes: Sizes
    """How many points each cluster has."""
    concentration: float
    """Of the Dirichlet that shares are from, where sizes are drawn so."""
    variants: int = 1
    """How many classes each class stands for."""

    def __post_init__(self) -> None:
        (fewest, most), (least_clusters, most_clusters) = self.points, self.clusters
        if not (1 <= fewest <= most and 1 <= least_clusters <= most_clusters):
            raise ConfigError(
                f"points={self.points} and clusters={self.clusters} must each be a least and a most number, from 1 up."
            )
        if least_clusters > fewest:
            raise ConfigError(
                f"clusters={self.clusters} asks for more clusters than the {fewest} points that a set may have; "
                "raise points or lower clusters."
            )
        if not 0 < self.concentration < float("inf"):
            raise ConfigError(f"concentration={self.concentration} must be above 0 and finite.")

    def check(self, catalogue: Catalogue) -> None:
        """Refuse a catalogue from a group of which no such set can be drawn."""
        least, most = self.clusters
        for number, group in enumerate(catalogue.groups):
            n_classes = len(group) * self.variants
            if n_classes < least:
                raise InputError(
                    f"Group {number} (in order) has {n_classes} classes, fewer than the {least} that "
                    f"clusters={self.clusters} asks for; leave that group out or ask for fewer."
                )
            if self.sizes == "dirichlet":
                continue
            needed = fewest_classes(catalogue.count[group].repeat(self.variants), self.points[1])
            if needed > min(most, n_classes):
                raise InputError(
                    f"Group {number} (in order) has {n_classes} classes, any {min(most, n_classes)} of which may have "
                    f"fewer than {self.points[1]} members; ask for fewer points or more clusters, or leave it out."
                )

    def draw(self, catalogue: Catalogue, batch_size: int, generator: Generator) -> Draw:
        """Draw that many sets, points in random order."""
        fewest, most = self.points
        n_points = int(torch.randint(fewest, most + 1, (), generator=generator))
        picks = torch.randint(len(catalogue.groups), (batch_size,), generator=generator)
        sets = [self._draw_one(catalogue, catalogue.groups[int(pick)], n_points, generator) for pick in picks]
        index, labels, variant = (torch.stack(parts) for parts in zip(*sets, strict=True))
        return Draw(index, labels, variant)

    def _draw_one(
        self, catalogue: Catalogue, group: Int[Tensor, " G"], n_points: int, generator: Generator
    ) -> tuple[Int[Tensor, " N"], Int[Tensor, " N"], Int[Tensor, " N"]]:
        """Places, labels and variants of the points of one set."""
        shuffled = torch.randperm(len(group) * self.variants, generator=generator)
        if self.sizes == "composition":
            chosen, sizes = self._composed(catalogue.count[group[shuffled // self.variants]], n_points, generator)
        else:
            chosen, sizes = self._shared_out(len(shuffled), n_points, generator)
        picked = shuffled[:chosen][sizes > 0]
        sizes = sizes[sizes > 0]
        members = _members(catalogue, group[picked // self.variants], sizes, generator)
        labels = torch.arange(len(picked)).repeat_interleave(sizes)
        order = torch.randperm(n_points, generator=generator)
        return members[order], labels[order], (picked % self.variants)[labels][order]

    def _composed(
        self, available: Int[Tensor, " C"], n_points: int, generator: Generator
    ) -> tuple[int, Int[Tensor, " K"]]:
        """How many of the classes, taken in the order given, and how many members of each: ABC's way."""
        least = max(self.clusters[0], fewest_classes(available, n_points))
        most = min(self.clusters[1], len(available), n_points)
        n_clusters = int(torch.randint(least, most + 1, (), generator=generator))
        return n_clusters, sample_composition(available[:n_clusters], n_points, generator)

    def _shared_out(self, n_classes: int, n_points: int, generator: Generator) -> tuple[int, Int[Tensor, " K"]]:
        """How many of the classes, and how many members of each: DAC's way, some of them perhaps none."""
        n_clusters = min(self.clusters[1], n_classes)
        shares = torch._standard_gamma(torch.full((n_clusters,), self.concentration), generator=generator)
        kept = torch.rand(n_clusters, generator=generator) < 0.5
        kept[: self.clusters[0]] = True
        shares = (shares + torch.finfo(shares.dtype).tiny) * kept
        labels = torch.multinomial(shares, n_points, replacement=True, generator=generator)
        return n_clusters, torch.bincount(labels, minlength=n_clusters)


def _members(
    catalogue: Catalogue, classes: Int[Tensor, " K"], sizes: Int[Tensor, " K"], generator: Generator
) -> Int[Tensor, " N"]:
    """Members of each class, all different as long as there are any that were not taken."""
    count = catalogue.count[classes]
    slot = torch.arange(len(classes)).repeat_interleave(count)
    first = count.cumsum(0) - count
    place = catalogue.start[classes][slot] + torch.arange(len(slot)) - first[slot]
    # Whole part and fraction of one number sort by class, then at random.
    shuffled = place[(slot + torch.rand(len(slot), generator=generator, dtype=torch.float64)).argsort()]
    taker = torch.arange(len(classes)).repeat_interleave(sizes)
    turn = torch.arange(len(taker)) - (sizes.cumsum(0) - sizes)[taker]
    return catalogue.order[shuffled[first[taker] + turn % count[taker]]]


def chosen(known: Sequence[Name], only: Sequence[Name], without: Sequence[Name]) -> list[Name]:
    """Those of the known names that are asked for: the ``only`` ones, or all if there are none, less the others."""
    unknown = [name for name in (*only, *without) if name not in known]
    if unknown:
        raise ConfigError(f"There is no {unknown[0]!r} to take or to leave; there is: {', '.join(map(str, known))}.")
    taken = [name for name in only or known if name not in without]
    if not taken:
        raise ConfigError(f"Nothing is left when only={list(only)} are taken, without={list(without)}.")
    return taken
