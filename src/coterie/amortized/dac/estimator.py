"""DAC as a scikit-learn estimator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel
from coterie.amortized.estimator import FilteringClusterer
from coterie.nn.density import Density
from coterie.nn.model import SetModel
from coterie.progress import Progress
from coterie.tables.encoder import Scaling


class DAC(FilteringClusterer):
    """Deep amortized clustering: a network that was trained on sorted sets takes out one cluster after the other.

    Nothing is trained by ``fit``, and the number of clusters is not asked for. The weights that ship are for points in
    the plane; data with one feature or with more than two are brought there, which ``notes_`` states. For sets of your
    own kind, ``learn`` trains the network on some that you have sorted.

    Parameters
    ----------
    weights : str, Path or None
        Name of weights that ship (``coterie.pretrained.registry.pretrained_names("dac")``), or a file; None to ``learn`` from
        nothing.
    max_points : int or None
        Rows that go through the network; of more, so many are drawn by chance, and what was found in them takes the
        others. None is what the weights say: 500 for Gaussians, 1,000 for arcs.
    decoding : {"auto", "robust", "kernel", "faithful"}
        "robust": clusters compete for the rows by their densities, and those that are too many are dropped or joined.
        "faithful": each pass keeps what it takes and the first gets what is left over, as published. "kernel", for
        anchored networks without a density: every row is an anchor once, and what all say of each other is read as
        probabilities to be together. "auto" is what the weights were made for.
    density : {"flow", "gaussian", "statistician", "none"}
        What describes a cluster, for ``learn`` from nothing.
    filtering : {"min-loss", "anchored"}
        Whether the network chooses the next cluster or a random row does, for ``learn`` from nothing.
    principal : int
        Principal directions of a set that its rows are seen along, for ``learn`` from nothing without a density: with
        many features and few classes to learn from, the network learns how clusters lie, and not where those of
        training were. 0 leaves rows as they are.
    principal_beside : bool
        With ``principal``: whether points are seen as they are too. Better for features that mean the same in all sets,
        such as those of a network that was trained on much else.
    scaling : {"auto", "robust", "standard", "none"}
        How number columns are brought to one scale; "auto" is what the weights were trained with.
    device : str
        "auto", "cpu", "cuda" ...
    random_state : int, RandomState or None
        Same number, same result.
    on_progress : callable, optional
        Called with a ``coterie.progress.Progress`` after every step of ``learn``.

    Attributes
    ----------
    labels_ : array (n,)
        Cluster of each row, the largest cluster being 0.
    n_clusters_ : int
        How many clusters were found.
    probabilities_ : array (n, n_clusters_)
        Memberships of the rows of ``fit``.
    cluster_centers_ : array (n_clusters_, n_encoded)
        Mean of each cluster, in the units of the input; one column per entry of ``table_.features``.
    prototypes_ : array (n_clusters_, n_encoded)
        The same in the encoded features, those of ``table_``.
    notes_ : tuple of str
        What was decided on the way, in sentences.
    history_ : dict of str to list of float
        Course of training: empty, since ``fit`` trains nothing.
    runs_ : list of dict
        Restarts that were tried: none.
    evaluation_ : dict
        After ``learn``: the loss and the agreement (adjusted Rand index) on the tasks that were held out.
    table_ : TableEncoder
        How columns became numbers; its ``notes`` list every decision.

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
    kind: ClassVar[type[SetModel]] = DacModel

    def __init__(
        self,
        weights: str | Path | None = "dac-plane-v1",
        *,
        max_points: int | None = None,
        decoding: Literal["auto", "robust", "kernel", "faithful"] = "auto",
        density: Density = "flow",
        filtering: Literal["min-loss", "anchored"] = "min-loss",
        principal: int = 0,
        principal_beside: bool = False,
        scaling: Literal["auto"] | Scaling = "auto",
        device: str = "auto",
        random_state: Any = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.weights = weights
        self.max_points = max_points
        self.decoding = decoding
        self.density = density
        self.filtering = filtering
        self.principal = principal
        self.principal_beside = principal_beside
        self.scaling = scaling
        self.device = device
        self.random_state = random_state
        self.on_progress = on_progress

    def _fresh_config(self, n_features: int, image: tuple[int, int, int] | None) -> DacConfig:
        if image is not None:  # densities describe points as they are, which images are too many numbers for
            return DacConfig(
                n_features,
                encoder="strided",
                image=image,
                principal=self.principal,
                principal_beside=self.principal_beside,
                **_COMPARED,
            )
        if self.filtering == "anchored" and self.density == "none":
            return DacConfig(n_features, principal=self.principal, principal_beside=self.principal_beside, **_COMPARED)
        return DacConfig(
            n_features,
            principal=self.principal,
            principal_beside=self.principal_beside,
            density=self.density,
            filtering=self.filtering,
        )


_COMPARED: dict[str, Any] = {
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
"""The network that learns best who belongs to an anchor, where there are many features and no density."""
