"""Small sets on which the quality of the default method is held: do not change them, or floors lose their meaning."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.random import Generator
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_blobs, make_circles, make_moons

SEED: Final = 21
ROWS: Final = 300


@dataclass(frozen=True, eq=False)
class QualitySet:
    """Rows and their true clusters: -1 for background noise, 0 everywhere if there are none."""

    X: Any
    y: npt.NDArray[np.int64]

    @property
    def n_clusters(self) -> int:
        """Number of true clusters."""
        return len(np.unique(self.y[self.y >= 0]))


def _scikit_learn() -> dict[str, QualitySet]:
    """Tables and toy sets of scikit-learn."""
    made = {
        "iris": load_iris(return_X_y=True),
        "wine": load_wine(return_X_y=True),
        "breast cancer": load_breast_cancer(return_X_y=True),
        "moons": make_moons(ROWS, noise=0.06, random_state=SEED),
        "circles": make_circles(ROWS, noise=0.05, factor=0.4, random_state=SEED),
        "unequal blobs": make_blobs(ROWS, cluster_std=[0.5, 1.0, 2.0], centers=3, random_state=SEED),
        "many blobs": make_blobs(2 * ROWS, centers=12, cluster_std=0.6, random_state=SEED),
    }
    slanted, y = make_blobs(ROWS, centers=3, random_state=SEED)
    made["slanted blobs"] = (slanted @ [[0.6, -0.6], [-0.4, 0.8]], y)
    return {name: QualitySet(np.asarray(X), np.asarray(y)) for name, (X, y) in made.items()}


def _blobs(rng: Generator) -> tuple[pd.DataFrame, npt.NDArray[np.int64]]:
    """Four blobs in eight columns, all 5 standard deviations apart."""
    y = np.arange(ROWS) % 4
    means = np.linalg.qr(rng.normal(size=(8, 8)))[0][:4] * 5.0 / np.sqrt(2.0)
    return pd.DataFrame(means[y] + rng.normal(size=(ROWS, 8))).add_prefix("x"), y


def _junk() -> dict[str, QualitySet]:
    """The same four blobs without and with a random column."""
    rng = np.random.default_rng(SEED)
    frame, y = _blobs(rng)
    columns: dict[str, Any] = {
        "2 levels": np.array(["no", "yes"], dtype=object)[rng.integers(2, size=ROWS)],
        "5 levels": np.array(["a", "b", "c", "d", "e"], dtype=object)[rng.integers(5, size=ROWS)],
        "0/1": rng.integers(2, size=ROWS),
    }
    junk = {f"blobs beside {name}": QualitySet(frame.assign(junk=values), y) for name, values in columns.items()}
    return {"blobs": QualitySet(frame, y), **junk}


def _mixed() -> dict[str, QualitySet]:
    """Numbers with a heavy tail, related and unrelated categories, gaps, and background noise."""
    rng = np.random.default_rng(SEED)
    y = np.arange(ROWS) % 3
    plans = np.array([[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.1, 0.2, 0.7]])
    picked = (rng.random(ROWS)[:, None] > plans[y].cumsum(axis=1)[:, :2]).sum(axis=1)
    frame = pd.DataFrame(
        {
            "age": rng.normal(np.array([24.0, 45.0, 70.0])[y], 4.0),
            "income": np.exp(rng.normal(np.log([12_000.0, 70_000.0, 27_000.0])[y], 0.2)),
            "orders": rng.poisson(np.array([4, 20, 9])[y]).astype(float),
            "plan": np.array(["basic", "plus", "family"], dtype=object)[picked],
            "city": np.array(["Berlin", "Bremen", "Köln"], dtype=object)[rng.integers(3, size=ROWS)],
        }
    )
    frame = frame.mask(rng.random(frame.shape) < 0.08)
    groups, which = make_blobs(120, n_features=4, centers=3, cluster_std=0.8, random_state=SEED)
    groups[rng.choice(120, 10, replace=False), 0] = np.nan
    moons, halves = make_moons(2 * ROWS, noise=0.05, random_state=SEED)
    background = rng.uniform([-1.3, -0.8], [2.3, 1.3], (ROWS // 5, 2))
    noisy = np.concatenate([moons, background]), np.concatenate([halves, np.full(len(background), -1)])
    return {
        "customers": QualitySet(frame, y),
        "groups with gaps": QualitySet(groups, which),
        "moons in noise": QualitySet(*noisy),
    }


def _structureless() -> dict[str, QualitySet]:
    """Tables without clusters."""
    rng = np.random.default_rng(SEED)
    makers: dict[str, Callable[[], Any]] = {
        "one Gaussian": lambda: rng.normal(size=(ROWS, 5)),
        "uniform square": lambda: rng.random((ROWS, 2)),
        "counts": lambda: rng.poisson(4.0, (ROWS, 4)).astype(float),
        "normal columns beside yes/no": lambda: (
            pd.DataFrame(rng.normal(size=(ROWS, 4)))
            .add_prefix("x")
            .assign(answer=np.array(["no", "yes"], dtype=object)[rng.integers(2, size=ROWS)])
        ),
    }
    return {name: QualitySet(make(), np.zeros(ROWS, dtype=np.int64)) for name, make in makers.items()}


def _embedded() -> dict[str, QualitySet]:
    """Embeddings: groups of directions, few or many, of equal or very different size."""
    rng = np.random.default_rng(SEED)
    sets = {}
    for name, k, exponent, spread in (
        ("five groups", 5, 0.0, 1.4),
        ("long tail", 20, 0.8, 1.0),
        ("many", 60, 0.0, 1.0),
    ):
        share = np.arange(1, k + 1) ** -exponent
        y = rng.choice(k, 4 * ROWS, p=share / share.sum())
        latent = rng.normal(size=(k, 15))[y] + spread * rng.normal(size=(len(y), 15)) / np.sqrt(2.0)
        x = latent @ rng.normal(size=(15, 256)) + 2.0 * rng.normal(size=256) + rng.normal(size=(len(y), 256))
        sets[name] = QualitySet((x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), y)
    return sets


JUNK: Final = _junk()
CLUSTERED: Final = _scikit_learn() | JUNK | _mixed()
EMBEDDED: Final = _embedded()
STRUCTURELESS: Final = _structureless()
GIVEN_K: Final = {name: CLUSTERED[name] for name in ("wine", "many blobs", "blobs beside 5 levels", "customers")}
