"""The judge: a network that predicts how close each of many candidate partitions is to the true one.

It reads the feature table of the candidates, lets the candidates attend to one another, and predicts the adjusted Rand
index of each with the true partition. It was trained once, on synthetic sets whose truth is known; it never sees rows.
``coterie.judged.network`` has the same network for training.

Letters: R candidates, C columns, H hidden.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, final

import numpy as np
from jaxtyping import Float
from scipy.special import erf, expit

from coterie.config import from_dict
from coterie.errors import ConfigError, InputError, WeightsError
from coterie.judged.candidates.registry import Candidate
from coterie.judged.cosine import Metric
from coterie.judged.features.table import FEATURE_SETS, CandidateFeatures, column_names
from coterie.judged.space import Floats, Integers, Singles, Space
from coterie.pretrained.registry import load_pretrained, pretrained_names
from coterie.validation import Constraints, Integer, Number, check_parameters

MAX_DEVIATION = 4.0  # spreads from the centre at which columns are clipped
LAYER_NORM_EPSILON = 1e-5  # added to variances, as in torch
GRANULARITY_BONUS = 0.5  # logits that a granularity of one adds to a candidate with twice as many clusters

_CONSTRAINTS: Mapping[str, Constraints] = {
    **dict.fromkeys(("n_columns", "width", "heads", "depth", "members"), Integer(1)),
    "column_dropout": Number(0.0, 0.999),
}


@final
@dataclass(frozen=True, slots=True)
class JudgeConfig:
    """Size of the judge, and weights of its losses."""

    RENAMED: ClassVar[Mapping[str, str]] = {"hidden_columns": "column_dropout", "sharpness": "choice_scale"}

    n_columns: int  # columns of the feature table
    width: int = 96  # hidden width
    heads: int = 4  # attention heads
    depth: int = 2  # attention blocks
    members: int = 1  # networks in the ensemble, whose logits are averaged
    column_dropout: float = 0.1  # probability that a column is dropped in training, for all candidates of a set
    regret_weight: float = 1.0  # weight of the regret of the choice, relative to the error of the predicted scores
    number_weight: float = 0.1  # adjusted Rand index subtracted for each doubling or halving of the true number
    single_weight: float = 0.1  # weight of the loss of predicting whether there is one cluster only
    choice_scale: float = 4.0  # factor of the logits in the softmax that the regret is computed with

    def __post_init__(self) -> None:
        check_parameters(self, _CONSTRAINTS, ConfigError)
        if self.width % self.heads:
            raise ConfigError(f"width={self.width} must be a multiple of heads={self.heads}.")


@final
@dataclass(frozen=True, slots=True, eq=False)
class JudgeNetwork:
    """The trained network: features of the candidates of one set in, logits out."""

    config: JudgeConfig
    weights: Mapping[str, Singles]  # named as in ``coterie.judged.network.JudgeModel``

    def __post_init__(self) -> None:
        shapes = _weight_shapes(self.config)
        given = {name: value.shape for name, value in self.weights.items()}
        unlike = sorted(name for name in shapes.keys() | given.keys() if shapes.get(name) != given.get(name))
        if unlike:
            raise ConfigError(
                f"The weights do not fit the configuration: {unlike[0]!r} has the shape {given.get(unlike[0])}, "
                f"not {shapes.get(unlike[0])}."
            )

    @property
    def centre(self) -> Float[Singles, " C"]:
        """The value of each column that has no effect."""
        return self.weights["centre"]

    def __call__(self, columns: Float[Singles, "R C"]) -> tuple[Float[Singles, " R"], float]:
        """Return the logits of the predicted scores of the candidates, and of whether the truth is one cluster."""
        columns = ((columns - self.centre) / self.weights["spread"]).clip(-MAX_DEVIATION, MAX_DEVIATION)
        scores, singles = zip(*(self._member(f"members.{i}", columns) for i in range(self.config.members)), strict=True)
        return np.mean(scores, axis=0), float(np.mean(singles))

    def _member(self, name: str, columns: Float[Singles, "R C"]) -> tuple[Float[Singles, " R"], float]:
        """Return the logits of one network of the ensemble."""
        hidden = self._mlp(f"{name}.embed", columns)
        for index in range(self.config.depth):
            hidden = hidden + self._attention_block(f"{name}.blocks.{index}.block", hidden)
        overall = hidden.mean(axis=0, keepdims=True)
        return self._mlp(f"{name}.score", hidden)[:, 0], float(self._mlp(f"{name}.single", overall)[0, 0])

    def _attention_block(self, name: str, hidden: Float[Singles, "R H"]) -> Float[Singles, "R H"]:
        """Let all candidates attend to all candidates, as ``coterie.nn.attention.SAB`` does."""
        query = self._linear(f"{name}.query", hidden)
        attended = query + self._attend(
            query, self._linear(f"{name}.key", hidden), self._linear(f"{name}.value", hidden)
        )
        attended = self._layer_norm(f"{name}.after_attention", attended)
        change = self._linear(f"{name}.forward_map", attended).clip(min=0.0)
        return self._layer_norm(f"{name}.after_forward", attended + change)

    def _attend(
        self, query: Float[Singles, "R H"], key: Float[Singles, "R H"], value: Float[Singles, "R H"]
    ) -> Float[Singles, "R H"]:
        heads, width = self.config.heads, self.config.width // self.config.heads
        query, key, value = (part.reshape(-1, heads, width).swapaxes(0, 1) for part in (query, key, value))
        logits = (query / np.float32(math.sqrt(width))) @ key.swapaxes(1, 2)
        logits -= logits.max(axis=2, keepdims=True)
        weight = np.exp(logits, out=logits)
        attended: Singles = (weight @ value) / weight.sum(axis=2, keepdims=True)
        return attended.swapaxes(0, 1).reshape(-1, heads * width)

    def _mlp(self, name: str, x: Float[Singles, "R X"]) -> Float[Singles, "R Y"]:
        hidden = self._linear(f"{name}.0", x)
        hidden *= 0.5 * (1.0 + erf(hidden * np.float32(math.sqrt(0.5))))  # GELU
        return self._linear(f"{name}.2", hidden)

    def _layer_norm(self, name: str, x: Float[Singles, "R H"]) -> Float[Singles, "R H"]:
        centred = x - x.mean(axis=1, keepdims=True)
        deviation = np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + LAYER_NORM_EPSILON)
        normalised: Singles = centred / deviation * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]
        return normalised

    def _linear(self, name: str, x: Float[Singles, "R X"]) -> Float[Singles, "R Y"]:
        mapped: Singles = x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return mapped


def _weight_shapes(config: JudgeConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all weights of a network, by name."""
    width = config.width
    layers = {"embed.0": (config.n_columns, 2 * width), "embed.2": (2 * width, width)}
    layers |= {f"{head}.0": (width, width) for head in ("score", "single")}
    layers |= {f"{head}.2": (width, 1) for head in ("score", "single")}
    blocks = [f"blocks.{index}.block" for index in range(config.depth)]
    layers |= {
        f"{block}.{layer}": (width, width) for block in blocks for layer in ("query", "key", "value", "forward_map")
    }
    shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": (after, before) for name, (before, after) in layers.items()}
    shapes |= {f"{name}.bias": (after,) for name, (_, after) in layers.items()}
    norms = [f"{block}.{norm}" for block in blocks for norm in ("after_attention", "after_forward")]
    shapes |= {f"{norm}.{part}": (width,) for norm in norms for part in ("weight", "bias")}
    members = {f"members.{i}.{name}": shape for i in range(config.members) for name, shape in shapes.items()}
    return {"centre": (config.n_columns,), "spread": (config.n_columns,), **members}


def choose(logits: Floats, n_clusters: Integers, granularity: float = 0.0) -> int:
    """Return the index of the best candidate; a positive granularity favours many clusters."""
    return int((logits + granularity * GRANULARITY_BONUS * np.log2(n_clusters)).argmax())


@final
@dataclass(frozen=True, slots=True, eq=False)
class ScoredCandidates:
    """Candidates for the same rows, and the judge's prediction of how good each is."""

    features: CandidateFeatures
    logits: Floats  # logits of the expected adjusted Rand index of each candidate with the true partition
    single_probability: float  # probability that all rows are one cluster
    single_threshold: float = 1.0  # probability above which that is the answer unless something else is asked for

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates, in the order in which they were generated."""
        return self.features.candidates

    @property
    def space(self) -> Space:
        """The rows."""
        return self.features.space

    @property
    def scores(self) -> Floats:
        """Expected adjusted Rand index of each candidate with the true partition."""
        scores: Floats = expit(self.logits)
        return scores

    def choose(self, granularity: float = 0.0, n_clusters: int | None = None) -> int:
        """Return the index of the best candidate, of all or of those with `n_clusters`; see ``choose`` above."""
        numbers = np.array([each.n_clusters for each in self.candidates])
        among = np.flatnonzero(numbers == n_clusters) if n_clusters is not None else np.arange(len(numbers))
        return int(among[choose(self.logits[among], numbers[among], granularity)])

    def having(self, n_clusters: int) -> "ScoredCandidates":
        """Return only the candidates with that number of clusters, with the scores that they have among all."""
        kept = np.flatnonzero([each.n_clusters == n_clusters for each in self.candidates])
        return replace(self, features=self.features.take(kept), logits=self.logits[kept])

    def ranking(self) -> list[int]:
        """Return the indices of the candidates, the best first."""
        order: list[int] = np.argsort(-self.logits, kind="stable").tolist()
        return order

    def best_by_number(self) -> dict[int, int]:
        """Return the index of the best candidate for each number of clusters, in ascending order of that number."""
        best: dict[int, int] = {}
        for index in self.ranking():
            best.setdefault(self.candidates[index].n_clusters, index)
        return dict(sorted(best.items()))

    def best_with(self, n_clusters: int) -> Candidate:
        """Return the best candidate with that number of clusters."""
        best = self.best_by_number()
        if n_clusters not in best:
            raise InputError(
                f"There is no candidate with n_clusters={n_clusters!r}. Choose one of: {', '.join(map(str, best))}."
            )
        return self.candidates[best[n_clusters]]

    def runner_up(self, chosen: int, alike: float) -> int | None:
        """Return the best candidate whose adjusted Rand index with the chosen one is below `alike`."""
        return next((index for index in self.ranking() if self.features.agreement[chosen, index] < alike), None)

    def shortlist(self, always: int | None, alike: float, at_most: int) -> list[int]:
        """Return the best candidates, best first, no two of which agree by `alike` or more; `always` is included."""
        kept = [] if always is None else [always]
        for index in self.ranking():
            if len(kept) < at_most and (self.features.agreement[index, kept] < alike).all():
                kept.append(index)
        return sorted(kept, key=lambda index: -self.logits[index])

    def describe(self, index: int) -> dict[str, Any]:
        """Describe a candidate as plain values."""
        candidate = self.candidates[index]
        return {
            "algorithm": candidate.algorithm,
            "columns": candidate.view,
            "n_clusters": candidate.n_clusters,
            "score": float(self.scores[index]),
        }

    def without_geometry(self) -> "ScoredCandidates":
        """Return the same without distances, which take much memory."""
        return replace(self, features=replace(self.features, space=self.space.without_geometry()))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Judge:
    """The network, the columns that it reads, and the calibration of its logits."""

    network: JudgeNetwork
    # Columns that it was trained on, in that order. Those that this version does not compute get the network's centre,
    # which has no effect; an algorithm that it does not know has no one-hot column.
    columns: tuple[str, ...]
    slope: float
    offset: float
    number_cost: float = 0.0  # logits, before calibration, that each doubling of the number of clusters costs
    single_threshold: float = 1.0  # as in `ScoredCandidates`; judges before version 3 never answer with one cluster
    metric: Metric = "euclidean"  # of the candidates that it was trained on

    @classmethod
    def read(cls, weights: str | Path) -> Self:
        """Read a judge by the name of shipped weights or from a file."""
        arrays, card = load_pretrained(weights)
        if card.get("method") != "judge":
            raise WeightsError(
                f"weights={str(weights)!r} are of the method {card.get('method')!r}, not of a judge. Use other weights."
            )
        try:
            network = JudgeNetwork(from_dict(JudgeConfig, card["model"]), arrays)
            columns, calibration, metric = tuple(card["columns"]), card["calibration"], card.get("metric", "euclidean")
            known = column_names(metric) if metric in FEATURE_SETS else ()
            if len(columns) != network.config.n_columns or set(columns).isdisjoint(known):
                raise WeightsError(
                    f"weights={str(weights)!r} were trained on columns that this version does not compute. Train the "
                    "judge again from its recipe."
                )
            slope, offset = float(calibration["slope"]), float(calibration["offset"])
            since_v3 = [name for name in ("number_cost", "single_threshold") if name in calibration]
            later = {name: float(calibration[name]) for name in since_v3}
            return cls(network, columns, slope, offset, metric=metric, **later)
        except (KeyError, ConfigError) as error:
            raise WeightsError(f"weights={str(weights)!r} lack part of a judge ({error}). Save it again.") from error

    @classmethod
    def load(cls, weights: str | Path) -> "Judge":
        """Read a judge; shipped ones are read only once."""
        if isinstance(weights, str) and weights in _SHIPPED:
            return _SHIPPED[weights]
        judge = cls.read(weights)
        if weights in pretrained_names("judge"):
            _SHIPPED[str(weights)] = judge
        return judge

    def score(
        self, x: Floats | Space, candidates: Sequence[Candidate], on_stage: Callable[[str, str], None] | None = None
    ) -> ScoredCandidates:
        """Score one or more candidates; `on_stage` is called with the phase and a text before each of the two parts."""
        on_stage = on_stage or (lambda *_: None)
        on_stage("features", f"features of {len(candidates):,} candidates")
        features = CandidateFeatures.compute(x, candidates)
        on_stage("judging", f"scores of {len(candidates):,} candidates")
        return self._score(features)

    def extend(self, scored: ScoredCandidates, others: Sequence[Candidate]) -> ScoredCandidates:
        """Append one or more candidates, and score all of them again."""
        return self._score(scored.features.extended(others))

    def _score(self, features: CandidateFeatures) -> ScoredCandidates:
        neutral = dict(zip(self.columns, self.network.centre.tolist(), strict=True))
        logits, single = self.network(features.select(neutral))
        doublings = np.log2([each.n_clusters for each in features.candidates])
        calibrated = self.slope * (logits - self.number_cost * doublings) + self.offset
        return ScoredCandidates(features, calibrated, float(expit(single)), self.single_threshold)


_SHIPPED: dict[str, Judge] = {}
