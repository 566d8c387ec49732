"""Coterie, the default estimator: needs neither a number of clusters nor settings."""

import math
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.utils.validation import check_is_fitted

from coterie.base import BaseClusterer, FitDescription, ReportSection, Selection, one_thread, seed_from
from coterie.encoders import encode_cached, load_encoder
from coterie.errors import InputError
from coterie.judged.assign import Assigner, Outliers, assign, blocks, encoded_means, expected_accuracy, match_order
from coterie.judged.candidates.registry import EFFORTS, Candidate, Effort, count_runs
from coterie.judged.cosine import Metric, metrics_to_try
from coterie.judged.judge import Judge, ScoredCandidates
from coterie.judged.levels import Levels
from coterie.judged.noise import NoiseModel
from coterie.judged.preparation import Missing, Preparation
from coterie.judged.sample import SAMPLE_ROWS, Samples, SubsampleVote, VoteResult, subsample_indices
from coterie.judged.space import Integers, Labels, Singles, Space
from coterie.judged.texts import COMPONENTS_ALONE, COMPONENTS_BESIDE, TextFeatures, fit_axes, unit_rows
from coterie.judged.views import CosineView, View
from coterie.metrics import normalized_mutual_information
from coterie.progress import Callback, StageProgress
from coterie.tables.table import Table, as_table, densify, unknown_column
from coterie.validation import (
    BOOLEAN,
    NONE,
    PATH,
    Choice,
    Constraints,
    InstanceOf,
    Integer,
    Number,
    check_n_clusters,
    check_parameter,
)

LOW_CONFIDENCE = 0.25  # expected adjusted Rand index below which the result is little better than a guess
MIN_ROWS_OF_SINGLE = 50  # fewer rows are no strong evidence that there is one cluster, and the judge saw none
SURE = 0.9  # expected adjusted Rand index from which no other metric is tried
ALIKE = 0.9  # adjusted Rand index at and above which two partitions count as the same
WEIGHTS: dict[Metric, str] = {"euclidean": "judge-v5", "cosine": "judge-cosine-v2"}  # by default
REPEATED = 0.95  # adjusted mutual information with a column at and above which a partition repeats it
# What takes as long as one run of a candidate algorithm, for the progress.
_CELLS_PER_STEP, _ROWS_PER_STEP, _FEATURE_STEPS = 300_000, 5_000, 0.35
UNLIKE = 0.5  # adjusted mutual information below which it does not


def find_repeated_column(space: Space, labels: Labels) -> tuple[int, Integers] | None:
    """Return the discrete column that a partition repeats, and the level of each row; None if there is none."""
    for column in np.flatnonzero(space.discrete):
        values = space.x[:, space.columns.features(int(column))]
        levels = np.unique(values, axis=0, return_inverse=True)[1].ravel()
        # The adjusted mutual information is at most the normalised one, which takes a fraction of the time.
        likely = levels.max() > 0 and normalized_mutual_information(levels, labels) >= REPEATED
        if likely and _mutual_information(levels, labels) >= REPEATED:
            return int(column), levels
    return None


def _component_names(count: int) -> tuple[str, ...]:
    return tuple(f"component {number + 1}" for number in range(count))


def _to_texts(table: Table, name: str) -> list[str | None]:
    values = table.column(table.names.index(name))
    if values.dtype.kind != "O":
        raise InputError(f"The column {name!r}, given by text, holds no texts. Leave it out of text.")
    return [None if value is None else str(value) for value in values.tolist()]


def _mutual_information(levels: Integers, labels: Labels) -> float:
    from sklearn.metrics import adjusted_mutual_info_score  # noqa: PLC0415  (slow to import, for discrete columns only)

    return float(adjusted_mutual_info_score(levels, labels))


@final
@dataclass(frozen=True, slots=True, eq=False)
class _MetricFit:
    """What was found with one metric."""

    metric: Metric
    samples: Samples
    result: VoteResult
    is_single: bool  # whether all rows form one cluster

    @property
    def expected_agreement(self) -> float:
        """The expected adjusted Rand index of the result with the true clusters."""
        scored = self.result.scored
        return scored.single_probability if self.is_single and scored is not None else self.result.confidence


class Coterie(BaseClusterer):
    """Cluster without settings: many algorithms generate candidates, a pretrained network chooses one.

    Classical algorithms partition the rows into many numbers of clusters. A network, the judge, predicts how close each
    of these candidates is to the true clusters; it was trained on synthetic tables whose clusters are known. The best
    candidate is chosen, and the prediction is its confidence.

    Parameters
    ----------
    n_clusters : int or "auto"
        Number of clusters; "auto" leaves it to the judge.
    max_clusters : int or "auto"
        Largest number of clusters considered. With "auto" it is 50, and more if the rows seem to have more clusters,
        up to a fifth of the rows that are clustered; of embeddings, up to a tenth.
    allow_single : bool or "auto"
        Whether the result may be that all rows form one cluster. With "auto" that needs strong evidence, and at least
        50 rows; with True it needs to be more probable than not.
    granularity : float
        Above 0 for more and smaller clusters than the judge's choice, below 0 for fewer and larger ones.
    effort : {"fast", "balanced"}
        How many candidates are generated, on at most 1,000 or 1,500 rows; of embeddings on at most 2,000 or 4,000.
        Larger inputs are subsampled; the remaining rows are assigned to the clusters found. With "balanced" up to three
        subsamples of a table vote.
    missing : {"ignore", "indicator"}
        Whether missing values are no information, and are filled in from similar rows, or whether that a value is
        missing is information of its own.
    metric : {"auto", "cosine", "euclidean"}
        How rows are compared: "euclidean" by columns, which are scaled and weighed; "cosine" by direction, for
        embeddings of texts, images and the like. "auto" recognises embeddings, and takes the result that is expected to
        be better where a table of 12 or more number columns leaves it open.
    column_weights : dict of str to float, optional
        Factors of columns by name: below 1 for columns that should count less, 0 to leave a column out.
    encoder : str, Path, callable or None
        Turns texts or images into the embeddings that are clustered: ``"sentence-transformers:NAME"`` or
        ``"timm:NAME"``, a folder of weights, or a function of a list of texts or an array of images; see
        ``coterie.encoders.load_encoder``. X is then a list of texts, or images.
    text : str, list of str or None
        Columns of texts to cluster by what they say, beside the other columns: their words become a few numbers per row
        (TF-IDF and its leading components), or their embeddings do if there is an ``encoder``.
    cache : str or Path, optional
        Folder in which embeddings are kept, so that the same texts or images are encoded once.
    keep_ids : bool
        Whether clusters keep their numbers when ``fit`` is called again with other rows, as far as they are the same.
    n_jobs : int, optional
        Number of threads that generate candidates; -1 for one per processor. The result does not depend on it.
    weights : str, Path or dict
        Weights of the judge: a shipped name or a file, which then determines the metric; or one for each metric, by its
        name. "auto" is the shipped judge for the metric.
    noise : bool
        Whether rows far from all others, or in a sparse background, get the label -1.

    Attributes
    ----------
    labels_ : array (n,)
        Cluster of each row, the largest cluster being 0; -1 for outliers if ``noise``.
    metric_ : {"cosine", "euclidean"}
        How rows were compared.
    confidence_ : float
        Expected adjusted Rand index of the result with the true clusters; NaN if one cluster was asked for.
    candidates_ : list of dict
        All candidate partitions with their scores, the best first.
    levels_ : list of dict
        The best candidate for each number of clusters, from few to many. ``parents`` says for each cluster in which
        cluster of the level before it is; it is None for the coarsest level, and for candidates that do not nest.
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
        "max_clusters": (Integer(2), Choice("auto")),
        "allow_single": (BOOLEAN, Choice("auto")),
        "granularity": Number(),
        "effort": (Choice(*EFFORTS), Choice("thorough")),
        "missing": Choice("ignore", "indicator"),
        "metric": Choice("auto", "cosine", "euclidean"),
        "column_weights": (InstanceOf(Mapping, "a dict of column names to factors"), NONE),
        "encoder": (PATH, InstanceOf(Callable, "a function"), NONE),
        "text": (InstanceOf((str, Sequence), "a column name or a list of column names"), NONE),
        "cache": (PATH, NONE),
        "keep_ids": BOOLEAN,
        "n_jobs": (Integer(-1), NONE),
        "weights": (PATH, InstanceOf(Mapping, "a dict of weights by metric")),
        "noise": BOOLEAN,
    }
    renamed_parameters: ClassVar[Mapping[str, str]] = {**BaseClusterer.renamed_parameters, "judge": "weights"}
    former_attributes: ClassVar = {
        "proposals_": "candidates_",
        "prototypes_": lambda self: self._means,
        "history_": lambda _: {"loss": []},
        "runs_": lambda _: [],
    }

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = "auto",
        *,
        max_clusters: int | Literal["auto"] = "auto",
        allow_single: bool | Literal["auto"] = "auto",
        granularity: float = 0.0,
        effort: Effort = "balanced",
        missing: Missing = "ignore",
        metric: Literal["auto"] | Metric = "auto",
        column_weights: Mapping[str, float] | None = None,
        encoder: str | Path | Callable[[Any], Any] | None = None,
        text: str | Sequence[str] | None = None,
        cache: str | Path | None = None,
        keep_ids: bool = False,
        n_jobs: int | None = None,
        weights: str | Path | Mapping[str, str | Path] = "auto",
        noise: bool = False,
        random_state: Any = None,
        verbose: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters: int | Literal["auto"] | None = n_clusters  # None is the former "auto"
        self.max_clusters = max_clusters
        self.allow_single = allow_single
        self.granularity = granularity
        self.effort: Effort | Literal["thorough"] = effort  # "thorough" is deprecated
        self.missing: Missing = missing
        self.metric = metric
        self.column_weights = column_weights
        self.encoder = encoder
        self.text = text
        self.cache = cache
        self.keep_ids = keep_ids
        self.n_jobs = n_jobs
        self.weights = weights
        self.noise = noise
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    def prepare_table(self, table: Table, callback: Callback | None = None, *, reset: bool = False) -> Table:
        """Return the table with texts or images as numbers, if ``text`` or ``encoder`` asks for that.

        Parameters
        ----------
        table : Table
            With columns of texts, or images. Without these, as what this method returned, it is returned as it is.
        callback : callable, optional
            Called with a ``coterie.progress.Progress`` as texts or images are encoded.
        reset : bool
            Whether to find anew how texts become numbers, as ``fit`` does.
        """
        if self.encoder is None and (table.sparse is not None if reset else self._is_to_be_reduced(table)):
            return self._prepare_sparse(table, reset=reset)
        table = densify(table)
        if self.text is not None:
            return self._prepare_texts(table, callback, reset=reset)
        if self.encoder is None or (table.image is None and set(table.kinds) == {"number"}):
            return table
        if (fitted := vars(self).get("_text_column")) in table.names:
            table = table.select([table.names.index(fitted)])
        inputs: Any
        if table.image is not None and table.block is not None:
            inputs = table.block.reshape(len(table.block), *table.image).clip(0, 255).astype(np.uint8)
        elif table.kinds == ("category",):
            self._text_column: str | None = table.names[0]
            inputs = table.column(0).tolist()
        else:
            raise InputError(
                f"The encoder takes one column of texts, or images, but {table.source} has {table.n_columns} columns. "
                "Say by text= (--text) which columns hold texts, or choose one column."
            )
        return replace(as_table(self._encode(inputs, callback)), source=table.source, notes=table.notes)

    def _is_reduced(self, table: Table) -> bool:
        """Return whether a table has the components of a matrix that was sparse, as this estimator makes them."""
        return "_sparse_axes" in vars(self) and table.names == _component_names(self._sparse_axes.shape[1])

    def _is_to_be_reduced(self, table: Table) -> bool:
        """Return whether the rows of a table, sparse or not, must be reduced as those of ``fit`` were."""
        return "_sparse_axes" in vars(self) and not self._is_reduced(table)

    def _prepare_sparse(self, table: Table, *, reset: bool) -> Table:
        """Replace the columns of a matrix by the leading components of its rows at length one."""
        matrix = table.sparse
        if matrix is None:
            matrix = csr_array(np.column_stack(table.columns) if table.block is None else table.block)
        if reset:
            self._sparse_axes = fit_axes(unit_rows(matrix), COMPONENTS_ALONE)
            # What a row without entries gets.
            self._sparse_mean = np.asarray(unit_rows(matrix) @ self._sparse_axes).mean(axis=0)
        axes = self._sparse_axes
        if len(axes) != table.n_columns:
            raise InputError(
                f"X has {table.n_columns} features, but Coterie is expecting {len(axes)} features as input."
            )
        components = np.asarray(unit_rows(matrix) @ axes)
        components[~components.any(axis=1)] = self._sparse_mean
        note = f"the {table.n_columns:,} sparse columns were reduced to {axes.shape[1]} components (truncated SVD)"
        return replace(
            table,
            names=_component_names(axes.shape[1]),
            columns=(),
            block=unit_rows(components),
            sparse=None,
            notes=(*table.notes, note),
        )

    def _prepare_texts(self, table: Table, callback: Callback | None, *, reset: bool) -> Table:
        """Replace the columns of texts by numbers; the texts become extra columns."""
        columns = [self.text] if isinstance(self.text, str) else list(self.text or ())
        made = {name for fitted in vars(self).get("_texts", ()) for name in fitted.names}
        if made and made <= set(table.names):  # done already
            return table
        for name in columns:
            if name not in table.names:
                raise unknown_column(table, name)
        others = table.select([i for i, name in enumerate(table.names) if name not in columns])
        embed = None if self.encoder is None else (lambda texts: self._encode(texts, callback))
        texts = {name: _to_texts(table, name) for name in columns}
        if reset:
            count = COMPONENTS_BESIDE if others.n_columns or len(columns) > 1 else COMPONENTS_ALONE
            self._texts = tuple(TextFeatures.fit(name, texts[name], count, embed) for name in columns)
        names, values = list(others.names), [others.column(i) for i in range(others.n_columns)]
        alone = not names and len(columns) == 1
        self._text_weights: dict[str, float] = {}
        given = self.column_weights or {}
        for fitted in self._texts:
            components = fitted.transform(texts[fitted.column], embed)
            if alone:  # directions of equal length are recognised as embeddings
                components /= np.maximum(np.linalg.norm(components, axis=1, keepdims=True), 1e-12)
            elif reset:
                self._text_weights |= fitted.weights(components, given.get(fitted.column, 1.0))
            names += fitted.names
            values += list(components.T)
        extra = {**table.extra_columns, **{name: table.column(table.names.index(name)) for name in columns}}
        return replace(table, names=tuple(names), columns=tuple(values), block=None, named=True, extra_columns=extra)

    def _given_weights(self) -> dict[str, float]:
        """Return the weights of columns, those of texts as weights of their components."""
        given = dict(self.column_weights or {})
        if self.text is not None:
            for fitted in self._texts:
                given.pop(fitted.column, None)
            given |= self._text_weights
        return given

    def _encode(self, inputs: Any, callback: Callback | None) -> Singles:
        loaded = vars(self).get("_loaded_encoder")  # loading weights takes seconds
        if loaded is None or loaded[0] != self.encoder:
            loaded = self._loaded_encoder = (self.encoder, load_encoder(self.encoder))
        return encode_cached(loaded[1], inputs, self.cache, callback)

    def _read(self, X: Any, *, reset: bool) -> Table:
        if reset and not (isinstance(X, Table) and self._is_reduced(X)):
            self.__dict__.pop("_sparse_axes", None)
        is_sparse = (hasattr(X, "tocsr") or isinstance(X, Table)) and as_table(X).sparse is not None
        if self.text is not None or is_sparse or "_sparse_axes" in vars(self):
            read = super()._read(self.prepare_table(as_table(X), self._progress(), reset=reset), reset=reset)
            if reset and "_sparse_axes" in vars(self):  # users see the columns of the matrix, not its components
                self.n_features_in_ = len(self._sparse_axes)
                self.__dict__.pop("feature_names_in_", None)
            return read
        if self.encoder is None:
            return super()._read(X, reset=reset)
        if isinstance(X, Table):
            return super()._read(self.prepare_table(X, self._progress()), reset=reset)
        texts = np.asarray(X, dtype=object).tolist() if np.ndim(X) == 1 else X
        return super()._read(self._encode(texts, self._progress()), reset=reset)

    def _fit(self, X: Any) -> None:
        table = self._read(X, reset=True)
        before = self._former_labels(table) if self.keep_ids else None
        self.__dict__.pop("_means", None)  # a fit that fails leaves nothing to predict with
        seed, self._effort = seed_from(self.random_state), self._given_effort()
        stages = StageProgress(self._progress())
        stages.begin("encoding", steps=table.n_rows * table.n_columns / _CELLS_PER_STEP)
        donors = subsample_indices(table.n_rows, SAMPLE_ROWS[self._effort], seed)
        self._preparation = Preparation.fit(table, donors, missing=self.missing, column_weights=self._given_weights())
        self.table_ = self._preparation.encoder
        encoded = self._preparation.encode(table)
        n_clusters = self._given_n_clusters()
        if n_clusters is not None:
            check_n_clusters(n_clusters, len(encoded))
        fits: list[_MetricFit] = []
        for metric in self._metrics(encoded, n_clusters):
            if not fits or fits[0].expected_agreement < SURE:
                fits.append(self._fit_metric(metric, encoded, n_clusters, seed, stages))
        best = fits[0] if fits[-1].is_single else max(fits, key=lambda each: each.expected_agreement)
        self.metric_ = best.metric
        # Rows of embeddings are not even tried by columns.
        self._columns_meaningful = best.metric == "euclidean" or len(fits) > 1
        self._reference, self._background = best.samples.reference, best.samples.noise
        self._agreement: tuple[float, ...] = tuple(best.result.agreement.tolist())
        self.notes_ = (
            *self._describe_pixels(table),
            *self._describe_metric(fits, best),
            *best.result.describe_sampling(len(encoded)),
            *self._describe_background(best.result),
            *self._choose(best, encoded, n_clusters),
        )
        self._label(encoded, before, stages)
        self.levels_ = self._describe_levels()

    def _metrics(self, encoded: Singles, n_clusters: int | None) -> tuple[Metric, ...]:
        """Return how rows may be compared; if there are two ways, column by column comes first."""
        weighted = bool((self._preparation.columns.weight != 1.0).any())
        if self.metric != "auto":
            metrics: tuple[Metric, ...] = (self.metric,)
        elif self.weights != "auto" and not isinstance(self.weights, Mapping):
            metrics = (Judge.load(self.weights).metric,)
        elif weighted or n_clusters == 1:  # columns that count differently are compared one by one
            metrics = ("euclidean",)
        else:
            embedded = self.encoder is not None and self.text is None
            metrics = ("cosine",) if embedded else metrics_to_try(self._preparation, encoded)
        if metrics == ("cosine",):
            self._check_cosine(weighted=weighted)
        return metrics

    def _load_judge(self, metric: Metric) -> Judge:
        given = self.weights if isinstance(self.weights, Mapping) else {metric: self.weights}
        path = given.get(metric, "auto")
        judge = Judge.load(WEIGHTS[metric] if path == "auto" else path)
        if judge.metric != metric:
            raise InputError(
                f"weights={str(path)!r} are of a judge for metric={judge.metric!r}, but metric={metric!r} was "
                "asked for. Use other weights, or leave out the metric."
            )
        return judge

    def _fit_metric(
        self, metric: Metric, encoded: Singles, n_clusters: int | None, seed: int, stages: StageProgress
    ) -> _MetricFit:
        """Subsample the rows, and choose among candidates that are generated with this metric."""
        effort = self._effort
        vote = SubsampleVote(
            self._load_judge(metric), effort, n_clusters, self.max_clusters, self.granularity, seed, self.n_jobs
        )
        take = Samples.take_directions if metric == "cosine" else Samples.take
        samples = take(self._preparation, encoded, effort, seed)
        spaces = samples.spaces[:1] if n_clusters == 1 else samples.spaces  # nothing to vote on
        runs = count_runs(spaces[0], effort)
        steps = {"candidates": 1.0, "features": runs * _FEATURE_STEPS, "judging": 0.0}
        stages.expect(len(spaces) * runs * (1.0 + _FEATURE_STEPS) + len(encoded) / _ROWS_PER_STEP)
        result = vote.run(spaces, lambda phase, stage: stages.begin(phase, stage, steps[phase]))
        single = result.scored is None or self._is_single(result.scored, n_clusters)
        return _MetricFit(metric, samples, result, single)

    def _check_cosine(self, *, weighted: bool) -> None:
        """Require columns whose directions mean something."""
        if weighted:
            raise InputError(
                "metric='cosine' compares rows as a whole, without column_weights. Leave out column_weights, or use "
                "metric='euclidean'."
            )
        others = sorted({each.column for each in self.table_.features if each.kind != "number"})
        if others or self.table_.indicators.positions:
            raise InputError(
                f"metric='cosine' needs columns of numbers, but {', '.join(map(repr, others[:5])) or 'an indicator'} "
                "is not one. Leave such columns out, or use metric='euclidean'."
            )

    def _describe_metric(self, fits: Sequence[_MetricFit], best: _MetricFit) -> list[str]:
        """Say how rows are compared, if that was not asked for and is not the usual way."""
        if len(fits) > 1:
            which = f"The result with metric={best.metric!r} was taken"
            expected = [f"{each.expected_agreement:.2f}" for each in fits]
            why = f"the expected adjusted Rand index is {expected[0]} by columns and {expected[1]} by direction"
            if fits[1].is_single:
                why = "by direction, no separation was found"
            return [f"Rows were compared column by column, and by direction as embeddings are. {which}: {why}."]
        if self.metric_ == "euclidean" or (self.metric, self.weights, self.encoder) != ("auto", "auto", None):
            return []
        what = f"The {len(self.table_.features):,} columns look like embeddings: rows are compared by their cosine."
        return [f"{what} With metric='euclidean' they are compared column by column."]

    def _describe_pixels(self, table: Table) -> list[str]:
        """Say what is better for photos than their pixels."""
        if table.image is None or table.image[2] == 1:  # pixels of grey images, such as digits, tell more
            return []
        name = "timm:mobilenetv3_small_100"
        why = "Images were compared by their pixels, which say little about what is on photos."
        how = f"encoder={name!r}, or --encoder {name} in the command"
        return [f"{why} For clusters of what they show, run pip install 'coterie[vision]' and name an encoder: {how}."]

    def _rows(self, encoded: Singles) -> npt.NDArray[Any]:
        """Return encoded rows as views take them."""
        return encoded if self.metric_ == "cosine" else self._preparation.scale(encoded)

    def _describe_background(self, result: VoteResult) -> list[str]:
        """Say how many rows are background noise, if there is any."""
        if self._background is None:
            return []
        what = "They have the label -1." if self.noise else "They joined the clusters found among the others."
        return [f"{result.space.noise:.1%} of the rows are background noise, and were left out at first. {what}"]

    def _given_n_clusters(self) -> int | None:
        """Return the number of clusters, or None if it is to be found."""
        if self.n_clusters is None:
            warnings.warn('n_clusters=None is deprecated; use n_clusters="auto".', FutureWarning, stacklevel=2)
        return None if self.n_clusters in {None, "auto"} else int(self.n_clusters)

    def _given_effort(self) -> Effort:
        """Return the effort; what was "thorough" is now "balanced"."""
        if self.effort == "thorough":
            message = 'effort="thorough" is deprecated; it is now the same as "balanced", which is used instead.'
            warnings.warn(message, FutureWarning, stacklevel=4)  # at the call of fit
            return "balanced"
        return self.effort

    def _is_single(self, scored: ScoredCandidates, n_clusters: int | None) -> bool:
        """Return whether the answer is that all rows form one cluster."""
        return n_clusters is None and scored.single_probability > self._single_threshold(scored)

    def _single_threshold(self, scored: ScoredCandidates) -> float:
        """Return the probability above which the result is one cluster."""
        if self.allow_single == "auto":
            return scored.single_threshold if len(scored.space.x) >= MIN_ROWS_OF_SINGLE else 1.0
        return 0.5 if self.allow_single else 1.0

    def _choose(self, found: _MetricFit, encoded: Singles, n_clusters: int | None) -> list[str]:
        """Choose a candidate, describe all of them, fit the assigner; return notes."""
        result, pool = found.result, found.samples.pool
        scored = result.scored
        self._scored = None if scored is None else scored.without_geometry()
        self.candidates_, self.levels_, self.chosen_, self.runner_up_ = [], [], None, None
        single = scored is None or n_clusters == 1
        self.confidence_ = (math.nan if n_clusters == 1 else 1.0) if single else result.confidence
        if scored is not None:
            chosen = scored.choose(self.granularity)
            self.candidates_ = [scored.describe(index) for index in scored.ranking()]
            other = scored.runner_up(chosen, ALIKE)
            self.runner_up_ = None if other is None else scored.describe(other)
            if self._is_single(scored, n_clusters):
                self.runner_up_ = self.candidates_[0]
                self.confidence_, single = scored.single_probability, True
        if scored is None or single:
            labels = np.zeros(len(result.space.x), dtype=np.int64)
            winner = Candidate(labels, 1, "k-means", result.space.views[0].name, "centres")
            notes = [
                "All rows form one cluster, as asked for."
                if n_clusters == 1
                else "All rows form one cluster: no separation was found."
            ]
        else:
            winner, self.chosen_ = scored.candidates[chosen], scored.describe(chosen)
            count = len(scored.candidates)
            notes = [f"Chosen from {count:,} {'candidate' if count == 1 else 'candidates'}: {winner}."]
            notes += self._describe_repeated(scored, chosen)
            if self.confidence_ < LOW_CONFIDENCE:
                notes.append(
                    f"Low confidence: the expected adjusted Rand index is {self.confidence_:.2f}. There may be no "
                    "clusters, or none that these columns show."
                )
        assigner = Assigner.fit(result.space, winner)
        more_rows = len(pool) > len(result.space.x)
        self._assigner = assigner.move_centres(self._rows(encoded[pool])) if more_rows else assigner
        self._levels = Levels((winner.n_clusters,), (), 0) if scored is None else Levels.find(scored, winner)
        dissolve = n_clusters is None  # a number that was asked for is kept
        isolated = self.noise and self._background is None  # without a background, noise is rows far from all others
        self._outliers = Outliers.fit(self._assigner, result.space.x, dissolve=dissolve) if isolated else None
        return notes

    def _describe_repeated(self, scored: ScoredCandidates, chosen: int) -> list[str]:
        """Say so if the clusters repeat a discrete column; the best candidate that does not becomes the runner-up."""
        repeated = find_repeated_column(scored.space, scored.candidates[chosen].labels)
        if repeated is None:
            return []
        column, levels = repeated
        name = scored.space.columns.names[column]
        note = (
            f"The clusters repeat the column {name!r}. For clusters without it, give it the weight 0: "
            f"column_weights={{{name!r}: 0}} (--weight {shlex.quote(f'{name}=0')})."
        )
        others = (
            index for index in scored.ranking() if _mutual_information(levels, scored.candidates[index].labels) < UNLIKE
        )
        if (other := next(others, None)) is not None:
            self.runner_up_ = scored.describe(other)
            note += f" The best candidate that does not repeat it has {self.runner_up_['n_clusters']} clusters."
        return [note]

    def _describe_levels(self) -> list[dict[str, Any]]:
        """Describe the best candidate of each number of clusters, and where its clusters are in the level before."""
        if self._scored is None:
            return []
        if len(self._order) < self._assigner.n_clusters:  # a cluster of outliers has been dissolved
            self._levels = self._levels.without_finer()
        return [
            self._scored.describe(self._levels.indices.get(number, best))
            | {"parents": self._levels.parents_of(number, self._order)}
            for number, best in self._scored.best_by_number().items()
        ]

    def _label(self, encoded: Singles, before: Labels | None, stages: StageProgress) -> None:
        """Assign all rows and number the clusters: the largest first, or as before."""
        n_clusters = self._assigner.n_clusters
        self._order = np.arange(n_clusters)
        stage, steps = f"assignment of {len(encoded):,} rows", 0.5 / _ROWS_PER_STEP
        labels = np.empty(len(encoded), dtype=np.int64)
        for block in blocks(len(encoded)):
            stages.begin("assignment", stage, steps * (block.stop - block.start))
            labels[block] = self._assign(encoded[block])[1]
        sizes = np.bincount(labels[labels >= 0], minlength=n_clusters)
        self.n_clusters_ = int((sizes > 0).sum())  # clusters of outliers alone are dissolved
        self._order = np.argsort(-sizes, kind="stable")[: self.n_clusters_]
        if before is not None:
            self._order = match_order(before, labels, self._order)
        parts = []
        for block in blocks(len(encoded)):
            stages.begin("assignment", stage, steps * (block.stop - block.start))
            parts.append(self._assign(encoded[block]))
        self.probabilities_ = np.concatenate([memberships for memberships, _ in parts])
        self.labels_ = np.concatenate([labels for _, labels in parts])
        self._means = encoded_means(encoded, self.labels_, self.n_clusters_)
        self.cluster_centers_ = self.table_.inverse_transform(self._means)

    def _predict(self, X: Any) -> Labels:
        return self._assign_labels(self._encode_rows(X))

    def _predict_proba(self, X: Any) -> Singles:
        encoded = self._encode_rows(X)
        return np.concatenate([self._assign(encoded[block])[0] for block in blocks(len(encoded))])

    @one_thread()
    def predict_top(self, X: Any, m: int = 3) -> tuple[Labels, Singles]:
        """Return the most probable clusters of each row, without storing a probability for every cluster.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.
        m : int
            Number of clusters per row; at most ``n_clusters_`` are returned.

        Returns
        -------
        clusters : array (n, m) of int64
            The most probable first.
        probabilities : array (n, m) of float32
            Their membership probabilities.
        """
        check_parameter("m", m, Integer(1))
        encoded = self._encode_rows(X)
        m = min(int(m), self.n_clusters_)
        clusters = np.empty((len(encoded), m), dtype=np.int64)
        probabilities = np.empty((len(encoded), m), dtype=np.float32)
        for block in blocks(len(encoded)):
            memberships = self._assign(encoded[block])[0]
            clusters[block] = np.argsort(-memberships, axis=1, kind="stable")[:, :m]
            probabilities[block] = np.take_along_axis(memberships, clusters[block], axis=1)
        return clusters, probabilities

    @one_thread()
    def alternative(self, n_clusters: int, X: Any) -> Labels:
        """Assign the rows of X to another number of clusters.

        If that level nests with the result, its clusters are parts or unions of those that ``predict`` returns.
        Levels that nest are saved with the model; others need the fitted model.

        Parameters
        ----------
        n_clusters : int
            Number of clusters, one of those in ``levels_``.
        X : array-like (n, d)
            Rows with the columns of ``fit``.

        Returns
        -------
        array (n,) of int64
            Clusters as in the candidate, whose largest one is 0; -1 for outliers if ``noise``.
        """
        check_is_fitted(self)
        if n_clusters == self._assigner.n_clusters:
            return self.predict(X)
        encoded = self._encode_rows(X)
        if n_clusters in self._levels.numbers:
            if self._scored is not None:
                self._levels.fit_assigners(self._scored, n_clusters, self._assigner)
            return np.concatenate([self._assign_level(encoded[block], n_clusters) for block in blocks(len(encoded))])
        if self._scored is None:
            raise InputError(
                f"There are no labels with n_clusters={n_clusters!r}: this model has the levels "
                f"{', '.join(map(str, self._levels.numbers))}. Choose one of these, or fit it again."
            )
        scored = self._scored
        assigner = Assigner.fit(scored.space, scored.best_with(n_clusters))
        outliers = None if self._outliers is None else Outliers.fit(assigner, scored.space.x)
        parts = (self._rows(encoded[block]) for block in blocks(len(encoded)))
        order = np.arange(n_clusters)
        return np.concatenate([self._mark_noise(x, assign(x, assigner, outliers, order)[1]) for x in parts])

    def _assign_level(self, encoded: Singles, n_clusters: int) -> Labels:
        labels = self._assign(encoded)[1]
        chosen = np.where(labels >= 0, self._order[labels], -1)
        return self._levels.assign(self._rows(encoded), chosen, n_clusters)

    def shortlist(self, at_most: int = 10) -> list[dict[str, Any]]:
        """Return the best candidates, as in ``candidates_``, without near duplicates of better ones.

        Parameters
        ----------
        at_most : int
            Number of candidates; the chosen one is always included.
        """
        scored = self._require_candidates()
        chosen = scored.best_by_number().get(self._assigner.n_clusters)
        return [scored.describe(index) for index in scored.shortlist(chosen, ALIKE, at_most)]

    def describe_fit(self, table: Table) -> FitDescription:
        """Describe the fit for the summary and the report: filled-in rows and scored candidates."""
        sections = tuple(self._describe_texts(name, texts) for name, texts in self._texts_of(table).items())
        columns_meaningful = self._columns_meaningful
        if not self.candidates_ or math.isnan(self.confidence_):
            return FitDescription(encode=self._preparation.encode, columns_meaningful=columns_meaningful)
        levels, shortlist = self.levels_, self.shortlist
        if self._scored is None:  # a model that was loaded has the levels that nest, and no other candidates

            def shortlist(at_most: int = 10) -> list[dict[str, Any]]:
                return sorted(levels, key=lambda level: -float(level["score"]))[:at_most]

            levels = [level for level in levels if level["n_clusters"] in self._levels.numbers]
        return FitDescription(
            encode=self._preparation.encode,
            columns_meaningful=columns_meaningful,
            sections=sections,
            text_components={
                name: fitted.column for fitted in vars(self).get("_texts", ()) if fitted.words for name in fitted.names
            },
            selection=Selection(
                confidence=self.confidence_,
                candidates=self.candidates_,
                levels=levels,
                chosen=self.chosen_,
                runner_up=self.runner_up_,
                shortlist=shortlist,
                alternative=self.alternative,
                low_confidence=LOW_CONFIDENCE,
                agreement=vars(self).get("_agreement", ()),  # a model from a file does not know
            ),
        )

    def _texts_of(self, table: Table) -> dict[str, list[str]]:
        """Return the texts of the columns that ``text`` names, if the table still has them."""
        columns = [fitted.column for fitted in vars(self).get("_texts", ())]
        return {
            name: [text or "" for text in table.extra_columns[name].tolist()]
            for name in columns
            if name in table.extra_columns
        }

    def _describe_texts(self, column: str, texts: list[str]) -> ReportSection:
        """List the words that distinguish the texts of each cluster."""
        from coterie.topics import distinctive_words  # noqa: PLC0415  (slow to import, and for texts only)

        words = distinctive_words(texts, self.labels_, 8, stop_words=None)
        rows = tuple((cluster, ", ".join(words.get(cluster, ()))) for cluster in range(self.n_clusters_))
        about = "Words that are more frequent in a cluster than elsewhere, the most distinctive first."
        return ReportSection(f"Words of {column}", (about,), ("cluster", "words"), rows)

    def _require_candidates(self) -> ScoredCandidates:
        check_is_fitted(self)
        if self._scored is None:
            raise InputError(
                "This model has no candidates: it was read from a file, which does not hold them, or all rows are "
                "equal. Fit it on a table with several distinct rows."
            )
        return self._scored

    def _assign(self, encoded: Singles) -> tuple[Singles, Labels]:
        x = self._rows(encoded)
        accuracy = 1.0 if self.chosen_ is None else expected_accuracy(self.confidence_)
        memberships, labels = assign(x, self._assigner, self._outliers, self._order, accuracy)
        return memberships, self._mark_noise(x, labels)

    def _mark_noise(self, x: npt.NDArray[Any], labels: Labels) -> Labels:
        """Label rows of the background -1 if that is asked for."""
        if self.noise and self._background is not None:
            labels[self._background.find(self._reference.transform(x))] = -1
        return labels

    def _assign_labels(self, encoded: Singles) -> Labels:
        return np.concatenate([self._assign(encoded[block])[1] for block in blocks(len(encoded))])

    def _encode_rows(self, X: Any) -> Singles:
        check_is_fitted(self)
        return self._preparation.encode(self._read(X, reset=False))

    def _former_labels(self, table: Table) -> Labels | None:
        """Assign new rows to the clusters of the last fit; None if there was none with such columns."""
        if not self.__sklearn_is_fitted__():
            return None
        try:
            return self._assign_labels(self._preparation.encode(table))
        except InputError:
            return None

    def __sklearn_is_fitted__(self) -> bool:
        return "_means" in vars(self)

    def _to_checkpoint(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        check_is_fitted(self)
        arrays, names = self._assigner.to_arrays()
        arrays |= {"order": self._order, "means": self._means, **self._preparation.to_arrays()}
        if self._outliers is not None:
            arrays |= self._outliers.to_arrays()
        if self._background is not None:
            arrays |= self._background.to_arrays()
            arrays |= {f"reference.{name}": value for name, value in self._reference.to_arrays().items()}
        if self._scored is not None:
            self._levels.fit_assigners(self._scored, self._levels.numbers[-1], self._assigner)
        level_arrays, levels = self._levels.to_arrays(self._assigner)
        arrays |= level_arrays
        described = ("confidence", "candidates", "levels", "chosen", "runner_up", "n_clusters")
        if (axes := vars(self).get("_sparse_axes")) is not None:
            arrays |= {"sparse.axes": axes, "sparse.mean": self._sparse_mean}
        text_column = vars(self).get("_text_column")
        texts = vars(self).get("_texts", ()) if self.text is not None else ()
        for number, fitted in enumerate(texts):
            arrays |= fitted.to_arrays(number)
        card = {
            "texts": [{"column": fitted.column, "names": list(fitted.names)} for fitted in texts],
            "text_column": text_column,
            "columns_meaningful": self._columns_meaningful,
            "nested": levels,
            **names,
            **{name: getattr(self, f"{name}_") for name in described},
            "confidence": None if math.isnan(self.confidence_) else self.confidence_,
            "notes": list(self.notes_),
        }
        return arrays, card

    def _from_checkpoint(self, arrays: dict[str, npt.NDArray[Any]], card: dict[str, Any]) -> None:
        if self.n_clusters is None:  # how version 0.1 wrote "auto"
            self.n_clusters = "auto"
        if self.effort == "thorough":  # version 0.1
            self.effort = "balanced"
        self._preparation = Preparation.from_arrays(self.table_, arrays)
        self._assigner = Assigner.from_arrays(arrays, card)
        self.metric_ = "cosine" if self._assigner.view.name == CosineView.name else "euclidean"
        self._columns_meaningful = bool(card.get("columns_meaningful", self.metric_ == "euclidean"))
        # Models saved before levels nested have the chosen one only.
        unnested = {"numbers": [self._assigner.n_clusters], "position": 0, "rules": {}}
        self._levels = Levels.from_arrays(self._assigner, arrays, card.get("nested", unnested))
        self._outliers = Outliers.from_arrays(arrays)
        self._background = NoiseModel.from_arrays(arrays)
        if self._background is not None:
            prefix = "reference."
            own = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
            self._reference = View.from_arrays("reference", own)
        self._text_column = card.get("text_column")
        if "sparse.axes" in arrays:
            self._sparse_axes, self._sparse_mean = arrays["sparse.axes"], arrays["sparse.mean"]
        self._texts = tuple(
            TextFeatures.from_arrays(each["column"], each["names"], number, arrays)
            for number, each in enumerate(card.get("texts", []))
        )
        self._scored = None
        self._order, self._means = arrays["order"], arrays["means"]
        self.cluster_centers_ = self.table_.inverse_transform(self._means)
        self.n_clusters_, self.notes_ = int(card["n_clusters"]), tuple(card["notes"])
        self.confidence_ = math.nan if card["confidence"] is None else float(card["confidence"])
        self.candidates_ = card["candidates"] if "candidates" in card else card["proposals"]  # version 0.1
        self.levels_, self.chosen_, self.runner_up_ = card["levels"], card["chosen"], card["runner_up"]
