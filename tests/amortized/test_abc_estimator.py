"""AttentionBasedClustering: kernel, decoding, images, learning, saving."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN, AgglomerativeClustering
from sklearn.datasets import make_blobs

from coterie import AttentionBasedClustering
from coterie.errors import InputError
from coterie.metrics import adjusted_rand_index


@pytest.fixture(scope="module")
def blobs() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    x, y = make_blobs(200, centers=[[0, 0], [9, 0], [0, 9], [9, 9]], cluster_std=0.7, random_state=0)
    return x, y


@pytest.fixture(scope="module")
def fitted(blobs: Any) -> AttentionBasedClustering:
    return AttentionBasedClustering(random_state=0).fit(blobs[0])


def _characters(n_classes: int, each: int, *, side: int = 28, seed: int = 0) -> tuple[NDArray[np.uint8], Any]:
    """Images of a few crossing bars, a class being where they are, each a little shifted."""
    rng = np.random.default_rng(seed)
    images, classes = [], []
    for one in range(n_classes):
        plain = np.zeros((side, side), dtype=np.uint8)
        for _ in range(3):
            at = rng.integers(side // 6, side - side // 6)
            if rng.random() < 0.5:
                plain[at : at + side // 14, side // 7 : -side // 7] = 255
            else:
                plain[side // 7 : -side // 7, at : at + side // 14] = 255
        for _ in range(each):
            images.append(np.roll(plain, rng.integers(-1, 2, 2), axis=(0, 1)))
            classes.append(one)
    return np.stack(images), np.array(classes)


def test_clear_blobs_are_found_without_a_number(fitted: AttentionBasedClustering, blobs: Any) -> None:
    assert fitted.n_clusters_ == 4
    assert adjusted_rand_index(blobs[1], fitted.labels_) == 1.0
    assert fitted.notes_ == ()


def test_kernel_is_of_probabilities_of_pairs_and_agrees_with_labels(fitted: AttentionBasedClustering) -> None:
    kernel = fitted.kernel_
    assert kernel.shape == (200, 200)
    assert np.array_equal(fitted.kernel_rows_, np.arange(200))
    np.testing.assert_allclose(kernel, kernel.T, atol=1e-6)
    assert (kernel > 0).all()
    assert (kernel < 1).all()
    same = fitted.labels_[:, None] == fitted.labels_
    assert kernel[same].mean() > 0.9
    assert kernel[~same].mean() < 0.1
    assert (np.diff(fitted.eigenvalues_) <= 1e-9).all()
    assert int((fitted.eigenvalues_ > 0.5).sum()) == 4


def test_similarity_of_the_rows_of_fit_is_the_kernel(fitted: AttentionBasedClustering, blobs: Any) -> None:
    np.testing.assert_allclose(fitted.similarity(blobs[0]), fitted.kernel_, atol=1e-4)


def test_attention_follows_a_graph(fitted: AttentionBasedClustering, blobs: Any) -> None:
    x, y = blobs
    everything = fitted.similarity(x, np.ones((200, 200)))
    np.testing.assert_allclose(everything, fitted.kernel_, atol=1e-4)
    within = (y[:, None] == y).astype(float)
    assert not np.allclose(fitted.similarity(x, within), everything, atol=1e-3)
    with pytest.raises(InputError, match=r"shape \(3, 3\); it must be 200 x 200 finite, non-negative weights"):
        fitted.similarity(x, np.ones((3, 3)))
    with pytest.raises(InputError, match="non-negative"):
        fitted.similarity(x, -within)


def test_other_methods_take_the_kernel(fitted: AttentionBasedClustering, blobs: Any) -> None:
    distance = (1 - fitted.kernel_).astype(np.float64)
    agglomerative = AgglomerativeClustering(4, metric="precomputed", linkage="average").fit_predict(distance)
    by_density = HDBSCAN(metric="precomputed", min_cluster_size=5, copy=True).fit_predict(distance)
    assert adjusted_rand_index(blobs[1], agglomerative) == 1.0
    assert adjusted_rand_index(blobs[1], by_density) > 0.9


@pytest.mark.parametrize("decoding", ["linkage", "contraction", "eigengap"])
@pytest.mark.parametrize("k", [1, 2, 7])
def test_a_given_number_of_clusters_is_honoured(decoding: Any, k: int, blobs: Any) -> None:
    model = AttentionBasedClustering(k, decoding=decoding, random_state=0).fit(blobs[0])
    assert model.n_clusters_ == k
    assert len(np.unique(model.labels_)) == k
    assert np.array_equal(model.predict(blobs[0]), model.labels_)


@pytest.mark.parametrize("decoding", ["contraction", "eigengap"])
def test_other_decodings_find_clear_blobs(decoding: Any, blobs: Any) -> None:
    model = AttentionBasedClustering(decoding=decoding, random_state=0).fit(blobs[0])
    assert adjusted_rand_index(blobs[1], model.labels_) > 0.9


def test_more_rows_than_expected_are_taken_and_more_clusters_than_rows_rejected(blobs: Any) -> None:
    model = AttentionBasedClustering(max_points=60, random_state=0).fit(blobs[0])
    assert model.kernel_.shape == (60, 60)
    assert adjusted_rand_index(blobs[1], model.labels_) > 0.95
    assert np.array_equal(model.predict(blobs[0]), model.labels_)
    assert "60 of the 200 rows" in model.notes_[0]
    with pytest.raises(InputError, match="n_clusters=5 is more than n_samples=3"):
        AttentionBasedClustering(5).fit(np.eye(3))


def test_saved_and_loaded(fitted: AttentionBasedClustering, blobs: Any, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.safetensors")
    loaded = AttentionBasedClustering.load(tmp_path / "model.safetensors")
    assert np.array_equal(loaded.predict(blobs[0]), fitted.labels_)
    np.testing.assert_allclose(loaded.kernel_, fitted.kernel_, atol=1e-6)


@pytest.fixture(scope="module")
def learned() -> AttentionBasedClustering:
    """Of classes of bars, from nothing."""
    images, classes = _characters(16, 8)
    model = AttentionBasedClustering(weights=None, random_state=0)
    return model.learn([(images, classes)], steps=12, batch_size=2, max_points=40)


def test_images_are_learned_from_and_clustered(learned: AttentionBasedClustering) -> None:
    assert learned.evaluation_.keys() == {"loss", "adjusted_rand_index", "held_out_tasks"}
    assert learned.evaluation_["held_out_tasks"] == 3
    new, _ = _characters(3, 6, seed=1)
    labels = learned.fit_predict(new)
    assert labels.shape == (18,)
    assert np.array_equal(learned.predict(new), labels)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda images: images.repeat(2, axis=1).repeat(2, axis=2), "resized from 56x56"),
        (lambda images: 255 - images, "images were inverted"),
        (lambda images: np.stack([images] * 3, axis=3), "converted to grey"),
        (lambda images: images / 255, None),
        (lambda images: images.reshape(len(images), -1), None),
        (lambda images: images.astype(np.uint16) * 257, None),
    ],
    ids=["larger", "dark on bright", "in colour", "fractions", "flat", "two bytes"],
)
def test_images_are_converted_for_the_weights(change: Any, said: str | None, learned: AttentionBasedClustering) -> None:
    images, _ = _characters(3, 6, seed=1)
    plain = learned.fit_predict(images)
    changed = learned.fit(change(images))
    assert adjusted_rand_index(changed.labels_, plain) > 0.8  # resizing rounds
    assert [note for note in changed.notes_ if said is not None and said in note] or (said is None)
    assert len(changed.notes_) == (said is not None)


def test_image_models_are_saved_with_how_images_are_prepared(learned: AttentionBasedClustering, tmp_path: Path) -> None:
    images, _ = _characters(3, 6, side=42, seed=1)
    labels = learned.fit_predict(255 - images)
    learned.save(tmp_path / "model.safetensors")
    loaded = AttentionBasedClustering.load(tmp_path / "model.safetensors")
    assert np.array_equal(loaded.predict(255 - images), labels)
    with pytest.raises((InputError, ValueError)):
        loaded.predict(255 - images[:, :28, :28])


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((4, 5)), "for images of 28x28, but X is a table of 5 columns"),
        (np.where(np.eye(28) > 0, np.nan, np.ones((4, 28, 28))), "missing|finite"),
        (np.full((4, 28, 28), -1.0), "A pixel has the value -1"),
    ],
    ids=["a table", "missing", "negative"],
)
def test_inputs_that_are_not_images_are_rejected(X: Any, message: str, learned: AttentionBasedClustering) -> None:
    with pytest.raises(InputError, match=message):
        learned.fit(X)


def test_images_of_one_class_teach_nothing() -> None:
    images, _ = _characters(1, 6)
    with pytest.raises(InputError, match="at least two classes"):
        AttentionBasedClustering(weights=None).learn([(images, np.zeros(6))], steps=1)
