"""What AMCP is compared with that is told the number of clusters: classical methods on principal components of pixels.

Components are those of the set itself: a method sees nothing but what it clusters.
"""

import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

import torch
from jaxtyping import Float
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from torch import Tensor

from benchmarks.quality.networks import SEED
from benchmarks.quality.records import Floats, Setting, Settings
from coterie.errors import InputError

COMPONENTS: Final = 50
"""Or as many as a set has pictures or numbers of a picture, where these are fewer."""
STARTS: Final = 10
"""Of k-means and of mixtures."""
MOST_STEPS: Final = 500
"""Of a mixture, from each start."""
BASELINES: Final[Mapping[str, tuple[dict[str, Setting], ...]]] = MappingProxyType(
    {
        "kmeans": ({"components": COMPONENTS},),
        "spectral": tuple({"components": COMPONENTS, "neighbours": neighbours} for neighbours in (10, 20)),
        "gmm": ({"components": COMPONENTS, "covariance": "diag"},),
    }
)
"""Settings of the methods, of which validation sets may choose one."""


class ToldSet(Protocol):
    """A set, and what is told of it."""

    @property
    def x(self) -> Float[Tensor, "N D"]:
        """Pixels or features."""
        ...

    @property
    def n_clusters(self) -> int:
        """K."""
        ...


Solve: TypeAlias = Callable[[ToldSet], Tensor]
"""From a set to labels."""


def solver(method: str, settings: Settings) -> Solve:
    """How a method with its settings clusters a set, whose number of clusters it is told."""
    if method not in BASELINES:
        raise InputError(f"Unknown baseline {method!r}. Known are: {', '.join(BASELINES)}.")

    def solve(one: ToldSet) -> Tensor:
        components = principal_components(one, int(settings["components"] or COMPONENTS))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Graph is not fully connected")  # clusters apart are what is looked for
            labels = _clusterer(method, settings, one.n_clusters).fit_predict(components)
        return torch.from_numpy(labels.astype("int64"))

    return solve


def principal_components(one: ToldSet, count: int) -> Floats:
    """The pictures of a set along the directions in which they differ most."""
    x = one.x.numpy()
    components: Floats = PCA(min(count, *x.shape), random_state=SEED).fit_transform(x)
    return components


def _clusterer(method: str, settings: Settings, n_clusters: int) -> KMeans | SpectralClustering | GaussianMixture:
    if method == "kmeans":
        return KMeans(n_clusters, n_init=STARTS, random_state=SEED)
    if method == "spectral":
        # A graph of all pairs would be too large for sets of 5000.
        graph = {"affinity": "nearest_neighbors", "n_neighbors": settings["neighbours"]}
        return SpectralClustering(n_clusters, random_state=SEED, **graph)
    return GaussianMixture(
        n_clusters, covariance_type=settings["covariance"], n_init=STARTS, max_iter=MOST_STEPS, random_state=SEED
    )
