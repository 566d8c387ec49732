"""Columns of texts beside other columns."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from coterie import Coterie
from coterie.errors import InputError, TableError
from coterie.judged.texts import TextFeatures
from coterie.metrics import adjusted_rand_index
from coterie.tables.table import as_table

THEMES = (
    ["the", "parcel", "came", "late", "and", "the", "box", "was", "broken", "by", "the", "courier"],
    ["great", "coffee", "friendly", "staff", "and", "a", "lovely", "quiet", "terrace", "with", "cake"],
    ["my", "card", "was", "declined", "twice", "so", "the", "bank", "blocked", "the", "payment"],
)


def sentences(theme: npt.NDArray[np.int64], rng: np.random.Generator) -> list[str]:
    return [" ".join(rng.permutation(THEMES[which])[:6]) for which in theme]


def reviews(n: int = 240, seed: int = 0) -> tuple[pd.DataFrame, npt.NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    frame = {"order": [f"A-{i}" for i in range(n)], "stars": rng.integers(1, 6, n), "review": sentences(y, rng)}
    return pd.DataFrame(frame), y


def test_texts_alone_are_clustered_by_what_they_say() -> None:
    frame, y = reviews(400)
    model = Coterie(text="review", effort="fast", random_state=0).fit(frame[["review"]])
    assert model.metric_ == "cosine"
    assert adjusted_rand_index(y, model.labels_) > 0.9
    new, truth = reviews(90, seed=1)
    assert adjusted_rand_index(truth, model.predict(new[["review"]])) > 0.9


def test_texts_count_beside_other_columns_and_their_words_are_told(tmp_path: Path) -> None:
    frame, y = reviews()
    frame["size"] = np.random.default_rng(2).normal(10.0 * y, 2.0)
    model = Coterie(text=["review"], effort="fast", random_state=0).fit(frame)
    assert adjusted_rand_index(y, model.labels_) > 0.9
    np.testing.assert_array_equal(model.predict(frame), model.labels_)
    prepared = model.prepare_table(as_table(frame))
    (section,) = model.describe_fit(prepared).sections
    assert section.title == "Words of review"
    words = {word for _, listed in section.rows for word in str(listed).split(", ")}
    assert {"parcel", "coffee", "card"} <= words
    names = model.summary()["features"].tolist()
    assert all("review about " in name and "low review" not in name for name in names)
    components = [name for name in prepared.names if name.startswith("review: ")]
    assert not {"the", "and", "by"} & {
        word for name in components for word in name.removeprefix("review: ").split(", ")
    }
    page = tmp_path / "page.html"
    model.report(page)
    assert "They differ most in review" in page.read_text()
    model.save(tmp_path / "model.safetensors")
    again = Coterie.load(tmp_path / "model.safetensors")
    new = reviews(50, seed=3)[0].assign(size=1.0)
    np.testing.assert_array_equal(again.predict(new), model.predict(new))


def test_texts_that_say_nothing_of_the_clusters_do_no_harm() -> None:
    rng = np.random.default_rng(5)
    y = rng.integers(3, size=300)
    numbers = 8.0 * np.eye(3)[y] + rng.normal(size=(300, 3))
    words = [word for theme in THEMES for word in theme]
    notes = [" ".join(rng.choice(words, 6)) for _ in range(300)]
    frame = pd.DataFrame(numbers, columns=list("abc")).assign(note=notes)
    model = Coterie(text="note", effort="fast", random_state=0).fit(frame)
    assert adjusted_rand_index(y, model.labels_) > 0.9


def test_an_encoder_embeds_the_texts() -> None:
    frame, y = reviews()
    frame["size"] = np.random.default_rng(2).normal(3.0 * y, 2.0)

    def encode(texts: list[str]) -> npt.NDArray[Any]:
        return np.array([[float(word in text) for word in ("box", "cake", "bank", "the")] for text in texts])

    model = Coterie(text="review", encoder=encode, effort="fast", random_state=0).fit(frame)
    assert [f.name for f in model.table_.features if f.column.startswith("review")][:1] == ["review: component 1"]
    np.testing.assert_array_equal(model.predict(frame), model.labels_)


def test_missing_and_unknown_texts_get_the_mean_components() -> None:
    texts = [*sentences(np.arange(60) % 3, np.random.default_rng(0)), None]
    fitted = TextFeatures.fit("review", texts, 5)
    found = fitted.transform([None, "", "zzz qqq", texts[0]])
    np.testing.assert_array_equal(found[0], fitted.mean)
    np.testing.assert_array_equal(found[1], fitted.mean)
    np.testing.assert_array_equal(found[2], fitted.mean)
    assert not np.allclose(found[3], fitted.mean)
    assert all(name.startswith("review: ") for name in fitted.names)


@pytest.mark.parametrize(
    ("text", "message"),
    [("revue", "Did you mean 'review'"), ("stars", "holds no texts"), ("empty", "holds no texts")],
)
def test_columns_without_texts_are_errors(text: str, message: str) -> None:
    frame = reviews(30)[0].assign(empty=pd.Series([None] * 30, dtype=object))
    with pytest.raises((InputError, TableError), match=message):
        Coterie(text=text).fit(frame)


def test_texts_of_stop_words_only_are_an_error() -> None:
    with pytest.raises(InputError, match="no words that distinguish"):
        TextFeatures.fit("note", ["a", "b", "c"], 3)
