"""Coterie as users meet it: what it finds, what it promises, what it rejects, and unusual tables."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from coterie import Coterie
from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.errors import InputError, WeightsError
from coterie.judged.sample import SAMPLE_ROWS
from coterie.methods import load
from coterie.pretrained.registry import load_pretrained
from tests.judged.sets import blobs

Floats = npt.NDArray[np.float64]


def quick(**settings: Any) -> Coterie:
    defaults: dict[str, Any] = {"effort": "fast", "random_state": 0}
    return Coterie(**(defaults | settings))


@pytest.fixture(scope="module")
def rows() -> Floats:
    return blobs(90)[0]


@pytest.fixture(scope="module")
def fitted(rows: Floats) -> Coterie:
    return quick().fit(rows)


def assert_consistent(model: Coterie, X: Any) -> None:
    """Check that the fitted attributes are complete and agree with each other."""
    sizes = np.bincount(model.labels_[model.labels_ >= 0], minlength=model.n_clusters_)
    assert len(sizes) == model.n_clusters_
    assert sizes.min() > 0
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.predict_proba(X), model.probabilities_)
    np.testing.assert_allclose(model.probabilities_.sum(axis=1), 1.0, rtol=1e-5)
    assert np.isfinite(model.cluster_centers_).all()
    assert model.cluster_centers_.shape == (model.n_clusters_, len(model.table_.features))
    # There is no confidence in what was asked for.
    assert np.isnan(model.confidence_) if model.n_clusters == 1 else 0.0 <= model.confidence_ <= 1.0


def test_blobs_and_moons_are_found() -> None:
    for (X, truth), least in ((blobs(150), 1.0), (make_moons(200, noise=0.04, random_state=0), 0.95)):
        model = quick().fit(X)
        assert_consistent(model, X)
        assert adjusted_rand_score(truth, model.labels_) >= least
        assert (np.diff(np.bincount(model.labels_)) <= 0).all()


def test_large_tables_are_sampled_and_notes_say_so() -> None:
    X, truth = blobs(SAMPLE_ROWS["fast"] + 500)
    model = quick(n_clusters=4).fit(X)
    assert_consistent(model, X)
    assert adjusted_rand_score(truth, model.labels_) > 0.98
    assert model.notes_[0].startswith("Clusters were found in a random sample of 1,000 rows;")


@pytest.mark.usefixtures("untouched_random_state")
def test_the_same_seed_gives_the_same_result_on_any_number_of_threads(rows: Floats, fitted: Coterie) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with threadpool_limits(2):
            again = quick().fit(rows)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(again.probabilities_, fitted.probabilities_)
    assert again.candidates_ == fitted.candidates_


@pytest.mark.parametrize("noise", [False, True])
def test_a_saved_model_predicts_the_same(noise: bool, rows: Floats, tmp_path: Path) -> None:
    model = quick(n_clusters=4, noise=noise).fit(rows)
    model.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert isinstance(loaded, Coterie)
    new = np.concatenate([rows, rows + 0.3, [[400.0, 400.0, 400.0]]])
    np.testing.assert_array_equal(loaded.predict(new), model.predict(new))
    np.testing.assert_array_equal(loaded.predict_proba(new), model.predict_proba(new))
    assert (loaded.predict(new)[-1] == -1) == noise
    for name in ("n_clusters_", "confidence_", "candidates_", "levels_", "chosen_", "runner_up_", "notes_"):
        assert getattr(loaded, name) == getattr(model, name), name
    np.testing.assert_array_equal(loaded.cluster_centers_, model.cluster_centers_)
    assert "labels_" not in vars(loaded)
    with pytest.raises(InputError, match="This model has no candidates: it was read from a file"):
        loaded.shortlist()
    loaded.save(tmp_path / "again.safetensors")
    first, second = (load_checkpoint(tmp_path / f"{name}.safetensors")[0] for name in ("model", "again"))
    assert {name: value.shape for name, value in first.items()} == {name: value.shape for name, value in second.items()}


def test_models_of_version_0_1_load(rows: Floats, tmp_path: Path) -> None:
    model = quick(n_clusters=2).fit(rows)
    path = tmp_path / "model.safetensors"
    model.save(path)
    arrays, card = load_checkpoint(path)
    card["proposals"] = card.pop("candidates")
    parameters = {"n_clusters": None, "judge": card["parameters"]["weights"], "effort": "fast", "noise": False}
    save_checkpoint(path, arrays, card | {"parameters": parameters}, force=True)
    loaded = Coterie.load(path)
    assert (loaded.n_clusters, loaded.weights, loaded.candidates_) == ("auto", "auto", model.candidates_)
    np.testing.assert_array_equal(loaded.predict(rows), model.labels_)


def test_effort_thorough_warns_and_means_balanced(tmp_path: Path) -> None:
    X = blobs(60, spread=2.0)[0]
    expected = quick(effort="balanced").fit(X)
    model = quick(effort="thorough")
    message = 'effort="thorough" is deprecated; it is now the same as "balanced", which is used instead'
    with pytest.warns(FutureWarning, match=message) as caught:
        model.fit(X)
    assert [each.filename for each in caught] == [__file__]
    assert model.get_params()["effort"] == "thorough"
    assert model.candidates_ == expected.candidates_
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    model.save(tmp_path / "model.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = Coterie.load(tmp_path / "model.safetensors")
    assert loaded.effort == "balanced"
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 29, 30])
def test_the_given_number_of_clusters_is_found(k: int) -> None:
    X = blobs(30)[0]
    model = quick(n_clusters=k).fit(X)
    assert_consistent(model, X)
    assert model.n_clusters_ == k
    assert {each["n_clusters"] for each in model.candidates_} <= {k}


def test_the_number_that_would_be_found_can_be_given_without_a_change(rows: Floats) -> None:
    found = quick().fit(rows)
    given = quick(n_clusters=found.n_clusters_).fit(rows)
    np.testing.assert_array_equal(given.labels_, found.labels_)
    assert given.confidence_ == found.confidence_


def test_rows_without_groups_get_the_given_number_of_clusters() -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = quick(n_clusters=5, effort="balanced").fit(X)
    assert_consistent(model, X)
    assert model.n_clusters_ == 5


def test_far_rows_are_outliers_if_asked_for() -> None:
    X = np.concatenate([blobs(120)[0], [[90.0, 90.0, 90.0]]])
    model = quick(noise=True).fit(X)
    assert_consistent(model, X)
    assert model.labels_[-1] == -1
    assert (model.labels_ == -1).mean() < 0.1
    assert model.predict([[90.0, 90.0, 90.0], [-500.0, 0.0, 0.0]]).tolist() == [-1, -1]
    assert quick(n_clusters=2).fit(X).labels_.min() == 0
    given = quick(n_clusters=5, noise=True).fit(X)
    assert_consistent(given, X)
    assert given.n_clusters_ == 5


def test_granularity_changes_the_number_of_clusters(rows: Floats, fitted: Coterie) -> None:
    fewer, more = (quick(granularity=granularity).fit(rows).n_clusters_ for granularity in (-50.0, 50.0))
    assert fewer <= fitted.n_clusters_ <= more
    assert fewer < more


def test_clusters_keep_their_numbers() -> None:
    X, _ = blobs(120)
    X = X[np.r_[0:120:4, 1:80:4, 2:60:4, 3:40:4]]  # 30, 20, 15 and 10 rows
    model = quick(n_clusters=4, keep_ids=True).fit(X)
    first = model.labels_
    order = np.random.default_rng(1).permutation(len(X))[:60]
    order = order[np.argsort(first[order] == 0, kind="stable")][:-12]  # the largest cluster is no longer the largest
    model.fit(X[order] + 0.01)
    np.testing.assert_array_equal(model.labels_, first[order])
    assert_consistent(model, X[order] + 0.01)
    assert model.fit(X[:, :2]).n_clusters_ == 4  # other columns: nothing to keep


def test_the_most_probable_clusters_agree_with_the_memberships(rows: Floats, fitted: Coterie) -> None:
    clusters, probabilities = fitted.predict_top(rows, m=2)
    memberships = fitted.predict_proba(rows)
    np.testing.assert_array_equal(clusters[:, 0], fitted.predict(rows))
    np.testing.assert_array_equal(probabilities, np.take_along_axis(memberships, clusters, axis=1))
    np.testing.assert_array_equal(probabilities, -np.sort(-memberships, axis=1)[:, :2])
    assert fitted.predict_top(rows, m=99)[0].shape == (len(rows), fitted.n_clusters_)
    for wrong in (0, 1.5, "two"):
        with pytest.raises(InputError, match="must be an integer of at least 1"):
            fitted.predict_top(rows, m=wrong)  # type: ignore[arg-type]  # that is the point


def test_candidates_levels_and_choice_are_consistent(rows: Floats, fitted: Coterie) -> None:
    with pytest.warns(FutureWarning, match="proposals_ of Coterie is deprecated; use candidates_"):
        assert fitted.proposals_ == fitted.candidates_
    scores = [each["score"] for each in fitted.candidates_]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) >= 0.0
    assert fitted.confidence_ == scores[0]
    assert [each["n_clusters"] for each in fitted.levels_] == sorted({c["n_clusters"] for c in fitted.candidates_})
    for level in fitted.levels_:
        same = [each["score"] for each in fitted.candidates_ if each["n_clusters"] == level["n_clusters"]]
        assert level["score"] == max(same)
        assert len(np.unique(fitted.alternative(level["n_clusters"], rows))) <= level["n_clusters"]
    assert fitted.runner_up_ in fitted.candidates_[1:]
    assert fitted.chosen_ in fitted.shortlist(3)
    chosen = fitted.candidates_[0]
    name = f"{chosen['algorithm']} on {chosen['columns']} columns"
    assert fitted.notes_[-1] == f"Chosen from {len(scores)} candidates: {name}."
    with pytest.raises(InputError, match=r"no candidate with n_clusters=77\. Choose one of: 2, 3"):
        fitted.alternative(77, rows)


def test_a_single_cluster_may_be_allowed() -> None:
    X = np.random.default_rng(0).normal(size=(80, 2))
    assert_consistent(quick(allow_single=True).fit(X), X)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_clusters": 0}, "n_clusters=0 must be an integer of at least 1, or 'auto'"),
        ({"max_clusters": 1}, "max_clusters=1 must be an integer of at least 2"),
        ({"granularity": float("nan")}, "granularity=nan must be a finite number"),
        ({"effort": "lots"}, "effort='lots' must be one of 'fast', 'balanced'"),
    ],
)
def test_wrong_parameters_are_rejected(settings: dict[str, Any], message: str, rows: Floats) -> None:
    with pytest.raises(InputError, match=message):
        quick(**settings).fit(rows)


def test_files_without_a_judge_are_rejected(rows: Floats, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="are of the method 'dac', not of a judge"):
        quick(weights="dac-plane-v1").fit(rows)
    with pytest.raises(WeightsError, match="zebra"):
        quick(weights="zebra").fit(rows)
    arrays, card = load_pretrained("judge-v2")
    path = tmp_path / "judge.safetensors"
    save_checkpoint(path, arrays, {key: value for key, value in card.items() if key != "calibration"}, force=True)
    with pytest.raises(WeightsError, match=r"lack part of a judge \('calibration'\)"):
        quick(weights=path).fit(rows)


def test_a_failed_fit_leaves_nothing_to_predict_with(rows: Floats, tmp_path: Path) -> None:
    model = quick(n_clusters=2, keep_ids=True).fit(rows)
    with pytest.raises(InputError, match="n_clusters=3 is more than the distinct rows among the 10 rows"):
        model.set_params(n_clusters=3).fit(np.repeat(rows[:2, :2], 5, axis=0))
    with pytest.raises(NotFittedError):
        model.predict(rows[:, :2])
    with pytest.raises(NotFittedError):
        model.save(tmp_path / "model.safetensors")
    assert model.set_params(n_clusters=2).fit(rows[:, :2]).n_clusters_ == 2


def mixed(n: int = 90) -> tuple[pd.DataFrame, np.ndarray]:
    """Make two kinds of customers that differ in numbers, words and dates, with missing values in each."""
    rng = np.random.default_rng(0)
    kind = np.arange(n) % 2
    frame = pd.DataFrame(
        {
            "spent": np.where(kind, 500.0, 20.0) + rng.normal(size=n),
            "plan": np.where(kind, "firm", "private"),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(kind * 900 + rng.integers(0, 9, n), unit="D"),
            "active": kind == 1,
        }
    )
    frame.loc[::17, "spent"] = np.nan
    frame.loc[5::19, "plan"] = None
    frame.loc[3::23, "since"] = pd.NaT
    return frame, kind


def test_numbers_words_dates_and_missing_values() -> None:
    frame, kind = mixed()
    model = quick(n_clusters=2).fit(frame)
    assert_consistent(model, frame)
    assert adjusted_rand_score(kind, model.labels_) > 0.8
    assert model.feature_names_in_.tolist() == list(frame)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["active", "since", "plan", "spent"]])


@pytest.mark.parametrize("k", ["auto", 6, 7])
def test_equal_rows_stay_together(k: Any) -> None:
    X = np.repeat(blobs(7, k=4)[0], 5, axis=0)
    model = quick(n_clusters=k).fit(X)
    assert_consistent(model, X)
    assert all(len(set(part)) == 1 for part in model.labels_.reshape(7, 5).tolist())
    assert k in ("auto", model.n_clusters_)


@pytest.mark.parametrize("X", [np.full((12, 3), 7.0), np.array([[3.0, 4.0]])], ids=["equal rows", "one row"])
@pytest.mark.parametrize("noise", [False, True])
def test_rows_that_do_not_differ_are_one_cluster(X: np.ndarray, noise: bool) -> None:
    model = quick(noise=noise).fit(X)
    assert_consistent(model, X)
    assert model.n_clusters_ == 1
    assert model.labels_.tolist() == [0] * len(X)
    assert (model.candidates_, model.levels_, model.runner_up_) == ([], [], None)
    assert model.notes_ == ("All rows form one cluster: no separation was found.",)


@pytest.mark.parametrize(
    "X",
    [
        pd.DataFrame({"a": list("xxyyzz") * 5, "b": list("uuvvuu") * 5}),
        np.array([[3.0, 4.0], [5.0, 1.0]]),
        np.concatenate([np.linspace(0, 1, 30), np.linspace(9, 10, 40)])[:, None],
        np.where(blobs(40, d=2)[0] > 3.0, 1.7e308, -1.7e308),
    ],
    ids=["words alone", "two rows", "one column", "largest floats"],
)
@pytest.mark.parametrize("k", ["auto", 2])
def test_unusual_tables(X: Any, k: Any) -> None:
    model = quick(n_clusters=k).fit(X)
    assert_consistent(model, X)
    assert k in ("auto", model.n_clusters_)


@pytest.mark.parametrize("scale", [1e300, [1e300, 1e-300, 1.0], [1e-300, 1e-300, 1e300]], ids=str)
def test_huge_and_tiny_units(scale: float | list[float]) -> None:
    X, truth = blobs(80)
    model = quick(n_clusters=4).fit(X * scale)
    assert_consistent(model, X * scale)
    assert adjusted_rand_score(truth, model.labels_) == 1.0


def test_constant_columns_change_nothing() -> None:
    X, _ = blobs(80)
    wide = np.column_stack([np.full(80, 3.0), X, np.zeros(80)])
    np.testing.assert_array_equal(quick(n_clusters=4).fit(wide).labels_, quick(n_clusters=4).fit(X).labels_)
