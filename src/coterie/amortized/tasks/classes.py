"""Sets drawn from things that are sorted into classes, and classes into groups."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar, final

import torch
from jaxtyping import Float, Int, UInt8
from torch import Generator, Tensor

from coterie.errors import ConfigError, InputError
from coterie.nn.model import TaskBatch
from coterie.nn.vision import AMOUNTS, distorted

_TRIES = 64
"""Draws that are made at once, and looked through for one that fits, before all ways are weighed."""


def fewest_classes(available: Int[Tensor, " C"], n_points: int) -> int:
    """Smallest number of classes any choice of which has that many members; one more than there are if none has."""
    total = available.sort().values.cumsum(0)
    return int(torch.searchsorted(total, n_points)) + 1


def sample_composition(available: Int[Tensor, " K"], n_points: int, generator: Generator) -> Int[Tensor, " K"]:
    """Draw sizes of classes that add up to the number of points, at least one each and none more than is available.

    What is left after one point for each class is cut at places drawn uniformly, each independent of the others, and
    drawn again until no class gets more than it has. The law of the sizes is that of these repeated draws, however rare
    a draw that fits: after some misses, sizes are drawn from that law directly.
    """
    n_classes = len(available)
    if not 0 < n_classes <= n_points <= int(available.sum()) or int(available.min()) < 1:
        raise InputError(
            f"{n_points} points cannot be shared out among {n_classes} classes of {available.tolist()} members with at "
            "least one for each; ask for another number of points or of classes."
        )
    rest, spare = n_points - n_classes, available - 1
    cuts = torch.randint(rest + 1, (_TRIES, n_classes - 1), generator=generator).sort(dim=1).values
    edges = torch.nn.functional.pad(torch.nn.functional.pad(cuts, (1, 0)), (0, 1), value=rest)
    parts = edges.diff(dim=1)
    fits = (parts <= spare).all(dim=1)
    if fits.any():
        return parts[fits.nonzero()[0, 0]] + 1
    return _constrained_parts(spare, rest, generator) + 1


def _constrained_parts(spare: Int[Tensor, " K"], rest: int, generator: Generator) -> Int[Tensor, " K"]:
    """Draw the parts between random cuts given that none is above its limit, by weighing all ways to go on.

    A way to cut is worth 1 / (m1! m2! ...) where m cuts fall on the same place, as so many orders of the draws have the
    same result. Walking from cut to cut, the next place and the number of cuts on it are drawn by the worth of all that
    may follow.
    """
    n_cuts = len(spare) - 1
    inverse_factorial = torch.exp(-torch.lgamma(torch.arange(n_cuts + 1, dtype=torch.float64) + 1))
    worth = _worth_of_going_on(spare, rest, inverse_factorial)
    cuts: list[int] = []
    here = 0
    weight = inverse_factorial * worth[:, 0]  # how many cuts fall on the very beginning
    cuts += [0] * int(torch.multinomial(weight, 1, generator=generator))
    while len(cuts) < n_cuts:
        placed = len(cuts)
        furthest = min(rest, here + int(spare[placed]))
        weight = inverse_factorial[1 : n_cuts - placed + 1, None] * worth[placed + 1 :, here + 1 : furthest + 1]
        pick = int(torch.multinomial(weight.flatten(), 1, generator=generator))
        more, step = divmod(pick, weight.shape[1])
        here += step + 1
        cuts += [here] * (more + 1)
    return torch.tensor([0, *cuts, rest]).diff()


def _worth_of_going_on(
    spare: Int[Tensor, " K"], rest: int, inverse_factorial: Float[Tensor, " K"]
) -> Float[Tensor, "K R"]:
    """Worth of all that may follow when so many cuts are placed, the last of them at each place."""
    n_cuts = len(spare) - 1
    places = torch.arange(rest + 1)
    step = places - places.unsqueeze(1)
    worth = torch.zeros((n_cuts + 1, rest + 1), dtype=torch.float64)
    worth[n_cuts] = (rest - places <= spare[n_cuts]).double()
    for placed in range(n_cuts - 1, -1, -1):
        onwards = inverse_factorial[1 : n_cuts - placed + 1] @ worth[placed + 1 :]
        # Differences of running totals would be quicker, and lose what is worth little but may be the only way.
        within_reach = (step > 0) & (step <= spare[placed])
        worth[placed] = within_reach.double() @ onwards
    return worth


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


QUARTER_TURNS = 4
"""Ways to turn a square that leave it in its place."""


@final
@dataclass(frozen=True, slots=True)
class Distortion:
    """How much an image may change without becoming another: each is moved by random amounts of its own."""

    turn_by: float = 0.0
    """Most degrees that an image is turned by, to either side."""
    stretched: float = 0.0
    """Most that an image is stretched, shrunk or slanted along an axis, as a share of its size."""
    shifted: float = 0.0
    """Most that an image is shifted along an axis, as a share of its size."""

    def __post_init__(self) -> None:
        if not (0 <= self.turn_by <= 180 and 0 <= self.stretched < 1 and 0 <= self.shifted < 1):
            raise ConfigError(
                f"turn_by={self.turn_by} must be from 0 to 180, and stretched={self.stretched} and "
                f"shifted={self.shifted} from 0 to below 1."
            )

    def applied(self, images: Float[Tensor, "M C H W"], generator: Generator) -> Float[Tensor, "M C H W"]:
        """All images, each turned, stretched, slanted and shifted; zeros come in from outside."""
        if not (self.turn_by or self.stretched or self.shifted):
            return images
        amounts = 2 * torch.rand((AMOUNTS, len(images)), generator=generator) - 1
        return distorted(images, amounts, turn_by=self.turn_by, stretched=self.stretched, shifted=self.shifted)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ImageTasks:
    """Sets of images, all of a set from classes of one group; every image may be distorted when it is drawn.

    A point is an image with its channels one after the other, from 0 to 1, or of zeros and ones.
    """

    images: UInt8[Tensor, "M C H W"]
    """All images."""
    classes: Int[Tensor, " M"]
    """Class of each."""
    groups: Int[Tensor, " M"]
    """Group of each; the same class in two groups is two classes."""
    points: tuple[int, int] = (100, 100)
    """Least and most images of a set; one batch, one number."""
    clusters: tuple[int, int] = (5, 35)
    """Least and most classes of a set."""
    sizes: Sizes = "composition"
    """How many images of each class: see Instances."""
    concentration: float = 5.0
    """Of the Dirichlet, where sizes are drawn so."""
    rotations: bool = False
    """Whether a class turned by 90, 180 or 270 degrees is another class of the same group."""
    turn_by: float = 0.0
    """Most degrees that an image is turned by, to either side."""
    stretched: float = 0.0
    """Most that an image is stretched, shrunk or slanted along an axis, as a share of its size."""
    shifted: float = 0.0
    """Most that an image is shifted along an axis, as a share of its size."""
    binarised: bool = False
    """Whether each pixel becomes 1 with the probability that is its grey value, and otherwise 0; anew at each draw."""
    mirrored: bool = False
    """Whether each image is mirrored, left to right, with probability one half."""
    _catalogue: Catalogue = field(init=False, repr=False)
    _instances: Instances = field(init=False, repr=False)
    _distortion: Distortion = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != torch.uint8 or len(self.images) != len(self.classes):
            raise InputError(
                f"images are {self.images.dtype} of shape {tuple(self.images.shape)} for {len(self.classes)} classes; "
                "give bytes of shape (M, C, H, W), and a class for each image."
            )
        height, width = self.images.shape[2:]
        if self.rotations and height != width:
            raise InputError(
                f"Images of {height} by {width} pixels do not keep their shape when turned by 90 degrees; "
                "set rotations to False, or make them square."
            )
        variants = QUARTER_TURNS if self.rotations else 1
        object.__setattr__(self, "_distortion", Distortion(self.turn_by, self.stretched, self.shifted))
        object.__setattr__(
            self, "_instances", Instances(self.points, self.clusters, self.sizes, self.concentration, variants)
        )
        object.__setattr__(self, "_catalogue", Catalogue.of(self.classes, self.groups))
        self._instances.check(self._catalogue)

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Draw that many sets."""
        draw = self._instances.draw(self._catalogue, batch_size, generator)
        images = self.images[draw.index.flatten()]
        if self.rotations:
            images = _quarter_turned(images, draw.variant.flatten())
        x = self._distortion.applied(images.float() / 255, generator)
        if self.mirrored:
            turned_over = torch.rand((len(x), 1, 1, 1), generator=generator) < 0.5
            x = torch.where(turned_over, x.flip(3), x)
        if self.binarised:
            x = (torch.rand(x.shape, generator=generator) < x).to(x.dtype)
        return draw.filled(x.flatten(1))


def _quarter_turned(images: UInt8[Tensor, "M C H W"], quarters: Int[Tensor, " M"]) -> UInt8[Tensor, "M C H W"]:
    """Each square image turned by its own number of quarters."""
    turned = images.clone()
    for quarter in range(1, QUARTER_TURNS):
        these = (quarters == quarter).nonzero().squeeze(1)
        turned[these] = images[these].rot90(quarter, (2, 3))
    return turned
