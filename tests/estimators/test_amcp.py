"""AMCP as users meet it: weights, results, settings of its own, learning, and files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from torch import Generator

from coterie import AMCP
from coterie.amortized.amcp.config import AmcpConfig
from coterie.amortized.amcp.network import AmcpModel
from coterie.checkpoint import save_checkpoint
from coterie.config import to_dict
from coterie.errors import InputError, WeightsError
from coterie.methods import load
from coterie.nn.model import build

SMALL: dict[str, Any] = {"width": 8, "hidden": 16, "depth": 1, "em_steps": 2, "context_width": 8}
WAYS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "faithful": {"decoding": "faithful"},
    "AMCP*": {"decoding": "faithful", "update_previous": True},
    "drawn": {"max_points": 40},
    "one step": {"em_steps": 1},
}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files with tiny networks that have not learned anything."""
    folder = tmp_path_factory.mktemp("weights")
    files = {}
    for density in ("gaussian", "flow", "none"):
        model = build(AmcpModel, AmcpConfig(2, density=density, **SMALL), Generator().manual_seed(3))
        card = {"method": "amcp", "model": to_dict(model.config), "scaling": "standard", "name": density}
        files[density] = folder / f"{density}.safetensors"
        save_checkpoint(files[density], model.state_dict(), card, force=False)
    return files


def spots(n: int = 150, centers: int = 3, seed: int = 0) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    X, y = make_blobs(n, centers=centers, cluster_std=0.5, center_box=(-8, 8), random_state=seed)
    return X, y


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
@pytest.mark.parametrize("density", ["gaussian", "flow", "none"])
def test_predict_repeats_the_labels_and_files_change_nothing(
    density: str, way: dict[str, Any], weights: dict[str, Path], tmp_path: Path
) -> None:
    X, _ = spots()
    model = AMCP(str(weights[density]), random_state=0, **way).fit(X)
    sizes = np.bincount(model.labels_)
    assert len(sizes) == model.n_clusters_
    assert sizes.min() > 0
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-5)
    model.save(tmp_path / "fitted.safetensors")
    again = load(tmp_path / "fitted.safetensors")
    assert type(again) is AMCP
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict(X + 0.1), model.predict(X + 0.1))


def test_settings_of_its_own_reach_the_network(weights: dict[str, Path]) -> None:
    X, _ = spots()
    plain = AMCP(weights["none"]).fit(X).model_.config
    assert (plain.em_steps, plain.update_previous, plain.decoding) == (2, False, "robust")
    changed = AMCP(weights["none"], em_steps=4, update_previous=True, decoding="faithful").fit(X).model_.config
    assert changed == replace(plain, em_steps=4, update_previous=True, decoding="faithful")
    with pytest.raises(InputError, match="em_steps=-1 must be a whole number of at least 0"):
        AMCP(weights["none"], em_steps=-1).fit(X)
    with pytest.raises(InputError, match="max_points"):
        AMCP(weights["none"], max_points=0).fit(X)


def test_densities_are_for_networks_that_have_them(weights: dict[str, Path]) -> None:
    X, _ = spots()
    model = AMCP(weights["gaussian"], random_state=0).fit(X)
    assert model.score_samples(X).shape == (len(X),)
    assert model.score(X) > model.score(X + 50)
    with pytest.raises(InputError, match="no density"):
        AMCP(weights["none"]).fit(X).score(X)


def test_blobs_are_found_with_weights_that_ship() -> None:
    scores = []
    for seed in range(4):
        X, y = spots(300, centers=4, seed=seed)
        model = AMCP(random_state=0).fit(1000 * X + 5)
        scores.append(adjusted_rand_score(y, model.labels_))
    assert np.mean(scores) > 0.9


def test_weights_of_another_method_are_refused() -> None:
    with pytest.raises(WeightsError, match="'dac'"):
        AMCP("dac-plane-v1").fit(spots()[0])


def test_it_learns_from_sorted_sets_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    tasks = [spots(60, centers=2 + seed % 3, seed=seed) for seed in range(8)]
    learned = AMCP(None, density="none", random_state=0).learn(tasks, steps=6, batch_size=2)
    assert set(learned.evaluation_) >= {"loss", "adjusted_rand_index"}
    AMCP(None, density="none", random_state=0).learn(tasks, steps=6, batch_size=2, folder=tmp_path / "run")
    again = AMCP(None, density="none", random_state=0).learn(tasks, steps=6, batch_size=2, folder=tmp_path / "run")
    ours, theirs = (model.fit(spots()[0]).model_.state_dict() for model in (learned, again))
    assert all((ours[name] == theirs[name]).all() for name in ours)
    np.testing.assert_array_equal(learned.labels_, again.labels_)


def test_images_are_learned_from() -> None:
    source = np.random.default_rng(0)
    kinds = np.repeat(np.arange(6), 8)
    images = (source.integers(0, 200, (6, 16, 16))[kinds] + source.integers(0, 50, (48, 16, 16))).astype(np.uint8)
    learned = AMCP(None, random_state=0).learn([(images, kinds)], steps=2, batch_size=2)
    assert learned.fit(images).labels_.shape == (48,)
    assert learned.model_.config.encoder == "strided"
