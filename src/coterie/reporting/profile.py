"""Statistics that explain the clusters: distinguishing features, typical and borderline rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.reporting.data import PROPORTIONS, ClusteringData, format_mean
from coterie.reporting.formatting import shorten
from coterie.tables.encoder import Feature

# Smaller effects are not reported as traits (Cohen's "medium" effect).
NOTABLE = 0.5
# Fraction of the total spread; keeps effects finite where the spread within clusters is zero.
_SMALLEST_SPREAD = 0.1
_LEVELS_PER_COLUMN = 2
_MOST_TRAITS, _SHOWN_TRAITS = 12, 6
_SHOWN_BORDERLINE = 3

Borderline = tuple[int, float, int, float]  # row, its membership, the other cluster, its membership there


@dataclass(frozen=True)
class Trait:
    """A feature that distinguishes a cluster from the other rows."""

    column: str
    label: str
    effect: float
    inside: str
    overall: str
    word: str


@dataclass(frozen=True)
class ClusterProfile:
    """Description of one cluster."""

    number: int
    size: int
    fraction: float
    name: str
    traits: tuple[Trait, ...]
    typical: int
    borderline: tuple[Borderline, ...]  # rows that are almost as likely to be in another cluster
    membership: float


@dataclass(frozen=True)
class FeatureStatistics:
    """Statistics of each feature within and between clusters.

    `means` (K, D) and `overall` (D,) are in the units of the table, `spread` (D,) is the standard deviation;
    `effects` (K, D) compare each cluster with all other rows; `explained` (D,) is the fraction of a feature's variance
    that lies between the clusters.
    """

    means: NDArray[np.float64]
    overall: NDArray[np.float64]
    spread: NDArray[np.float64]
    effects: NDArray[np.float64]
    explained: NDArray[np.float64]

    @property
    def z_scores(self) -> NDArray[np.float64]:
        """Return the distance of each cluster's mean from the overall mean, in standard deviations."""
        return np.divide(self.means - self.overall, self.spread, out=np.zeros_like(self.means), where=self.spread > 0)


def feature_statistics(data: ClusteringData) -> FeatureStatistics:
    """Compare every feature inside and outside of every cluster, ignoring missing values and outliers."""
    shape = (data.n_clusters, data.values.shape[1])
    counts, sums, squares = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    present = np.isfinite(data.values) & data.inside[:, None]
    centre = _ratio(np.where(present, data.values, 0.0).sum(axis=0), present.sum(axis=0))
    for cluster in range(data.n_clusters):
        members = data.labels == cluster
        # Centred before squaring: large values with a small spread would lose all their digits.
        centred = np.where(present[members], data.values[members] - centre, 0.0)
        counts[cluster] = present[members].sum(axis=0)
        sums[cluster] = centred.sum(axis=0)
        squares[cluster] = (centred**2).sum(axis=0)
    all_counts, all_sums, all_squares = counts.sum(axis=0), sums.sum(axis=0), squares.sum(axis=0)
    spread = np.sqrt(_ratio(all_squares, all_counts))
    inside, outside = _ratio(sums, counts), _ratio(all_sums - sums, all_counts - counts)
    within = np.maximum(squares - counts * inside**2, 0)
    without = np.maximum(all_squares - squares - (all_counts - counts) * outside**2, 0)
    pooled = np.sqrt(_ratio(within + without, np.maximum(all_counts - 2, 1)))
    floor = np.maximum(pooled, _SMALLEST_SPREAD * spread)
    effects = np.where((counts > 0) & (counts < all_counts), _ratio(inside - outside, floor), 0.0)
    proportions = np.array([feature.kind in PROPORTIONS for feature in data.features], dtype=bool)
    # Proportions are compared by Cohen's h, in which 1% vs 5% counts more than 48% vs 52%.
    angles = [2 * np.arcsin(np.sqrt(np.clip(mean + centre, 0, 1))) for mean in (inside, outside)]
    effects[:, proportions] = np.where(effects == 0, 0.0, angles[0] - angles[1])[:, proportions]
    return FeatureStatistics(
        means=np.where(counts > 0, inside + centre, np.nan),
        overall=centre,
        spread=spread,
        effects=effects,
        explained=_ratio((counts * inside**2).sum(axis=0), all_squares),
    )


def _ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide; 0 where the denominator is not positive."""
    above, below = np.broadcast_arrays(np.asarray(above, np.float64), np.asarray(below, np.float64))
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def describe_clusters(data: ClusteringData, statistics: FeatureStatistics | None) -> tuple[ClusterProfile, ...]:
    """Describe each cluster; without statistics, as for images, it has no traits and no name of its own."""
    sizes = data.sizes
    top = data.own_membership
    clusters = range(data.n_clusters)
    traits = [[] if statistics is None else _traits(data, statistics, cluster) for cluster in clusters]
    names = [f"cluster {i}" for i in clusters] if statistics is None else cluster_names(traits)
    return tuple(
        ClusterProfile(
            number=cluster,
            size=int(sizes[cluster]),
            fraction=sizes[cluster] / len(data.labels),
            name=names[cluster],
            traits=tuple(traits[cluster][:_SHOWN_TRAITS]),
            typical=_typical(data, cluster),
            borderline=_borderline(data, cluster),
            membership=float(top[data.labels == cluster].mean()) if sizes[cluster] else float("nan"),
        )
        for cluster in clusters
    )


def _traits(data: ClusteringData, statistics: FeatureStatistics, cluster: int) -> list[Trait]:
    """Return the distinguishing features of a cluster, strongest first, and few per column."""
    effects, means = statistics.effects[cluster], statistics.means[cluster]
    candidates = [i for indices in data.features_by_column for i in _select_levels(indices, effects, means)]
    notable = [i for i in candidates if abs(effects[i]) >= NOTABLE / 2]
    return [
        Trait(
            column=feature.column,
            label=data.label(i),
            effect=float(effects[i]),
            inside=format_mean(feature, float(means[i]), float(statistics.spread[i])),
            overall=format_mean(feature, float(statistics.overall[i]), float(statistics.spread[i])),
            word=_word(feature, data.short[feature.column], float(effects[i]), float(means[i])),
        )
        for i in sorted(notable, key=lambda i: -abs(effects[i]))[:_MOST_TRAITS]
        for feature in (data.features[i],)
    ]


def _select_levels(indices: list[int], effects: NDArray[np.float64], means: NDArray[np.float64]) -> list[int]:
    """Choose the features of one column to report: the more frequent of two levels, the strongest of more."""
    if len(indices) == 2:
        return [max(indices, key=lambda i: (means[i], effects[i]))]
    # Frequent levels say more than absent ones.
    return sorted(indices, key=lambda i: (effects[i] < NOTABLE, -abs(effects[i])))[:_LEVELS_PER_COLUMN]


def _word(feature: Feature, column: str, effect: float, mean: float) -> str:
    if feature.kind == "category":
        return _proportion_word(f"{column} {shorten(str(feature.level), 20)}", effect, mean, none_below=0.02)
    if feature.kind == "boolean":
        # False for most rows is informative, unlike one rare level of many.
        return _proportion_word(column, effect, mean, none_below=0.5)
    if feature.kind == "date":
        return f"late {column}" if effect > 0 else f"early {column}"
    return f"high {column}" if effect > 0 else f"low {column}"


def _proportion_word(name: str, effect: float, proportion: float, none_below: float) -> str:
    if effect > 0:
        return name if proportion >= 0.5 else f"more {name}"
    if proportion >= 0.5:
        return f"less {name}"
    return f"not {name}" if proportion < none_below else f"rarely {name}"


def cluster_names(traits: list[list[Trait]], *, longest: int = 4) -> list[str]:
    """Name each cluster by its two strongest traits, and by more while two clusters have the same name."""
    words = [_words_of_different_columns(of_cluster) for of_cluster in traits]
    lengths = [2] * len(words)
    names = [", ".join(of_cluster[:2]) for of_cluster in words]
    for _ in range(longest - 2):
        for cluster, name in enumerate(names):
            lengths[cluster] += names.count(name) > 1
        names = [", ".join(of_cluster[:length]) for of_cluster, length in zip(words, lengths, strict=True)]
    # Names may still be equal, such as those of the two lowest of three clusters along the only column.
    names = [
        f"{name} ({of_cluster[0].inside})" if name and names.count(name) > 1 else name
        for name, of_cluster in zip(names, traits, strict=True)
    ]
    plain = "all rows" if len(traits) == 1 else "close to the average"
    return [name or plain for name in names]


def _words_of_different_columns(traits: list[Trait]) -> list[str]:
    """Return a word for each column, strongest first; for a category, a level that is frequent here."""
    notable = [trait for trait in traits if abs(trait.effect) >= NOTABLE]
    frequent = {trait.column for trait in notable if trait.effect > 0}
    words: dict[str, str] = {}
    for trait in notable:
        if trait.effect > 0 or trait.column not in frequent:
            words.setdefault(trait.column, trait.word)
    return list(words.values())


def _typical(data: ClusteringData, cluster: int) -> int:
    """Return the member nearest to the cluster's prototype."""
    members = np.flatnonzero(data.labels == cluster)
    if not len(members):
        return -1
    distances = ((data.encoded[members] - data.prototypes[cluster]) ** 2).sum(axis=1)
    return int(members[np.argmin(distances)])


def _borderline(data: ClusteringData, cluster: int) -> tuple[Borderline, ...]:
    """Return the members with the smallest margin over a second cluster that is at least half as likely."""
    if data.n_clusters == 1:
        return ()
    members = np.flatnonzero(data.labels == cluster)
    here = data.memberships[members, cluster]
    elsewhere = data.memberships[members].copy()
    elsewhere[:, cluster] = -1.0
    other = elsewhere.argmax(axis=1)
    there = elsewhere.max(axis=1, initial=-1.0)
    order = np.argsort(here - there, kind="stable")[:_SHOWN_BORDERLINE]
    nearest = [int(i) for i in order if there[i] >= here[i] / 2]
    return tuple((int(members[i]), float(here[i]), int(other[i]), float(there[i])) for i in nearest)


def rank_features(statistics: FeatureStatistics, at_most: int) -> NDArray[np.int64]:
    """Return the features whose variance the clusters explain best, the best first."""
    order = np.argsort(-statistics.explained, kind="stable")[:at_most]
    return order[statistics.explained[order] > 0]
