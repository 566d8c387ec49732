"""DAC and AMCP as estimators: weights, results, files. Training is tested in test_learn.py."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score, silhouette_score
from torch import Generator

from coterie import AMCP, DAC
from coterie.amortized.amcp.config import AmcpConfig
from coterie.amortized.dac.config import DacConfig
from coterie.checkpoint import save_checkpoint
from coterie.config import to_dict
from coterie.errors import InputError, WeightsError
from coterie.methods import load
from coterie.nn.model import build, to_arrays
from coterie.tables.table import as_table

Floats = npt.NDArray[np.float64]
Estimator = type[DAC] | type[AMCP]
SMALL: dict[Any, dict[str, Any]] = {
    DAC: {"width": 16, "heads": 2, "inducing": 4, "depth": 1, "mask_depth": 1, "context_width": 8},
    AMCP: {"width": 8, "hidden": 16, "depth": 1, "em_steps": 2, "context_width": 8},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "robust": {},
    "faithful": {"decoding": "faithful"},
    "sampled": {"max_points": 40},
    "sampled, faithful": {"max_points": 40, "decoding": "faithful"},
}
CASES = [
    *((DAC, network, way) for network in ("gaussian", "flow", "statistician", "none", "anchored") for way in SETTINGS),
    *((AMCP, network, way) for network in ("gaussian", "flow", "none", "anchored") for way in SETTINGS),
]


def write_weights(
    path: Path, estimator: Estimator = DAC, n_features: int = 2, *, scaling: str = "standard", **settings: Any
) -> Path:
    """Write a tiny, untrained network."""
    config_class = DacConfig if estimator is DAC else AmcpConfig
    config = config_class(n_features, **(SMALL[estimator] | settings))
    model = build(estimator.model_class, config, Generator().manual_seed(3))
    card = {"method": estimator.method, "model": to_dict(config), "scaling": scaling, "name": "tiny"}
    save_checkpoint(path, to_arrays(model.state_dict()), card, force=False)
    return path


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[Any, str], Path]:
    folder = tmp_path_factory.mktemp("weights")
    networks: dict[str, dict[str, Any]] = {
        **{name: {"density": name} for name in ("gaussian", "flow", "statistician", "none")},
        "anchored": {"filtering": "anchored"},
        "four": {"n_features": 4},
        "unscaled": {"scaling": "none"},
    }
    return {
        (estimator, name): write_weights(folder / f"{estimator.method}-{name}.safetensors", estimator, **settings)
        for estimator in (DAC, AMCP)
        for name, settings in networks.items()
        if (estimator, name) != (AMCP, "statistician")
    }


def groups(columns: int = 2, seed: int = 0) -> tuple[Floats, npt.NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    truth = np.repeat([0, 1, 2], [60, 50, 30])
    X = 9.0 * rng.normal(size=(3, columns))[truth] + rng.normal(size=(140, columns))
    return X * 10.0 ** np.arange(columns) + 3.0, truth


def assert_consistent(model: DAC | AMCP, X: Any, rows: int) -> None:
    """Check that all results are finite, and that labels, probabilities and centres agree."""
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


@pytest.mark.parametrize(("estimator", "network", "way"), CASES)
def test_predict_repeats_the_labels_and_files_change_nothing(
    estimator: Estimator, network: str, way: str, weights: Any, tmp_path: Path
) -> None:
    X, _ = groups(columns=3)
    model = estimator(weights=str(weights[estimator, network]), random_state=0, **SETTINGS[way]).fit(X)
    assert_consistent(model, X, 140)
    np.testing.assert_array_equal(model.predict(X[:9]), model.labels_[:9])
    np.testing.assert_array_equal(clone(model).fit_predict(X), model.labels_)
    assert ("40 of the 140 rows" in " ".join(model.notes_)) == way.startswith("sampled")
    model.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert type(loaded) is estimator
    assert loaded.get_params() == model.get_params()
    assert (loaded.n_clusters_, loaded.notes_, loaded.n_features_in_) == (model.n_clusters_, model.notes_, 3)
    np.testing.assert_allclose(loaded.predict_proba(X + 0.1), model.predict_proba(X + 0.1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(loaded.cluster_centers_, model.cluster_centers_)
    np.testing.assert_array_equal(loaded.fit(X).labels_, model.labels_)


def test_an_unfitted_model_can_be_saved(weights: Any, tmp_path: Path) -> None:
    X, _ = groups()
    model = DAC(weights=weights[DAC, "flow"], random_state=0)
    model.save(tmp_path / "model.safetensors")
    loaded = DAC.load(tmp_path / "model.safetensors")
    with pytest.raises(NotFittedError):
        loaded.predict(X)
    np.testing.assert_array_equal(loaded.fit_predict(X), model.fit_predict(X))


def test_a_fitted_model_serves_as_weights(weights: Any, tmp_path: Path) -> None:
    X, _ = groups(columns=3)
    fitted = DAC(weights=weights[DAC, "gaussian"], random_state=0).fit(X)
    fitted.save(tmp_path / "model.safetensors")
    again = DAC(weights=tmp_path / "model.safetensors", random_state=0)
    np.testing.assert_array_equal(again.fit_predict(X), fitted.labels_)


def test_parameters_reach_the_network(weights: Any) -> None:
    X, _ = groups()
    model = DAC(weights=weights[DAC, "gaussian"], random_state=0).fit(X)
    assert model.set_params(weights=weights[DAC, "flow"]).fit(X).model_.config.density == "flow"
    assert model.set_params(decoding="faithful").fit(X).model_.config.decoding == "faithful"
    plain: Any = AMCP(weights=weights[AMCP, "none"]).fit(X).model_.config
    assert (plain.em_steps, plain.update_previous, plain.decoding) == (2, False, "robust")
    settings: dict[str, Any] = {"em_steps": 4, "update_previous": True, "decoding": "faithful"}
    assert AMCP(weights=weights[AMCP, "none"], **settings).fit(X).model_.config == replace(plain, **settings)


def test_fit_and_save_without_weights_raise() -> None:
    for call in (DAC(weights=None).fit, AMCP(weights=None).fit_predict):
        with pytest.raises(InputError, match=r"Call learn\(tasks\) first"):
            call(groups()[0])
    with pytest.raises(InputError, match=r"Call learn\(tasks\) first"):
        DAC(weights=None).save("nowhere.safetensors")


def test_unsuitable_weights_are_rejected(tmp_path: Path) -> None:
    config = to_dict(DacConfig(2, **SMALL[DAC]))
    save_checkpoint(tmp_path / "other.safetensors", {}, {"method": "clam", "model": config}, force=False)
    save_checkpoint(tmp_path / "part.safetensors", {}, {"method": "dac", "model": config}, force=False)
    messages: dict[Any, str] = {
        tmp_path / "other.safetensors": "for the method 'clam', not 'dac'",
        tmp_path / "part.safetensors": "lack part of a network",
        "dac-plain": "dac-plain",
        "amcp-plane-v1": "for the method 'amcp', not 'dac'",
        tmp_path / "absent.safetensors": "absent",
    }
    for name, message in messages.items():
        with pytest.raises(WeightsError, match=message):
            DAC(weights=name).fit(groups()[0])


@pytest.mark.parametrize("columns", [1, 2, 3, 5])
def test_any_number_of_columns_is_mapped_to_those_of_the_network(columns: int, weights: Any) -> None:
    X, _ = groups(columns)
    model = DAC(weights=weights[DAC, "gaussian"], random_state=0).fit(X)
    assert_consistent(model, X, 140)
    words = {1: "the 1 of the data are repeated", 2: None}.get(columns, f"the {columns} of the data are replaced")
    assert model.notes_ == () if words is None else words in model.notes_[0]


@pytest.mark.usefixtures("untouched_random_state")
@pytest.mark.parametrize("network", ["gaussian", "anchored"])
def test_the_same_seed_gives_the_same_result(network: str, weights: Any) -> None:
    X, _ = groups()
    settings: dict[str, Any] = {"weights": weights[DAC, network], "max_points": 30}
    seeds = (7, 7, np.random.RandomState(7))
    first, second, third = (DAC(random_state=seed, **settings).fit(X).probabilities_ for seed in seeds)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, third)
    DAC(**settings).fit(X)


@pytest.mark.parametrize("network", ["gaussian", "flow"])
@pytest.mark.parametrize("decoding", ["robust", "faithful"])
def test_densities_integrate_to_one(decoding: Any, network: str, weights: Any) -> None:
    X, _ = groups()
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = DAC(weights=weights[DAC, network], random_state=0, scaling="none", decoding=decoding).fit(X)
    axis = np.linspace(-30.0, 30.0, 601)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    mass = np.exp(model.score_samples(grid).astype(np.float64)).sum() * (axis[1] - axis[0]) ** 2
    assert mass == pytest.approx(1.0, abs=0.05)
    assert model.score(X) == pytest.approx(float(model.score_samples(X).mean()))


@pytest.mark.parametrize("estimator", [DAC, AMCP])
def test_a_network_without_a_density_is_scored_by_the_silhouette(estimator: Estimator, weights: Any) -> None:
    X, _ = groups()
    model = estimator(weights=weights[estimator, "none"], random_state=0).fit(X)
    with pytest.raises(InputError, match="no density"):
        model.score_samples(X)
    several = model.n_clusters_ > 1
    expected = silhouette_score(model.table_.transform(as_table(X)), model.labels_) if several else 0.0
    assert model.score(X) == pytest.approx(expected, abs=1e-5)


def test_dataframes_with_missing_values_categories_and_dates(weights: Any, tmp_path: Path) -> None:
    X, truth = groups()
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame["kind"] = np.where(truth == 0, "x", "y")
    frame["when"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(truth * 10, unit="D")
    frame.loc[3, ["a", "kind", "when"]] = None
    model = DAC(weights=weights[DAC, "gaussian"], random_state=0).fit(frame)
    assert_consistent(model, frame, 140)
    assert model.feature_names_in_.tolist() == ["a", "b", "kind", "when"]
    assert "principal components" in model.notes_[0]
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
    ids=["one row", "equal rows", "two rows", "constant column", "huge", "missing", "duplicates"],
)
@pytest.mark.parametrize("estimator", [DAC, AMCP])
def test_degenerate_tables(X: Floats, network: str, estimator: Estimator, weights: Any) -> None:
    model = estimator(weights=weights[estimator, network], random_state=0).fit(X)
    assert_consistent(model, X, len(X))
    far = np.array([[-1e300, 1e300], [np.nan, np.nan], [1e9, 0.0]])
    assert np.isfinite(model.predict_proba(far)).all()
    if network != "none":
        assert np.isfinite(model.score_samples(np.concatenate([X, far]))).all()


def test_unscaled_values_that_are_too_large_are_rejected(weights: Any) -> None:
    X, _ = groups()
    with pytest.raises(InputError, match=r"as large as 1e\+09 cannot be used unscaled"):
        DAC(weights=weights[DAC, "unscaled"]).fit(np.concatenate([X, [[1e9, 0.0]]]))
    assert_consistent(DAC(weights=weights[DAC, "unscaled"], scaling="standard").fit(X), X, 140)


@pytest.mark.parametrize(
    "model", [DAC(weights="dac-mog2d-v2", random_state=0), AMCP(random_state=0)], ids=["dac", "amcp"]
)
def test_shipped_weights_find_separated_blobs(model: DAC | AMCP) -> None:
    scores = []
    for seed in range(4):
        X, y = make_blobs(300, centers=4, cluster_std=0.4, center_box=(-6, 6), random_state=seed)
        scores.append(adjusted_rand_score(y, model.fit(X).labels_))
    assert np.mean(scores) > 0.9
