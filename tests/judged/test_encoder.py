"""Texts and images in, clusters of their embeddings out."""

import csv
import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.metrics import adjusted_rand_score

import coterie.judged.estimator
from coterie import Coterie, load
from coterie.__main__ import main
from coterie.encoders import Encoder, load_encoder
from coterie.errors import InputError
from coterie.tables.table import as_table

TOPICS = ("card lost", "money transfer", "exchange rate")


def encode(texts: list[str]) -> npt.NDArray[np.float64]:
    """Stand for an encoder: a direction per topic, and some noise that depends on the text."""
    directions = np.random.default_rng(0).normal(size=(len(TOPICS), 32))
    rows = []
    for text in texts:
        noise = np.random.default_rng(zlib.crc32(text.encode())).normal(size=32)
        rows.append(directions[[topic in text for topic in TOPICS].index(True)] + 0.3 * noise)
    return np.array(rows)


def sentences(n: int = 90) -> tuple[list[str], npt.NDArray[np.int64]]:
    labels = np.arange(n) % len(TOPICS)
    return [f"{TOPICS[label]} number {row}" for row, label in enumerate(labels.tolist())], labels


def test_texts_are_encoded_by_fit_and_predict() -> None:
    texts, labels = sentences()
    model = Coterie(encoder=encode, effort="fast", random_state=0).fit(texts)
    assert model.metric_ == "cosine"
    assert adjusted_rand_score(labels, model.labels_) == 1.0
    np.testing.assert_array_equal(model.predict(np.array(texts, dtype=object)), model.labels_)
    assert len(set(model.predict(["a card lost again", "one more card lost"]))) == 1
    # Embeddings that were computed before are taken as a table, and a table of texts is encoded.
    np.testing.assert_array_equal(model.predict(as_table(encode(texts))), model.labels_)
    np.testing.assert_array_equal(model.predict(as_table([[text] for text in texts])), model.labels_)


def test_images_are_encoded() -> None:
    rng = np.random.default_rng(0)
    shade = np.arange(60) % 2
    images = (60 + 120 * shade[:, None, None] + rng.integers(0, 40, size=(60, 6, 6))).astype(np.uint8)

    def mean_and_texture(batch: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
        flat = batch.reshape(len(batch), -1).astype(np.float64)
        return np.column_stack([flat[:, :20] - 120.0, 255.0 - flat[:, :20]])

    model = Coterie(2, encoder=mean_and_texture, metric="cosine", effort="fast", random_state=0).fit(images)
    assert adjusted_rand_score(shade, model.labels_) == 1.0
    np.testing.assert_array_equal(model.predict(as_table(images)), model.labels_)


def test_photos_without_an_encoder_come_with_advice() -> None:
    rng = np.random.default_rng(0)
    images = (60 + 120 * (np.arange(60) % 2)[:, None, None] + rng.integers(0, 40, size=(60, 6, 6))).astype(np.uint8)
    grey = Coterie(2, effort="fast", random_state=0).fit(images)
    assert not any("encoder" in note for note in grey.notes_)
    colour = Coterie(2, effort="fast", random_state=0).fit(np.stack([images] * 3, axis=3))
    assert "name an encoder" in colour.notes_[0]
    np.testing.assert_array_equal(colour.labels_, grey.labels_)


def test_several_columns_are_no_texts() -> None:
    with pytest.raises(InputError, match=r"The encoder takes one column of texts, or images, but .* has 2 columns"):
        Coterie(encoder=encode).fit(as_table([["a", "b"], ["c", "d"]]))


def test_a_model_with_a_function_is_saved_without_it(tmp_path: Path) -> None:
    texts, _ = sentences(60)
    model = Coterie(encoder=encode, effort="fast", random_state=0).fit(texts)
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert isinstance(again, Coterie)
    assert again.encoder is None
    np.testing.assert_array_equal(again.predict(encode(texts).astype(np.float32)), model.labels_)


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let any name stand for the encoder above; return the sizes of the batches that it gets."""
    batches: list[int] = []

    def counted(texts: list[str]) -> npt.NDArray[np.float64]:
        batches.append(len(texts))
        return encode(texts)

    def load_named(spec: Any) -> Encoder:
        return (
            Encoder(counted, kind="text", name=spec, cache_name=spec) if isinstance(spec, str) else load_encoder(spec)
        )

    monkeypatch.setattr(coterie.judged.estimator, "load_encoder", load_named)
    return batches


def test_the_command_encodes_names_clusters_by_words_and_keeps_embeddings(
    named: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    texts, labels = sentences()
    file = tmp_path / "texts.csv"
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["id", "text"], *([str(row), text] for row, text in enumerate(texts))])
    cache, model = str(tmp_path / "cache"), str(tmp_path / "model.safetensors")
    options = ["--columns", "text", "--encoder", "sentence-transformers:some", "--cache", cache, "--effort", "fast"]
    report = str(tmp_path / "page.html")
    assert main(["cluster", str(file), *options, "--save", model, "--report", report]) == 0
    printed = capsys.readouterr().out
    assert all(any(word in printed for word in topic.split()) for topic in TOPICS)
    assert named == [90]
    assert main(["predict", model, str(file), "-o", "-"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert adjusted_rand_score(labels, [row["cluster"] for row in rows]) == 1.0
    assert named == [90]  # the embeddings of the fit are read again


def test_bertopic_can_use_it_as_its_clusterer() -> None:
    """BERTopic fits with y, reads ``labels_`` and, unless it is HDBSCAN, calls ``predict`` for new texts."""
    texts, labels = sentences(120)
    embedded, y = encode(texts), None
    model = Coterie(metric="cosine", effort="fast", random_state=0)
    model.fit(embedded, y=y)
    assert adjusted_rand_score(labels, model.labels_) == 1.0
    assert np.unique(model.labels_).tolist() == list(range(model.n_clusters_))  # no topic -1
    np.testing.assert_array_equal(model.predict(embedded[:5]), model.labels_[:5])
