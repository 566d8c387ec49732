"""Names of clusters from their texts."""

from typing import Any

import numpy as np
import pytest

from coterie.errors import InputError
from coterie.topics import distinctive_words, name_clusters

TEXTS = [
    "The card is lost, my card was stolen",
    "I lost the card",
    "a lost card",
    "What is the exchange rate?",
    "exchange rate for euros today",
    "the rate today",
    "zebra zebra zebra",
]
LABELS = [4, 4, 4, 0, 0, 0, -1]


def test_words_are_those_of_class_based_tf_idf() -> None:
    # The mean number of words per cluster is 7/3, then 8/3. "shared" is in both texts, and so weighs less each time:
    # 2 log(1 + 7/9) = 1.15 against log(1 + 7/3) = 1.20 for "x2", then 3 log(1 + 8/12) = 1.53 against 1.30.
    found = distinctive_words(["x1 x1 shared", "x2 shared shared", "x3"], [0, 1, 2])
    assert found == {0: ["x1", "shared"], 1: ["x2", "shared"], 2: ["x3"]}
    found = distinctive_words(["x1 x1 shared", "x2 shared shared shared", "x3"], [0, 1, 2])
    assert found == {0: ["x1", "shared"], 1: ["shared", "x2"], 2: ["x3"]}


def test_words_of_clusters_leave_out_noise_and_stop_words() -> None:
    found = distinctive_words(TEXTS, LABELS, n_words=2)
    assert found == {0: ["rate", "exchange"], 4: ["card", "lost"]}
    assert all(type(label) is int for label in found)
    assert distinctive_words(TEXTS, np.array(LABELS), n_words=1, stop_words=None) == {0: ["rate"], 4: ["card"]}
    assert "the" in distinctive_words(TEXTS, LABELS, n_words=20, stop_words=None)[4]
    assert not any("zebra" in words for words in distinctive_words(TEXTS, LABELS, n_words=50).values())


def test_bigrams_count_as_words() -> None:
    assert "lost card" in distinctive_words(TEXTS, LABELS, n_words=20, bigrams=True)[4]
    assert "lost card" not in distinctive_words(TEXTS, LABELS, n_words=20)[4]


def test_equal_weights_are_in_alphabetical_order() -> None:
    assert distinctive_words(["pear fig apple", "plum"], [0, 1])[0] == ["apple", "fig", "pear"]


@pytest.mark.parametrize(
    ("texts", "labels", "expected"),
    [
        (["the of", ""], [0, 1], {0: [], 1: []}),
        (["fig", ""], [0, 1], {0: ["fig"], 1: []}),
        (["fig", "plum"], [-1, -1], {}),
        ([], [], {}),
    ],
)
def test_clusters_without_words_get_none(texts: list[str], labels: list[int], expected: dict[int, list[str]]) -> None:
    assert distinctive_words(texts, labels) == expected
    assert name_clusters(texts, labels) == {k: ", ".join(words) or f"cluster {k}" for k, words in expected.items()}
    assert set(name_clusters(texts, labels, lambda words, examples: f"{words} {examples}")) == set(expected)


def test_clusters_are_named_after_their_words() -> None:
    assert name_clusters(TEXTS, LABELS, n_words=2) == {0: "rate, exchange", 4: "card, lost"}


def test_a_function_names_clusters_from_words_and_typical_texts() -> None:
    seen: list[tuple[list[str], list[str]]] = []

    def namer(words: list[str], examples: list[str]) -> str:
        seen.append((words, examples))
        return f" {words[0].title()}s\n"

    texts = [*TEXTS, "a lost card", "a lost card", "card"]
    labels = [*LABELS, 4, 4, 4]
    assert name_clusters(texts, labels, namer, n_words=2, n_examples=3) == {0: "Rates", 4: "Cards"}
    words, examples = seen[1]
    assert words == ["card", "lost"]
    # Texts with both words are nearest; equal texts appear once, and equally near ones in their order.
    assert examples == ["I lost the card", "a lost card", "The card is lost, my card was stolen"]
    # This one also has "today", which two texts of the cluster have.
    assert seen[0][1][0] == "exchange rate for euros today"
    first = list(seen)
    name_clusters(texts, labels, namer, n_words=2, n_examples=3)
    assert seen[2:] == first


@pytest.mark.parametrize(
    ("texts", "labels", "settings", "message"),
    [
        ("fig", [0], {}, "texts is a single text"),
        (["fig", None], [0, 1], {}, r"Text 1 is None \(NoneType\). Remove it"),
        (["fig"], [0, 1], {}, r"labels has the shape \(2,\), but there are 1 texts"),
        (["fig"], [0.5], {}, "type float64. Give integers"),
        (["fig"], [0], {"n_words": 0}, "n_words=0 must be an integer of at least 1"),
        (["fig"], [0], {"stop_words": "german"}, "stop_words='german' must be 'english', or None"),
        (["fig"], [0], {"bigrams": 1}, "bigrams=1 must be True or False"),
        (["fig"], [0], {"n_examples": 0}, "n_examples=0 must be"),
        (["fig"], [0], {"namer": lambda *_: " "}, "namer returned ' ' for cluster 0. It must return"),
        (["fig"], [0], {"namer": lambda *_: None}, "namer returned None for cluster 0"),
    ],
)
def test_unusable_arguments_raise_an_error(texts: Any, labels: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        name_clusters(texts, labels, **settings)
