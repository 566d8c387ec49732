"""Tasks sampled from elements with known classes, such as images; classes may belong to groups."""

from dataclasses import dataclass, field
from typing import Literal, final

import torch
from jaxtyping import Float, Int, UInt8
from torch import Generator, Tensor

from coterie.errors import ConfigError, InputError
from coterie.nn.model import TaskBatch
from coterie.nn.vision import AMOUNTS, distort

_TRIES = 64  # attempts of the rejection sampler before sizes are sampled exactly


def fewest_classes(available: Int[Tensor, " C"], n_points: int) -> int:
    """Return the least number of classes such that any choice of them has that many members; C + 1 if there is none."""
    total = available.sort().values.cumsum(0)
    return int(torch.searchsorted(total, n_points)) + 1


def sample_composition(available: Int[Tensor, " K"], n_points: int, generator: Generator) -> Int[Tensor, " K"]:
    """Sample class sizes that add up to the number of points, at least one each and at most the available number.

    The points beyond one per class are split at independent uniform cut points, and rejected until no class gets more
    than it has. If a few attempts fail, sizes are sampled from that conditional distribution directly.
    """
    n_classes = len(available)
    if not 0 < n_classes <= n_points <= int(available.sum()) or int(available.min()) < 1:
        raise InputError(
            f"{n_points} points cannot be divided among {n_classes} classes of {available.tolist()} members with at "
            "least one each; ask for another number of points or of classes."
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
    """Sample the parts between random cut points given that none exceeds its limit.

    A sequence of cuts has weight 1 / (m1! m2! ...) if m cuts coincide, since that many orders give the same result.
    Going from cut to cut, the next position and its number of cuts are sampled by the total weight of all
    continuations.
    """
    n_cuts = len(spare) - 1
    inverse_factorial = torch.exp(-torch.lgamma(torch.arange(n_cuts + 1, dtype=torch.float64) + 1))
    total = _continuation_weights(spare, rest, inverse_factorial)
    cuts: list[int] = []
    here = 0
    weight = inverse_factorial * total[:, 0]  # number of cuts at position 0
    cuts += [0] * int(torch.multinomial(weight, 1, generator=generator))
    while len(cuts) < n_cuts:
        placed = len(cuts)
        furthest = min(rest, here + int(spare[placed]))
        weight = inverse_factorial[1 : n_cuts - placed + 1, None] * total[placed + 1 :, here + 1 : furthest + 1]
        pick = int(torch.multinomial(weight.flatten(), 1, generator=generator))
        more, step = divmod(pick, weight.shape[1])
        here += step + 1
        cuts += [here] * (more + 1)
    return torch.tensor([0, *cuts, rest]).diff()


def _continuation_weights(
    spare: Int[Tensor, " K"], rest: int, inverse_factorial: Float[Tensor, " K"]
) -> Float[Tensor, "K R"]:
    """Compute the total weight of all continuations, given the number of cuts and the position of the last one."""
    n_cuts = len(spare) - 1
    positions = torch.arange(rest + 1)
    step = positions - positions.unsqueeze(1)
    total = torch.zeros((n_cuts + 1, rest + 1), dtype=torch.float64)
    total[n_cuts] = (rest - positions <= spare[n_cuts]).double()
    for placed in range(n_cuts - 1, -1, -1):
        onward = inverse_factorial[1 : n_cuts - placed + 1] @ total[placed + 1 :]
        # Differences of cumulative sums would be faster, but lose small weights that may be the only ones.
        within_reach = (step > 0) & (step <= spare[placed])
        total[placed] = within_reach.double() @ onward
    return total


Sizes = Literal["composition", "dirichlet"]
"""How the sizes of classes in a set are sampled.

"composition" is ABC's Algorithm 1: the number of classes is uniform among those for which any choice of classes has
enough members, and sizes are random within what each class has. "dirichlet" is DAC's way for sets of images: each class
beyond the least number is dropped with probability one half, proportions are from a Dirichlet distribution, and members
repeat where a class has too few.
"""


@final
@dataclass(frozen=True, slots=True, eq=False)
class SampledSets:
    """Sets of one size, as indices into the collection that they were sampled from."""

    index: Int[Tensor, "B N"]  # element of each point
    labels: Int[Tensor, "B N"]  # cluster of each point, 0..K-1, all in use
    variant: Int[Tensor, "B N"]  # variant of its class that each point shows

    def to_batch(self, points: Float[Tensor, "Q D"]) -> TaskBatch:
        """Return the sets, given all points, set after set."""
        x = points.reshape(*self.labels.shape, points.shape[1])
        return TaskBatch(x, self.labels, torch.ones_like(self.labels, dtype=torch.bool))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Catalogue:
    """Members of each class, and classes of each group."""

    order: Int[Tensor, " N"]  # all elements, sorted by class
    start: Int[Tensor, " C"]  # start of each class in that order
    count: Int[Tensor, " C"]  # number of members of each class
    groups: tuple[Int[Tensor, " _"], ...]  # classes of each group

    @classmethod
    def of(cls, classes: Int[Tensor, " _"], groups: Int[Tensor, " _"]) -> "Catalogue":
        """Sort elements by group and class; the same class number in two groups is two classes."""
        if len(classes) != len(groups) or len(classes) == 0:
            raise InputError(
                f"There are {len(classes)} class labels and {len(groups)} group labels; give one of each per element, "
                "and at least one element."
            )
        pairs, pair_index, count = torch.unique(
            torch.stack([groups, classes], dim=1), dim=0, return_inverse=True, return_counts=True
        )
        numbers = torch.arange(len(pairs))
        return cls(
            order=pair_index.argsort(stable=True),
            start=count.cumsum(0) - count,
            count=count,
            groups=tuple(numbers[pairs[:, 0] == group] for group in pairs[:, 0].unique()),
        )


@final
@dataclass(frozen=True, slots=True)
class Instances:
    """Sampler of sets from a catalogue; all points of a set come from classes of one group."""

    points: tuple[int, int]  # smallest and largest number of points of a set; the same in one batch
    clusters: tuple[int, int]  # smallest and largest number of clusters of a set
    sizes: Sizes  # how cluster sizes are sampled
    concentration: float  # concentration of the Dirichlet distribution, for ``sizes="dirichlet"``
    variants: int = 1  # variants of each class that count as classes of their own

    def __post_init__(self) -> None:
        (fewest, most), (least_clusters, most_clusters) = self.points, self.clusters
        if not (1 <= fewest <= most and 1 <= least_clusters <= most_clusters):
            raise ConfigError(
                f"points={self.points} and clusters={self.clusters} must each be a range of positive integers."
            )
        if least_clusters > fewest:
            raise ConfigError(
                f"clusters={self.clusters} needs more points than the {fewest} that a set may have; raise points or "
                "lower clusters."
            )
        if not 0 < self.concentration < float("inf"):
            raise ConfigError(f"concentration={self.concentration} must be above 0 and finite.")

    def check(self, catalogue: Catalogue) -> None:
        """Reject a catalogue with a group from which no such set can be sampled."""
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

    def sample(self, catalogue: Catalogue, batch_size: int, generator: Generator) -> SampledSets:
        """Sample that many sets, points in random order."""
        fewest, most = self.points
        n_points = int(torch.randint(fewest, most + 1, (), generator=generator))
        picks = torch.randint(len(catalogue.groups), (batch_size,), generator=generator)
        sets = [self._sample_one(catalogue, catalogue.groups[int(pick)], n_points, generator) for pick in picks]
        index, labels, variant = (torch.stack(parts) for parts in zip(*sets, strict=True))
        return SampledSets(index, labels, variant)

    def _sample_one(
        self, catalogue: Catalogue, group: Int[Tensor, " G"], n_points: int, generator: Generator
    ) -> tuple[Int[Tensor, " N"], Int[Tensor, " N"], Int[Tensor, " N"]]:
        """Return indices, labels and variants of the points of one set."""
        shuffled = torch.randperm(len(group) * self.variants, generator=generator)
        if self.sizes == "composition":
            chosen, sizes = self._sample_composition(
                catalogue.count[group[shuffled // self.variants]], n_points, generator
            )
        else:
            chosen, sizes = self._sample_dirichlet(len(shuffled), n_points, generator)
        picked = shuffled[:chosen][sizes > 0]
        sizes = sizes[sizes > 0]
        members = _members(catalogue, group[picked // self.variants], sizes, generator)
        labels = torch.arange(len(picked)).repeat_interleave(sizes)
        order = torch.randperm(n_points, generator=generator)
        return members[order], labels[order], (picked % self.variants)[labels][order]

    def _sample_composition(
        self, available: Int[Tensor, " C"], n_points: int, generator: Generator
    ) -> tuple[int, Int[Tensor, " K"]]:
        """Sample the number of classes, taken in the order given, and their sizes: ABC's way."""
        least = max(self.clusters[0], fewest_classes(available, n_points))
        most = min(self.clusters[1], len(available), n_points)
        n_clusters = int(torch.randint(least, most + 1, (), generator=generator))
        return n_clusters, sample_composition(available[:n_clusters], n_points, generator)

    def _sample_dirichlet(self, n_classes: int, n_points: int, generator: Generator) -> tuple[int, Int[Tensor, " K"]]:
        """Sample the number of classes and their sizes, some of them possibly zero: DAC's way."""
        n_clusters = min(self.clusters[1], n_classes)
        proportions = torch._standard_gamma(torch.full((n_clusters,), self.concentration), generator=generator)
        kept = torch.rand(n_clusters, generator=generator) < 0.5
        kept[: self.clusters[0]] = True
        proportions = (proportions + torch.finfo(proportions.dtype).tiny) * kept
        labels = torch.multinomial(proportions, n_points, replacement=True, generator=generator)
        return n_clusters, torch.bincount(labels, minlength=n_clusters)


def _members(
    catalogue: Catalogue, classes: Int[Tensor, " K"], sizes: Int[Tensor, " K"], generator: Generator
) -> Int[Tensor, " N"]:
    """Sample members of each class, without replacement as long as possible."""
    count = catalogue.count[classes]
    slot = torch.arange(len(classes)).repeat_interleave(count)
    first = count.cumsum(0) - count
    position = catalogue.start[classes][slot] + torch.arange(len(slot)) - first[slot]
    # Integer part and fraction of one number sort by class, then at random.
    shuffled = position[(slot + torch.rand(len(slot), generator=generator, dtype=torch.float64)).argsort()]
    label = torch.arange(len(classes)).repeat_interleave(sizes)
    rank = torch.arange(len(label)) - (sizes.cumsum(0) - sizes)[label]
    return catalogue.order[shuffled[first[label] + rank % count[label]]]


QUARTER_ROTATIONS = 4  # rotations by multiples of 90 degrees


@final
@dataclass(frozen=True, slots=True)
class Distortion:
    """Largest distortion of an image; each image is distorted by random amounts of its own."""

    max_degrees: float = 0.0  # largest rotation in degrees, to either side
    max_stretch: float = 0.0  # largest stretch or shear along an axis, as a fraction of the size
    max_shift: float = 0.0  # largest shift along an axis, as a fraction of the size

    def __post_init__(self) -> None:
        if not (0 <= self.max_degrees <= 180 and 0 <= self.max_stretch < 1 and 0 <= self.max_shift < 1):
            raise ConfigError(
                f"max_degrees={self.max_degrees} must be from 0 to 180, and max_stretch={self.max_stretch} and "
                f"max_shift={self.max_shift} from 0 to below 1."
            )

    def apply(self, images: Float[Tensor, "M C H W"], generator: Generator) -> Float[Tensor, "M C H W"]:
        """Distort each image at random; zeros come in from outside."""
        if not (self.max_degrees or self.max_stretch or self.max_shift):
            return images
        amounts = 2 * torch.rand((AMOUNTS, len(images)), generator=generator) - 1
        return distort(
            images, amounts, max_degrees=self.max_degrees, max_stretch=self.max_stretch, max_shift=self.max_shift
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class ImageTasks:
    """Sets of images, all of a set from classes of one group; images may be distorted.

    A point is an image with its channels one after the other, with values from 0 to 1.
    """

    images: UInt8[Tensor, "M C H W"]  # all images
    classes: Int[Tensor, " _"]  # class of each image
    groups: Int[Tensor, " _"]  # group of each image; the same class in two groups is two classes
    points: tuple[int, int] = (100, 100)  # smallest and largest number of images of a set; the same in one batch
    clusters: tuple[int, int] = (5, 35)  # smallest and largest number of classes of a set
    sizes: Sizes = "composition"  # how cluster sizes are sampled; see ``Sizes``
    concentration: float = 5.0  # concentration of the Dirichlet distribution, for ``sizes="dirichlet"``
    rotations: bool = False  # whether a class rotated by 90, 180 or 270 degrees is another class of the same group
    max_degrees: float = 0.0  # largest rotation in degrees, to either side
    max_stretch: float = 0.0  # largest stretch or shear along an axis, as a fraction of the size
    max_shift: float = 0.0  # largest shift along an axis, as a fraction of the size
    binarised: bool = False
    """Whether pixels are sampled as bits with their grey values as probabilities, anew each time."""
    mirrored: bool = False  # whether each image is mirrored, left to right, with probability one half
    _catalogue: Catalogue = field(init=False, repr=False)
    _instances: Instances = field(init=False, repr=False)
    _distortion: Distortion = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != torch.uint8 or len(self.images) != len(self.classes):
            raise InputError(
                f"images are {self.images.dtype} of shape {tuple(self.images.shape)} with {len(self.classes)} class "
                "labels; give bytes of shape (M, C, H, W), and a label for each image."
            )
        height, width = self.images.shape[2:]
        if self.rotations and height != width:
            raise InputError(
                f"rotations=True needs square images, not {height} x {width}; set it to False, or crop the images."
            )
        variants = QUARTER_ROTATIONS if self.rotations else 1
        object.__setattr__(self, "_distortion", Distortion(self.max_degrees, self.max_stretch, self.max_shift))
        object.__setattr__(
            self, "_instances", Instances(self.points, self.clusters, self.sizes, self.concentration, variants)
        )
        object.__setattr__(self, "_catalogue", Catalogue.of(self.classes, self.groups))
        self._instances.check(self._catalogue)

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Sample that many sets."""
        sets = self._instances.sample(self._catalogue, batch_size, generator)
        images = self.images[sets.index.flatten()]
        if self.rotations:
            images = _rotate_quarters(images, sets.variant.flatten())
        x = self._distortion.apply(images.float() / 255, generator)
        if self.mirrored:
            flipped = torch.rand((len(x), 1, 1, 1), generator=generator) < 0.5
            x = torch.where(flipped, x.flip(3), x)
        if self.binarised:
            x = (torch.rand(x.shape, generator=generator) < x).to(x.dtype)
        return sets.to_batch(x.flatten(1))


def _rotate_quarters(images: UInt8[Tensor, "M C H W"], quarters: Int[Tensor, " M"]) -> UInt8[Tensor, "M C H W"]:
    """Rotate each square image by its own multiple of 90 degrees."""
    rotated = images.clone()
    for quarter in range(1, QUARTER_ROTATIONS):
        these = (quarters == quarter).nonzero().squeeze(1)
        rotated[these] = images[these].rot90(quarter, (2, 3))
    return rotated
