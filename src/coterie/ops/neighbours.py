"""The most similar rows by matrix products, for rows of many dimensions, where trees do not help."""

from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int

Singles = npt.NDArray[np.float32]
Integers = npt.NDArray[np.intp]

_CELLS_AT_ONCE = 2**22


def most_similar(
    rows: Float[npt.NDArray[Any], "N E"],
    among: Float[npt.NDArray[Any], "M E"],
    count: int,
    *,
    without_self: bool = False,
) -> tuple[Int[Integers, "N J"], Float[Singles, "N J"]]:
    """Return for each row the `count` rows of `among` with the largest inner product, largest first, and the products.

    With `without_self`, both are the same rows, and no row is similar to itself. Of equal products the first rows come
    first.

    >>> import numpy as np
    >>> rows = np.eye(3, dtype=np.float32)
    >>> most_similar(rows, rows, 1)[0].ravel().tolist()
    [0, 1, 2]
    """
    rows, among = np.asarray(rows, dtype=np.float32), np.asarray(among, dtype=np.float32)
    found = np.empty((len(rows), count), dtype=np.intp)
    products = np.empty((len(rows), count), dtype=np.float32)
    step = max(1, _CELLS_AT_ONCE // len(among))
    for start in range(0, len(rows), step):
        inner = rows[start : start + step] @ among.T
        if without_self:
            inner[np.arange(len(inner)), np.arange(start, start + len(inner))] = -np.inf
        kept = np.argpartition(inner, len(among) - count, axis=1)[:, -count:]
        kept.sort(axis=1)
        values = np.take_along_axis(inner, kept, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        found[start : start + step] = np.take_along_axis(kept, order, axis=1)
        products[start : start + step] = np.take_along_axis(values, order, axis=1)
    return found, products
