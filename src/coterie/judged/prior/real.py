"""Labelled tables from files as tasks: some of their columns, classes and rows.

Classes of real tables need not be clusters. That is intended: a judge must know how often they are.
"""

import os
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import torch

from coterie.errors import ConfigError
from coterie.judged.prior.sampling import MIN_CLUSTER_SIZE, Rng
from coterie.judged.prior.task import SyntheticTask
from coterie.tables.readers import find_format, read_table
from coterie.tables.table import Array

MIN_ROWS: Final = 200  # rows of a task, if the table has as many
MAX_ROWS: Final = 1500
MAX_COLUMNS: Final = 64
_INDEX: Final = "INDEX.csv"  # a list of the tables in a folder is no table


def find_tables(folders: tuple[str, ...]) -> dict[str, Path]:
    """Return labelled tables, such as "tabular/wdbc", by folder and name: single files, and all of some folders.

    Relative paths are in the folder that the environment variable COTERIE_DATA names.
    """
    root = os.environ.get("COTERIE_DATA")
    if root is None and not all(Path(folder).is_absolute() for folder in folders):
        raise ConfigError(
            f"Labelled tables are read from {', '.join(folders)} in the folder COTERIE_DATA, which is not set. "
            "Set it, or leave out the setting 'tables'."
        )
    given = [Path(root or "") / folder for folder in folders]
    found = {
        f"{path.parent.name}/{path.stem}": path
        for each in given
        for path in ([each] if each.is_file() else sorted(each.glob("*.*")))
        if path.name != _INDEX and find_format(path) is not None
    }
    if not found:
        raise ConfigError(f"No labelled tables are in {', '.join(folders)} of COTERIE_DATA={root}. Check the setting.")
    return found


@lru_cache(maxsize=128)
def load_labelled_table(path: Path) -> SyntheticTask:
    """Load a table whose classes are its last column or, beside an array X, the array y."""
    table = read_table(path)
    last = table.n_columns
    if "y" in table.extra_columns:
        classes = table.extra_columns["y"]
    else:
        last -= 1
        classes = table.column(last)
    columns = [table.column(position) for position in range(last)]
    x = np.stack([_to_numbers(column) for column in columns], axis=1).astype(np.float32)
    labels = np.unique(_to_numbers(classes), return_inverse=True)[1].astype(np.int64)
    categories = tuple(position for position, column in enumerate(columns) if column.dtype.kind == "O")
    kind = f"real/{path.parent.name}/{path.stem}"
    return SyntheticTask(torch.from_numpy(x), torch.from_numpy(labels), kind, {"layout": path.stem}, categories)


def sample_real(path: Path, rng: Rng) -> SyntheticTask:
    """Sample columns, classes and rows of a labelled table."""
    return _sample_rows(_sample_classes(_sample_columns(load_labelled_table(path), rng), rng), rng)


def _to_numbers(column: Array) -> Array:
    """Return numbers with NaN for gaps: days for dates, codes for text."""
    match column.dtype.kind:
        case "M":
            gaps = np.isnat(column)
            return np.where(gaps, np.nan, column.astype("datetime64[D]").astype(np.int64))
        case "O":
            levels = {level: code for code, level in enumerate(sorted({text for text in column if text is not None}))}
            return np.array([levels.get(text, np.nan) for text in column], dtype=np.float64)
    return np.where(np.isfinite(column), column, np.nan).astype(np.float64)


def _sample_columns(task: SyntheticTask, rng: Rng) -> SyntheticTask:
    """Leave out up to half of the columns in half of the tasks, and columns and rows without values."""
    usable = (~task.x.isnan()).any(dim=0).nonzero().squeeze(1)
    fraction = rng.scalar(0.5, 1.0) if rng.bernoulli(0.5) else 1.0
    count = min(MAX_COLUMNS, max(2, round(fraction * len(usable))))
    fewer = task.select(usable[rng.permutation(len(usable))[:count]].sort().values)
    return fewer.take((~fewer.x.isnan()).any(dim=1))


def _sample_classes(task: SyntheticTask, rng: Rng) -> SyntheticTask:
    """Leave out some classes in half of the tasks, but not the last two, and those that are too small."""
    sizes = torch.bincount(task.labels)
    usable = (sizes >= MIN_CLUSTER_SIZE).nonzero().squeeze(1)
    if len(usable) > 2 and rng.bernoulli(0.5):
        usable = usable[rng.permutation(len(usable))[: rng.integer(2, len(usable) - 1)]]
    return task.take(torch.isin(task.labels, usable))


def _sample_rows(task: SyntheticTask, rng: Rng) -> SyntheticTask:
    """Sample rows without replacement; a class that becomes too small is left out."""
    most = min(MAX_ROWS, len(task.x))
    count = int(rng.log_scalar(min(MIN_ROWS, most), most + 0.999))
    fewer = task.take(rng.permutation(len(task.x))[:count])
    large = torch.bincount(fewer.labels) >= MIN_CLUSTER_SIZE
    return fewer.take(large[fewer.labels]) if int(large.sum()) >= 2 else task.take(rng.permutation(len(task.x))[:most])
