"""Small sets with known clusters, and candidates made from labels."""

import numpy as np
import numpy.typing as npt

from coterie.judged.candidates.registry import Candidate, order_by_size
from coterie.judged.space import Floats, Labels


def blobs(n: int = 240, d: int = 3, k: int = 4, seed: int = 0, spread: float = 0.35) -> tuple[Floats, Labels]:
    rng = np.random.default_rng(seed)
    corners = np.array([[(corner >> axis) & 1 for axis in range(d)] for corner in range(k)], dtype=np.float64)
    labels = np.arange(n) % k
    return 6.0 * corners[labels] + spread * rng.normal(size=(n, d)), labels


def rings(n: int = 300, seed: int = 0) -> tuple[Floats, Labels]:
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3 // 2  # the outer one has a third of the rows
    angle = rng.permutation(np.linspace(0, 2 * np.pi, n, endpoint=False))
    radius = np.where(labels == 0, 2.5, 0.8) + 0.05 * rng.normal(size=n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), labels


def slanted(n: int = 400, seed: int = 0) -> tuple[Floats, Labels]:
    """Two long parallel clusters, which k-means cuts across."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    along, across = 4.0 * rng.normal(size=n), 0.25 * rng.normal(size=n) + 2.0 * labels
    return np.stack([along + across, along - across], axis=1), labels


def candidate(labels: npt.ArrayLike, view: str = "standardised") -> Candidate:
    return Candidate(*order_by_size(np.asarray(labels)), "Ward linkage", view, "neighbours")
