"""The ClAM estimator: results, parameters, runs, streams and model files."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from coterie import ClAM
from coterie.errors import InputError
from coterie.methods import load
from coterie.progress import Progress

Blobs = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]
ROWS = np.random.default_rng(0).normal(size=(20, 3))


def quick(n_clusters: Any = 3, **settings: Any) -> ClAM:
    """Build a model that fits in a tenth of a second."""
    fast: dict[str, Any] = {"beta": (0.5, 4.0), "learning_rate": 0.1, "n_restarts": 3, "epochs": 10, "random_state": 0}
    return ClAM(n_clusters, **(fast | settings))


@pytest.fixture(scope="module")
def fitted(blobs: Blobs) -> ClAM:
    return quick().fit(blobs[0])


def test_blobs_are_found(fitted: ClAM, blobs: Blobs) -> None:
    X, truth = blobs
    np.testing.assert_array_equal(fitted.labels_, truth)  # the fixture's groups are ordered by size, too
    assert fitted.labels_.dtype == np.int64
    assert fitted.n_clusters_ == 3
    assert fitted.silhouette_ > 0.6
    np.testing.assert_array_equal(fitted.predict(X[:7]), fitted.labels_[:7])


def test_probabilities_agree_with_the_labels(fitted: ClAM, blobs: Blobs) -> None:
    probabilities = fitted.predict_proba(blobs[0])
    assert probabilities.shape == (150, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), fitted.labels_)
    np.testing.assert_array_equal(probabilities, fitted.probabilities_)


def test_centers_are_means_in_the_units_of_the_input(fitted: ClAM, blobs: Blobs) -> None:
    X, truth = blobs
    means = np.stack([X[truth == k].mean(axis=0) for k in range(3)])
    np.testing.assert_allclose(fitted.cluster_centers_, means, rtol=1e-3, atol=1e-3 * X.std())
    prototypes = fitted.table_.inverse_transform(fitted.prototypes_)  # beyond the means, but nearest to their own
    distances = np.linalg.norm((prototypes[:, None] - means) / X.std(axis=0), axis=2)
    assert distances.argmin(axis=1).tolist() == [0, 1, 2]


def test_prototypes_of_the_unmasked_objective_are_close_to_the_means(blobs: Blobs) -> None:
    X, _ = blobs
    model = quick(beta=20.0, objective="unmasked", epochs=40, scaling="standard").fit(X)
    gaps = (model.table_.inverse_transform(model.prototypes_) - model.cluster_centers_) / X.std(axis=0)
    assert np.abs(gaps).max() < 0.15


@pytest.mark.parametrize("seed", range(3))
def test_labels_are_ordered_by_size(seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(80, 3))
    sizes = np.bincount(quick(5, random_state=seed).fit_predict(X))
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)


def test_the_number_of_clusters_is_found(blobs: Blobs) -> None:
    X, truth = blobs
    model = quick("auto", max_clusters=6).fit(X)
    np.testing.assert_array_equal(model.labels_, truth)
    assert "k was chosen from 2 to 6" in model.notes_[-1]


def test_rows_of_weight_zero_have_no_influence(blobs: Blobs) -> None:
    X, truth = blobs
    fourth = X[truth == 0][:30] + np.array([0.0, 0.0, 3.0, 0.0])
    model = quick().fit(np.concatenate([X, fourth]), sample_weight=np.repeat([1.0, 0.0], [150, 30]))
    np.testing.assert_array_equal(model.labels_[:150], truth)
    weight = np.zeros(150)
    weight[[np.flatnonzero(truth == k)[0] for k in range(3)]] = 1.0
    assert np.isfinite(quick(batch_size=8).fit(X, sample_weight=weight).prototypes_).all()


def test_partial_fit_keeps_labels_and_quality(blobs: Blobs) -> None:
    X, truth = blobs
    model = quick()
    scores = []
    for part in np.array_split(np.arange(150), 5):
        model.partial_fit(X[part])
        scores.append(model.score(X))
        assert model.labels_.shape == (30,)
    first = quick().partial_fit(X[:30]).predict(X)
    assert (model.predict(X) == first).mean() > 0.95
    assert adjusted_rand_score(truth, model.predict(X)) > 0.95
    assert scores[-1] > scores[0] - 0.1


@pytest.mark.parametrize(
    "settings",
    [{}, {"metric": "mahalanobis"}, {"metric": "cosine"}, {"prototype_weights": "learned"}, {"n_clusters": "auto"}],
    ids=str,
)
def test_a_loaded_model_equals_the_saved_one(settings: dict[str, Any], blobs: Blobs, tmp_path: Path) -> None:
    X = blobs[0]
    model = quick(**settings).fit(X)
    model.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert isinstance(loaded, ClAM)
    for method in ("predict", "predict_proba", "energy", "entropy", "transform", "trajectories"):
        np.testing.assert_array_equal(getattr(loaded, method)(X), getattr(model, method)(X), err_msg=method)
    assert loaded.score(X) == model.score(X)
    for name in ("n_clusters_", "beta_", "silhouette_", "history_", "runs_", "notes_", "n_features_in_"):
        assert getattr(loaded, name) == getattr(model, name), name
    np.testing.assert_array_equal(loaded.cluster_centers_, model.cluster_centers_)


def test_a_loaded_model_continues_its_stream(blobs: Blobs, tmp_path: Path) -> None:
    X = blobs[0]
    model = quick().fit(X[:80])
    model.save(tmp_path / "model.safetensors")
    loaded = ClAM.load(tmp_path / "model.safetensors").set_params(random_state=0)
    np.testing.assert_array_equal(loaded.partial_fit(X[80:]).prototypes_, model.partial_fit(X[80:]).prototypes_)


def test_column_names_are_saved(tmp_path: Path, blobs: Blobs) -> None:
    frame = pd.DataFrame(blobs[0], columns=list("abcd")).assign(e=np.where(blobs[1] == 0, "red", "blue"))
    model = quick().fit(frame)
    model.save(tmp_path / "model.safetensors")
    loaded = ClAM.load(tmp_path / "model.safetensors")
    assert loaded.feature_names_in_.tolist() == list("abcde")
    np.testing.assert_array_equal(loaded.predict(frame), model.labels_)
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame.rename(columns={"a": "z"}))


@pytest.mark.usefixtures("untouched_random_state")
@pytest.mark.parametrize("random_state", [0, np.random.RandomState(0)], ids=["int", "RandomState"])
def test_a_seed_gives_the_same_model_with_any_number_of_threads(random_state: Any, fitted: ClAM, blobs: Blobs) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        model = quick(random_state=random_state).fit(blobs[0])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(model.prototypes_, fitted.prototypes_)
    np.testing.assert_array_equal(model.probabilities_, fitted.probabilities_)
    quick(random_state=None).fit(blobs[0])


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan", "mahalanobis"])
@pytest.mark.parametrize("objective", ["masked", "unmasked"])
def test_every_metric_and_objective(metric: str, objective: str) -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [50, 40, 30])
    X = 6.0 * np.eye(3)[truth] + rng.normal(size=(120, 3)) * 0.5
    model = quick(beta="auto", metric=metric, objective=objective, init="k-means", min_cluster_size=10).fit(X)
    assert adjusted_rand_score(truth, model.labels_) > 0.95
    np.testing.assert_array_equal(model.transform(X).argmin(axis=1), model.labels_)
    assert model.trajectories(X).shape == (6, 120, 3)
    for values in (model.energy(X), model.entropy(X), model.transform(X), model.cluster_centers_):
        assert np.isfinite(values).all()
    if metric == "cosine":
        np.testing.assert_allclose(np.linalg.norm(model.prototypes_, axis=1), 1.0, rtol=1e-5)


def test_prototypes_without_rows_are_moved_unless_allowed(blobs: Blobs) -> None:
    X = blobs[0]
    far = np.concatenate([X[[0, 50, 100]], X[[0]] + 1e4, X[[0]] - 1e4])
    settings: dict[str, Any] = {"init": far, "n_restarts": 1, "beta": 4.0, "epochs": 2}
    allowed = quick(5, min_cluster_size=0, **settings).fit(X)
    assert allowed.n_clusters_ < 5
    assert allowed.predict_proba(X).shape == (150, allowed.n_clusters_)
    assert len(allowed.cluster_centers_) == allowed.n_clusters_
    assert any("own no row" in note for note in allowed.notes_)
    moved = quick(5, **settings).fit(X)
    assert (np.bincount(moved.labels_, minlength=5) > 0).all()
    assert any("prototypes without rows were moved" in note for note in moved.notes_)


def test_initial_prototypes_can_be_given(blobs: Blobs) -> None:
    X, truth = blobs
    init = np.stack([X[truth == k].mean(axis=0) for k in (2, 0, 1)])
    model = quick(init=init, n_restarts=1, beta=4.0, learning_rate=1e-9, epochs=1).fit(X)
    np.testing.assert_allclose(model.cluster_centers_, init[[1, 2, 0]], rtol=1e-4)
    assert model.runs_[0]["init"] == "given"
    with pytest.raises(InputError, match=r"init has 3 rows.*n_clusters as an integer \(now 'auto'\)"):
        quick("auto", init=init).fit(X)


def test_progress_is_reported(blobs: Blobs, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Progress] = []
    quick(n_restarts=8, callback=seen.append, verbose=True).fit(blobs[0])  # enough runs for two rounds
    assert [progress.step for progress in seen] == list(range(1, len(seen) + 1))
    assert {progress.steps for progress in seen} == {len(seen)}
    assert all(progress.loss is not None and np.isfinite(progress.loss) for progress in seen)
    assert capsys.readouterr().err.startswith("ClAM: 2%, step 1 of ")


def test_faithful_is_the_published_configuration(blobs: Blobs) -> None:
    model = ClAM.faithful(7, beta=2.4)
    expected = {
        "n_clusters": 7, "beta": 2.4, "code_beta": True, "steps": 10, "learning_rate": (1e-3, 1e-2, 1e-1),
        "mask_rate": 0.2, "fill": ("mean", "max", "min"), "init": "normal", "scaling": "standard", "epochs": 200,
        "batch_size": 8, "legacy_mask": True, "plateau": True, "halving": False, "min_cluster_size": 0,
        "n_restarts": 10, "objective": "masked", "metric": "euclidean", "prototype_weights": None,
    }  # fmt: skip
    assert {name: model.get_params()[name] for name in expected} == expected
    X, truth = blobs
    settings: dict[str, Any] = {"epochs": 12, "n_restarts": 2, "learning_rate": 0.1, "beta": 2.0, "mask_rate": 0.5}
    model = ClAM.faithful(3, **settings, fill="mean", batch_size=32, random_state=0).fit(X)
    assert model.beta_ == 1.0, "the authors' beta is twice the paper's"
    assert len(model.history_["loss"]) == 12
    assert adjusted_rand_score(truth, model.labels_) > 0.9


def test_it_works_in_pipelines_grids_and_with_set_output(blobs: Blobs) -> None:
    X, truth = blobs
    pipeline = make_pipeline(StandardScaler(), quick())
    np.testing.assert_array_equal(pipeline.fit_predict(X), truth)
    assert make_pipeline(quick(), StandardScaler()).fit_transform(X).shape == (150, 3)
    distances = quick().set_output(transform="pandas").fit_transform(X)
    assert distances.columns.tolist() == ["clam0", "clam1", "clam2"]
    points = ParameterGrid({"n_clusters": [2, 3, 4], "metric": ["euclidean"]})
    found = [clone(quick()).set_params(**point).fit(X).silhouette_ for point in points]
    assert int(np.argmax(found)) == 1


def test_runs_are_recorded(fitted: ClAM, blobs: Blobs) -> None:
    assert len(fitted.runs_) == 6
    assert sum(run["chosen"] for run in fitted.runs_) == 1
    assert fitted.beta_ in {0.5, 4.0}
    assert len(fitted.history_["loss"]) == 10
    assert fitted.history_["loss"][-1] < fitted.history_["loss"][0]
    by_loss = quick(select="loss").fit(blobs[0]).runs_
    losses = [run["loss"] for run in by_loss if run["n_clusters_found"] == 3]
    assert next(run["loss"] for run in by_loss if run["chosen"]) == min(losses)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform", "energy", "entropy", "trajectories"])
def test_new_rows_must_have_the_columns_of_fit(method: str, fitted: ClAM) -> None:
    with pytest.raises(ValueError, match=r"3 features.*expecting 4"):
        getattr(fitted, method)(np.zeros((2, 3)))


def test_the_first_round_of_halving_uses_a_subsample() -> None:
    X = np.random.default_rng(0).normal(size=(30_000, 2)) + 6.0 * np.arange(30_000)[:, None] % 2
    model = quick(2, n_restarts=8, epochs=2).fit(X)
    assert "of 30,000 rows; the best" in model.notes_[0]
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_parameters_with_several_values_span_a_grid() -> None:
    grid: dict[str, Any] = {
        "beta": [0.5, 1.0],
        "learning_rate": (0.1, 0.2),
        "mask_rate": [0.2, 0.4],
        "fill": ("mean", "max"),
    }
    model = ClAM(3, **grid, n_restarts=2, epochs=1, halving=False).fit(ROWS)
    assert len(model.runs_) == 2**5
    assert len({tuple(run[name] for name in grid) for run in model.runs_}) == 2**4


def test_halving_trains_only_the_better_runs_to_the_end() -> None:
    settings: dict[str, Any] = {"n_restarts": 8, "epochs": 6, "beta": 1.0, "random_state": 0}
    halved, whole = ClAM(3, **settings).fit(ROWS), ClAM(3, **settings, halving=False).fit(ROWS)
    assert len(halved.runs_) < len(whole.runs_) == 16
    assert "were trained to the end" in halved.notes_[0]


def test_a_minimum_cluster_size_is_kept_if_possible() -> None:
    outlier = np.concatenate([ROWS, [[50.0, 50.0, 50.0]]])
    settings: dict[str, Any] = {"n_restarts": 8, "epochs": 3, "beta": 4.0, "random_state": 0, "scaling": "standard"}
    assert np.bincount(ClAM(2, **settings, min_cluster_size=5).fit(outlier).labels_).min() >= 5
    impossible = ClAM(2, **settings, min_cluster_size=15).fit(outlier)
    assert "no run kept every cluster above" in impossible.notes_[-1]


INVALID: dict[str, list[Any]] = {
    "n_clusters": [0, 2.5, True, "many", None, 21],
    "max_clusters": [0],
    "beta": [0.0, -1.0, float("nan"), float("inf"), "hot", (), None, ["a"]],
    "steps": [0, 1.5],
    "learning_rate": [0, [0.1, -0.1], "fast", None],
    "mask_rate": [0.0, 1.0, None],
    "fill": ["median", ["mean", "mode"], (), None],
    "n_restarts": [0],
    "init": ["random", np.zeros((2, 3)), np.zeros((3, 2)), np.zeros(3), None],
    "select": ["best"],
    "min_cluster_size": [-1, 1.5, "small"],
    "objective": ["hidden"],
    "metric": ["hamming", None],
    "prototype_weights": ["given", [1.0, 2.0], [1.0, -1.0, 1.0], [1.0, np.inf, 1.0], ["a", "b", "c"]],
    "epochs": [0, "few"],
    "batch_size": [0, "large"],
    "halving": ["yes"],
    "scaling": ["minmax"],
    "device": ["abacus", 3.5],
    "random_state": ["seed"],
}
VALID: dict[str, list[Any]] = {
    "n_clusters": [np.int64(3), 20, 1],
    "beta": [np.float32(2.0), np.array([0.5, 1.0])],
    "mask_rate": [[0.1, 0.5]],
    "fill": [("mean", "min", "max")],
    "init": ["spread", "data", "normal", ROWS[:3].tolist()],
    "min_cluster_size": [4],
    "prototype_weights": [[1.0, 2.0, 3.0], "learned"],
    "scaling": ["none"],
    "batch_size": [1000],
    "steps": [1],
    "plateau": [True],
    "device": ["cpu"],
}


def pairs(values: dict[str, list[Any]]) -> list[Any]:
    return [pytest.param(name, value, id=f"{name}={value}") for name, each in values.items() for value in each]


@pytest.mark.parametrize(("name", "value"), pairs(INVALID))
def test_invalid_parameters_raise_an_error_that_names_them(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name):
        ClAM(**({"n_clusters": 3, "epochs": 1, "n_restarts": 1} | {name: value})).fit(ROWS)


@pytest.mark.parametrize(("name", "value"), pairs(VALID))
def test_valid_parameters_are_accepted(name: str, value: Any) -> None:
    settings: dict[str, Any] = {"n_clusters": 3, "epochs": 2, "n_restarts": 1, "random_state": 0}
    model = ClAM(**(settings | {name: value})).fit(ROWS)
    assert np.isfinite(model.cluster_centers_).all()
    assert model.n_clusters_ == (value if name == "n_clusters" else 3)
    np.testing.assert_array_equal(model.predict(ROWS), model.labels_)


@pytest.mark.parametrize(
    "weight", [np.ones(3), np.ones((20, 1)), np.full(20, -1.0), np.zeros(20), np.full(20, np.nan), ["a"] * 20], ids=str
)
def test_invalid_sample_weights_raise_an_error(weight: Any) -> None:
    with pytest.raises(InputError, match="sample_weight"):
        ClAM(3, epochs=1, n_restarts=1).fit(ROWS, sample_weight=weight)


def test_legacy_masks_that_hide_no_feature_raise_an_error() -> None:
    with pytest.raises(InputError, match="mask_rate"):
        ClAM(3, legacy_mask=True, mask_rate=0.1, epochs=2).fit(ROWS)
