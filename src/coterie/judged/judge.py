"""The judge: a network that predicts how close each of many candidate partitions is to the true one.

It reads the feature table of the candidates, lets the candidates attend to one another, and predicts the adjusted Rand
index of each with the true partition. It was trained once, on synthetic sets whose truth is known; it never sees rows.

Letters: B sets, R candidates of each, C columns, H hidden.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.special import expit
from torch import Generator, Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from coterie.config import from_dict
from coterie.errors import ConfigError, InputError, WeightsError
from coterie.judged.candidates.registry import Candidate
from coterie.judged.features.table import CandidateFeatures, column_names
from coterie.judged.refine import neighbouring_partitions
from coterie.judged.space import Floats, Integers, Space
from coterie.nn.attention import SAB, AttentionConfig
from coterie.nn.model import Loss, build
from coterie.pretrained.registry import load_pretrained, pretrained_names
from coterie.validation import Constraints, Integer, Number, check_parameters

NORMALISATION_CANDIDATES = 20_000  # candidates from which the centre and spread of the columns are estimated
MAX_DEVIATION = 4.0  # spreads from the centre at which columns are clipped
MAX_DOUBLINGS = 3.0  # log-2 ratio beyond which a wrong number of clusters costs no more
TOLERANCE = 0.4  # logits by which a candidate with fewer clusters may fall short of the best and still be chosen
GRANULARITY_BONUS = 0.5  # logits that a granularity of one adds to a candidate with twice as many clusters


@dataclass(frozen=True, slots=True)
class JudgedBatch:
    """Candidate partitions of several sets with known truth, padded to one number of candidates."""

    columns: Float[Tensor, "B R C"]  # features of each candidate
    score: Float[Tensor, "B R"]  # adjusted Rand index of each with the truth; meaningless where that is one cluster
    doublings: Float[Tensor, "B R"]  # absolute base-2 logarithm of each number of clusters over the true one
    valid: Bool[Tensor, "B R"]  # true where there is a candidate
    single: Bool[Tensor, " B"]  # true where the truth is one cluster


_CONSTRAINTS: Mapping[str, Constraints] = {
    **dict.fromkeys(("n_columns", "width", "depth", "members"), Integer(1)),
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


@final
class JudgeMember(nn.Module):
    """One network of the ensemble: normalised columns in, logits out."""

    def __init__(self, config: JudgeConfig) -> None:
        super().__init__()
        attention = AttentionConfig(config.width, config.heads)
        self.embed = nn.Sequential(
            nn.Linear(config.n_columns, 2 * config.width), nn.GELU(), nn.Linear(2 * config.width, config.width)
        )
        self.blocks = nn.ModuleList(SAB(config.width, attention) for _ in range(config.depth))
        self.score = nn.Sequential(nn.Linear(config.width, config.width), nn.GELU(), nn.Linear(config.width, 1))
        self.single = nn.Sequential(nn.Linear(config.width, config.width), nn.GELU(), nn.Linear(config.width, 1))

    def forward(
        self, columns: Float[Tensor, "B R C"], valid: Bool[Tensor, "B R"] | None
    ) -> tuple[Float[Tensor, "B R"], Float[Tensor, " B"]]:
        """Return the logits of the predicted scores, and of whether the truth is one cluster."""
        hidden = self.embed(columns)
        for block in self.blocks:
            hidden = hidden + block(hidden, valid)
        weight = torch.ones_like(hidden[..., :1]) if valid is None else valid.unsqueeze(2).to(hidden)
        overall = (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1.0)
        return self.score(hidden).squeeze(2), self.single(overall).squeeze(1)


@final
class JudgeModel(nn.Module):
    """Predicts the scores of candidates from their features, each in the context of the others."""

    Config = JudgeConfig
    centre: Tensor
    spread: Tensor

    def __init__(self, config: JudgeConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("centre", torch.zeros(config.n_columns))
        self.register_buffer("spread", torch.ones(config.n_columns))
        self.members = nn.ModuleList(JudgeMember(config) for _ in range(config.members))

    def fit_normalisation(self, columns: Float[Tensor, "R C"]) -> None:
        """Set the centre and spread of each column, before training, from at most about 20,000 candidates."""
        columns = columns[:: max(1, len(columns) // NORMALISATION_CANDIDATES)]
        low, middle, high = torch.quantile(columns.double(), torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64), dim=0)
        deviation = columns.double().std(dim=0)
        spread = torch.where(high > low, (high - low) / 2.56, deviation)
        self.centre.copy_(middle)
        self.spread.copy_(torch.where(spread > 0, spread, 1.0))

    def forward(
        self, columns: Float[Tensor, "B R C"], valid: Bool[Tensor, "B R"] | None = None
    ) -> tuple[Float[Tensor, "B R"], Float[Tensor, " B"]]:
        """Return the logits of the predicted scores of the candidates, and of whether the truth is one cluster."""
        columns = self._normalise(columns)
        scores, singles = zip(*(member(columns, valid) for member in self.members), strict=True)
        return torch.stack(scores).mean(dim=0), torch.stack(singles).mean(dim=0)

    def loss(self, batch: JudgedBatch, generator: Generator) -> Loss:
        """Average the losses of the members, each with different columns dropped.

        They are the error of the predicted scores, the regret of choosing by them, and the error of predicting whether
        there is one cluster.
        """
        columns = self._normalise(batch.columns)
        losses = []
        for member in self.members:
            kept = torch.rand((len(columns), 1, columns.shape[2]), generator=generator) >= self.config.column_dropout
            losses.append(self._losses(batch, *member(columns * kept.to(columns), batch.valid)))
        error, regret, single = torch.stack(losses).mean(dim=0)
        total = error + self.config.regret_weight * regret + self.config.single_weight * single
        parts = {"error": error, "regret": regret, "single": single}
        return Loss(total, {name: float(part.detach()) for name, part in parts.items()})

    def after_step(self) -> None:
        """No-op."""

    def _losses(self, batch: JudgedBatch, logits: Tensor, single: Tensor) -> Float[Tensor, "3"]:
        """Return the three losses of one member."""
        present = batch.valid & ~batch.single.unsqueeze(1)
        several = (~batch.single).sum().clamp(min=1)
        truth = batch.score.clamp(0.0, 1.0).masked_fill(~present, 0.0)
        error = binary_cross_entropy_with_logits(logits, truth, reduction="none")
        error = error - torch.special.entr(truth) - torch.special.entr(1.0 - truth)  # zero for a perfect prediction
        error = ((error * present).sum(dim=1) / batch.valid.sum(dim=1).clamp(min=1)).sum() / several
        choice = (self.config.choice_scale * logits).masked_fill(~batch.valid, -torch.inf).softmax(dim=1)
        value = truth - self.config.number_weight * batch.doublings.clamp(max=MAX_DOUBLINGS)
        best = value.masked_fill(~batch.valid, -torch.inf).amax(dim=1)
        regret = ((best - (choice * value).sum(dim=1)) * ~batch.single).sum() / several
        return torch.stack((error, regret, binary_cross_entropy_with_logits(single, batch.single.to(single))))

    def _normalise(self, columns: Tensor) -> Tensor:
        return ((columns - self.centre) / self.spread).clamp(-MAX_DEVIATION, MAX_DEVIATION)


def choose(logits: Floats, n_clusters: Integers, granularity: float = 0.0) -> int:
    """Return the index of the candidate with the fewest clusters among those within the tolerance of the best.

    Of several with that number, the best one. A positive granularity favours many clusters.
    """
    adjusted = logits + granularity * GRANULARITY_BONUS * np.log2(n_clusters)
    good = adjusted >= adjusted.max() - TOLERANCE
    return int(np.where(good & (n_clusters == n_clusters[good].min()), adjusted, -np.inf).argmax())


@final
@dataclass(frozen=True, slots=True, eq=False)
class ScoredCandidates:
    """Candidates for the same rows, and the judge's prediction of how good each is."""

    features: CandidateFeatures
    logits: Floats  # logits of the expected adjusted Rand index of each candidate with the true partition
    single_probability: float  # probability that all rows are one cluster

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

    def choose(self, granularity: float = 0.0) -> int:
        """Return the index of the candidate that is chosen; see ``coterie.judged.judge.choose``."""
        return choose(self.logits, np.array([each.n_clusters for each in self.candidates]), granularity)

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
            "refined": candidate.refined,
            "columns": candidate.view,
            "n_clusters": candidate.n_clusters,
            "score": float(self.scores[index]),
        }

    def without_geometry(self) -> "ScoredCandidates":
        """Return the same without distances, which take much memory."""
        return replace(self, features=replace(self.features, space=self.space.without_geometry()))


@final
@dataclass(frozen=True, slots=True)
class Refinement:
    """How to search for a better partition near the best candidate."""

    rounds: int  # largest number of successive changes
    granularity: float  # granularity with which candidates are chosen
    max_clusters: int  # no result has more clusters
    keep_number: bool  # whether the number of clusters is fixed


@final
@dataclass(frozen=True, slots=True, eq=False)
class Judge:
    """The network, the columns that it reads, and the calibration of its logits."""

    network: JudgeModel
    # Columns that it was trained on, in that order. Those that this version does not compute get the network's centre,
    # which has no effect; an algorithm that it does not know has no one-hot column.
    columns: tuple[str, ...]
    slope: float
    offset: float

    @classmethod
    def read(cls, weights: str | Path) -> Self:
        """Read a judge by the name of shipped weights or from a file."""
        tensors, card = load_pretrained(weights)
        if card.get("method") != "judge":
            raise WeightsError(
                f"weights={str(weights)!r} are of the method {card.get('method')!r}, not of a judge. Use other weights."
            )
        try:
            network = build(JudgeModel, from_dict(JudgeModel.Config, card["model"]), Generator())
            network.load_state_dict(tensors)
            columns, calibration = tuple(card["columns"]), card["calibration"]
            if len(columns) != network.config.n_columns or set(columns).isdisjoint(column_names()):
                raise WeightsError(
                    f"weights={str(weights)!r} were trained on columns that this version does not compute. Train the "
                    "judge again from its recipe."
                )
            return cls(network.eval(), columns, float(calibration["slope"]), float(calibration["offset"]))
        except (KeyError, RuntimeError) as error:
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
        self, x: Floats | Space, candidates: Sequence[Candidate], refinement: Refinement | None = None
    ) -> ScoredCandidates:
        """Score one or more candidates.

        With a refinement, partitions near the chosen one are added while one of them is chosen over all others.
        """
        scored = self._score(CandidateFeatures.compute(x, candidates))
        if refinement is None:
            return scored
        for _ in range(refinement.rounds):
            known = {each.labels.tobytes() for each in scored.candidates}
            found = neighbouring_partitions(
                scored.space,
                scored.candidates[scored.choose(refinement.granularity)],
                max_clusters=refinement.max_clusters,
                keep_number=refinement.keep_number,
            )
            near = [each for each in found if each.labels.tobytes() not in known]
            if not near:
                break
            extended = self.extend(scored, near)
            if extended.choose(refinement.granularity) < len(scored.candidates):
                break
            scored = extended
        return scored

    def extend(self, scored: ScoredCandidates, others: Sequence[Candidate]) -> ScoredCandidates:
        """Append one or more candidates, and score all of them again."""
        return self._score(scored.features.extended(others))

    @torch.no_grad()
    def _score(self, features: CandidateFeatures) -> ScoredCandidates:
        neutral = dict(zip(self.columns, self.network.centre.tolist(), strict=True))
        logits, single = self.network(torch.from_numpy(features.select(neutral)).unsqueeze(0))
        calibrated = self.slope * logits.squeeze(0).double().numpy() + self.offset
        return ScoredCandidates(features, calibrated, float(single.sigmoid()))


_SHIPPED: dict[str, Judge] = {}
