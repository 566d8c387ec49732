"""The table half of the prior: classes that overlap in columns of many sorts."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, final

import torch
from jaxtyping import Float
from torch import Tensor

from coterie.judged.prior.sampling import (
    TABLE,
    Dice,
    Draft,
    Members,
    draw_shares,
    most_clusters,
    share_out,
    standardised,
)

SignalBuilder = Callable[[float], Float[Tensor, "N D"]]
Signal = Callable[[Members, int, Dice], SignalBuilder]


def embedding(members: Members, width: int, dice: Dice) -> SignalBuilder:
    """Unit vectors around directions that are themselves more or less alike."""
    rank = dice.integer(min(3, width), min(24, width))
    basis = dice.normal(rank, width) / math.sqrt(rank)
    common = dice.number(0, 1) * dice.normal(width)
    places = members.spread(dice.normal(members.n_clusters, rank) @ basis + common)
    topics = dice.normal(members.n_points, rank) @ basis
    deviations = dice.number(0.3, 0.8) * topics + dice.number(0.2, 0.7) * dice.normal(members.n_points, width)
    deviations = deviations * members.each(0.6, 1.4, dice).unsqueeze(1)
    return lambda looseness: torch.nn.functional.normalize(places + looseness * deviations, dim=1)


def _smooth(rows: int, width: int, dice: Dice, sharpness: float) -> Float[Tensor, "R D"]:
    """Random curves along the columns, sums of waves of falling strength."""
    frequency = torch.arange(1, 9)
    strength = dice.normal(rows, 8, 2) / (1 + frequency / sharpness).unsqueeze(1) ** 2
    angle = math.pi * frequency.unsqueeze(1) * torch.linspace(0, 1, width)
    return strength[:, :, 0] @ angle.cos() + strength[:, :, 1] @ angle.sin()


def spectra(members: Members, width: int, dice: Dice) -> SignalBuilder:
    """Smooth curves: each class has its mean curve, each row its strength, level and own smooth deviation."""
    sharpness = dice.number(1, 5)
    common = dice.number(0, 3) * _smooth(1, width, dice, sharpness)
    places = members.spread(_smooth(members.n_clusters, width, dice, sharpness) + common)
    few = dice.integer(2, 5)
    deviations = dice.number(0.1, 0.35) * dice.normal(members.n_points, few) @ _smooth(few, width, dice, sharpness)
    level, gain = 0.2 * dice.number(0, 1) * dice.normal(members.n_points, 1), 0.1 * dice.normal(members.n_points, 1)
    noise = dice.number(0.1, 0.5) * dice.normal(members.n_points, width)
    positive = dice.happens(0.5)
    scale = dice.log_number(0.01, 100.0)

    def build(looseness: float) -> Float[Tensor, "N D"]:
        x = places * (looseness * gain).exp() + looseness * (deviations + level + noise)
        return scale * (torch.nn.functional.softplus(x) if positive else x)

    return build


def sparse(members: Members, width: int, dice: Dice) -> SignalBuilder:
    """Non-negative columns that are mostly zero, as of images or counts of words."""
    lit = dice.number(0.15, 0.5)
    templates = dice.gamma(torch.full((members.n_clusters, width), 1.0))
    templates = templates * (dice.uniform(0, 1, members.n_clusters, width) < lit)
    common = dice.gamma(torch.full((width,), 0.5)) * (dice.uniform(0, 1, width) < lit)
    places = members.spread(templates + dice.number(0, 1) * common)
    gain = 0.4 * dice.normal(members.n_points, 1)
    deviations = dice.number(0.4, 1.0) * dice.normal(members.n_points, width)
    counted, step = dice.happens(0.4), dice.uniform(0, 1, members.n_points, width)
    scale = dice.log_number(2.0, 100.0)

    def build(looseness: float) -> Float[Tensor, "N D"]:
        x = (places * (looseness * gain).exp() + looseness * deviations - 0.3).clamp_min(0)
        return (2 * x + step).floor() if counted else scale * x

    return build


SIGNALS: Final[Mapping[str, Signal]] = MappingProxyType({"embedding": embedding, "spectra": spectra, "sparse": sparse})
"""Sorts of table that have columns of one sort, by name."""


Change = Callable[[Float[Tensor, "N C"], Float[Tensor, " C"]], Float[Tensor, "N C"]]
CHANGES: Final[Mapping[str, Change]] = MappingProxyType(
    {
        "exponential": lambda x, strength: ((0.4 + strength) * x).exp(),
        "power": lambda x, strength: (x + 2.5).clamp_min(0) ** (2 + 2 * strength),
        "squashed": lambda x, strength: ((1 + 2 * strength) * x).sigmoid(),
        "heavy": lambda x, strength: ((0.5 + strength) * x.clamp(-8, 8)).sinh(),
        "whole": lambda x, strength: ((1 + 6 * strength) * (x + 3)).round(),
        "ordinal": lambda x, strength: ((0.6 + strength) * x + 2 * strength).round().clamp(-2, 2),
        "binary": lambda x, strength: (x > 2 * strength - 1).to(x.dtype),
        "zeros": lambda x, strength: (x - 1.5 * strength + 0.5).clamp_min(0),
    }
)
"""What can become of single columns, about standard normal before, by strengths from 0 to 1."""
KINDS: Final = ("plain", *CHANGES, "category")
"""Kinds of column; a category takes several, one for each of its levels."""
STYLES: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType(
    {
        "plain": {"plain": 1},
        "skewed": {"plain": 2, "exponential": 3, "power": 1, "squashed": 0.5, "heavy": 1, "zeros": 0.5},
        "measured": {"plain": 3, "exponential": 1, "whole": 2, "heavy": 0.5},
        "mixed": dict.fromkeys(KINDS, 1.0) | {"plain": 3},
        "coded": {"ordinal": 2, "binary": 2, "category": 2, "whole": 0.5},
    }
)
"""Kinds of table, by the kinds of column that they have."""
STYLE_WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {"plain": 0.25, "skewed": 0.22, "measured": 0.18, "mixed": 0.2, "coded": 0.15}
)


@final
@dataclass(frozen=True, slots=True)
class Dress:
    """What becomes of each column of a matrix of about standard normal columns."""

    style: str
    """Kind of table."""
    kinds: tuple[str, ...]
    """Kind of each column."""
    strength: Float[Tensor, " D"]
    """From 0 to 1: how skewed, how fine, how rare."""
    blocks: tuple[tuple[int, int], ...]
    """First column and one past the last of each category."""
    scale: Float[Tensor, " D"]
    """Unit of each column."""
    offset: Float[Tensor, " D"]
    """Added to each column, in its unit."""

    def __call__(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """The matrix as a table."""
        x = standardised(x)
        for kind in sorted(set(self.kinds) - {"plain", "category"}):
            chosen = torch.tensor([one == kind for one in self.kinds])
            x[:, chosen] = CHANGES[kind](x[:, chosen], self.strength[chosen])
        for start, stop in self.blocks:
            levels = x[:, start:stop].argmax(dim=1)
            x[:, start:stop] = torch.nn.functional.one_hot(levels, stop - start).to(x.dtype)
        return (x + self.offset) * self.scale


def draw_dress(width: int, dice: Dice, style: str | None = None) -> Dress:
    """Kinds, strengths and units of columns, in the style that is named or in any."""
    style = style or dice.pick(STYLE_WEIGHTS)
    weights = STYLES[style]
    kinds: list[str] = []
    blocks: list[tuple[int, int]] = []
    while len(kinds) < width:
        kind = dice.pick(weights)
        span = min(dice.integer(2, 6), width - len(kinds)) if kind == "category" else 1
        if kind == "category" and span < 2:
            kind = "binary"
        if kind == "category":
            blocks.append((len(kinds), len(kinds) + span))
        kinds += [kind] * span
    units = dice.pick({"one": 0.35, "some": 0.35, "wild": 0.3})
    scale = {
        "one": torch.ones(width),
        "some": dice.log_uniform(0.1, 10, width),
        "wild": dice.log_uniform(1e-3, 1e4, width),
    }
    codes = torch.tensor([kind in {"ordinal", "binary", "category"} for kind in kinds])
    offset = torch.where(codes, 0.0, dice.number(0, 4) * dice.normal(width))
    return Dress(
        style, tuple(kinds), dice.uniform(0, 1, width), tuple(blocks), torch.where(codes, 1.0, scale[units]), offset
    )


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
