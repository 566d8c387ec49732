"""DAC as users meet it: weights, results, files and company. Learning is in tests/estimators/test_dac_learn.py."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

from coterie import DAC
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel
from coterie.amortized.features import match_features, place_features
from coterie.checkpoint import save_checkpoint
from coterie.config import to_dict
from coterie.errors import InputError, WeightsError
from coterie.methods import load
from coterie.nn.model import build

Floats = npt.NDArray[np.float64]
SMALL: dict[str, Any] = {"width": 16, "heads": 2, "inducing": 4, "depth": 1, "mask_depth": 1, "context_width": 8}
WAYS: dict[str, dict[str, Any]] = {
    "robust": {},
    "faithful": {"decoding": "faithful"},
    "drawn": {"max_points": 40},
    "drawn and faithful": {"max_points": 40, "decoding": "faithful"},
}


def write_weights(path: Path, n_features: int = 2, *, scaling: str = "standard", **settings: Any) -> Path:
    """A file with a tiny network that has not learned anything."""
    config = DacConfig(n_features, **(SMALL | settings))
    model = build(DacModel, config, torch.Generator().manual_seed(3))
    card = {"method": "dac", "model": to_dict(config), "scaling": scaling, "name": "tiny"}
    save_checkpoint(path, model.state_dict(), card, force=False)
    return path


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("weights")
    densities = ("gaussian", "flow", "statistician", "none")
    files = {name: write_weights(folder / f"{name}.safetensors", density=name) for name in densities}
    files["anchored"] = write_weights(folder / "anchored.safetensors", filtering="anchored")
    files["four"] = write_weights(folder / "four.safetensors", 4)
    files["unscaled"] = write_weights(folder / "unscaled.safetensors", scaling="none")
    return files


def groups(columns: int = 2, seed: int = 0) -> tuple[Floats, npt.NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    truth = np.repeat([0, 1, 2], [60, 50, 30])
    X = 9.0 * rng.normal(size=(3, columns))[truth] + rng.normal(size=(140, columns))
    return X * 10.0 ** np.arange(columns) + 3.0, truth


def assert_sound(model: DAC, X: Any, rows: int) -> None:
    """Everything that a user may read is a number, and labels agree with each other."""
    assert model.labels_.shape == (rows,)
    assert model.labels_.dtype == np.int64
    sizes = np.bincount(model.labels_)
    assert len(sizes) == model.n_clusters_
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)
    assert sizes.min() > 0
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.predict_proba(X), model.probabilities_)
    np.testing.assert_allclose(model.probabilities_.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(model.probabilities_.argmax(axis=1), model.labels_)
    assert np.isfinite(model.cluster_centers_).all()
    assert model.cluster_centers_.shape == (model.n_clusters_, len(model.table_.features))


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
@pytest.mark.parametrize("network", ["gaussian", "flow", "statistician", "none", "anchored"])
def test_predict_repeats_the_labels(network: str, way: dict[str, Any], weights: dict[str, Path]) -> None:
    X, _ = groups()
    model = DAC(weights[network], random_state=0, **way).fit(X)
    assert_sound(model, X, 140)
    np.testing.assert_array_equal(model.predict(X[:9]), model.labels_[:9])
    np.testing.assert_array_equal(DAC(weights[network], random_state=0, **way).fit_predict(X), model.labels_)
    assert ("40 of the 140 rows" in " ".join(model.notes_)) == ("max_points" in way)


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_saved_and_loaded_models_are_equal(way: dict[str, Any], weights: dict[str, Path], tmp_path: Path) -> None:
    X, _ = groups(columns=3)
    model = DAC(str(weights["gaussian"]), random_state=0, **way).fit(X)
    model.save(tmp_path / "model.safetensors")
    for loaded in (DAC.load(tmp_path / "model.safetensors"), load(tmp_path / "model.safetensors")):
        assert isinstance(loaded, DAC)
        np.testing.assert_array_equal(loaded.predict(X), model.labels_)
        np.testing.assert_array_equal(loaded.predict_proba(X), model.probabilities_)
        np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))
        np.testing.assert_array_equal(loaded.cluster_centers_, model.cluster_centers_)
        assert loaded.get_params() == model.get_params()
        for name in ("n_clusters_", "notes_", "history_", "runs_", "n_features_in_"):
            assert getattr(loaded, name) == getattr(model, name), name
        np.testing.assert_array_equal(loaded.fit(X).labels_, model.labels_)


def test_saved_before_fit(weights: dict[str, Path], tmp_path: Path) -> None:
    X, _ = groups()
    DAC(weights["flow"], random_state=0).save(tmp_path / "model.safetensors")
    loaded = DAC.load(tmp_path / "model.safetensors")
    with pytest.raises(NotFittedError):
        loaded.predict(X)
    np.testing.assert_array_equal(loaded.fit_predict(X), DAC(weights["flow"], random_state=0).fit_predict(X))


def test_a_fitted_model_serves_as_weights(weights: dict[str, Path], tmp_path: Path) -> None:
    X, _ = groups(columns=3)
    fitted = DAC(weights["gaussian"], random_state=0).fit(X)
    fitted.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(DAC(tmp_path / "model.safetensors", random_state=0).fit_predict(X), fitted.labels_)


def test_weights_are_those_that_the_parameters_name(weights: dict[str, Path]) -> None:
    X, _ = groups()
    model = DAC(weights["gaussian"], random_state=0).fit(X)
    assert isinstance(model.model_, DacModel)
    model.set_params(weights=weights["flow"]).fit(X)
    assert model.model_.config.density == "flow"
    model.set_params(decoding="faithful").fit(X)
    assert model.model_.config.decoding == "faithful"


def test_without_weights_there_is_nothing_to_fit_with() -> None:
    for call in (DAC(None).fit, DAC(None).fit_predict):
        with pytest.raises(InputError, match=r"call learn\(tasks\) first"):
            call(groups()[0])
    with pytest.raises(InputError, match=r"call learn\(tasks\) first"):
        DAC(None).save("nowhere.safetensors")


def test_weights_of_another_kind_are_refused(tmp_path: Path, weights: dict[str, Path]) -> None:
    config = to_dict(DacConfig(2, **SMALL))
    save_checkpoint(tmp_path / "other.safetensors", {}, {"method": "clam", "model": config}, force=False)
    save_checkpoint(tmp_path / "part.safetensors", {}, {"method": "dac", "model": config}, force=False)
    X, _ = groups()
    with pytest.raises(WeightsError, match="for the method 'clam', not 'dac'"):
        DAC(tmp_path / "other.safetensors").fit(X)
    with pytest.raises(WeightsError, match="lack part of a network"):
        DAC(tmp_path / "part.safetensors").fit(X)
    with pytest.raises(WeightsError, match="No weights are called 'dac-plain'"):
        DAC("dac-plain").fit(X)
    with pytest.raises(WeightsError, match="no model file"):
        DAC(tmp_path / "absent.safetensors").fit(X)
    assert weights["gaussian"].is_file()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_points", 0),
        ("max_points", "all"),
        ("max_points", 2.5),
        ("decoding", "greedy"),
        ("scaling", "minmax"),
        ("device", "abacus"),
        ("random_state", "seed"),
    ],
)
def test_bad_parameters_are_refused_by_name(name: str, value: Any, weights: dict[str, Path]) -> None:
    with pytest.raises(InputError, match=name):
        DAC(weights["gaussian"]).set_params(**{name: value}).fit(groups()[0])


@pytest.mark.parametrize("columns", [1, 2, 3, 5])
def test_any_number_of_columns(columns: int, weights: dict[str, Path]) -> None:
    X, _ = groups(columns)
    model = DAC(weights["gaussian"], random_state=0).fit(X)
    assert_sound(model, X, 140)
    words = {1: "the 1 of the data are repeated", 2: None, 3: "of the 3 of the data", 5: "of the 5 of the data"}[
        columns
    ]
    assert model.notes_ == () if words is None else words in model.notes_[0]
    assert model.cluster_centers_.shape[1] == columns


def test_principal_components_have_unit_variance_and_a_fixed_sign() -> None:
    x = torch.from_numpy(groups(5)[0]).float()
    matched = match_features(x, 2, standardised=True)
    assert matched is not None
    seen = matched[0].to(x)(x)
    torch.testing.assert_close(seen.mean(dim=0), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(seen.std(dim=0, correction=0), torch.ones(2), atol=1e-3, rtol=0)
    largest = matched[0].matrix.gather(0, matched[0].matrix.abs().argmax(dim=0, keepdim=True))
    assert (largest > 0).all()
    opposite = match_features(-x, 2, standardised=True)
    assert opposite is not None
    torch.testing.assert_close(opposite[0].matrix, matched[0].matrix)
    unscaled = match_features(x, 2, standardised=False)
    assert unscaled is not None
    torch.testing.assert_close(unscaled[0].matrix.norm(dim=0), torch.ones(2, dtype=torch.float64))


def test_components_that_are_only_rounding_are_not_made_large() -> None:
    line = torch.linspace(-1, 1, 50)
    x = torch.stack([line, 2 * line, -line, 0.3 * line], dim=1)
    matched = match_features(x, 2, standardised=True)
    assert matched is not None
    seen = matched[0].to(x)(x)
    torch.testing.assert_close(seen[:, 0], seen[:, 1])
    assert "the first 1 principal components are used, which hold 100% of the variance" in matched[1]


def test_features_are_placed_by_name() -> None:
    assert place_features(["a", "b"], ["a", "b"]) is None
    assert place_features(["a", "z"], ["a", "b"]) is None
    placed = place_features(["c", "a"], ["a", "b", "c"])
    assert placed is not None
    assert placed[0](torch.tensor([[1.0, 2.0]])).tolist() == [[2.0, 0.0, 1.0]]
    assert placed[1] == "without a say, since each has one value here: 'b'"


@pytest.mark.usefixtures("untouched_random_state")
@pytest.mark.parametrize("network", ["gaussian", "anchored"])
def test_the_same_seed_gives_the_same_labels(network: str, weights: dict[str, Path]) -> None:
    X, _ = groups()
    first, second = (DAC(weights[network], max_points=30, random_state=7).fit(X) for _ in range(2))
    np.testing.assert_array_equal(first.probabilities_, second.probabilities_)
    other = DAC(weights[network], max_points=30, random_state=np.random.RandomState(7)).fit(X)
    np.testing.assert_array_equal(first.probabilities_, other.probabilities_)
    DAC(weights[network], max_points=30).fit(X)


def test_threads_change_nothing(weights: dict[str, Path]) -> None:
    X, _ = groups()
    alone = DAC(weights["gaussian"], random_state=0).fit(X)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        model = DAC(weights["gaussian"], random_state=0).fit(X)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(model.probabilities_, alone.probabilities_)


@pytest.mark.parametrize("network", ["gaussian", "flow"])
@pytest.mark.parametrize("way", ["robust", "faithful"])
def test_densities_integrate_to_one(way: Any, network: str, weights: dict[str, Path]) -> None:
    X, _ = groups()
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = DAC(weights[network], random_state=0, scaling="none", decoding=way).fit(X)
    axis = np.linspace(-30.0, 30.0, 601)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    mass = np.exp(model.score_samples(grid).astype(np.float64)).sum() * (axis[1] - axis[0]) ** 2
    assert mass == pytest.approx(1.0, abs=0.05)
    assert model.score(X) == pytest.approx(float(model.score_samples(X).mean()))


def test_without_a_density_there_is_no_score(weights: dict[str, Path]) -> None:
    X, _ = groups()
    model = DAC(weights["none"], random_state=0).fit(X)
    for call in (model.score_samples, model.score):
        with pytest.raises(InputError, match="no density"):
            call(X)


def test_frames_with_gaps_categories_and_dates(weights: dict[str, Path], tmp_path: Path) -> None:
    X, truth = groups()
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame["kind"] = np.where(truth == 0, "x", "y")
    frame["when"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(truth * 10, unit="D")
    frame.loc[3, ["a", "kind", "when"]] = None
    model = DAC(weights["gaussian"], random_state=0).fit(frame)
    assert_sound(model, frame, 140)
    assert model.feature_names_in_.tolist() == ["a", "b", "kind", "when"]
    assert "principal components" in model.notes_[0]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))
    model.save(tmp_path / "model.safetensors")
    loaded = DAC.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(frame), model.labels_)
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame.rename(columns={"a": "z"}))


@pytest.mark.parametrize("network", ["gaussian", "flow", "none", "four"])
@pytest.mark.parametrize(
    "X",
    [
        np.array([[3.0, 4.0]]),
        np.full((12, 2), 7.0),
        np.array([[1.0, 2.0], [5.0, 1.0]]),
        np.column_stack([np.arange(30.0), np.full(30, 2.0)]),
        np.array([[1e300, 1.0], [0.0, 2.0], [1.0, 3.0], [2.0, -1e300]] * 5),
        np.array([[np.nan, 1.0], [np.inf, 2.0], [1.0, 3.0]] * 5),
        np.repeat([[0.0, 0.0], [1.0, 5.0]], 20, axis=0),
    ],
    ids=["one", "equal", "two", "constant column", "huge", "gaps", "copies"],
)
def test_odd_tables(X: Floats, network: str, weights: dict[str, Path]) -> None:
    model = DAC(weights[network], random_state=0).fit(X)
    assert_sound(model, X, len(X))
    far = np.array([[-1e300, 1e300], [np.nan, np.nan], [1e9, 0.0]])
    assert np.isfinite(model.predict_proba(far)).all()
    if network != "none":
        assert np.isfinite(model.score_samples(np.concatenate([X, far]))).all()


def test_unscaled_values_that_are_too_large_are_refused(weights: dict[str, Path]) -> None:
    X, _ = groups()
    with pytest.raises(InputError, match=r"as large as 1e\+09 cannot be used unscaled"):
        DAC(weights["unscaled"]).fit(np.concatenate([X, [[1e9, 0.0]]]))
    assert_sound(DAC(weights["unscaled"], scaling="standard").fit(X), X, 140)


def test_parameters_and_clones(weights: dict[str, Path]) -> None:
    model = DAC(weights["gaussian"], max_points=50, decoding="faithful").fit(groups()[0])
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(groups()[0])


def test_blobs_are_found_with_weights_that_ship() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [120, 80, 50])
    X = np.array([[-3.0, 0.0], [3.0, 1.0], [0.0, 5.0]])[truth] + 0.25 * rng.normal(size=(250, 2))
    model = DAC("dac-mog2d-v2", random_state=0).fit(X)
    assert adjusted_rand_score(truth, model.labels_) == pytest.approx(1.0)
    np.testing.assert_array_equal(model.labels_, truth)  # which is numbered by size, too
    assert model.score(X) > -3.0
