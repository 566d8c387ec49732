"""What the estimators share that are trained beforehand, on sets that are sorted already."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor

from coterie.config import from_dict, to_dict
from coterie.data.tables import Scaling, TableEncoder, as_table
from coterie.errors import InputError, WeightsError
from coterie.estimators.base import Clusterer, generator_from, labels_to_numpy, one_thread, to_numpy
from coterie.estimators.features import FeatureMatch, match_features
from coterie.metrics import adjusted_rand_index
from coterie.models.base import SetModel, build
from coterie.ops.partition import cluster_means
from coterie.registry import load_pretrained
from coterie.structures import Clustering, TaskSampler
from coterie.tasks.listed import ListedTasks, padded
from coterie.training import Progress, TrainConfig, task_batches, train

HELD_OUT_BATCHES = 4
"""Batches of held-out sets that the loss is evaluated on."""
EVALUATIONS = 20
"""How often that is done."""
FOUND = "found."
MATCH = "match."


class AmortizedClusterer(Clusterer, ABC):
    """Base of the estimators whose network is trained beforehand: ``learn``, or weights that ship, then ``fit``."""

    saved_unfitted: ClassVar[bool] = True
    kind: ClassVar[type[SetModel]]
    weights: str | Path | None
    scaling: Literal["auto"] | Scaling
    random_state: Any
    on_progress: Callable[[Progress], None] | None

    @abstractmethod
    def _fresh_config(self, n_features: int) -> Any:
        """Configuration of a network that begins from nothing."""

    @abstractmethod
    def _configured(self, config: Any) -> Any:
        """A network's configuration with what this estimator's parameters say about clustering."""

    @one_thread()
    def learn(
        self,
        tasks: TaskSampler | Sequence[tuple[Any, npt.ArrayLike]],
        *,
        steps: int = 1500,
        batch_size: int = 16,
        max_points: int = 300,
        learning_rate: float = 5e-4,
        held_out: float = 0.2,
        turned: bool = True,
        folder: str | Path | None = None,
    ) -> Self:
        """Train the network on sets that are sorted already; ``fit`` then uses it.

        Training begins from ``weights`` if these are for as many features as the tasks have, otherwise from nothing.

        Parameters
        ----------
        tasks : list of (X, y), or TaskSampler
            Sets with the cluster of every row, of any sizes and any numbers of clusters, but with the same columns; or
            an object that draws such sets.
        steps : int
            Optimiser steps.
        batch_size : int
            Sets in a step.
        max_points : int
            Most rows of a set that are shown in a step.
        learning_rate : float
            Largest rate of the one-cycle schedule.
        held_out : float
            Share of the tasks that are not trained on; the weights with the smallest loss there are kept. Of fewer
            than five tasks none is held out, and the last weights are kept.
        turned : bool
            Whether sets are also shown turned around their mean. Use False if features mean something by themselves.
        folder : str or Path, optional
            Where the state is kept, so that a run that was stopped goes on when it is called again in the same way.
        """
        generator = generator_from(self.random_state, torch.device("cpu"))
        if isinstance(tasks, TaskSampler):
            training: TaskSampler = tasks
            testing: ListedTasks | None = None
            fixed = [tasks.sample(batch_size, generator) for _ in range(HELD_OUT_BATCHES)]
            scaling: Scaling = "none"
        else:
            scaling = "standard" if self.scaling == "auto" else self.scaling
            training, testing = self._split(tasks, scaling, held_out, max_points, turned, generator)
            shown = testing or training
            fixed = [shown.sample(batch_size, generator) for _ in range(HELD_OUT_BATCHES)]
        model, start = self._beginning(fixed[0].x.shape[2], generator)
        train(
            model,
            task_batches(training, batch_size=batch_size, generator=generator),
            TrainConfig(
                steps,
                learning_rate=learning_rate,
                schedule="one-cycle",
                optimiser="adamw",
                weight_decay=0.01,
                clip_norm=1.0,
                evaluate_every=max(1, steps // EVALUATIONS),
                keep_best="loss" if testing is not None or isinstance(tasks, TaskSampler) else None,
            ),
            generator=generator,
            on_log=self.on_progress,
            evaluate=lambda: {"loss": _mean_loss(model, fixed)},
            folder=None if folder is None else Path(folder),
        )
        self.network_ = model.eval()
        self.card_: dict[str, Any] = {
            "model": to_dict(model.config),
            "scaling": scaling,
            "start": start,
            "steps": steps,
        }
        sets = testing or (None if isinstance(tasks, TaskSampler) else training)
        self.evaluation_ = {"loss": _mean_loss(model, fixed)}
        if isinstance(sets, ListedTasks):
            self.evaluation_["adjusted_rand_index"] = _agreement(self._inference_model(), sets)
            self.evaluation_["held_out_tasks"] = 0 if testing is None else len(testing.sets)
        return self

    @one_thread()
    def fit(self, X: Any, y: None = None) -> Self:
        """Find the clusters of the rows of X.

        Parameters
        ----------
        X : array, DataFrame, Arrow table, tensor or list (n, d)
            Numbers, categories, booleans, dates; missing values are welcome.
        y : None
            Not used.
        """
        self._load_weights()
        scaling: Scaling = self.card_.get("scaling", "none") if self.scaling == "auto" else self.scaling
        encoded = self._fit_encoder(X, scaling)
        matched = match_features(encoded, self._n_features, standardised=scaling != "none")
        notes = [] if matched is None else [matched[1]]
        self._match: FeatureMatch | None = None if matched is None else matched[0]
        self.model_ = self._inference_model().to(encoded.device)
        x = encoded if self._match is None else self._match(encoded)
        found = self.model_.cluster(x, generator_from(self.random_state, x.device))
        self._keep(found)
        self.labels_ = labels_to_numpy(found.labels)
        self.probabilities_ = to_numpy(self.model_.memberships(x, found))
        self._means = cluster_means(encoded, found.labels, found.n_clusters)
        limit = self.model_.config.max_points
        if len(x) > limit:
            notes.append(f"{limit:,} of the {len(x):,} rows, drawn by chance, went through the network; {_REST}")
        self.notes_ = tuple(notes)
        self._describe()
        return self

    @one_thread()
    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Clusters of the rows of X; equal to ``labels_`` on the rows of ``fit``.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.
        """
        return labels_to_numpy(self._memberships(X).argmax(dim=1))

    @one_thread()
    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Memberships (n, n_clusters_), rows summing to one.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.
        """
        return to_numpy(self._memberships(X))

    def _memberships(self, X: Any) -> Tensor:
        return self.model_.memberships(self._features(X), self._found)

    def _features(self, X: Any) -> Tensor:
        """New rows as the network takes them."""
        encoded = self._encode(X)
        return encoded if self._match is None else self._match(encoded)

    def _load_weights(self) -> None:
        """Read the weights that the parameters name, unless the network was learned or loaded."""
        if "network_" in vars(self):
            return
        if self.weights is None:
            raise InputError("There are no weights: call learn(tasks) first, or name some (weights=...).")
        tensors, card = load_pretrained(self.weights)
        if card.get("method") != self.method:
            raise WeightsError(
                f"weights={str(self.weights)!r} are for the method {card.get('method')!r}, not {self.method!r}. "
                "Name other weights."
            )
        self._become(tensors, card)

    def _become(self, tensors: dict[str, Tensor], card: dict[str, Any]) -> None:
        self.network_ = self.kind(from_dict(self.kind.Config, card["model"])).eval()
        self.network_.load_state_dict(tensors)
        self.card_ = {name: card[name] for name in ("model", "scaling", "start", "steps", "name") if name in card}

    @property
    def _n_features(self) -> int:
        return int(self.card_["model"]["n_features"])

    def _inference_model(self) -> SetModel:
        """The network with this estimator's way to cluster."""
        model = self.kind(self._configured(self.network_.config))
        model.load_state_dict(self.network_.state_dict())
        return model.eval()

    def _beginning(self, n_features: int, generator: Generator) -> tuple[SetModel, str | None]:
        """The network that training begins with, and the weights it has."""
        fresh = build(self.kind, self._fresh_config(n_features), generator)
        if self.weights is None:
            return fresh, None
        tensors, card = load_pretrained(self.weights)
        if card.get("method") != self.method or card["model"]["n_features"] != n_features:
            return fresh, None
        model = self.kind(from_dict(self.kind.Config, card["model"]))
        model.load_state_dict(tensors)
        return model, str(self.weights)

    def _split(
        self,
        tasks: Sequence[tuple[Any, npt.ArrayLike]],
        scaling: Scaling,
        held_out: float,
        max_points: int,
        turned: bool,
        generator: Generator,
    ) -> tuple[ListedTasks, ListedTasks | None]:
        """Tasks to train on, and tasks to test on unless they are few."""
        pairs = [_encoded_task(position, task, scaling) for position, task in enumerate(tasks)]
        if not pairs:
            raise InputError("learn() needs at least one task: a pair (X, y) of rows and their clusters.")
        order = torch.randperm(len(pairs), generator=generator).tolist()
        apart = max(1, round(held_out * len(pairs))) if len(pairs) >= 5 and held_out > 0 else 0
        parts = [pairs[i] for i in order[apart:]], [pairs[i] for i in order[:apart]]
        training = ListedTasks(parts[0], max_points=max_points, turned=turned)
        if not parts[1]:
            return training, None
        return training, ListedTasks(parts[1], max_points=max_points, varied=False, turned=False)

    def _keep(self, found: Clustering) -> None:
        """Keep what new rows are assigned by, and not the labels of the old ones."""
        self._found = Clustering(found.labels[:0], found.n_clusters, extras=found.extras)

    def _describe(self) -> None:
        """Set what follows from the clusters that were found."""
        self.n_clusters_ = self._found.n_clusters
        self.prototypes_ = to_numpy(self._means)
        self.cluster_centers_ = self.table_.inverse(self.prototypes_)
        self.history_: dict[str, list[float]] = {"loss": []}
        self.runs_: list[dict[str, Any]] = []

    def _to_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        self._load_weights()
        tensors = dict(self.network_.state_dict())
        card = dict(self.card_)
        if "table_" in vars(self):
            check_is_fitted(self)
            tensors |= {f"{FOUND}{name}": value for name, value in self._found.extras.items()}
            tensors["means"] = self._means
            if self._match is not None:
                tensors |= {f"{MATCH}centre": self._match.centre, f"{MATCH}matrix": self._match.matrix}
            card |= {"n_clusters": self.n_clusters_, "notes": list(self.notes_)}
        return tensors, card

    def _from_checkpoint(self, tensors: dict[str, Tensor], card: dict[str, Any]) -> None:
        found = _taken(tensors, FOUND)
        match = _taken(tensors, MATCH)
        means = tensors.pop("means", None)
        self._become(tensors, card)
        if means is None:
            return
        self.model_ = self._inference_model()
        self._match = FeatureMatch(match["centre"], match["matrix"]) if match else None
        self._found = Clustering(torch.empty(0, dtype=torch.int64), int(card["n_clusters"]), extras=found)
        self._means = means
        self.notes_ = tuple(card["notes"])
        self._describe()


_REST = "the others take part in what follows"


def _taken(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Take the tensors with a prefix out."""
    names = [name for name in tensors if name.startswith(prefix)]
    return {name.removeprefix(prefix): tensors.pop(name) for name in names}


def _encoded_task(position: int, task: tuple[Any, npt.ArrayLike], scaling: Scaling) -> tuple[Tensor, Tensor]:
    """Rows of a task as numbers on their own scale, and its clusters as whole numbers."""
    try:
        X, y = task
    except (TypeError, ValueError) as error:
        raise InputError(
            f"Task {position} is not a pair (X, y) of rows and their clusters, but a {type(task).__name__}."
        ) from error
    table = as_table(X)
    names = np.asarray(y)
    if names.shape != (table.n_rows,):
        raise InputError(
            f"Task {position} has {table.n_rows} rows, and its clusters have the shape {names.shape}; "
            "give one cluster for each row."
        )
    labels = np.unique(names, return_inverse=True)[1]
    return torch.from_numpy(TableEncoder(scaling).fit(table).transform(table)), torch.from_numpy(labels)


def _mean_loss(model: SetModel, batches: Sequence[Any]) -> float:
    with torch.no_grad():
        losses = [float(model.loss(batch, Generator().manual_seed(0)).total) for batch in batches]
    return sum(losses) / len(losses)


def _agreement(model: SetModel, tasks: ListedTasks) -> float:
    """Mean adjusted Rand index over whole sets."""
    scores = []
    for x, labels in tasks.sets:
        batch = padded([(x, labels)])
        found = model.cluster_sets(batch.x, batch.valid, Generator().manual_seed(0))[0]
        scores.append(adjusted_rand_index(labels.numpy(), found.labels.numpy()))
    return float(np.mean(scores))
