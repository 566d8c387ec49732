"""Attention-based clustering (ABC) as a scikit-learn estimator."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted

from coterie.amortized.abc.config import AttentionBasedConfig, Compatibility, Decoding
from coterie.amortized.abc.network import AttentionBasedModel, leading_eigenvalues, normalised_affinity
from coterie.amortized.estimator import AmortizedClusterer, ImageSize
from coterie.base import FitDescription, one_thread
from coterie.errors import InputError
from coterie.nn.model import SetModel
from coterie.nn.vision import Encoder
from coterie.progress import Callback
from coterie.tables.encoder import Scaling
from coterie.tables.table import Table
from coterie.torch_base import labels_to_numpy, to_numpy
from coterie.validation import BOOLEAN, NONE, Choice, Constraints, Integer, Number

MAX_EIGENVALUES = 100  # largest number of eigenvalues in ``eigenvalues_``


class AttentionBasedClustering(AmortizedClusterer):
    """Attention-based clustering: a learned similarity kernel, decoded into clusters (Coward et al., 2020).

    A pretrained network reads all rows and estimates for each pair the probability of being in the same cluster; the
    clusters, and their number unless you give it, follow from these probabilities. ``fit`` trains nothing. Two networks
    ship: for images of handwritten characters, and for points in the plane. Train your own on labelled images,
    embeddings or tables with ``learn``.

    Parameters
    ----------
    n_clusters : int or "auto"
        Number of clusters; "auto" finds it from the kernel.
    decoding : {"linkage", "contraction", "eigengap"}
        How the kernel is decoded: average linkage down to ``threshold``; greedy merging while the summed log-odds
        between two clusters are positive; or spectral clustering with the number of clusters at the largest eigengap,
        as published.
    threshold : float or None
        Mean probability down to which "linkage" merges clusters; higher gives more clusters. None is the value that was
        calibrated on held-out tasks.
    min_cluster_size : int or None
        Rows that a cluster of "linkage" must have; smaller ones are merged into the most similar one. None is the
        calibrated value.
    local_moves : bool or None
        Whether rows then move between the clusters of "linkage" while that raises the probabilities within clusters.
        None is the calibrated value.
    max_points : int
        Rows that the kernel is computed for, in quadratic time and memory. Larger inputs are subsampled, and the
        remaining rows are assigned by their kernel with the sample.
    compatibility : {"multiplicative", "additive"}
        Compatibility function of queries and keys, for new networks.
    weights : str, Path or None
        Name of shipped weights (``coterie.pretrained.registry.pretrained_names``), or a model file; "auto" takes those
        for characters if X is images, and those for points otherwise; None for a new network, which ``learn`` trains.

    Attributes
    ----------
    kernel_ : array (m, m)
        Probability that two of the sampled rows are in the same cluster.
    kernel_rows_ : array (m,)
        Indices of these rows: all, or a sample of ``max_points``.
    eigenvalues_ : array
        Largest eigenvalues of the normalised kernel, at most 100; k clusters far apart have k eigenvalues near 1.
    evaluation_ : dict
        After ``learn``: loss and adjusted Rand index on the held-out tasks, and how many tasks these are.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from coterie import AttentionBasedClustering
    >>> X, _ = make_blobs(300, centers=4, cluster_std=0.6, random_state=3)
    >>> model = AttentionBasedClustering(random_state=0).fit(X)
    >>> model.n_clusters_
    4
    >>> model.kernel_.shape
    (300, 300)
    """

    method: ClassVar[str] = "attention-based"
    model_class: ClassVar[type[SetModel]] = AttentionBasedModel
    constraints: ClassVar[dict[str, Constraints]] = AmortizedClusterer.constraints | {
        "n_clusters": (Integer(1), Choice("auto"), NONE),
        "decoding": Choice(*get_args(Decoding)),
        "threshold": (Number(0.0, 1.0, exclusive=True), NONE),
        "min_cluster_size": (Integer(1), NONE),
        "local_moves": (BOOLEAN, NONE),
        "max_points": Integer(1),
        "compatibility": Choice(*get_args(Compatibility)),
    }
    model_: AttentionBasedModel
    renamed_parameters: ClassVar[dict[str, str]] = AmortizedClusterer.renamed_parameters | AttentionBasedConfig.RENAMED

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = "auto",
        *,
        decoding: Decoding = "linkage",
        threshold: float | None = None,
        min_cluster_size: int | None = None,
        local_moves: bool | None = None,
        max_points: int = 1000,
        compatibility: Compatibility = "multiplicative",
        architecture: Literal["default", "published"] = "default",
        weights: str | Path | None = "auto",
        scaling: Literal["auto"] | Scaling = "auto",
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters: Any = n_clusters
        self.decoding = decoding
        self.threshold = threshold
        self.min_cluster_size = min_cluster_size
        self.local_moves = local_moves
        self.max_points = max_points
        self.compatibility = compatibility
        self.architecture = architecture
        self.weights = weights
        self.scaling = scaling
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.callback = callback

    @classmethod
    def faithful(cls, n_clusters: int | Literal["auto"] = "auto", **overrides: Any) -> Self:
        """Return the published configuration: eigengap decoding, and ``learn`` for the published network.

        Parameters
        ----------
        n_clusters : int or "auto"
            Number of clusters.
        **overrides
            Parameters that replace those of the paper.
        """
        published: dict[str, Any] = {"decoding": "eigengap", "architecture": "published"}
        return cls(n_clusters, **published | overrides)

    @one_thread()
    def similarity(self, X: Any, adjacency: npt.ArrayLike | None = None) -> npt.NDArray[np.float32]:
        """Compute the kernel (n, n) of the rows of X: the probability of each pair to be in one cluster.

        The rows are a set of their own; those of ``fit`` play no part. Any method that takes an affinity can use it.

        Parameters
        ----------
        X : array-like (n, d) or images
            Rows with the columns of ``fit``.
        adjacency : array (n, n), optional
            Non-negative edge weights of a graph that restricts attention: a row attends only to its neighbours, in
            proportion to the weights. Add self-loops if rows are to attend to themselves.
        """
        check_is_fitted(self)
        x = self._features(X)
        edges = None
        if adjacency is not None:
            edges = torch.as_tensor(np.asarray(adjacency, dtype=np.float32), device=x.device)
            if edges.shape != (len(x), len(x)) or not bool((edges.isfinite() & (edges >= 0)).all()):
                raise InputError(
                    f"adjacency has the shape {tuple(edges.shape)}; it must be {len(x)} x {len(x)} finite, "
                    "non-negative weights."
                )
            edges = edges.unsqueeze(0)
        with torch.no_grad():
            return to_numpy(self.model_.kernel(x.unsqueeze(0), adjacency=edges)[0])

    def _fit(self, X: Any) -> None:
        if self.n_clusters is None:
            warnings.warn('n_clusters=None is deprecated; use n_clusters="auto".', FutureWarning, stacklevel=3)
        super()._fit(X)

    def _weights_for(self, *, images: bool) -> str | Path | None:
        if self.weights == "auto":
            return "abc-omniglot-v1" if images else "abc-plane-v1"
        return self.weights

    def _set_results(self) -> None:
        super()._set_results()
        sampled = self._clustering.extras["kept"]
        last = self._clustering.extras["layers"][-1, sampled.argsort()].unsqueeze(0)
        with torch.no_grad():
            kernel = self.model_.log_probabilities(last, last)[0].exp()[0]
        self.kernel_ = to_numpy(kernel)
        self.kernel_rows_ = labels_to_numpy(sampled.sort().values)
        count = min(MAX_EIGENVALUES, len(kernel))
        self.eigenvalues_ = to_numpy(leading_eigenvalues(normalised_affinity(kernel), count))

    def _from_checkpoint(self, arrays: dict[str, npt.NDArray[Any]], card: dict[str, Any]) -> None:
        if self.n_clusters is None:  # files of earlier versions
            self.n_clusters = "auto"
        super()._from_checkpoint(arrays, card)

    def describe_fit(self, table: Table) -> FitDescription:
        """Describe the fit for the summary and the report: the kernel."""
        kernel, rows = vars(self).get("kernel_"), vars(self).get("kernel_rows_")  # only for the rows of ``fit``
        return FitDescription(pixel_distances_meaningful=False, kernel=kernel, kernel_rows=rows)

    def _with_labels(self, labels: npt.NDArray[np.int64], probabilities: npt.NDArray[np.float32]) -> Self:
        other = super()._with_labels(labels, probabilities)
        for name in ("kernel_", "kernel_rows_"):
            other.__dict__.pop(name, None)
        return other

    def _new_config(self, n_features: int, image: ImageSize | None) -> AttentionBasedConfig:
        encoder: Encoder = "identity" if image is None else "strided"
        make = AttentionBasedConfig.faithful if self.architecture == "published" else AttentionBasedConfig
        return make(n_features, encoder=encoder, image=image, compatibility=self.compatibility)

    def _with_decoding(self, config: AttentionBasedConfig) -> AttentionBasedConfig:
        given = {name: getattr(self, name) for name in ("threshold", "min_cluster_size", "local_moves")}
        return replace(
            config,
            decoding=self.decoding,
            max_points=int(self.max_points),
            n_clusters=None if self.n_clusters in {"auto", None} else int(self.n_clusters),
            **{name: value for name, value in given.items() if value is not None},
        )
