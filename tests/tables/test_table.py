"""Arrays, frames, tensors, lists and images become tables; columns are chosen from them."""

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import TableError
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import ImageShape, Table, as_table, choose_columns, image_shape, pixel_names


def test_tables_import_no_heavy_library() -> None:
    code = (
        "import sys, coterie.tables.encoder, coterie.tables.readers; "
        "print([m for m in ('torch', 'pandas', 'polars', 'pyarrow', 'scipy') if m in sys.modules])"
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
        (np.ones((0, 3)), r"Found array with 0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required\."),
        (np.ones((3, 0)), r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1 is required\."),
        (np.ones((2, 2)) * 1j, "Complex data not supported"),
        (np.array([[1j, "a"]], dtype=object), "Complex data not supported"),
        (np.zeros((5, 3, 8, 8)), r"shape=\(5, 3, 8, 8\).*channels come first.*X.transpose\(0, 2, 3, 1\).*X.permute"),
        (np.zeros((5, 1, 28, 28)), "channels come first"),
        (np.zeros((5, 8, 8, 2)), "with 1, 3 or 4 channels"),
        (np.zeros((0, 8, 8)), r"0 sample\(s\)"),
        (np.zeros((5, 0, 8)), r"0 feature\(s\)"),
        ([[1, 2], [3]], "differ in length"),
    ],
)
def test_invalid_arrays_raise_an_error(X: object, message: str) -> None:
    with pytest.raises(TableError, match=message):
        as_table(X)


@pytest.mark.parametrize("value", [{"foo": "bar"}, [1], object()])
def test_objects_that_are_neither_numbers_nor_text_raise_a_type_error(value: object) -> None:
    X = np.ones((2, 2), dtype=object)
    X[0, 0] = value
    with pytest.raises(TypeError, match=r"argument must be .* string.* number"):
        as_table(X)


def test_object_arrays_and_lists_of_rows() -> None:
    assert as_table(np.array([[1, "2.5"], [None, 3]], dtype=object)).kinds == ("number", "number")
    table = as_table([["a", 1], ["b", None], [None, 2.5]])
    assert (table.kinds, table.column(0).tolist()) == (("category", "number"), ["a", "b", None])
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
def test_frames_of_all_libraries_give_equal_tables(library: str) -> None:
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
    assert table.kinds == ("category", "number", "category")
    assert not as_table(pd.DataFrame(np.ones((2, 2)))).named
    with pytest.raises(TableError, match="unique"):
        as_table(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(TableError, match="1D"):
        as_table(pd.Series([1.0, 2.0]))


WRITTEN: dict[str, list[Any]] = {
    "day": ["2024-05-03", None, "2024-05-04"],
    "price": ["$1,234.50", "(2)", "n/a"],
    "code": ["01234", "90210", "10115"],
    "size": ["big", "?", "small"],
    "hour": [dt.time(14, 30), None, dt.time(0, 0, 5)],
    "timestamp": [1714746605, 1714746606, 1714746607],
}


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_texts_of_frames_are_read_like_those_of_files(library: str) -> None:
    module = pytest.importorskip(library)
    table = as_table(module.table(WRITTEN) if library == "pyarrow" else module.DataFrame(WRITTEN))
    assert table.kinds == ("date", "number", "category", "category", "date", "date")
    np.testing.assert_array_equal(table.column(1), [1234.5, -2.0, np.nan])
    assert table.column(3).tolist() == ["big", None, "small"]
    assert table.column(4)[0] == np.datetime64("1970-01-01T14:30")
    assert table.column(5)[0] == np.datetime64("2024-05-03T14:30:05")
    assert table.notes == (
        (
            "column 'price': '$' and the thousands separator ',' were left out; "
            "numbers in parentheses were read as negative; 1 of 3 values is missing ('n/a')"
        ),
        "column 'code': kept as text, since its numbers have leading zeros",
        "column 'hour': read as times of the day",
        "column 'timestamp': read as seconds since 1970",
    )
    numbers = {"created_at": [1714746605, 1714746606], "x": [1.0, 2.0]}
    table = as_table(module.table(numbers) if library == "pyarrow" else module.DataFrame(numbers))
    assert table.kinds == ("date", "number")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, "2", None], "number"),
        ([Decimal("1.5"), None, 2], "number"),
        ([Decimal("1.5"), "n/a"], "number"),
        ([dt.date(2024, 5, 3), "2024-05-04", float("nan")], "date"),
        ([dt.datetime(2024, 5, 3, tzinfo=dt.UTC), "4 May 2024"], "date"),
        ([b"14:30", "14:31"], "date"),
        ([True, "no"], "category"),
        ([1, "a"], "category"),
        (["01234", "1"], "category"),
    ],
)
def test_objects_of_several_types(values: list[object], kind: str) -> None:
    assert as_table(np.array(values, dtype=object)[:, None]).kinds == (kind,)


def test_polars_peculiarities() -> None:
    pl = pytest.importorskip("polars")
    with pytest.raises(TableError, match="collect"):
        as_table(pl.LazyFrame({"a": [1]}))
    with pytest.raises(TableError, match="List"):
        as_table(pl.DataFrame({"a": [[1], [2]]}))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "float64", "bool"])
@pytest.mark.parametrize("shape", [(4, 2, 3), (4, 2, 3, 1), (4, 2, 3, 3)])
def test_images_are_not_copied(dtype: str, shape: tuple[int, ...]) -> None:
    X = np.ones(shape, dtype=dtype)
    table = as_table(X)
    assert table.block is not None
    assert np.shares_memory(table.block, X)
    assert table.image == (2, 3, shape[3] if len(shape) == 4 else 1)
    assert (table.n_rows, table.n_columns, table.named) == (4, X[0].size, False)


def test_images_of_all_types_become_rows_of_pixels() -> None:
    X = np.arange(2 * 2 * 3 * 3).reshape(2, 2, 3, 3)
    table = as_table(X)
    position = table.names.index("pixel 1,2,0")
    assert table.column(position).tolist() == X[:, 1, 2, 0].tolist()
    assert as_table(X[..., 0]).names == ("pixel 0,0", "pixel 0,1", "pixel 0,2", "pixel 1,0", "pixel 1,1", "pixel 1,2")
    grey = np.arange(12.0).reshape(2, 2, 3)
    for other in (torch.tensor(grey), grey.tolist()):
        table = as_table(other)
        assert (table.image, table.column(5).tolist()) == ((2, 3, 1), [5.0, 11.0])


@pytest.mark.parametrize(
    ("colour", "blended"),
    [
        (np.array([100, 0, 200, 0], dtype=np.uint8), [255, 255, 255]),
        (np.array([100, 0, 200, 255], dtype=np.uint8), [100, 0, 200]),
        (np.array([100, 0, 200, 51], dtype=np.uint8), [224, 204, 244]),
        (np.array([1000, 0, 0, 0], dtype=np.uint16), [65535, 65535, 65535]),
        (np.array([0.5, 0.0, 1.0, 0.5], dtype=np.float32), [0.75, 0.5, 1.0]),
        (np.array([100.0, 0.0, 200.0, 0.0], dtype=np.float64), [255.0, 255.0, 255.0]),
        (np.array([True, False, True, False]), [True, True, True]),
    ],
)
def test_transparent_images_are_blended_with_white(colour: Any, blended: list[float]) -> None:
    X = np.broadcast_to(colour, (3, 2, 2, 4))
    table = as_table(X)
    assert table.image == (2, 2, 3)
    assert table.block is not None
    assert table.block.dtype == X.dtype
    np.testing.assert_allclose(table.block[2, 3:6], blended)


@given(shape=st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3])))
def test_pixel_names_determine_the_shape(shape: ImageShape) -> None:
    names = pixel_names(shape)
    assert len(set(names)) == shape[0] * shape[1] * shape[2]
    assert image_shape(names) == shape


@pytest.mark.parametrize(
    "names",
    [(), ("a", "b"), ("pixel 1,0", "pixel 0,0"), ("x", "pixel 0,1"), ("pixel 99999999,99999999",), ("pixel 0,0,2",)],
)
def test_other_names_are_no_image(names: tuple[str, ...]) -> None:
    assert image_shape(names) is None


def test_columns_must_match_names_lengths_and_the_image_shape() -> None:
    table = as_table(np.zeros((2, 3, 3)))
    assert table.select(range(9)).image == (3, 3, 1)
    assert table.select([4, 5]).image is None
    with pytest.raises(TableError, match=r"\(2, 2, 1\).*4 pixels, but the table has 3 columns"):
        Table(("a", "b", "c"), block=np.zeros((5, 3)), image=(2, 2, 1))
    with pytest.raises(TableError, match="one name per column"):
        Table(("a",), (np.ones(2), np.ones(2)))
    with pytest.raises(TableError, match="equal length"):
        Table(("a", "b"), (np.ones(2), np.ones(3)))


def test_former_names_warn() -> None:
    table = as_table([[1.0], [2.0]])
    encoder = TableEncoder().fit(table)
    with pytest.warns(FutureWarning, match="extra_columns"):
        assert table.side == {}
    with pytest.warns(FutureWarning, match="inverse_transform"):
        assert encoder.inverse(encoder.transform(table)).shape == (2, 1)


PEOPLE = Table(
    names=("who", "height", "weight", "group"),
    columns=(np.array([1.0, 2.0]), np.array([1.5, 1.8]), np.array([60.0, 80.0]), np.array(["a", "b"], dtype=object)),
    extra_columns={"y": np.array([0, 1])},
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


def test_columns_are_chosen_by_name_by_number_and_from_extra_columns() -> None:
    assert choose_columns(PEOPLE, columns=["3", "height"]).features.names == ("weight", "height")
    chosen = choose_columns(PEOPLE, drop=["who", "4"], truth="y")
    assert (chosen.features.names, chosen.truth_name) == (("height", "weight"), "y")


@pytest.mark.parametrize("choice", [{"columns": ["heigth"]}, {"drop": ["Height "]}, {"ids": "HEIGHT"}])
def test_unknown_names_suggest_a_close_one(choice: dict[str, Any]) -> None:
    with pytest.raises(TableError, match=r"Did you mean 'height'.*'weight'"):
        choose_columns(PEOPLE, **choice)


def test_unknown_numbers_and_an_empty_choice_raise_an_error() -> None:
    with pytest.raises(TableError, match="is called '9'"):
        choose_columns(PEOPLE, truth="9")
    with pytest.raises(TableError, match="is left to cluster"):
        choose_columns(PEOPLE, columns=["who"], ids="who")
