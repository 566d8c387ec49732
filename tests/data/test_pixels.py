"""Arrays of images become tables of pixels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import TableError
from coterie.tables.readers.files import read_table
from coterie.tables.table import ImageShape, Table, as_table, image_shape, pixel_names

SIDE = st.integers(1, 9)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "float64", "bool"])
@pytest.mark.parametrize("shape", [(4, 2, 3), (4, 2, 3, 1), (4, 2, 3, 3)])
def test_images_are_not_copied(dtype: str, shape: tuple[int, ...]) -> None:
    X = np.ones(shape, dtype=dtype)
    table = as_table(X)
    assert table.block is not None
    assert np.shares_memory(table.block, X)
    assert table.image == (2, 3, shape[3] if len(shape) == 4 else 1)
    assert (table.n_rows, table.n_columns, table.named) == (4, X[0].size, False)


def test_pixels_are_row_by_row_with_channels_last() -> None:
    X = np.arange(2 * 2 * 3 * 3).reshape(2, 2, 3, 3)
    table = as_table(X)
    place = table.names.index("pixel 1,2,0")
    assert table.column(place).tolist() == X[:, 1, 2, 0].tolist()
    assert as_table(X[..., 0]).names == ("pixel 0,0", "pixel 0,1", "pixel 0,2", "pixel 1,0", "pixel 1,1", "pixel 1,2")


def test_tensors_and_lists_are_taken_alike() -> None:
    X = np.arange(12.0).reshape(2, 2, 3)
    for other in (torch.tensor(X), X.tolist()):
        table = as_table(other)
        assert table.image == (2, 3, 1)
        assert table.column(5).tolist() == [5.0, 11.0]


@pytest.mark.parametrize(
    ("opaque", "blended"),
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
def test_what_is_transparent_lies_on_white(opaque: Any, blended: list[float]) -> None:
    X = np.broadcast_to(opaque, (3, 2, 2, 4))
    table = as_table(X)
    assert table.image == (2, 2, 3)
    assert table.block is not None
    assert table.block.dtype == X.dtype
    np.testing.assert_allclose(table.block[2, 3:6], blended)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((5, 3, 8, 8), r"shape=\(5, 3, 8, 8\).*channels come first.*X.transpose\(0, 2, 3, 1\).*X.permute"),
        ((5, 1, 28, 28), "channels come first"),
        ((5, 8, 8, 2), "with 1, 3 or 4 channels"),
        ((0, 8, 8), r"0 sample\(s\)"),
        ((5, 0, 8), r"0 feature\(s\)"),
    ],
)
def test_refusals(shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(TableError, match=words):
        as_table(np.zeros(shape))


@given(shape=st.tuples(SIDE, SIDE, st.sampled_from([1, 3])))
def test_names_tell_the_shape(shape: ImageShape) -> None:
    names = pixel_names(shape)
    assert len(set(names)) == shape[0] * shape[1] * shape[2]
    assert image_shape(names) == shape


@pytest.mark.parametrize(
    "names",
    [(), ("a", "b"), ("pixel 1,0", "pixel 0,0"), ("x", "pixel 0,1"), ("pixel 99999999,99999999",), ("pixel 0,0,2",)],
)
def test_other_names_tell_none(names: tuple[str, ...]) -> None:
    assert image_shape(names) is None


def test_a_part_of_the_pixels_is_no_image() -> None:
    table = as_table(np.zeros((2, 3, 3)))
    assert table.select(range(9)).image == (3, 3, 1)
    assert table.select([4, 5]).image is None


def test_a_shape_must_fit_the_columns() -> None:
    with pytest.raises(TableError, match=r"\(2, 2, 1\).*4 pixels, but the table has 3 columns"):
        Table(("a", "b", "c"), block=np.zeros((5, 3)), image=(2, 2, 1))


@pytest.mark.parametrize("name", ["X", "images"])
def test_npz_of_images(name: str, tmp_path: Path) -> None:
    images = np.arange(5 * 4 * 4 * 3, dtype=np.uint8).reshape(5, 4, 4, 3)
    arrays: dict[str, Any] = {name: images, "y": np.arange(5), "names": np.array(["a", "b"])}
    np.savez(tmp_path / "set.npz", **arrays)
    table = read_table(tmp_path / "set.npz")
    assert (table.image, table.source, list(table.side)) == ((4, 4, 3), "set.npz", ["y"])
    assert table.names[-1] == "pixel 3,3,2"
    np.save(tmp_path / "set.npy", images)
    np.testing.assert_array_equal(read_table(tmp_path / "set.npy").column(7), images.reshape(5, -1)[:, 7])


def test_npz_prefers_a_table_to_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", X=np.ones((5, 2)), images=np.ones((5, 4, 4)))
    assert read_table(tmp_path / "both.npz").image is None
    np.savez(tmp_path / "neither.npz", a=np.ones((5, 4, 4)), b=np.ones((5, 4, 4)))
    with pytest.raises(TableError, match="X or images"):
        read_table(tmp_path / "neither.npz")
