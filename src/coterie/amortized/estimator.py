"""Base of the estimators whose network is trained once on labelled tasks and then clusters new data."""

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, final

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor

from coterie.amortized.features import FeatureMap, align_features, fit_feature_map
from coterie.amortized.filtering import FilteringModel
from coterie.amortized.tasks.labelled import LabelledTasks, Tasks, load_labelled_tasks
from coterie.base import one_thread, with_entries
from coterie.config import from_dict, to_dict
from coterie.errors import InputError, WeightsError
from coterie.images import ImageResizer
from coterie.metrics import adjusted_rand_index
from coterie.nn.model import SetModel, TaskBatch, build, eval_mode, to_arrays, to_tensors
from coterie.ops.partitions import Clustering, cluster_means
from coterie.pretrained.registry import load_pretrained
from coterie.progress import Callback, Progress
from coterie.tables.encoder import Scaling, TableEncoder
from coterie.tables.table import Table
from coterie.torch_base import TorchClusterer, device_from, generator_from, labels_to_numpy, to_numpy
from coterie.training.batches import generator_on, task_batches
from coterie.training.loop import TrainConfig, train
from coterie.validation import (
    BOOLEAN,
    NONE,
    PATH,
    Choice,
    Constraints,
    Integer,
    Number,
    check_n_clusters,
    check_parameter,
    check_parameters,
)

EVALUATIONS = 20  # held-out evaluations per run of ``learn``
LARGEST_FEATURE = 1e6  # features are clamped to this absolute value, so that squares inside the network do not overflow

# Names of tensors in model files.
CLUSTERS = "found."
FEATURE_MAP = "match."
MEANS = "means"

ImageSize = tuple[int, int, int]  # channels, height and width

_SHARED_PARAMETERS = {
    "architecture": (
        '{"default", "published"}\n'
        "Network that ``learn`` builds if it does not start from weights: ours, or that of the paper."
    ),
    "weights": (
        "str, Path or None\n"
        "Name of shipped weights (``coterie.pretrained.registry.pretrained_names``), or a model file; None for a new\n"
        "network, which ``learn`` trains."
    ),
    "scaling": (
        '{"auto", "robust", "standard", "none"}\n'
        'How number columns are scaled; "auto" scales as in the training of the weights. Images are not scaled.'
    ),
}
_FILTERING_PARAMETERS = {
    "n_clusters": '"auto"\nThe network finds the number of clusters; no other value is possible.',
    "max_points": (
        "int or None\n"
        "Rows that pass through the network. Larger inputs are subsampled, and the remaining rows are assigned to the\n"
        "clusters found. None is the number that the weights were trained for."
    ),
    "filtering": (
        '{"min-loss", "anchored"}\n'
        "Whether the network chooses the next cluster or a random row (the anchor) does; for new networks."
    ),
    "n_principal_axes": (
        "int\n"
        "Project each set onto this many of its principal axes, for new networks without density. With many features\n"
        "and few classes, the network then learns relative, not absolute, positions of clusters. 0 is off."
    ),
    "keep_features": (
        "bool\n"
        "With ``n_principal_axes``: also keep the features themselves. Use it for features that mean the same in all\n"
        "sets, such as embeddings from a pretrained network."
    ),
}


class AmortizedClusterer(TorchClusterer, ABC):
    """Base of DAC, ABC and AMCP: a network trained by ``learn``, or shipped with its weights, clusters in ``fit``."""

    model_class: ClassVar[type[SetModel]]
    saves_unfitted: ClassVar[bool] = True
    renamed_parameters: ClassVar[dict[str, str]] = dict(TorchClusterer.renamed_parameters)
    constraints: ClassVar[dict[str, Constraints]] = {
        "architecture": Choice("default", "published"),
        "weights": (PATH, NONE),
        "scaling": Choice("auto", "robust", "standard", "none"),
    }
    former_attributes: ClassVar = {
        "prototypes_": lambda self: to_numpy(self._means),
        "history_": lambda _: {"loss": []},
        "runs_": lambda _: [],
    }
    shared_parameters: ClassVar[dict[str, str]] = _SHARED_PARAMETERS
    weights: str | Path | None
    scaling: Literal["auto"] | Scaling
    architecture: Literal["default", "published"]
    random_state: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        cls.__doc__ = with_entries(inspect.cleandoc(cls.__doc__ or ""), "Parameters", cls.shared_parameters)
        super().__init_subclass__(**kwargs)

    @abstractmethod
    def _new_config(self, n_features: int, image: ImageSize | None) -> Any:
        """Return the configuration of a new network, for images of that size if there is one."""

    @abstractmethod
    def _with_decoding(self, config: Any) -> Any:
        """Return a network's configuration with this estimator's parameters about clustering."""

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
        random_rotations: bool = True,
        folder: str | Path | None = None,
        turned: bool | None = None,
    ) -> Self:
        """Train the network on labelled tasks; ``fit`` then uses it.

        Training starts from ``weights`` if these take as many features as the tasks have, otherwise from a new network.

        Parameters
        ----------
        tasks : list of (X, y), folder or list of folders, or TaskSampler
            Sets with the cluster of every row, of any sizes and numbers of clusters, but with the same columns; or
            images with the class of each, which are resized to 28 x 28 pixels; or folders with one sub-folder of images
            per class; or an object that samples such sets. Classes of different sets are never mixed.
        steps : int
            Optimiser steps.
        batch_size : int
            Sets per step.
        max_points : int
            Largest number of rows per set and step.
        learning_rate : float
            Peak rate of the one-cycle schedule.
        held_out : float
            Fraction of the tasks, or of the classes of images, to evaluate on; the weights with the smallest loss there
            are kept. Fewer than five tasks or ten classes are all trained on, and the last weights are kept.
        random_rotations : bool
            Whether to rotate sets at random around their mean. Use False if single features carry meaning.
        folder : str or Path, optional
            Where the training state is saved; the same call with the same folder resumes an interrupted run.
        turned : bool, optional
            Former name of ``random_rotations``.
        """
        if turned is not None:
            warnings.warn("turned was renamed to random_rotations.", FutureWarning, stacklevel=3)
            random_rotations = turned
        check_parameters(self, self.constraints)
        for name, value in (("steps", steps), ("batch_size", batch_size), ("max_points", max_points)):
            check_parameter(name, value, Integer(1))
        check_parameter("learning_rate", learning_rate, Number(0.0, exclusive=True))
        check_parameter("random_rotations", random_rotations, BOOLEAN)
        if folder is not None and not isinstance(self.random_state, int | np.integer):
            raise InputError(
                f"A run that can be resumed from folder={str(folder)!r} must hold out the same tasks again: give an "
                f"integer as random_state, not {self.random_state!r}."
            )
        device = device_from(self.device)
        generator = generator_from(self.random_state, torch.device("cpu"))
        labelled = load_labelled_tasks(
            tasks,
            batch_size=batch_size,
            max_points=max_points,
            held_out=held_out,
            random_rotations=random_rotations,
            scaling="standard" if self.scaling == "auto" else self.scaling,
            generator=generator,
        )
        model, start = self._initial_model(labelled.fixed[0].x.shape[2], labelled.image, generator)
        self._with_decoding(model.config)  # raises before training if the parameters do not fit the network
        model, fixed = model.to(device).train(), [batch.to(device) for batch in labelled.fixed]
        generator = generator_on(device, generator)
        train(
            model,
            task_batches(labelled.training, batch_size=batch_size, generator=generator, device=device),
            TrainConfig(
                steps,
                learning_rate=learning_rate,
                schedule="one-cycle",
                optimiser="adamw",
                weight_decay=0.01,
                clip_norm=1.0,
                evaluate_every=max(1, steps // EVALUATIONS),
                keep_best="loss" if labelled.has_held_out else None,
            ),
            generator=generator,
            callback=self._progress(),
            evaluate=lambda: {"loss": _mean_loss(model, fixed)},
            folder=None if folder is None else Path(folder),
        )
        self._adopt(model, labelled, fixed, {"start": start, "steps": steps})
        return self

    def _adopt(
        self, model: SetModel, labelled: LabelledTasks, fixed: Sequence[TaskBatch], card: dict[str, Any]
    ) -> None:
        """Calibrate and evaluate a trained network, and use it from now on."""
        for name in set(vars(self)) - set(self.get_params(deep=False)):
            delattr(self, name)  # results of an earlier network
        device = fixed[0].x.device
        model.eval()
        if labelled.has_held_out:
            with torch.no_grad():
                model.config = model.calibrate(fixed, adjusted_rand_index)
        card |= {"model": to_dict(model.config), "scaling": labelled.scaling}
        self.evaluation_ = {"loss": _mean_loss(model, fixed)}
        self._set_network(model.cpu(), card if labelled.features is None else card | {"features": labelled.features})
        if labelled.held_out is not None:
            self.evaluation_["adjusted_rand_index"] = _mean_rand_index(
                self._inference_model().to(device), labelled.whole, device
            )
            self.evaluation_["held_out_tasks"] = labelled.held_out

    def _fit(self, X: Any) -> None:
        report: Callback = self._progress() or (lambda _: None)
        table = self._read(X, reset=True)
        self._load_weights(images=table.image is not None)
        model = self._inference_model()
        scaling: Scaling = self._card.get("scaling", "none") if self.scaling == "auto" else self.scaling
        self.table_ = TableEncoder(scaling).fit(table)
        encoded = self._to_tensor(table)
        check_n_clusters(getattr(model.config, "n_clusters", None) or 1, len(encoded))
        if scaling == "none" and float(encoded.abs().max()) > LARGEST_FEATURE:
            raise InputError(
                f"A value as large as {float(encoded.abs().max()):g} cannot be used unscaled; use scaling='standard'."
            )
        notes = self._fit_feature_map(table, encoded, standardised=scaling != "none")
        self.model_ = model.to(encoded.device)
        x = self._to_features(table, encoded)
        report(Progress(stage=f"clustering {len(x):,} rows"))
        clustering = self.model_.cluster(x, generator_from(self.random_state, x.device))
        self._clustering = Clustering(clustering.labels[:0], clustering.n_clusters, extras=clustering.extras)
        self.labels_ = labels_to_numpy(clustering.labels)
        self.probabilities_ = to_numpy(self.model_.memberships(x, clustering))
        self._means = cluster_means(encoded, clustering.labels, clustering.n_clusters)
        limit = self.model_.config.max_points
        if len(x) > limit:
            notes.append(
                f"{limit:,} of the {len(x):,} rows, sampled at random, went through the network; the others were "
                "assigned to the clusters found there"
            )
        self.notes_ = tuple(notes)
        self._set_results()

    def _predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        return to_numpy(self.model_.memberships(self._features(X), self._clustering))

    def _features(self, X: Any) -> Tensor:
        """Return new rows as the network takes them."""
        table = self._read(X, reset=False)
        return self._to_features(table, self._to_tensor(table))

    def _fit_feature_map(self, table: Table, encoded: Tensor, *, standardised: bool) -> list[str]:
        """Fit the map from the columns to the features of the network; return notes about it."""
        self._feature_map: FeatureMap | ImageResizer | None = None
        image = self._card["model"].get("image")
        if image is not None:
            self._feature_map, notes = ImageResizer.fit(table, tuple(image))
            return list(notes)
        fitted = align_features([feature.name for feature in self.table_.features], self._card.get("features", ()))
        if fitted is None:
            fitted = fit_feature_map(encoded, int(self._card["model"]["n_features"]), standardised=standardised)
        if fitted is None:
            return []
        self._feature_map = fitted[0].to(encoded)
        return [] if fitted[1] is None else [fitted[1]]

    def _to_features(self, table: Table, encoded: Tensor) -> Tensor:
        if isinstance(self._feature_map, ImageResizer):
            return self._feature_map(table).to(encoded.device)
        x = encoded if self._feature_map is None else self._feature_map(encoded)
        return x.clamp(-LARGEST_FEATURE, LARGEST_FEATURE)

    def __sklearn_is_fitted__(self) -> bool:
        return "n_clusters_" in vars(self)

    def _weights_for(self, *, images: bool) -> str | Path | None:
        """Return the weights to use for images, or for other rows."""
        return self.weights

    def _load_weights(self, *, images: bool = False) -> None:
        """Load the weights that the parameters name, unless that network is loaded or ``learn`` made one."""
        weights = self._weights_for(images=images)
        if "_network" in vars(self) and self._source[0] == self.weights and self._source[1] in {None, weights}:
            return
        if weights is None:
            raise InputError("weights=None: there is no network yet. Call learn(tasks) first, or give weights.")
        self._set_network(*self._read_weights(weights), weights)

    def _read_weights(self, weights: str | Path) -> tuple[SetModel, dict[str, Any]]:
        """Return the network and its card."""
        arrays, card = load_pretrained(weights)
        if card.get("method") != self.method:
            raise WeightsError(
                f"weights={str(weights)!r} are for the method {card.get('method')!r}, not {self.method!r}. "
                "Use other weights."
            )
        try:
            return self._build_network(to_tensors(arrays), card), card
        except (KeyError, RuntimeError) as error:
            raise WeightsError(
                f"weights={str(weights)!r} lack part of a network ({error}). Save them again."
            ) from error

    def _build_network(self, tensors: dict[str, Tensor], card: dict[str, Any]) -> SetModel:
        """Build the network from a model file, whether or not the file also has a fit."""
        network = build(self.model_class, from_dict(self.model_class.Config, card["model"]), Generator())
        prefixes = (CLUSTERS, FEATURE_MAP, MEANS)
        network.load_state_dict({k: v for k, v in tensors.items() if not k.startswith(prefixes)})
        return network

    def _set_network(self, network: SetModel, card: dict[str, Any], weights: str | Path | None = None) -> None:
        """Use a network: that of some weights, or, without, one that was learned."""
        self._network = network.eval()
        self._source = self.weights, weights
        kept = ("model", "scaling", "start", "steps", "name", "features")
        self._card = {name: card[name] for name in kept if name in card}

    def _inference_model(self) -> SetModel:
        """Return the network with this estimator's decoding; the weights are shared, not copied."""
        model = copy(self._network)
        model.config = self._with_decoding(self._network.config)
        return model

    def _initial_model(
        self, n_features: int, image: ImageSize | None, generator: Generator
    ) -> tuple[SetModel, str | None]:
        """Return the network that training starts from, and the name of its weights if it has any."""
        new = build(self.model_class, self._new_config(n_features, image), generator)
        weights = self._weights_for(images=image is not None)
        if weights is None or self.architecture == "published":  # shipped weights are of our architecture
            return new, None
        model, _ = self._read_weights(weights)
        if (model.config.n_features, getattr(model.config, "image", None)) != (n_features, image):
            return new, None
        return model, str(weights)

    def _set_results(self) -> None:
        """Set the attributes that follow from the clustering."""
        self.n_clusters_ = self._clustering.n_clusters
        self.cluster_centers_ = self.table_.inverse_transform(to_numpy(self._means))

    def _to_checkpoint(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        self._load_weights(images=isinstance(vars(self).get("_feature_map"), ImageResizer))
        tensors = dict(self._network.state_dict())
        card = dict(self._card)
        if "table_" in vars(self):
            check_is_fitted(self)
            tensors |= {f"{CLUSTERS}{name}": value for name, value in self._clustering.extras.items()}
            tensors[MEANS] = self._means
            if isinstance(self._feature_map, ImageResizer):
                card["pictures"] = self._feature_map.to_card()
            elif self._feature_map is not None:
                tensors[f"{FEATURE_MAP}centre"] = self._feature_map.centre
                tensors[f"{FEATURE_MAP}matrix"] = self._feature_map.matrix
            card |= {"n_clusters": self.n_clusters_, "notes": list(self.notes_)}
        return to_arrays(tensors), card

    def _from_checkpoint(self, arrays: dict[str, npt.NDArray[Any]], card: dict[str, Any]) -> None:
        tensors = to_tensors(arrays)
        weights = self._weights_for(images="pictures" in card)
        self._set_network(self._build_network(tensors, card), card, weights if card.get("name") == weights else None)
        if MEANS not in tensors:
            return
        device = device_from(self.device)
        extras, match = (_with_prefix(tensors, prefix, device) for prefix in (CLUSTERS, FEATURE_MAP))
        self.model_ = self._inference_model().to(device)
        self._feature_map = FeatureMap(match["centre"], match["matrix"]) if match else None
        if "pictures" in card:
            self._feature_map = ImageResizer.from_card(card["pictures"])
        self._clustering = Clustering(torch.empty(0, dtype=torch.int64), int(card["n_clusters"]), extras=extras)
        self._means = tensors[MEANS].to(device)
        self.notes_ = tuple(card["notes"])
        self._set_results()


def _with_prefix(tensors: dict[str, Tensor], prefix: str, device: torch.device) -> dict[str, Tensor]:
    """Return the tensors with a prefix, without it."""
    return {name.removeprefix(prefix): tensors[name].to(device) for name in tensors if name.startswith(prefix)}


def _mean_loss(model: SetModel, batches: Sequence[TaskBatch]) -> float:
    with torch.no_grad(), eval_mode(model):
        losses = [float(model.loss(batch, Generator(batch.x.device).manual_seed(0)).total) for batch in batches]
    return sum(losses) / len(losses)


def _mean_rand_index(model: SetModel, batches: Sequence[TaskBatch], device: torch.device) -> float:
    """Return the mean adjusted Rand index over sets."""
    scores = []
    for batch in batches:
        here = batch.to(device)
        clusterings = model.cluster_sets(here.x, here.valid, Generator(device).manual_seed(0))
        for one, labels, valid in zip(clusterings, batch.labels, batch.valid, strict=True):
            scores.append(adjusted_rand_index(labels[valid].numpy(), labels_to_numpy(one.labels)[valid.numpy()]))
    return float(np.mean(scores))


@final
class _OnlyAuto:
    """The only n_clusters of a method that finds the number itself."""

    def accepts(self, value: Any) -> bool:
        """Return whether the value is "auto"."""
        return isinstance(value, str) and value == "auto"

    def __str__(self) -> str:
        return (
            "'auto': this method finds the number of clusters itself (Coterie, ClAM, AttentionBasedClustering and TCC "
            "take a number)"
        )


class FilteringClusterer(AmortizedClusterer, ABC):
    """Base of DAC and AMCP, which find one cluster per pass and may have a density for each."""

    constraints: ClassVar[dict[str, Constraints]] = AmortizedClusterer.constraints | {
        "n_clusters": _OnlyAuto(),
        "max_points": (Integer(1), NONE),
        "filtering": Choice("min-loss", "anchored"),
        "n_principal_axes": Integer(0),
        "keep_features": BOOLEAN,
    }
    renamed_parameters: ClassVar[dict[str, str]] = {
        **TorchClusterer.renamed_parameters,
        "principal": "n_principal_axes",
        "principal_beside": "keep_features",
    }
    shared_parameters: ClassVar[dict[str, str]] = _FILTERING_PARAMETERS | _SHARED_PARAMETERS
    model_: FilteringModel
    max_points: int | None
    decoding: str
    n_principal_axes: int
    keep_features: bool

    @classmethod
    def _translate_arguments(
        cls, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Accept weights as the first positional argument, as earlier versions did."""
        if args and (args[0] is None or isinstance(args[0], Path | str)) and args[0] != "auto":
            warnings.warn(
                f"The first argument of {cls.__name__} is n_clusters; pass weights={args[0]!r} by name.",
                FutureWarning,
                stacklevel=3,
            )
            kwargs, args = kwargs | {"weights": args[0]}, args[1:]
        return super()._translate_arguments(args, kwargs)

    @one_thread()
    def score_samples(self, X: Any) -> npt.NDArray[np.float32]:
        """Compute the log-density (n,) of each row under the mixture of clusters, in the features of the network.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.
        """
        check_is_fitted(self)
        x = self._features(X)
        if self.model_.density is None:
            raise InputError("These weights have no density; learn a network with density='flow' or 'gaussian'.")
        return to_numpy(self.model_.joint(x, self._clustering).logsumexp(dim=1))

    def _score(self, X: Any) -> float:
        """Compute the mean log-density of the rows; the silhouette if the network has no density."""
        return super()._score(X) if self.model_.density is None else float(self.score_samples(X).mean())

    def _input(self, image: ImageSize | None) -> dict[str, Any]:
        """Return the settings of a new network about what it reads."""
        settings: dict[str, Any] = {"n_principal_axes": self.n_principal_axes, "keep_features": self.keep_features}
        return settings if image is None else settings | {"encoder": "strided", "image": image}

    def _initial_model(
        self, n_features: int, image: ImageSize | None, generator: Generator
    ) -> tuple[SetModel, str | None]:
        model, start = super()._initial_model(n_features, image, generator)
        # Averaging over rotations is right only for tasks without a preferred direction, which these may have.
        model.config = replace(model.config, rotations=1)
        return model, start

    def _with_decoding(self, config: Any) -> Any:
        if self.max_points is not None:
            config = replace(config, max_points=int(self.max_points))
        return config if self.decoding == "auto" else replace(config, decoding=self.decoding)
