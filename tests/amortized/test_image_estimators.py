"""Every estimator takes arrays of images as they are."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.methods import get_method, load
from tests.test_estimators import FAST


def images(n: int = 30, channels: int = 3) -> NDArray[np.uint8]:
    rng = np.random.default_rng(0)
    bright = (np.arange(n) % 3 > 0)[:, None, None, None] * 150
    return (bright + rng.integers(0, 60, (n, 6, 5, channels))).astype(np.uint8)


@pytest.mark.parametrize("name", ["coterie", "clam", "dac"])
def test_images_are_clustered_by_their_pixels(name: str, tmp_path: Any) -> None:
    X = images()
    model = get_method(name).load_estimator()(**FAST[name]).set_params(random_state=0)
    labels = model.fit_predict(X)
    assert model.n_features_in_ == 90
    np.testing.assert_array_equal(model.predict(X), labels)
    flat = get_method(name).load_estimator()(**FAST[name]).set_params(random_state=0).fit_predict(X.reshape(30, -1))
    np.testing.assert_array_equal(labels, flat)
    model.save(tmp_path / "model.safetensors")
    loaded: Any = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(torch.from_numpy(X)), labels)


def test_shapes_of_images_are_checked_and_grey_needs_no_channel() -> None:
    model: Any = get_method("clam").load_estimator()(**FAST["clam"]).set_params(random_state=0)
    model.fit(images(channels=1)[..., 0])
    with pytest.raises(InputError, match=r"shape \(5, 6, 1\).*fitted on images of shape \(6, 5, 1\)"):
        model.predict(images(channels=1)[..., 0].transpose(0, 2, 1))
    assert len(model.predict(images(channels=1).reshape(30, -1))) == 30
    model.fit(images(channels=1))
    np.testing.assert_array_equal(model.predict(images(channels=1)[..., 0]), model.labels_)
