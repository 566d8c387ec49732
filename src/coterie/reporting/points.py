"""The rows on the map as the page's script needs them: positions, clusters, and the values of the best columns."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from coterie.reporting.data import ClusteringData
from coterie.reporting.formatting import shorten, visible_text
from coterie.reporting.projection import HEIGHT, WIDTH, Map
from coterie.reporting.selection import Alternative

COLUMNS: Final = 12  # columns that can be put on the axes, searched and downloaded
IN_TIP: Final = 4  # of these, columns that are shown beside a point
_LONGEST_TEXT: Final = 80
_LONGEST_ID: Final = 200
_LARGEST_EXACT: Final = 2**53  # larger integers are not exact in the page


def describe_points(
    data: ClusteringData, map_: Map, columns: Sequence[str], alternatives: Sequence[Alternative], names: Sequence[str]
) -> dict[str, Any]:
    """Return what the page's script draws and shows, as JSON values; lists have an entry for each point."""
    rows = map_.rows
    membership = data.own_membership[rows]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "noun": data.noun,
        "names": [visible_text(name) for name in names],
        "map": map_.name,
        "titles": [map_.x.title, map_.y.title],
        "tip": min(IN_TIP, len(columns)),
        "x": [round(float(x), 1) for x in map_.points[:, 0]],
        "y": [round(float(y), 1) for y in map_.points[:, 1]],
        "labels": [[round(x, 1), round(y, 1)] if np.isfinite(x) else None for x, y in map_.labels.tolist()],
        "row": rows.tolist(),
        "cluster": data.labels[rows].tolist(),
        "membership": [round(float(each), 4) if np.isfinite(each) else None for each in membership],
        "id": [shorten(data.ids[row], _LONGEST_ID) for row in rows.tolist()],
        "columns": [_column(data, name, rows) for name in columns[:COLUMNS]],
        "alternatives": [
            {"clusters": each.n_clusters, "labels": each.labels, "percents": each.clusters} for each in alternatives
        ],
    }


def _column(data: ClusteringData, name: str, rows: NDArray[np.int64]) -> dict[str, Any]:
    """Return the values of a column: numbers, dates as seconds since 1970, or texts as positions in a list."""
    values = data.table.column(data.table.names.index(name))[rows]
    described: dict[str, Any] = {"name": visible_text(data.short[name]), "full": name}
    texts: list[str | None]
    match values.dtype.kind:
        case "M":
            missing = np.isnat(values)
            seconds = values.astype("datetime64[s]").astype(np.int64)
            midnight = bool((seconds[~missing] % 86_400 == 0).all())
            dates = [None if gap else second for gap, second in zip(missing.tolist(), seconds.tolist(), strict=True)]
            return {**described, "kind": "date", "days": midnight, "values": dates}
        case "b":
            texts = ["yes" if value else "no" for value in values.tolist()]
        case "O":
            texts = [None if value is None else shorten(str(value), _LONGEST_TEXT) for value in values.tolist()]
        case _:
            return {**described, "kind": "number", "values": [_number(value) for value in values.tolist()]}
    levels = {text: position for position, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
    codes = [None if text is None else levels[text] for text in texts]
    return {**described, "kind": "text", "levels": list(levels), "values": codes}


def _number(value: float) -> float | int | str | None:
    """Return a number with at most seven digits, and integers as they are; infinite ones are texts."""
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST_EXACT else float(value)
    if not np.isfinite(value):
        return None if np.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == int(value) and abs(value) <= _LARGEST_EXACT:
        return int(value)
    return float(f"{value:.7g}")
