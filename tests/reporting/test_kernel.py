"""The kernel on the page."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coterie.base import FitDescription
from coterie.reporting.formatting import cluster_colours
from coterie.reporting.sections import SIDE, STRIP, kernel_panels


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect the pixels of the panels."""
    panels: list[Any] = []

    def collect(pixels: Any, *_: float) -> str:
        panels.append(pixels)
        return ""

    monkeypatch.setattr("coterie.reporting.sections.image_png", collect)
    return panels


def panels_of(kernel: Any, labels: Any, classes: Any = None) -> tuple[dict[str, str], str]:
    data: Any = SimpleNamespace(labels=labels, own_membership=np.linspace(0.5, 1.0, len(labels)), noun="row")
    description = FitDescription(kernel=kernel, kernel_rows=np.arange(len(labels)))
    panels = kernel_panels(description, data, classes, cluster_colours(2))
    assert panels is not None
    return panels


def test_rows_are_sorted_by_cluster(rendered: list[Any]) -> None:
    labels = np.array([1, 0, 1, 0])
    panels = panels_of((labels[:, None] == labels).astype(np.float32), labels)
    assert (list(panels[0]), panels[1]) == (["predicted"], "")
    inside = rendered[0][STRIP + 1 :, STRIP + 1 :]
    assert inside.shape == (4, 4, 3)
    assert (inside[:2, 2:] == 1).all()  # white: not in the same cluster
    assert (inside[:2, :2] == inside[0, 0]).all()
    assert (inside[0, 0] < 1).any()
    assert not np.array_equal(rendered[0][STRIP + 1, 0], rendered[0][-1, 0])  # each cluster has its colour


def test_known_classes_are_compared(rendered: list[Any]) -> None:
    kernel = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=np.float32)
    panels = panels_of(kernel, np.array([0, 0, 1]), np.array([0, 1, 1]))
    assert list(panels[0]) == ["predicted", "known classes", "difference"]
    wrong = (rendered[2][STRIP + 1 :, STRIP + 1 :] < 1).any(axis=2)
    # The most certain row of each cluster comes first: rows 1 and 0, then 2.
    assert wrong.tolist() == [[False, True, True], [True, False, False], [True, False, False]]


def test_many_rows_are_sampled_and_no_kernel_gives_no_panels() -> None:
    n = SIDE + 20
    assert panels_of(np.eye(n), np.zeros(n, dtype=np.int64))[1] == f"{SIDE} of {n} rows are shown."
    data: Any = SimpleNamespace()
    assert kernel_panels(FitDescription(), data, None, cluster_colours(1)) is None
