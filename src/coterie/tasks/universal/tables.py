"""The table half of the prior: classes that overlap in columns of many sorts."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from coterie.tasks.universal.columns import draw_dress
from coterie.tasks.universal.dice import Dice
from coterie.tasks.universal.members import Members, draw_shares, most_clusters, share_out
from coterie.tasks.universal.recoverable import Draft
from coterie.tasks.universal.signals import SIGNALS
from coterie.tasks.universal.wanted import TABLE

SORTS: Final[Mapping[str, float]] = MappingProxyType(
    {"factors": 0.6, "manifold": 0.12, "embedding": 0.1, "spectra": 0.09, "sparse": 0.09}
)
"""Sorts of table, by how often where there are columns enough."""
LEAST_COLUMNS: Final[Mapping[str, int]] = MappingProxyType({"manifold": 3, "embedding": 16, "spectra": 8, "sparse": 12})
COUNTS: Final[Mapping[str, float]] = MappingProxyType(
    {"2": 0.27, "3": 0.22, "4": 0.12, "5": 0.09, "6": 0.07, "7": 0.06, "8": 0.04, "9": 0.03, "10": 0.03, "many": 0.07}
)
"""Numbers of clusters, by how often."""
Story = dict[str, float | str]
Builder = Callable[[float], Float[Tensor, "N D"]]


def draw_table(n_points: int, width: int, max_clusters: int, dice: Dice) -> Draft:
    """A table, its classes as wide as they happened to be drawn."""
    most = most_clusters(n_points, max_clusters, 10)
    drawn = dice.pick(COUNTS)
    n_clusters = min(most, dice.integer(11, 30) if drawn == "many" else int(drawn))
    shares, sizes = draw_shares(n_clusters, dice, {"even": 0.3, "uneven": 0.5, "contrast": 0.2})
    members = share_out(n_points, shares, dice)
    sort = dice.pick({name: weight for name, weight in SORTS.items() if width >= LEAST_COLUMNS.get(name, 1)})
    story: Story = {"layout": sort, "sizes": sizes}
    if sort in SIGNALS:
        build = SIGNALS[sort](members, width, dice)
    else:
        build = (_manifold if sort == "manifold" else _factors)(members, width, dice, story)
    return Draft(members.owner, build, TABLE, story)


def _factors(members: Members, width: int, dice: Dice, story: Story) -> Builder:
    """Class means and correlated deviations from them, in the columns that matter; noise in the others."""
    relevant = _relevant_columns(width, dice, story)
    rank = dice.integer(1, min(relevant, 10))
    loadings = dice.normal(rank, relevant) * (dice.uniform(0, 1, rank, relevant) < dice.number(0.3, 1.0))
    means = dice.normal(members.n_clusters, rank) @ loadings / rank**0.5
    own = dice.uniform(0, 1, members.n_clusters, relevant) < dice.number(0.1, 1.0)
    means = means * dice.number(0, 1) + own * dice.normal(members.n_clusters, relevant)
    deviations = _correlated(members, relevant, dice, story)
    places = members.spread(means)
    if dice.happens(0.2) and members.n_points >= 30 * members.n_clusters:
        story["parts"] = "several"
        parts = dice.integer(2, 4)
        part = dice.integers(0, parts - 1, members.n_points)
        places = places + dice.number(0.2, 0.6) * dice.normal(members.n_clusters, parts, relevant)[members.owner, part]
    return _as_table(lambda looseness: places + looseness * deviations, relevant, members, width, dice, story)


def _correlated(members: Members, width: int, dice: Dice, story: Story) -> Float[Tensor, "N C"]:
    """Deviations from a factor model that all classes share, or that each has of its own."""
    rank = dice.integer(1, min(width, 6))
    own = dice.happens(0.5)
    loadings = dice.normal(members.n_clusters if own else 1, rank, width) / rank**0.5
    tails = dice.pick({"normal": 0.7, "heavy": 0.3})
    if tails == "heavy":
        factors = dice.student(torch.full((members.n_points,), dice.number(2.5, 6)), rank + width)
    else:
        factors = dice.normal(members.n_points, rank + width)
    shared = torch.einsum("nr,nrc->nc", factors[:, :rank], members.spread(loadings.expand(members.n_clusters, -1, -1)))
    spread = dice.log_uniform(0.5, 2.0, members.n_clusters, 1) if own else torch.ones(members.n_clusters, 1)
    mixing = dice.number(0, 1)
    story |= {"tails": tails, "covariance": "own" if own else "shared"}
    deviations: Tensor = 0.5 * members.spread(spread) * (mixing * shared + (1 - mixing**2) ** 0.5 * factors[:, rank:])
    return deviations


def _manifold(members: Members, width: int, dice: Dice, story: Story) -> Builder:
    """Clusters in one to three hidden features, bent into many columns by a random network."""
    relevant = _relevant_columns(width, dice, story)
    hidden = dice.integer(1, 3)
    places = members.spread(1.5 * dice.normal(members.n_clusters, hidden))
    deviations = 0.4 * dice.normal(members.n_points, hidden)
    if dice.happens(0.5):
        deviations = dice.uniform(-0.7, 0.7, members.n_points, hidden)
    first, bias, second = dice.normal(hidden, 12), dice.normal(12), dice.normal(12, relevant)
    noise = dice.number(0.02, 0.3) * dice.normal(members.n_points, relevant)

    def bent(looseness: float) -> Float[Tensor, "N C"]:
        return ((places + looseness * deviations) @ first + bias).tanh() @ second + looseness * noise

    return _as_table(bent, relevant, members, width, dice, story)


def _relevant_columns(width: int, dice: Dice, story: Story) -> int:
    """How many columns have to do with the classes; a story says which share does not."""
    share = dice.number(0, 0.7) if dice.happens(0.55) else 0.0
    relevant = max(1, width - int(share * width))
    story["irrelevant"] = 1 - relevant / width
    return relevant


def _as_table(build: Builder, relevant: int, members: Members, width: int, dice: Dice, story: Story) -> Builder:
    """A builder whose columns are dressed, those that are noise among the others."""
    noise = dice.normal(members.n_points, width - relevant)
    if width - relevant > 2 and dice.happens(0.5):
        rank = dice.integer(1, 3)
        noise = noise + dice.normal(members.n_points, rank) @ dice.normal(rank, width - relevant)
    if width > relevant and dice.happens(0.5):
        # Rows of a real table also group by what nobody asked for.
        story["irrelevant_groups"] = groups = dice.integer(2, 6)
        strength = dice.log_number(0.5, 2.5)
        places = strength * dice.normal(groups, width - relevant)
        noise = noise + places[dice.integers(0, groups - 1, members.n_points)]
    order = dice.order(width)
    dress = draw_dress(width, dice)
    story["columns"] = dress.style
    story["kinds"] = ", ".join(sorted(set(dress.kinds)))
    return lambda looseness: dress(torch.cat((build(looseness), noise), dim=1)[:, order])
