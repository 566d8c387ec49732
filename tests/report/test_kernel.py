"""The kernel on the page."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coterie.amortized.abc.estimator import AttentionBasedClustering
from coterie.report.formatting import cluster_colours
from coterie.report.sections import SIDE, STRIP, kernel_pictures


class Kernelled:
    """What a clusterer with a kernel has."""

    def __init__(self, kernel: Any, rows: Any) -> None:
        self.kernel_, self.kernel_rows_ = kernel, rows


def found(labels: Any) -> Any:
    return SimpleNamespace(labels=labels, top_membership=np.linspace(0.5, 1.0, len(labels)), noun="row")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Pixels of the pictures that are drawn."""
    pictures: list[Any] = []

    def draw(pixels: Any, *_: float) -> str:
        pictures.append(pixels)
        return ""

    monkeypatch.setattr("coterie.report.sections.image_png", draw)
    return pictures


def test_rows_are_in_the_order_of_their_clusters(drawn: list[Any]) -> None:
    labels = np.array([1, 0, 1, 0])
    kernel = (labels[:, None] == labels).astype(np.float32)
    pictures = kernel_pictures(Kernelled(kernel, np.arange(4)), found(labels), None, cluster_colours(2))
    assert pictures is not None
    assert [panel.title for panel in pictures.panels] == ["predicted"]
    assert pictures.shown == ""
    inside = drawn[0][STRIP + 1 :, STRIP + 1 :]
    assert inside.shape == (4, 4, 3)
    assert (inside[:2, 2:] == 1).all()  # white: not together
    assert (inside[:2, :2] == inside[0, 0]).all()
    assert (inside[0, 0] < 1).any()
    assert not np.array_equal(drawn[0][STRIP + 1, 0], drawn[0][-1, 0])  # each cluster has its colour


def test_known_classes_are_compared_with(drawn: list[Any]) -> None:
    labels = np.array([0, 0, 1])
    kernel = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=np.float32)
    pictures = kernel_pictures(Kernelled(kernel, np.arange(3)), found(labels), np.array([0, 1, 1]), cluster_colours(2))
    assert pictures is not None
    assert [panel.title for panel in pictures.panels] == ["predicted", "known classes", "difference"]
    difference = drawn[2][STRIP + 1 :, STRIP + 1 :]
    wrong = (difference < 1).any(axis=2)
    # The surest row comes first in each cluster: rows 1 and 0, then 2.
    assert wrong.tolist() == [[False, True, True], [True, False, False], [True, False, False]]


def test_of_many_rows_some_are_drawn() -> None:
    n = SIDE + 20
    labels = np.zeros(n, dtype=np.int64)
    pictures = kernel_pictures(Kernelled(np.eye(n), np.arange(n)), found(labels), None, cluster_colours(1))
    assert pictures is not None
    assert pictures.shown == f"{SIDE} of the {n} rows are drawn."


def test_other_clusterers_have_none() -> None:
    assert kernel_pictures(object(), found(np.zeros(2, dtype=np.int64)), None, cluster_colours(1)) is None
    assert kernel_pictures(AttentionBasedClustering(), found(np.zeros(2)), None, cluster_colours(1)) is None
