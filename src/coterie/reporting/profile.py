"""Statistics that explain the clusters: distinguishing features, typical and borderline rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.reporting.data import PROPORTIONS, ClusteringData, Cycle, format_mean
from coterie.reporting.formatting import format_percent, shorten
from coterie.tables.encoder import Feature

# Smaller effects are not reported as traits (Cohen's "medium" effect).
NOTABLE = 0.5
# Fraction of the total spread; keeps effects finite where the spread within clusters is zero.
_SMALLEST_SPREAD = 0.1
_LEVELS_PER_COLUMN = 2
_MOST_TRAITS, _SHOWN_TRAITS = 12, 6
_SHOWN_BORDERLINE = 3
_FULL_BAR = 3.0  # effect, in standard deviations, whose bar is full
_LONGEST_TOPIC = 40
_CONCENTRATED = 0.5  # length of the mean of points on the unit circle from which they have a common direction
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)

Borderline = tuple[int, float, int, float]  # row, its membership, the other cluster, its membership there


@dataclass(frozen=True)
class Trait:
    """A feature that distinguishes a cluster from the other rows."""

    column: str
    label: str
    effect: float  # size and direction of the difference, by which traits are ranked
    inside: str  # mean or percentage in the cluster
    outside: str  # and elsewhere
    word: str
    bar: float  # length of the bar, from -1 to 1
    difference: str  # what the bar shows, in words
    topic: str = ""  # the column of texts, if the feature is what they are about


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

    `means` (K, D), the means of the `others` (K, D), which are not in a cluster, and `overall` (D,) are in the units of
    the table, `spread` (D,) is the standard deviation; `effects` (K, D) compare each cluster with all other rows;
    `explained` (D,) is the fraction of a feature's variance that lies between the clusters.
    """

    means: NDArray[np.float64]
    others: NDArray[np.float64]
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
        others=np.where(counts < all_counts, outside + centre, np.nan),
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
    traits = [[] if statistics is None else describe_traits(data, statistics, cluster) for cluster in clusters]
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


def describe_traits(data: ClusteringData, statistics: FeatureStatistics, cluster: int) -> list[Trait]:
    """Return the distinguishing features of a cluster, strongest first, and few per column."""
    effects, means = statistics.effects[cluster], statistics.means[cluster]
    candidates = [i for indices in data.features_by_column for i in _select_levels(indices, effects, means)]
    notable = [i for i in candidates if abs(effects[i]) >= NOTABLE / 2]
    traits = [_trait(data, statistics, cluster, i) for i in notable]
    traits += [trait for cycle in data.cycles if (trait := describe_cycle(data, cycle, cluster)) is not None]
    return sorted(traits, key=lambda trait: -abs(trait.effect))[:_MOST_TRAITS]


def _trait(data: ClusteringData, statistics: FeatureStatistics, cluster: int, index: int) -> Trait:
    feature, effect = data.features[index], float(statistics.effects[cluster, index])
    here, elsewhere = float(statistics.means[cluster, index]), float(statistics.others[cluster, index])
    spread = float(statistics.spread[index])
    if feature.kind in PROPORTIONS:
        bar = here - elsewhere
        difference = f"{_amount(100 * abs(bar))} percentage points {'more' if bar > 0 else 'less'} than elsewhere"
    else:
        bar = effect / _FULL_BAR
        side = {"date": ("later than", "earlier than")}.get(feature.kind, ("above", "below"))[effect < 0]
        difference = f"{_amount(abs(effect))} standard deviations {side} the others"
    return Trait(
        column=feature.column,
        label=data.label(index),
        effect=effect,
        inside=format_mean(feature, here, spread),
        outside=format_mean(feature, elsewhere, spread),
        word=_word(data, feature, effect, here),
        topic=data.text_components.get(feature.column, ""),
        bar=float(np.clip(bar, -1, 1)),
        difference=difference,
    )


def _amount(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:,.0f}"


def describe_cycle(data: ClusteringData, cycle: Cycle, cluster: int) -> Trait | None:
    """Describe at which hour, on which weekday or in which month the dates of a cluster mostly are.

    The mean of the points on the circle points to that time, and is the longer the more they agree (mean direction and
    resultant length of circular statistics). None if they hardly agree, or if they do not differ from the others.
    """
    points = data.values[:, [cycle.cosine, cycle.sine]]
    present = np.isfinite(points).all(axis=1) & data.inside
    members = data.labels == cluster
    if not (present & members).any() or not (present & ~members).any():
        return None
    here, elsewhere = points[present & members].mean(axis=0), points[present & ~members].mean(axis=0)
    length, difference = float(np.hypot(*here)), float(np.hypot(*(here - elsewhere)))
    if length < _CONCENTRATED or difference < NOTABLE:
        return None
    spread = np.sqrt(max(1.0 - length**2, _SMALLEST_SPREAD))
    when = _name_time(cycle.part, here)
    others = _name_time(cycle.part, elsewhere) if np.hypot(*elsewhere) >= _CONCENTRATED else "no usual time"
    column = data.short[cycle.column]
    return Trait(
        column=cycle.column,
        label=f"{column}: {cycle.part}",
        effect=difference / spread,
        inside=when,
        outside=others,
        word=f"{column} {when}",
        bar=min(difference / 2, 1.0),
        difference=f"{format_percent(length)} concentrated around this time",
    )


def _name_time(part: str, direction: NDArray[np.float64]) -> str:
    """Name the time that a direction on the circle stands for; Monday and January are at the angle 0."""
    turn = float(np.arctan2(direction[1], direction[0]) / (2 * np.pi)) % 1.0
    if part == "hour":
        minutes = 30 * round(48 * turn) % (24 * 60)
        return f"around {minutes // 60:02d}:{minutes % 60:02d}"
    if part == "weekday":
        # Half-way between Saturday and Sunday, at 5 and 6 of 7 steps.
        return "mostly weekends" if 5.3 < 7 * turn < 5.7 else f"mostly {_WEEKDAYS[round(7 * turn) % 7]}s"
    if part == "month":
        return f"around {_MONTHS[round(12 * turn) % 12]}"
    return f"around {format_percent(turn)} of the {part}"


def _select_levels(indices: list[int], effects: NDArray[np.float64], means: NDArray[np.float64]) -> list[int]:
    """Choose the features of one column to report: the more frequent of two levels, the strongest of more."""
    if len(indices) == 2:
        return [max(indices, key=lambda i: (means[i], effects[i]))]
    # Frequent levels say more than absent ones.
    return sorted(indices, key=lambda i: (effects[i] < NOTABLE, -abs(effects[i])))[:_LEVELS_PER_COLUMN]


def _word(data: ClusteringData, feature: Feature, effect: float, mean: float) -> str:
    column = data.short[feature.column]
    if (texts := data.text_components.get(feature.column)) is not None:
        words = shorten(feature.column.removeprefix(f"{texts}: "), _LONGEST_TOPIC)
        return f"{shorten(texts, 20)} {'' if effect > 0 else 'not '}about {words}"
    if feature.kind == "category":
        separator = ": " if " " in column and column[-1] not in "?:!." else " "  # two texts would run into each other
        return _proportion_word(f"{column}{separator}{shorten(str(feature.level), 20)}", effect, mean, none_below=0.02)
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
    """Return a word for each column, strongest first; for a category, a level that is frequent here.

    What texts are not about names a cluster only if there is nothing else.
    """
    notable = [trait for trait in traits if abs(trait.effect) >= NOTABLE]
    notable = [trait for trait in notable if trait.effect > 0 or not trait.topic] or notable
    frequent = {trait.column for trait in notable if trait.effect > 0}
    words: dict[str, str] = {}
    for trait in notable:
        if trait.effect > 0 or trait.column not in frequent:
            words.setdefault(trait.topic or trait.column, trait.word)
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
