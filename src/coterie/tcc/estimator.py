"""TCC as a scikit-learn estimator."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, make_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, final, get_type_hints

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor

from coterie.base import BaseClusterer, device_from, generator_from, labels_to_numpy, one_thread, to_numpy
from coterie.config import from_dict, from_recipe, to_dict
from coterie.errors import ConfigError, InputError
from coterie.images.folders import read_images
from coterie.images.resizing import PictureMatch
from coterie.nn.model import build
from coterie.nn.vision import Encoder
from coterie.ops.partitions import cluster_means
from coterie.progress import Callback
from coterie.tables.encoder import Scaling, TableEncoder
from coterie.tables.table import Table
from coterie.tcc.augmentations import Views
from coterie.tcc.model import TccConfig, TccModel
from coterie.tcc.schedule import Course, learned
from coterie.validation import FRACTION, NONE, Choice, Constraints, Integer, Number, check_n_clusters

FARTHEST = 1e6
"""Largest absolute value that enters the network."""
SMALLEST_SIDE, LARGEST_SIDE = 16, 64
"""Pixels that a side of images is brought to if it has fewer, or more, unless a size is asked for."""
LONG, SLOW, MOST_REMEMBERED = 2000, 0.99, 2048
"""Steps from which on images are told apart from remembered ones as well, by a twin that follows slowly; its momentum;
and how many are remembered. In shorter runs neither gets far enough to be of use."""
IMAGE_EPOCHS, TABLE_EPOCHS = 60, 100
LEAST_STEPS, MOST_TABLE_STEPS = 300, 3000
"""What epochs are held within, unless they are given: few rows need more of them, and many that are no images fewer."""


class TCC(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseClusterer):  # type: ignore[misc]  # scikit-learn is untyped
    """Twin-contrast clustering: images, or embeddings, sorted by a network that learns from their views.

    A network learns to recognise each image in another view of it, among all others, and each cluster in what another
    view makes of it, among the other clusters. Where images then are on a sphere tells what they show; clusters are
    begun where they are dense, and learned on together with them. ``fit`` trains: minutes for some thousands of images.

    Parameters
    ----------
    n_clusters : int
        How many clusters.
    epochs : int or "auto"
        Times that the rows are gone through; "auto" is 60 for images, and 100 for other rows, or as many more as make
        300 steps; 3,000 steps are the most for other rows.
    batch_size : int
        Rows of a training step, each of which is seen twice.
    warm_up : float
        Share of the training that rows alone are learned from; then clusters are begun, in the middle of clusters of
        where rows are. With 0, prototypes begin as far apart as can be, as published, and all is learned at once.
    beginnings : int
        How often clusters are begun in what is left of the training, at equal intervals: each time by what was learned
        up to then, which tells them better.
    learning_rate : float
        Largest rate of AdamW.
    encoder : {"auto", "mlp", "conv", "strided", "vgg", "resnet18", "resnet34"}
        Network that looks at each row; "auto" is "strided" for images and "mlp" for other rows.
    channels : int
        Its width.
    image_size : int or None
        Pixels along the sides that images are brought to; with None, sides of more than 64 are brought to 64, and sides
        of fewer than 16 to 16.
    views : Views or None
        How much views of an image may differ; None is what suits grey images, or colour ones.
    scaling : {"standard", "robust", "none"}
        How the columns of rows that are no images are brought to one scale.
    settings : dict, optional
        Other settings of ``coterie.tcc.model.TccConfig``.
    folder : str or Path, optional
        Where training is kept, so that a run that was stopped goes on when it is called again in the same way.
    device : str
        "auto", "cpu", "cuda" ...
    random_state : int, RandomState or None
        Same number, same result.
    on_progress : callable, optional
        Called with a ``coterie.progress.Progress`` after every step. Its ``evaluation`` says now and then how many
        clusters are empty, and how far from even their shares are (0 at best).

    Attributes
    ----------
    labels_ : array (n,)
        Cluster of each row, the largest cluster being 0.
    n_clusters_ : int
        Clusters that have a row.
    probabilities_ : array (n, n_clusters_)
        Memberships of the rows of ``fit``.
    cluster_centers_ : array (n_clusters_, n_encoded)
        Mean of each cluster, in the units of the input; one column per entry of ``table_.features``.
    prototypes_ : array (n_clusters_, n_encoded)
        The same in the encoded features, those of ``table_``.
    history_ : dict of str to list of float
        Course of training: mean "loss" of every epoch, which rises where clusters are begun and more is learned. Since
        then, now and then: how many clusters were "empty", and how "uneven" their shares were, 0 at best.
    notes_ : tuple of str
        What was decided on the way, in sentences; among others, that clusters collapsed, if they did.
    runs_ : list of dict
        Restarts that were tried: none.
    table_ : TableEncoder
        How columns became numbers.

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
    constraints: ClassVar[Mapping[str, Constraints]] = {
        "n_clusters": (Integer(1), Choice("auto")),
        "epochs": (Integer(1), Choice("auto")),
        "batch_size": Integer(1),
        "warm_up": FRACTION,
        "beginnings": Integer(1),
        "learning_rate": Number(0.0, exclusive=True),
        "channels": Integer(1),
        "image_size": (Integer(1), NONE),
    }

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        epochs: int | Literal["auto"] = "auto",
        batch_size: int = 256,
        warm_up: float = 0.4,
        beginnings: int = 3,
        learning_rate: float = 2e-3,
        encoder: Literal["auto"] | Encoder = "auto",
        channels: int = 32,
        image_size: int | None = None,
        views: Views | None = None,
        scaling: Scaling = "standard",
        settings: Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.epochs = epochs
        self.batch_size = batch_size
        self.warm_up = warm_up
        self.beginnings = beginnings
        self.learning_rate = learning_rate
        self.encoder = encoder
        self.channels = channels
        self.image_size = image_size
        self.views = views
        self.scaling = scaling
        self.settings = settings
        self.folder = folder
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    def _fit(self, X: Any) -> None:
        table = self._read(_collected(X), reset=True)
        self._check(table.n_rows)
        self.table_ = TableEncoder("none" if table.image is not None else self.scaling).fit(table)
        encoded = self._to_tensor(table)
        if table.image is None and self.scaling == "none" and float(encoded.abs().max()) > FARTHEST:
            raise InputError(
                f"A value as large as {float(encoded.abs().max()):g} cannot be used unscaled; use scaling='standard'."
            )
        notes = self._fit_match(table)
        x = self._matched(table, encoded)
        generator = generator_from(self.random_state, x.device)
        course = self._course(len(x))
        config = self._config(x.shape[1], course, len(x))
        model, self.history_ = learned(TccModel, x, config, course, generator, on_progress=self._progress())
        found = model.cluster(x, generator)
        notes += _collapsed(found.labels, self.n_clusters)
        self.notes_ = tuple(notes)
        self.model_ = model.numbered(found.labels)
        memberships = self.model_.memberships(x)
        labels = memberships.argmax(dim=1)
        self._means = cluster_means(encoded, labels, self.model_.config.n_clusters)
        self.probabilities_, self.labels_ = to_numpy(memberships), labels_to_numpy(labels)
        self._describe()

    def _check(self, n_rows: int) -> None:
        if self.n_clusters == "auto":
            raise InputError("n_clusters='auto': TCC cannot find the number of clusters. Give it as an integer.")
        check_n_clusters(self.n_clusters, n_rows)
        if self.folder is not None and not isinstance(self.random_state, int | np.integer):
            raise InputError(
                f"A run that can go on from folder={str(self.folder)!r} must draw the same again: give a whole number "
                f"as random_state, which is {self.random_state!r}."
            )

    def _fit_match(self, table: Table) -> list[str]:
        """Learn how to bring images to what the network takes, and say it in sentences."""
        self._match: PictureMatch | None = None
        if table.image is None:
            return []
        height, width, channels = table.image
        if self.image_size is not None:
            height = width = self.image_size
        else:
            height, width = (min(max(side, SMALLEST_SIDE), LARGEST_SIDE) for side in (height, width))
        self._match, said = PictureMatch.of(table, (channels, height, width))
        return list(said)

    def _matched(self, table: Table, encoded: Tensor) -> Tensor:
        return encoded.clamp(-FARTHEST, FARTHEST) if self._match is None else self._match(table).to(encoded.device)

    def _config(self, n_features: int, course: Course, n_rows: int) -> TccConfig:
        """What the network is, given how long it is trained, and on how many rows."""
        image = None if self._match is None else self._match.wanted
        encoder = self.encoder
        if encoder == "auto":
            encoder = "mlp" if image is None else "strided"
        mine = {"n_features": n_features, "n_clusters": int(self.n_clusters), "image": image}
        given = dict(self.settings or {})
        if doubled := sorted(given.keys() & {*mine, "encoder", "channels"}):
            raise InputError(f"settings has {', '.join(doubled)}, which X and TCC's own parameters say; leave it out.")
        own: dict[str, Any] = {
            "encoder": encoder,
            "channels": int(self.channels),
            "width": max(128, int(self.n_clusters)),  # prototypes must have room
        }
        if image is not None and course.steps >= LONG:
            # Of more than are outside a batch, some would be told apart from themselves.
            own |= {"momentum": SLOW, "memory": min(MOST_REMEMBERED, n_rows - course.batch_size)}
        config = from_dict(TccConfig, mine | own | given)
        if not config.in_batch and config.memory == 0:
            raise InputError(
                "settings has in_batch=False and no memory, so that rows would be told apart from nothing. "
                "Give memory=2048, say, or leave in_batch out."
            )
        return config

    def _course(self, n_rows: int) -> Course:
        batch_size = min(self.batch_size, n_rows)
        epoch = max(1, n_rows // batch_size)
        if self.epochs != "auto":
            steps = self.epochs * epoch
        elif self._match is None:
            steps = min(max(TABLE_EPOCHS * epoch, LEAST_STEPS), MOST_TABLE_STEPS)
        else:
            steps = max(IMAGE_EPOCHS * epoch, LEAST_STEPS)
        folder = None if self.folder is None else Path(self.folder)
        return Course(batch_size, epoch, steps, self.warm_up, self.beginnings, self.learning_rate, self.views, folder)

    def _features(self, X: Any) -> Tensor:
        """New rows as the network takes them."""
        check_is_fitted(self)
        table = self._read(_collected(X), reset=False)
        return self._matched(table, self._to_tensor(table))

    def _predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        return to_numpy(self.model_.memberships(self._features(X)))

    @one_thread()
    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """Where rows are on the sphere on which they were told apart: features for other methods.

        Parameters
        ----------
        X : array-like
            Images or rows like those of ``fit``.
        """
        x = self._features(X)
        return to_numpy(self.model_.places(x))

    def _describe(self) -> None:
        self.n_clusters_ = self.model_.config.n_clusters
        self._n_features_out = self.model_.config.width
        self.prototypes_ = to_numpy(self._means)
        self.cluster_centers_ = self.table_.inverse(self.prototypes_)
        self.runs_: list[dict[str, Any]] = []

    def _to_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        card = {"model": to_dict(self.model_.config), "history": self.history_, "notes": list(self.notes_)}
        if self._match is not None:
            card["pictures"] = self._match.to_card()
        return {**self.model_.state_dict(), "means": self._means}, card

    def _from_checkpoint(self, tensors: dict[str, Tensor], card: dict[str, Any]) -> None:
        device = device_from(self.device)
        self._means = tensors.pop("means").to(device)
        self.model_ = build(TccModel, from_dict(TccConfig, card["model"]), Generator()).to(device)
        self.model_.load_state_dict(tensors)
        self._match = PictureMatch.from_card(card["pictures"]) if "pictures" in card else None
        self.history_, self.notes_ = card["history"], tuple(card["notes"])
        self._describe()


def _collected(X: Any) -> Any:
    """Images from a folder, or from all batches of a DataLoader, whose channels come first; anything else as it is."""
    if isinstance(X, str | Path):
        return read_images(X)
    if isinstance(X, torch.utils.data.DataLoader):
        batches = [batch[0] if isinstance(batch, list | tuple) else batch for batch in X]
        if not batches:
            raise InputError("The DataLoader gives no batch. Give one that has images.")
        if not all(isinstance(batch, Tensor) for batch in batches):
            kinds = ", ".join(sorted({type(batch).__name__ for batch in batches}))
            raise InputError(f"The DataLoader gives {kinds}. Give one whose batches are images, or have them first.")
        images = torch.cat(batches)
        return (images.permute(0, 2, 3, 1) if images.ndim == 4 else images).cpu().numpy()
    return X


def _collapsed(labels: Tensor, n_clusters: int) -> list[str]:
    """A sentence on clusters that have no row, if there are some."""
    used = len(torch.unique(labels))
    if used == n_clusters:
        return []
    have = "has" if used == 1 else "have"
    return [f"the clusters collapsed: only {used} of the {n_clusters} that were asked for {have} a row"]


ELSEWHERE = ("settings", "views", "random_state", "verbose", "callback", "return")
"""Parameters of TCC that [parameters] does not have: they have sections or a key of their own, or are for Python."""
OF_THE_NETWORK = ("n_features", "n_clusters", "image", "encoder", "channels")
"""Settings of TccConfig that [settings] does not have: the images say them, or [parameters]."""


@final
@dataclass(frozen=True, slots=True)
class TccRecipeFile:
    """What a recipe file of TCC has in it."""

    name: str
    summary: str
    """What it is for, in a sentence."""
    seed: int
    """That all randomness comes from."""
    parameters: dict[str, Any]
    """Of ``TCC``; all but ``n_clusters`` may be left to it."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Others of TccConfig."""
    views: dict[str, Any] | None = None
    """Settings of Views; without them, what suits grey images, or colour ones."""


def tcc_from_recipe(path: str | Path, **changed: Any) -> TCC:
    """Read and check a recipe file, and make the estimator that it describes.

    Parameters
    ----------
    path : str or Path
        A TOML file with all that ``TccRecipeFile`` has. If it has a ``folder``, that begins at the current one.
    changed : Any
        Parameters of ``TCC`` that replace those of the file, such as ``on_progress`` or ``epochs``.

    Raises
    ------
    InputError
        If there is no such file, or if something in it is missing, unknown, or of the wrong kind.
    """
    return TCC(**(from_recipe(path, _parameters_from) | changed))


def _parameters_from(source: Mapping[str, Any]) -> dict[str, Any]:
    """Check the content of a recipe file; what it says of TCC's parameters."""
    if "model" in source and "parameters" not in source:
        raise ConfigError("it has [model] and no [parameters], so that it makes weights; use coterie learn with it.")
    file = from_dict(TccRecipeFile, source)
    if file.seed < 0:
        raise ConfigError(f"seed = {file.seed} must be at least 0.")
    if doubled := [name for name in OF_THE_NETWORK if name in file.settings]:
        raise ConfigError(
            f"[settings] has {', '.join(doubled)}, which [parameters] or the images say; leave it out of [settings]."
        )
    from_dict(_parameters_of_a_file(), file.parameters)
    from_dict(TccConfig, {"n_features": 1, "n_clusters": 1, **file.settings})
    views = None if file.views is None else from_dict(Views, file.views)
    return file.parameters | {"settings": file.settings, "views": views, "random_state": file.seed}


def _parameters_of_a_file() -> type:
    """A configuration that has the parameters of TCC which may be in a file, and is called as TCC is."""
    kinds = {name: kind for name, kind in get_type_hints(TCC.__init__).items() if name not in ELSEWHERE}
    kinds["folder"] = str  # a file has no Path
    needed = {"n_clusters"}
    return make_dataclass(
        TCC.__name__,
        [(name, kind, field(default=MISSING if name in needed else None)) for name, kind in kinds.items()],
        frozen=True,
    )
