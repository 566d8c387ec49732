"""What real tables have beside structure: junk columns, gaps, repeated rows, rounded and transformed columns."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from coterie.judged.prior.sampling import Rng, standardise
from coterie.judged.prior.structureless import sample_levels
from coterie.judged.prior.task import SyntheticTask

MAX_GAPS: Final = 0.3  # largest fraction of missing values in the columns that have gaps


def _category(n_points: int, rng: Rng) -> Float[Tensor, " N"]:
    return sample_levels(n_points, rng.integer(2, 3) if rng.bernoulli(0.5) else rng.integer(2, 10), rng)


def _rare(n_points: int, rng: Rng) -> Float[Tensor, " N"]:
    return (rng.uniform(0, 1, n_points) < rng.scalar(0.005, 0.05)).float()


def _small_integer(n_points: int, rng: Rng) -> Float[Tensor, " N"]:
    return rng.integers(0, rng.integer(2, 10), n_points).float()


def _bimodal(n_points: int, rng: Rng) -> Float[Tensor, " N"]:
    side = rng.uniform(0, 1, n_points) < rng.scalar(0.2, 0.8)
    return rng.normal(n_points) + rng.scalar(2.0, 8.0) * side


JUNK: Final[dict[str, Callable[[int, Rng], Float[Tensor, " N"]]]] = {
    "category": _category,
    "rare-category": _rare,
    "binary": lambda n_points, rng: (rng.uniform(0, 1, n_points) < rng.scalar(0.1, 0.9)).float(),
    "rare-binary": _rare,
    "small-integer": _small_integer,
    "count": lambda n_points, rng: rng.poisson(torch.full((n_points,), rng.log_scalar(0.3, 30.0))),
    "normal": lambda n_points, rng: rng.scalar(-5, 5) + rng.log_scalar(0.01, 100.0) * rng.normal(n_points),
    "uniform": lambda n_points, rng: rng.uniform(0, rng.log_scalar(0.1, 1000.0), n_points),
    "lognormal": lambda n_points, rng: (rng.scalar(0.3, 1.5) * rng.normal(n_points) + rng.scalar(-1, 8)).exp(),
    "bimodal": _bimodal,
    "date": lambda n_points, rng: (17_000 + rng.uniform(0, rng.log_scalar(30, 3000), n_points)).round(),
    "row-number": lambda n_points, rng: torch.arange(n_points) + float(rng.integer(0, 1) * rng.integer(0, 100_000)),
    "id": lambda n_points, rng: rng.permutation(20 * n_points)[:n_points].float(),
}
"""Columns that depend on nothing, by name; add to it to train on others."""
JUNK_WEIGHTS: Final[dict[str, float]] = {
    "category": 4.0, "rare-category": 0.5, "binary": 1.5, "rare-binary": 0.5, "small-integer": 1.5, "count": 0.7,
    "normal": 2.0, "uniform": 1.0, "lognormal": 1.2, "bimodal": 0.6, "date": 0.5, "row-number": 0.5, "id": 0.4,
}  # fmt: skip
JUNK_CATEGORIES: Final = frozenset({"category", "rare-category"})
GROUPED_JUNK: Final = frozenset({"bimodal"})  # has groups of its own, so no set with it is without structure
HELD_OUT_DECORATIONS: Final = frozenset({"small-integer", "lognormal", "gaps-by-value", "rounding"})
"""Junk columns and decorations that only the validation split has."""


def add_junk(task: SyntheticTask, names: list[str], rng: Rng) -> SyntheticTask:
    """Add columns that depend on nothing, at random positions."""
    if not names:
        return task
    junk = torch.stack([JUNK[name](len(task.x), rng) for name in names], dim=1)
    width = task.x.shape[1]
    added = tuple(width + index for index, name in enumerate(names) if name in JUNK_CATEGORIES)
    wider = replace(task, x=torch.cat((task.x, junk), dim=1), categories=task.categories + added)
    return wider.select(rng.permutation(wider.x.shape[1]))


def sample_junk(count: int, rng: Rng, *, grouped: bool, split: str) -> list[str]:
    """Sample names of junk columns; ``grouped`` allows those that have groups of their own."""
    allowed = {
        name: weight
        for name, weight in JUNK_WEIGHTS.items()
        if (grouped or name not in GROUPED_JUNK) and (split == "validation" or name not in HELD_OUT_DECORATIONS)
    }
    return [rng.choice(allowed) for _ in range(count)]


def gaps_at_random(task: SyntheticTask, rng: Rng) -> SyntheticTask:
    """Leave out values anywhere."""
    return _leave_out(task, rng.uniform(0, 1, *task.x.shape) < rng.log_scalar(0.01, 0.2))


def gaps_in_one_column(task: SyntheticTask, rng: Rng) -> SyntheticTask:
    """Leave out values of one column."""
    gaps = torch.zeros(task.x.shape, dtype=torch.bool)
    gaps[:, rng.integer(0, task.x.shape[1] - 1)] = rng.uniform(0, 1, len(task.x)) < rng.scalar(0.05, MAX_GAPS)
    return _leave_out(task, gaps)


def gaps_in_a_block(task: SyntheticTask, rng: Rng) -> SyntheticTask:
    """Leave out several columns of some rows, such as a part of a questionnaire."""
    chosen = rng.uniform(0, 1, task.x.shape[1]) < rng.scalar(0.2, 0.5)
    return _leave_out(task, (rng.uniform(0, 1, len(task.x), 1) < rng.scalar(0.03, 0.25)) & chosen)


def gaps_by_value(task: SyntheticTask, rng: Rng) -> SyntheticTask:
    """Leave out values of one column where another one, or itself, is large."""
    column, cause = (rng.integer(0, task.x.shape[1] - 1) for _ in range(2))
    large = _filled(task.x)[:, cause].argsort().argsort() / len(task.x) > 1 - rng.scalar(0.1, 2 * MAX_GAPS)
    gaps = torch.zeros(task.x.shape, dtype=torch.bool)
    gaps[:, column] = large & (rng.uniform(0, 1, len(task.x)) < rng.scalar(0.3, 0.8))
    return _leave_out(task, gaps)


def gaps_by_class(task: SyntheticTask, rng: Rng) -> SyntheticTask:
    """Leave out values more often in some clusters than in others."""
    often = rng.uniform(0.0, MAX_GAPS, task.n_clusters + 1)[task.labels]  # noise has the last one
    chosen = rng.uniform(0, 1, task.x.shape[1]) < rng.scalar(0.1, 0.5)
    return _leave_out(task, (rng.uniform(0, 1, *task.x.shape) < often.unsqueeze(1)) & chosen)


def repeat_rows(task: SyntheticTask, rng: Rng) -> SyntheticTask:
    """Replace some rows with copies of others of the same cluster."""
    order = torch.argsort(task.labels, stable=True)
    sizes = torch.bincount(task.labels + 1)
    start = sizes.cumsum(0) - sizes
    label = task.labels + 1
    copied = order[start[label] + (rng.uniform(0, 1, len(label)) * sizes[label]).long().clamp(max=sizes[label] - 1)]
    replaced = rng.uniform(0, 1, len(label)) < rng.log_scalar(0.02, 0.4)
    return replace(task, x=task.x[torch.where(replaced, copied, torch.arange(len(label)))])


def rounding(task: SyntheticTask, rng: Rng) -> SyntheticTask:
    """Round number columns to steps, some or all of them."""
    low, high = _filled(task.x).aminmax(dim=0)
    step = (high - low).clamp_min(1e-12) / rng.log_uniform(12, 200, task.x.shape[1])
    chosen = _number_columns(task) & (rng.uniform(0, 1, task.x.shape[1]) < (1.0 if rng.bernoulli(0.5) else 0.4))
    return replace(task, x=torch.where(chosen, (task.x / step).round() * step, task.x))


def monotone(task: SyntheticTask, rng: Rng) -> SyntheticTask:
    """Transform a number column by a monotone function."""
    chosen = _number_columns(task).nonzero().squeeze(1)
    if len(chosen) == 0:
        return task
    column = int(chosen[rng.integer(0, len(chosen) - 1)])
    level = standardise(_filled(task.x[:, column : column + 1])).squeeze(1).clamp(-8, 8)
    name = rng.choice({"exp": 0.4, "log": 0.3, "cube": 0.3})
    new = {"exp": (rng.scalar(0.4, 1.0) * level).exp(), "cube": level + rng.scalar(0.2, 0.6) * level**3}
    x = task.x.clone()
    x[:, column] = new.get(name, (level - level.min() + 0.3).log())
    x[task.x.isnan()] = torch.nan
    return replace(task, x=x)


def repeat_column(task: SyntheticTask, rng: Rng) -> SyntheticTask:
    """Add a copy of a column, often in another unit and with an error."""
    column = rng.integer(0, task.x.shape[1] - 1)
    copy = task.x[:, column : column + 1]
    if column in task.categories:
        added: tuple[int, ...] = (task.x.shape[1],)
    else:
        added = ()
        deviation = float(_filled(copy).std()) * (rng.log_scalar(0.01, 0.3) if rng.bernoulli(0.5) else 0.0)
        copy = rng.log_scalar(0.01, 100.0) * (copy + deviation * rng.normal(len(copy), 1))
    wider = replace(task, x=torch.cat((task.x, copy), dim=1), categories=task.categories + added)
    return wider.select(rng.permutation(wider.x.shape[1]))


DECORATIONS: Final[dict[str, Callable[[SyntheticTask, Rng], SyntheticTask]]] = {
    "repeated-column": repeat_column,
    "monotone": monotone,
    "rounding": rounding,
    "repeated-rows": repeat_rows,
    "gaps-at-random": gaps_at_random,
    "gaps-in-one-column": gaps_in_one_column,
    "gaps-in-a-block": gaps_in_a_block,
    "gaps-by-value": gaps_by_value,
    "gaps-by-class": gaps_by_class,
}
"""Changes of a task that keep its labels, in this order; add to it to train on others."""
DECORATION_WEIGHTS: Final[dict[str, float]] = {
    "repeated-column": 0.12, "monotone": 0.15, "rounding": 0.15, "repeated-rows": 0.1, "gaps-at-random": 0.12,
    "gaps-in-one-column": 0.07, "gaps-in-a-block": 0.05, "gaps-by-value": 0.05, "gaps-by-class": 0.04,
}  # fmt: skip
"""Probability of each, in a task that is decorated."""
JUNK_COUNTS: Final[Mapping[str, float]] = {"0": 0.4, "1": 0.3, "2": 0.15, "3": 0.1, "4": 0.05}
MIN_COLUMNS_FOR_GAPS: Final = 3


def decorate(task: SyntheticTask, rng: Rng, *, split: str) -> SyntheticTask:
    """Add up to four junk columns, gaps, repeated rows and the like; the description lists them."""
    structureless = task.n_clusters == 1
    names = sample_junk(int(rng.choice(JUNK_COUNTS)), rng, grouped=not structureless, split=split)
    task = add_junk(task, names, rng)
    for name, change in DECORATIONS.items():
        held_out = split != "validation" and name in HELD_OUT_DECORATIONS
        too_narrow = name.startswith("gaps") and task.x.shape[1] < MIN_COLUMNS_FOR_GAPS
        if rng.bernoulli(DECORATION_WEIGHTS[name]) and not held_out and not too_narrow:
            task, names = change(task, rng), [*names, name]
    return replace(task, description={**task.description, "decorations": ", ".join(names)})


def _leave_out(task: SyntheticTask, gaps: Bool[Tensor, "N D"]) -> SyntheticTask:
    """Make gaps, but leave a value in each row, and half of the values in each column."""
    gaps = gaps & (gaps | task.x.isnan()).logical_not().any(dim=1, keepdim=True)
    gaps = gaps & ((gaps | task.x.isnan()).float().mean(dim=0) <= 0.5)
    return replace(task, x=torch.where(gaps, torch.nan, task.x))


def _filled(x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Fill gaps with the mean of the column."""
    return torch.where(x.isnan(), x.nanmean(dim=0), x)


def _number_columns(task: SyntheticTask) -> Bool[Tensor, " D"]:
    numbers = torch.ones(task.x.shape[1], dtype=torch.bool)
    numbers[list(task.categories)] = False
    return numbers
