"""Proposals for some rows -> the judge's opinion of each, and of better ones near the best."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self, final

import torch
from torch import Generator

from coterie.config import from_dict
from coterie.errors import InputError, WeightsError
from coterie.estimators.coterie_choice import Floats, Opinions
from coterie.evidence import BRIEF, Case
from coterie.models.base import build
from coterie.models.judge import JudgeModel
from coterie.proposals import Effort, Proposal, moved
from coterie.registry import load_pretrained, pretrained_names

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
