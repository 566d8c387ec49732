"""ClAM as a scikit-learn estimator."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coterie.base import FitDescription, ShownRows, one_thread
from coterie.clam.model import ClamConfig, ClamModel, Metric, Objective
from coterie.clam.search import FORMER_RUN_KEYS, INITS, Fill, Search, Select, batch_size_for, check_sample_weight
from coterie.config import from_dict, to_dict
from coterie.nn.model import to_arrays, to_tensors
from coterie.ops.partitions import cluster_means
from coterie.progress import Callback
from coterie.tables.encoder import Scaling
from coterie.tables.table import Table
from coterie.torch_base import TorchClusterer, generator_from, labels_to_numpy, to_numpy
from coterie.training.batches import point_batches
from coterie.training.loop import TrainConfig, train
from coterie.validation import ARRAY_LIKE, BOOLEAN, NONE, Choice, Integer, Number, SequenceOf, check_parameters

PARTIAL_FIT_RATE = 0.2  # initial learning rate of ``partial_fit``, as a fraction of that of the chosen run
_POSITIVE = Number(0.0, exclusive=True)
_MASK_RATE = Number(0.0, 1.0, exclusive=True)
_FILL = Choice(*get_args(Fill))


class ClAM(TorchClusterer):
    """Clustering with associative memories (Saha et al., ICML 2023).

    Prototypes are the memories of an associative memory network that attracts points in a few steps. They are learned
    by masking features and completing them from the others. Restarts, and every parameter that takes several values,
    are trained together as one tensor program; the best run is kept.

    Parameters
    ----------
    n_clusters : int or "auto"
        Number of clusters; "auto" trains every number from 2 to ``max_clusters`` and selects one.
    max_clusters : int
        Largest number that "auto" tries.
    beta : float, sequence of float, or "auto"
        Inverse temperature, in the units of the encoded data; large values approach nearest-prototype clustering.
    steps : int
        T, the recursion depth.
    learning_rate : float or sequence of float
        Initial learning rate of Adam.
    mask_rate : float or sequence of float
        Fraction of the features that are masked in training.
    fill : {"mean", "min", "max"} or a sequence of these
        Statistic of the column that replaces a masked feature.
    n_restarts : int
        Restarts per setting.
    init : {"mixed", "k-means", "k-means++", "data", "normal", "spread"}, or array (n_clusters, n_features)
        Initial prototypes: "normal" samples the paper's N(0.1, 0.1²); "data" samples rows; "k-means" refines
        "k-means++" by Lloyd's algorithm; "spread" samples rows far from each other, which finds outliers; "mixed"
        cycles through the first four. An array is in the units of the (encoded) input.
    select : {"silhouette", "loss"}
        Criterion of the best run; neither needs labels.
    min_cluster_size : int or "auto"
        Runs with a smaller cluster are selected only if there is no other. "auto" is half of n_samples / n_clusters,
        or three quarters of the smallest k-means cluster if that is less. Unless it is 0, as in the paper, prototypes
        without rows are moved.
    objective : {"masked", "unmasked"}
        Pattern completion (Eq. 9 of the paper), or the ablation without masks (Eq. 8).
    metric : {"euclidean", "cosine", "manhattan", "mahalanobis"}
        Distance in the energy. "cosine" is the paper's spherical variant (Eq. 12).
    prototype_weights : None, "learned", or array (n_clusters,)
        Relative attraction epsilon of the prototypes (Eq. 10).
    epochs : int or "auto"
        Passes over the rows; "auto" takes a few seconds.
    batch_size : int or "auto"
        Rows per training step.
    halving : bool
        Stop the worse runs early (successive halving).
    code_beta : bool
        Interpret ``beta`` as the authors' code and Table 6 of the paper do: twice the value of Eq. 1.
    legacy_mask : bool
        Sample masks as the authors' code does.
    plateau : bool
        Reduce the learning rate when the loss stalls, as the authors' code does, instead of a cosine schedule.
    scaling : {"robust", "standard", "none"}
        Scaling of number columns; see ``coterie.tables.encoder.TableEncoder``.

    Attributes
    ----------
    prototypes_ : array (n_clusters_, n_encoded)
        Prototypes in the encoded space. They lie beyond the means, since x^T does not quite reach its prototype.
    beta_ : float
        Inverse temperature of the chosen run.
    silhouette_ : float
        Silhouette of the chosen run, on the rows that ``notes_`` states.
    history_ : dict
        "loss" of the chosen run per epoch.
    runs_ : list of dict
        Settings and scores of the runs that were trained to the end.

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
    constraints: ClassVar = {
        **dict.fromkeys(("n_clusters", "epochs", "batch_size"), (Integer(1), Choice("auto"))),
        **dict.fromkeys(("max_clusters", "steps", "n_restarts"), Integer(1)),
        "beta": (_POSITIVE, Choice("auto"), SequenceOf(_POSITIVE)),
        "learning_rate": (_POSITIVE, SequenceOf(_POSITIVE)),
        "mask_rate": (_MASK_RATE, SequenceOf(_MASK_RATE)),
        "fill": (_FILL, SequenceOf(_FILL)),
        "init": (Choice("mixed", *INITS), ARRAY_LIKE),
        "select": Choice(*get_args(Select)),
        "min_cluster_size": (Integer(0), Choice("auto")),
        "objective": Choice(*get_args(Objective)),
        "metric": Choice(*get_args(Metric)),
        "prototype_weights": (NONE, Choice("learned"), ARRAY_LIKE),
        **dict.fromkeys(("halving", "code_beta", "legacy_mask", "plateau"), BOOLEAN),
        "scaling": Choice(*get_args(Scaling)),
    }

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
        epochs: int | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        halving: bool = True,
        code_beta: bool = False,
        legacy_mask: bool = False,
        plateau: bool = False,
        scaling: Scaling = "robust",
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
        self.epochs = epochs
        self.batch_size = batch_size
        self.halving = halving
        self.code_beta = code_beta
        self.legacy_mask = legacy_mask
        self.plateau = plateau
        self.scaling = scaling
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.callback = callback

    @classmethod
    def faithful(cls, n_clusters: int, **overrides: Any) -> "ClAM":
        """Return the published configuration: the authors' scaling, initialisation, masks, rates and stopping rule.

        Parameters
        ----------
        n_clusters : int
            Number of prototypes; some may end without rows.
        **overrides
            Parameters to change, such as ``beta`` from Table 6.
        """
        published: dict[str, Any] = {
            "beta": (1.1, 1.5, 2.0, 2.4), "steps": 10, "learning_rate": (1e-3, 1e-2, 1e-1), "mask_rate": 0.2,
            "fill": ("mean", "max", "min"), "n_restarts": 10, "init": "normal", "min_cluster_size": 0,
            "epochs": 200, "batch_size": 8, "halving": False, "scaling": "standard",
            "code_beta": True, "legacy_mask": True, "plateau": True,
        }  # fmt: skip
        return cls(n_clusters, **(published | overrides))

    def fit(self, X: Any, y: None = None, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Cluster the rows of X.

        Parameters
        ----------
        X : array, DataFrame, Arrow table, tensor or list (n, d)
            Numbers, categories, booleans or dates, missing values included.
        y : None
            Ignored; present for scikit-learn.
        sample_weight : array (n,), optional
            Weight of each row in the loss.

        Returns
        -------
        self
        """
        check_parameters(self, self.constraints)
        with one_thread():
            self._fit(X, sample_weight)
        return self

    def _fit(self, X: Any, sample_weight: npt.ArrayLike | None = None) -> None:
        x = self._fit_encoder(X, self.scaling)
        weight = check_sample_weight(sample_weight, x)
        rows = x if weight is None else x[weight > 0]
        search = Search.from_parameters(self.get_params(deep=False), rows, self.table_)
        finalists = search.train(
            rows,
            generator=generator_from(self.random_state, x.device),
            weight=None if weight is None else weight[weight > 0],
            callback=self._progress(),
        )
        self.model_ = search.best_model(finalists, rows)
        self.runs_ = [asdict(run) for run in search.runs]
        self.silhouette_ = next(run.silhouette for run in search.runs if run.chosen)
        self.notes_ = tuple(search.notes)
        self._set_results(x)

    def partial_fit(self, X: Any, y: None = None, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Continue training on more rows; the first call is a ``fit`` and fixes the columns and their scaling.

        Parameters
        ----------
        X : array-like (n, d)
            Next batch of a stream.
        y : None
            Ignored; present for scikit-learn.
        sample_weight : array (n,), optional
            Weight of each row in the loss.
        """
        if "model_" not in vars(self):
            return self.fit(X, sample_weight=sample_weight)
        with one_thread():
            table = self._read(X, reset=False)
            self._fitted_rows = ShownRows.from_input(X, table)  # labels_ are now those of this batch
            x = self._to_tensor(table)
            weight = check_sample_weight(sample_weight, x)
            generator = generator_from(self.random_state, x.device)
            batch_size = batch_size_for(self.batch_size, len(x))
            train(
                self.model_,
                point_batches(x, batch_size=batch_size, epochs=2, generator=generator, weight=weight),
                TrainConfig(steps=2 * math.ceil(len(x) / batch_size), learning_rate=PARTIAL_FIT_RATE, warmup=5),
                generator=generator,
            )
            self._set_results(x)
        return self

    def _predict(self, X: Any) -> npt.NDArray[np.int64]:
        return labels_to_numpy(self.model_.assign(self._encode(X))[0])

    def _predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        x = self._encode(X)
        return to_numpy(self.model_.cluster(x, generator_from(0, x.device)).probabilities)

    @one_thread()
    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """Compute the distances (n, n_clusters_) of the rows from the prototypes."""
        x = self.model_.to_memory_space(self._encode(X))
        return to_numpy(torch.cdist(x, self.model_.memories()[0, : self.n_clusters_].detach()))

    def _score(self, X: Any) -> float:
        """Compute the negative mean distance of x^T from its prototype; higher is better."""
        blocks = self.model_.blocks(self._encode(X))
        return -float(torch.cat([self.model_.final_distances(block)[0].amin(dim=1) for block in blocks]).mean())

    @one_thread()
    def energy(self, X: Any) -> npt.NDArray[np.float32]:
        """Compute the energy (n,) of each row (Eq. 1, 10, 12); it is low near prototypes."""
        return to_numpy(torch.cat([self.model_.energy(block) for block in self.model_.blocks(self._encode(X))]))

    @one_thread()
    def entropy(self, X: Any) -> npt.NDArray[np.float32]:
        """Compute the entropy (n,) of the attraction of each row (Eq. 13); zero if one prototype dominates."""
        return to_numpy(torch.cat([self.model_.entropy(block) for block in self.model_.blocks(self._encode(X))]))

    @one_thread()
    def trajectories(self, X: Any) -> npt.NDArray[np.float64]:
        """Compute the iterates (steps + 1, n, n_encoded) of the recursion, in the units of the input."""
        iterates = to_numpy(self.model_.trajectories(self._encode(X)))
        return np.stack([self.table_.inverse_transform(v) for v in iterates])

    def describe_fit(self, table: Table) -> FitDescription:
        """Describe the fit for the summary and the report: the prototypes, the losses and the runs."""
        return FitDescription(
            silhouette=self.silhouette_, prototypes=self.prototypes_, losses=self.history_["loss"], runs=self.runs_
        )

    def _set_results(self, x: Tensor) -> None:
        """Set the attributes that follow from the model and the training rows."""
        clustering = self.model_.cluster(x, generator_from(0, x.device))
        self.labels_ = labels_to_numpy(clustering.labels)
        self.probabilities_ = to_numpy(clustering.probabilities)
        self._means = cluster_means(x, clustering.labels, clustering.n_clusters)
        self._set_model_results()

    def _set_model_results(self) -> None:
        self.n_clusters_ = int(self.model_.occupied[0].sum())
        self.beta_ = float(self.model_.beta[0])
        prototypes = self.model_.memories()[0, : self.n_clusters_].detach()
        self.prototypes_ = to_numpy(self.model_.from_memory_space(prototypes))
        self.cluster_centers_ = self.table_.inverse_transform(to_numpy(self._means))
        self.history_ = {"loss": [float(entry[0]) for entry in self.model_.history]}

    def _to_checkpoint(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        card = {
            "model": to_dict(self.model_.config),
            "silhouette": self.silhouette_,
            "loss": self.history_["loss"],
            "runs": self.runs_,
            "notes": self.notes_,
        }
        return to_arrays({**self.model_.state_dict(), "means": self._means}), card

    def _from_checkpoint(self, arrays: dict[str, npt.NDArray[Any]], card: dict[str, Any]) -> None:
        tensors = to_tensors(arrays)
        self.model_ = ClamModel(from_dict(ClamConfig, card["model"]))
        self._means = tensors.pop("means")
        self.model_.load_state_dict(tensors)
        self.model_.history = [torch.tensor([loss]) for loss in card["loss"]]
        self.silhouette_ = card["silhouette"]
        self.runs_ = [{FORMER_RUN_KEYS.get(key, key): value for key, value in run.items()} for run in card["runs"]]
        self.notes_ = tuple(card["notes"])
        self._set_model_results()
