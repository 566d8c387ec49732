"""Sets that resemble real tables: overlapping classes in columns of many kinds."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, final

import torch
from jaxtyping import Float
from torch import Tensor

from coterie.judged.prior.sampling import (
    TABULAR,
    Description,
    Draft,
    Memberships,
    Rng,
    assign_points,
    limit_clusters,
    sample_proportions,
    standardise,
)

Builder = Callable[[float], Float[Tensor, "N D"]]  # returns the rows for a within-class spread
Signal = Callable[[Memberships, int, Rng], Builder]


def embedding(members: Memberships, n_features: int, rng: Rng) -> Builder:
    """Unit vectors around class directions that are correlated with each other."""
    rank = rng.integer(min(3, n_features), min(24, n_features))
    basis = rng.normal(rank, n_features) / math.sqrt(rank)
    common = rng.scalar(0, 1) * rng.normal(n_features)
    location = members.per_point(rng.normal(members.n_clusters, rank) @ basis + common)
    topics = rng.normal(members.n_points, rank) @ basis
    deviations = rng.scalar(0.3, 0.8) * topics + rng.scalar(0.2, 0.7) * rng.normal(members.n_points, n_features)
    deviations = deviations * members.uniform(0.6, 1.4, rng).unsqueeze(1)
    return lambda spread: torch.nn.functional.normalize(location + spread * deviations, dim=1)


def _smooth(rows: int, n_features: int, rng: Rng, bandwidth: float) -> Float[Tensor, "R D"]:
    """Sample smooth curves over the columns: Fourier series with decaying coefficients."""
    frequency = torch.arange(1, 9)
    strength = rng.normal(rows, 8, 2) / (1 + frequency / bandwidth).unsqueeze(1) ** 2
    angle = math.pi * frequency.unsqueeze(1) * torch.linspace(0, 1, n_features)
    return strength[:, :, 0] @ angle.cos() + strength[:, :, 1] @ angle.sin()


def spectra(members: Memberships, n_features: int, rng: Rng) -> Builder:
    """Smooth curves: a mean curve per class; a gain, a level and a smooth deviation per row."""
    bandwidth = rng.scalar(1, 5)
    common = rng.scalar(0, 3) * _smooth(1, n_features, rng, bandwidth)
    location = members.per_point(_smooth(members.n_clusters, n_features, rng, bandwidth) + common)
    few = rng.integer(2, 5)
    deviations = rng.scalar(0.1, 0.35) * rng.normal(members.n_points, few) @ _smooth(few, n_features, rng, bandwidth)
    level, gain = 0.2 * rng.scalar(0, 1) * rng.normal(members.n_points, 1), 0.1 * rng.normal(members.n_points, 1)
    noise = rng.scalar(0.1, 0.5) * rng.normal(members.n_points, n_features)
    positive = rng.bernoulli(0.5)
    scale = rng.log_scalar(0.01, 100.0)

    def build(spread: float) -> Float[Tensor, "N D"]:
        x = location * (spread * gain).exp() + spread * (deviations + level + noise)
        return scale * (torch.nn.functional.softplus(x) if positive else x)

    return build


def sparse(members: Memberships, n_features: int, rng: Rng) -> Builder:
    """Non-negative columns that are mostly zero, such as pixels or word counts."""
    density = rng.scalar(0.15, 0.5)
    templates = rng.gamma(torch.full((members.n_clusters, n_features), 1.0))
    templates = templates * (rng.uniform(0, 1, members.n_clusters, n_features) < density)
    common = rng.gamma(torch.full((n_features,), 0.5)) * (rng.uniform(0, 1, n_features) < density)
    location = members.per_point(templates + rng.scalar(0, 1) * common)
    gain = 0.4 * rng.normal(members.n_points, 1)
    deviations = rng.scalar(0.4, 1.0) * rng.normal(members.n_points, n_features)
    counted, step = rng.bernoulli(0.4), rng.uniform(0, 1, members.n_points, n_features)
    scale = rng.log_scalar(2.0, 100.0)

    def build(spread: float) -> Float[Tensor, "N D"]:
        x = (location * (spread * gain).exp() + spread * deviations - 0.3).clamp_min(0)
        return (2 * x + step).floor() if counted else scale * x

    return build


SIGNALS: Final[Mapping[str, Signal]] = {"embedding": embedding, "spectra": spectra, "sparse": sparse}
"""Kinds of table whose columns are all of one kind."""


Transform = Callable[[Float[Tensor, "N C"], Float[Tensor, " C"]], Float[Tensor, "N C"]]
TRANSFORMS: Final[Mapping[str, Transform]] = {
    "exponential": lambda x, strength: ((0.4 + strength) * x).exp(),
    "power": lambda x, strength: (x + 2.5).clamp_min(0) ** (2 + 2 * strength),
    "squashed": lambda x, strength: ((1 + 2 * strength) * x).sigmoid(),
    "heavy": lambda x, strength: ((0.5 + strength) * x.clamp(-8, 8)).sinh(),
    "whole": lambda x, strength: ((1 + 6 * strength) * (x + 3)).round(),
    "ordinal": lambda x, strength: ((0.6 + strength) * x + 2 * strength).round().clamp(-2, 2),
    "binary": lambda x, strength: (x > 2 * strength - 1).to(x.dtype),
    "zeros": lambda x, strength: (x - 1.5 * strength + 0.5).clamp_min(0),
}
"""Transforms of standard normal columns, given a strength between 0 and 1 per column."""
KINDS: Final = ("plain", *TRANSFORMS, "category")  # kinds of column; a category is a one-hot block of several columns
STYLES: Final[Mapping[str, Mapping[str, float]]] = {
    "plain": {"plain": 1},
    "skewed": {"plain": 2, "exponential": 3, "power": 1, "squashed": 0.5, "heavy": 1, "zeros": 0.5},
    "measured": {"plain": 3, "exponential": 1, "whole": 2, "heavy": 0.5},
    "mixed": dict.fromkeys(KINDS, 1.0) | {"plain": 3},
    "coded": {"ordinal": 2, "binary": 2, "category": 2, "whole": 0.5},
}
"""Styles of table: weights of the kinds of column."""
STYLE_WEIGHTS: Final = {"plain": 0.25, "skewed": 0.22, "measured": 0.18, "mixed": 0.2, "coded": 0.15}


@final
@dataclass(frozen=True, slots=True)
class ColumnTransforms:
    """Transforms of the columns of a matrix into those of a table."""

    style: str
    kinds: tuple[str, ...]
    strength: Float[Tensor, " D"]  # how skewed, how fine-grained or how rare, between 0 and 1
    blocks: tuple[tuple[int, int], ...]  # start and stop column of each category
    scale: Float[Tensor, " D"]
    offset: Float[Tensor, " D"]  # added before scaling

    def __call__(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Transform a matrix."""
        x = standardise(x)
        for kind in sorted(set(self.kinds) - {"plain", "category"}):
            chosen = torch.tensor([one == kind for one in self.kinds])
            x[:, chosen] = TRANSFORMS[kind](x[:, chosen], self.strength[chosen])
        for start, stop in self.blocks:
            levels = x[:, start:stop].argmax(dim=1)
            x[:, start:stop] = torch.nn.functional.one_hot(levels, stop - start).to(x.dtype)
        return (x + self.offset) * self.scale


def sample_columns(n_features: int, rng: Rng, style: str | None = None) -> ColumnTransforms:
    """Sample kinds, strengths and units of columns; the style is random unless given."""
    style = style or rng.choice(STYLE_WEIGHTS)
    weights = STYLES[style]
    kinds: list[str] = []
    blocks: list[tuple[int, int]] = []
    while len(kinds) < n_features:
        kind = rng.choice(weights)
        span = min(rng.integer(2, 6), n_features - len(kinds)) if kind == "category" else 1
        if kind == "category" and span < 2:
            kind = "binary"
        if kind == "category":
            blocks.append((len(kinds), len(kinds) + span))
        kinds += [kind] * span
    units = rng.choice({"one": 0.35, "some": 0.35, "wild": 0.3})
    scale = {
        "one": torch.ones(n_features),
        "some": rng.log_uniform(0.1, 10, n_features),
        "wild": rng.log_uniform(1e-3, 1e4, n_features),
    }
    codes = torch.tensor([kind in {"ordinal", "binary", "category"} for kind in kinds])
    offset = torch.where(codes, 0.0, rng.scalar(0, 4) * rng.normal(n_features))
    return ColumnTransforms(
        style, tuple(kinds), rng.uniform(0, 1, n_features), tuple(blocks), torch.where(codes, 1.0, scale[units]), offset
    )


TABLE_KINDS: Final = {"factors": 0.6, "manifold": 0.12, "embedding": 0.1, "spectra": 0.09, "sparse": 0.09}
"""Kinds of table, with their weights where there are enough columns."""
MIN_COLUMNS: Final = {"manifold": 3, "embedding": 16, "spectra": 8, "sparse": 12}
CLUSTER_COUNTS: Final = {
    "2": 0.27, "3": 0.22, "4": 0.12, "5": 0.09, "6": 0.07, "7": 0.06, "8": 0.04, "9": 0.03, "10": 0.03, "many": 0.07,
}  # fmt: skip
"""Numbers of clusters, with their weights."""


def sample_table(n_points: int, n_features: int, max_clusters: int, rng: Rng) -> Draft:
    """Sample a table."""
    count = rng.choice(CLUSTER_COUNTS)
    n_clusters = min(limit_clusters(n_points, max_clusters, 10), rng.integer(11, 30) if count == "many" else int(count))
    proportions, sizes = sample_proportions(n_clusters, rng, {"even": 0.3, "uneven": 0.5, "contrast": 0.2})
    members = assign_points(n_points, proportions, rng)
    kind = rng.choice({name: weight for name, weight in TABLE_KINDS.items() if n_features >= MIN_COLUMNS.get(name, 1)})
    description: Description = {"layout": kind, "sizes": sizes}
    if kind in SIGNALS:
        return Draft(members.labels, SIGNALS[kind](members, n_features, rng), TABULAR, description)
    fraction = rng.scalar(0, 0.7) if rng.bernoulli(0.55) else 0.0
    relevant = max(1, n_features - int(fraction * n_features))
    description["irrelevant"] = 1 - relevant / n_features
    build = (_manifold if kind == "manifold" else sample_factors)(members, relevant, rng, description)
    noise = _irrelevant(n_points, n_features - relevant, rng, description)
    order, transforms = rng.permutation(n_features), sample_columns(n_features, rng)
    description |= {"columns": transforms.style, "kinds": ", ".join(sorted(set(transforms.kinds)))}

    def build_table(spread: float) -> Float[Tensor, "N D"]:
        return transforms(torch.cat((build(spread), noise), dim=1)[:, order])

    return Draft(members.labels, build_table, TABULAR, description)


def sample_factors(members: Memberships, n_features: int, rng: Rng, description: Description) -> Builder:
    """Class means and correlated deviations."""
    rank = rng.integer(1, min(n_features, 10))
    loadings = rng.normal(rank, n_features) * (rng.uniform(0, 1, rank, n_features) < rng.scalar(0.3, 1.0))
    means = rng.normal(members.n_clusters, rank) @ loadings / rank**0.5
    own = rng.uniform(0, 1, members.n_clusters, n_features) < rng.scalar(0.1, 1.0)
    means = means * rng.scalar(0, 1) + own * rng.normal(members.n_clusters, n_features)
    deviations = _correlated(members, n_features, rng, description)
    location = members.per_point(means)
    if rng.bernoulli(0.2) and members.n_points >= 30 * members.n_clusters:
        description["parts"] = "several"
        parts = rng.integer(2, 4)
        part = rng.integers(0, parts - 1, members.n_points)
        strength = rng.scalar(0.2, 0.6)
        location = location + strength * rng.normal(members.n_clusters, parts, n_features)[members.labels, part]
    return lambda spread: location + spread * deviations


def _correlated(members: Memberships, n_features: int, rng: Rng, description: Description) -> Float[Tensor, "N C"]:
    """Sample deviations from a factor model, shared by all classes or one per class."""
    rank = rng.integer(1, min(n_features, 6))
    own = rng.bernoulli(0.5)
    loadings = rng.normal(members.n_clusters if own else 1, rank, n_features) / rank**0.5
    tails = rng.choice({"normal": 0.7, "heavy": 0.3})
    if tails == "heavy":
        factors = rng.student_t(torch.full((members.n_points,), rng.scalar(2.5, 6)), rank + n_features)
    else:
        factors = rng.normal(members.n_points, rank + n_features)
    shared = torch.einsum("nr,nrc->nc", factors[:, :rank], members.per_point(loadings))
    scale = rng.log_uniform(0.5, 2.0, members.n_clusters, 1) if own else torch.ones(1, 1)
    mixing = rng.scalar(0, 1)
    description |= {"tails": tails, "covariance": "own" if own else "shared"}
    deviations: Tensor = 0.5 * members.per_point(scale) * (mixing * shared + (1 - mixing**2) ** 0.5 * factors[:, rank:])
    return deviations


def _manifold(members: Memberships, n_features: int, rng: Rng, _: Description) -> Builder:
    """Clusters in one to three latent features, mapped to many columns by a random network."""
    latent = rng.integer(1, 3)
    location = members.per_point(1.5 * rng.normal(members.n_clusters, latent))
    deviations = 0.4 * rng.normal(members.n_points, latent)
    if rng.bernoulli(0.5):
        deviations = rng.uniform(-0.7, 0.7, members.n_points, latent)
    first, bias, second = rng.normal(latent, 12), rng.normal(12), rng.normal(12, n_features)
    noise = rng.scalar(0.02, 0.3) * rng.normal(members.n_points, n_features)
    return lambda spread: ((location + spread * deviations) @ first + bias).tanh() @ second + spread * noise


def _irrelevant(n_points: int, n_features: int, rng: Rng, description: Description) -> Float[Tensor, "N C"]:
    """Sample columns that do not depend on the class."""
    noise = rng.normal(n_points, n_features)
    if n_features > 2 and rng.bernoulli(0.5):
        rank = rng.integer(1, 3)
        noise = noise + rng.normal(n_points, rank) @ rng.normal(rank, n_features)
    if n_features > 0 and rng.bernoulli(0.5):
        # Real tables also contain groups that are unrelated to the classes.
        description["irrelevant_groups"] = groups = rng.integer(2, 6)
        centres = rng.log_scalar(0.5, 2.5) * rng.normal(groups, n_features)
        noise = noise + centres[rng.integers(0, groups - 1, n_points)]
    return noise
