"""The prior of the judge: labelled sets of many kinds, from shapes in the plane to tables as people have them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final, Literal, final

import torch
from torch import Generator

from coterie.base import one_thread
from coterie.errors import ConfigError
from coterie.judged.prior.decorations import add_junk, decorate, sample_junk
from coterie.judged.prior.geometric import sample_blobs, sample_geometric, sample_many_clusters
from coterie.judged.prior.mixed import HELD_OUT_STYLES, MIXED_STYLES, sample_mixed
from coterie.judged.prior.real import find_tables, sample_real
from coterie.judged.prior.sampling import Draft, Rng, add_outliers, fit_spread, sample_target
from coterie.judged.prior.structureless import DISCRETE, HELD_OUT_STRUCTURELESS, STRUCTURELESS, UNIVARIATE, sample_units
from coterie.judged.prior.tables import sample_table
from coterie.judged.prior.task import SyntheticTask
from coterie.nn.model import TaskBatch
from coterie.validation import Choice, Constraints, Integer, Number, check_parameters

MAX_DRAFTS: Final = 200  # drafts of one set that may be dropped before sampling fails
SMALL_NULL: Final = 300  # points that many structureless sets have at most
FULL_SIZE: Final = 0.2  # fraction of the sets with the largest number of points, as subsamples of large tables have
MAX_NOISE: Final = 0.35  # largest fraction of noise among shapes
_CONSTRAINTS: Final[Mapping[str, Constraints]] = {
    "min_points": Integer(20),
    "max_points": Integer(20),
    "max_noisy_points": (Integer(20), Choice(None)),
    "max_features": Integer(1, 64),
    "max_clusters": Integer(2),
    "decorated": Number(0.0),
    "split": Choice("train", "validation"),
}


@final
@dataclass(frozen=True, slots=True)
class SyntheticPrior:
    """Distribution of labelled sets of the kinds in ``TASK_KINDS``.

    For each synthetic set with clusters a target is sampled for how well nearest neighbours predict the labels. The
    within-cluster spread is adjusted until the set meets it; sets that cannot meet it are sampled again. Junk columns,
    gaps and the like are added afterwards.

    Examples
    --------
    >>> import torch
    >>> task = SyntheticPrior(max_points=300).sample_task(torch.Generator().manual_seed(0))
    >>> task.x.shape[0] == task.labels.shape[0]
    True
    """

    metric: ClassVar[str] = "euclidean"

    min_points: int = 50
    max_points: int = 2000  # largest number of points; their number is this or log-uniform
    max_features: int = 64  # largest number of columns, before junk columns are added
    max_clusters: int = 50  # largest number of clusters; small sets have fewer
    max_noisy_points: int | None = None  # largest number of points of shapes in noise; None for ``max_points``
    weights: dict[str, float] = field(default_factory=dict)  # of the kinds to sample; empty for those of TASK_KINDS
    decorated: float = 1.0  # factor of the probabilities that a set is decorated; 0 for never
    tables: tuple[str, ...] = ()  # labelled tables or folders of them, in that of COTERIE_DATA; "real" needs some
    held_out_tables: tuple[str, ...] = ()  # tables, such as "wdbc", that only the validation split samples
    split: Literal["train", "validation"] = "train"  # the validation split has kinds that training never samples

    def __post_init__(self) -> None:
        check_parameters(self, _CONSTRAINTS, ConfigError)
        if self.min_points > self.max_points:
            raise ConfigError(f"min_points={self.min_points} must be at most max_points={self.max_points}.")
        if unknown := sorted(self.weights.keys() - TASK_KINDS.keys()):
            raise ConfigError(f"weights has {', '.join(unknown)}; choose from: {', '.join(TASK_KINDS)}.")
        if self.weights.get("real", 0.0) > 0 and not self.tables:
            raise ConfigError("weights has real tables, but none are given. Give the setting 'tables'.")
        if not self.kind_weights():
            raise ConfigError(f"No kind has a positive weight and at most {self.max_features} columns. Give weights.")

    def kind_weights(self) -> dict[str, float]:
        """Return the weights of the kinds that can be sampled."""
        weights = self.weights or {name: kind.weight for name, kind in TASK_KINDS.items()}
        return {
            name: weight
            for name, weight in weights.items()
            if weight > 0 and TASK_KINDS[name].min_features <= self.max_features and (name != "real" or self.tables)
        }

    def sample_task(self, generator: Generator) -> SyntheticTask:
        """Sample one set, the same for any number of threads."""
        with one_thread():
            rng = Rng(generator)
            kind = TASK_KINDS[rng.choice(self.kind_weights())]
            task = kind.sample(self, rng)
            return decorate(task, rng, split=self.split) if rng.bernoulli(self.decorated * kind.decorated) else task

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Sample geometric sets and tables of one size, without gaps and outliers, which batches cannot represent."""
        with one_thread():
            rng = Rng(generator)
            n_points, features = self.sample_n_points(rng), range(1, self.max_features + 1)
            n_features = int(rng.choice({str(count): sum(_feature_count_weights(count)) for count in features}))
            geometric, table = _feature_count_weights(n_features)
            limits: dict[str, Any] = {"max_clusters": self.max_clusters, "rng": rng}
            sets = []
            for _ in range(batch_size):
                kind = rng.choice({"geometric": geometric, "table": table})
                sample = sample_geometric if kind == "geometric" else sample_table
                sets.append(_fit(kind, partial(sample, n_features=n_features, **limits), n_points, rng))
        labels = torch.stack([one.labels for one in sets])
        return TaskBatch(torch.stack([one.x for one in sets]), labels, torch.ones_like(labels, dtype=torch.bool))

    def sample_n_points(self, rng: Rng, limit: int | None = None) -> int:
        """Sample the number of points of a set; ``limit`` replaces ``max_points``."""
        most = limit or self.max_points
        if rng.bernoulli(FULL_SIZE):
            return most
        return min(math.floor(rng.log_scalar(self.min_points, most + 1)), most)

    def sample_n_features(self, rng: Rng, low: int, high: int) -> int:
        """Sample a number of columns, log-uniform between two bounds and within ``max_features``."""
        high = min(high, self.max_features)
        return min(math.floor(rng.log_scalar(min(low, high), high + 1)), high)


def _fit(kind: str, sample: Callable[[int], Draft], n_points: int, rng: Rng, *, n_outliers: int = 0) -> SyntheticTask:
    """Sample drafts until one meets its target, and add outliers."""
    for _ in range(MAX_DRAFTS):
        draft = sample(n_points - n_outliers)
        target = sample_target(draft.difficulty, rng)
        fitted = fit_spread(draft, target)
        if fitted is None or not bool(fitted[0].isfinite().all()):
            continue
        x, labels = add_outliers(fitted[0], draft.labels, n_outliers, rng)
        measured = {"target_low": target.low, "target_high": target.high, "agreement": fitted[1]}
        description = {**draft.description, **measured, "outliers": n_outliers / n_points}
        return SyntheticTask(x, labels, kind, description, draft.categories)
    raise ConfigError(
        f"None of {MAX_DRAFTS} sets of {n_points} points had recoverable labels. Raise min_points or max_features."
    )


def _geometric(prior: SyntheticPrior, rng: Rng) -> SyntheticTask:
    n_points, n_features = prior.sample_n_points(rng), _sample_feature_count(0, prior.max_features, rng)
    sample = partial(sample_geometric, n_features=n_features, max_clusters=prior.max_clusters, rng=rng)
    return _fit("geometric", sample, n_points, rng, n_outliers=_sample_n_outliers(0.15, n_points, rng))


def _table(prior: SyntheticPrior, rng: Rng) -> SyntheticTask:
    n_points, n_features = prior.sample_n_points(rng), _sample_feature_count(1, prior.max_features, rng)
    sample = partial(sample_table, n_features=n_features, max_clusters=prior.max_clusters, rng=rng)
    return _fit("table", sample, n_points, rng, n_outliers=_sample_n_outliers(0.05, n_points, rng))


def _noisy_shapes(prior: SyntheticPrior, rng: Rng) -> SyntheticTask:
    n_points = prior.sample_n_points(rng, prior.max_noisy_points)
    n_features = _sample_feature_count(0, min(prior.max_features, 4), rng)
    sample = partial(sample_geometric, n_features=n_features, max_clusters=prior.max_clusters, rng=rng)
    return _fit("noisy-shapes", sample, n_points, rng, n_outliers=int(rng.scalar(0, MAX_NOISE) * n_points))


def _blobs(prior: SyntheticPrior, rng: Rng) -> SyntheticTask:
    n_points, n_features = prior.sample_n_points(rng), prior.sample_n_features(rng, 2, 30)
    sample = partial(sample_blobs, n_features=n_features, max_clusters=prior.max_clusters, rng=rng)
    return _fit("blobs", sample, n_points, rng)


def _many_clusters(prior: SyntheticPrior, rng: Rng) -> SyntheticTask:
    n_points = max(prior.sample_n_points(rng), prior.max_points // 3)
    n_features = prior.sample_n_features(rng, 2, 30 if rng.bernoulli(0.5) else 3)
    sample = partial(sample_many_clusters, n_features=n_features, max_clusters=prior.max_clusters, rng=rng)
    return _fit("many-clusters", sample, n_points, rng)


def _mixed(prior: SyntheticPrior, rng: Rng) -> SyntheticTask:
    styles = {name for name in MIXED_STYLES if name.startswith("mixed/")}
    styles = styles & HELD_OUT_STYLES if prior.split == "validation" else styles - HELD_OUT_STYLES
    return _sample_style(rng.choice(dict.fromkeys(sorted(styles), 1.0)), prior, rng)


def _sample_style(style: str, prior: SyntheticPrior, rng: Rng) -> SyntheticTask:
    """Sample a table of mixed columns; agreement is that of the columns that depend on the class."""
    n_points, n_features = prior.sample_n_points(rng), prior.sample_n_features(rng, 3, 28)
    n_junk = int(n_features * rng.scalar(0, 0.75)) if rng.bernoulli(0.6) else 0
    sample = partial(sample_mixed, style, n_features=n_features - n_junk, max_clusters=prior.max_clusters, rng=rng)
    task = add_junk(_fit(style, sample, n_points, rng), sample_junk(n_junk, rng, grouped=True, split=prior.split), rng)
    return replace(task, description={**task.description, "irrelevant": n_junk / n_features})


def _structureless(prior: SyntheticPrior, rng: Rng) -> SyntheticTask:
    # Chance looks most like clusters in few rows.
    small = rng.bernoulli(0.4) and prior.min_points < SMALL_NULL
    n_points = prior.sample_n_points(rng, min(SMALL_NULL, prior.max_points) if small else None)
    n_features = 1 if rng.bernoulli(0.03) else prior.sample_n_features(rng, 2, 20)
    kinds = (
        STRUCTURELESS.keys() & HELD_OUT_STRUCTURELESS
        if prior.split == "validation"
        else (STRUCTURELESS.keys() - HELD_OUT_STRUCTURELESS)
    )
    kind = rng.choice(dict.fromkeys(sorted(kinds if n_features > 1 else kinds & UNIVARIATE), 1.0))
    x, categories = STRUCTURELESS[kind](n_points, n_features, rng)
    x = x if kind in DISCRETE else sample_units(x, rng)
    labels = torch.zeros(n_points, dtype=torch.int64)
    return SyntheticTask(x, labels, f"structureless/{kind}", {"layout": kind, "outliers": 0.0}, categories)


def _largest_cluster(prior: SyntheticPrior, rng: Rng) -> SyntheticTask:
    """Sample the largest cluster of a set, if it has no groups within; any set without structure after many trials."""
    sample = rng.choice({"geometric": 1.0, "blobs": 0.5, "table": 1.5})
    for _ in range(MAX_DRAFTS):
        task = TASK_KINDS[sample].sample(prior, rng)
        largest = task.largest_cluster()
        if largest is not None and not task.description.keys() & {"irrelevant_groups", "parts"}:
            return replace(largest, kind="structureless/largest-cluster")
    return _structureless(prior, rng)


def _real(prior: SyntheticPrior, rng: Rng) -> SyntheticTask:
    found = find_tables(prior.tables)
    stems = {name: {name, name.partition("/")[2]} for name in found}
    if unknown := set(prior.held_out_tables).difference(*stems.values()):
        raise ConfigError(f"held_out_tables has {', '.join(sorted(unknown))}; choose from: {', '.join(found)}.")
    held_out = {name for name in found if stems[name] & set(prior.held_out_tables)}
    names = held_out if prior.split == "validation" else found.keys() - held_out
    if not names:
        raise ConfigError(f"The {prior.split} split has no tables: {len(held_out)} of {len(found)} are held out.")
    return sample_real(found[rng.choice(dict.fromkeys(sorted(names), 1.0))], rng)


def _sample_n_outliers(probability: float, n_points: int, rng: Rng) -> int:
    return math.ceil(rng.log_scalar(0.01, 0.15) * n_points) if rng.bernoulli(probability) else 0


def _sample_feature_count(position: int, most: int, rng: Rng) -> int:
    return int(rng.choice({str(count): _feature_count_weights(count)[position] for count in range(1, most + 1)}))


def _feature_count_weights(n_features: int) -> tuple[float, float]:
    """Return how often geometric sets and tables have that many features; each sums to about 1."""
    if n_features <= 3:
        return ((0.0, 0.02), (0.72, 0.05), (0.12, 0.07))[n_features - 1]
    return 0.05 * 0.7 ** (n_features - 4), 0.17 * n_features**-0.8


@final
@dataclass(frozen=True, slots=True)
class TaskKind:
    """A kind of labelled set."""

    sample: Callable[[SyntheticPrior, Rng], SyntheticTask]
    weight: float  # how often it is sampled
    decorated: float  # probability that junk columns, gaps and the like are added
    min_features: int = 1


TASK_KINDS: Final[dict[str, TaskKind]] = {
    "geometric": TaskKind(_geometric, 0.26, 0.25, min_features=2),
    "noisy-shapes": TaskKind(_noisy_shapes, 0.08, 0.1, min_features=2),
    "blobs": TaskKind(_blobs, 0.09, 0.5, min_features=2),
    "many-clusters": TaskKind(_many_clusters, 0.12, 0.2, min_features=2),
    "table": TaskKind(_table, 0.14, 0.3),
    "mixed": TaskKind(_mixed, 0.14, 0.5, min_features=2),
    "survey": TaskKind(partial(_sample_style, "survey"), 0.04, 0.5, min_features=2),
    "counts": TaskKind(partial(_sample_style, "counts"), 0.04, 0.5, min_features=2),
    "structureless": TaskKind(_structureless, 0.26, 0.5),
    "largest-cluster": TaskKind(_largest_cluster, 0.04, 0.25, min_features=2),
    "real": TaskKind(_real, 0.22, 0.4),
}
"""Kinds of set by name; add to it to train on others."""
