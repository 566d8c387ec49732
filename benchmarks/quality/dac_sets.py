"""The synthetic sets of DAC's experiments, drawn anew whenever they are needed, and the numbers of its paper."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from coterie.amortized.tasks.synthetic import MixturesOfGaussians, WarpedGaussians
from coterie.ops.gaussian_mixtures import Mixtures

SETS_PER_BATCH: Final = 10
"""Sets that have one number of points in common, as published."""
LEAST_SHARE: Final = 1e-10
"""Added to the share of each true component, as published: one without points has none."""


@dataclass(frozen=True)
class LabelledSet:
    """One set, who belongs together in it, and its true mixture if it is one of Gaussians."""

    x: Float[Tensor, "N D"]
    y: Int[Tensor, " N"]
    truth: Mixtures | None

    @property
    def n_clusters(self) -> int:
        """Clusters that have at least one point."""
        return len(torch.unique(self.y))


@dataclass(frozen=True)
class Sets:
    """Sets of one kind, fixed by a seed: the first batches are the same however many are drawn."""

    name: str
    tasks: MixturesOfGaussians | WarpedGaussians
    seed: int
    batches: int

    def draw(self) -> Iterator[list[LabelledSet]]:
        """Draw one batch after the other."""
        generator = Generator().manual_seed(self.seed)
        for _ in range(self.batches):
            yield self._draw_batch(generator)

    def _draw_batch(self, generator: Generator) -> list[LabelledSet]:
        if isinstance(self.tasks, WarpedGaussians):
            batch = self.tasks.sample(SETS_PER_BATCH, generator)
            return [LabelledSet(x, y, None) for x, y in zip(batch.x, batch.labels, strict=True)]
        batch, mean, deviation = self.tasks.sample_with_parameters(SETS_PER_BATCH, generator)
        share = one_hot(batch.labels, mean.shape[1]).to(mean.dtype).mean(dim=1)
        log_share = (share + LEAST_SHARE).log()
        truths = (Mixtures(*(part[i : i + 1] for part in (log_share, mean, deviation))) for i in range(len(mean)))
        return [LabelledSet(*parts) for parts in zip(batch.x, batch.labels, truths, strict=True)]


def mixtures(max_points: int, max_clusters: int, seed: int, batches: int) -> Sets:
    """Sets from mixtures of Gaussians."""
    tasks = MixturesOfGaussians(max_points=max_points, max_clusters=max_clusters)
    return Sets(f"mog-{max_points}-{max_clusters}", tasks, seed, batches)


def warped(max_points: int, max_clusters: int, seed: int, batches: int) -> Sets:
    """Sets of arcs."""
    tasks = WarpedGaussians(max_points=max_points, max_clusters=max_clusters)
    return Sets(f"warped-{max_points}-{max_clusters}", tasks, seed, batches)


TABLES: Final[dict[int, tuple[Sets, ...]]] = {
    1: (mixtures(1000, 4, seed=1000, batches=100), mixtures(3000, 12, seed=1001, batches=100)),
    5: (mixtures(3000, 12, seed=1005, batches=10),),
    6: (warped(1000, 4, seed=1006, batches=100), warped(3000, 12, seed=1007, batches=100)),
}
"""Sets of each of the paper's tables."""


def exact_set(n_points: int, max_clusters: int, seed: int) -> LabelledSet:
    """Draw one set from a mixture of Gaussians with exactly that many points."""
    # Points are independent, so that the first ones of a larger set are a set of the same kind.
    tasks = MixturesOfGaussians(max_points=4 * n_points, max_clusters=max_clusters)
    batch = tasks.sample(1, Generator().manual_seed(seed))
    return LabelledSet(batch.x[0, :n_points].contiguous(), batch.labels[0, :n_points], None)


@cache
def published() -> dict[str, Any]:
    """Numbers printed in the paper: see `dac_published.toml` for what each table holds."""
    return tomllib.loads(Path(__file__).with_name("dac_published.toml").read_text(encoding="utf-8"))
