"""Names of clusters from their texts: the words that distinguish them, or what a function makes of these."""

import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer

from coterie.errors import InputError
from coterie.validation import BOOLEAN, NONE, Choice, Integer, check_parameter

Namer: TypeAlias = Callable[[list[str], list[str]], str]  # distinctive words, typical texts -> name of the cluster

NOISE = -1  # label of outliers, which are in no cluster


@final
@dataclass(frozen=True, eq=False)
class _Words:
    """How often each word is in each text, and how much it distinguishes each cluster."""

    names: npt.NDArray[np.object_]  # (V,) words, in alphabetical order
    clusters: npt.NDArray[np.int64]  # (K,) labels, ascending, without noise
    counts: csr_matrix  # (N, V) occurrences in the texts
    rarity: npt.NDArray[np.float64]  # (V,) weight of a word, the larger the fewer clusters use it
    weights: npt.NDArray[np.float64]  # (K, V) class-based TF-IDF


def distinctive_words(
    texts: Iterable[str],
    labels: npt.ArrayLike,
    n_words: int = 5,
    *,
    stop_words: Literal["english"] | None = "english",
    bigrams: bool = False,
) -> dict[int, list[str]]:
    """Find the words that distinguish the texts of each cluster, by class-based TF-IDF.

    The weight of a word in a cluster is its number of occurrences there, times log(1 + A / f), where A is the mean
    number of words per cluster and f the number of occurrences of the word in all clusters (Grootendorst, 2022).

    Parameters
    ----------
    texts : sequence of str
        One text per row.
    labels : array (n,) of int
        Cluster of each text; those with the label -1, noise, are left out.
    n_words : int
        Number of words per cluster. A cluster whose texts have fewer gets fewer.
    stop_words : {"english", None}
        Whether common English words, such as "the", are left out.
    bigrams : bool
        Whether pairs of successive words count as words too.

    Returns
    -------
    dict
        For each label the words, the most distinctive first.

    Examples
    --------
    >>> texts = ["my card is lost", "the lost card", "exchange rates", "the rates today", "lost and found"]
    >>> distinctive_words(texts, [0, 0, 1, 1, -1], n_words=2)
    {0: ['card', 'lost'], 1: ['rates', 'exchange']}
    """
    words = _count_words(_check_texts(texts), labels, n_words, stop_words=stop_words, bigrams=bigrams)
    return {int(label): _most_distinctive(words, k, n_words) for k, label in enumerate(words.clusters)}


def name_clusters(
    texts: Iterable[str],
    labels: npt.ArrayLike,
    namer: Namer | None = None,
    n_words: int = 5,
    n_examples: int = 5,
    *,
    stop_words: Literal["english"] | None = "english",
    bigrams: bool = False,
) -> dict[int, str]:
    """Name clusters of texts: by their distinctive words, or by a function such as a call of a language model.

    Parameters
    ----------
    texts : sequence of str
        One text per row.
    labels : array (n,) of int
        Cluster of each text; those with the label -1, noise, are left out.
    namer : callable, optional
        ``namer(words, examples)`` returns the name of one cluster from its distinctive words and its typical texts. By
        default the name is the words, separated by commas.
    n_words : int
        Number of words per cluster.
    n_examples : int
        Number of typical texts for `namer`: those nearest to the cluster's weights of words by cosine, without repeats.
    stop_words : {"english", None}
        Whether common English words, such as "the", are left out.
    bigrams : bool
        Whether pairs of successive words count as words too.

    Returns
    -------
    dict
        For each label the name. A cluster without words is named after its label.

    Examples
    --------
    >>> texts = ["my card is lost", "the lost card", "exchange rates", "the rates today", "lost and found"]
    >>> name_clusters(texts, [0, 0, 1, 1, -1], n_words=2)
    {0: 'card, lost', 1: 'rates, exchange'}
    >>> name_clusters(texts, [0, 0, 1, 1, -1], lambda words, examples: f"{words[0]}: {examples[0]}")
    {0: 'card: my card is lost', 1: 'rates: exchange rates'}
    """
    check_parameter("n_examples", n_examples, Integer(1))
    texts = _check_texts(texts)
    labels = np.asarray(labels)
    words = _count_words(texts, labels, n_words, stop_words=stop_words, bigrams=bigrams)
    names = {}
    for k, label in enumerate(words.clusters.tolist()):
        found = _most_distinctive(words, k, n_words)
        if namer is None:
            names[label] = ", ".join(found) or f"cluster {label}"
        else:
            names[label] = _check_name(namer(found, _typical_texts(texts, labels, words, k, n_examples)), label)
    return names


def _count_words(
    texts: list[str], labels: npt.ArrayLike, n_words: int, *, stop_words: str | None, bigrams: bool
) -> _Words:
    check_parameter("n_words", n_words, Integer(1))
    check_parameter("stop_words", stop_words, (Choice("english"), NONE))
    check_parameter("bigrams", bigrams, BOOLEAN)
    labels = _check_labels(labels, len(texts))
    vectorizer = CountVectorizer(stop_words=stop_words, ngram_range=(1, 2 if bigrams else 1), dtype=np.float64)
    try:
        counts = csr_matrix(vectorizer.fit_transform(texts))
        names = vectorizer.get_feature_names_out()
    except ValueError:  # scikit-learn's answer to texts without any word
        counts, names = csr_matrix((len(texts), 0)), np.empty(0, dtype=object)
    inside = np.flatnonzero(labels != NOISE)
    clusters, positions = np.unique(labels[inside], return_inverse=True)
    members = csr_matrix((np.ones(len(inside)), (positions, inside)), shape=(len(clusters), len(texts)))
    frequency = (members @ counts).toarray()
    total = frequency.sum(axis=0)  # without noise: words that only outliers have distinguish no cluster
    per_cluster = total.sum() / max(1, len(clusters))
    rarity = np.log1p(np.divide(per_cluster, total, out=np.zeros_like(total), where=total > 0))
    return _Words(names, clusters, counts, rarity, frequency * rarity)


def _most_distinctive(words: _Words, k: int, n_words: int) -> list[str]:
    """Return the words of the k-th cluster with the largest weights; equal ones in alphabetical order."""
    weights = words.weights[k]
    order = np.argsort(-weights, kind="stable")[:n_words]
    return [str(words.names[i]) for i in order if weights[i] > 0]


def _typical_texts(texts: list[str], labels: npt.NDArray[Any], words: _Words, k: int, n_examples: int) -> list[str]:
    """Return the texts of the k-th cluster that are nearest to its weights by cosine; equal ones in their order."""
    rows = np.flatnonzero(labels == words.clusters[k])
    weighted = csr_matrix(words.counts[rows].multiply(words.rarity))
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel()) * np.linalg.norm(words.weights[k])
    products = weighted @ words.weights[k]
    cosines = np.divide(products, lengths, out=np.zeros(len(rows)), where=lengths > 0)
    # Rounded, so that equal cosines that were computed in different orders are equal.
    order = rows[np.argsort(-cosines.round(12), kind="stable")]
    return list(dict.fromkeys(texts[row] for row in order))[:n_examples]


def _check_texts(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        raise InputError("texts is a single text. Give a list with one text per row.")
    texts = list(texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"Text {i:,} is {reprlib.repr(text)} ({type(text).__name__}). Remove it or replace it by a text."
            )
    return texts


def _check_labels(labels: npt.ArrayLike, n_texts: int) -> npt.NDArray[np.int64]:
    checked = np.asarray(labels)
    if checked.shape != (n_texts,):
        raise InputError(
            f"labels has the shape {checked.shape}, but there are {n_texts:,} texts. Give one label per text."
        )
    if n_texts and checked.dtype.kind not in "iu":
        raise InputError(f"labels has the type {checked.dtype}. Give integers, with -1 for noise.")
    return checked.astype(np.int64)


def _check_name(name: Any, label: int) -> str:
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"namer returned {name!r} for cluster {label}. It must return a text that is not empty.")
    return name.strip()
