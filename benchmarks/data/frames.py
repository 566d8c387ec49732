"""Data frames with gaps and categories in the forms that other methods take."""

from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype
from sklearn.preprocessing import StandardScaler

from benchmarks.lines import Floats, Labels

Rows: TypeAlias = Floats | pd.DataFrame


def split_columns(frame: pd.DataFrame) -> tuple[Floats, Labels, list[int]]:
    """Return standardised numbers (N, D), codes of categories (N, L), and the number of levels of each.

    Gaps in numbers are at the median, and the code of a gap is -1. Dates and booleans are numbers.
    """
    numbers: list[Floats] = [np.empty((len(frame), 0))]
    codes, levels = [np.empty((len(frame), 0), dtype=np.int64)], []
    for name in frame:
        column = frame[name]
        if is_datetime64_any_dtype(column):
            numbers.append(_filled(column.astype("datetime64[s]").astype("int64").where(column.notna())))
        elif is_numeric_dtype(column):
            numbers.append(_filled(column))
        else:
            own, values = pd.factorize(column)
            codes.append(own[:, None])
            levels.append(len(values))
    matrix = np.concatenate(numbers, axis=1)
    # A constant column has no scale; StandardScaler leaves it at zero.
    scaled = StandardScaler().fit_transform(matrix) if matrix.shape[1] else matrix
    return scaled, np.concatenate(codes, axis=1), levels


def _filled(column: "pd.Series[Any]") -> Floats:
    values = column.astype(float).replace([np.inf, -np.inf], np.nan)
    middle = values.median()
    filled: Floats = values.fillna(0.0 if np.isnan(middle) else middle).to_numpy()[:, None]
    return filled


def encode_frame(frame: pd.DataFrame) -> Floats:
    """Return a matrix of standardised numbers, gaps at the median, and one column of 0 and 1 per category, gaps 0."""
    numbers, codes, levels = split_columns(frame)
    parts = [(codes[:, [i]] == np.arange(count)).astype(float) for i, count in enumerate(levels)]
    return np.concatenate([numbers, *parts], axis=1)
