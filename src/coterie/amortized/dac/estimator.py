"""DAC as a scikit-learn estimator."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel
from coterie.amortized.estimator import FilteringClusterer, ImageSize
from coterie.amortized.filtering import UNLIMITED
from coterie.nn.density import Density
from coterie.nn.model import SetModel
from coterie.progress import Callback
from coterie.tables.encoder import Scaling
from coterie.validation import Choice, Constraints

_COMPARING_ANCHORS: dict[str, Any] = {
    "filtering": "anchored",
    "density": "none",
    "anchor_position": "latent",
    "anchoring": "compared",
    "anchors": 8,
    "width": 128,
    "depth": 2,
    "mask_depth": 1,
    "decoding": "kernel",
}
"""Network that learns best which points belong to an anchor, given many features and no density."""


class DAC(FilteringClusterer):
    """Deep amortized clustering: a pretrained set network filters out one cluster per pass (Lee, Lee & Teh, 2019).

    ``fit`` trains nothing and finds the number of clusters. The shipped weights are for points in the plane; data with
    one feature or with more than two are mapped to two, as ``notes_`` reports. For data of another kind, train the
    network on labelled examples with ``learn``.

    Parameters
    ----------
    decoding : {"auto", "robust", "kernel", "faithful"}
        "robust": after filtering, clusters compete for the rows by their densities, and superfluous ones are dropped or
        merged. "faithful": each pass keeps the rows it takes and the first one gets the rest, as published. "kernel",
        for anchored networks without a density: every row is an anchor once, and the resulting pairwise probabilities
        are clustered by average linkage. "auto" is what the weights were trained for.
    density : {"flow", "gaussian", "statistician", "none"}
        Density of a cluster, for new networks.

    Attributes
    ----------
    evaluation_ : dict
        After ``learn``: loss and adjusted Rand index on the held-out tasks, and how many tasks these are.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from coterie import DAC
    >>> X, _ = make_blobs(500, centers=5, cluster_std=0.6, random_state=3)
    >>> model = DAC(random_state=0).fit(X)
    >>> model.n_clusters_
    5
    >>> bool((model.predict(X) == model.labels_).all())
    True
    """

    method: ClassVar[str] = "dac"
    model_class: ClassVar[type[SetModel]] = DacModel
    constraints: ClassVar[dict[str, Constraints]] = FilteringClusterer.constraints | {
        "decoding": Choice("auto", "robust", "kernel", "faithful"),
        "density": Choice(*get_args(Density)),
    }

    def __init__(
        self,
        n_clusters: Literal["auto"] = "auto",
        *,
        max_points: int | None = None,
        decoding: Literal["auto", "robust", "kernel", "faithful"] = "auto",
        density: Density = "flow",
        filtering: Literal["min-loss", "anchored"] = "min-loss",
        n_principal_axes: int = 0,
        keep_features: bool = False,
        architecture: Literal["default", "published"] = "default",
        weights: str | Path | None = "dac-plane-v1",
        scaling: Literal["auto"] | Scaling = "auto",
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_points = max_points
        self.decoding = decoding
        self.density = density
        self.filtering = filtering
        self.n_principal_axes = n_principal_axes
        self.keep_features = keep_features
        self.architecture = architecture
        self.weights = weights
        self.scaling = scaling
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.callback = callback

    @classmethod
    def faithful(cls, **overrides: Any) -> Self:
        """Return the published configuration: decoding pass by pass over all rows, and ``learn`` for its network.

        Parameters
        ----------
        **overrides
            Parameters that replace those of the paper.
        """
        published: dict[str, Any] = {
            "decoding": "faithful",
            "max_points": UNLIMITED,
            "density": "gaussian",
            "architecture": "published",
        }
        return cls(**published | overrides)

    def _new_config(self, n_features: int, image: ImageSize | None) -> DacConfig:
        if self.architecture == "published":
            config = DacConfig.faithful(n_features, density=self.density if image is None else "none")
            return replace(config, **self._input(image), filtering=self.filtering)
        # Densities describe the points themselves, and images have too many pixels for that.
        if image is not None or (self.filtering == "anchored" and self.density == "none"):
            return DacConfig(n_features, **self._input(image), **_COMPARING_ANCHORS)
        return DacConfig(n_features, **self._input(None), density=self.density, filtering=self.filtering)
