"""AMCP as a scikit-learn estimator."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from coterie.amortized.amcp.config import AmcpConfig
from coterie.amortized.amcp.network import AmcpModel
from coterie.amortized.estimator import FilteringClusterer, ImageSize
from coterie.amortized.filtering import UNLIMITED
from coterie.nn.density import Density
from coterie.nn.model import SetModel
from coterie.progress import Callback
from coterie.tables.encoder import Scaling
from coterie.validation import BOOLEAN, NONE, Choice, Constraints, Integer


class AMCP(FilteringClusterer):
    """Amortized mixing coupling processes: one cluster per pass by unrolled EM steps (Liu & Jing, 2022).

    A reconstruction: only the appendix of the paper was available, and what it leaves open is our choice. A network
    proposes a reference for the next cluster, a few E- and M-steps move it to its points, and these are removed.
    ``fit`` trains nothing, finds the number of clusters, and never compares two rows: time grows with rows times
    clusters. The shipped weights are for points in the plane; data with one feature or with more than two are mapped to
    two, as ``notes_`` reports. For data of another kind, train the network on labelled examples with ``learn``.

    Parameters
    ----------
    decoding : {"auto", "robust", "faithful"}
        "robust": after filtering, clusters compete for the rows, by their densities where they have some, and
        superfluous ones are dropped or merged. "faithful": each pass keeps the rows it takes. "auto" is what the
        weights were trained for.
    em_steps : int or None
        E- and M-steps per pass; None for the number used in training.
    update_previous : bool or None
        Whether rows may move between the clusters found so far after every pass (AMCP*); None as in training.
    density : {"gaussian", "flow", "none"}
        Density of a cluster, for new networks.

    Attributes
    ----------
    evaluation_ : dict
        After ``learn``: loss and adjusted Rand index on the held-out tasks, and how many tasks these are.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from coterie import AMCP
    >>> X, _ = make_blobs(500, centers=5, cluster_std=0.6, random_state=3)
    >>> model = AMCP(random_state=0).fit(X)
    >>> model.n_clusters_
    5
    >>> bool((model.predict(X) == model.labels_).all())
    True
    """

    method: ClassVar[str] = "amcp"
    model_class: ClassVar[type[SetModel]] = AmcpModel
    constraints: ClassVar[dict[str, Constraints]] = FilteringClusterer.constraints | {
        "decoding": Choice("auto", "robust", "faithful"),
        "em_steps": (Integer(0), NONE),
        "update_previous": (BOOLEAN, NONE),
        "density": Choice("gaussian", "flow", "none"),
    }

    def __init__(
        self,
        n_clusters: Literal["auto"] = "auto",
        *,
        max_points: int | None = None,
        decoding: Literal["auto", "robust", "faithful"] = "auto",
        em_steps: int | None = None,
        update_previous: bool | None = None,
        density: Literal["gaussian", "flow", "none"] = "gaussian",
        filtering: Literal["min-loss", "anchored"] = "min-loss",
        n_principal_axes: int = 0,
        keep_features: bool = False,
        architecture: Literal["default", "published"] = "default",
        weights: str | Path | None = "amcp-plane-v1",
        scaling: Literal["auto"] | Scaling = "auto",
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_points = max_points
        self.decoding = decoding
        self.em_steps = em_steps
        self.update_previous = update_previous
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
        """Return the published configuration as far as it is known: decoding pass by pass over all rows.

        ``learn`` then trains the network of the paper's appendix.

        Parameters
        ----------
        **overrides
            Parameters that replace those of the paper.
        """
        published: dict[str, Any] = {"decoding": "faithful", "max_points": UNLIMITED, "architecture": "published"}
        return cls(**published | overrides)

    def _new_config(self, n_features: int, image: ImageSize | None) -> AmcpConfig:
        # Densities describe the points themselves, and images have too many pixels for that.
        density: Density = self.density if image is None else "none"
        if self.architecture == "published":
            config = AmcpConfig.faithful(n_features, width=2 if image is None else 512, density=density)
            return replace(config, **self._input(image), filtering=self.filtering)
        if image is not None:
            return AmcpConfig(
                n_features, **self._input(image), filtering="anchored", density="none", prefixes_per_set=4
            )
        return AmcpConfig(n_features, **self._input(None), density=density, filtering=self.filtering)

    def _with_decoding(self, config: AmcpConfig) -> AmcpConfig:
        config = super()._with_decoding(config)
        if self.em_steps is not None:
            config = replace(config, em_steps=int(self.em_steps))
        return config if self.update_previous is None else replace(config, update_previous=self.update_previous)
