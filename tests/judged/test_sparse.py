"""Wide sparse matrices are reduced before they are clustered."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse

from coterie import ClAM, Coterie
from coterie.__main__ import main
from coterie.errors import InputError
from coterie.metrics import adjusted_rand_index


def documents(n: int = 400, seed: int = 0) -> tuple[sparse.csr_matrix, npt.NDArray[np.int64]]:
    """Counts of 500 words in documents of four subjects; one document is empty."""
    rng = np.random.default_rng(0)
    usual = rng.dirichlet(np.full(500, 0.3))
    subjects = np.stack([0.5 * usual + 0.5 * rng.dirichlet(np.full(500, 0.05)) for _ in range(4)])
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    counts = np.stack([rng.multinomial(60, subjects[k]) for k in y])
    counts[0] = 0
    return sparse.csr_matrix(counts), y


def test_documents_are_clustered_by_subject_and_new_ones_predicted(tmp_path: Path) -> None:
    X, y = documents()
    model = Coterie(effort="fast", random_state=0).fit(X)
    assert adjusted_rand_index(y[1:], model.labels_[1:]) > 0.95
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    new, truth = documents(100, seed=1)
    assert adjusted_rand_index(truth[1:], model.predict(new)[1:]) > 0.9
    np.testing.assert_array_equal(model.predict(new[:10]), model.predict(new)[:10])
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(Coterie.load(tmp_path / "model.safetensors").predict(new), model.predict(new))


def test_dense_rows_are_reduced_as_those_of_the_fit_and_sparse_ones_need_not_be() -> None:
    X, _ = documents(150)
    model = Coterie(3, effort="fast", random_state=0).fit(X)
    assert model.n_features_in_ == 500
    np.testing.assert_array_equal(model.predict(X.toarray()), model.labels_)
    dense = Coterie(3, effort="fast", random_state=0).fit(X.toarray())
    np.testing.assert_array_equal(dense.predict(X), dense.labels_)


def test_the_command_saves_how_a_matrix_was_reduced(tmp_path: Path) -> None:
    X, _ = documents(150)
    sparse.save_npz(tmp_path / "counts.npz", X)
    counts, saved, out = str(tmp_path / "counts.npz"), str(tmp_path / "m.safetensors"), tmp_path / "clusters.csv"
    assert main(["cluster", counts, "--save", saved, "-o", str(out), "-q"]) == 0
    assert main(["predict", saved, counts, "-o", str(tmp_path / "again.csv"), "-q"]) == 0
    assert (tmp_path / "again.csv").read_bytes() == out.read_bytes()


def test_another_number_of_columns_is_an_error_and_a_new_fit_forgets() -> None:
    X, _ = documents(120)
    model = Coterie(effort="fast", random_state=0).fit(X)
    with pytest.raises(InputError, match="X has 200 features, but Coterie is expecting 500"):
        model.predict(X[:, :200])
    dense = np.random.default_rng(0).normal(size=(60, 3))
    assert model.fit(dense).predict(dense).shape == (60,)


def test_other_methods_get_a_dense_matrix() -> None:
    X, _ = documents(60)
    assert ClAM(2, random_state=0).fit(X[:, :120]).n_features_in_ == 120
