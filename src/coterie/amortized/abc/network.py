"""ABC: attention-based clustering (Coward, Visse-Martindale & Ramesh, 2020).

Elements of a set attend to each other, which moves those of one cluster together; a kernel then says of each pair how
probably both are in one cluster. It is learned from labelled sets, and clusters are read off it: by the partition that
such probabilities call for, or by spectral clustering with the number of clusters that the eigenvalues show, as
published.

Letters: B sets, N points, D features, K clusters, H hidden, M points that are kept, R rows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse.linalg import eigsh
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid, one_hot

from coterie.amortized.abc.config import AttentionBasedConfig
from coterie.errors import InputError
from coterie.nn.attention import MAB, AttentionConfig, additive_compatibility
from coterie.nn.model import Loss, Score, SetModel, TaskBatch
from coterie.nn.vision import ElementEncoder
from coterie.ops.correlation import Linkage, average_linkage, calibrated_linkage, contracted, cut_into, linked
from coterie.ops.partitions import Clustering, at_most, by_size, by_value, k_means_start, lloyd

EXACT_UP_TO = 2000
"""Points up to which all eigenvalues are computed; beyond, only the leading ones are, by Lanczos' method."""
LANCZOS_MOST = 100
"""Most clusters that the eigengap tells beyond that, if nothing else is asked for."""

_TIED = 1e-6  # between gaps: what the rounding of a kernel in single precision can make of equal ones
_LANCZOS_ERROR = 1e-9  # of eigenvalues
_LLOYD_ROUNDS = 15  # of 20 steps each: as many as scikit-learn allows


def normalised_affinity(kernel: Float[Tensor, "N N"]) -> Float[Tensor, "N N"]:
    """D^-1/2 A D^-1/2 in double precision, D the sums of the rows of A; its largest eigenvalue is one."""
    roots = _degrees(kernel).sqrt()
    return kernel.detach().double() / roots / roots.unsqueeze(1)


def leading_eigenvalues(affinity: Float[Tensor, "N N"], count: int) -> Float[Tensor, " count"]:
    """The largest eigenvalues, largest first: exact up to 2,000 points, by Lanczos' method beyond."""
    if _is_small(affinity, count):
        rising: Tensor = torch.linalg.eigvalsh(affinity)
        return rising.flip(0)[:count]
    return _lanczos(affinity, count)[0]


def leading_eigenvectors(affinity: Float[Tensor, "N N"], count: int) -> Float[Tensor, "N count"]:
    """Eigenvectors of the largest eigenvalues, largest first, the largest entry of each positive."""
    if _is_small(affinity, count):
        vectors: Tensor = torch.linalg.eigh(affinity).eigenvectors.flip(1)[:, :count]
    else:
        vectors = _lanczos(affinity, count)[1]
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return vectors * torch.where(largest < 0, -1.0, 1.0)


def eigengap(kernel: Float[Tensor, "N N"], most: int | None = None) -> int:
    """Tell the number of clusters by the largest gap between successive eigenvalues.

    With nu_1 >= nu_2 >= ... the eigenvalues of D^-1/2 A D^-1/2, it is the i for which nu_i - nu_(i+1) is largest: k
    clusters far apart have k eigenvalues near one. The paper on attention-based clustering says to sort those of
    L = I - D^-1/2 A D^-1/2 from the largest down, which is the wrong end of the spectrum: few clusters are told by the
    smallest eigenvalues of L, that is the largest ones here. Its authors' code does as this does.

    Parameters
    ----------
    kernel : tensor (N, N)
        Affinities, none negative, symmetric, such as probabilities of pairs to be in one cluster. The diagonal counts.
    most : int, optional
        Largest number to return. If not given, N - 1; 100 beyond 2,000 points.

    Returns
    -------
    int
        Number of clusters. Of equal gaps the first decides, so that it is 1 if no point has to do with another.
    """
    n = len(kernel)
    if most is not None and most < 1:
        raise InputError(f"most={most} leaves no number of clusters to choose; give at least 1, or None.")
    if most is None and n > EXACT_UP_TO:
        most = LANCZOS_MOST
    most = n - 1 if most is None else min(most, n - 1)
    if most < 2:
        return 1
    values = leading_eigenvalues(normalised_affinity(kernel), most + 1)
    gaps = values[:-1] - values[1:]
    return int((gaps >= gaps.max() - _TIED).nonzero()[0]) + 1


def spectral_embedding(kernel: Float[Tensor, "N N"], k: int) -> Float[Tensor, "N k"]:
    """The k leading eigenvectors of the normalised affinity over the roots of the degrees, as scikit-learn has them.

    As there, and unlike in `eigengap`, the diagonal of the kernel is ignored.
    """
    others = kernel.detach().clone().fill_diagonal_(0.0)
    return leading_eigenvectors(normalised_affinity(others), k) / _degrees(others).sqrt().unsqueeze(1)


def spectral_labels(
    kernel: Float[Tensor, "N N"], k: int, generator: Generator, restarts: int = 10
) -> Int[Tensor, " N"]:
    """Group points by k-means in the space of the k leading eigenvectors.

    Parameters
    ----------
    kernel : tensor (N, N)
        Affinities, none negative, symmetric; the diagonal is ignored.
    k : int
        Number of clusters, all of which get a point.
    generator : Generator
        Where k-means begins; on the kernel's device.
    restarts : int
        Starts of k-means, all run at once; the one with the least squared distances is kept.

    Returns
    -------
    int64 tensor (N,)
        Clusters 0..k-1, the largest first.
    """
    n = len(kernel)
    if not 1 <= k <= n:
        raise InputError(f"{n} points cannot be grouped into {k} clusters; ask for 1 to {n}.")
    if restarts < 1:
        raise InputError(f"restarts={restarts} runs no k-means; give at least 1.")
    x = spectral_embedding(kernel, k)
    centres = k_means_start(x, restarts, k, generator)
    for _ in range(_LLOYD_ROUNDS):
        before, centres = centres, lloyd(x, centres)
        if torch.equal(before, centres):
            break
    # (R, N, K), by differences: rounding must not hide what is between points that are close to each other.
    distances = torch.cdist(x.expand(restarts, -1, -1), centres, compute_mode="donot_use_mm_for_euclid_dist").square()
    best = distances.amin(dim=2).sum(dim=1).argmin()
    return by_size(_without_empty(distances[best]))


def _degrees(kernel: Float[Tensor, "N N"]) -> Float[Tensor, " N"]:
    """Sums of the rows in double precision; one where a point has to do with none."""
    degrees = kernel.detach().double().sum(dim=1)
    return torch.where(degrees > 0, degrees, 1.0)


def _is_small(affinity: Float[Tensor, "N N"], count: int) -> bool:
    """Whether all eigenvalues are as well computed: of few points, or if most of them are asked for."""
    return len(affinity) <= EXACT_UP_TO or 2 * count >= len(affinity)


def _lanczos(affinity: Float[Tensor, "N N"], count: int) -> tuple[Float[Tensor, " count"], Float[Tensor, "N count"]]:
    """Largest eigenvalues and their vectors, largest first; what it starts from is fixed, so that the result is."""
    start = np.random.default_rng(0).uniform(0.5, 1.5, len(affinity))
    # Where eigenvalues are equal the search ends early and goes on from numbers of scipy's own choice: so none are.
    distinct = affinity.cpu().numpy() + np.diag(_LANCZOS_ERROR * start)
    values, vectors = eigsh(distinct, count, which="LA", v0=start, tol=_LANCZOS_ERROR)
    order = np.argsort(-values, kind="stable")
    return (
        torch.from_numpy(values[order]).to(affinity.device),
        torch.from_numpy(vectors[:, order]).to(affinity.device),
    )


def _without_empty(distances: Float[Tensor, "N K"]) -> Int[Tensor, " N"]:
    """Nearest centre of each point; a centre without points gets the one that is farthest from its own."""
    nearest = distances.min(dim=1)
    labels, far = nearest.indices, nearest.values.clone()
    sizes = labels.bincount(minlength=distances.shape[1])
    for empty in (sizes == 0).nonzero().flatten().tolist():
        spare = torch.where(sizes[labels] > 1, far, -1.0).argmax()
        sizes[labels[spare]] -= 1
        labels[spare], far[spare] = empty, -1.0
        sizes[empty] = 1
    return labels


BLOCK_ROWS = 2048
"""Points whose memberships are computed at once."""
SAME = 1e-4
"""Distance, per root of the width, below which a point is one of those that were kept."""
NEAR = 4
"""Kept points that are looked at to see whether a point is one of them."""
TELLING = 8
"""Embedded features by which points are put into order."""
LEAD = 1.001
"""How far the own cluster of a kept point is put above the others, where these would be above it."""


@final
class AttentionBasedModel(SetModel):
    """The network that makes a kernel of a set, and how clusters are read off that."""

    Config = AttentionBasedConfig
    config: AttentionBasedConfig

    def __init__(self, config: AttentionBasedConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = ElementEncoder(config.encoder, config.n_features, config.image, config.channels, config.views)
        self.embed = nn.Sequential(
            nn.Linear(self.encoder.out_width, config.width), nn.Tanh(), nn.Linear(config.width, config.width)
        )
        attention = AttentionConfig(
            config.width,
            config.heads,
            scale=config.scale,
            compatibility=config.compatibility,
            residual=config.residual,
            feed_forward=config.feed_forward,
            output_map=config.output_map,
        )
        self.blocks = nn.ModuleList(MAB(config.width, config.width, attention) for _ in range(config.depth))
        self.query = nn.Linear(config.width, config.width)
        self.key = nn.Linear(config.width, config.width)
        self.bend = (
            nn.Parameter(nn.init.uniform_(torch.empty(config.width), -(config.width**-0.5), config.width**-0.5))
            if config.compatibility == "additive"
            else None
        )
        self.offset = nn.Parameter(torch.zeros(())) if config.offset else None

    def encode(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N H"]:
        """Embed each element alone; what costs most for images, and can be kept for other sets of the same elements."""
        embedded: Tensor = self.embed(self.encoder(x, valid))
        return embedded

    def layers(
        self,
        embedded: Float[Tensor, "B N H"],
        valid: Bool[Tensor, "B N"] | None = None,
        adjacency: Float[Tensor, "B N N"] | None = None,
    ) -> list[Float[Tensor, "B N H"]]:
        """The points before each attention block and after the last, each attending to the valid ones of its set."""
        points = [embedded]
        for block in self.blocks:
            points.append(block(points[-1], points[-1], valid, adjacency))
        return points

    def log_odds(
        self, one: Float[Tensor, "B N H"], other: Float[Tensor, "B M H"]
    ) -> tuple[Float[Tensor, "B N M"], Float[Tensor, "B N M"]]:
        """Logits that points of two lists are together, in both directions; each is the other's transpose."""
        forth = self._compatibility(self.query(one), self.key(other))
        back = self._compatibility(self.query(other), self.key(one)).mT
        return forth, back

    def log_probabilities(
        self, one: Float[Tensor, "B N H"], other: Float[Tensor, "B M H"]
    ) -> tuple[Float[Tensor, "B N M"], Float[Tensor, "B N M"]]:
        """Logarithms of the probabilities to be together, and to be apart."""
        forth, back = self.log_odds(one, other)
        if self.config.symmetrise == "logit":
            logit = (forth + back) / 2
            return logsigmoid(logit), logsigmoid(-logit)
        half = math.log(2)
        return (
            torch.logaddexp(logsigmoid(forth), logsigmoid(back)) - half,
            torch.logaddexp(logsigmoid(-forth), logsigmoid(-back)) - half,
        )

    def kernel(
        self,
        x: Float[Tensor, "B N D"],
        valid: Bool[Tensor, "B N"] | None = None,
        adjacency: Float[Tensor, "B N N"] | None = None,
    ) -> Float[Tensor, "B N N"]:
        """Probability of each pair to be in one cluster; attention follows an adjacency, if one is given."""
        return self.kernel_of(self.encode(x, valid), valid, adjacency)

    def kernel_of(
        self,
        embedded: Float[Tensor, "B N H"],
        valid: Bool[Tensor, "B N"] | None = None,
        adjacency: Float[Tensor, "B N N"] | None = None,
    ) -> Float[Tensor, "B N N"]:
        """The same of elements that are embedded already."""
        last = self.layers(embedded, valid, adjacency)[-1]
        return self.log_probabilities(last, last)[0].exp()

    def loss(self, batch: TaskBatch, generator: Generator) -> Loss:  # noqa: ARG002  (nothing is drawn)
        """Cross-entropy of all pairs of points, each with itself included."""
        last = self.layers(self.encode(batch.x, batch.valid), batch.valid)[-1]
        together, apart = self.log_probabilities(last, last)
        same = batch.labels.unsqueeze(2) == batch.labels.unsqueeze(1)
        surprise = -torch.where(same, self.config.pos_weight * together, apart)
        pairs = batch.valid.unsqueeze(2) & batch.valid.unsqueeze(1)
        count = pairs.sum(dim=(1, 2)).clamp(min=1)
        right = (((together > apart) == same) & pairs).sum(dim=(1, 2)) / count
        surprise = torch.where(pairs, surprise, 0.0).sum(dim=(1, 2)) / count
        return Loss(surprise.mean(), {"right_pairs": float(right.mean())})

    def calibrate(self, batches: Sequence[TaskBatch], score: Score) -> AttentionBasedConfig:
        """The configuration with the way to read average linkage that does best."""
        kernels, truths = [], []
        for batch in batches:
            for kernel, labels, valid in zip(self.kernel(batch.x, batch.valid), batch.labels, batch.valid, strict=True):
                kernels.append(kernel[valid][:, valid])
                truths.append(labels[valid])
        return replace(self.config, **calibrated_linkage(kernels, truths, score)._asdict())

    @torch.no_grad()
    def cluster_sets(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> list[Clustering]:
        """Make the kernel of each set, and read its clusters off."""
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        found = []
        for points, there in zip(x, valid, strict=True):
            # Each set goes on with the same draws, lest one depend on those before it.
            source = Generator(device=generator.device).manual_seed(seed)
            labels = torch.full_like(there, -1, dtype=torch.int64)
            if not bool(there.any()):
                found.append(Clustering(labels, 0))
                continue
            own = self.cluster_embedded(self._embedded(points[there]), source)
            labels[there] = own.labels
            found.append(Clustering(labels, own.n_clusters, extras=own.extras))
        return found

    @torch.no_grad()
    def cluster_embedded(self, embedded: Float[Tensor, "N H"], generator: Generator) -> Clustering:
        """Clusters of one set whose elements are embedded already, the largest first."""
        # By value, so that neither what is drawn nor the order of equally large clusters depends on the arrangement.
        all_valid = torch.ones((1, len(embedded)), dtype=torch.bool, device=embedded.device)
        order = by_value(embedded.unsqueeze(0)[:, :, :TELLING], all_valid)[0]
        kept = order[at_most(self.config.max_points, all_valid, generator)[0]]
        layers = torch.cat(self.layers(embedded[kept].unsqueeze(0)))
        kernel = self.log_probabilities(layers[-1:], layers[-1:])[0].exp()[0]
        extras = {"layers": layers, "cluster": self.read_off(kernel, generator), "kept": kept}
        belonging = self._belonging(embedded, extras)
        sizes = belonging.argmax(dim=1).bincount(minlength=belonging.shape[1])
        order = sizes.argsort(descending=True, stable=True)
        n_clusters = int((sizes > 0).sum())
        rank = order.argsort()
        extras["cluster"] = torch.where(rank < n_clusters, rank, -1)[extras["cluster"]]
        return Clustering(self._belonging(embedded, extras).argmax(dim=1), n_clusters, extras=extras)

    @torch.no_grad()
    def memberships(self, x: Float[Tensor, "N D"], found: Clustering) -> Float[Tensor, "N K"]:
        """Mean probability to be with the points of each cluster, over the sum of these means.

        New points attend to those that were kept, which do not attend to them: no row depends on the others.
        """
        if found.n_clusters == 0 or len(x) == 0:
            return x.new_zeros((len(x), found.n_clusters))
        return self._belonging(self._embedded(x), found.extras)

    def read_off(self, kernel: Float[Tensor, "M M"], generator: Generator) -> Int[Tensor, " M"]:
        """Clusters that a kernel calls for."""
        config = self.config
        n_clusters = None if config.n_clusters is None else min(config.n_clusters, len(kernel))
        if config.decoding == "eigengap":
            n_clusters = eigengap(kernel) if n_clusters is None else n_clusters
            return spectral_labels(kernel, n_clusters, generator)
        if n_clusters is None and config.decoding == "contraction":
            return contracted(kernel)
        if n_clusters is None:
            return linked(kernel, Linkage(config.threshold, config.min_cluster_size, config.local_moves))
        return cut_into(average_linkage(kernel), n_clusters)

    def _embedded(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N H"]:
        return torch.cat([self.encode(part.unsqueeze(0))[0] for part in torch.split(x, BLOCK_ROWS)])

    def _belonging(self, embedded: Float[Tensor, "N H"], extras: Mapping[str, Tensor]) -> Float[Tensor, "N K"]:
        """Memberships of embedded points in the clusters of those that were kept; such a one stays in its own."""
        return torch.cat([self._belonging_of_few(part, extras) for part in torch.split(embedded, BLOCK_ROWS)])

    def _belonging_of_few(self, embedded: Float[Tensor, "R H"], extras: Mapping[str, Tensor]) -> Float[Tensor, "R K"]:
        layers, cluster = extras["layers"], extras["cluster"]
        new = embedded.unsqueeze(0)
        for block, kept in zip(self.blocks, layers[:-1], strict=True):
            new = block(new, kept.unsqueeze(0))
        together = self.log_probabilities(new, layers[-1:])[0][0].exp()
        members = one_hot(cluster.clamp(min=0)).to(together.dtype) * (cluster >= 0).unsqueeze(1)
        belonging = together @ members / members.sum(dim=0).clamp(min=1) + torch.finfo(together.dtype).tiny
        # Products, as they are rounded, tell which points may be the same; differences tell whether they are.
        near = torch.cdist(embedded, layers[0]).topk(min(NEAR, len(cluster)), largest=False).indices
        distance, place = (embedded.unsqueeze(1) - layers[0][near]).norm(dim=2).min(dim=1)
        own = cluster[near.gather(1, place.unsqueeze(1)).squeeze(1)]
        is_kept = (distance <= SAME * math.sqrt(embedded.shape[1])) & (own >= 0)
        raised = belonging.scatter(1, own.clamp(min=0).unsqueeze(1), LEAD * belonging.amax(dim=1, keepdim=True))
        belonging = torch.where(is_kept.unsqueeze(1), torch.maximum(raised, belonging), belonging)
        return belonging / belonging.sum(dim=1, keepdim=True)

    def _compatibility(self, query: Tensor, key: Tensor) -> Tensor:
        logits = query @ key.mT if self.bend is None else additive_compatibility(query, key, self.bend)
        return logits if self.offset is None else logits + self.offset
