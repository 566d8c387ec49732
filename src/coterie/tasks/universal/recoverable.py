"""Whether the truth of a set can be seen in it: measured, and brought to the degree that is wanted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from coterie.tasks.universal.wanted import Clarity, Wanted

NEIGHBOURS: Final = 8
MOST_ASKED: Final = 256
"""Points whose neighbours are looked at; rows are in random order, so the first ones are as good as any."""
STEPS: Final = 7
"""Trials of one draft before it is given up."""
LOOSEST: Final = 8.0
TIGHTEST: Final = 0.02
LEAST_SPREAD: Final = 1e-6
FEW: Final = 4
"""Points of a cluster that must be asked before it can count as hidden."""
HIDDEN: Final = 0.2
"""A cluster of which a smaller share of what is wanted is told is hidden in others."""


@final
@dataclass(frozen=True, slots=True)
class Draft:
    """A set that is drawn but for how loose its clusters are."""

    labels: Int[Tensor, " N"]
    """Cluster of each point, rows in random order."""
    build: Callable[[float], Float[Tensor, "N D"]]
    """The points, given by how much clusters are spread about their places; 1 is as drawn."""
    clarity: Clarity
    """How well the truth of such sets is to be seen."""
    story: Mapping[str, float | str]
    """What was drawn."""


def standardised(x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Columns of mean zero and standard deviation one; what is constant stays zero."""
    centred = x - x.mean(dim=0)
    scale = centred.square().mean(dim=0).sqrt()
    return centred / torch.where(scale > LEAST_SPREAD * x.abs().amax(dim=0), scale, 1.0).clamp_min(1e-30)


@final
@dataclass(frozen=True, slots=True)
class Seen:
    """How well neighbours tell the labels of a set."""

    agreement: float
    """Cohen's kappa of the labels and what neighbours vote for: 1 if all are told, 0 if neighbours say nothing."""
    worst: float
    """Share of its points that are told, of the cluster that fares worst."""


def look(x: Float[Tensor, "N D"], labels: Int[Tensor, " N"]) -> Seen:
    """Let the nearest points of each point vote on its label.

    Columns are standardised first, a point has no vote on itself, and nearer neighbours weigh more: one over one, two,
    three ... Of many points only the first are asked, and only clusters with several of these can be the worst.
    """
    x = standardised(x)
    asked, truth = x[:MOST_ASKED], labels[:MOST_ASKED]
    # Of (a - b)², the square of the point that asks is the same for all its neighbours.
    distance = torch.addmm(x.square().sum(dim=1), asked, x.T, alpha=-2)
    distance.fill_diagonal_(torch.inf)
    count = min(NEIGHBOURS, len(x) - 1)
    near = labels[distance.topk(count, dim=1, largest=False).indices]
    n_clusters = int(labels.max()) + 1
    weight = 1 / torch.arange(1, count + 1)
    votes = torch.zeros(len(asked), n_clusters).scatter_add_(1, near, weight.expand(len(asked), -1))
    voted = votes.argmax(dim=1)
    right, said, true = (
        torch.bincount(one, minlength=n_clusters) / len(asked) for one in (truth[voted == truth], voted, truth)
    )
    by_chance = float((said * true).sum())
    agreement = (float(right.sum()) - by_chance) / (1 - by_chance) if by_chance < 1 else 0.0
    counted = true * len(asked) >= FEW
    worst = float((right / true)[counted].min()) if bool(counted.any()) else 0.0
    return Seen(agreement, worst)


def settle(draft: Draft, wanted: Wanted) -> tuple[Float[Tensor, "N D"], float] | None:
    """Points of a draft whose agreement is as wanted and that hide no cluster, and the agreement; or None.

    The looser the clusters, the less neighbours tell: the looseness is doubled or halved, and then bisected. After a
    few trials the draft is given up.
    """
    too_tight, too_loose = TIGHTEST, LOOSEST
    looseness, step = wanted.start, 2.0
    for _ in range(STEPS):
        x = draft.build(looseness)
        seen = look(x, draft.labels)
        hidden = seen.worst < HIDDEN * wanted.low
        if wanted.low <= seen.agreement <= wanted.high and not hidden:
            return x, seen.agreement
        if hidden or seen.agreement < wanted.low:
            too_loose = looseness
            looseness = max(looseness / step, (too_tight * too_loose) ** 0.5)
        else:
            too_tight = looseness
            looseness = min(looseness * step, (too_tight * too_loose) ** 0.5)
    return None
