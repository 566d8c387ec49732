"""ClAM as users meet it: results, streams, files, company."""

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
from coterie.methods import load
from coterie.progress import Progress

Blobs = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]
METRICS = ["euclidean", "cosine", "manhattan", "mahalanobis"]


def quick(n_clusters: Any = 3, **settings: Any) -> ClAM:
    """A model that fits in a tenth of a second."""
    fast: dict[str, Any] = {"beta": (0.5, 4.0), "learning_rate": 0.1, "n_restarts": 3, "epochs": 10, "random_state": 0}
    return ClAM(n_clusters, **(fast | settings))


@pytest.fixture(scope="module")
def fitted(blobs: Blobs) -> ClAM:
    return quick().fit(blobs[0])


def test_blobs_are_found(fitted: ClAM, blobs: Blobs) -> None:
    np.testing.assert_array_equal(fitted.labels_, blobs[1])  # the fixture's groups are numbered by size, too
    assert fitted.labels_.dtype == np.int64
    assert fitted.n_clusters_ == 3
    assert np.asarray(fitted.silhouette_) > 0.6


def test_predict_repeats_the_labels(fitted: ClAM, blobs: Blobs) -> None:
    X = blobs[0]
    np.testing.assert_array_equal(fitted.predict(X), fitted.labels_)
    np.testing.assert_array_equal(fitted.predict(X[:7]), fitted.labels_[:7])
    np.testing.assert_array_equal(quick().fit_predict(X), fitted.labels_)


def test_memberships(fitted: ClAM, blobs: Blobs) -> None:
    memberships = fitted.predict_proba(blobs[0])
    assert memberships.shape == (150, 3)
    np.testing.assert_allclose(memberships.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(memberships.argmax(axis=1), fitted.labels_)
    np.testing.assert_array_equal(memberships, fitted.probabilities_)


def test_centres_are_the_means_in_the_units_of_the_input(fitted: ClAM, blobs: Blobs) -> None:
    X, truth = blobs
    means = np.stack([X[truth == k].mean(axis=0) for k in range(3)])
    np.testing.assert_allclose(fitted.cluster_centers_, means, rtol=1e-3, atol=1e-3 * X.std())


def test_prototypes_of_the_unmasked_objective_are_near_the_means(blobs: Blobs) -> None:
    X, _ = blobs
    model = quick(beta=20.0, objective="unmasked", epochs=40, scaling="standard").fit(X)
    gaps = (model.table_.inverse(model.prototypes_) - model.cluster_centers_) / X.std(axis=0)
    assert np.abs(gaps).max() < 0.15


def test_masked_prototypes_are_nearest_to_their_rows(fitted: ClAM, blobs: Blobs) -> None:
    """Prototypes of the masked objective overshoot, since a completed feature keeps a part of its fill value."""
    X, truth = blobs
    means = np.stack([X[truth == k].mean(axis=0) for k in range(3)])
    prototypes = fitted.table_.inverse(fitted.prototypes_)
    distances = np.linalg.norm((prototypes[:, None] - means) / X.std(axis=0), axis=2)
    assert distances.argmin(axis=1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", range(3))
def test_labels_are_ordered_by_size(seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(80, 3))
    sizes = np.bincount(quick(5, random_state=seed).fit_predict(X))
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)


def test_the_number_of_clusters_is_found(blobs: Blobs) -> None:
    X, truth = blobs
    model = quick("auto", max_clusters=6).fit(X)
    assert model.n_clusters_ == 3
    np.testing.assert_array_equal(model.labels_, truth)
    assert "k was chosen from 2 to 6" in model.notes_[-1]


def test_rows_of_weight_zero_have_no_say(blobs: Blobs) -> None:
    X, truth = blobs
    stray = X[truth == 0][:30] + np.array([0.0, 0.0, 3.0, 0.0])  # a fourth group that does not count
    weight = np.repeat([1.0, 0.0], [150, 30])
    model = quick().fit(np.concatenate([X, stray]), sample_weight=weight)
    np.testing.assert_array_equal(model.labels_[:150], truth)


def test_few_rows_of_any_weight_are_enough(blobs: Blobs) -> None:
    X, truth = blobs
    weight = np.zeros(150)
    weight[[np.flatnonzero(truth == k)[0] for k in range(3)]] = 1.0
    model = quick(batch_size=8).fit(X, sample_weight=weight)
    assert np.isfinite(model.prototypes_).all()


def test_a_stream_keeps_ids_and_quality(blobs: Blobs) -> None:
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
def test_saved_and_loaded_models_are_equal(settings: dict[str, Any], blobs: Blobs, tmp_path: Path) -> None:
    X = blobs[0]
    model = quick(**settings).fit(X)
    path = tmp_path / "model.safetensors"
    model.save(path)
    for loaded in (ClAM.load(path), load(path)):
        assert isinstance(loaded, ClAM)
        for method in ("predict", "predict_proba", "energy", "entropy", "transform", "trajectories"):
            np.testing.assert_array_equal(getattr(loaded, method)(X), getattr(model, method)(X), err_msg=method)
        assert loaded.score(X) == model.score(X)
        for name in ("n_clusters_", "beta_", "silhouette_", "history_", "runs_", "notes_", "n_features_in_"):
            assert getattr(loaded, name) == getattr(model, name), name
        np.testing.assert_array_equal(loaded.cluster_centers_, model.cluster_centers_)


def test_named_columns_survive_a_file(tmp_path: Path, blobs: Blobs) -> None:
    frame = pd.DataFrame(blobs[0], columns=list("abcd")).assign(e=np.where(blobs[1] == 0, "red", "blue"))
    model = quick().fit(frame)
    model.save(tmp_path / "model.safetensors")
    loaded = ClAM.load(tmp_path / "model.safetensors")
    assert loaded.feature_names_in_.tolist() == list("abcde")
    np.testing.assert_array_equal(loaded.predict(frame), model.labels_)
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame.rename(columns={"a": "z"}))


def test_a_loaded_model_goes_on_with_its_stream(blobs: Blobs, tmp_path: Path) -> None:
    X = blobs[0]
    model = quick().fit(X[:80])
    model.save(tmp_path / "model.safetensors")
    loaded = ClAM.load(tmp_path / "model.safetensors").set_params(random_state=0)
    np.testing.assert_array_equal(loaded.partial_fit(X[80:]).prototypes_, model.partial_fit(X[80:]).prototypes_)


@pytest.mark.usefixtures("untouched_random_state")
@pytest.mark.parametrize("random_state", [0, np.random.RandomState(0)], ids=["number", "RandomState"])
def test_the_same_seed_gives_the_same_model(random_state: Any, fitted: ClAM, blobs: Blobs) -> None:
    model = quick(random_state=random_state).fit(blobs[0])
    np.testing.assert_array_equal(model.prototypes_, fitted.prototypes_)
    np.testing.assert_array_equal(model.predict(blobs[0]), fitted.labels_)


@pytest.mark.usefixtures("untouched_random_state")
def test_without_a_seed_the_global_random_state_is_left_alone(blobs: Blobs) -> None:
    quick(random_state=None).fit(blobs[0])


def test_threads_change_nothing(fitted: ClAM, blobs: Blobs) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        model = quick().fit(blobs[0])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(model.prototypes_, fitted.prototypes_)
    np.testing.assert_array_equal(model.probabilities_, fitted.probabilities_)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("objective", ["masked", "unmasked"])
def test_every_metric_and_objective(metric: str, objective: str) -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [50, 40, 30])
    X = 6.0 * np.eye(3)[truth] + rng.normal(size=(120, 3)) * 0.5
    model = quick(beta="auto", metric=metric, objective=objective, init="k-means", min_cluster_size=10).fit(X)
    assert adjusted_rand_score(truth, model.labels_) > 0.95
    assert model.transform(X).shape == (120, 3)
    np.testing.assert_array_equal(model.transform(X).argmin(axis=1), model.labels_)
    assert model.trajectories(X).shape == (6, 120, 3)
    for values in (model.energy(X), model.entropy(X), model.transform(X), model.cluster_centers_):
        assert np.isfinite(values).all()


def test_cosine_prototypes_have_unit_length(blobs: Blobs) -> None:
    model = quick(metric="cosine").fit(blobs[0])
    np.testing.assert_allclose(np.linalg.norm(model.prototypes_, axis=1), 1.0, rtol=1e-5)


def test_empty_prototypes_are_revived_unless_allowed(blobs: Blobs) -> None:
    X = blobs[0]
    far = np.concatenate([X[[0, 50, 100]], X[[0]] + 1e4, X[[0]] - 1e4])
    settings: dict[str, Any] = {"init": far, "n_restarts": 1, "beta": 4.0, "epochs": 2}
    allowed = quick(5, min_cluster_size=0, **settings).fit(X)
    assert allowed.n_clusters_ < 5
    assert allowed.predict_proba(X).shape == (150, allowed.n_clusters_)
    assert len(allowed.cluster_centers_) == allowed.n_clusters_
    assert any("own no row" in note for note in allowed.notes_)
    revived = quick(5, **settings).fit(X)
    assert revived.n_clusters_ == 5
    assert (np.bincount(revived.labels_) > 0).all()
    assert any("owned no row" in note for note in revived.notes_)


def test_given_starts_are_used(blobs: Blobs) -> None:
    X, truth = blobs
    start = np.stack([X[truth == k].mean(axis=0) for k in (2, 0, 1)])
    model = quick(init=start, n_restarts=1, beta=4.0, learning_rate=1e-9, epochs=1).fit(X)
    np.testing.assert_allclose(model.cluster_centers_, start[[1, 2, 0]], rtol=1e-4)
    assert model.runs_[0]["start"] == "given"


def test_progress_is_reported(blobs: Blobs) -> None:
    seen: list[Progress] = []
    quick(n_restarts=8, on_progress=seen.append).fit(blobs[0])  # enough runs for two rounds
    steps = [progress.step for progress in seen]
    assert steps == list(range(1, seen[-1].steps + 1))
    assert {progress.steps for progress in seen} == {len(steps)}
    assert all(np.isfinite(progress.loss) for progress in seen)


def test_the_faithful_configuration_is_the_published_one() -> None:
    model = ClAM.faithful(7, beta=2.4)
    expected = {
        "n_clusters": 7, "beta": 2.4, "code_beta": True, "steps": 10, "learning_rate": (1e-3, 1e-2, 1e-1),
        "mask_rate": 0.2, "fill": ("mean", "max", "min"), "init": "normal", "scaling": "standard", "epochs": 200,
        "batch_size": 8, "legacy_mask": True, "plateau": True, "halving": False, "min_cluster_size": 0,
        "objective": "masked", "metric": "euclidean", "prototype_weights": None,
    }  # fmt: skip
    assert {name: model.get_params()[name] for name in expected} == expected


def test_the_faithful_configuration_works(blobs: Blobs) -> None:
    X, truth = blobs
    settings: dict[str, Any] = {"epochs": 12, "n_restarts": 2, "learning_rate": 0.1, "beta": 2.0, "mask_rate": 0.5}
    model = ClAM.faithful(3, **settings, fill="mean", batch_size=32, random_state=0).fit(X)
    assert model.beta_ == 1.0, "the authors' beta is twice the paper's"
    assert model.n_clusters_ <= 3
    assert len(model.history_["loss"]) == 12
    assert adjusted_rand_score(truth, model.labels_) > 0.9


def test_a_pipeline_takes_it_as_last_step_and_as_transformer(blobs: Blobs) -> None:
    X, truth = blobs
    pipeline = make_pipeline(StandardScaler(), quick())
    np.testing.assert_array_equal(pipeline.fit_predict(X), truth)
    np.testing.assert_array_equal(pipeline.predict(X), truth)
    assert make_pipeline(quick(), StandardScaler()).fit_transform(X).shape == (150, 3)


def test_output_can_be_a_frame(blobs: Blobs) -> None:
    distances = quick().set_output(transform="pandas").fit_transform(blobs[0])
    assert distances.columns.tolist() == ["clam0", "clam1", "clam2"]


def test_parameters_can_be_read_set_and_cloned(blobs: Blobs) -> None:
    model = clone(quick(beta=[1.0, 2.0], init=np.zeros((3, 4))))
    assert model.get_params()["beta"] == [1.0, 2.0]
    points = ParameterGrid({"n_clusters": [2, 3, 4], "metric": ["euclidean"]})
    found = [clone(quick()).set_params(**point).fit(blobs[0]).silhouette_ for point in points]
    assert int(np.argmax(found)) == 1
    with pytest.raises(ValueError, match="Invalid parameter 'clusters'"):
        quick().set_params(clusters=3)


def test_it_can_stand_in_for_a_topic_models_clusterer(blobs: Blobs) -> None:
    """What BERTopic does: fit(X, y=None), labels_, predict on new rows."""
    X, truth = blobs
    clusterer = quick()
    clusterer.fit(X.astype(np.float32), y=None)
    assert clusterer.labels_.tolist() == truth.tolist()
    assert clusterer.predict(X[:5].astype(np.float32)).tolist() == truth[:5].tolist()


def test_the_account_of_runs(fitted: ClAM) -> None:
    assert len(fitted.runs_) == 6
    assert sum(bool(run["chosen"]) for run in fitted.runs_) == 1
    assert fitted.beta_ in {0.5, 4.0}
    assert len(fitted.history_["loss"]) == 10
    assert fitted.history_["loss"][-1] < fitted.history_["loss"][0]


def test_the_run_of_least_loss_can_be_taken(blobs: Blobs) -> None:
    model = quick(select="loss").fit(blobs[0])
    chosen = next(run for run in model.runs_ if run["chosen"])
    losses: list[Any] = [run["loss"] for run in model.runs_ if run["found"] == 3]
    assert chosen["loss"] == min(losses)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform", "energy", "entropy", "trajectories"])
def test_new_rows_must_have_the_columns_of_fit(method: str, fitted: ClAM) -> None:
    with pytest.raises(ValueError, match=r"3 features.*expecting 4"):
        getattr(fitted, method)(np.zeros((2, 3)))


def test_many_rows_are_sampled_for_the_first_round_only() -> None:
    X = np.random.default_rng(0).normal(size=(30_000, 2)) + 6.0 * np.arange(30_000)[:, None] % 2
    model = quick(2, n_restarts=8, epochs=2).fit(X)
    assert "of 30,000 rows; the best" in model.notes_[0]
    assert len(model.labels_) == 30_000
    np.testing.assert_array_equal(model.predict(X), model.labels_)
