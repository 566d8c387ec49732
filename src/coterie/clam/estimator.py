"""ClAM as a scikit-learn estimator."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from torch import Tensor

from coterie.base import BaseClusterer, generator_from, labels_to_numpy, one_thread, to_numpy
from coterie.clam.model import ClamConfig, ClamModel, Metric, Objective
from coterie.clam.search import Fill, Select, batch_size_for, check_weight, make_plan, search, settle
from coterie.config import from_dict, to_dict
from coterie.ops.partitions import cluster_means
from coterie.progress import Callback
from coterie.tables.encoder import Scaling
from coterie.training.batches import point_batches
from coterie.training.loop import TrainConfig, train
from coterie.validation import check_parameters

STREAM_RATE = 0.2
"""Share of the chosen run's learning rate that ``partial_fit`` begins with."""


class ClAM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseClusterer):  # type: ignore[misc]  # scikit-learn is untyped
    """Clustering with associative memories.

    Prototypes attract points step by step; they are learned by hiding features and completing them from what is left.
    Restarts, and every parameter below that takes several values, are trained together as one tensor program, and the
    best run is kept.

    Parameters
    ----------
    n_clusters : int or "auto"
        How many clusters; "auto" trains every number from 2 to ``max_clusters`` in the same program.
    max_clusters : int
        Largest number that "auto" tries.
    beta : float, sequence of float, or "auto"
        Inverse temperature, in the units of the encoded data; large values approach nearest-prototype clustering.
    steps : int
        T, the number of updates that take a point towards its prototype.
    learning_rate : float or sequence of float
        Largest rate of Adam.
    mask_rate : float or sequence of float
        Share of the features that are hidden in training.
    fill : {"mean", "min", "max"} or a sequence of these
        What stands in for a hidden feature at first.
    n_restarts : int
        Starts for each setting.
    init : {"mixed", "k-means", "k-means++", "data", "normal", "spread"}, or array (n_clusters, n_features)
        Where prototypes begin: "normal" is the paper's N(0.1, 0.1²); "data" are rows; "k-means" refines "k-means++" by
        Lloyd's steps; "spread" draws rows far from each other, which finds outliers; "mixed" takes the first four in
        turn. An array is in the units of the (encoded) input.
    select : {"silhouette", "loss"}
        How the best run is told, both without labels.
    min_cluster_size : int or "auto"
        Runs with a smaller cluster are taken only if there is no other. "auto" is half of an equal share, or three
        quarters of the smallest cluster of k-means if that is less. Unless it is 0, as in the paper, prototypes that
        would own no row are revived.
    objective : {"masked", "unmasked"}
        Complete hidden features (Eq. 9 of the paper), or the ablation without masks (Eq. 8).
    metric : {"euclidean", "cosine", "manhattan", "mahalanobis"}
        What the prototypes attract by. "cosine" is the paper's spherical variant (Eq. 12).
    prototype_weights : None, "learned", or array (n_clusters,)
        Relative attraction of the prototypes (Eq. 10).
    scaling : {"robust", "standard", "none"}
        How number columns are brought to one scale; see ``coterie.tables.encoder.TableEncoder``.
    epochs : int or "auto"
        Passes over the rows; "auto" spends a few seconds.
    batch_size : int or "auto"
        Rows of a training step.
    halving : bool
        Stop runs early that fall behind (successive halving).
    code_beta : bool
        Take ``beta`` as the authors' code and Table 6 of the paper do, which is twice the paper's own.
    legacy_mask : bool
        Draw masks as the authors' code does.
    plateau : bool
        Cut the rate when the loss stalls, as the authors' code does, instead of a cosine schedule.
    device : str
        "auto", "cpu", "cuda" ...
    random_state : int, RandomState or None
        Same number, same result, at any number of threads.
    on_progress : callable, optional
        Called with a ``coterie.progress.Progress`` after every step.

    Attributes
    ----------
    labels_ : array (n,)
        Cluster of each row, the largest cluster being 0.
    n_clusters_ : int
        Number of clusters that own at least one row.
    probabilities_ : array (n, n_clusters_)
        Soft memberships of the rows of ``fit``.
    cluster_centers_ : array (n_clusters_, n_encoded)
        Mean of each cluster, in the units of the input; one column per entry of ``table_.features``.
    prototypes_ : array (n_clusters_, n_encoded)
        Prototypes, in the encoded space. They overshoot the means: a point never quite reaches its prototype.
    beta_ : float
        Inverse temperature of the chosen run.
    silhouette_ : float
        Of the chosen run, on the rows that ``notes_`` states.
    history_ : dict
        ``loss`` of the chosen run, epoch by epoch.
    runs_ : list of dict
        Settings and scores of all runs that were trained to the end.
    notes_ : tuple of str
        What was decided on the way, in sentences.
    table_ : TableEncoder
        How columns became numbers; its ``notes`` list every decision.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from coterie import ClAM
    >>> model = ClAM(3, random_state=0).fit(load_wine().data)
    >>> model.n_clusters_
    3
    >>> bool((model.predict(load_wine().data) == model.labels_).all())
    True
    """

    method: ClassVar[str] = "clam"

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = "auto",
        *,
        max_clusters: int = 10,
        beta: float | Sequence[float] | Literal["auto"] = "auto",
        steps: int = 5,
        learning_rate: float | Sequence[float] = (0.1, 0.02),
        mask_rate: float | Sequence[float] = 0.15,
        fill: Fill | Sequence[Fill] = "mean",
        n_restarts: int = 8,
        init: Any = "mixed",
        select: Select = "silhouette",
        min_cluster_size: int | Literal["auto"] = "auto",
        objective: Objective = "masked",
        metric: Metric = "euclidean",
        prototype_weights: Any = None,
        scaling: Scaling = "robust",
        epochs: int | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        halving: bool = True,
        code_beta: bool = False,
        legacy_mask: bool = False,
        plateau: bool = False,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_clusters = max_clusters
        self.beta = beta
        self.steps = steps
        self.learning_rate = learning_rate
        self.mask_rate = mask_rate
        self.fill = fill
        self.n_restarts = n_restarts
        self.init = init
        self.select = select
        self.min_cluster_size = min_cluster_size
        self.objective = objective
        self.metric = metric
        self.prototype_weights = prototype_weights
        self.scaling = scaling
        self.epochs = epochs
        self.batch_size = batch_size
        self.halving = halving
        self.code_beta = code_beta
        self.legacy_mask = legacy_mask
        self.plateau = plateau
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    @classmethod
    def faithful(cls, n_clusters: int, **parameters: Any) -> "ClAM":
        """The published configuration: standardised data, N(0.1, 0.1²) starts, the authors' masks, rates and stopping.

        Parameters
        ----------
        n_clusters : int
            How many prototypes; some may end empty.
        **parameters
            What to set otherwise, such as the tabled ``beta``.
        """
        published: dict[str, Any] = {
            "beta": (1.1, 1.5, 2.0, 2.4),
            "steps": 10,
            "learning_rate": (1e-3, 1e-2, 1e-1),
            "mask_rate": 0.2,
            "fill": ("mean", "max", "min"),
            "n_restarts": 10,
            "init": "normal",
            "min_cluster_size": 0,
            "scaling": "standard",
            "epochs": 200,
            "batch_size": 8,
            "halving": False,
            "code_beta": True,
            "legacy_mask": True,
            "plateau": True,
        }
        return cls(n_clusters, **(published | parameters))

    def fit(self, X: Any, y: None = None, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn prototypes from the rows of X.

        Parameters
        ----------
        X : array, DataFrame, Arrow table, tensor or list (n, d)
            Numbers, categories, booleans, dates; missing values are welcome.
        y : None
            Not used.
        sample_weight : array (n,), optional
            How much each row counts in training.
        """
        check_parameters(self, self.constraints)
        with one_thread():
            self._fit(X, sample_weight)
        return self

    def _fit(self, X: Any, sample_weight: npt.ArrayLike | None = None) -> None:
        x = self._fit_encoder(X, self.scaling)
        weight = check_weight(sample_weight, x)
        rows = x if weight is None else x[weight > 0]
        plan = make_plan(self.get_params(deep=False), rows, self.table_)
        found = search(
            rows,
            plan,
            generator=generator_from(self.random_state, x.device),
            weight=None if weight is None else weight[weight > 0],
            on_progress=self._progress(),
        )
        self.runs_, self.notes_ = found.runs, found.notes
        self.silhouette_ = float(str(found.runs[found.chosen]["silhouette"]))
        self.model_, afterthoughts = settle(found, rows, plan)
        self.notes_ += afterthoughts
        self._describe(x)

    @one_thread()
    def partial_fit(self, X: Any, y: None = None, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Go on learning from more rows; the first call is a ``fit``, and fixes the columns and their scale.

        Parameters
        ----------
        X : array-like (n, d)
            A part of a stream.
        y : None
            Not used.
        sample_weight : array (n,), optional
            How much each row counts.
        """
        if "model_" not in vars(self):
            return self.fit(X, sample_weight=sample_weight)
        x = self._encode(X)
        generator = generator_from(self.random_state, x.device)
        batch_size = batch_size_for(self.batch_size, len(x))
        train(
            self.model_,
            point_batches(
                x, batch_size=batch_size, epochs=2, generator=generator, weight=check_weight(sample_weight, x)
            ),
            TrainConfig(steps=2 * math.ceil(len(x) / batch_size), learning_rate=STREAM_RATE, warmup=5),
            generator=generator,
        )
        self._describe(x)
        return self

    def _predict(self, X: Any) -> npt.NDArray[np.int64]:
        return labels_to_numpy(self.model_.assign(self._encode(X))[0])

    def _predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Compute softmax(-beta distance) at the end of each row's trajectory."""
        x = self._encode(X)
        return to_numpy(self.model_.cluster(x, generator_from(0, x.device)).probabilities)

    @one_thread()
    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """Distances (n, n_clusters_) of the rows from the prototypes, in the space in which these live.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.
        """
        x = self._encode(X)
        prototypes = self.model_.memories()[0, : self.n_clusters_].detach()
        return to_numpy(torch.cdist(self.model_.enter(x), prototypes))

    @one_thread()
    def score(self, X: Any, y: None = None) -> float:
        """Negative mean distance of where the rows end from their prototype: the higher the better.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.
        y : None
            Not used.
        """
        x = self._encode(X)
        nearest = [self.model_.final_distances(block)[0].amin(dim=1) for block in self.model_.blocks(x)]
        return -float(torch.cat(nearest).mean())

    @one_thread()
    def energy(self, X: Any) -> npt.NDArray[np.float32]:
        """Energy (n,) of the associative memory at each row: low near prototypes (Eq. 1, 10, 12).

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.
        """
        x = self._encode(X)
        return to_numpy(torch.cat([self.model_.energy(block) for block in self.model_.blocks(x)]))

    @one_thread()
    def entropy(self, X: Any) -> npt.NDArray[np.float32]:
        """Entropy (n,) of the pull on each row (Eq. 13): zero where one prototype alone attracts it.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.
        """
        x = self._encode(X)
        return to_numpy(torch.cat([self.model_.entropy(block) for block in self.model_.blocks(x)]))

    @one_thread()
    def trajectories(self, X: Any) -> npt.NDArray[np.float64]:
        """Positions (steps + 1, n, n_encoded) that the pull takes the rows through, in the units of the input.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.
        """
        x = self._encode(X)
        path = to_numpy(self.model_.trajectories(x))
        return np.stack([self.table_.inverse(positions) for positions in path])

    def _describe(self, x: Tensor) -> None:
        """Set everything that follows from the model and the rows."""
        clustering = self.model_.cluster(x, generator_from(0, x.device))
        self.labels_ = labels_to_numpy(clustering.labels)
        self.probabilities_ = to_numpy(clustering.probabilities)
        self._means = cluster_means(x, clustering.labels, clustering.n_clusters)
        self._describe_model()

    def _describe_model(self) -> None:
        self.n_clusters_ = int(self.model_.occupied[0].sum())
        self.beta_ = float(self.model_.beta[0])
        self.prototypes_ = to_numpy(self.model_.leave(self.model_.memories()[0, : self.n_clusters_].detach()))
        self.cluster_centers_ = self.table_.inverse(to_numpy(self._means))
        self.history_ = {"loss": [float(entry[0]) for entry in self.model_.history]}
        self._n_features_out = self.n_clusters_

    def _to_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        card = {
            "model": to_dict(self.model_.config),
            "silhouette": self.silhouette_,
            "loss": self.history_["loss"],
            "runs": self.runs_,
            "notes": self.notes_,
        }
        return {**self.model_.state_dict(), "means": self._means}, card

    def _from_checkpoint(self, tensors: dict[str, Tensor], card: dict[str, Any]) -> None:
        self.model_ = ClamModel(from_dict(ClamConfig, card["model"]))
        self._means = tensors.pop("means")
        self.model_.load_state_dict(tensors)
        self.model_.history = [torch.tensor([loss]) for loss in card["loss"]]
        self.silhouette_ = card["silhouette"]
        self.runs_ = card["runs"]
        self.notes_ = tuple(card["notes"])
        self._describe_model()
