"""Cluster-wise mixing and coupling: unrolled EM of a mixture of unit Gaussians, and the networks around it.

The E-step is a transport plan from points to references. Without constraints on the references it is the usual one;
with them, it is optimal transport. In both cases responsibilities are a softmax of scores plus one offset per
reference, so that points that took no part can be assigned too.

Letters: B sets, N points, K references, J = K + 1 (with the background), E width of an embedding,
R width of a reference, G width of the state.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from coterie.errors import ConfigError
from coterie.ops.sinkhorn import LOG_ZERO, column_potentials, log_mass


def quadratic_scores(x: Float[Tensor, "*B N E"], mean: Float[Tensor, "*B K E"]) -> Float[Tensor, "*B N K"]:
    """Compute minus half the squared distance of every point and reference, without an (N, K, E) tensor."""
    # Centred, since squares of numbers far from zero would leave no digits for their differences.
    centre = mean.mean(dim=-2, keepdim=True)
    x, mean = x - centre, mean - centre
    squares = x.square().sum(dim=-1, keepdim=True) + mean.square().sum(dim=-1).unsqueeze(-2)
    return (x @ mean.mT - 0.5 * squares).clamp(max=0.0)


def e_step(
    scores: Float[Tensor, "*B N K"],
    mass: Float[Tensor, "*B N"],
    proportion: Float[Tensor, "*B K"],
    transport_steps: int,
) -> tuple[Float[Tensor, "*B N K"], Float[Tensor, "*B K"]]:
    """Compute the responsibilities of the references, and the offset of each reference's scores.

    A point counts by its mass; if that is positive, its responsibilities sum to one. Proportions sum to one: without
    transport steps they are a prior, with some they are enforced.
    """
    offset = log_mass(proportion)
    if transport_steps:
        total = mass.sum(dim=-1, keepdim=True)
        offset = column_potentials(scores, mass, proportion * total, transport_steps)
    return (scores + offset.unsqueeze(-2)).softmax(dim=-1) * (mass > 0).unsqueeze(-1), offset


def m_step(
    x: Float[Tensor, "*B N E"],
    weight: Float[Tensor, "*B N K"],
    prior: Float[Tensor, "*B K E"],
    strength: float,
) -> Float[Tensor, "*B K E"]:
    """Compute the M-step in closed form; the prior counts as ``strength`` points."""
    total = weight.sum(dim=-2).unsqueeze(-1)
    return (weight.mT @ x + strength * prior) / (total + strength)


def gradient_m_step(
    decode: Callable[[Tensor], Tensor],
    reference: Float[Tensor, "*B K R"],
    x: Float[Tensor, "*B N E"],
    weight: Float[Tensor, "*B N K"],
    rate: float,
) -> Float[Tensor, "*B K R"]:
    """Compute the M-step of decoded references: one gradient step on the likelihood of the points.

    The gradient of each reference is divided by its total weight, and is itself differentiable.
    """
    mean: Tensor
    mean, vjp = torch.func.vjp(decode, reference)  # type: ignore[misc]  # typed as if it returned more
    total = weight.sum(dim=-2).unsqueeze(-1)
    residual = (weight.mT @ x - total * mean) / total.clamp(min=torch.finfo(total.dtype).tiny)
    (gradient,) = vjp(residual)
    updated: Tensor = reference + rate * gradient
    return updated


def evidence_bound(
    scores: Float[Tensor, "*B N K"], proportion: Float[Tensor, "*B K"], responsibility: Float[Tensor, "*B N K"]
) -> Float[Tensor, "*B"]:
    """Compute the evidence lower bound on the log-likelihood of the points with responsibilities."""
    joint = scores + log_mass(proportion).unsqueeze(-2)
    bound: Tensor = responsibility * joint - torch.special.xlogy(responsibility, responsibility)
    return bound.sum(dim=(-2, -1))


Kernel = Literal["quadratic", "linear", "neural"]
References = Literal["means", "decoded"]
KERNEL_WIDTH = 32  # hidden width of the neural kernel, for every pair of a point and a reference
LEAST_TEMPERATURE = 1e-3
MARGIN_SCALE = 8.0  # difference of logits at which the margin saturates


def feed_forward(widths: list[int], dropout: float = 0.0) -> nn.Sequential:
    """Build linear layers with tanh between them; dropout comes before each except the last."""
    layers: list[nn.Module] = []
    for layer in range(len(widths) - 1):
        last = layer == len(widths) - 2
        if dropout and not last:
            layers.append(nn.Dropout(dropout))
        layers.append(nn.Linear(widths[layer], widths[layer + 1]))
        if not last:
            layers.append(nn.Tanh())
    return nn.Sequential(*layers)


class PairwiseScores(nn.Module):
    """Scores of points with references, over a learned temperature."""

    def __init__(self, width: int, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.log_temperature = nn.Parameter(torch.zeros(()))
        self.map = nn.Linear(width, width, bias=False) if kernel == "linear" else None
        self.of_point = nn.Linear(width, KERNEL_WIDTH) if kernel == "neural" else None
        self.of_mean = nn.Linear(width, KERNEL_WIDTH, bias=False) if kernel == "neural" else None
        self.bend = nn.Linear(KERNEL_WIDTH, 1, bias=False) if kernel == "neural" else None

    def forward(self, x: Float[Tensor, "B N E"], mean: Float[Tensor, "B K E"]) -> Float[Tensor, "B N K"]:
        """Compute the scores of all pairs."""
        scores: Tensor = quadratic_scores(x, mean) if self.map is None else self.map(x) @ mean.mT
        if self.of_point is not None and self.of_mean is not None and self.bend is not None:
            # The network's output is added to the distance, so that training starts from something that works.
            both = torch.tanh(self.of_point(x).unsqueeze(2) + self.of_mean(mean).unsqueeze(1))
            scores = scores + self.bend(both).squeeze(3)
        return scores / (self.log_temperature.exp() + LEAST_TEMPERATURE)


class Coupled(NamedTuple):
    """Output of coupling: initial references, that of the new cluster first, then those found before."""

    reference: Float[Tensor, "B K R"]
    proportion: Float[Tensor, "B J"]  # proportions of the references and, last, of the background
    background: Float[Tensor, "B 1 E"]  # centre of the remaining points
    level: Float[Tensor, "B 1"]  # score of the background there
    state: Float[Tensor, "B G"]  # summary of the remaining points and of the clusters found


class Mixed(NamedTuple):
    """References after mixing, with which any points can be scored."""

    mean: Float[Tensor, "B K E"]
    offset: Float[Tensor, "B K"]  # offset of each reference's scores
    background: Float[Tensor, "B 1 E"]
    level: Float[Tensor, "B 1"]  # score of the background at its centre, including its offset
    state: Float[Tensor, "B G"]


class IntraClusterMixing(nn.Module):
    """IntraCM: a few E- and M-steps for the references and a broad background."""

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
        self.pair_scores = PairwiseScores(width, kernel)
        self.flatness = nn.Parameter(torch.tensor(-3.0))
        self.decoder = feed_forward([width, 2 * width, width], dropout) if references == "decoded" else None

    def decode(self, reference: Float[Tensor, "*B R"]) -> Float[Tensor, "*B E"]:
        """Return the means of references: themselves, or decoded by a network after a sigmoid."""
        if self.decoder is None:
            return reference
        decoded: Tensor = self.decoder(torch.sigmoid(reference))
        return torch.sigmoid(decoded)

    def pair_logits(self, x: Float[Tensor, "B N E"], mixed: Mixed) -> Float[Tensor, "B N J"]:
        """Compute the scores, with offsets, of every point with every reference and, last, with the background."""
        broad = softplus(self.flatness) * quadratic_scores(x, mixed.background) + mixed.level.unsqueeze(2)
        return torch.cat((self.pair_scores(x, mixed.mean) + mixed.offset.unsqueeze(1), broad), dim=2)

    def forward(
        self,
        x: Float[Tensor, "B N E"],
        valid: Bool[Tensor, "B N"],
        coupled: Coupled,
        *,
        steps: int,
        transport_steps: int,
    ) -> Mixed:
        """Move the references to their points by E- and M-steps.

        The E-step is optimal transport with that many Sinkhorn iterations, or the regular one with none.
        """
        mass = valid.to(x.dtype)
        reference = coupled.reference
        zero = torch.zeros_like(coupled.proportion[:, :-1])
        for step in range(steps + 1):
            mixed = Mixed(self.decode(reference), zero, coupled.background, coupled.level, coupled.state)
            responsibility, offset = e_step(self.pair_logits(x, mixed), mass, coupled.proportion, transport_steps)
            if step < steps:
                reference = self._m_step(reference, x, responsibility[..., :-1], coupled.reference)
        return mixed._replace(offset=offset[:, :-1], level=mixed.level + offset[:, -1:])

    def _m_step(self, reference: Tensor, x: Tensor, weight: Tensor, prior: Tensor) -> Tensor:
        if self.decoder is None:
            return m_step(x, weight, prior, self.prior_strength)
        return gradient_m_step(self.decode, reference, x, weight, self.rate)


class InterClusterCoupling(nn.Module):
    """InterCC: propose the next reference from the remaining points and the clusters found."""

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
        proportion: Float[Tensor, "B K"],
        anchor: Float[Tensor, "B 1 E"] | None,
    ) -> Coupled:
        """Propose a reference: the anchor, or a mean of remaining points with attention by a query from the state.

        ``found`` and ``proportion`` are the means and proportions of the clusters found; empty ones have proportion
        zero.
        """
        left = remaining.unsqueeze(2).to(x.dtype)
        rest = (self.of_rest(x) * left).sum(dim=1) / left.sum(dim=1).clamp(min=1)
        present = (proportion > 0).unsqueeze(2).to(x.dtype)
        of_found = (self.of_found(found) * present).sum(dim=1) / present.sum(dim=1).clamp(min=1)
        unassigned = (1 - proportion.sum(dim=1, keepdim=True)).clamp(min=0)
        state = self.state(torch.cat((rest, of_found, unassigned), dim=1))
        start = self._attend(x, remaining, state) if anchor is None else anchor
        new = torch.sigmoid(self.share(torch.cat((state, start.squeeze(1)), dim=1)))
        return Coupled(
            reference=self.as_reference(torch.cat((start, found), dim=1)),
            proportion=torch.cat((unassigned * new, proportion, unassigned * (1 - new)), dim=1),
            background=self.background(state).unsqueeze(1),
            level=self.level(state),
            state=state,
        )

    def _attend(
        self, x: Float[Tensor, "B N E"], remaining: Bool[Tensor, "B N"], state: Float[Tensor, "B G"]
    ) -> Float[Tensor, "B 1 E"]:
        if self.query is None or self.key is None:
            raise ConfigError("A network with filtering='anchored' needs an anchor for each set.")
        logits = (self.key(x) @ self.query(state).unsqueeze(2)).squeeze(2)
        mean: Tensor = logits.masked_fill(~remaining, LOG_ZERO).softmax(dim=1).unsqueeze(1) @ x
        return mean


class Membership(nn.Module):
    """Membership of points in the new cluster: the margin over all else, corrected by a network."""

    def __init__(self, width: int, hidden: int, state_width: int) -> None:
        super().__init__()
        self.of_point = nn.Linear(width, hidden)
        self.of_distance = nn.Linear(width, hidden, bias=False)
        self.of_cluster = nn.Linear(width + state_width, hidden, bias=False)
        self.of_margin = nn.Linear(1, hidden, bias=False)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(
        self, x: Float[Tensor, "B N E"], pair_logits: Float[Tensor, "B N J"], mixed: Mixed
    ) -> Float[Tensor, "B N"]:
        """Compute membership logits from the scores of the references and the background."""
        margin = pair_logits[..., :1] - pair_logits[..., 1:].logsumexp(dim=2, keepdim=True)
        own = mixed.mean[:, :1]
        hidden = (
            self.of_point(x)
            + self.of_distance((x - own).square())
            + self.of_cluster(torch.cat((own.squeeze(1), mixed.state), dim=1)).unsqueeze(1)
            + self.of_margin(torch.tanh(margin / MARGIN_SCALE))
        )
        logits: Tensor = margin + self.rest(hidden)
        return logits.squeeze(2)
