"""The numbers that explain the clusters: what sets each apart, its typical and its borderline rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.report.findings import SHARES, Findings, mean_text
from coterie.report.formatting import shorten
from coterie.tables.encoder import Feature

# Below this the difference is too small to be called a trait (Cohen's "medium" effect).
NOTABLE = 0.5
# The rest's spread can be zero; a tenth of the whole spread keeps the effect finite.
_SMALLEST_SPREAD = 0.1
_LEVELS_PER_COLUMN = 2
_MOST_TRAITS = 12


@dataclass(frozen=True)
class Trait:
    """How one feature of a cluster differs from the rest."""

    column: str
    label: str
    effect: float
    inside: str
    overall: str
    word: str


@dataclass(frozen=True)
class Borderline:
    """A row that could almost as well be in another cluster."""

    row: int
    here: float
    other: int
    there: float


@dataclass(frozen=True)
class ClusterProfile:
    """What a reader should know about one cluster."""

    number: int
    size: int
    share: float
    name: str
    traits: tuple[Trait, ...]
    typical: int
    borderline: tuple[Borderline, ...]
    membership: float


@dataclass(frozen=True)
class FeatureStatistics:
    """What the clusters do to each feature.

    `means` (K, D) and `overall` (D,) are in the units of the table, `spread` (D,) is the standard deviation;
    `effects` (K, D) compare each cluster with all other rows; `telling` (D,) is the share of a feature's
    variance that lies between the clusters.
    """

    means: NDArray[np.float64]
    overall: NDArray[np.float64]
    spread: NDArray[np.float64]
    effects: NDArray[np.float64]
    telling: NDArray[np.float64]

    @property
    def z_scores(self) -> NDArray[np.float64]:
        """Return how many standard deviations each cluster's mean lies from the overall mean."""
        return np.divide(self.means - self.overall, self.spread, out=np.zeros_like(self.means), where=self.spread > 0)


def feature_statistics(found: Findings) -> FeatureStatistics:
    """Compare every feature inside and outside of every cluster, passing over missing values and outliers."""
    shape = (found.n_clusters, found.values.shape[1])
    counts, sums, squares = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    present = np.isfinite(found.values) & found.inside[:, None]
    centre = _ratio(np.where(present, found.values, 0.0).sum(axis=0), present.sum(axis=0))
    for cluster in range(found.n_clusters):
        members = found.labels == cluster
        # Centred before squaring: large values of little spread would lose all their digits.
        centred = np.where(present[members], found.values[members] - centre, 0.0)
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
    shares = np.array([feature.kind in SHARES for feature in found.features], dtype=bool)
    effects[:, shares] = _share_effect(inside + centre, outside + centre, effects)[:, shares]
    return FeatureStatistics(
        means=np.where(counts > 0, inside + centre, np.nan),
        overall=centre,
        spread=spread,
        effects=effects,
        telling=_ratio((counts * inside**2).sum(axis=0), all_squares),
    )


def _ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide, with 0 where there is nothing to divide by."""
    above, below = np.broadcast_arrays(np.asarray(above, np.float64), np.asarray(below, np.float64))
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _share_effect(
    inside: NDArray[np.float64], outside: NDArray[np.float64], like: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Cohen's h: a difference of shares on a scale where 1% against 5% counts more than 48% against 52%."""
    angle = [2 * np.arcsin(np.sqrt(np.clip(share, 0, 1))) for share in (inside, outside)]
    return np.where(like == 0, 0.0, angle[0] - angle[1])


def describe_clusters(
    found: Findings,
    statistics: FeatureStatistics | None,
    *,
    n_traits: int = 6,
    n_borderline: int = 3,
) -> tuple[ClusterProfile, ...]:
    """Return each cluster's profile; without `statistics`, since pixels mean nothing, it has no traits and no name."""
    sizes = found.sizes
    top = found.top_membership
    clusters = range(found.n_clusters)
    traits = [[] if statistics is None else _traits(found, statistics, cluster) for cluster in clusters]
    names = [f"cluster {i}" for i in clusters] if statistics is None else cluster_names(traits)
    return tuple(
        ClusterProfile(
            number=cluster,
            size=int(sizes[cluster]),
            share=sizes[cluster] / len(found.labels),
            name=names[cluster],
            traits=tuple(traits[cluster][:n_traits]),
            typical=_typical(found, cluster),
            borderline=_borderline(found, cluster, n_borderline),
            membership=float(top[found.labels == cluster].mean()) if sizes[cluster] else float("nan"),
        )
        for cluster in clusters
    )


def _traits(found: Findings, statistics: FeatureStatistics, cluster: int) -> list[Trait]:
    """Return the features that set a cluster apart, the strongest first, few of any one column."""
    effects, means = statistics.effects[cluster], statistics.means[cluster]
    told = [place for places in found.places_by_column.values() for place in _told_levels(places, effects, means)]
    notable = [place for place in told if abs(effects[place]) >= NOTABLE / 2]
    return [
        Trait(
            column=feature.column,
            label=found.label(place),
            effect=float(effects[place]),
            inside=mean_text(feature, float(means[place]), float(statistics.spread[place])),
            overall=mean_text(feature, float(statistics.overall[place]), float(statistics.spread[place])),
            word=_word(feature, found.short[feature.column], float(effects[place]), float(means[place])),
        )
        for place in sorted(notable, key=lambda place: -abs(effects[place]))[:_MOST_TRAITS]
        for feature in (found.features[place],)
    ]


def _told_levels(places: list[int], effects: NDArray[np.float64], means: NDArray[np.float64]) -> list[int]:
    """Choose the features to tell of one column: of two levels the prevailing one, of more the strongest."""
    if len(places) == 2:
        return [max(places, key=lambda place: (means[place], effects[place]))]
    # What a cluster has says more than what it lacks.
    return sorted(places, key=lambda place: (effects[place] < NOTABLE, -abs(effects[place])))[:_LEVELS_PER_COLUMN]


def _word(feature: Feature, column: str, effect: float, mean: float) -> str:
    if feature.kind == "category":
        return _share_word(f"{column} {shorten(str(feature.level), 20)}", effect, mean, none_below=0.02)
    if feature.kind == "boolean":
        # What is not so for most rows is its own answer, unlike one level that is rare among many.
        return _share_word(column, effect, mean, none_below=0.5)
    if feature.kind == "date":
        return f"late {column}" if effect > 0 else f"early {column}"
    return f"high {column}" if effect > 0 else f"low {column}"


def _share_word(named: str, effect: float, share: float, none_below: float) -> str:
    if effect > 0:
        return named if share >= 0.5 else f"more {named}"
    if share >= 0.5:
        return f"less {named}"
    return f"not {named}" if share < none_below else f"seldom {named}"


def cluster_names(traits: list[list[Trait]], *, longest: int = 4) -> list[str]:
    """Name each cluster by its two strongest traits, adding more while two clusters share a name."""
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
    """Return a word for each column, the strongest first; of a category the level that is frequent here."""
    notable = [trait for trait in traits if abs(trait.effect) >= NOTABLE]
    frequent = {trait.column for trait in notable if trait.effect > 0}
    words: dict[str, str] = {}
    for trait in notable:
        if trait.effect > 0 or trait.column not in frequent:
            words.setdefault(trait.column, trait.word)
    return list(words.values())


def _typical(found: Findings, cluster: int) -> int:
    """Return the member nearest to the cluster's prototype."""
    members = np.flatnonzero(found.labels == cluster)
    if not len(members):
        return -1
    distances = ((found.encoded[members] - found.prototypes[cluster]) ** 2).sum(axis=1)
    return int(members[np.argmin(distances)])


def _borderline(found: Findings, cluster: int, at_most: int) -> tuple[Borderline, ...]:
    """Return the members with the smallest lead over a second cluster that is at least half as likely."""
    if found.n_clusters == 1:
        return ()
    members = np.flatnonzero(found.labels == cluster)
    here = found.memberships[members, cluster]
    elsewhere = found.memberships[members].copy()
    elsewhere[:, cluster] = -1.0
    other = elsewhere.argmax(axis=1)
    there = elsewhere.max(axis=1, initial=-1.0)
    order = np.argsort(here - there, kind="stable")[:at_most]
    nearest = [int(i) for i in order if there[i] >= here[i] / 2]
    return tuple(Borderline(int(members[i]), float(here[i]), int(other[i]), float(there[i])) for i in nearest)


def telling_features(statistics: FeatureStatistics, at_most: int) -> NDArray[np.int64]:
    """Return the places of the features whose spread the clusters explain best, the best first."""
    order = np.argsort(-statistics.telling, kind="stable")[:at_most]
    return order[statistics.telling[order] > 0]
