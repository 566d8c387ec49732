"""Attention-based clustering (ABC) as a scikit-learn estimator."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch

from coterie.amortized.abc.network import (
    AttentionBasedConfig,
    AttentionBasedModel,
    Compatibility,
    Decode,
    leading_eigenvalues,
    normalised_affinity,
)
from coterie.amortized.estimator import AmortizedClusterer, check_at_least_one
from coterie.base import labels_to_numpy, one_thread, to_numpy
from coterie.errors import InputError
from coterie.nn.model import SetModel
from coterie.nn.vision import Encoder
from coterie.progress import Progress
from coterie.tables.encoder import Scaling

EIGENVALUES = 100
"""Eigenvalues of the kernel that are kept, at most."""


class AttentionBasedClustering(AmortizedClusterer):
    """Attention-based clustering: a similarity kernel learned from sorted sets, in which the context of a set decides.

    A network that was trained on sets whose clusters are known says of each pair of rows how probably both are in one
    cluster, having looked at all rows. Nothing is trained by ``fit``, and the number of clusters need not be given: it
    follows from the probabilities. Two networks ship: for images of hand-written characters, and for points in the
    plane. ``learn`` trains one on sets that you have sorted: images, embeddings or tables.

    Parameters
    ----------
    n_clusters : int or None
        How many clusters there are to be, exactly; None leaves it to the kernel.
    weights : str, Path or None
        Name of weights that ship (``coterie.pretrained.registry.pretrained_names("attention-based")``), or a file; "auto" takes
        those for characters if X is images, and those for points otherwise; None to ``learn`` from nothing.
    decode : {"linkage", "contraction", "eigengap"}
        How clusters are read off the kernel: by average linkage down to a probability that was calibrated on sets which
        were not trained on; by joining whatever the sums of log-odds say belongs together; or by spectral clustering
        with the number that the largest gap between eigenvalues shows, as published.
    cut : float or None
        Mean probability down to which linkage joins clusters: higher for more clusters; None is the calibrated one.
    smallest : int or None
        Rows that a cluster of "linkage" must have; smaller ones join the cluster that they are most probably with. None
        is what the weights were calibrated to.
    climb : bool or None
        Whether rows then move between the clusters of "linkage", one at a time, as long as that raises the
        probabilities within clusters. None is what the weights were calibrated to.
    max_points : int
        Rows that the kernel is made for; of more, so many are drawn by chance, and the others join by their kernel with
        these. Time and memory grow with the square.
    compatibility : {"multiplicative", "additive"}
        How queries meet keys, for ``learn`` from nothing.
    scaling : {"auto", "robust", "standard", "none"}
        How number columns are brought to one scale; "auto" is what the weights were trained with. Images are not
        scaled.
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
    kernel_ : array (m, m)
        Probability of each pair of the first ``max_points`` rows, or of those that were drawn, to be in one cluster.
    kernel_rows_ : array (m,)
        Which rows these are.
    eigenvalues_ : array
        Largest eigenvalues of the normalised kernel, at most 100: as many near 1 as there are clusters far apart.
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
    >>> from coterie import AttentionBasedClustering
    >>> X, _ = make_blobs(300, centers=4, cluster_std=0.6, random_state=0)
    >>> model = AttentionBasedClustering(random_state=0).fit(X)
    >>> model.n_clusters_
    4
    >>> model.kernel_.shape
    (300, 300)
    """

    method: ClassVar[str] = "attention-based"
    kind: ClassVar[type[SetModel]] = AttentionBasedModel

    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        weights: str | Path | None = "auto",
        decode: Decode = "linkage",
        cut: float | None = None,
        smallest: int | None = None,
        climb: bool | None = None,
        max_points: int = 1000,
        compatibility: Compatibility = "multiplicative",
        scaling: Literal["auto"] | Scaling = "auto",
        device: str = "auto",
        random_state: Any = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.weights = weights
        self.decode = decode
        self.cut = cut
        self.smallest = smallest
        self.climb = climb
        self.max_points = max_points
        self.compatibility = compatibility
        self.scaling = scaling
        self.device = device
        self.random_state = random_state
        self.on_progress = on_progress

    @one_thread()
    def similarity(self, X: Any, adjacency: npt.ArrayLike | None = None) -> npt.NDArray[np.float32]:
        """Kernel (n, n) of the rows of X as a set of their own: the probability of each pair to be in one cluster.

        Any method that takes an affinity can cluster with it.

        Parameters
        ----------
        X : array-like (n, d) or images
            Rows with the columns of ``fit``.
        adjacency : array (n, n), optional
            Weights of a graph whose edges attention follows, none negative: a row attends only to its neighbours, and
            to these in proportion. Give rows an edge to themselves if they are to attend to themselves.
        """
        x = self._features(X)
        edges = None
        if adjacency is not None:
            edges = torch.as_tensor(np.asarray(adjacency, dtype=np.float32), device=x.device)
            if edges.shape != (len(x), len(x)) or not bool((edges.isfinite() & (edges >= 0)).all()):
                raise InputError(
                    f"adjacency must be {len(x)} x {len(x)} finite weights, none negative; got the shape "
                    f"{tuple(edges.shape)}."
                )
            edges = edges.unsqueeze(0)
        with torch.no_grad():
            return to_numpy(self._abc.kernel(x.unsqueeze(0), adjacency=edges)[0])

    @property
    def _abc(self) -> AttentionBasedModel:
        if not isinstance(self.model_, AttentionBasedModel):
            raise TypeError(f"the network is a {type(self.model_).__name__}")
        return self.model_

    def _weights_for(self, *, pictures: bool) -> str | Path | None:
        if self.weights == "auto":
            return "abc-omniglot-v1" if pictures else "abc-plane-v1"
        return self.weights

    def _describe(self) -> None:
        super()._describe()
        kept = self._found.extras["kept"]
        last = self._found.extras["layers"][-1, kept.argsort()].unsqueeze(0)
        with torch.no_grad():
            kernel = self._abc.log_probabilities(last, last)[0].exp()[0]
        self.kernel_ = to_numpy(kernel)
        self.kernel_rows_ = labels_to_numpy(kept.sort().values)
        self.eigenvalues_ = to_numpy(leading_eigenvalues(normalised_affinity(kernel), min(EIGENVALUES, len(kernel))))

    def _fresh_config(self, n_features: int, image: tuple[int, int, int] | None) -> AttentionBasedConfig:
        encoder: Encoder = "identity" if image is None else "strided"
        return AttentionBasedConfig(n_features, encoder=encoder, image=image, compatibility=self.compatibility)

    def _configured(self, config: AttentionBasedConfig) -> AttentionBasedConfig:
        check_at_least_one(max_points=self.max_points)
        if self.n_clusters is not None:
            check_at_least_one(n_clusters=self.n_clusters)
        if self.smallest is not None:
            check_at_least_one(smallest=self.smallest)
        return replace(
            config,
            decode=self.decode,
            cut=config.cut if self.cut is None else self.cut,
            smallest=config.smallest if self.smallest is None else int(self.smallest),
            climb=config.climb if self.climb is None else self.climb,
            max_points=int(self.max_points),
            n_clusters=None if self.n_clusters is None else int(self.n_clusters),
        )
