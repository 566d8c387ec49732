"""Columns of texts beside other columns: what they say as a few numbers per row.

Letters: N rows, V words, E dimensions of embeddings, Q components.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Self, TypeAlias, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from coterie.errors import InputError

Singles: TypeAlias = npt.NDArray[np.float32]
Flags: TypeAlias = npt.NDArray[np.bool_]
Embed: TypeAlias = Callable[[list[str]], npt.NDArray[Any]]

COMPONENTS_ALONE: Final = 100  # components of texts without other columns, which are compared as embeddings are
COMPONENTS_BESIDE: Final = 20  # of each column of texts beside other columns
WEIGHT: Final = 3.0  # columns that a column of texts counts as, beside others
MAX_WORDS: Final = 20_000

_NEGLIGIBLE = 1e-5  # singular values, relative to the first, that are rounding errors
_NAMING_WORDS = 3  # that name a component
_MOST_FREQUENT = 0.5  # fraction of the texts above which a word is too common
_MANY_TEXTS = 20  # from which a word can be too common
_SEPARATOR = "\n"  # of words in a saved vocabulary; no word has it


@final
@dataclass(frozen=True, eq=False)
class TextFeatures:
    """Components of the texts of a column: of their TF-IDF vectors, or of their embeddings."""

    column: str
    names: tuple[str, ...]  # (Q,): of the components, by words if there are any
    words: tuple[str, ...]  # (V,): the vocabulary; empty for embeddings
    rarity: Singles  # (V,): inverse document frequencies
    centre: Singles  # (E,): mean embedding; empty for words
    axes: Singles  # (V or E, Q)
    mean: Singles  # (Q,): mean components, which texts without a known word get

    @classmethod
    def fit(cls, column: str, texts: Sequence[str | None], n_components: int, embed: Embed | None = None) -> Self:
        """Fit to the texts of a column; `embed` turns texts into embeddings, which are used instead of words."""
        present = [text for text in texts if text]
        if len(present) < 2:
            raise InputError(f"The column {column!r}, given by text, has no texts. Leave it out of text.")
        none = np.empty(0, np.float32)
        if embed is not None:
            rows = np.asarray(embed(present), dtype=np.float32)
            centre = rows.mean(axis=0)
            axes = fit_axes(rows - centre, n_components)
            names = tuple(f"{column}: component {number + 1}" for number in range(axes.shape[1]))
            fitted = cls(column, names, (), none, centre, axes, none)
        else:
            vectorizer = _fit_words(column, present)
            words = tuple(vectorizer.get_feature_names_out().tolist())
            axes = fit_axes(vectorizer.transform(present), n_components)
            rarity = vectorizer.idf_.astype(np.float32)
            fitted = cls(column, _name_components(column, words, axes), words, rarity, none, axes, none)
        return replace(fitted, mean=fitted.project(present, embed)[0].mean(axis=0))

    def transform(self, texts: Sequence[str | None], embed: Embed | None = None) -> Float[Singles, "N Q"]:
        """Return the components of texts; those of missing and of unknown texts are the mean ones."""
        found = np.tile(self.mean, (len(texts), 1))
        rows = np.array([i for i, text in enumerate(texts) if text], dtype=np.intp)
        if len(rows):
            components, known = self.project([text for text in texts if text], embed)
            found[rows[known]] = components[known]
        return found

    def project(self, texts: list[str], embed: Embed | None) -> tuple[Float[Singles, "N Q"], Bool[Flags, " N"]]:
        """Return the components of texts, and which texts have any."""
        if self.words:
            vectors = self._vectorizer.transform(texts)
            return np.asarray(vectors @ self.axes, dtype=np.float32), np.diff(vectors.indptr) > 0
        if embed is None:
            raise InputError(f"The column {self.column!r} was embedded by an encoder. Give the same encoder=.")
        rows: Singles = np.asarray(embed(texts), dtype=np.float32) - self.centre
        return rows @ self.axes, np.ones(len(rows), dtype=np.bool_)

    @cached_property
    def _vectorizer(self) -> TfidfVectorizer:
        vectorizer = TfidfVectorizer(vocabulary=self.words, sublinear_tf=True)
        vectorizer.idf_ = self.rarity.astype(np.float64)
        return vectorizer

    def weights(self, components: Float[Singles, "N Q"], factor: float) -> dict[str, float]:
        """Return the weight of each component, by its spread; together they count as a few columns."""
        spread = components.std(axis=0).astype(np.float64)
        total = float(np.square(spread).sum()) or 1.0
        return dict(zip(self.names, (factor * np.sqrt(WEIGHT * spread**2 / total)).tolist(), strict=True))

    def to_arrays(self, number: int) -> dict[str, npt.NDArray[Any]]:
        """Return what to save, under names with this number."""
        words = np.frombuffer(_SEPARATOR.join(self.words).encode(), dtype=np.uint8)
        arrays: dict[str, npt.NDArray[Any]] = {
            "words": words,
            "rarity": self.rarity,
            "centre": self.centre,
            "axes": self.axes,
            "mean": self.mean,
        }
        return {f"text.{number}.{name}": values for name, values in arrays.items()}

    @classmethod
    def from_arrays(
        cls, column: str, names: Sequence[str], number: int, arrays: Mapping[str, npt.NDArray[Any]]
    ) -> Self:
        """Restore from ``to_arrays``."""
        text = arrays[f"text.{number}.words"].tobytes().decode()
        words = tuple(text.split(_SEPARATOR)) if text else ()
        own = (arrays[f"text.{number}.{name}"] for name in ("rarity", "centre", "axes", "mean"))
        return cls(column, tuple(names), words, *own)


def _fit_words(column: str, texts: Sequence[str]) -> TfidfVectorizer:
    most = _MOST_FREQUENT if len(texts) >= _MANY_TEXTS else 1.0
    for least in (2, 1):  # words of one text say nothing of others, unless there are no others
        vectorizer = TfidfVectorizer(min_df=least, max_df=most, max_features=MAX_WORDS, sublinear_tf=True)
        try:
            return vectorizer.fit(texts)
        except ValueError:  # no words are left
            continue
    raise InputError(f"The column {column!r}, given by text, has no words that distinguish its texts. Leave it out.")


def fit_axes(rows: Any, n_components: int) -> Singles:
    """Return the leading right singular vectors (V, Q), the largest entry of each positive; none that rows lack."""
    count = max(1, min(n_components, min(rows.shape) - 1))
    _, sizes, vectors = randomized_svd(rows, count, random_state=0, flip_sign=False)
    vectors = vectors[sizes >= _NEGLIGIBLE * sizes[0]]
    axes = vectors * np.sign(np.take_along_axis(vectors, np.abs(vectors).argmax(axis=1)[:, None], axis=1))
    return np.ascontiguousarray(axes.T, dtype=np.float32)


def unit_rows(rows: Any) -> Any:
    """Return the rows of a matrix, sparse or not, at length one; rows of zeros stay."""
    return normalize(rows, copy=True)


def _name_components(column: str, words: Sequence[str], axes: Singles) -> tuple[str, ...]:
    """Name components by the words that weigh most in them; equal names are numbered."""
    names: list[str] = []
    for axis in axes.T:
        strongest = np.argsort(-axis, kind="stable")[:_NAMING_WORDS]
        name = f"{column}: {', '.join(words[i] for i in strongest)}"
        names.append(name if name not in names else f"{name} ({len(names) + 1})")
    return tuple(names)
