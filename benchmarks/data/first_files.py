"""Generated tables as people have them: mixed columns, gaps, junk columns, background noise, or no clusters at all.

`FILES` has a function for each table by name, and `load_file` calls it. Sizes, shares and separations are those of
ordinary tables. Customers and genes were adjusted until k-means that is told k finds most of their clusters; cities and
scenes in noise were made harder after an earlier version of the default solved them. Seeds 0 to 4 are for testing; use
others to develop.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.random import Generator
from scipy.signal import lfilter

from benchmarks.data.tables import NOISE
from benchmarks.lines import Floats, Labels
from coterie.errors import InputError

Array: TypeAlias = npt.NDArray[Any]

SEPARATIONS: Final = (3.5, 4.5, 6.0)  # distances between the means of the junk grid, in standard deviations
JUNK: Final = {"2-levels": 2, "3-levels": 3, "5-levels": 5, "8-levels": 8, "binary": 2, "integer": 4}
"""Levels of the junk column of the grid; the last two are numbers, the others text."""
GAP_PERCENT: Final = (5, 10, 20)
NOISE_PERCENT: Final = (0, 5, 10, 20, 30)
SHAPE_ROWS: Final = (2_000, 3_000, 4_000, 6_000, 8_000)  # by seed
STRUCTURELESS_ROWS: Final = (100, 300, 1_000, 2_000, 4_000)  # by seed


@dataclass(frozen=True, eq=False)
class LabelledFile:
    """A table with the true cluster of each row: -1 for background noise, 0 everywhere if there are no clusters."""

    frame: pd.DataFrame  # text columns are categories; gaps are None, NaN or NaT
    y: Labels
    junk: tuple[str, ...] = ()  # columns that have nothing to do with the clusters

    @property
    def without_junk(self) -> "LabelledFile":
        """The same table without its junk columns."""
        return LabelledFile(self.frame.drop(columns=list(self.junk)), self.y)


Make: TypeAlias = Callable[[Generator, int], LabelledFile]  # from random numbers, and the seed that sizes depend on


def _frame(X: Floats) -> pd.DataFrame:
    return pd.DataFrame({f"x{i}": column for i, column in enumerate(X.T)})


def _normal(rng: Generator, y: Array, means: Any, deviations: Any) -> Floats:
    """Draw a normal value for each row, by its cluster."""
    values: Floats = rng.normal(np.asarray(means, dtype=float)[y], np.asarray(deviations, dtype=float)[y])
    return values


def _lognormal(rng: Generator, y: Array, medians: Any, deviations: Any) -> Floats:
    """Draw a value for each row by its cluster: the median, times a factor whose logarithm has this deviation."""
    return np.exp(_normal(rng, y, np.log(medians), deviations))


def _pick(rng: Generator, levels: Sequence[str], shares: Any, y: Array) -> Array:
    """Draw a category for each row, by shares (L,) that all rows have, or by those of its cluster (K, L)."""
    each = np.atleast_2d(np.asarray(shares, dtype=float))
    each = each[y] if len(each) > 1 else np.repeat(each, len(y), axis=0)
    edges = np.cumsum(each / each.sum(axis=1, keepdims=True), axis=1)
    index = (rng.random(len(y))[:, None] > edges[:, :-1]).sum(axis=1)
    values: Array = np.array(levels, dtype=object)[index]
    return values


def _with_gaps(rng: Generator, file: LabelledFile, shares: dict[str, float]) -> LabelledFile:
    """Remove a share of the values of some columns at random."""
    frame = pd.DataFrame({name: _cut(file.frame[name], rng, shares.get(str(name), 0.0)) for name in file.frame})
    return replace(file, frame=frame)


def _cut(column: "pd.Series[Any]", rng: Generator, share: float) -> "pd.Series[Any]":
    return column.mask(rng.random(len(column)) < share) if share else column


# Files of people at work


def customers(rng: Generator, _seed: int) -> LabelledFile:
    """Sample customers of a shop: students, commuters, families and pensioners; the plan partly depends on that."""
    y = rng.choice(4, 4_000, p=[0.22, 0.30, 0.28, 0.20])
    plans = [[8, 2, 0.3], [4, 5, 1], [1, 3, 6], [7, 2, 1]]
    columns = {
        "age": np.clip(_normal(rng, y, [22, 33, 47, 69], [2.5, 3.5, 4, 5]), 16, 95).round(),
        "income": _lognormal(rng, y, [11_000, 48_000, 84_000, 26_000], [0.2, 0.14, 0.12, 0.17]).round(-2),
        "orders": rng.poisson(np.array([4, 42, 21, 9])[y] * rng.gamma(30, 1 / 30, len(y))),
        "plan": _pick(rng, ["basic", "plus", "family"], plans, y),
        "city": _pick(rng, ["Berlin", "Hamburg", "Bremen", "Leipzig", "Köln"], [5, 3, 2, 2, 3], y),
        "newsletter": _pick(rng, ["yes", "no"], [4, 6], y),
        "signup": np.datetime64("2019-01-01", "s") + rng.integers(0, 2_000, len(y)).astype("timedelta64[D]"),
    }
    shares = dict.fromkeys(("age", "orders", "signup"), 0.08) | dict.fromkeys(("income", "newsletter"), 0.12)
    file = LabelledFile(pd.DataFrame(columns), y, ("city", "newsletter", "signup"))
    return _with_gaps(rng, file, shares | {"plan": 0.10, "city": 0.15})


def transactions(rng: Generator, _seed: int) -> LabelledFile:
    """Sample card payments: groceries, fuel, online shopping, bills and travel; card and weekday are junk."""
    y = rng.choice(5, 3_000, p=[0.38, 0.17, 0.22, 0.13, 0.10])
    channels = [[9, 1, 0.1], [9, 0.5, 0.1], [0.3, 9, 0.5], [0.1, 1, 9], [2, 7, 1]]
    columns = {
        "amount": _lognormal(rng, y, [24, 58, 42, 110, 390], [0.55, 0.25, 0.7, 0.45, 0.6]).round(2),
        "hour": np.clip(_normal(rng, y, [17, 8.5, 21, 3, 12], [2, 2, 1.7, 1, 4]), 0, 23.9).round(1),
        "items": 1 + rng.poisson(np.array([11, 0.2, 2, 0, 1])[y]),
        "distance_km": _lognormal(rng, y, [2, 14, 300, 200, 900], [0.6, 0.7, 0.8, 0.6, 0.8]).round(1),
        "channel": _pick(rng, ["terminal", "web", "transfer"], channels, y),
        "card": _pick(rng, ["debit", "credit"], [6, 4], y),
        "weekday": _pick(rng, ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], np.ones(7), y),
    }
    file = LabelledFile(pd.DataFrame(columns), y, ("card", "weekday"))
    return _with_gaps(rng, file, {"items": 0.06, "distance_km": 0.10})


def survey(rng: Generator, _seed: int) -> LabelledFile:
    """Sample answers from 1 to 5 of four types of respondents to 18 questions; region and gender are junk."""
    y = rng.choice(4, 1_200, p=[0.35, 0.28, 0.22, 0.15])
    attitudes = rng.normal(0.0, 0.8, (4, 18))
    leniency = rng.normal(0.0, 0.35, len(y))  # some people agree to everything
    answers = 3.0 + attitudes[y] + leniency[:, None] + rng.normal(0.0, 0.9, (len(y), 18))
    columns = {f"q{i + 1}": values for i, values in enumerate(np.clip(answers.round(), 1, 5).T)}
    columns |= {"gender": _pick(rng, ["f", "m", "d"], [49, 49, 2], y)}
    columns |= {"region": _pick(rng, ["north", "east", "south", "west"], [2, 2, 3, 4], y)}
    columns |= {"age": np.clip(rng.normal(46, 16, len(y)), 18, 90).round()}
    file = LabelledFile(pd.DataFrame(columns), y, ("gender", "region", "age"))
    return _with_gaps(rng, file, {f"q{i + 1}": 0.03 for i in range(18)})


def web_logs(rng: Generator, _seed: int) -> LabelledFile:
    """Sample sessions of a web server: readers, crawlers, programs and downloads; the user agent is junk."""
    y = rng.choice(4, 5_000, p=[0.50, 0.20, 0.18, 0.12])
    agents = ["Chrome", "Firefox", "Safari", "Edge", "curl", "other"]
    requests = 1 + rng.poisson(_lognormal(rng, y, [14, 160, 40, 3], [0.7, 0.8, 0.6, 0.6]))
    columns = {
        "requests": requests,
        "bytes": (requests * _lognormal(rng, y, [45_000, 9_000, 900, 3e7], [0.8, 0.6, 0.7, 1.2])).round(),
        "duration": _lognormal(rng, y, [240, 500, 20, 90], [1.0, 1.0, 0.9, 1.0]).round(2),
        "errors": rng.binomial(requests, np.array([0.01, 0.08, 0.02, 0.02])[y]),
        "pause": _lognormal(rng, y, [15, 2.5, 0.4, 20], [0.8, 0.6, 0.8, 1.1]).round(3),
        "user_agent": _pick(rng, agents, [40, 15, 20, 10, 8, 7], y),
    }
    return LabelledFile(pd.DataFrame(columns), y, ("user_agent",))


def city_points(rng: Generator, _seed: int, background: int = 500) -> LabelledFile:
    """Sample 6,000 places in twelve cities, the second half as large as the first and so on, and uniform background."""
    centres = _apart(rng, 12, 0.8) * [0.9, 0.6] + [10.0, 51.0]  # degrees of longitude and latitude
    sizes = 1.0 / np.arange(1, 13)
    y = rng.choice(12, 6_000, p=sizes / sizes.sum())
    spreads, turns = 0.12 * np.sqrt(sizes)[:, None] * rng.uniform(0.7, 1.4, (12, 2)), rng.uniform(0.0, np.pi, 12)
    offsets = rng.normal(size=(len(y), 2)) * spreads[y]
    points = centres[y] + np.einsum("nij,nj->ni", _rotations(turns)[y], offsets)
    X, labels = _in_noise(rng, points, y, background)
    return LabelledFile(pd.DataFrame({"lon": X[:, 0].round(5), "lat": X[:, 1].round(5)}), labels)


def genes(rng: Generator, _seed: int) -> LabelledFile:
    """Sample expressions of 1,000 genes in 120 patients with four subtypes, each with 60 genes of its own."""
    y = rng.choice(4, 120, p=[0.35, 0.30, 0.20, 0.15])
    level = rng.gamma(3.0, 1.5, 1_000)
    shifts = np.zeros((4, 1_000))
    for subtype, active in enumerate(rng.permutation(1_000)[:240].reshape(4, 60)):
        shifts[subtype, active] = rng.normal(1.6, 0.5, 60) * rng.choice([-1.0, 1.0], 60)
    batch = rng.normal(0.0, 0.12, (len(y), 3)) @ rng.normal(size=(3, 1_000))  # genes are correlated
    X = level + shifts[y] + batch + rng.normal(0.0, 0.8, (len(y), 1_000))
    return LabelledFile(_frame(X.round(3)).add_prefix("gene_"), y)


# One junk column beside four blobs, and gaps


def blobs_with_junk(rng: Generator, _seed: int, separation: float, junk: str | None) -> LabelledFile:
    """Sample four blobs in eight columns whose means are this far apart, and a random column beside them."""
    rows = 600
    y = rng.choice(4, rows)
    directions = np.linalg.qr(rng.normal(size=(8, 8)))[0][:4]  # at right angles, so that all distances are equal
    frame = _frame(directions[y] * separation / np.sqrt(2.0) + rng.normal(size=(rows, 8)))
    if junk is None:
        return LabelledFile(frame, y)
    values = rng.integers(JUNK[junk], size=rows)
    if junk.endswith("levels"):
        values = np.array([f"level {value}" for value in range(JUNK[junk])], dtype=object)[values]
    return LabelledFile(frame.assign(junk=values), y, ("junk",))


def groups_with_gaps(rng: Generator, _seed: int, percent: int | None, *, category: bool = False) -> LabelledFile:
    """Sample three clear groups in 120 rows, with gaps everywhere, or without `percent` 10 gaps in one column.

    With `category`, the column with the gaps is text that mostly names the group.
    """
    y = np.repeat(np.arange(3), 40)
    X = 8.0 * np.linalg.qr(rng.normal(size=(5, 5)))[0][y] + rng.normal(size=(120, 5))
    if percent is None:
        gaps = rng.choice(120, 10, replace=False)
        if category:
            colours = _pick(rng, ["red", "green", "blue"], [[8, 1, 1], [1, 8, 1], [1, 1, 8]], y)
            colours[gaps] = None
            return LabelledFile(_frame(X).assign(colour=colours), y)
        X[gaps, 0] = np.nan
    else:
        X[rng.random(X.shape) < percent / 100] = np.nan
    return LabelledFile(_frame(X), y)


# Shapes in background noise


def shapes_in_noise(rng: Generator, seed: int, shape: str, percent: int) -> LabelledFile:
    """Sample clusters of some shape in the plane, of which this share of all rows is uniform background."""
    rows = SHAPE_ROWS[seed % len(SHAPE_ROWS)]
    background = rows * percent // 100
    points, y = SHAPES[shape](rng, rows - background)
    X, y = _in_noise(rng, points, y, background)
    return LabelledFile(_frame(X), y)


def _in_noise(rng: Generator, points: Floats, y: Labels, background: int) -> tuple[Floats, Labels]:
    """Add uniform points in a box a tenth wider than the points, and shuffle all rows."""
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.05 * (high - low)
    X = np.concatenate([points, rng.uniform(low - margin, high + margin, (background, points.shape[1]))])
    order = rng.permutation(len(X))
    return X[order], np.concatenate([y, np.full(background, NOISE)])[order]


def _rotations(angles: Floats) -> Floats:
    cosines, sines = np.cos(angles), np.sin(angles)
    return np.stack([np.stack([cosines, -sines], axis=-1), np.stack([sines, cosines], axis=-1)], axis=-2)


def _apart(rng: Generator, count: int, least: float) -> Floats:
    """Draw that many points of a plane, no two nearer than `least`, in a square that they fill loosely."""
    side = least * np.sqrt(3.0 * count)
    chosen = rng.uniform(0.0, side, (1, 2))
    while len(chosen) < count:
        new = rng.uniform(0.0, side, (1, 2))
        if np.linalg.norm(chosen - new, axis=1).min() >= least:
            chosen = np.concatenate([chosen, new])
    return chosen


def _unequal_blobs(rng: Generator, rows: int) -> tuple[Floats, Labels]:
    """Sample six round blobs whose widths differ by up to six times."""
    widths = rng.permutation(np.geomspace(0.12, 0.7, 6))
    y = rng.choice(6, rows, p=rng.dirichlet(np.full(6, 8.0)))
    return _apart(rng, 6, 3.2)[y] + rng.normal(size=(rows, 2)) * widths[y, None], y


def _moons(rng: Generator, rows: int) -> tuple[Floats, Labels]:
    y = rng.choice(2, rows)
    angle = rng.uniform(0.0, np.pi, rows) + np.pi * y
    curve = np.stack([np.cos(angle) + y, np.sin(angle) + 0.5 * y], axis=1)
    return curve + rng.normal(0.0, 0.06, (rows, 2)), y


def _rings(rng: Generator, rows: int) -> tuple[Floats, Labels]:
    """Sample three rings around a common centre."""
    radii = np.array([0.5, 1.5, 2.5])
    y = rng.choice(3, rows, p=radii / radii.sum())
    angle = rng.uniform(0.0, 2.0 * np.pi, rows)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) * (radii[y] + rng.normal(0.0, 0.08, rows))[:, None], y


def _spirals(rng: Generator, rows: int) -> tuple[Floats, Labels]:
    """Sample three arms of a spiral."""
    y = rng.choice(3, rows)
    turn = np.sqrt(rng.uniform(0.05, 1.0, rows)) * 1.25 * 2.0 * np.pi
    angle = turn + 2.0 * np.pi * y / 3.0
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) * turn[:, None] + rng.normal(0.0, 0.18, (rows, 2)), y


def _bars(rng: Generator, rows: int) -> tuple[Floats, Labels]:
    """Sample five thin bars in several directions."""
    y = rng.choice(5, rows)
    bars = rng.uniform(-1.0, 1.0, (rows, 2)) * [1.4, 0.13]
    turned = np.einsum("nij,nj->ni", _rotations(rng.uniform(0.0, np.pi, 5))[y], bars)
    return _apart(rng, 5, 3.0)[y] + turned, y


def _scene(rng: Generator, rows: int) -> tuple[Floats, Labels]:
    """Sample nine clusters of six shapes: a disc in a ring, two moons, a wave, two parallel bars, a bar and a blob."""
    t, u = rng.uniform(-1.0, 1.0, rows), rng.uniform(-1.0, 1.0, (rows, 2))
    circle = np.stack([np.cos(np.pi * t), np.sin(np.pi * t)], axis=1)
    half = np.stack([np.cos(np.pi * (t + 1.0) / 2.0), np.sin(np.pi * (t + 1.0) / 2.0)], axis=1)
    flat = np.zeros(rows)
    curves = [
        (0, 1.0 * circle, 0.07, 5.0),
        (0, 0.4 * circle * np.sqrt(rng.random((rows, 1))), 0.0, 2.0),
        (1, 0.75 * half + [-0.3, -0.1], 0.09, 3.0),
        (1, -0.75 * half + [0.3, 0.1], 0.09, 3.0),
        (2, np.stack([t, 0.5 * np.sin(1.5 * np.pi * t)], axis=1), 0.09, 3.5),
        (3, np.stack([t, flat + 0.3], axis=1), 0.12, 2.5),
        (3, np.stack([t, flat - 0.3], axis=1), 0.12, 2.5),
        (4, np.stack([t, flat], axis=1), 0.2, 3.0),
        (5, 0.3 * rng.normal(size=(rows, 2)), 0.0, 3.0),
    ]  # its place, points along it, half its thickness, and its share of the rows
    shares = np.array([share for *_, share in curves]) * rng.uniform(0.7, 1.4, len(curves))
    y = rng.choice(len(curves), rows, p=shares / shares.sum())
    place = np.array([place for place, *_ in curves])[y]
    points = np.stack([points + width * u for _, points, width, _ in curves])[y, np.arange(rows)]
    corners = rng.permutation(np.array([(i, j) for i in range(3) for j in range(2)], dtype=float)) * 2.5
    turned = np.einsum("nij,nj->ni", _rotations(rng.uniform(0.0, np.pi, 6))[place], points)
    return (corners + rng.uniform(-0.12, 0.12, (6, 2)))[place] + turned, y


SHAPES: Final[dict[str, Callable[[Generator, int], tuple[Floats, Labels]]]] = {
    "blobs": _unequal_blobs,
    "moons": _moons,
    "rings": _rings,
    "spirals": _spirals,
    "bars": _bars,
    "scene": _scene,
}


# Tables without clusters


def structureless(rng: Generator, seed: int, kind: str) -> LabelledFile:
    """Sample a table that has no clusters, of 100 to 4,000 rows."""
    rows = STRUCTURELESS_ROWS[seed % len(STRUCTURELESS_ROWS)]
    made = STRUCTURELESS[kind](rng, rows)
    frame = made if isinstance(made, pd.DataFrame) else _frame(made)
    return LabelledFile(frame, np.zeros(rows, dtype=np.int64))


def _correlated(rng: Generator, rows: int) -> Floats:
    """Sample eight normal columns that share three factors."""
    return rng.normal(size=(rows, 3)) @ rng.normal(size=(3, 8)) + 0.5 * rng.normal(size=(rows, 8))


def _likert(rng: Generator, rows: int) -> Floats:
    """Sample answers from 1 to 5 to twelve questions, independent of each other."""
    answers = rng.normal(rng.uniform(2.2, 3.8, 12), 1.0, (rows, 12))
    return np.clip(answers.round(), 1, 5)


def _categories(rng: Generator, rows: int, count: int) -> pd.DataFrame:
    """Sample independent text columns of two to six levels of unequal share."""
    each = [int(levels) for levels in rng.integers(2, 7, count)]
    drawn = [rng.choice(levels, rows, p=rng.dirichlet(np.full(levels, 3.0))) for levels in each]
    return pd.DataFrame({f"c{i}": np.array([f"v{j}" for j in range(6)], dtype=object)[c] for i, c in enumerate(drawn)})


def _swiss_roll(rng: Generator, rows: int) -> Floats:
    """Sample a rolled-up rectangle without gaps."""
    turn = 1.5 * np.pi * np.sqrt(rng.uniform(1.0, 9.0, rows))
    roll = np.stack([turn * np.cos(turn), 20.0 * rng.random(rows), turn * np.sin(turn)], axis=1)
    return roll + rng.normal(0.0, 0.3, (rows, 3))


def _ring(rng: Generator, rows: int) -> Floats:
    angle = rng.uniform(0.0, 2.0 * np.pi, rows)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(0.0, 0.1, (rows, 2))


def _random_walk(rng: Generator, rows: int) -> Floats:
    """Sample a process that returns to its mean slowly, in four columns."""
    values: Floats = lfilter([1.0], [1.0, -0.9], rng.normal(size=(rows + 100, 4)), axis=0)[100:]
    return values


def _ball(rng: Generator, rows: int) -> Floats:
    """Sample the inside of a ball of four dimensions."""
    directions = rng.normal(size=(rows, 4))
    points: Floats = directions / np.linalg.norm(directions, axis=1, keepdims=True) * rng.random((rows, 1)) ** 0.25
    return points


STRUCTURELESS: Final[dict[str, Callable[[Generator, int], Floats | pd.DataFrame]]] = {
    "gaussian": lambda rng, rows: rng.normal(size=(rows, 5)),
    "gaussian-wide": lambda rng, rows: rng.normal(size=(rows, 30)),
    "correlated": _correlated,
    "uniform-square": lambda rng, rows: rng.random((rows, 2)),
    "uniform-cube": lambda rng, rows: rng.random((rows, 6)),
    "ball": _ball,
    "heavy-tails": lambda rng, rows: rng.standard_t(3.0, (rows, 5)),
    "heavy-tails-joint": lambda rng, rows: rng.normal(size=(rows, 4)) / np.sqrt(rng.chisquare(3.0, (rows, 1)) / 3.0),
    "lognormal": lambda rng, rows: np.exp(rng.normal(0.0, 0.8, (rows, 5))),
    "exponential": lambda rng, rows: rng.exponential(size=(rows, 4)),
    "gamma": lambda rng, rows: rng.gamma(2.0, size=(rows, 6)),
    "scales": lambda rng, rows: rng.normal(size=(rows, 6)) * np.geomspace(0.01, 1_000.0, 6),
    "poisson": lambda rng, rows: rng.poisson(rng.uniform(1.0, 8.0, 5), (rows, 5)).astype(float),
    "likert": _likert,
    "categories": lambda rng, rows: _categories(rng, rows, 8),
    "categories-beside-numbers": lambda rng, rows: _frame(rng.normal(size=(rows, 5))).join(_categories(rng, rows, 3)),
    "yes-no-beside-numbers": lambda rng, rows: _frame(rng.normal(size=(rows, 4))).assign(
        answer=np.array(["no", "yes"], dtype=object)[rng.integers(2, size=rows)]
    ),
    "swiss-roll": _swiss_roll,
    "ring": _ring,
    "random-walk": _random_walk,
}
"""Tables without clusters, from random numbers and a number of rows."""


def _dropping_junk(make: Make, rng: Generator, seed: int) -> LabelledFile:
    return make(rng, seed).without_junk


FILES: Final[dict[str, Make]] = {
    "files/customers": customers,
    "files/customers/without-junk": partial(_dropping_junk, customers),
    "files/transactions": transactions,
    "files/survey": survey,
    "files/web-logs": web_logs,
    "files/web-logs/without-junk": partial(_dropping_junk, web_logs),
    "files/genes": genes,
    "noise/cities": city_points,
    "noise/cities/without-noise": partial(city_points, background=0),
    **{
        f"junk/{separation}/{junk or 'none'}": partial(blobs_with_junk, separation=separation, junk=junk)
        for separation in SEPARATIONS
        for junk in (None, *JUNK)
    },
    "gaps/groups/one-column": partial(groups_with_gaps, percent=None),
    "gaps/groups/one-category": partial(groups_with_gaps, percent=None, category=True),
    **{f"gaps/groups/{percent}-percent": partial(groups_with_gaps, percent=percent) for percent in (0, *GAP_PERCENT)},
    **{f"null/{kind}": partial(structureless, kind=kind) for kind in STRUCTURELESS},
    **{
        f"noise/{shape}/{percent}-percent": partial(shapes_in_noise, shape=shape, percent=percent)
        for shape in SHAPES
        for percent in NOISE_PERCENT
    },
}
"""Every table by name, kind/family or kind/family/variant: files, junk, gaps, null (no clusters) and noise."""


def load_file(name: str, seed: int) -> LabelledFile:
    """Sample a table of `FILES`; variants of a family are made of the same random numbers."""
    if name not in FILES:
        raise InputError(f"There is no file {name!r}. There are: {', '.join(FILES)}.")
    family = "/".join(name.split("/")[:2])
    return FILES[name](np.random.default_rng([seed, crc32(family.encode())]), seed)
