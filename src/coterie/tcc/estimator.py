"""TCC as a scikit-learn estimator, and recipe files that describe one."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, final, get_args

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor

from coterie.base import FitDescription, one_thread
from coterie.config import from_dict, from_recipe, to_dict
from coterie.errors import ConfigError, InputError
from coterie.images import ImageResizer
from coterie.nn.model import build, to_arrays, to_tensors
from coterie.nn.vision import Encoder
from coterie.ops.partitions import cluster_means
from coterie.progress import Callback
from coterie.tables.encoder import Scaling, TableEncoder
from coterie.tables.readers.images import read_images
from coterie.tables.table import Table
from coterie.tcc.augmentations import Augmentations
from coterie.tcc.config import POSITIVE, PUBLISHED, TccConfig
from coterie.tcc.model import TccModel, translate_former_keys
from coterie.tcc.schedule import Schedule, train_contrastive
from coterie.torch_base import TorchClusterer, device_from, generator_from, to_numpy
from coterie.validation import FRACTION, NONE, PATH, Choice, InstanceOf, Integer, check_n_clusters, check_parameters

MAX_VALUE = 1e6  # largest absolute value that enters the network
MIN_SIDE, MAX_SIDE = 16, 64  # bounds of the sides of images in pixels, unless ``image_size`` is given
# Images are trained with a queue and a slower momentum encoder in runs of at least this many steps.
LONG_RUN_STEPS, LONG_RUN_MOMENTUM, LONG_RUN_QUEUE = 2000, 0.99, 2048
IMAGE_EPOCHS, TABLE_EPOCHS = 60, 100
MIN_STEPS, MAX_TABLE_STEPS = 300, 3000  # bounds with ``epochs="auto"``; the upper one is for rows that are not images
FORMER_HISTORY = {"empty": "empty_clusters", "uneven": "imbalance"}  # keys of ``history_`` in earlier model files


class TCC(TorchClusterer):
    """Twin-contrast clustering of images or embeddings (Shen et al., 2021).

    A network is trained to recognise each image in another view of it (instance-level contrastive loss) and each
    cluster in another view of its members (cluster-level contrastive loss). ``fit`` trains it from scratch, which takes
    minutes for some thousands of images.

    Parameters
    ----------
    n_clusters : int
        Number of clusters, which TCC cannot find itself.
    epochs : int or "auto"
        Passes over the rows; "auto" is 60 for images and 100 for other rows, but at least 300 steps, and at most 3,000
        for other rows.
    batch_size : int
        Rows per training step; each is augmented twice.
    warm_up : float
        Fraction of the training with the instance-level loss only; then the prototypes are set to k-means centres of
        the embeddings. With 0, as published, prototypes start equidistant and all losses are trained from the start.
    restarts : int
        k-means initialisations of the prototypes, at equal intervals after the warm-up.
    learning_rate : float
        Largest learning rate of AdamW.
    encoder : {"auto", "mlp", "conv", "strided", "vgg", "resnet18", "resnet34"}
        Architecture of the encoder; "auto" is "strided" for images and "mlp" for other rows.
    channels : int
        Width of the encoder.
    image_size : int or None
        Side in pixels that images are resized to; None only enlarges sides below 16 to 16 and reduces sides above 64 to
        64.
    augmentations : Augmentations or None
        Random changes that make the views of an image; None for defaults that differ between grey and colour images.
    settings : dict, optional
        Other settings of ``coterie.tcc.config.TccConfig``.
    folder : str or Path, optional
        Where to save the state of the training; called again in the same way, ``fit`` resumes an interrupted run.
    scaling : {"standard", "robust", "none"}
        Scaling of the columns of rows that are not images.

    Attributes
    ----------
    n_clusters_ : int
        Number of clusters that are not empty.
    history_ : dict of str to list of float
        Mean "loss" of each epoch, which rises when the cluster-level losses start; and "empty_clusters" and "imbalance"
        (0 if all clusters have the same size), evaluated up to 20 times.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from coterie import TCC
    >>> X, _ = make_blobs(300, centers=3, n_features=16, random_state=0)
    >>> model = TCC(3, random_state=0).fit(X)
    >>> model.n_clusters_
    3
    >>> bool((model.predict(X) == model.labels_).all())
    True
    """

    method: ClassVar[str] = "tcc"
    constraints: ClassVar = {
        **dict.fromkeys(("n_clusters", "epochs"), (Integer(1), Choice("auto"))),
        **dict.fromkeys(("batch_size", "restarts", "channels"), Integer(1)),
        "warm_up": FRACTION,
        "learning_rate": POSITIVE,
        "encoder": Choice("auto", *get_args(Encoder)),
        "image_size": (Integer(1), NONE),
        "augmentations": (NONE, InstanceOf(Augmentations, "a coterie.tcc.augmentations.Augmentations")),
        "settings": (NONE, InstanceOf(Mapping, "a dictionary")),
        "folder": (NONE, PATH),
        "scaling": Choice(*get_args(Scaling)),
    }
    renamed_parameters: ClassVar[Mapping[str, str]] = {
        **TorchClusterer.renamed_parameters, "beginnings": "restarts", "views": "augmentations"
    }  # fmt: skip
    former_attributes: ClassVar = {"prototypes_": lambda self: to_numpy(self._means), "runs_": lambda _: []}

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        epochs: int | Literal["auto"] = "auto",
        batch_size: int = 256,
        warm_up: float = 0.4,
        restarts: int = 3,
        learning_rate: float = 2e-3,
        encoder: Literal["auto"] | Encoder = "auto",
        channels: int = 32,
        image_size: int | None = None,
        augmentations: Augmentations | None = None,
        settings: Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
        scaling: Scaling = "standard",
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.epochs = epochs
        self.batch_size = batch_size
        self.warm_up = warm_up
        self.restarts = restarts
        self.learning_rate = learning_rate
        self.encoder = encoder
        self.channels = channels
        self.image_size = image_size
        self.augmentations = augmentations
        self.settings = settings
        self.folder = folder
        self.scaling = scaling
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.callback = callback

    @classmethod
    def faithful(cls, n_clusters: int = 10, **overrides: Any) -> "TCC":
        """Return the published configuration for colour images, as far as it is known.

        Values are from the paper's supplement and its authors' early code. The 1,000 epochs are those of the methods
        that the paper compares with; train on a GPU.

        Parameters
        ----------
        n_clusters : int
            Number of clusters.
        **overrides
            Parameters to change; ``settings`` are merged with the published ones.
        """
        published: dict[str, Any] = {
            "epochs": 1000, "batch_size": 384, "warm_up": 0.0, "restarts": 1, "learning_rate": 1e-3,
            "encoder": "resnet34", "channels": 64, "augmentations": replace(Augmentations.for_colour(), hue=0.4),
        }  # fmt: skip
        settings = {**PUBLISHED, **(overrides.pop("settings", None) or {})}
        return cls(n_clusters, **(published | overrides), settings=settings)

    def _fit(self, X: Any) -> None:
        n_clusters: Any = self.n_clusters
        if n_clusters == "auto":
            raise InputError("n_clusters='auto': TCC cannot find the number of clusters. Give an integer.")
        table = self._read(X, reset=True)
        check_n_clusters(self.n_clusters, table.n_rows)
        if self.folder is not None and not isinstance(self.random_state, int | np.integer):
            raise InputError(
                f"random_state={self.random_state!r} must be an integer if folder is given: a run can be resumed only "
                "with the same random numbers."
            )
        self.table_ = TableEncoder("none" if table.image is not None else self.scaling).fit(table)
        encoded = self._to_tensor(table)
        if table.image is None and self.scaling == "none" and float(encoded.abs().max()) > MAX_VALUE:
            raise InputError(
                f"X has the value {float(encoded.abs().max()):g}, which is too large without scaling. "
                "Use scaling='standard'."
            )
        notes = self._fit_resizer(table)
        x = self._network_input(table, encoded)
        generator = generator_from(self.random_state, x.device)
        schedule = self._schedule(len(x))
        config = self._network_config(x.shape[1], schedule, len(x))
        model, self.history_ = train_contrastive(TccModel, x, config, schedule, generator, callback=self._progress())
        labels = model.cluster(x, generator).labels
        used = len(torch.unique(labels))
        if used < self.n_clusters:
            notes.append(f"the clusters collapsed: {self.n_clusters - used} of {self.n_clusters} are empty")
        self.notes_ = tuple(notes)
        self.model_ = model.for_inference(labels)
        probabilities = self.model_.memberships(x)
        labels = probabilities.argmax(dim=1)
        self._means = cluster_means(encoded, labels, self.model_.config.n_clusters)
        self.probabilities_, self.labels_ = to_numpy(probabilities), labels.cpu().numpy()
        self._set_model_results()

    def _fit_resizer(self, table: Table) -> list[str]:
        """Decide how images are resized; return notes about it."""
        self._resizer: ImageResizer | None = None
        if table.image is None:
            return []
        height, width, channels = table.image
        height, width = (self.image_size or min(max(side, MIN_SIDE), MAX_SIDE) for side in (height, width))
        self._resizer, notes = ImageResizer.fit(table, (channels, height, width))
        return list(notes)

    def _network_input(self, table: Table, encoded: Tensor) -> Tensor:
        if self._resizer is None:
            return encoded.clamp(-MAX_VALUE, MAX_VALUE)
        return self._resizer(table).to(encoded.device)

    def _network_config(self, n_features: int, schedule: Schedule, n_rows: int) -> TccConfig:
        """Combine the parameters, the settings, and defaults that depend on the length of the training."""
        image = None if self._resizer is None else self._resizer.target
        default_encoder = "mlp" if image is None else "strided"
        fixed = {
            "n_features": n_features,
            "n_clusters": int(self.n_clusters),
            "image": image,
            "encoder": default_encoder if self.encoder == "auto" else self.encoder,
            "channels": int(self.channels),
        }
        settings = dict(self.settings or {})
        if repeated := sorted(settings.keys() & fixed.keys()):
            raise InputError(
                f"settings has {', '.join(repeated)}, which X or a parameter of TCC determines. Leave it out."
            )
        defaults: dict[str, Any] = {"embedding_dim": max(128, int(self.n_clusters))}
        if image is not None and schedule.steps >= LONG_RUN_STEPS:
            # A longer queue would contain other views of the rows of the batch.
            queue_size = min(LONG_RUN_QUEUE, n_rows - schedule.batch_size)
            defaults |= {"momentum": LONG_RUN_MOMENTUM, "queue_size": queue_size}
        config = TccConfig.from_values({**fixed, **defaults}, settings)
        if not config.in_batch_negatives and config.queue_size == 0:
            raise InputError(
                "settings has in_batch_negatives=False and no queue, so that there are no negatives. "
                "Set queue_size=2048, for example, or leave in_batch_negatives out."
            )
        return config

    def _schedule(self, n_rows: int) -> Schedule:
        batch_size = min(self.batch_size, n_rows)
        epoch_steps = max(1, n_rows // batch_size)
        if self.epochs != "auto":
            steps = self.epochs * epoch_steps
        elif self._resizer is None:
            steps = min(max(TABLE_EPOCHS * epoch_steps, MIN_STEPS), MAX_TABLE_STEPS)
        else:
            steps = max(IMAGE_EPOCHS * epoch_steps, MIN_STEPS)
        return Schedule(
            batch_size=batch_size,
            epoch_steps=epoch_steps,
            steps=steps,
            warm_up=self.warm_up,
            restarts=self.restarts,
            learning_rate=self.learning_rate,
            augmentations=self.augmentations,
            folder=None if self.folder is None else Path(self.folder),
        )

    def _read(self, X: Any, *, reset: bool) -> Table:
        """Return X as a table; a folder of images and a DataLoader are read first."""
        return super()._read(_collect_images(X), reset=reset)

    def _prepare(self, X: Any) -> Tensor:
        """Convert new rows to the input of the network."""
        check_is_fitted(self)
        table = self._read(X, reset=False)
        return self._network_input(table, self._to_tensor(table))

    def _predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        return to_numpy(self.model_.memberships(self._prepare(X)))

    @one_thread()
    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """Compute the embeddings (n, embedding_dim) of images or rows like those of ``fit``; they have length one."""
        return to_numpy(self.model_.embeddings(self._prepare(X)))

    @property
    def _n_features_out(self) -> int:
        return int(self.model_.config.embedding_dim)

    def describe_fit(self, table: Table) -> FitDescription:
        """Describe the fit for the summary and the report: rows are placed by their embeddings."""
        return FitDescription(pixel_distances_meaningful=False, embed=self.transform, losses=self.history_["loss"])

    def _set_model_results(self) -> None:
        self.n_clusters_ = self.model_.config.n_clusters
        self.cluster_centers_ = self.table_.inverse_transform(to_numpy(self._means))

    def _to_checkpoint(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        card = {
            "model": to_dict(self.model_.config),
            "history": self.history_,
            "notes": list(self.notes_),
            "settings": None if self.settings is None else dict(self.settings),
            "augmentations": None if self.augmentations is None else to_dict(self.augmentations),
        }
        if self._resizer is not None:
            card["images"] = self._resizer.to_card()
        return to_arrays({**self.model_.state_dict(), "means": self._means}), card

    def _from_checkpoint(self, arrays: dict[str, npt.NDArray[Any]], card: dict[str, Any]) -> None:
        tensors = to_tensors(arrays)
        self.settings = card.get("settings")
        if card.get("augmentations") is not None:
            self.augmentations = from_dict(Augmentations, card["augmentations"])
        device = device_from(self.device)
        self._means = tensors.pop("means").to(device)
        self.model_ = build(TccModel, TccConfig.from_values(card["model"]), Generator()).to(device)
        self.model_.load_state_dict(translate_former_keys(tensors))
        images = card.get("images", card.get("pictures"))  # the latter in files of earlier versions
        self._resizer = None if images is None else ImageResizer.from_card(images)
        self.history_ = {FORMER_HISTORY.get(name, name): values for name, values in card["history"].items()}
        self.notes_ = tuple(card["notes"])
        self._set_model_results()


def _collect_images(X: Any) -> Any:
    """Read a folder of images, or all batches of a DataLoader (channels first); return other input unchanged."""
    if isinstance(X, str | Path):
        return read_images(X)
    if isinstance(X, torch.utils.data.DataLoader):
        batches = [batch[0] if isinstance(batch, list | tuple) else batch for batch in X]
        if not batches:
            raise InputError("The DataLoader is empty. Use one that has images.")
        if not all(isinstance(batch, Tensor) for batch in batches):
            kinds = ", ".join(sorted({type(batch).__name__ for batch in batches}))
            raise InputError(
                f"The DataLoader yields {kinds}. Its batches must be image tensors, or lists that start with one."
            )
        images = torch.cat(batches)
        return (images.permute(0, 2, 3, 1) if images.ndim == 4 else images).cpu().numpy()
    return X


@final
@dataclass(frozen=True, slots=True)
class TccRecipe:
    """Content of a TCC recipe file."""

    RENAMED: ClassVar[Mapping[str, str]] = {"views": "augmentations"}

    name: str
    summary: str  # purpose of the recipe in one sentence
    seed: int  # the random state
    parameters: dict[str, Any]  # parameters of ``TCC``; only ``n_clusters`` is required
    settings: dict[str, Any] = field(default_factory=dict)  # settings of ``TccConfig``
    augmentations: dict[str, Any] | None = None  # fields of ``Augmentations``


# Arguments of TCC that have a section or key of their own in recipes, or are for Python only.
_NOT_IN_PARAMETERS = {"self", "settings", "augmentations", "random_state", "verbose", "callback"}


def tcc_from_recipe(path: str | Path, **overrides: Any) -> TCC:
    """Read a TOML file with the keys of ``TccRecipe`` and build the estimator; ``overrides`` replace its parameters.

    A relative ``folder`` is relative to the working directory.
    """
    return TCC(**(from_recipe(path, _parse_recipe) | overrides))


def tcc_from_options(recipe: str | Path | None = None, **parameters: Any) -> TCC:
    """Build the estimator from command-line options; without a recipe, the random state defaults to 0."""
    return TCC(**{"random_state": 0, **parameters}) if recipe is None else tcc_from_recipe(recipe, **parameters)


def _parse_recipe(content: Mapping[str, Any]) -> dict[str, Any]:
    """Check the content of a recipe file, and return the parameters of TCC."""
    if "model" in content and "parameters" not in content:
        raise ConfigError("it has [model] and no [parameters], so it is a recipe for weights. Use coterie learn.")
    recipe = from_dict(TccRecipe, content)
    if recipe.seed < 0:
        raise ConfigError(f"seed = {recipe.seed} must be at least 0.")
    known = {*inspect.signature(TCC.__init__).parameters, *TCC.renamed_parameters} - _NOT_IN_PARAMETERS
    if unknown := sorted(recipe.parameters.keys() - known):
        raise ConfigError(f"[parameters] has the unknown key {', '.join(unknown)}.")
    if "n_clusters" not in recipe.parameters:
        raise ConfigError("[parameters] lacks n_clusters.")
    fixed = ("n_features", "n_clusters", "image", "encoder", "channels")
    if repeated := [name for name in fixed if name in recipe.settings]:
        raise ConfigError(
            f"[settings] has {', '.join(repeated)}, which [parameters] or the images determine. Remove it from "
            "[settings]."
        )
    TccConfig.from_values({"n_features": 1, "n_clusters": 1}, recipe.settings)
    parameters = recipe.parameters | {
        "settings": recipe.settings,
        "augmentations": None if recipe.augmentations is None else from_dict(Augmentations, recipe.augmentations),
        "random_state": recipe.seed,
    }
    check_parameters(TCC(**parameters), TCC.constraints, ConfigError)
    return parameters
