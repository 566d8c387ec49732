"""Coterie as a scikit-learn estimator: the default, which needs neither a number of clusters nor settings."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from coterie.base import BaseClusterer, generator_from, one_thread
from coterie.errors import InputError
from coterie.judged.assign import (
    Opinions,
    Outliers,
    Partitioner,
    assign,
    blocks,
    matched,
    means_of,
    relative_scales,
)
from coterie.judged.candidates.candidate import Proposal
from coterie.judged.candidates.registry import Effort
from coterie.judged.judge import Judge
from coterie.judged.sample import Election, Voting
from coterie.progress import Callback, Progress
from coterie.tables.encoder import TableEncoder
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
)

UNSURE = 0.25
"""Predicted agreement below which the result says that it is little more than a guess."""
ANOTHER = 0.9
"""Agreement with what was chosen below which another proposal is really another one."""

Labels = npt.NDArray[np.int64]


class Coterie(BaseClusterer):
    """Clustering without settings: many algorithms propose, a judge that was trained beforehand decides.

    Classical algorithms propose partitions of the rows into many numbers of clusters. A network that was trained on
    synthetic tables whose truth is known predicts how close each proposal is to the truth; the best one is taken, with
    that prediction as its confidence.

    Parameters
    ----------
    n_clusters : int or "auto"
        Number of clusters; "auto" leaves it to the judge.
    max_clusters : int
        Largest number of clusters considered by "auto".
    allow_single : bool
        Whether the result may be that all rows form one cluster.
    granularity : float
        Above 0 for more and smaller clusters than the judge's choice, below 0 for fewer and larger ones.
    effort : {"fast", "balanced", "thorough"}
        How many candidates are generated, on at most 1,000, 1,500 or 2,000 rows. Larger inputs are subsampled; the
        remaining rows are assigned to the clusters found. With "thorough" up to three subsamples vote.
    keep_ids : bool
        Whether clusters keep their numbers when ``fit`` is called again with other rows, as far as they are the same.
    weights : str or Path
        Weights of the judge: a shipped name or a file.
    noise : bool
        Whether rows far from all others get the label -1.

    Attributes
    ----------
    labels_ : array (n,)
        Cluster of each row, the largest cluster being 0; -1 for outliers if ``noise``.
    confidence_ : float
        Expected adjusted Rand index of the result with the true clusters.
    candidates_ : list of dict
        All candidate partitions with their scores, the best first.
    levels_ : list of dict
        The best candidate for each number of clusters, from few to many.
    chosen_ : dict or None
        The candidate that was chosen; None if all rows form one cluster.
    runner_up_ : dict or None
        The best candidate that differs clearly from the chosen one.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from coterie import Coterie
    >>> X, _ = make_moons(300, noise=0.05, random_state=0)
    >>> model = Coterie(random_state=0).fit(X)
    >>> model.n_clusters_
    2
    >>> bool((model.predict(X) == model.labels_).all())
    True
    """

    method: ClassVar[str] = "coterie"

    constraints: ClassVar[Mapping[str, Constraints]] = {
        "n_clusters": (Integer(1), Choice("auto"), NONE),
        "max_clusters": Integer(2),
        "allow_single": BOOLEAN,
        "granularity": Number(),
        "effort": Choice(*get_args(Effort)),
        "keep_ids": BOOLEAN,
        "weights": PATH,
        "noise": BOOLEAN,
    }
    renamed_parameters = BaseClusterer.renamed_parameters | {"judge": "weights"}
    former_attributes: ClassVar = {
        "proposals_": lambda self: self.candidates_,
        "prototypes_": lambda self: self._means,
        "history_": lambda _: {"loss": []},
        "runs_": lambda _: [],
    }

    def __init__(
        self,
        n_clusters: int | str = "auto",
        *,
        max_clusters: int = 50,
        allow_single: bool = False,
        granularity: float = 0.0,
        effort: Effort = "balanced",
        keep_ids: bool = False,
        weights: str | Path = "judge-v2",
        noise: bool = False,
        random_state: Any = None,
        verbose: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_clusters = max_clusters
        self.allow_single = allow_single
        self.granularity = granularity
        self.effort = effort
        self.keep_ids = keep_ids
        self.weights = weights
        self.noise = noise
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    def _fit(self, X: Any) -> None:
        table = self._read(X, reset=True)
        before = self._earlier_labels(table) if self.keep_ids else None
        self.__dict__.pop("_means", None)  # so that a fit which fails leaves nothing to predict with
        self.table_ = TableEncoder("standard").fit(table)
        encoded = self.table_.transform(table)
        n_clusters = self._asked_for()
        if n_clusters is not None:
            check_n_clusters(n_clusters, len(encoded))
        generator = generator_from(self.random_state, torch.device("cpu"))
        seed = int(torch.randint(2**31 - 1, (), generator=generator))
        voting = Voting(Judge.called(self.weights), self.effort, n_clusters, self.max_clusters, self.granularity, seed)
        samples = [self._in_units(encoded[kept]) for kept in voting.samples(len(encoded))]
        progress = self._progress()
        tell = None if progress is None else (lambda stage: progress(Progress(stage=stage)))
        election = voting.election(samples, tell)
        notes = election.sampling(len(encoded), ANOTHER)
        self._settle(election, notes)
        self._label(encoded, before)
        self.notes_ = tuple(notes)

    def _asked_for(self) -> int | None:
        """Return the number of clusters, or None if it is to be found."""
        if self.n_clusters is None:
            warnings.warn('n_clusters=None is deprecated; use n_clusters="auto".', FutureWarning, stacklevel=2)
        return self.n_clusters if isinstance(self.n_clusters, int | np.integer) else None

    def _predict(self, X: Any) -> Labels:
        encoded = self._encoded(X)
        labels = np.empty(len(encoded), dtype=np.int64)
        for block in blocks(len(encoded)):
            labels[block] = self._assign(encoded[block])[1]
        return labels

    def _predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        encoded = self._encoded(X)
        memberships = np.empty((len(encoded), self.n_clusters_), dtype=np.float32)
        for block in blocks(len(encoded)):
            memberships[block] = self._assign(encoded[block])[0]
        return memberships

    @one_thread()
    def predict_top(self, X: Any, m: int = 3) -> tuple[Labels, npt.NDArray[np.float32]]:
        """The likeliest clusters of each row and the memberships in them, without a membership for every cluster.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.
        m : int
            How many clusters; at most ``n_clusters_`` are given.

        Returns
        -------
        clusters : array (n, m) of int64
            The likeliest first.
        memberships : array (n, m) of float32
            Of these.
        """
        check_parameter("m", m, Integer(1))
        encoded = self._encoded(X)
        m = min(int(m), self.n_clusters_)
        clusters = np.empty((len(encoded), m), dtype=np.int64)
        shares = np.empty((len(encoded), m), dtype=np.float32)
        for block in blocks(len(encoded)):
            memberships = self._assign(encoded[block])[0]
            clusters[block] = np.argsort(-memberships, axis=1, kind="stable")[:, :m]
            shares[block] = np.take_along_axis(memberships, clusters[block], axis=1)
        return clusters, shares

    @one_thread()
    def alternative(self, n_clusters: int, X: Any) -> Labels:
        """Clusters of the rows of X by the best proposal of another number of clusters.

        Parameters
        ----------
        n_clusters : int
            How many, one of those in ``levels_``.
        X : array-like (n, d)
            Rows with the columns of ``fit``.

        Returns
        -------
        array (n,) of int64
            The largest cluster of the rows that were looked at is 0; -1 for outliers if ``noise``.
        """
        check_is_fitted(self)
        if n_clusters == self._partitioner.assignment.n_clusters:
            return self.predict(X)
        opinions = self._kept_opinions()
        partitioner = Partitioner.of(opinions.rows, opinions.best_of_number(n_clusters))
        outliers = None if self._outliers is None else Outliers.of(partitioner, opinions.rows)
        encoded = self._encoded(X)
        parts = [self._in_units(encoded[block]) for block in blocks(len(encoded))]
        return np.concatenate([assign(x, partitioner, outliers, np.arange(n_clusters))[1] for x in parts])

    def shortlist(self, at_most: int = 10) -> list[dict[str, Any]]:
        """The best proposals as in ``proposals_``, without those that are nearly the same as a better one.

        Parameters
        ----------
        at_most : int
            How many; what was taken is always among them.
        """
        opinions = self._kept_opinions()
        taken = opinions.best_of_each_number().get(self._partitioner.assignment.n_clusters)
        return [opinions.described(place) for place in opinions.distinct(taken, ANOTHER, at_most)]

    def _kept_opinions(self) -> Opinions:
        check_is_fitted(self)
        if self._opinions is None:
            raise InputError(
                "This model holds no proposals: it was read from a file, which keeps none, or nothing was proposed, "
                "since there is only one cluster. Fit it on a table of several different rows."
            )
        return self._opinions

    def _settle(self, election: Election, notes: list[str]) -> None:
        """Take one of the proposals, and say what is known of all of them."""
        rows, opinions = election.rows, election.opinions
        self._opinions: Opinions | None = opinions
        self.candidates_, self.levels_, self.chosen_, self.runner_up_ = [], [], None, None
        if opinions is not None:
            chosen = opinions.choice(self.granularity)
            self.candidates_ = [opinions.described(place) for place in opinions.ranking()]
            self.levels_ = [opinions.described(place) for place in opinions.best_of_each_number().values()]
            other = opinions.runner_up(chosen, ANOTHER)
            self.runner_up_ = None if other is None else opinions.described(other)
            if single := self.allow_single and self.n_clusters in {None, "auto"} and opinions.single > 0.5:
                self.runner_up_ = self.candidates_[0]
        if opinions is None or self.n_clusters == 1 or single:
            winner = Proposal(np.zeros(len(rows), dtype=np.int64), 1, "k-means", "standardised", "centres")
            self.confidence_ = 1.0 if opinions is None or self.n_clusters == 1 else opinions.single
            notes.append(
                "all rows are one cluster: nothing sets them apart" if self.n_clusters != 1 else "one cluster, as asked"
            )
        else:
            winner, self.chosen_ = opinions.proposals[chosen], opinions.described(chosen)
            self.confidence_ = election.confidence
            notes.append(
                f"of {len(opinions.proposals)} proposals, that of {winner.algorithm} on {winner.view} columns was taken"
                f"{', refined' if winner.refined else ''}"
            )
            if self.confidence_ < UNSURE:
                notes.append(
                    f"little more than a guess: the judge expects an agreement of {self.confidence_:.2f} with the "
                    "truth. There may be no clusters, or none that these columns show"
                )
        self.n_clusters_ = winner.n_clusters
        self._partitioner = Partitioner.of(rows, winner)
        dissolve = self.n_clusters in {None, "auto"}  # a number that was asked for is kept
        self._outliers = Outliers.of(self._partitioner, rows, dissolve=dissolve) if self.noise else None

    def _label(self, encoded: npt.NDArray[np.float32], before: Labels | None) -> None:
        """Assign all rows, and number the clusters: the largest first, or as they were before."""
        self._order = np.arange(self.n_clusters_)
        labels = np.concatenate([self._assign(encoded[block])[1] for block in blocks(len(encoded))])
        sizes = np.bincount(labels[labels >= 0], minlength=self.n_clusters_)
        self.n_clusters_ = int((sizes > 0).sum())  # without those of outliers alone
        self._order = np.argsort(-sizes, kind="stable")[: self.n_clusters_]
        if before is not None:
            self._order = matched(before, labels, self._order)
        self.probabilities_ = np.empty((len(encoded), self.n_clusters_), dtype=np.float32)
        self.labels_ = np.empty(len(encoded), dtype=np.int64)
        for block in blocks(len(encoded)):
            self.probabilities_[block], self.labels_[block] = self._assign(encoded[block])
        self._means = means_of(encoded, self.labels_, self.n_clusters_)
        self._describe()

    def _describe(self) -> None:
        """Set what follows from the clusters that were found."""
        self.cluster_centers_ = self.table_.inverse(self._means)

    def _assign(self, encoded: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], Labels]:
        """Memberships and labels of some rows."""
        return assign(self._in_units(encoded), self._partitioner, self._outliers, self._order)

    def _encoded(self, X: Any) -> npt.NDArray[np.float32]:
        check_is_fitted(self)
        return self.table_.transform(self._read(X, reset=False))

    def _in_units(self, encoded: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Encoded rows with the relative scales of their columns; categories get that of a usual number."""
        return encoded.astype(np.float64) * relative_scales(self.table_)

    def _earlier_labels(self, table: Any) -> Labels | None:
        """What the clusters of the last fit would be called among the new rows, if there was one with such columns."""
        if not self.__sklearn_is_fitted__():
            return None
        try:
            encoded = self.table_.transform(table)
        except InputError:
            return None
        return np.concatenate([self._assign(encoded[block])[1] for block in blocks(len(encoded))])

    def __sklearn_is_fitted__(self) -> bool:
        return "_means" in vars(self)

    def _to_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        check_is_fitted(self)
        arrays, names = self._partitioner.to_arrays()
        arrays |= {"order": self._order, "means": self._means}
        if self._outliers is not None:
            arrays |= self._outliers.to_arrays()
        names_told = ("confidence", "candidates", "levels", "chosen", "runner_up")
        told = {name: getattr(self, f"{name}_") for name in names_told}
        card = {**names, **told, "n_clusters": self.n_clusters_, "notes": list(self.notes_)}
        return {name: torch.from_numpy(np.require(value, requirements="C")) for name, value in arrays.items()}, card

    def _from_checkpoint(self, tensors: dict[str, Tensor], card: dict[str, Any]) -> None:
        arrays = {name: value.numpy() for name, value in tensors.items()}
        self._partitioner = Partitioner.from_arrays(arrays, card)
        self._outliers = Outliers.from_arrays(arrays)
        self._opinions = None
        if self.n_clusters is None:  # what files of version 0.1 have for "auto"
            self.n_clusters = "auto"
        self._order, self._means = arrays["order"], arrays["means"]
        self.n_clusters_, self.notes_ = int(card["n_clusters"]), tuple(card["notes"])
        self.confidence_, self.candidates_ = float(card["confidence"]), card.get("candidates", card.get("proposals"))
        self.levels_, self.chosen_, self.runner_up_ = card["levels"], card["chosen"], card["runner_up"]
        self._describe()
