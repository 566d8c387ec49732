"""Texts of public packages, which the judge of embeddings is trained on."""

from collections import Counter

import numpy as np
import pytest

from benchmarks.data import corpora


def test_texts_of_several_classes_and_small_classes_are_left_out() -> None:
    texts = [(f"class {index % 3}", f"text {index}") for index in range(90)]
    texts += [("class 0", "both"), ("class 1", "both"), ("class 0", "text 0"), ("small", "alone")]
    chosen, labels = corpora.select(texts)
    assert sorted(Counter(labels.tolist()).values()) == [30, 30, 30]
    assert len(set(chosen)) == 90
    assert "both" not in chosen
    assert "alone" not in chosen


def test_large_classes_are_cut_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "MAX_TEXTS", 100)
    sizes = {"large": 500, "medium": 60, "small": 20}
    chosen, labels = corpora.select([(name, f"{name} {i}") for name, size in sizes.items() for i in range(size)])
    assert sorted(np.bincount(labels).tolist()) == [20, 40, 40]
    assert len(chosen) == 100
