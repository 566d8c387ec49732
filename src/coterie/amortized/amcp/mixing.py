"""Mixing of the points of sets with references: expectation and maximisation for a mixture of unit Gaussians.

The expectation step is a transport plan from points to references. Without a say about how much each reference gets it
is the usual one; with it, the step is optimal transport. Either way who belongs to whom is a softmax of scores plus one
number for each reference, so that points which took no part can be asked about too.

Letters: B sets, N points, K references, E numbers that describe a point, R numbers that a reference is made from.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from coterie.errors import ConfigError
from coterie.ops.sinkhorn import NEVER, column_potentials, log_mass


def quadratic_scores(x: Float[Tensor, "*B N E"], mean: Float[Tensor, "*B K E"]) -> Float[Tensor, "*B N K"]:
    """Minus half the squared distance of every point and reference, without an (N, K, E) tensor."""
    # Around the references, since squares of numbers far from zero would leave no digits for their differences.
    centre = mean.mean(dim=-2, keepdim=True)
    x, mean = x - centre, mean - centre
    squares = x.square().sum(dim=-1, keepdim=True) + mean.square().sum(dim=-1).unsqueeze(-2)
    return (x @ mean.mT - 0.5 * squares).clamp(max=0.0)


def expectation(
    scores: Float[Tensor, "*B N K"], mass: Float[Tensor, "*B N"], share: Float[Tensor, "*B K"], transport_steps: int
) -> tuple[Float[Tensor, "*B N K"], Float[Tensor, "*B K"]]:
    """Responsibilities of the references for the points, and what was added to the scores of each reference for them.

    A point counts by its mass and, if it has some, its responsibilities sum to one. Shares sum to one; without steps of
    transport they are only what is expected beforehand, with some they are what the references must get.
    """
    offset = log_mass(share)
    if transport_steps:
        whole = mass.sum(dim=-1, keepdim=True)
        offset = column_potentials(scores, mass, share * whole, transport_steps)
    return (scores + offset.unsqueeze(-2)).softmax(dim=-1) * (mass > 0).unsqueeze(-1), offset


def weighted_means(
    x: Float[Tensor, "*B N E"],
    weight: Float[Tensor, "*B N K"],
    prior: Float[Tensor, "*B K E"],
    strength: float,
) -> Float[Tensor, "*B K E"]:
    """The maximisation step in closed form; the prior counts as so many points."""
    total = weight.sum(dim=-2).unsqueeze(-1)
    return (weight.mT @ x + strength * prior) / (total + strength)


def gradient_step(
    decode: Callable[[Tensor], Tensor],
    reference: Float[Tensor, "*B K R"],
    x: Float[Tensor, "*B N E"],
    weight: Float[Tensor, "*B N K"],
    rate: float,
) -> Float[Tensor, "*B K R"]:
    """The maximisation step where means are decoded from references: one step uphill in the likelihood of the points.

    The gradient of each reference is divided by the weight that it has, and is itself differentiable.
    """
    mean: Tensor
    mean, pulled_back = torch.func.vjp(decode, reference)  # type: ignore[misc]  # typed as if it gave more
    total = weight.sum(dim=-2).unsqueeze(-1)
    residual = (weight.mT @ x - total * mean) / total.clamp(min=torch.finfo(total.dtype).tiny)
    (uphill,) = pulled_back(residual)
    moved: Tensor = reference + rate * uphill
    return moved


def evidence_bound(
    scores: Float[Tensor, "*B N K"], share: Float[Tensor, "*B K"], responsibility: Float[Tensor, "*B N K"]
) -> Float[Tensor, "*B"]:
    """Jensen's lower bound on the log-likelihood of the points that anyone is responsible for."""
    joint = scores + log_mass(share).unsqueeze(-2)
    bound: Tensor = responsibility * joint - torch.special.xlogy(responsibility, responsibility)
    return bound.sum(dim=(-2, -1))


Kernel = Literal["quadratic", "linear", "neural"]
References = Literal["means", "decoded"]
KERNEL_WIDTH = 32
"""Hidden numbers of the neural kernel, of every pair of a point and a reference."""
LEAST_TEMPERATURE = 1e-3
WIDE_MARGIN = 8.0
"""Difference of claims beyond which a larger one tells nothing more."""


def feed_forward(widths: list[int], dropout: float = 0.0) -> nn.Sequential:
    """Linear maps with tanh between; dropout comes before each but the last."""
    layers: list[nn.Module] = []
    for place in range(len(widths) - 1):
        last = place == len(widths) - 2
        if dropout and not last:
            layers.append(nn.Dropout(dropout))
        layers.append(nn.Linear(widths[place], widths[place + 1]))
        if not last:
            layers.append(nn.Tanh())
    return nn.Sequential(*layers)


class PairScores(nn.Module):
    """How well points and references go together, over a temperature that is learned."""

    def __init__(self, width: int, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.log_temperature = nn.Parameter(torch.zeros(()))
        self.map = nn.Linear(width, width, bias=False) if kernel == "linear" else None
        self.of_point = nn.Linear(width, KERNEL_WIDTH) if kernel == "neural" else None
        self.of_mean = nn.Linear(width, KERNEL_WIDTH, bias=False) if kernel == "neural" else None
        self.bend = nn.Linear(KERNEL_WIDTH, 1, bias=False) if kernel == "neural" else None

    def forward(self, x: Float[Tensor, "B N E"], mean: Float[Tensor, "B K E"]) -> Float[Tensor, "B N K"]:
        """Scores of all pairs."""
        scores: Tensor = quadratic_scores(x, mean) if self.map is None else self.map(x) @ mean.mT
        if self.of_point is not None and self.of_mean is not None and self.bend is not None:
            # What a network makes of both is added to the distance, so that it begins as something that works.
            both = torch.tanh(self.of_point(x).unsqueeze(2) + self.of_mean(mean).unsqueeze(1))
            scores = scores + self.bend(both).squeeze(3)
        return scores / (self.log_temperature.exp() + LEAST_TEMPERATURE)


class Proposal(NamedTuple):
    """What coupling says before points are mixed with references; the new cluster comes first, then those found."""

    reference: Float[Tensor, "B K R"]
    share: Float[Tensor, "B K+1"]
    """Of all points: theirs and, last, the background's."""
    background: Float[Tensor, "B 1 E"]
    """Middle of what is left."""
    level: Float[Tensor, "B 1"]
    """Score of the background there."""
    state: Float[Tensor, "B G"]
    """What is known of the points that are left and of the clusters that are found."""


class Mixed(NamedTuple):
    """References after mixing, and all that it takes to ask who belongs to them."""

    mean: Float[Tensor, "B K E"]
    offset: Float[Tensor, "B K"]
    """What is added to the scores of each reference."""
    background: Float[Tensor, "B 1 E"]
    level: Float[Tensor, "B 1"]
    """Score of the background at its middle, its own offset included."""
    state: Float[Tensor, "B G"]


class IntraClusterMixing(nn.Module):
    """IntraCM: a few steps of expectation and maximisation for the references and a broad background."""

    def __init__(
        self,
        width: int,
        *,
        kernel: Kernel,
        references: References,
        rate: float,
        prior_strength: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.rate, self.prior_strength = rate, prior_strength
        self.pair_scores = PairScores(width, kernel)
        self.flatness = nn.Parameter(torch.tensor(-3.0))
        self.decoder = feed_forward([width, 2 * width, width], dropout) if references == "decoded" else None

    def decode(self, reference: Float[Tensor, "*B R"]) -> Float[Tensor, "*B E"]:
        """Means that references stand for: themselves, or what a network makes of them once they are squashed."""
        if self.decoder is None:
            return reference
        decoded: Tensor = self.decoder(torch.sigmoid(reference))
        return torch.sigmoid(decoded)

    def claims(self, x: Float[Tensor, "B N E"], mixed: Mixed) -> Float[Tensor, "B N K+1"]:
        """Scores of every point with every reference and, last, with the background, offsets added."""
        broad = softplus(self.flatness) * quadratic_scores(x, mixed.background) + mixed.level.unsqueeze(2)
        return torch.cat((self.pair_scores(x, mixed.mean) + mixed.offset.unsqueeze(1), broad), dim=2)

    def forward(
        self,
        x: Float[Tensor, "B N E"],
        valid: Bool[Tensor, "B N"],
        proposal: Proposal,
        *,
        steps: int,
        transport_steps: int,
    ) -> Mixed:
        """Move the references to where the points are that they answer for, in so many steps.

        Expectation is optimal transport with so many of Sinkhorn's steps, or the regular one with none.
        """
        mass = valid.to(x.dtype)
        reference = proposal.reference
        none = torch.zeros_like(proposal.share[:, :-1])
        for step in range(steps + 1):
            plain = Mixed(self.decode(reference), none, proposal.background, proposal.level, proposal.state)
            belonging, offset = expectation(self.claims(x, plain), mass, proposal.share, transport_steps)
            if step < steps:
                reference = self._maximised(reference, x, belonging[..., :-1], proposal.reference)
        return plain._replace(offset=offset[:, :-1], level=plain.level + offset[:, -1:])

    def _maximised(self, reference: Tensor, x: Tensor, weight: Tensor, prior: Tensor) -> Tensor:
        if self.decoder is None:
            return weighted_means(x, weight, prior, self.prior_strength)
        return gradient_step(self.decode, reference, x, weight, self.rate)


class InterClusterCoupling(nn.Module):
    """InterCC: from the points that are left and the clusters that are found to where the next one may be."""

    def __init__(self, width: int, hidden: int, *, references: References, anchored: bool) -> None:
        super().__init__()
        self.state_width = hidden
        self.of_rest = feed_forward([width, hidden, hidden])
        self.of_found = feed_forward([width, hidden, hidden])
        self.state = nn.Sequential(nn.Linear(2 * hidden + 1, hidden), nn.Tanh())
        self.query = None if anchored else nn.Linear(hidden, hidden)
        self.key = None if anchored else feed_forward([width, hidden, hidden])
        self.as_reference = nn.Linear(width, width) if references == "decoded" else nn.Identity()
        self.share = feed_forward([hidden + width, hidden, 1])
        self.background = nn.Linear(hidden, width)
        self.level = nn.Linear(hidden, 1)

    def forward(
        self,
        x: Float[Tensor, "B N E"],
        remaining: Bool[Tensor, "B N"],
        found: Float[Tensor, "B K E"],
        share: Float[Tensor, "B K"],
        anchor: Float[Tensor, "B 1 E"] | None,
    ) -> Proposal:
        """Propose a cluster: that of the anchor, or of the points that a query drawn from the whole picks out.

        Shares are those that the found clusters have of all points; a cluster without any is none.
        """
        left = remaining.unsqueeze(2).to(x.dtype)
        rest = (self.of_rest(x) * left).sum(dim=1) / left.sum(dim=1).clamp(min=1)
        there = (share > 0).unsqueeze(2).to(x.dtype)
        of_found = (self.of_found(found) * there).sum(dim=1) / there.sum(dim=1).clamp(min=1)
        room = (1 - share.sum(dim=1, keepdim=True)).clamp(min=0)
        state = self.state(torch.cat((rest, of_found, room), dim=1))
        start = self._picked(x, remaining, state) if anchor is None else anchor
        claim = torch.sigmoid(self.share(torch.cat((state, start.squeeze(1)), dim=1)))
        return Proposal(
            reference=self.as_reference(torch.cat((start, found), dim=1)),
            share=torch.cat((room * claim, share, room * (1 - claim)), dim=1),
            background=self.background(state).unsqueeze(1),
            level=self.level(state),
            state=state,
        )

    def _picked(
        self, x: Float[Tensor, "B N E"], remaining: Bool[Tensor, "B N"], state: Float[Tensor, "B G"]
    ) -> Float[Tensor, "B 1 E"]:
        if self.query is None or self.key is None:
            raise ConfigError("A network that couples by anchors needs one anchor for each set.")
        logits = (self.key(x) @ self.query(state).unsqueeze(2)).squeeze(2)
        picked: Tensor = logits.masked_fill(~remaining, NEVER).softmax(dim=1).unsqueeze(1) @ x
        return picked


class Membership(nn.Module):
    """Whether points are in the new cluster: by how much it claims them more than all else, put right by a network."""

    def __init__(self, width: int, hidden: int, state_width: int) -> None:
        super().__init__()
        self.of_point = nn.Linear(width, hidden)
        self.of_distance = nn.Linear(width, hidden, bias=False)
        self.of_cluster = nn.Linear(width + state_width, hidden, bias=False)
        self.of_margin = nn.Linear(1, hidden, bias=False)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(
        self, x: Float[Tensor, "B N E"], claims: Float[Tensor, "B N K+1"], mixed: Mixed
    ) -> Float[Tensor, "B N"]:
        """Logits, given what the references and the background claim of the points."""
        margin = claims[..., :1] - claims[..., 1:].logsumexp(dim=2, keepdim=True)
        own = mixed.mean[:, :1]
        hidden = (
            self.of_point(x)
            + self.of_distance((x - own).square())
            + self.of_cluster(torch.cat((own.squeeze(1), mixed.state), dim=1)).unsqueeze(1)
            + self.of_margin(torch.tanh(margin / WIDE_MARGIN))
        )
        logits: Tensor = margin + self.rest(hidden)
        return logits.squeeze(2)
