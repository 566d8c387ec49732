"""Coterie on tables as people have them: junk columns, mixed types, gaps, noise, and no clusters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from coterie import Coterie
from coterie.errors import InputError, TableError
from coterie.judged.estimator import find_repeated_column
from coterie.judged.space import Space
from coterie.methods import load

Floats = npt.NDArray[np.float64]


def quick(**settings: Any) -> Coterie:
    defaults: dict[str, Any] = {"effort": "fast", "random_state": 0}
    return Coterie(**(defaults | settings))


def numbers(n: int = 240, seed: int = 0, apart: float = 6.0) -> tuple[pd.DataFrame, np.ndarray]:
    """Make four clear blobs in six columns."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % 4
    centres = np.array([[0, 0, 1, 0, 1, 1], [0, 1, 0, 1, 1, 0], [1, 0, 0, 1, 0, 1], [1, 1, 1, 0, 0, 0]])
    return pd.DataFrame(apart * centres[truth] + rng.normal(size=(n, 6)), columns=list("abcdef")), truth


def mixed(n: int = 240, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Add a category that goes with the blobs, a junk one and a date; one value in fifteen is missing."""
    frame, truth = numbers(n, seed)
    rng = np.random.default_rng(seed + 100)
    frame["plan"] = np.array(["free", "home", "team", "firm"])[truth]
    frame["city"] = rng.choice(["Bonn", "Kiel", "Ulm"], n)
    frame["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(900, size=n), unit="D")
    return frame.mask(rng.random(frame.shape) < 1 / 15), truth


@pytest.mark.parametrize("levels", [2, 3, 5])
def test_a_junk_category_costs_nothing(levels: int) -> None:
    frame, truth = numbers()
    alone = adjusted_rand_score(truth, quick().fit(frame).labels_)
    frame["junk"] = np.random.default_rng(levels).choice([f"level {index}" for index in range(levels)], len(frame))
    model = quick().fit(frame)
    assert adjusted_rand_score(truth, model.labels_) >= alone - 0.02
    assert not any("repeat the column" in note for note in model.notes_)


@pytest.mark.parametrize("share", [0.03, 0.1])
def test_gaps_make_no_cluster(share: float) -> None:
    frame, truth = numbers()
    gaps = np.random.default_rng(1).random(frame.shape) < share
    model = quick(n_clusters=4).fit(frame.mask(gaps))
    assert adjusted_rand_score(truth, model.labels_) > 0.95
    assert np.isfinite(model.cluster_centers_).all()


def test_gaps_in_one_column_are_information_only_on_request() -> None:
    frame, truth = numbers()
    gap = np.random.default_rng(1).random(len(frame)) < 0.3
    frame.loc[gap, "a"] = np.nan
    for missing in ("ignore", "indicator"):
        model = quick(n_clusters=4, missing=missing).fit(frame)
        assert adjusted_rand_score(truth, model.labels_) > 0.95
        assert ("a is missing" in [feature.name for feature in model.table_.features]) == (missing == "indicator")


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("missing", ["ignore", "indicator"])
def test_predictions_on_mixed_tables_are_the_labels(noise: bool, missing: str, tmp_path: Path) -> None:
    frame, truth = mixed()
    model = quick(noise=noise, missing=missing, column_weights={"since": 0.2}).fit(frame)
    np.testing.assert_array_equal(model.predict(frame), model.labels_)
    np.testing.assert_array_equal(model.predict_proba(frame), model.probabilities_)
    inside = model.labels_ >= 0
    assert inside.all() or noise
    assert adjusted_rand_score(truth[inside], model.labels_[inside]) > 0.9
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    new = mixed(seed=1)[0]
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))


def test_new_rows_are_predicted_one_by_one_as_together() -> None:
    frame, _ = mixed()
    model = quick(n_clusters=4).fit(frame)
    new = mixed(40, seed=1)[0]
    together = model.predict(new)
    assert [int(model.predict(new.iloc[[index]])[0]) for index in range(len(new))] == together.tolist()


def repeating(n: int = 300) -> pd.DataFrame:
    """Make a table in which only a two-level column has clusters, and nothing predicts it."""
    rng = np.random.default_rng(0)
    return pd.DataFrame({"x": rng.normal(size=n), "group": rng.choice(["old", "new"], n)})


def test_the_discrete_column_that_clusters_repeat_is_found() -> None:
    frame = repeating()
    space = Space(np.column_stack([frame["x"], frame["group"] == "old"]))
    labels = (frame["group"] == "old").to_numpy().astype(np.int64)
    found = find_repeated_column(space, labels)
    assert found is not None
    assert found[0] == 1
    np.testing.assert_array_equal(found[1], labels)
    assert find_repeated_column(space, (frame["x"] > 0.0).to_numpy().astype(np.int64)) is None
    assert find_repeated_column(space, np.zeros(len(frame), dtype=np.int64)) is None


def test_a_repeated_column_is_named_and_the_runner_up_does_not_repeat_it() -> None:
    frame = pd.DataFrame({"flag": np.repeat(["no", "yes"], 60), "x": np.r_[np.zeros(60), np.full(60, 30.0)]})
    frame["x"] += np.random.default_rng(0).normal(size=120)
    model = quick(allow_single=False).fit(frame)
    labels = (frame["flag"] == "yes").to_numpy()
    assert adjusted_rand_score(labels, model.labels_) == 1.0
    (note,) = (note for note in model.notes_ if "repeat the column" in note)
    assert note.startswith("The clusters repeat the column 'flag'. For clusters without it, give it the weight 0")
    assert "best candidate that does not" in note
    assert model.runner_up_ is not None
    assert model.runner_up_["n_clusters"] > 2


def test_a_weight_of_0_equals_leaving_the_column_out() -> None:
    frame, _ = mixed()
    weighted = quick(column_weights={"city": 0.0}).fit(frame)
    without = quick().fit(frame.drop(columns="city"))
    np.testing.assert_array_equal(weighted.labels_, without.labels_)
    np.testing.assert_array_equal(weighted.probabilities_, without.probabilities_)
    assert weighted.confidence_ == without.confidence_
    np.testing.assert_array_equal(weighted.predict(frame.assign(city="Rom")), weighted.labels_)


def test_weights_of_1_change_nothing() -> None:
    frame, truth = numbers()
    frame["half"] = np.where(np.random.default_rng(5).random(len(frame)) < 0.5, "left", "right")
    usual = quick(n_clusters=2).fit(frame)
    np.testing.assert_array_equal(quick(n_clusters=2, column_weights={"half": 1.0}).fit(frame).labels_, usual.labels_)
    assert abs(adjusted_rand_score(frame["half"], usual.labels_)) < 0.1
    assert adjusted_rand_score(truth, quick(n_clusters=4).fit(frame).labels_) > 0.95


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"column_weights": [1.0]}, "column_weights=.* must be a dict of column names to factors"),
        ({"column_weights": {"a": -1.0}}, r"column_weights\['a'\]=-1.0 must be a finite number of at least 0"),
        ({"missing": "drop"}, "missing='drop' must be one of 'ignore', 'indicator'"),
        ({"allow_single": "maybe"}, "allow_single='maybe' must be"),
        ({"n_jobs": 0.5}, "n_jobs=0.5 must be an integer"),
    ],
)
def test_wrong_parameters_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        quick(**settings).fit(numbers()[0])


def test_weights_of_unknown_columns_are_rejected() -> None:
    with pytest.raises(TableError, match=r"'plam'. Did you mean 'plan'\?"):
        quick(column_weights={"plam": 1.0}).fit(mixed()[0])


def test_one_cluster_is_an_answer_if_it_is_allowed() -> None:
    cloud = np.random.default_rng(0).normal(size=(150, 3))
    several = quick(allow_single=False).fit(cloud)
    assert several.n_clusters_ > 1
    auto, allowed = quick().fit(cloud), quick(allow_single=True).fit(cloud)
    assert allowed.n_clusters_ <= auto.n_clusters_  # with True less evidence is needed
    for model in (auto, allowed):
        if model.n_clusters_ == 1:
            assert (model.chosen_, model.runner_up_) == (None, model.candidates_[0])
            assert model.notes_[-1] == "All rows form one cluster: no separation was found."
        assert 0.0 <= model.confidence_ <= 1.0
    frame, truth = numbers()
    for value in (False, True, "auto"):
        assert adjusted_rand_score(truth, quick(allow_single=value).fit(frame).labels_) > 0.95


def noisy(n: int = 900) -> tuple[Floats, np.ndarray]:
    """Make three dense discs in a sparse background, which is an eighth of the rows."""
    rng = np.random.default_rng(0)
    truth = np.arange(n) % 3
    rows = np.array([[0.2, 0.2], [0.8, 0.3], [0.5, 0.8]])[truth] + 0.03 * rng.normal(size=(n, 2))
    background = rng.random((n // 8, 2))
    return np.concatenate([rows, background]), np.concatenate([truth, np.full(len(background), -1)])


def test_background_noise_is_labelled_if_asked_for(tmp_path: Path) -> None:
    X, truth = noisy()
    marked, joined = quick(noise=True).fit(X), quick().fit(X)
    found, there = marked.labels_ == -1, truth == -1
    assert (found & there).sum() > 0.7 * there.sum()
    assert (found & there).sum() > 0.7 * found.sum()
    assert adjusted_rand_score(truth[~there], marked.labels_[~there]) > 0.9
    assert adjusted_rand_score(truth[~there], joined.labels_[~there]) > 0.95
    assert joined.labels_.min() == 0
    assert (marked.n_clusters_, joined.n_clusters_) == (3, 3)
    for model, said in ((marked, "They have the label -1."), (joined, "They joined the clusters found")):
        (note,) = (note for note in model.notes_ if "background noise" in note)
        assert said in note
        np.testing.assert_array_equal(model.predict(X), model.labels_)
        model.save(tmp_path / "model.safetensors", force=True)
        np.testing.assert_array_equal(load(tmp_path / "model.safetensors").predict(X), model.labels_)
        assert (model.alternative(2, X).min() == -1) == (model is marked)


@pytest.mark.parametrize("n_jobs", [2, -1])
def test_threads_change_nothing(n_jobs: int) -> None:
    frame, _ = mixed()
    one, several = quick(n_jobs=1, effort="balanced").fit(frame), quick(n_jobs=n_jobs, effort="balanced").fit(frame)
    assert several.candidates_ == one.candidates_
    np.testing.assert_array_equal(several.probabilities_, one.probabilities_)


@settings(max_examples=4)
@given(st.integers(0, 1000))
def test_the_order_of_rows_and_columns_does_not_matter_where_clusters_are_clear(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame, _ = numbers(120, seed)
    frame["city"] = rng.choice(["Bonn", "Kiel", "Ulm"], len(frame))
    labels = quick().fit(frame).labels_
    rows, columns = rng.permutation(len(frame)), rng.permutation(frame.shape[1])
    assert adjusted_rand_score(labels[rows], quick().fit(frame.iloc[rows]).labels_) == 1.0
    assert adjusted_rand_score(labels, quick().fit(frame.iloc[:, columns]).labels_) == 1.0


def test_columns_of_many_texts_change_nothing() -> None:
    frame, _ = numbers()
    named = frame.assign(name=[f"customer {index}" for index in range(len(frame))])
    model = quick().fit(named)
    np.testing.assert_array_equal(model.labels_, quick().fit(frame).labels_)
    assert "name" not in [feature.column for feature in model.table_.features]


def test_heavy_tails_do_not_hide_clusters() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(300) % 3
    centres = np.array([[0.0, 0.0, 4.0], [4.0, 0.0, 0.0], [0.0, 4.0, 0.0]])
    X = np.exp(1.5 * (centres[truth] + 0.4 * rng.normal(size=(300, 3))))
    assert adjusted_rand_score(truth, quick(n_clusters=3).fit(X).labels_) > 0.95


COLUMNS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy-tailed": lambda rng, n: np.exp(4.0 * rng.normal(size=n)),
    "huge": lambda rng, n: 1e30 * rng.standard_cauchy(n),
    "few numbers": lambda rng, n: rng.integers(0, 5, n).astype(np.float64),
    "text": lambda rng, n: rng.choice(["red", "green", "blue"], n),
    "rare": lambda rng, n: rng.random(n) < 0.05,
    "constant": lambda _, n: np.full(n, 3.0),
    "date": lambda rng, n: pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(900, size=n), unit="D"),
}


@settings(max_examples=12)
@given(
    kinds=st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=6),
    n=st.integers(2, 90),
    gaps=st.sampled_from([0.0, 0.2]),
    noise=st.booleans(),
    missing=st.sampled_from(["ignore", "indicator"]),
    seed=st.integers(0, 1000),
)
def test_any_table_is_clustered_and_predicted_alike(
    kinds: list[str], n: int, gaps: float, noise: bool, missing: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({f"{kind} {index}": COLUMNS[kind](rng, n) for index, kind in enumerate(kinds)})
    gap = rng.random(frame.shape) < gaps
    gap[0] = False  # no column is empty
    frame = frame.mask(gap)
    model = quick(noise=noise, missing=missing).fit(frame)
    np.testing.assert_array_equal(model.predict(frame), model.labels_)
    np.testing.assert_allclose(model.probabilities_.sum(axis=1), 1.0, rtol=1e-5)
    assert set(model.labels_) - {-1} == set(range(model.n_clusters_))
