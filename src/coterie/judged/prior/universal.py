"""The universal prior: labelled sets of as many kinds as people meet, from shapes in the plane to wide tables."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.judged.prior.geometric import draw_geometric
from coterie.judged.prior.sampling import Dice, Draft, add_strays, draw_wanted, settle
from coterie.judged.prior.tables import draw_table
from coterie.nn.model import TaskBatch

FEWEST_POINTS: Final = 20
MOST_FEATURES: Final = 64
MOST_DRAFTS: Final = 200
"""Drafts of one set that may come to nothing before something must be wrong."""


@final
@dataclass(frozen=True, slots=True)
class DrawnSet:
    """One labelled set."""

    x: Float[Tensor, "N D"]
    """The points, in random order and in units of any size."""
    labels: Int[Tensor, " N"]
    """Cluster of each point, 0..K-1 with every one in use and K at least 2; -1 for points of no cluster."""
    kind: str
    """The half of the prior it is from: "geometric" or "table"."""
    story: Mapping[str, float | str]
    """What was drawn: layout, bodies or columns, sizes, the agreement that was wanted and the one that came out."""


@final
@dataclass(frozen=True, slots=True)
class UniversalTasks:
    """Sets of very many kinds, half of them shapes and half of them like tables.

    Of every set a degree is drawn to which neighbours tell the label of a point, from nearly always to hardly better
    than not; the clusters are then tightened or loosened until it holds, or another set is drawn.

    Examples
    --------
    >>> import torch
    >>> drawn = UniversalTasks(max_points=300).draw(torch.Generator().manual_seed(0))
    >>> drawn.x.shape[0] == drawn.labels.shape[0]
    True
    """

    min_points: int = 50
    """Fewest points of a set."""
    max_points: int = 2000
    """Most points of a set; the logarithm of their number is uniform."""
    max_features: int = 64
    """Most columns, 64 at most."""
    max_clusters: int = 50
    """Most clusters; small sets have fewer."""

    def __post_init__(self) -> None:
        if not FEWEST_POINTS <= self.min_points <= self.max_points:
            raise ConfigError(
                f"min_points={self.min_points} and max_points={self.max_points} must be at least {FEWEST_POINTS}, and "
                "the first no larger than the second."
            )
        if not 1 <= self.max_features <= MOST_FEATURES or self.max_clusters < 2:
            raise ConfigError(
                f"max_features={self.max_features} must be between 1 and {MOST_FEATURES}, and "
                f"max_clusters={self.max_clusters} at least 2."
            )

    def draw(self, generator: Generator) -> DrawnSet:
        """Draw one set; some have background noise or outliers, labelled -1.

        The same seed gives the same set whatever the number of threads, and torch's own random state is not used.
        """
        with _one_thread():
            dice = Dice(generator)
            n_points, n_features = self._draw_size(dice)
            return self._draw(n_points, n_features, dice, strays=True)

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Draw sets that have the same numbers of points and of columns; all else varies.

        None of them has points of no cluster, since a batch has no label for these.
        """
        with _one_thread():
            dice = Dice(generator)
            n_points, n_features = self._draw_size(dice)
            sets = [self._draw(n_points, n_features, dice, strays=False) for _ in range(batch_size)]
        labels = torch.stack([one.labels for one in sets])
        return TaskBatch(torch.stack([one.x for one in sets]), labels, torch.ones_like(labels, dtype=torch.bool))

    def _draw_size(self, dice: Dice) -> tuple[int, int]:
        """Numbers of points and of columns."""
        n_points = math.floor(dice.log_number(self.min_points, self.max_points + 1))
        widths = {str(width): sum(_widths(width)) for width in range(1, self.max_features + 1)}
        return min(n_points, self.max_points), int(dice.pick(widths))

    def _draw(self, n_points: int, n_features: int, dice: Dice, *, strays: bool) -> DrawnSet:
        """A set of that size whose truth can be seen as well as is wanted."""
        geometric, table = _widths(n_features)
        kind = dice.pick({"geometric": geometric, "table": table})
        n_strays = _number_of_strays(kind, n_points, dice) if strays else 0
        for _ in range(MOST_DRAFTS):
            draft = self._draft(kind, n_points - n_strays, n_features, dice)
            wanted = draw_wanted(draft.clarity, dice)
            settled = settle(draft, wanted)
            if settled is None or not bool(settled[0].isfinite().all()):
                continue
            x, labels = add_strays(settled[0], draft.labels, n_strays, dice)
            found = {"wanted_low": wanted.low, "wanted_high": wanted.high, "agreement": settled[1]}
            story = dict(draft.story) | found | {"strays": n_strays / n_points}
            return DrawnSet(x, labels, kind, story)
        raise ConfigError(
            f"{MOST_DRAFTS} sets of {n_points} points and {n_features} columns came out unrecognisable. "
            "Allow for more points or columns."
        )

    def _draft(self, kind: str, n_points: int, n_features: int, dice: Dice) -> Draft:
        drawer = draw_geometric if kind == "geometric" else draw_table
        return drawer(n_points, n_features, self.max_clusters, dice)


def _number_of_strays(kind: str, n_points: int, dice: Dice) -> int:
    """How many points belong to no cluster: none in most sets."""
    if not dice.happens(0.15 if kind == "geometric" else 0.05):
        return 0
    return math.ceil(dice.log_number(0.01, 0.15) * n_points)


def _widths(width: int) -> tuple[float, float]:
    """How often shapes and tables have so many columns: both sum to about one."""
    if width <= 3:
        return ((0.0, 0.02), (0.72, 0.05), (0.12, 0.07))[width - 1]
    return 0.05 * 0.7 ** (width - 4), 0.17 * width**-0.8


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread, since sums that are split among threads depend on their number."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
