"""NCP: the neural clustering process (Pakman, Wang, Mitelut, Lee & Paninski, 2020), pointwise version.

Points are labelled one after the other. Each may join an existing cluster or open a new one; a network scores these
options from the resulting clusters and from the remaining points. A cluster is represented by the sum of the embeddings
of its members, the remaining points by a sum too, so that order does not matter within either. Several labellings are
sampled in parallel, and the most probable one is returned.

In two places of the published networks, two linear maps follow each other with only a sum between; here each pair is
one map, which can represent the same functions.

Letters: B sets, N points, D features, E features after the encoder, K clusters, H hidden, S labellings, R rows of
options.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import one_hot, pad

from coterie.errors import ConfigError
from coterie.nn.model import Loss, SetModel, TaskBatch
from coterie.nn.vision import ElementEncoder, Encoder
from coterie.ops.partitions import Clustering, lexicographic_order

MEMBERSHIP_ROWS = 4096  # points whose memberships are computed at once

LEAST_GRADIENT = 1e-15  # gradients of a logit below this are set to zero


@dataclass(frozen=True, slots=True)
class NcpConfig:
    """Configuration of NCP; the defaults are ours, ``faithful`` has the published ones."""

    n_features: int  # D
    encoder: Encoder = "identity"  # network that encodes each element by itself
    image: tuple[int, int, int] | None = None  # channels, height and width, if elements are images
    channels: int = 64  # width of that encoder
    width: int = 128  # H
    depth: int = 3  # hidden layers of the networks of points; those of clusters and options have one more
    n_orders: int = 1  # random orders of the points of each training set
    n_samples: int = 10  # sampled labellings of a set, of which the most probable one is returned
    most_clusters: int = 50  # largest number of clusters of a labelling

    def __post_init__(self) -> None:
        for name in ("n_features", "width", "depth", "n_orders", "n_samples", "most_clusters"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1.")

    @classmethod
    def faithful(cls, n_features: int) -> "NcpConfig":
        """Return the published configuration."""
        return cls(n_features, width=128, depth=4, n_orders=6, n_samples=50)


@final
class NcpModel(SetModel):
    """The four networks, the probability of a labelling, and the sampling of labellings."""

    Config = NcpConfig
    config: NcpConfig

    def __init__(self, config: NcpConfig) -> None:
        super().__init__()
        self.config = config
        width, depth = config.width, config.depth
        self.embed = ElementEncoder(config.encoder, config.n_features, config.image, config.channels)
        self.member = _network(self.embed.out_width, width, depth)
        self.later = _network(self.embed.out_width, width, depth)
        self.offset = nn.Parameter(nn.init.uniform_(torch.empty(width), -(width**-0.5), width**-0.5))
        self.cluster_network = nn.Sequential(nn.PReLU(), _network(width, width, depth))
        self.option_network = nn.Sequential(nn.PReLU(), _network(width, width, depth, out=1, bias=False))

    def log_prob(
        self, x: Float[Tensor, "B N D"], labels: Int[Tensor, "B N"], valid: Bool[Tensor, "B N"]
    ) -> Float[Tensor, "B N"]:
        """Compute the log-probability of each label given those before it; padding must come last, and gets 0.

        Labels are known, so that there is no loop over the points: all states of all clusters are computed at once,
        each as the option that was taken at the point that joined it last.
        """
        x, joined_by = self._read(x, valid)
        labels = by_appearance(labels, valid)
        slots = int(labels.max()) + 2
        place = torch.arange(x.shape[1], device=x.device)[:, None]
        taken = one_hot(labels, slots).bool() & valid.unsqueeze(2)
        n_open = pad(labels.cummax(dim=1).values[:, :-1] + 1, (1, 0))
        options = (torch.arange(slots, device=x.device) <= n_open.unsqueeze(2)) & valid.unsqueeze(2)
        rows = options.nonzero(as_tuple=True)

        sums = _before((taken.unsqueeze(3) * joined_by.unsqueeze(2)).cumsum(dim=1))
        as_joined = joined_by.new_zeros(*options.shape, self.config.width)
        as_joined[rows] = self._clusters(sums[rows] + joined_by[rows[:2]])
        # Where each cluster was joined last, counted from 1; 0 before it was opened.
        last = _before(torch.where(taken, place + 1, 0).cummax(dim=1).values)
        index = (last - 1).clamp(min=0).unsqueeze(3).expand(-1, -1, -1, self.config.width)
        as_is = as_joined.gather(1, index) * (last > 0).unsqueeze(3)

        others = as_is.sum(dim=2, keepdim=True) - as_is
        still_to_come = self._still_to_come(x, valid)
        scores = torch.zeros_like(options, dtype=x.dtype).masked_fill(valid.unsqueeze(2) & ~options, -torch.inf)
        of_rows = self._scores(others[rows] + as_joined[rows] + still_to_come[rows[:2]])
        if of_rows.requires_grad:
            of_rows.register_hook(_without_traces)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        scores[rows] = of_rows
        chosen = scores.log_softmax(dim=2).gather(2, labels.unsqueeze(2)).squeeze(2)
        return torch.where(valid, chosen, 0.0)

    def loss(self, batch: TaskBatch, generator: Generator) -> Loss:
        """Compute the negative log-likelihood of the labels per point, in random orders."""
        order = random_orders(batch.x, batch.valid, self.config.n_orders, generator)
        x, labels, valid = (_reorder(part, order) for part in (batch.x, batch.labels, batch.valid))
        nll = -self.log_prob(x, labels, valid).sum(dim=1) / valid.sum(dim=1).clamp(min=1)
        return Loss(nll.mean())

    @torch.no_grad()
    def cluster_sets(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> list[Clustering]:
        """Sample labellings of each set in one random order of its points, and return the most probable."""
        order = random_orders(x, valid, 1, generator)
        sampled, sums = self._sample(_reorder(x, order), _reorder(valid, order), generator)
        labels = torch.empty_like(sampled).scatter_(1, order[:, 0], sampled)
        return [_clustering(labels[i].masked_fill(~valid[i], -1), sums[i]) for i in range(len(x))]

    @torch.no_grad()
    def memberships(self, x: Float[Tensor, "N D"], found: Clustering) -> Float[Tensor, "N K"]:
        """Compute the probability that each point joins each cluster as the last point of the set."""
        sums = found.extras["sums"]
        as_is = self._clusters(sums)
        others = as_is.sum(dim=0, keepdim=True) - as_is
        parts = [
            self._scores(others + self._clusters(sums + self.member(self.embed(part)))).softmax(dim=1)
            for part in torch.split(x.unsqueeze(1), MEMBERSHIP_ROWS)
        ]
        return torch.cat(parts)

    def _sample(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> tuple[Int[Tensor, "B N"], Float[Tensor, "B K H"]]:
        """Return the most probable labelling of each set, and the sums of its clusters."""
        samples, width = self.config.n_samples, self.config.width
        x, joined_by = self._read(x, valid)
        still_to_come = self._still_to_come(x, valid)
        sums = joined_by.new_zeros(len(x), samples, self.config.most_clusters, width)
        as_is = torch.zeros_like(sums)
        n_open = torch.zeros(len(x), samples, dtype=torch.long, device=x.device)
        log_prob = joined_by.new_zeros(len(x), samples)
        labels = torch.zeros(len(x), samples, x.shape[1], dtype=torch.long, device=x.device)
        for n in range(int(valid.sum(dim=1).max())):
            slots = min(int(n_open.max()) + 1, self.config.most_clusters)
            slot = torch.arange(slots, device=x.device)
            options = slot <= n_open.unsqueeze(2)
            rows = options.nonzero(as_tuple=True)
            as_joined = self._clusters(sums[rows] + joined_by[rows[0], n])
            others = as_is[:, :, :slots].sum(dim=2)[rows[:2]] - as_is[rows]
            scores = joined_by.new_full(options.shape, -torch.inf)
            scores[rows] = self._scores(others + as_joined + still_to_come[rows[0], n])
            log_options = scores.log_softmax(dim=2)
            # Sets share the random numbers, so that none depends on its neighbours or its padding.
            uniform = torch.rand(samples, 1, generator=generator, device=generator.device).to(x.device)
            reached = log_options.exp().cumsum(dim=2)
            label = (reached <= uniform * reached[:, :, -1:]).sum(dim=2).minimum(n_open).clamp(max=slots - 1)

            here = valid[:, n, None]
            taken = (slot == label.unsqueeze(2)) & here.unsqueeze(2)
            log_prob += log_options.gather(2, label.unsqueeze(2)).squeeze(2) * here
            labels[:, :, n] = label
            n_open = torch.where(here, n_open.maximum(label + 1), n_open)
            at = taken.nonzero(as_tuple=True)
            sums[at] += joined_by[at[0], n]
            as_is[at] = as_joined[taken[rows]]
        best = log_prob.argmax(dim=1)
        sets = torch.arange(len(x), device=x.device)
        return labels[sets, best], sums[sets, best]

    def _read(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]
    ) -> tuple[Float[Tensor, "B N E"], Float[Tensor, "B N H"]]:
        """Encode points, with zeros for padding, and compute their contributions to the sum of a cluster."""
        embedded = self.embed(x, valid)
        return embedded, self.member(embedded)

    def _still_to_come(self, x: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"]) -> Float[Tensor, "B N H"]:
        """Sum the embeddings of the points after each one."""
        each = self.later(x) * valid.unsqueeze(2)
        return _before(each.flip(1).cumsum(dim=1)).flip(1)

    def _clusters(self, sums: Float[Tensor, "*R H"]) -> Float[Tensor, "*R H"]:
        """Embed clusters from the sums of their members."""
        result: Tensor = self.cluster_network(sums + self.offset)
        return result

    def _scores(self, states: Float[Tensor, "*R H"]) -> Float[Tensor, "*R"]:
        """Compute the logits of options from the sums over clusters and remaining points."""
        scores: Tensor = self.option_network(states)
        return scores.squeeze(-1)


def by_appearance(labels: Int[Tensor, "B N"], valid: Bool[Tensor, "B N"]) -> Int[Tensor, "B N"]:
    """Renumber labels by first occurrence; 0 for padding."""
    labels = labels.masked_fill(~valid, 0)
    place = torch.arange(labels.shape[1], device=labels.device)[:, None]
    there = one_hot(labels).bool() & valid.unsqueeze(2)
    first = torch.where(there, place, labels.shape[1]).amin(dim=1)
    return first.argsort(dim=1).argsort(dim=1).gather(1, labels).masked_fill(~valid, 0)


def random_orders(
    x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], count: int, generator: Generator
) -> Int[Tensor, "B O N"]:
    """Sample orders of the points of each set, padding last, that depend only on their values and the generator.

    Not on how the points are arranged, nor on the padding, nor on the other sets.
    """
    order = lexicographic_order(x, valid)
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    shuffles = torch.arange(x.shape[1]).repeat(len(x), count, 1)
    sizes = valid.sum(dim=1).cpu()
    for size in set(sizes.tolist()):
        draws = Generator().manual_seed(seed)
        shuffles[sizes == size, :, :size] = torch.stack([torch.randperm(size, generator=draws) for _ in range(count)])
    return order.unsqueeze(1).expand(-1, count, -1).gather(2, shuffles.to(x.device))


def _clustering(labels: Int[Tensor, " N"], sums: Float[Tensor, "K H"]) -> Clustering:
    """Return the clusters that have points, the largest first, with their sums."""
    sizes = labels[labels >= 0].bincount(minlength=len(sums))
    order = sizes.argsort(descending=True, stable=True)
    n_clusters = int((sizes > 0).sum())
    renamed = torch.where(labels >= 0, order.argsort()[labels], -1)
    return Clustering(renamed, n_clusters, extras={"sums": sums[order[:n_clusters]]})


def _network(in_width: int, width: int, depth: int, *, out: int | None = None, bias: bool = True) -> nn.Sequential:
    """Build an MLP; the output is as wide as the hidden layers by default."""
    widths = [in_width] + [width] * depth + [width if out is None else out]
    layers: list[nn.Module] = [nn.Linear(widths[0], widths[1], bias=bias)]
    for before, after in pairwise(widths[1:]):
        layers += [nn.PReLU(), nn.Linear(before, after, bias=bias)]
    return nn.Sequential(*layers)


def _without_traces(gradient: Tensor) -> Tensor:
    """Set negligible gradients to zero: most are subnormal for a trained network, which halves the speed."""
    return gradient.masked_fill(gradient.abs() < LEAST_GRADIENT, 0.0)


def _before(running: Tensor) -> Tensor:
    """Shift a running value by one point; zero at the first."""
    return torch.cat([torch.zeros_like(running[:, :1]), running[:, :-1]], dim=1)


def _reorder(part: Tensor, order: Int[Tensor, "B O N"]) -> Tensor:
    """Repeat each set in each of its orders."""
    sets = torch.arange(len(part), device=part.device)[:, None, None]
    return part[sets, order].flatten(0, 1)
