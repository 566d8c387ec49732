"""Synthetic sets with known clusters, the same whenever they are sampled."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from benchmarks.baselines.set_transformer import Mixtures
from coterie.amortized.tasks.synthetic import MixturesOfGaussians, WarpedGaussians

SETS_PER_BATCH: Final = 10  # sets that have the same number of points, as published
LEAST_PROPORTION: Final = 1e-10
"""Added to the proportion of each true component, as published, since a component may have no points."""
KINDS: Final[dict[str, type[MixturesOfGaussians] | type[WarpedGaussians]]] = {
    "mog": MixturesOfGaussians,
    "warped": WarpedGaussians,
}


@dataclass(frozen=True)
class SyntheticSet:
    """Points, their true clusters, and the true mixture if they are from Gaussians."""

    x: Float[Tensor, "N D"]
    y: Int[Tensor, " N"]
    truth: Mixtures | None = None

    @property
    def n_clusters(self) -> int:
        """Clusters that have at least one point."""
        return len(torch.unique(self.y))


@dataclass(frozen=True)
class SetSampler:
    """Batches of sets of one kind, fixed by a seed: the first batches do not depend on how many are sampled."""

    kind: str
    max_points: int
    max_clusters: int
    seed: int
    batches: int

    @property
    def name(self) -> str:
        """Name in results files."""
        return f"{self.kind}-{self.max_points}-{self.max_clusters}"

    @property
    def tasks(self) -> MixturesOfGaussians | WarpedGaussians:
        """The generator."""
        return KINDS[self.kind](max_points=self.max_points, max_clusters=self.max_clusters)

    def sample(self) -> Iterator[list[SyntheticSet]]:
        """Sample one batch after the other."""
        generator = Generator().manual_seed(self.seed)
        tasks = self.tasks
        for _ in range(self.batches):
            if isinstance(tasks, WarpedGaussians):
                batch = tasks.sample(SETS_PER_BATCH, generator)
                yield [SyntheticSet(x, y) for x, y in zip(batch.x, batch.labels, strict=True)]
                continue
            batch, mean, deviation = tasks.sample_with_parameters(SETS_PER_BATCH, generator)
            proportion = one_hot(batch.labels, mean.shape[1]).to(mean.dtype).mean(dim=1)
            log_proportion = (proportion + LEAST_PROPORTION).log()
            parts = (log_proportion, mean, deviation)
            truths = (Mixtures(*(part[i : i + 1] for part in parts)) for i in range(len(mean)))
            yield [SyntheticSet(*fields) for fields in zip(batch.x, batch.labels, truths, strict=True)]

    def sets(self) -> list[SyntheticSet]:
        """Return the sets of all batches."""
        return [one for batch in self.sample() for one in batch]


def mixture_of_size(n_points: int, max_clusters: int, seed: int) -> SyntheticSet:
    """Sample one set from a mixture of Gaussians with exactly that many points."""
    # Points are independent, so that the first ones of a larger set are a set of the same kind.
    tasks = MixturesOfGaussians(max_points=4 * n_points, max_clusters=max_clusters)
    batch = tasks.sample(1, Generator().manual_seed(seed))
    return SyntheticSet(batch.x[0, :n_points].contiguous(), batch.labels[0, :n_points])
