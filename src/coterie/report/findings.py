"""What the report needs of a fitted clusterer, and the same gathered into plain arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.report.formatting import number, percent, short_names, shorten
from coterie.tables.encoder import MISSING_LEVEL, Feature, TableEncoder
from coterie.tables.table import Table

SEED = 20_240_917
OUTLIER = -1
_DAY = 86_400
SHARES = frozenset({"category", "boolean"})


class FittedClusterer(Protocol):
    """The members of a fitted clusterer on which the report rests."""

    @property
    def labels_(self) -> NDArray[np.int64]:
        """Return each row's cluster, from 0, the largest cluster first; -1 for outliers."""

    @property
    def n_clusters_(self) -> int:
        """Return how many clusters there are."""

    @property
    def probabilities_(self) -> NDArray[np.float32]:
        """Return the membership (N, K) of each row in each cluster."""

    @property
    def prototypes_(self) -> NDArray[np.float32]:
        """Return what stands for each cluster (K, D) in the encoded space: its prototype, or its mean."""

    @property
    def history_(self) -> Mapping[str, Sequence[float]]:
        """Return the `loss` of each epoch of the chosen or only run; empty if nothing was trained on the rows."""

    @property
    def notes_(self) -> tuple[str, ...]:
        """Return what the fit decided, in sentences for the user."""

    @property
    def runs_(self) -> Sequence[Mapping[str, Any]]:
        """Return what is known of each run, and which was `chosen`; empty if no prototypes were trained."""

    @property
    def table_(self) -> TableEncoder:
        """Return what turned the table into numbers."""

    def get_params(self) -> dict[str, Any]:
        """Return the parameters that the clusterer was made with."""

    def predict(self, X: Table, /) -> NDArray[np.int64]:
        """Return the cluster of each row of another table with the same columns."""


@dataclass(frozen=True)
class Findings:
    """A clustering as arrays: N rows, D features, K clusters. Outliers have the label `OUTLIER`, that of no cluster."""

    table: Table
    encoder: TableEncoder
    encoded: NDArray[np.float32]
    labels: NDArray[np.int64]
    memberships: NDArray[np.float32]
    prototypes: NDArray[np.float32]
    features: tuple[Feature, ...]
    short: Mapping[str, str]
    ids: tuple[str, ...]

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """Return the features (N, D) in the units of the table: gaps are NaN, dates count seconds since 1970.

        They are as large as the table and more, so they are made only where they are needed: not for images.
        """
        return _values_in_units(self.encoder, self.table, self.encoded)

    def label(self, place: int) -> str:
        """Name a feature as a reader would: the column, and the level where it stands for one."""
        feature = self.features[place]
        column = self.short[feature.column]
        return f"{column} = {shorten(str(feature.level), 24)}" if feature.kind == "category" else column

    @property
    def places_by_column(self) -> dict[str, list[int]]:
        """Return the places of the features that stand for each column: one, or one per level."""
        places: dict[str, list[int]] = {}
        for place, feature in enumerate(self.features):
            places.setdefault(feature.column, []).append(place)
        return places

    @property
    def unmirrored(self) -> frozenset[int]:
        """Return the places of the features without one of any two levels, as it repeats the other reversed."""
        kept = set(range(len(self.features)))
        for places in self.places_by_column.values():
            if len(places) == 2:
                # Levels are sorted, so that the second is the telling one of no and yes, 0 and 1, false and true.
                kept.remove(places[1 if self.features[places[1]].level == MISSING_LEVEL else 0])
        return frozenset(kept)

    @property
    def noun(self) -> str:
        """Return what a row is called on the page."""
        return "row" if self.table.image is None else "image"

    @property
    def n_clusters(self) -> int:
        """Return how many clusters there are."""
        return len(self.prototypes)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Return the number of rows of each cluster."""
        return np.bincount(self.labels[self.inside], minlength=self.n_clusters)

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Return which rows are in a cluster, and no outliers."""
        inside: NDArray[np.bool_] = self.labels != OUTLIER
        return inside

    @property
    def n_outliers(self) -> int:
        """Return how many rows are in no cluster."""
        return int(np.count_nonzero(~self.inside))

    @property
    def top_membership(self) -> NDArray[np.float32]:
        """Return each row's membership in its own cluster, NaN for outliers."""
        own = self.memberships[np.arange(len(self.labels)), np.maximum(self.labels, 0)]
        return np.where(self.inside, own, np.float32(np.nan))


def gather(model: FittedClusterer, table: Table, ids: NDArray[Any] | None) -> Findings:
    """Collect the arrays that the report is drawn from, with gaps of the table as NaN."""
    encoder = model.table_
    encoded = np.asarray(encoder.transform(table), dtype=np.float32)
    n = len(encoded)
    if n != len(model.labels_):
        raise InputError(
            f"The table has {n:,} rows but the model was fitted on {len(model.labels_):,}; "
            "give the report the same table that the model was fitted on."
        )
    table = _named_as_fitted(table, encoder)
    return Findings(
        table=table,
        encoder=encoder,
        encoded=encoded,
        labels=np.asarray(model.labels_),
        memberships=np.asarray(model.probabilities_),
        prototypes=np.asarray(model.prototypes_, dtype=np.float32),
        features=tuple(encoder.features),
        short=short_names(table.names),
        ids=tuple(str(i) for i in (matching(ids, n, "ids") if ids is not None else range(1, n + 1))),
    )


def was_trained(model: FittedClusterer) -> bool:
    """Return whether prototypes were trained on the rows, which attract them; otherwise they are plain means."""
    return len(model.history_["loss"]) > 0 and len(model.runs_) > 0


def matching(given: NDArray[Any], n: int, what: str) -> NDArray[Any]:
    """Return the values given for each row, or say that their number is wrong."""
    given = np.asarray(given)
    if given.shape != (n,):
        raise InputError(f"`{what}` has shape {given.shape} for {n:,} rows; give one value for each row.")
    return given


def thinned(n: int, at_most: int) -> NDArray[np.int64]:
    """Return the places of at most so many rows, drawn at random with a fixed seed, in rising order."""
    if n <= at_most:
        return np.arange(n)
    return np.sort(np.random.default_rng(SEED).choice(n, at_most, replace=False))


def some_rows(table: Table, rows: NDArray[np.int64]) -> Table:
    """Return a table of some of the rows."""
    if table.block is not None:
        return replace(table, block=table.block[rows], side={})
    return replace(table, columns=tuple(column[rows] for column in table.columns), side={})


def mean_text(feature: Feature, mean: float, spread: float) -> str:
    """Write a mean: a share for what is either so or not, otherwise in the units of the table."""
    if feature.kind in SHARES:
        # Rounded, since the sums behind it leave a hair's breadth to none or all.
        return percent(round(mean, 9))
    if feature.kind == "date":
        return _date(mean, "D" if spread > _DAY else "m")
    return number(mean)


def cell_text(table: Table, column: int, row: int) -> str:
    """Write one value of the table."""
    values = table.column(column)
    value = values[row]
    match values.dtype.kind:
        case "M":
            seconds = value.astype("datetime64[us]").astype(np.int64) / 1e6
            return _date(float("nan") if np.isnat(value) else seconds, "m" if seconds % _DAY else "D")
        case "O":
            return "missing" if value is None else shorten(str(value), 40)
        case "b":
            return "yes" if value else "no"
    return number(float(value))


def _date(seconds: float, precision: Literal["D", "m"]) -> str:
    if not np.isfinite(seconds):
        return "missing"
    return np.datetime_as_string(np.datetime64(int(seconds), "s"), unit=precision).replace("T", " ")


def _named_as_fitted(table: Table, encoder: TableEncoder) -> Table:
    """Give a table whose names were made up the names that the encoder knows its columns by."""
    return table if set(table.names) == set(encoder.names) else replace(table, names=encoder.names)


def _values_in_units(encoder: TableEncoder, table: Table, encoded: NDArray[np.float32]) -> NDArray[np.float64]:
    """Take numbers and dates from the table itself, where gaps are gaps, and shares from the encoder."""
    # Rounded, since a share that went through float32 is no longer exactly none or all.
    values = np.round(encoder.inverse(encoded), 4)
    place_of = {name: place for place, name in enumerate(table.names)}
    for place, feature in enumerate(encoder.features):
        if feature.kind == "category":
            continue
        column = table.column(place_of[feature.column])
        if column.dtype.kind in "iufb":
            values[:, place] = column
        elif column.dtype.kind == "M":
            micro = column.astype("datetime64[us]")
            values[:, place] = np.where(np.isnat(micro), np.nan, micro.astype(np.float64) / 1e6)
    return values
