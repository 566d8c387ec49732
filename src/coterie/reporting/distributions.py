"""Distributions of the most telling columns: small histograms per cluster beside that of all rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from coterie.reporting.data import ClusteringData, format_date
from coterie.reporting.formatting import format_number, format_percent, shorten

COLUMNS: Final = 12
_BINS: Final = 24
_LEVELS: Final = 6  # levels of a category that have a bar of their own
_EDGE: Final = 1.0  # percent of the values at each end that go into the first and the last bin
_LOGARITHMIC_FROM: Final = 100.0  # ratio of the 99th to the first percentile from which bins grow with the values
_DAY: Final = 86_400.0
_SIDE_DECIMALS: Final = 1

Rows: TypeAlias = NDArray[np.int64]  # numbers of the rows of a group


@final
@dataclass(frozen=True)
class Row:
    """The distribution in one cluster, or in all rows."""

    cluster: int | None  # None for all rows
    outline: str  # of a histogram, as an SVG path in a box of 100 by 100
    bars: tuple[tuple[float, float, str], ...]  # of levels: height here and in all rows in percent, and a text
    summary: str
    missing: str  # share of missing values, empty if there are none


@final
@dataclass(frozen=True)
class Distribution:
    """The distributions of one column."""

    column: str
    full: str
    everywhere: Row
    clusters: tuple[Row, ...]
    low: str  # ends of the axis of a histogram
    high: str
    levels: tuple[str, ...]  # names of the bars; empty for a histogram
    note: str


def describe_distributions(data: ClusteringData, columns: Sequence[str]) -> tuple[Distribution, ...]:
    """Describe the distributions of some columns of the table, which are named in the order of what they tell."""
    inside = np.flatnonzero(data.inside)
    by_cluster = inside[np.argsort(data.labels[inside], kind="stable")]
    groups = [inside, *np.split(by_cluster, np.cumsum(data.sizes)[:-1])]
    described = (name for name in columns if not _is_free_text(data.table.column(data.table.names.index(name))))
    return tuple(_describe(data, name, groups) for name in islice(described, COLUMNS))


def _is_free_text(values: NDArray[Any]) -> bool:
    """Return whether most texts occur once, so that their numbers tell nothing."""
    return values.dtype.kind == "O" and len(values) > _LEVELS and len(set(values.tolist())) > len(values) / 2


def _describe(data: ClusteringData, name: str, groups: Sequence[Rows]) -> Distribution:
    values = data.table.column(data.table.names.index(name))
    match values.dtype.kind:
        case "O" | "b":
            return _describe_levels(data, name, values, groups)
        case "M":
            micro = values.astype("datetime64[us]")
            seconds = np.where(np.isnat(micro), np.nan, micro.astype(np.float64) / 1e6)
            return _describe_numbers(data, name, seconds, groups, dates=True)
    return _describe_numbers(data, name, values.astype(np.float64), groups, dates=False)


def _share_missing(missing: NDArray[np.bool_], group: Rows) -> str:
    share = np.count_nonzero(missing[group]) / len(group) if len(group) else 0.0
    return f"{format_percent(share)} missing" if share else ""


def _present(missing: NDArray[np.bool_], group: Rows) -> Rows:
    return group[~missing[group]]


# Categories and booleans


def _describe_levels(data: ClusteringData, name: str, values: NDArray[Any], groups: Sequence[Rows]) -> Distribution:
    if values.dtype.kind == "b":
        texts = np.where(values, "yes", "no").astype(object)
    else:
        texts = np.array([None if value is None else str(value) for value in values.tolist()], dtype=object)
    missing = np.array([text is None for text in texts], dtype=np.bool_)
    names, codes = np.unique(np.where(missing, "", texts).astype(str), return_inverse=True)
    totals = np.bincount(codes[_present(missing, groups[0])], minlength=len(names))
    order = np.argsort(-totals, kind="stable")[: np.count_nonzero(totals)]
    shown = order if len(order) <= _LEVELS + 1 else order[:_LEVELS]
    slot = np.full(len(names), len(shown))
    slot[shown] = np.arange(len(shown))
    n_slots = len(shown) + (len(order) > len(shown))
    counts = [np.bincount(slot[codes[_present(missing, group)]], minlength=n_slots)[:n_slots] for group in groups]
    shares = [count / max(count.sum(), 1) for count in counts]
    levels = [str(names[i]) for i in shown] + ["other"] * (n_slots - len(shown))
    tallest = max((float(share.max(initial=0.0)) for share in shares), default=0.0) or 1.0
    rows = [
        Row(
            cluster=None if index == 0 else index - 1,
            outline="",
            bars=tuple(
                (100 * here / tallest, 100 * everywhere / tallest, format_percent(here))
                for here, everywhere in zip(share.tolist(), shares[0].tolist(), strict=True)
            ),
            summary="",
            missing=_share_missing(missing, group),
        )
        for index, (share, group) in enumerate(zip(shares, groups, strict=True))
    ]
    rest = len(order) - len(shown)
    return Distribution(
        column=data.short[name],
        full=name,
        everywhere=rows[0],
        clusters=tuple(rows[1:]),
        low="",
        high="",
        levels=tuple(shorten(level, 40) for level in levels),
        note=f"{len(shown)} of {len(order):,} levels; the others are together." if rest else "",
    )


# Numbers and dates


def _describe_numbers(
    data: ClusteringData, name: str, values: NDArray[np.float64], groups: Sequence[Rows], *, dates: bool
) -> Distribution:
    missing = ~np.isfinite(values)
    present = values[_present(missing, groups[0])]
    edges, logarithmic = _edges(present)

    def text(value: float) -> str:
        return format_date(value, "D" if _span(present) > _DAY else "m") if dates else format_number(value)

    rows = []
    for index, group in enumerate(groups):
        own = values[_present(missing, group)]
        rows.append(
            Row(
                cluster=None if index == 0 else index - 1,
                outline=_outline(_histogram(own, edges)),
                bars=(),
                summary=text(float(np.median(own))) if len(own) else "–",
                missing=_share_missing(missing, group),
            )
        )
    low, high = (float(present.min()), float(present.max())) if len(present) else (np.nan, np.nan)
    notes = ["The scale is logarithmic."] if logarithmic else []
    if len(edges) > 2 and (low < edges[0] or high > edges[-1]):
        notes.append(f"Values from {text(low)} to {text(high)}; those beyond the ends are in the outer bars.")
    return Distribution(
        column=data.short[name],
        full=name,
        everywhere=rows[0],
        clusters=tuple(rows[1:]),
        low=text(max(low, float(edges[0]))) if len(present) else "",
        high=text(min(high, float(edges[-1]))) if len(present) else "",
        levels=(),
        note=" ".join(notes),
    )


def _span(values: NDArray[np.float64]) -> float:
    return float(values.max() - values.min()) if len(values) else 0.0


def _edges(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], bool]:
    """Return the edges of the bins, and whether they grow with the values, as for amounts of money."""
    distinct = np.unique(values[: 10 * _BINS])
    if len(distinct) <= _BINS:  # perhaps only few values
        distinct = np.unique(values)
    if len(distinct) < 2:
        middle = float(distinct[0]) if len(distinct) else 0.0
        return np.array([middle, middle]), False
    steps = np.diff(distinct)
    if len(distinct) <= _BINS and np.allclose(steps, steps[0]):  # one bin for each of few values
        return np.append(distinct - steps[0] / 2, distinct[-1] + steps[0] / 2), False
    low, high = np.percentile(values, [_EDGE, 100 - _EDGE])
    if not low < high:
        low, high = float(distinct[0]), float(distinct[-1])
    if low > 0 and distinct[0] > 0 and high / low >= _LOGARITHMIC_FROM:
        return np.geomspace(low, high, _BINS + 1), True
    with np.errstate(over="ignore", invalid="ignore"):  # two huge values may be too far apart
        edges = np.linspace(low, high, _BINS + 1)
    return (edges, False) if np.isfinite(edges).all() and (np.diff(edges) > 0).all() else (np.array([low, high]), False)


def _histogram(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of the values in each bin; the outer bins take what is beyond them."""
    bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(len(edges) - 2, 0))
    counts = np.bincount(bins, minlength=max(len(edges) - 1, 1))
    shares: NDArray[np.float64] = counts / max(len(values), 1)
    return shares


def _outline(shares: NDArray[np.float64]) -> str:
    """Return the steps of a histogram as an SVG path that is as high as the box."""
    tallest = float(shares.max(initial=0.0))
    if not tallest:
        return ""
    width = 100 / len(shares)
    steps = "".join(
        f"V{100 - 100 * height / tallest:.0f}H{(i + 1) * width:.{_SIDE_DECIMALS}f}" for i, height in enumerate(shares)
    )
    return f"M0 100{steps}V100Z"
