"""What the estimators share that are trained beforehand, on sets that are sorted already."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor

from coterie.amortized.features import FeatureMatch, match_features, place_features
from coterie.amortized.filtering import FilteringModel
from coterie.amortized.tasks.labelled import Tasks, lessons_from
from coterie.base import BaseClusterer, device_from, generator_from, labels_to_numpy, one_thread, to_numpy
from coterie.config import from_dict, to_dict
from coterie.errors import InputError, WeightsError
from coterie.images.resizing import PictureMatch
from coterie.metrics import adjusted_rand_index
from coterie.nn.model import SetModel, TaskBatch, build, settled
from coterie.ops.partitions import Clustering, cluster_means
from coterie.pretrained.registry import load_pretrained
from coterie.progress import Progress
from coterie.tables.encoder import Scaling, TableEncoder
from coterie.tables.table import Table
from coterie.training.batches import generator_on, task_batches
from coterie.training.loop import TrainConfig, train

EVALUATIONS = 20
"""How often that is done."""
FARTHEST = 1e6
"""Features are kept within, lest the squares of what a network makes of them overflow."""
FOUND = "found."
MATCH = "match."
MEANS = "means"


class AmortizedClusterer(BaseClusterer, ABC):
    """Base of the estimators whose network is trained beforehand: ``learn``, or weights that ship, then ``fit``."""

    saved_unfitted: ClassVar[bool] = True
    kind: ClassVar[type[SetModel]]
    weights: str | Path | None
    scaling: Literal["auto"] | Scaling
    random_state: Any
    on_progress: Callable[[Progress], None] | None

    @abstractmethod
    def _fresh_config(self, n_features: int, image: tuple[int, int, int] | None) -> Any:
        """Configuration of a network that begins from nothing; for images of that shape, if there is one."""

    @abstractmethod
    def _configured(self, config: Any) -> Any:
        """A network's configuration with what this estimator's parameters say about clustering."""

    @one_thread()
    def learn(
        self,
        tasks: Tasks,
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

        Training begins from ``weights`` if these are for as many features as the tasks have, otherwise from nothing. It
        takes place on ``device``.

        Parameters
        ----------
        tasks : list of (X, y), folder or list of folders, or TaskSampler
            Sets with the cluster of every row, of any sizes and any numbers of clusters, but with the same columns; or
            images with the class of each, which are brought to 28 by 28 pixels; or folders that have a sub-folder of
            images for each class; or an object that draws such sets. Classes of different sets are never mixed.
        steps : int
            Optimiser steps.
        batch_size : int
            Sets in a step.
        max_points : int
            Most rows of a set that are shown in a step.
        learning_rate : float
            Largest rate of the one-cycle schedule.
        held_out : float
            Share of the tasks that are not trained on, or of the classes of images; the weights with the smallest loss
            there are kept. Of fewer than five tasks or ten classes none is held out, and the last weights are kept.
        turned : bool
            Whether sets are also shown turned around their mean. Use False if features mean something by themselves.
        folder : str or Path, optional
            Where the state is kept, so that a run that was stopped goes on when it is called again in the same way.
        """
        check_at_least_one(steps=steps, batch_size=batch_size, max_points=max_points)
        if folder is not None and not isinstance(self.random_state, int | np.integer):
            raise InputError(
                f"A run that can go on from folder={str(folder)!r} must hold out the same tasks again: give a whole "
                f"number as random_state, which is {self.random_state!r}."
            )
        device = device_from(self.device)
        generator = generator_from(self.random_state, torch.device("cpu"))
        lessons = lessons_from(
            tasks,
            batch_size=batch_size,
            max_points=max_points,
            held_out=held_out,
            turned=turned,
            scaling="standard" if self.scaling == "auto" else self.scaling,
            generator=generator,
        )
        model, start = self._beginning(lessons.fixed[0].x.shape[2], lessons.image, generator)
        self._configured(model.config)  # refuses what it cannot use, before anything takes time
        model, fixed = model.to(device).train(), [batch.to(device) for batch in lessons.fixed]
        generator = generator_on(device, generator)
        train(
            model,
            task_batches(lessons.training, batch_size=batch_size, generator=generator, device=device),
            TrainConfig(
                steps,
                learning_rate=learning_rate,
                schedule="one-cycle",
                optimiser="adamw",
                weight_decay=0.01,
                clip_norm=1.0,
                evaluate_every=max(1, steps // EVALUATIONS),
                keep_best="loss" if lessons.are_apart else None,
            ),
            generator=generator,
            on_log=self.on_progress,
            evaluate=lambda: {"loss": _mean_loss(model, fixed)},
            folder=None if folder is None else Path(folder),
        )
        for name in set(vars(self)) - set(self.get_params(deep=False)):
            delattr(self, name)  # what an earlier network found
        model.eval()
        if lessons.are_apart:
            with torch.no_grad():
                model.config = model.calibrated(fixed, adjusted_rand_index)
        card = {"model": to_dict(model.config), "scaling": lessons.scaling, "start": start, "steps": steps}
        self.evaluation_ = {"loss": _mean_loss(model, fixed)}
        self._become(model.cpu(), card if lessons.features is None else card | {"features": lessons.features})
        if lessons.held_out is not None:
            self.evaluation_["adjusted_rand_index"] = _agreement(
                self._inference_model().to(device), lessons.whole, device
            )
            self.evaluation_["held_out_tasks"] = lessons.held_out
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
        table = self._read(X, reset=True)
        self._load_weights(pictures=table.image is not None)
        model = self._inference_model()
        scaling: Scaling = self._card.get("scaling", "none") if self.scaling == "auto" else self.scaling
        self.table_ = TableEncoder(scaling).fit(table)
        encoded = self._to_tensor(table)
        asked = getattr(model.config, "n_clusters", None)
        if asked is not None and asked > len(encoded):
            raise InputError(f"n_clusters={asked} is more than n_samples={len(encoded)}. Ask for fewer.")
        if scaling == "none" and float(encoded.abs().max()) > FARTHEST:
            raise InputError(
                f"A value as large as {float(encoded.abs().max()):g} cannot be used unscaled; use scaling='standard'."
            )
        notes = self._fit_match(table, encoded, standardised=scaling != "none")
        self.model_ = model.to(encoded.device)
        x = self._matched(table, encoded)
        found = self.model_.cluster(x, generator_from(self.random_state, x.device))
        self._found = Clustering(found.labels[:0], found.n_clusters, extras=found.extras)
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
        x = self._features(X)
        return self.model_.memberships(x, self._found)

    def _features(self, X: Any) -> Tensor:
        """New rows as the network takes them."""
        check_is_fitted(self)
        table = self._read(X, reset=False)
        return self._matched(table, self._to_tensor(table))

    def _fit_match(self, table: Table, encoded: Tensor, *, standardised: bool) -> list[str]:
        """Learn how to bring rows to what the network takes, and say it in sentences."""
        self._match: FeatureMatch | PictureMatch | None = None
        image = self._card["model"].get("image")
        if image is not None:
            self._match, said = PictureMatch.of(table, tuple(image))
            return list(said)
        matched = place_features([feature.name for feature in self.table_.features], self._card.get("features", ()))
        if matched is None:
            matched = match_features(encoded, int(self._card["model"]["n_features"]), standardised=standardised)
        if matched is None:
            return []
        self._match = matched[0].to(encoded)
        return [] if matched[1] is None else [matched[1]]

    def _matched(self, table: Table, encoded: Tensor) -> Tensor:
        if isinstance(self._match, PictureMatch):
            return self._match(table).to(encoded.device)
        x = encoded if self._match is None else self._match(encoded)
        return x.clamp(-FARTHEST, FARTHEST)

    def __sklearn_is_fitted__(self) -> bool:
        return "n_clusters_" in vars(self)

    def _weights_for(self, *, pictures: bool) -> str | Path | None:
        """The weights that the parameters name, for rows that are images or not."""
        return self.weights

    def _load_weights(self, *, pictures: bool = False) -> None:
        """Read the weights that the parameters name, unless there is a network since they were last set."""
        weights = self._weights_for(pictures=pictures)
        if "_network" in vars(self) and self._since[0] == self.weights and self._since[1] in {None, weights}:
            return
        if weights is None:
            raise InputError("There are no weights: call learn(tasks) first, or name some (weights=...).")
        self._become(*self._read_weights(weights), weights)

    def _read_weights(self, weights: str | Path) -> tuple[SetModel, dict[str, Any]]:
        """Network of that name or in that file, and its card."""
        tensors, card = load_pretrained(weights)
        if card.get("method") != self.method:
            raise WeightsError(
                f"weights={str(weights)!r} are for the method {card.get('method')!r}, not {self.method!r}. "
                "Name other weights."
            )
        try:
            return self._network_from(tensors, card), card
        except (KeyError, RuntimeError) as error:
            raise WeightsError(
                f"weights={str(weights)!r} lack part of a network ({error}). Save them again."
            ) from error

    def _network_from(self, tensors: dict[str, Tensor], card: dict[str, Any]) -> SetModel:
        """The network alone, be it of a fitted estimator or not."""
        network = build(self.kind, from_dict(self.kind.Config, card["model"]), Generator())
        network.load_state_dict({k: v for k, v in tensors.items() if not k.startswith((FOUND, MATCH, MEANS))})
        return network

    def _become(self, network: SetModel, card: dict[str, Any], weights: str | Path | None = None) -> None:
        """Take a network: that of some weights, or one that was learned and stays whatever the rows are."""
        self._network = network.eval()
        self._since = self.weights, weights
        kept = ("model", "scaling", "start", "steps", "name", "features")
        self._card = {name: card[name] for name in kept if name in card}

    def _inference_model(self) -> SetModel:
        """The network with this estimator's way to cluster; it has the same weights, not copies of them."""
        model = copy(self._network)
        model.config = self._configured(self._network.config)
        return model

    def _beginning(
        self, n_features: int, image: tuple[int, int, int] | None, generator: Generator
    ) -> tuple[SetModel, str | None]:
        """The network that training begins with, and the weights it has."""
        fresh = build(self.kind, self._fresh_config(n_features, image), generator)
        weights = self._weights_for(pictures=image is not None)
        if weights is None:
            return fresh, None
        model, _ = self._read_weights(weights)
        if (model.config.n_features, getattr(model.config, "image", None)) != (n_features, image):
            return fresh, None
        return model, str(weights)

    def _describe(self) -> None:
        """Set what follows from the clusters that were found."""
        self.n_clusters_ = self._found.n_clusters
        self.prototypes_ = to_numpy(self._means)
        self.cluster_centers_ = self.table_.inverse(self.prototypes_)
        self.history_: dict[str, list[float]] = {"loss": []}
        self.runs_: list[dict[str, Any]] = []

    def _to_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        self._load_weights()
        tensors = dict(self._network.state_dict())
        card = dict(self._card)
        if "table_" in vars(self):
            check_is_fitted(self)
            tensors |= {f"{FOUND}{name}": value for name, value in self._found.extras.items()}
            tensors[MEANS] = self._means
            if isinstance(self._match, PictureMatch):
                card["pictures"] = self._match.to_card()
            elif self._match is not None:
                tensors |= {f"{MATCH}centre": self._match.centre, f"{MATCH}matrix": self._match.matrix}
            card |= {"n_clusters": self.n_clusters_, "notes": list(self.notes_)}
        return tensors, card

    def _from_checkpoint(self, tensors: dict[str, Tensor], card: dict[str, Any]) -> None:
        own = self._weights_for(pictures="pictures" in card)
        self._become(self._network_from(tensors, card), card, own if card.get("name") == own else None)
        if MEANS not in tensors:
            return
        device = device_from(self.device)
        found, match = _taken(tensors, FOUND, device), _taken(tensors, MATCH, device)
        self.model_ = self._inference_model().to(device)
        self._match = FeatureMatch(match["centre"], match["matrix"]) if match else None
        if "pictures" in card:
            self._match = PictureMatch.from_card(card["pictures"])
        self._found = Clustering(torch.empty(0, dtype=torch.int64), int(card["n_clusters"]), extras=found)
        self._means = tensors[MEANS].to(device)
        self.notes_ = tuple(card["notes"])
        self._describe()


_REST = "the others take part in what follows"


def _taken(tensors: dict[str, Tensor], prefix: str, device: torch.device) -> dict[str, Tensor]:
    """The tensors with a prefix, without it."""
    return {name.removeprefix(prefix): tensors[name].to(device) for name in tensors if name.startswith(prefix)}


def check_at_least_one(**numbers: Any) -> None:
    """Refuse what is not a positive whole number, by its name."""
    for name, value in numbers.items():
        if not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name}={value!r} must be a whole number of at least 1.")


def _mean_loss(model: SetModel, batches: Sequence[TaskBatch]) -> float:
    with torch.no_grad(), settled(model):
        losses = [float(model.loss(batch, Generator(batch.x.device).manual_seed(0)).total) for batch in batches]
    return sum(losses) / len(losses)


def _agreement(model: SetModel, batches: Sequence[TaskBatch], device: torch.device) -> float:
    """Mean adjusted Rand index over sets."""
    scores = []
    for batch in batches:
        here = batch.to(device)
        found = model.cluster_sets(here.x, here.valid, Generator(device).manual_seed(0))
        for one, labels, valid in zip(found, batch.labels, batch.valid, strict=True):
            scores.append(adjusted_rand_index(labels[valid].numpy(), labels_to_numpy(one.labels)[valid.numpy()]))
    return float(np.mean(scores))


class FilteringClusterer(AmortizedClusterer, ABC):
    """Base of the estimators that filter; clusters may have densities, which rows can be asked about."""

    max_points: int | None
    decoding: str

    @one_thread()
    def score_samples(self, X: Any) -> npt.NDArray[np.float32]:
        """Log-density (n,) of each row under the clusters together, in the features that the network takes.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.
        """
        x = self._features(X)
        return to_numpy(self._with_density.joint(x, self._found).logsumexp(dim=1))

    def score(self, X: Any, y: None = None) -> float:
        """Mean log-density of the rows: the higher the better.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.
        y : None
            Not used.
        """
        return float(self.score_samples(X).mean())

    @property
    def _with_density(self) -> FilteringModel:
        if not isinstance(self.model_, FilteringModel) or self.model_.density is None:
            raise InputError("These weights have no density; learn a network with density='flow' or 'gaussian'.")
        return self.model_

    def _beginning(
        self, n_features: int, image: tuple[int, int, int] | None, generator: Generator
    ) -> tuple[SetModel, str | None]:
        model, start = super()._beginning(n_features, image, generator)
        # Whatever the weights were trained for, nobody knows whether the sets to learn from have a direction.
        model.config = replace(model.config, turns=1)
        return model, start

    def _configured(self, config: Any) -> Any:
        if self.max_points is not None:
            check_at_least_one(max_points=self.max_points)
            config = replace(config, max_points=self.max_points)
        return config if self.decoding == "auto" else replace(config, decoding=self.decoding)
