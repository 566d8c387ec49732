"""What users hold becomes a table, and they choose what of it to cluster."""

import datetime as dt
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from coterie.errors import TableError
from coterie.tables.table import Table, as_table, choose_columns


def test_import_is_light() -> None:
    code = (
        "import sys, coterie.data.tables; "
        "print([m for m in ('torch', 'pandas', 'polars', 'pyarrow', 'sklearn') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32", "float64", "bool"])
def test_numeric_arrays_are_not_copied(dtype: str) -> None:
    X = np.ones((4, 3), dtype=dtype)
    table = as_table(X)
    assert table.block is not None
    assert np.shares_memory(table.block, X)
    assert not table.block.flags.writeable
    assert X.flags.writeable
    assert table.names == ("x0", "x1", "x2")
    assert not table.named


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones(3), r"Expected 2D array, got 1D array instead.*reshape\(-1, 1\)"),
        (3.0, "got scalar array"),
        (np.full((2, 2, 2), "a"), "dim 3"),
        (np.ones((2, 2, 2, 3, 3)), "dim 5"),
        (
            np.ones((0, 3)),
            r"Found array with 0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required\.",
        ),
        (np.ones((3, 0)), r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1 is required\."),
        (np.ones((2, 2)) * 1j, "Complex data not supported"),
        (np.array([[1j, "a"]], dtype=object), "Complex data not supported"),
        ([[1, 2], [3]], "differ in length"),
        (scipy.sparse.eye_array(3), "TruncatedSVD"),
    ],
)
def test_refusals(X: object, message: str) -> None:
    with pytest.raises(TableError, match=message):
        as_table(X)


@pytest.mark.parametrize("value", [{"foo": "bar"}, [1], object()])
def test_objects_that_are_no_values(value: object) -> None:
    X = np.ones((2, 2), dtype=object)
    X[0, 0] = value
    with pytest.raises(TypeError, match=r"argument must be .* string.* number"):
        as_table(X)


def test_object_arrays_and_lists_of_rows() -> None:
    assert as_table(np.array([[1, "2.5"], [None, 3]], dtype=object)).kinds == ("number", "number")
    table = as_table([["a", 1], ["b", None], [None, 2.5]])
    assert table.kinds == ("category", "number")
    assert table.column(0).tolist() == ["a", "b", None]
    assert as_table([["a", dt.date(2020, 1, 1)]]).kinds == ("category", "date")
    assert as_table(np.array([["x", "y"]])).kinds == ("category", "category")
    assert as_table(np.array([[b"x", b"y"]])).column(0).tolist() == ["x"]
    structured = np.array([("a", 1.0)], dtype=[("k", "U3"), ("v", float)])
    assert as_table(structured).names == ("k", "v")
    assert np.isnan(as_table(np.ma.masked_array([[1, 2]], mask=[[True, False]])).column(0)).all()


def test_torch_tensor() -> None:
    tensor = torch.arange(6.0, requires_grad=True).reshape(3, 2)
    assert as_table(tensor).column(1).tolist() == [1.0, 3.0, 5.0]
    assert as_table(tensor.bfloat16()).n_rows == 3


FRAME: dict[str, list[Any]] = {
    "text": ["x", None, "y"],
    "moment": [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None, dt.datetime(2021, 1, 1, tzinfo=dt.UTC)],
    "flag": [True, False, True],
    "flag_with_gap": [True, None, False],
    "whole": [1, None, 3],
    "day": [dt.date(2020, 1, 1), None, dt.date(2020, 1, 2)],
    "span": [dt.timedelta(1), None, dt.timedelta(2)],
}


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_of_every_library_read_alike(library: str) -> None:
    module = pytest.importorskip(library)
    table = as_table(module.table(FRAME) if library == "pyarrow" else module.DataFrame(FRAME))
    assert table.named
    assert table.names == tuple(FRAME)
    assert table.kinds == ("category", "date", "boolean", "number", "number", "date", "number")
    assert table.column(0).tolist() == ["x", None, "y"]
    assert table.column(1)[0] == np.datetime64("2020-01-01")
    np.testing.assert_array_equal(table.column(4), [1.0, np.nan, 3.0])
    np.testing.assert_array_equal(table.column(6), [86400.0, np.nan, 172800.0])
    numbers = module.table({"a": [1, 2]}) if library == "pyarrow" else module.DataFrame({"a": [1, 2]})
    assert as_table(numbers).block is not None


def test_pandas_peculiarities() -> None:
    pd = pytest.importorskip("pandas")
    table = as_table(pd.DataFrame({"c": pd.Categorical([1, 2]), "s": ["1", "2"], "mix": [1, "a"]}))
    assert table.kinds == ("category", "category", "category")
    assert not as_table(pd.DataFrame(np.ones((2, 2)))).named
    with pytest.raises(TableError, match="unique"):
        as_table(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(TableError, match="1D"):
        as_table(pd.Series([1.0, 2.0]))


def test_polars_peculiarities() -> None:
    pl = pytest.importorskip("polars")
    with pytest.raises(TableError, match="collect"):
        as_table(pl.LazyFrame({"a": [1]}))
    with pytest.raises(TableError, match="List"):
        as_table(pl.DataFrame({"a": [[1], [2]]}))


# --- choose_columns ---------------------------------------------------------------------------------------

PEOPLE = Table(
    names=("who", "height", "weight", "group"),
    columns=(
        np.array([1.0, 2.0]),
        np.array([1.5, 1.8]),
        np.array([60.0, 80.0]),
        np.array(["a", "b"], dtype=object),
    ),
    side={"y": np.array([0, 1])},
    source="people.csv",
)


def test_ids_and_truth_are_never_features() -> None:
    chosen = choose_columns(PEOPLE, ids="who", truth="group")
    assert chosen.features.names == ("height", "weight")
    assert chosen.ids is not None
    assert chosen.ids.tolist() == [1, 2]
    assert chosen.ids.dtype == np.int64
    assert chosen.truth is not None
    assert chosen.truth.tolist() == ["a", "b"]
    assert choose_columns(PEOPLE, columns=["who", "height"], ids="who").features.names == ("height",)


def test_columns_by_name_number_and_side() -> None:
    assert choose_columns(PEOPLE, columns=["3", "height"]).features.names == ("weight", "height")
    chosen = choose_columns(PEOPLE, drop=["who", "4"], truth="y")
    assert chosen.features.names == ("height", "weight")
    assert chosen.truth_name == "y"


@pytest.mark.parametrize("choice", [{"columns": ["heigth"]}, {"drop": ["Height "]}, {"ids": "HEIGHT"}])
def test_unknown_name_suggests_a_close_one(choice: dict[str, Any]) -> None:
    with pytest.raises(TableError, match=r"did you mean 'height'.*'weight'"):
        choose_columns(PEOPLE, **choice)


def test_unknown_number_and_nothing_left() -> None:
    with pytest.raises(TableError, match="no column is called '9'"):
        choose_columns(PEOPLE, truth="9")
    with pytest.raises(TableError, match="no column is left"):
        choose_columns(PEOPLE, columns=["who"], ids="who")
