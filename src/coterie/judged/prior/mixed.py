"""Tables of mixed columns, as people have them: categories, answers, counts, amounts, dates, yes and no.

Every column is a function of hidden scores. The scores have means per class and correlated deviations, as in
``tables.sample_factors``; a category is the largest of several scores.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, final

import torch
from jaxtyping import Float
from torch import Tensor

from coterie.judged.prior.sampling import (
    MIXED,
    Description,
    Draft,
    Rng,
    assign_points,
    limit_clusters,
    sample_proportions,
    standardise,
)
from coterie.judged.prior.tables import CLUSTER_COUNTS, TRANSFORMS, sample_factors


@final
@dataclass(frozen=True, slots=True)
class Column:
    """How one column is made of scores that have mean 0 and standard deviation 1."""

    build: Callable[[Float[Tensor, "N S"]], Float[Tensor, " N"]]
    n_scores: int = 1
    is_category: bool = False


def _transformed(name: str) -> Callable[[Rng], Column]:
    def sample(rng: Rng) -> Column:
        strength, scale = rng.uniform(0, 1, 1), rng.log_scalar(0.1, 100.0)
        offset = rng.scalar(0, 3) if name in {"squashed", "heavy"} else 0.0
        return Column(lambda scores: scale * (TRANSFORMS[name](scores, strength).squeeze(1) + offset))

    return sample


def number(rng: Rng) -> Column:
    """A normal column, often with few decimals."""
    offset, scale = rng.scalar(-4, 8), rng.log_scalar(0.01, 1000.0)
    decimals = rng.integer(0, 3) if rng.bernoulli(0.5) else 6
    return Column(lambda scores: ((scores.squeeze(1) + offset) * scale).round(decimals=decimals))


def age(rng: Rng) -> Column:
    """Years of age."""
    centre, spread = rng.scalar(30, 55), rng.scalar(6, 16)
    return Column(lambda scores: (centre + spread * scores.squeeze(1)).clamp(16, 95).round())


def amount(rng: Rng) -> Column:
    """Money, with a long tail."""
    level, spread = rng.scalar(1, 9), rng.scalar(0.3, 1.3)
    return Column(lambda scores: ((level + spread * scores.squeeze(1)).exp() * 100).round() / 100)


def pareto(rng: Rng) -> Column:
    """A power law: bytes, prices, populations."""
    exponent, unit = rng.scalar(1.0, 3.0), rng.log_scalar(0.1, 1000.0)
    return Column(lambda scores: unit * torch.special.ndtr(-scores.squeeze(1)).clamp_min(1e-6) ** (-1 / exponent))


def count(rng: Rng) -> Column:
    """A count of events, whose rate depends on the score."""
    level, spread = rng.scalar(0, 3.5), rng.scalar(0.3, 0.9)
    return Column(lambda scores: rng.poisson((level + spread * scores.squeeze(1)).clamp_max(9).exp()))


def rare_count(rng: Rng) -> Column:
    """A count that is mostly 0."""
    level, spread, often = rng.scalar(0, 3), rng.scalar(0.3, 0.9), rng.scalar(-1.0, 0.6)

    def build(scores: Float[Tensor, "N 2"]) -> Float[Tensor, " N"]:
        return torch.where(scores[:, 1] > often, rng.poisson((level + spread * scores[:, 0]).clamp_max(9).exp()), 0.0)

    return Column(build, 2)


def answer(rng: Rng) -> Column:
    """An answer on a scale of 3 to 10 steps, with a little noise of its own."""
    steps, noise = int(rng.choice({"5": 4, "7": 2, "4": 1, "3": 1, "10": 1})), rng.scalar(0, 0.8)
    centre, width = rng.scalar(-0.6, 0.6), rng.scalar(0.2, 0.35) * steps

    def build(scores: Float[Tensor, "N 1"]) -> Float[Tensor, " N"]:
        noisy = scores.squeeze(1) + noise * rng.normal(len(scores)) + centre
        return (0.5 * (steps + 1) + width * noisy).round().clamp(1, steps)

    return Column(build)


def boolean(rng: Rng) -> Column:
    """0 or 1."""
    edge, noise = rng.scalar(-1.2, 1.2), rng.scalar(0, 1)
    return Column(lambda scores: (scores.squeeze(1) + noise * rng.normal(len(scores)) > edge).float())


def date(rng: Rng) -> Column:
    """Days since 1970, within some years."""
    centre, spread = rng.scalar(15_000, 20_000), rng.log_scalar(30, 800)
    return Column(lambda scores: (centre + spread * scores.squeeze(1)).round())


def category(rng: Rng) -> Column:
    """A nominal category of 2 to 12 levels: the largest of as many scores, plus noise."""
    n_levels = rng.integer(2, 5) if rng.bernoulli(0.65) else rng.integer(4, 12)
    frequency, gain = rng.scalar(0, 1) * rng.normal(n_levels), rng.log_scalar(0.4, 4.0)

    def build(scores: Float[Tensor, "N S"]) -> Float[Tensor, " N"]:
        gumbel = -(-rng.uniform(1e-6, 1 - 1e-6, *scores.shape).log()).log()
        return (gain * scores + frequency + gumbel).argmax(dim=1).float()

    return Column(build, n_levels, is_category=True)


def grade(rng: Rng) -> Column:
    """An ordered category of 3 to 6 levels, written as text."""
    edges = torch.sort(rng.normal(rng.integer(2, 5)))[0]
    noise = rng.scalar(0, 0.8)
    return Column(
        lambda scores: torch.searchsorted(edges, scores.squeeze(1) + noise * rng.normal(len(scores))).float(),
        is_category=True,
    )


COLUMNS: Final[Mapping[str, Callable[[Rng], Column]]] = {
    "number": number, "age": age, "amount": amount, "pareto": pareto, "count": count, "rare count": rare_count,
    "answer": answer, "boolean": boolean, "date": date, "category": category, "grade": grade,
} | {name: _transformed(name) for name in ("exponential", "power", "squashed", "heavy", "whole", "zeros")}  # fmt: skip
"""Kinds of column."""
MIXED_STYLES: Final[dict[str, Mapping[str, float]]] = {
    "mixed/people": {
        "age": 1, "amount": 2, "number": 1, "count": 2, "rare count": 0.7, "category": 3, "boolean": 1.5, "date": 0.7,
        "grade": 0.7, "answer": 0.7,
    },
    "mixed/measured": {
        "number": 5, "exponential": 1.5, "power": 0.5, "squashed": 0.5, "heavy": 0.7, "whole": 1.5, "zeros": 0.5,
        "category": 1.5, "boolean": 0.7, "grade": 0.3,
    },
    "mixed/coded": {"category": 4, "grade": 1, "boolean": 2, "number": 1, "whole": 0.5, "age": 0.3},
    "mixed/categories": {"category": 1},
    "mixed/events": {"amount": 1, "pareto": 2, "count": 1.5, "zeros": 1, "category": 2, "date": 0.7, "exponential": 1},
    "survey": {"answer": 6, "category": 0.5, "grade": 0.4, "age": 0.3, "boolean": 0.5},
    "counts": {"count": 4, "rare count": 2, "whole": 0.4},
}  # fmt: skip
"""Styles of table, with the weights of their kinds of column; add to it to train on others."""
HELD_OUT_STYLES: Final = frozenset({"mixed/events"})
"""Styles that only the validation split has."""


def sample_mixed(style: str, n_points: int, n_features: int, max_clusters: int, rng: Rng) -> Draft:
    """Sample the columns of a table of mixed columns that depend on the class."""
    chosen = rng.choice(CLUSTER_COUNTS)
    wanted = rng.integer(11, 20) if chosen == "many" else int(chosen)
    n_clusters = min(limit_clusters(n_points, max_clusters, 15), wanted)
    proportions, sizes = sample_proportions(n_clusters, rng, {"even": 0.3, "uneven": 0.5, "contrast": 0.2})
    members = assign_points(n_points, proportions, rng)
    kinds = [rng.choice(MIXED_STYLES[style]) for _ in range(n_features)]
    made = [COLUMNS[kind](rng) for kind in kinds]
    spans = [column.n_scores for column in made]
    description: Description = {"layout": style, "sizes": sizes, "kinds": ", ".join(sorted(set(kinds)))}
    sample_scores = sample_factors(members, sum(spans), rng, description)
    # Columns depend on the class more or less: all equally in a third of the tables.
    share = torch.ones(n_features) if rng.bernoulli(1 / 3) else rng.uniform(0.2, 1, n_features)
    share = share.repeat_interleave(torch.tensor(spans))
    own = (1 - share.square()).sqrt() * rng.normal(n_points, sum(spans))

    def build(spread: float) -> Float[Tensor, "N D"]:
        scores = standardise(share * standardise(sample_scores(spread)) + own)
        parts = torch.split(scores, spans, dim=1)
        return torch.stack([column.build(part) for column, part in zip(made, parts, strict=True)], dim=1)

    categories = tuple(index for index, column in enumerate(made) if column.is_category)
    return Draft(members.labels, build, MIXED, description, categories)
