"""AMCP as a scikit-learn estimator."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from coterie.amortized.amcp.config import AmcpConfig
from coterie.amortized.amcp.network import AmcpModel
from coterie.amortized.estimator import FilteringClusterer
from coterie.errors import InputError
from coterie.nn.model import SetModel
from coterie.progress import Progress
from coterie.tables.encoder import Scaling


class AMCP(FilteringClusterer):
    """Amortized mixing coupling processes: clusters one after the other, each by mixing rows with references.

    A reconstruction: of the paper only the appendix could be read, and what it leaves open is ours. A network proposes
    where the next cluster is, a few steps of expectation and maximisation move it there, and what belongs to it is
    taken out. Nothing is trained by ``fit``, the number of clusters is not asked for, and no row is compared with
    another: time grows with the rows times the clusters. The weights that ship are for points in the plane; data with
    one feature or with more than two are brought there, which ``notes_`` states. ``learn`` trains the network on sets
    of your own kind that you have sorted.

    Parameters
    ----------
    weights : str, Path or None
        Name of weights that ship (``coterie.pretrained.registry.pretrained_names("amcp")``), or a file; None to ``learn`` from
        nothing.
    max_points : int or None
        Rows that go through the network; of more, so many are drawn by chance, and what was found in them takes the
        others. None is what the weights say.
    decoding : {"auto", "robust", "faithful"}
        "robust": clusters compete for the rows, by their densities where they have some, and those that are too many
        are dropped or joined. "faithful": each pass keeps what it takes. "auto" is what the weights were made for.
    em_steps : int or None
        Steps of expectation and maximisation in every pass; None is what the weights were trained with.
    update_previous : bool or None
        Whether rows may move between the clusters found so far after every pass (AMCP*); None is as in training.
    density : {"gaussian", "flow", "none"}
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
    >>> from coterie import AMCP
    >>> X, _ = make_blobs(500, centers=5, cluster_std=0.6, random_state=3)
    >>> model = AMCP(random_state=0).fit(X)
    >>> model.n_clusters_
    5
    >>> bool((model.predict(X) == model.labels_).all())
    True
    """

    method: ClassVar[str] = "amcp"
    kind: ClassVar[type[SetModel]] = AmcpModel

    def __init__(
        self,
        weights: str | Path | None = "amcp-plane-v1",
        *,
        max_points: int | None = None,
        decoding: Literal["auto", "robust", "faithful"] = "auto",
        em_steps: int | None = None,
        update_previous: bool | None = None,
        density: Literal["gaussian", "flow", "none"] = "gaussian",
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
        self.em_steps = em_steps
        self.update_previous = update_previous
        self.density = density
        self.filtering = filtering
        self.principal = principal
        self.principal_beside = principal_beside
        self.scaling = scaling
        self.device = device
        self.random_state = random_state
        self.on_progress = on_progress

    def _fresh_config(self, n_features: int, image: tuple[int, int, int] | None) -> AmcpConfig:
        if image is not None:  # densities describe points as they are, which images are too many numbers for
            return AmcpConfig(
                n_features,
                encoder="strided",
                image=image,
                principal=self.principal,
                principal_beside=self.principal_beside,
                filtering="anchored",
                density="none",
                moments=4,
            )
        return AmcpConfig(
            n_features,
            principal=self.principal,
            principal_beside=self.principal_beside,
            density=self.density,
            filtering=self.filtering,
        )

    def _configured(self, config: AmcpConfig) -> AmcpConfig:
        config = super()._configured(config)
        if self.em_steps is not None:
            if self.em_steps < 0:
                raise InputError(f"em_steps={self.em_steps} must be a whole number of at least 0.")
            config = replace(config, em_steps=self.em_steps)
        return config if self.update_previous is None else replace(config, update_previous=self.update_previous)
