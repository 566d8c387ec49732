"""A fitted clustering as plain arrays, for the summary and the report."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coterie.base import BaseClusterer, FitDescription
from coterie.errors import InputError
from coterie.reporting.formatting import format_number, format_percent, short_names, shorten
from coterie.tables.encoder import MISSING_LEVEL, Feature, TableEncoder
from coterie.tables.table import Table

SEED = 20_240_917
OUTLIER = -1
_DAY = 86_400
_ROUNDING = 1e-9  # fraction of the standard deviation below which a mean is zero
PROPORTIONS = frozenset({"category", "boolean"})  # kinds of features whose mean is a proportion
CYCLE: str = "cycle"  # kind of the features that are the cosine or sine of a part of a date
_DESCRIBED = frozenset({"number", "date", *PROPORTIONS})  # kinds of features that mean something by themselves
_CYCLE_NAME = re.compile(r": (?P<part>\w+) \((?:cos|sin)\)$")


@dataclass(frozen=True)
class Cycle:
    """A part of a date that repeats, such as the hour, and its two features."""

    column: str
    part: str
    cosine: int
    sine: int


@dataclass(frozen=True)
class ClusteringData:
    """A clustering as arrays: N rows, D features, K clusters; outliers have the label ``OUTLIER``."""

    table: Table
    encoder: TableEncoder
    encoded: NDArray[np.float32]
    labels: NDArray[np.int64]
    memberships: NDArray[np.float32]
    prototypes: NDArray[np.float32]
    features: tuple[Feature, ...]
    short: Mapping[str, str]  # short names of the columns
    ids: tuple[str, ...]
    text_components: Mapping[str, str] = field(default_factory=dict)  # columns made from texts, and that of the texts

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """Return the features (N, D) in the units of the table: missing values are NaN, dates seconds since 1970.

        Computed on demand, because images do not need them and they are larger than the table.
        """
        # Proportions come from the encoder, rounded because float32 ones are not exactly 0 or 1; numbers and dates from
        # the table, which has the missing values. If the encoder keeps these, only `encoded` has them filled in.
        complete = self.encoder.missing == "fill"
        values = self.encoder.inverse_transform(self.encoded if complete else self.encoder.transform(self.table))
        values = np.round(values, 4)
        positions = {name: position for position, name in enumerate(self.table.names)}
        for index, feature in enumerate(self.features):
            column = self.table.column(positions[feature.column])
            if feature.kind in {"number", "boolean"} and column.dtype.kind in "iufb":
                values[:, index] = column
            elif feature.kind == "date" and column.dtype.kind == "M":
                micro = column.astype("datetime64[us]")
                values[:, index] = np.where(np.isnat(micro), np.nan, micro.astype(np.float64) / 1e6)
        return values

    def label(self, index: int) -> str:
        """Return the name of a feature: its column, and its level if it stands for one."""
        feature = self.features[index]
        column = self.short[feature.column]
        return f"{column} = {shorten(str(feature.level), 24)}" if feature.kind == "category" else column

    @property
    def features_by_column(self) -> list[list[int]]:
        """Return the features of each column: one, or one per level. An indicator of missing numbers is by itself.

        Features that mean nothing by themselves are left out: see ``cycles`` for parts of dates.
        """
        indices: dict[tuple[str, str], list[int]] = {}
        for index, feature in enumerate(self.features):
            if feature.kind in _DESCRIBED:
                indices.setdefault((feature.column, feature.kind), []).append(index)
        return list(indices.values())

    @property
    def cycles(self) -> list[Cycle]:
        """Return the parts of dates that are encoded as a cosine and a sine, in the order of the features."""
        found: dict[tuple[str, str], dict[str, int]] = {}
        for index, feature in enumerate(self.features):
            if feature.kind == CYCLE and (named := _CYCLE_NAME.search(feature.name)) is not None:
                found.setdefault((feature.column, named["part"]), {})[str(feature.level)] = index
        return [
            Cycle(column, part, indices["cos"], indices["sin"])
            for (column, part), indices in found.items()
            if indices.keys() >= {"cos", "sin"}
        ]

    @property
    def independent_features(self) -> frozenset[int]:
        """Return the features without one of any two levels, because each is the complement of the other."""
        kept = {index for indices in self.features_by_column for index in indices}
        for indices in self.features_by_column:
            if len(indices) == 2:
                # Levels are sorted, so the second is the positive one of no and yes, 0 and 1, false and true.
                kept.remove(indices[1 if self.features[indices[1]].level == MISSING_LEVEL else 0])
        return frozenset(kept)

    @property
    def noun(self) -> str:
        """Return what a row is called on the page."""
        return "row" if self.table.image is None else "image"

    @property
    def n_clusters(self) -> int:
        """Return the number of clusters."""
        return len(self.prototypes)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Return the number of rows of each cluster."""
        return np.bincount(self.labels[self.inside], minlength=self.n_clusters)

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Return which rows are in a cluster."""
        inside: NDArray[np.bool_] = self.labels != OUTLIER
        return inside

    @property
    def n_outliers(self) -> int:
        """Return the number of rows in no cluster."""
        return int(np.count_nonzero(~self.inside))

    @property
    def own_membership(self) -> NDArray[np.float32]:
        """Return the membership of each row in its own cluster; NaN for outliers."""
        own = self.memberships[np.arange(len(self.labels)), np.maximum(self.labels, 0)]
        return np.where(self.inside, own, np.float32(np.nan))


def collect_data(
    model: BaseClusterer, table: Table, ids: NDArray[Any] | None, description: FitDescription
) -> ClusteringData:
    """Collect the arrays of a fitted estimator and of the table that it was fitted on."""
    encoder = model.table_
    encode = description.encode or encoder.transform
    encoded = np.asarray(encode(table), dtype=np.float32)
    n = len(encoded)
    if n != len(model.labels_):
        raise InputError(
            f"The table has {n:,} rows, but the model was fitted on {len(model.labels_):,}. "
            "Give the table that the model was fitted on."
        )
    if set(table.names) != set(encoder.names):  # made-up names
        table = replace(table, names=encoder.names)
    labels = np.asarray(model.labels_)
    prototypes = description.prototypes
    if prototypes is None:
        members = [encoded[labels == cluster] for cluster in range(model.n_clusters_)]
        # An empty cluster is placed at the mean of all rows.
        prototypes = np.stack([(rows if len(rows) else encoded).mean(axis=0, dtype=np.float64) for rows in members])
    return ClusteringData(
        table=table,
        encoder=encoder,
        encoded=encoded,
        labels=labels,
        memberships=np.asarray(model.probabilities_),
        prototypes=np.asarray(prototypes, dtype=np.float32),
        features=tuple(encoder.features),
        short=short_names([name for name in table.names if name not in description.text_components])
        | {name: name for name in description.text_components},  # a few words, of which each tells something
        ids=tuple(str(i) for i in (check_length(ids, n, "ids") if ids is not None else range(1, n + 1))),
        text_components=description.text_components,
    )


def check_length(values: NDArray[Any], n: int, name: str) -> NDArray[Any]:
    """Require one value per row."""
    values = np.asarray(values)
    if values.shape != (n,):
        raise InputError(f"{name} has shape {values.shape}, but there are {n:,} rows. Give one value per row.")
    return values


def sample_rows(n: int, at_most: int) -> NDArray[np.int64]:
    """Return all row numbers, or a random sample of them with a fixed seed, in ascending order."""
    if n <= at_most:
        return np.arange(n)
    return np.sort(np.random.default_rng(SEED).choice(n, at_most, replace=False))


def format_mean(feature: Feature, mean: float, spread: float) -> str:
    """Format the mean of a feature: as a percentage for proportions, otherwise in the units of the table."""
    if feature.kind in PROPORTIONS:
        # Rounded, because the sums behind it are not exactly 0 or 1.
        return format_percent(round(mean, 9))
    if feature.kind == "date":
        return format_date(mean, "D" if spread > _DAY else "m")
    # Sums of zeros may differ from zero in their last digit.
    return format_number(0.0 if abs(mean) < _ROUNDING * spread else mean)


def format_cell(table: Table, column: int, row: int) -> str:
    """Format one value of the table."""
    values = table.column(column)
    value = values[row]
    match values.dtype.kind:
        case "M":
            seconds = value.astype("datetime64[us]").astype(np.int64) / 1e6
            return format_date(float("nan") if np.isnat(value) else seconds, "m" if seconds % _DAY else "D")
        case "O":
            return "missing" if value is None else shorten(str(value), 40)
        case "b":
            return "yes" if value else "no"
    return format_number(float(value))


def format_date(seconds: float, precision: Literal["D", "m"]) -> str:
    """Format seconds since 1970 as a date, with the time if the precision is minutes."""
    if not np.isfinite(seconds):
        return "missing"
    return np.datetime_as_string(np.datetime64(int(seconds), "s"), unit=precision).replace("T", " ")
