"""The prior of the judge: labelled sets of many kinds, from shapes in the plane to wide tables."""

import math
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Generator

from coterie.base import one_thread
from coterie.errors import ConfigError
from coterie.judged.prior.geometric import sample_geometric
from coterie.judged.prior.sampling import Rng, add_outliers, fit_spread, sample_target
from coterie.judged.prior.tables import sample_table
from coterie.judged.prior.task import SyntheticTask
from coterie.nn.model import TaskBatch
from coterie.validation import Integer, check_parameters

MAX_DRAFTS: Final = 200  # drafts of one set that may be dropped before sampling fails
_CONSTRAINTS: Final = {
    "min_points": Integer(20),
    "max_points": Integer(20),
    "max_features": Integer(1, 64),
    "max_clusters": Integer(2),
}


@final
@dataclass(frozen=True, slots=True)
class SyntheticPrior:
    """Distribution of labelled sets: one half geometric, one half like tables.

    For each set a target is sampled for how well nearest neighbours predict the labels. The within-cluster spread is
    adjusted until the set meets it; sets that cannot meet it are sampled again.

    Examples
    --------
    >>> import torch
    >>> task = SyntheticPrior(max_points=300).sample_task(torch.Generator().manual_seed(0))
    >>> task.x.shape[0] == task.labels.shape[0]
    True
    """

    min_points: int = 50
    max_points: int = 2000  # largest number of points; their number is log-uniform
    max_features: int = 64
    max_clusters: int = 50  # largest number of clusters; small sets have fewer

    def __post_init__(self) -> None:
        check_parameters(self, _CONSTRAINTS, ConfigError)
        if self.min_points > self.max_points:
            raise ConfigError(f"min_points={self.min_points} must be at most max_points={self.max_points}.")

    def sample_task(self, generator: Generator) -> SyntheticTask:
        """Sample one set, the same for any number of threads; some contain outliers, labelled -1."""
        with one_thread():
            rng = Rng(generator)
            return self._sample_of_size(*self._sample_size(rng), rng, outliers=True)

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Sample sets with equal numbers of points and features; none has outliers, which batches cannot represent."""
        with one_thread():
            rng = Rng(generator)
            n_points, n_features = self._sample_size(rng)
            sets = [self._sample_of_size(n_points, n_features, rng, outliers=False) for _ in range(batch_size)]
        labels = torch.stack([one.labels for one in sets])
        return TaskBatch(torch.stack([one.x for one in sets]), labels, torch.ones_like(labels, dtype=torch.bool))

    def _sample_size(self, rng: Rng) -> tuple[int, int]:
        n_points = math.floor(rng.log_scalar(self.min_points, self.max_points + 1))
        weights = {str(count): sum(_feature_count_weights(count)) for count in range(1, self.max_features + 1)}
        return min(n_points, self.max_points), int(rng.choice(weights))

    def _sample_of_size(self, n_points: int, n_features: int, rng: Rng, *, outliers: bool) -> SyntheticTask:
        geometric, table = _feature_count_weights(n_features)
        kind = rng.choice({"geometric": geometric, "table": table})
        n_outliers = _sample_n_outliers(kind, n_points, rng) if outliers else 0
        sample_draft = sample_geometric if kind == "geometric" else sample_table
        for _ in range(MAX_DRAFTS):
            draft = sample_draft(n_points - n_outliers, n_features, self.max_clusters, rng)
            target = sample_target(draft.difficulty, rng)
            fitted = fit_spread(draft, target)
            if fitted is None or not bool(fitted[0].isfinite().all()):
                continue
            x, labels = add_outliers(fitted[0], draft.labels, n_outliers, rng)
            measured = {"target_low": target.low, "target_high": target.high, "agreement": fitted[1]}
            description = {**draft.description, **measured, "outliers": n_outliers / n_points}
            return SyntheticTask(x, labels, kind, description)
        raise ConfigError(
            f"None of {MAX_DRAFTS} sets of {n_points} points and {n_features} features had recoverable labels. "
            "Raise min_points or max_features."
        )


def _sample_n_outliers(kind: str, n_points: int, rng: Rng) -> int:
    if not rng.bernoulli(0.15 if kind == "geometric" else 0.05):
        return 0
    return math.ceil(rng.log_scalar(0.01, 0.15) * n_points)


def _feature_count_weights(n_features: int) -> tuple[float, float]:
    """Return how often geometric sets and tables have that many features; each sums to about 1."""
    if n_features <= 3:
        return ((0.0, 0.02), (0.72, 0.05), (0.12, 0.07))[n_features - 1]
    return 0.05 * 0.7 ** (n_features - 4), 0.17 * n_features**-0.8
