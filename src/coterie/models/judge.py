"""The judge: how close each of many proposed partitions of the same rows is to the truth.

It reads a line of numbers about each proposal, lets the proposals attend to one another, and predicts the adjusted Rand
index that each has with the true partition. It is trained on sets whose truth is known, once, and never sees rows.

Letters: B sets, R proposals for each, C numbers about a proposal, H hidden.
"""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from coterie.errors import ConfigError
from coterie.nn.attention import SAB, AttentionConfig
from coterie.structures import JudgedBatch, Loss

ENOUGH = 20_000
"""Proposals that show what is usual."""
FARTHEST = 4.0
"""Deviations from the usual that numbers about a proposal are kept within."""
MOST_DOUBLINGS = 3.0
"""Beyond, a number of clusters is no more wrong."""


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
