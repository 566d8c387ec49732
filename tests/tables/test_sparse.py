"""Sparse matrices, in memory and in files."""

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from coterie import Coterie
from coterie.errors import TableError
from coterie.tables.readers import read_table
from coterie.tables.table import as_table, densify

DENSE = np.array([[0, 1.5, 0], [0, 0, 0], [2, 0, 0], [0, 0, -3.25]])


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("container", ["array", "matrix"])
def test_matrices_in_memory(kind: str, container: str) -> None:
    matrix = getattr(scipy.sparse, f"{kind}_{container}")(DENSE)
    table = as_table(matrix)
    assert table.block is not None
    np.testing.assert_array_equal(table.block, DENSE)
    assert (table.names, table.named) == (("x0", "x1", "x2"), False)
    assert table.notes == ("the matrix is sparse (75.0% zeros) and was made dense",)


def test_types_are_kept() -> None:
    assert as_table(scipy.sparse.csr_array(DENSE.astype(np.float32))).block.dtype == np.float32  # type: ignore[union-attr]  # it has a block
    assert as_table(scipy.sparse.csr_array(DENSE != 0)).kinds == ("boolean",) * 3
    with pytest.raises(TableError, match="Complex"):
        as_table(scipy.sparse.csr_array(DENSE * 1j))


def test_what_does_not_fit_is_not_made_dense() -> None:
    wide = as_table(scipy.sparse.csr_array((10_000_000, 50_000)))
    assert wide.block is None
    assert (wide.n_rows, wide.n_columns, wide.kinds[0]) == (10_000_000, 50_000, "number")
    with pytest.raises(TableError, match=r"10,000,000 x 50,000.*TruncatedSVD"):
        densify(wide)
    with pytest.raises(TableError, match=r"0 sample"):
        as_table(scipy.sparse.csr_array((0, 5)))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
def test_archives(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.npz"
    scipy.sparse.save_npz(path, getattr(scipy.sparse, f"{kind}_array")(DENSE))
    table = read_table(path)
    assert table.block is not None
    np.testing.assert_array_equal(table.block, DENSE)
    assert (table.names, table.source) == (("column_1", "column_2", "column_3"), "m.npz")
    assert "sparse" in table.notes[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"indices": np.array([1, 10**6, 2], dtype=np.int32)},
        {"indices": np.array([1, -5, 2], dtype=np.int32)},
        {"indptr": np.array([0, 1, 1, 2, 99], dtype=np.int32)},
        {"shape": np.array([-4, 3])},
        {"shape": np.array([4])},
        {"format": np.array(b"xyz")},
        {"data": np.ones(1)},
    ],
)
def test_damaged_archives(tmp_path: Path, wrong: dict[str, np.ndarray]) -> None:
    scipy.sparse.save_npz(tmp_path / "m.npz", scipy.sparse.csr_array(DENSE))
    with np.load(tmp_path / "m.npz") as archive:
        content = dict(archive)
    np.savez(tmp_path / "m.npz", **{**content, **wrong})
    with pytest.raises(TableError, match=r"m\.npz"):
        read_table(tmp_path / "m.npz")


def matrix_market(matrix: Any) -> bytes:
    out = io.BytesIO()
    scipy.io.mmwrite(out, matrix)
    return out.getvalue()


@pytest.mark.parametrize("matrix", [scipy.sparse.csr_array(DENSE), DENSE])
@pytest.mark.parametrize("ending", [".mtx", ".mtx.gz"])
def test_matrix_market(tmp_path: Path, matrix: object, ending: str) -> None:
    content = matrix_market(matrix)
    (tmp_path / f"m{ending}").write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    table = read_table(tmp_path / f"m{ending}")
    assert table.block is not None
    np.testing.assert_array_equal(table.block, DENSE)
    assert table.names == ("column_1", "column_2", "column_3")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a,b\n1,2\n",
        b"%%MatrixMarket matrix coordinate real general\n4 3 3\n9 9 1.0\n1 1 2\n1 2 3\n",
        b"%%MatrixMarket matrix coordinate real general\n4 3 999999999999\n1 1 1.0\n",
        b"%%MatrixMarket matrix array real general\n99999999 99999999\n1.0\n",
        b"%%MatrixMarket matrix coordinate real general\n4 3 3\n1 1 x\n",
        b"%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 1 1.0 2.0\n",
        matrix_market(scipy.sparse.csr_array(DENSE))[:-12],
    ],
)
def test_damaged_matrix_market(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.mtx").write_bytes(content)
    with pytest.raises(TableError):
        read_table(tmp_path / "m.mtx")


def test_clustering_a_sparse_matrix_is_clustering_a_dense_one() -> None:
    rng = np.random.default_rng(0)
    counts = rng.poisson(np.repeat([[4.0, 0.1, 0.1, 3.0], [0.1, 4.0, 3.0, 0.1]], 30, axis=0)).astype(np.float64)
    sparse = scipy.sparse.csr_array(counts)
    model = Coterie(effort="fast", random_state=0).fit(sparse)
    np.testing.assert_array_equal(model.labels_, Coterie(effort="fast", random_state=0).fit_predict(counts))
    np.testing.assert_array_equal(model.predict(sparse), model.labels_)
