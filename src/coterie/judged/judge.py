"""The judge: how close each of many proposed partitions of the same rows is to the truth.

It reads a line of numbers about each proposal, lets the proposals attend to one another, and predicts the adjusted Rand
index that each has with the true partition. It is trained on sets whose truth is known, once, and never sees rows.

Letters: B sets, R proposals for each, C numbers about a proposal, H hidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self, final

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from coterie.config import from_dict
from coterie.errors import ConfigError, InputError, WeightsError
from coterie.judged.assign import Floats, Opinions
from coterie.judged.candidates.candidate import Proposal
from coterie.judged.candidates.registry import Effort
from coterie.judged.features.table import BRIEF, Case
from coterie.judged.refine import moved
from coterie.nn.attention import SAB, AttentionConfig
from coterie.nn.model import Loss, build
from coterie.pretrained.registry import load_pretrained, pretrained_names

ENOUGH = 20_000
"""Proposals that show what is usual."""
FARTHEST = 4.0
"""Deviations from the usual that numbers about a proposal are kept within."""
MOST_DOUBLINGS = 3.0
"""Beyond, a number of clusters is no more wrong."""


@dataclass(frozen=True, slots=True)
class JudgedBatch:
    """Candidate partitions of several sets with known truth, padded to one number of candidates."""

    columns: Float[Tensor, "B R C"]
    """Features of each candidate."""
    score: Float[Tensor, "B R"]
    """Adjusted Rand index of each with the truth; meaningless where the truth is one cluster."""
    doublings: Float[Tensor, "B R"]
    """Absolute base-2 logarithm of each candidate's number of clusters over the true one."""
    valid: Bool[Tensor, "B R"]
    """True where there is a candidate."""
    single: Bool[Tensor, " B"]
    """True where the truth is one cluster."""


@final
@dataclass(frozen=True, slots=True)
class JudgeConfig:
    """How large the judge is, and what it is trained for."""

    n_columns: int
    """Numbers about a proposal."""
    width: int = 96
    """Numbers that describe a proposal inside."""
    heads: int = 4
    """Parts that the width is split into."""
    depth: int = 2
    """Times that the proposals attend to one another."""
    members: int = 1
    """Networks that learn side by side, and whose mean is the judgement."""
    hidden_columns: float = 0.1
    """Chance of each number to be hidden, for all proposals of a set alike, while training."""
    regret_weight: float = 1.0
    """How much the choice counts, against the prediction of every score."""
    number_weight: float = 0.1
    """Agreement that a choice is worth less for each time its number of clusters is twice or half the true one."""
    single_weight: float = 0.1
    """How much it counts whether there is one cluster only."""
    sharpness: float = 4.0
    """Of the choice that the regret is of: logits of the predicted scores are multiplied by it."""

    def __post_init__(self) -> None:
        if min(self.n_columns, self.width, self.depth, self.members) < 1:
            raise ConfigError(
                f"n_columns={self.n_columns}, width={self.width}, depth={self.depth} and members={self.members} must "
                "all be at least 1."
            )
        if not 0.0 <= self.hidden_columns < 1.0:
            raise ConfigError(f"hidden_columns={self.hidden_columns} must be at least 0 and below 1.")


@final
class JudgeMember(nn.Module):
    """One network: what is usual about columns goes in, logits come out."""

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
        """Logits of the predicted scores, and of whether the truth is one cluster."""
        hidden = self.embed(columns)
        for block in self.blocks:
            hidden = hidden + block(hidden, valid)
        weight = torch.ones_like(hidden[..., :1]) if valid is None else valid.unsqueeze(2).to(hidden)
        overall = (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1.0)
        return self.score(hidden).squeeze(2), self.single(overall).squeeze(1)


@final
class JudgeModel(nn.Module):
    """Scores of proposals, from what is known about each and about the others."""

    Config = JudgeConfig
    centre: Tensor
    spread: Tensor

    def __init__(self, config: JudgeConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("centre", torch.zeros(config.n_columns))
        self.register_buffer("spread", torch.ones(config.n_columns))
        self.members = nn.ModuleList(JudgeMember(config) for _ in range(config.members))

    def accustom(self, columns: Float[Tensor, "R C"]) -> None:
        """Learn what is usual in each column, before training; of very many proposals, from every nth one."""
        columns = columns[:: max(1, len(columns) // ENOUGH)]
        low, middle, high = torch.quantile(columns.double(), torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64), dim=0)
        deviation = columns.double().std(dim=0)
        spread = torch.where(high > low, (high - low) / 2.56, deviation)
        self.centre.copy_(middle)
        self.spread.copy_(torch.where(spread > 0, spread, 1.0))

    def forward(
        self, columns: Float[Tensor, "B R C"], valid: Bool[Tensor, "B R"] | None = None
    ) -> tuple[Float[Tensor, "B R"], Float[Tensor, " B"]]:
        """Logits of the predicted scores of the valid proposals, and of whether the truth is one cluster."""
        columns = self._usual(columns)
        scores, singles = zip(*(member(columns, valid) for member in self.members), strict=True)
        return torch.stack(scores).mean(dim=0), torch.stack(singles).mean(dim=0)

    def loss(self, batch: JudgedBatch, generator: Generator) -> Loss:
        """Mean loss of the members, each of which has other columns hidden from it.

        Error of the predicted scores, what is lost by choosing after them, and error about single clusters.
        """
        columns = self._usual(batch.columns)
        losses = []
        for member in self.members:
            kept = torch.rand((len(columns), 1, columns.shape[2]), generator=generator) >= self.config.hidden_columns
            losses.append(self._losses(batch, *member(columns * kept.to(columns), batch.valid)))
        error, regret, doubt = torch.stack(losses).mean(dim=0)
        total = error + self.config.regret_weight * regret + self.config.single_weight * doubt
        parts = {"error": error, "regret": regret, "single": doubt}
        return Loss(total, {name: float(part.detach()) for name, part in parts.items()})

    def after_step(self) -> None:
        """Nothing: the gradient says it all."""

    def _losses(self, batch: JudgedBatch, logits: Tensor, single: Tensor) -> Float[Tensor, "3"]:
        """The three kinds of loss of one member."""
        there = batch.valid & ~batch.single.unsqueeze(1)
        several = (~batch.single).sum().clamp(min=1)
        truth = batch.score.clamp(0.0, 1.0).masked_fill(~there, 0.0)
        error = binary_cross_entropy_with_logits(logits, truth, reduction="none")
        error = error - torch.special.entr(truth) - torch.special.entr(1.0 - truth)  # zero for a perfect prediction
        error = ((error * there).sum(dim=1) / batch.valid.sum(dim=1).clamp(min=1)).sum() / several
        choice = (self.config.sharpness * logits).masked_fill(~batch.valid, -torch.inf).softmax(dim=1)
        worth = truth - self.config.number_weight * batch.doublings.clamp(max=MOST_DOUBLINGS)
        best = worth.masked_fill(~batch.valid, -torch.inf).amax(dim=1)
        regret = ((best - (choice * worth).sum(dim=1)) * ~batch.single).sum() / several
        return torch.stack((error, regret, binary_cross_entropy_with_logits(single, batch.single.to(single))))

    def _usual(self, columns: Tensor) -> Tensor:
        return ((columns - self.centre) / self.spread).clamp(-FARTHEST, FARTHEST)


JUDGED_ROWS: dict[Effort, int] = {"fast": 1000, "balanced": 1500, "thorough": 2000}
"""Rows that proposals are made for and judged on."""
REFINING_ROUNDS: dict[Effort, int] = {"fast": 0, "balanced": 2, "thorough": 3}
"""Small steps by which the best proposal may be improved."""


@final
@dataclass(frozen=True, slots=True)
class Refining:
    """How far to look for something better near the best proposal."""

    rounds: int
    """Small steps at most."""
    granularity: float
    """That the best is chosen with."""
    max_clusters: int
    """No partition with more is looked at."""
    keep_number: bool
    """Whether the number of clusters is to stay."""

    def near(self, rows: Floats, case: Case, chosen: int) -> list[Proposal]:
        """Partitions one step away from the chosen one that the case does not have."""
        known = {each.labels.tobytes() for each in case.proposals}
        near = moved(rows, case.proposals[chosen], max_clusters=self.max_clusters, keep_number=self.keep_number)
        return [each for each in near if each.labels.tobytes() not in known]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Hearing:
    """The judge's opinions, and the case that they rest on: much larger, and of use only while more may join it."""

    case: Case
    opinions: Opinions


@final
@dataclass(frozen=True, slots=True, eq=False)
class Judge:
    """The network, and how its predictions are brought to mean what they say."""

    network: JudgeModel
    slope: float
    offset: float

    @classmethod
    def of(cls, weights: str | Path) -> Self:
        """The judge of that name or in that file."""
        tensors, card = load_pretrained(weights)
        if card.get("method") != "judge":
            raise WeightsError(
                f"judge={str(weights)!r} has weights of the method {card.get('method')!r}, not of a judge. "
                "Name other weights."
            )
        try:
            network = build(JudgeModel, from_dict(JudgeModel.Config, card["model"]), Generator())
            network.load_state_dict(tensors)
            calibration = card["calibration"]
            if card["columns"] != list(BRIEF):
                raise WeightsError(
                    f"judge={str(weights)!r} reads {network.config.n_columns} numbers about a proposal, and not the "
                    f"{len(BRIEF)} that this version lays before it. Train it again from its recipe."
                )
            return cls(network.eval(), float(calibration["slope"]), float(calibration["offset"]))
        except (KeyError, RuntimeError) as error:
            raise WeightsError(f"judge={str(weights)!r} lacks part of a judge ({error}). Save it again.") from error

    @classmethod
    def called(cls, weights: str | Path) -> "Judge":
        """As ``of``, but one that ships is read once only."""
        if not isinstance(weights, str | Path):
            raise InputError(f"judge={weights!r} must be the name of weights that ship, or the path of a file.")
        return _shipped_judge(str(weights)) if weights in pretrained_names("judge") else cls.of(weights)

    def opinions(self, rows: Floats, proposals: Sequence[Proposal], refining: Refining | None = None) -> Opinions:
        """What the judge thinks of the proposals for the rows; there is at least one."""
        return self.hearing(rows, proposals, refining).opinions

    def hearing(self, rows: Floats, proposals: Sequence[Proposal], refining: Refining | None = None) -> Hearing:
        """The same with the case.

        To refine, partitions near the best join the others, as long as one of them is preferred to all.
        """
        hearing = self._heard(rows, Case.of(rows, proposals))
        if refining is None:
            return hearing
        for _ in range(refining.rounds):
            near = refining.near(rows, hearing.case, hearing.opinions.choice(refining.granularity))
            if not near:
                break
            larger = self.joined(hearing, near)
            if larger.opinions.choice(refining.granularity) < len(hearing.case.proposals):
                break
            hearing = larger
        return hearing

    def joined(self, hearing: Hearing, others: Sequence[Proposal]) -> Hearing:
        """All judged again, with further proposals for the same rows, at least one, at the end."""
        return self._heard(hearing.opinions.rows, hearing.case.joined_by(others))

    @torch.no_grad()
    def _heard(self, rows: Floats, case: Case) -> Hearing:
        logits, single = self.network(torch.from_numpy(case.brief()).unsqueeze(0))
        calibrated = self.slope * logits.squeeze(0).double().numpy() + self.offset
        return Hearing(case, Opinions(rows, list(case.proposals), calibrated, float(single.sigmoid())))


@cache
def _shipped_judge(name: str) -> Judge:
    return Judge.of(name)
