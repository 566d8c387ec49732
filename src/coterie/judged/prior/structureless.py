"""Sets without clusters: one group of rows, or rows that vary without groups."""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from coterie.judged.prior.sampling import Memberships, Rng, standardise
from coterie.judged.prior.shapes import by_name, columns, directions, polar
from coterie.judged.prior.shapes import triangle as triangles


class Sampled(NamedTuple):
    """Rows of a set, and which of its columns are categories."""

    x: Float[Tensor, "N D"]
    categories: tuple[int, ...] = ()


def gaussian(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Independent normal columns."""
    return Sampled(rng.normal(n_points, n_features))


def correlated(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Normal columns with a random covariance matrix."""
    return Sampled(rng.normal(n_points, n_features) @ rng.normal(n_features, n_features))


def low_rank(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Normal columns that few factors determine, such as scores of tests or sizes of animals."""
    rank = rng.integer(1, max(1, min(4, n_features - 1)))
    factors = rng.normal(n_points, rank) @ rng.normal(rank, n_features)
    return Sampled(factors + rng.log_scalar(0.1, 1.0) * rng.normal(n_points, n_features))


def box(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Uniform columns."""
    return Sampled(rng.uniform(0, 1, n_points, n_features))


def gradient(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """A box whose density grows towards one corner."""
    return Sampled(rng.uniform(0, 1, n_points, n_features) ** rng.uniform(0.4, 2.5, n_features))


def ball(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """A uniform ball."""
    radius = rng.uniform(0, 1, n_points, 1) ** (1 / n_features)
    return Sampled(radius * directions(n_points, n_features, rng))


def disc(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """A uniform disc, with columns of noise beyond the second."""
    radius = rng.uniform(0, 1, n_points).sqrt()
    return Sampled(_lift(polar(radius, rng.uniform(-math.pi, math.pi, n_points)), n_features, rng))


def triangle(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """A uniform triangle."""
    return Sampled(_lift(triangles(_one_cluster(n_points), rng), n_features, rng))


def student(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Student's t: heavy tails on all sides."""
    return Sampled(rng.student_t(torch.full((n_points,), rng.scalar(1.5, 6.0)), n_features))


def lognormal(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Long tails to one side, such as amounts of money; often correlated."""
    common = rng.scalar(0, 1) * rng.normal(n_points, 1)
    return Sampled((rng.uniform(0.3, 1.4, n_features) * (common + rng.normal(n_points, n_features))).exp())


def gamma(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Gamma and exponential columns, such as durations."""
    return Sampled(rng.gamma(rng.log_uniform(0.7, 5.0, n_features).repeat(n_points, 1)))


def beta(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Fractions with one mode."""
    first, second = (rng.gamma(rng.uniform(1.0, 6.0, n_features).repeat(n_points, 1)) for _ in range(2))
    return Sampled(first / (first + second).clamp_min(1e-9))


def poisson(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Counts, with a common factor in half of the sets."""
    rate = rng.log_uniform(0.5, 40.0, n_features).repeat(n_points, 1)
    if rng.bernoulli(0.5):
        rate = rate * (rng.scalar(0.1, 0.7) * rng.normal(n_points, 1)).exp()
    return Sampled(rng.poisson(rate))


def likert(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Answers on a scale of 3 to 7 steps: random, or with an attitude that all share."""
    steps = rng.integer(3, 7)
    common = rng.scalar(0, 1.2) * rng.normal(n_points, 1) * rng.integers(0, 1, n_features).mul(2).sub(1)
    answers = 0.5 * steps * (1 + 0.5 * (common + rng.normal(n_points, n_features) + 0.5 * rng.normal(n_features)))
    return Sampled(answers.round().clamp(1, steps))


def uniform_answers(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Integers of few values, all equally frequent."""
    steps = rng.integers(2, 9, n_features)
    return Sampled((rng.uniform(0, 1, n_points, n_features) * (steps + 1)).floor())


def categories(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Independent categories."""
    return Sampled(_sample_levels(n_points, n_features, rng), tuple(range(n_features)))


def categories_beside_numbers(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Independent categories, beside normal or skewed columns."""
    count = rng.integer(1, max(1, min(4, n_features - 1)))
    numbers = rng.choice({"gaussian": 2, "low-rank": 1, "lognormal": 1, "box": 1})
    x = STRUCTURELESS[numbers](n_points, max(1, n_features - count), rng).x
    together = torch.cat((x, _sample_levels(n_points, count, rng)), dim=1)
    return Sampled(together, tuple(range(x.shape[1], together.shape[1])))


def binary_beside_numbers(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Columns of 0 and 1, beside normal ones."""
    count = rng.integer(1, max(1, min(3, n_features - 1)))
    numbers = rng.normal(n_points, max(1, n_features - count))
    return Sampled(torch.cat((numbers, (rng.uniform(0, 1, n_points, count) < rng.uniform(0.2, 0.8, count))), dim=1))


def ring(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """A circle or an ellipse, thin or thick."""
    angle = rng.uniform(-math.pi, math.pi, n_points)
    flat = polar(1.0, angle) * torch.tensor([1.0, rng.scalar(0.4, 1.0)])
    return Sampled(_lift(flat + rng.log_scalar(0.02, 0.2) * rng.normal(n_points, 2), n_features, rng))


def curve(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """A smooth curve through all columns."""
    along = rng.uniform(0, 1, n_points, 1)
    waves = (along * rng.uniform(0.3, 1.2, n_features) * 2 * math.pi + rng.uniform(0, 6, n_features)).sin()
    x = waves + rng.scalar(0, 2) * along * rng.normal(n_features)
    return Sampled(x + rng.log_scalar(0.01, 0.15) * rng.normal(n_points, n_features))


def sheet(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """A curved surface."""
    latent = rng.uniform(-1, 1, n_points, 2)
    bent = (latent @ rng.normal(2, n_features) * rng.scalar(0.4, 0.9) + 0.5 * rng.normal(n_features)).tanh()
    return Sampled(bent + rng.log_scalar(0.01, 0.15) * rng.normal(n_points, n_features))


def swiss_roll(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """A rolled-up strip; a spiral in the plane."""
    turns = rng.scalar(1.0, 2.0)
    along = (rng.uniform(0.1, 1, n_points)).sqrt()
    flat = polar(along, 2 * math.pi * turns * along) + 0.02 * rng.scalar(0, 1) * rng.normal(n_points, 2)
    width = rng.uniform(-1, 1, n_points, 1)
    return Sampled(_lift(torch.cat((flat, width), dim=1)[:, : max(2, min(3, n_features))], n_features, rng))


def sphere(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """The surface of a ball."""
    radius = 1 + rng.log_scalar(0.01, 0.15) * rng.normal(n_points, 1)
    return Sampled(radius * directions(n_points, max(2, n_features), rng)[:, :n_features])


def skewed(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """One cluster with a tail in a random direction."""
    shape = rng.log_uniform(0.8, 5.0, n_features).repeat(n_points, 1)
    return Sampled((rng.gamma(shape) - shape) @ rng.orthogonal(1, n_features)[0])


def banana(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """One cluster that is bent."""
    x = rng.normal(n_points, n_features)
    x[:, -1] = rng.scalar(0.3, 1.0) * (x[:, -1] + (1.5 * x[:, 0]).square() * rng.scalar(0.2, 0.6))
    return Sampled(x)


def funnel(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Columns whose logarithmic spread depends on the first."""
    first = rng.normal(n_points, 1)
    return Sampled(torch.cat((first, (0.7 * first).exp() * rng.normal(n_points, max(1, n_features - 1))), dim=1))


def heteroscedastic(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """A trend whose spread grows with the first column."""
    first = rng.uniform(0, 1, n_points, 1)
    slopes = rng.normal(max(1, n_features - 1))
    return Sampled(torch.cat((first, first * slopes + (0.02 + first) * rng.normal(n_points, len(slopes))), dim=1))


def regression(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Columns that are noisy functions of other columns."""
    causes = rng.normal(n_points, max(1, n_features // 2))
    effects = causes @ rng.normal(causes.shape[1], n_features) / math.sqrt(causes.shape[1])
    effects = effects + rng.scalar(0, 0.5) * effects.square() + rng.scalar(0.2, 1.0) * rng.normal(n_points, n_features)
    return Sampled(torch.cat((causes, effects), dim=1)[:, :n_features])


def random_walk(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Readings over time: each row is near the one before, and columns return to their means."""
    x, memory = rng.normal(n_points, n_features), rng.scalar(0.8, 0.97)
    powers = memory ** torch.arange(160.0)
    filtered = torch.nn.functional.conv1d(x.T.unsqueeze(1), powers.flip(0).view(1, 1, -1), padding=len(powers) - 1)
    return Sampled(filtered[:, 0, :n_points].T)


def rounded(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Normal or uniform numbers with few decimals."""
    x = rng.normal(n_points, n_features) if rng.bernoulli(0.6) else rng.uniform(-2, 2, n_points, n_features)
    return Sampled((x * rng.log_uniform(1.5, 20.0, n_features)).round())


def lattice(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Points on a regular grid, with jitter, such as a survey of a field."""
    side = math.ceil(math.sqrt(n_points))
    index = torch.arange(side * side)[rng.permutation(side * side)[:n_points]]
    flat = columns(index % side, torch.div(index, side, rounding_mode="floor")).float()
    return Sampled(_lift((flat + rng.scalar(0.05, 0.4) * rng.normal(n_points, 2)) / side, n_features, rng))


def scale_mixture(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Two or three normal distributions with one centre and different spread."""
    spread = rng.log_uniform(1.0, 5.0, rng.integer(2, 3))
    return Sampled(spread[rng.integers(0, len(spread) - 1, n_points)].unsqueeze(1) * rng.normal(n_points, n_features))


def dates_and_amounts(n_points: int, n_features: int, rng: Rng) -> Sampled:
    """Days within some years, beside amounts and counts."""
    days = (rng.scalar(15_000, 20_000) + rng.uniform(0, rng.log_scalar(60, 2000), n_points, 1)).round()
    amounts = (rng.uniform(0.4, 1.2, n_features) * rng.normal(n_points, n_features) + 3).exp()
    counts = rng.poisson(rng.log_uniform(1.0, 20.0, n_features).repeat(n_points, 1))
    counted = rng.uniform(0, 1, n_features) < 0.4
    return Sampled(torch.cat((days, torch.where(counted, counts, amounts)), dim=1)[:, : max(2, n_features)])


STRUCTURELESS: Final[dict[str, Callable[[int, int, Rng], Sampled]]] = dict(
    by_name(
        gaussian, correlated, low_rank, box, gradient, ball, disc, triangle, student, lognormal, gamma, beta, poisson,
        likert, uniform_answers, categories, categories_beside_numbers, binary_beside_numbers, ring, curve, sheet,
        swiss_roll, sphere, skewed, banana, funnel, heteroscedastic, regression, random_walk, rounded, lattice,
        scale_mixture, dates_and_amounts,
    )
)  # fmt: skip
"""Kinds of set without clusters, all equally frequent; add to it to train on others."""
HELD_OUT_STRUCTURELESS: Final = frozenset(
    {"disc", "beta", "likert", "binary-beside-numbers", "sheet", "funnel", "regression", "scale-mixture"}
)
"""Kinds that only the validation split has."""
UNIVARIATE: Final = frozenset(
    {"gaussian", "box", "gradient", "student", "lognormal", "gamma", "beta", "poisson", "likert", "uniform-answers",
     "skewed", "rounded", "scale-mixture"}
)  # fmt: skip
"""Kinds that one column can have."""
DISCRETE: Final = frozenset(
    {"poisson", "likert", "uniform-answers", "categories", "categories-beside-numbers", "binary-beside-numbers",
     "rounded", "dates-and-amounts"}
)  # fmt: skip
"""Kinds whose columns keep their units."""


def sample_units(x: Float[Tensor, "N D"], rng: Rng) -> Float[Tensor, "N D"]:
    """Give columns different units, and an origin of their own."""
    n_features = x.shape[1]
    span = rng.choice({"one": 0.4, "some": 0.35, "wild": 0.25})
    scale = {"one": torch.ones(n_features), "some": rng.log_uniform(0.1, 10, n_features)}
    offset = rng.scalar(0, 4) * rng.normal(n_features)
    return (x + offset) * scale.get(span, rng.log_uniform(1e-3, 1e4, n_features))


def _one_cluster(n_points: int) -> Memberships:
    return Memberships(torch.zeros(n_points, dtype=torch.int64), 1)


def _lift(flat: Float[Tensor, "N E"], n_features: int, rng: Rng) -> Float[Tensor, "N D"]:
    """Rotate a flat set into more columns, with a little noise; fewer columns cut it."""
    if n_features <= flat.shape[1]:
        return flat[:, : max(1, n_features)]
    turned = standardise(flat) @ rng.orthogonal(1, n_features)[0][: flat.shape[1]]
    return turned + rng.log_scalar(0.02, 0.1) * rng.normal(len(flat), n_features)


def _sample_levels(n_points: int, n_features: int, rng: Rng) -> Float[Tensor, "N D"]:
    """Sample codes of categories that depend on nothing."""
    return torch.stack([sample_levels(n_points, rng.integer(2, 10), rng) for _ in range(n_features)], dim=1)


def sample_levels(n_points: int, n_levels: int, rng: Rng) -> Float[Tensor, " N"]:
    """Sample the codes of one category, with levels of equal or unequal frequency."""
    weights = rng.gamma(torch.full((n_levels,), rng.log_scalar(0.7, 20.0))) + 0.02
    edges = (weights / weights.sum()).cumsum(0)[:-1]
    return torch.searchsorted(edges, rng.uniform(0, 1, n_points)).float()
