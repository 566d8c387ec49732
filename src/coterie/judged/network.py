"""The judge's network as a torch module, for training; ``coterie.judged.judge`` computes the same in numpy.

Letters: B sets, R candidates of each, C columns, H hidden.
"""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from coterie.judged.judge import MAX_DEVIATION, JudgeConfig
from coterie.nn.attention import SAB, AttentionConfig
from coterie.nn.model import Loss

NORMALISATION_CANDIDATES = 20_000  # candidates from which the centre and spread of the columns are estimated
MAX_DOUBLINGS = 3.0  # log-2 ratio beyond which a wrong number of clusters costs no more


@dataclass(frozen=True, slots=True)
class JudgedBatch:
    """Candidate partitions of several sets with known truth, padded to one number of candidates."""

    columns: Float[Tensor, "B R C"]  # features of each candidate
    score: Float[Tensor, "B R"]  # adjusted Rand index of each with the truth; meaningless where that is one cluster
    doublings: Float[Tensor, "B R"]  # absolute base-2 logarithm of each number of clusters over the true one
    valid: Bool[Tensor, "B R"]  # true where there is a candidate
    single: Bool[Tensor, " B"]  # true where the truth is one cluster


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
        several = (~batch.single).sum().clamp(min=1)
        # Every partition of a set without structure is wrong.
        truth = batch.score.clamp(0.0, 1.0).masked_fill(~batch.valid | batch.single.unsqueeze(1), 0.0)
        error = binary_cross_entropy_with_logits(logits, truth, reduction="none")
        error = error - torch.special.entr(truth) - torch.special.entr(1.0 - truth)  # zero for a perfect prediction
        error = ((error * batch.valid).sum(dim=1) / batch.valid.sum(dim=1).clamp(min=1)).mean()
        choice = (self.config.choice_scale * logits).masked_fill(~batch.valid, -torch.inf).softmax(dim=1)
        value = truth - self.config.number_weight * batch.doublings.clamp(max=MAX_DOUBLINGS)
        best = value.masked_fill(~batch.valid, -torch.inf).amax(dim=1)
        regret = ((best - (choice * value).sum(dim=1)) * ~batch.single).sum() / several
        return torch.stack((error, regret, binary_cross_entropy_with_logits(single, batch.single.to(single))))

    def _normalise(self, columns: Tensor) -> Tensor:
        return ((columns - self.centre) / self.spread).clamp(-MAX_DEVIATION, MAX_DEVIATION)
