"""ABC: attention-based clustering (Coward, Visse-Martindale & Ramesh, 2020).

The elements of a set attend to each other, which moves those of one cluster together; a similarity kernel then gives
the probability of each pair to be in one cluster. It is trained on labelled sets, and decoded by correlation clustering
or, as published, by spectral clustering with the number of clusters at the largest eigengap.

Letters: B sets, N points, D features, K clusters, H hidden, M points of the kernel, R rows.
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
from coterie.nn.attention import MAB, AttentionConfig, additive_compatibility, additive_weight
from coterie.nn.model import Loss, Score, SetModel, TaskBatch
from coterie.nn.vision import ElementEncoder
from coterie.ops.correlation import (
    Linkage,
    average_linkage,
    calibrate_linkage,
    cluster_by_linkage,
    contract_edges,
    cut_into,
)
from coterie.ops.partitions import Clustering, k_means_start, lexicographic_order, lloyd, relabel_by_size, subsample
from coterie.validation import NONE, Integer, check_parameter

EXACT_UP_TO = 2000
"""Largest number of points for which all eigenvalues are computed; beyond, the leading ones are, by Lanczos' method."""
LANCZOS_CLUSTERS = 100  # default of the largest number of clusters beyond that

_GAP_TOLERANCE = 1e-6  # equal gaps may differ by this in single precision
_LANCZOS_TOLERANCE = 1e-9
_LLOYD_ROUNDS = 15  # of 20 steps each, the limit of scikit-learn


def normalised_affinity(kernel: Float[Tensor, "N N"]) -> Float[Tensor, "N N"]:
    """Compute D^-1/2 A D^-1/2 in double precision, D being the row sums of A; its largest eigenvalue is one."""
    roots = _degrees(kernel).sqrt()
    return kernel.detach().double() / roots / roots.unsqueeze(1)


def leading_eigenvalues(affinity: Float[Tensor, "N N"], count: int) -> Float[Tensor, " count"]:
    """Compute the largest eigenvalues, largest first."""
    if _is_small(affinity, count):
        rising: Tensor = torch.linalg.eigvalsh(affinity)
        return rising.flip(0)[:count]
    return _lanczos(affinity, count)[0]


def leading_eigenvectors(affinity: Float[Tensor, "N N"], count: int) -> Float[Tensor, "N count"]:
    """Compute the eigenvectors of the largest eigenvalues, largest first, with the largest entry of each positive."""
    if _is_small(affinity, count):
        vectors: Tensor = torch.linalg.eigh(affinity).eigenvectors.flip(1)[:, :count]
    else:
        vectors = _lanczos(affinity, count)[1]
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return vectors * torch.where(largest < 0, -1.0, 1.0)


def eigengap(kernel: Float[Tensor, "N N"], max_clusters: int | None = None) -> int:
    """Estimate the number of clusters by the largest gap between successive eigenvalues.

    With nu_1 >= nu_2 >= ... the eigenvalues of D^-1/2 A D^-1/2, it is the i with the largest nu_i - nu_(i+1): k
    clusters far apart have k eigenvalues near one. The paper sorts the eigenvalues of L = I - D^-1/2 A D^-1/2 from the
    largest down, which is the wrong end of the spectrum; the authors' code does as this does. The diagonal of A counts.
    The first of equal gaps decides, so the number is 1 if no two points are similar. It is at most ``max_clusters``, by
    default N - 1, or 100 beyond 2,000 points.
    """
    n = len(kernel)
    check_parameter("max_clusters", max_clusters, (Integer(1), NONE))
    if max_clusters is None and n > EXACT_UP_TO:
        max_clusters = LANCZOS_CLUSTERS
    max_clusters = n - 1 if max_clusters is None else min(max_clusters, n - 1)
    if max_clusters < 2:
        return 1
    values = leading_eigenvalues(normalised_affinity(kernel), max_clusters + 1)
    gaps = values[:-1] - values[1:]
    return int((gaps >= gaps.max() - _GAP_TOLERANCE).nonzero()[0]) + 1


def spectral_embedding(kernel: Float[Tensor, "N N"], k: int) -> Float[Tensor, "N k"]:
    """Compute the k leading eigenvectors over the square roots of the degrees, as scikit-learn does.

    As there, and unlike in `eigengap`, the diagonal of the kernel is ignored.
    """
    others = kernel.detach().clone().fill_diagonal_(0.0)
    return leading_eigenvectors(normalised_affinity(others), k) / _degrees(others).sqrt().unsqueeze(1)


def spectral_labels(
    kernel: Float[Tensor, "N N"], k: int, generator: Generator, restarts: int = 10
) -> Int[Tensor, " N"]:
    """Cluster points by k-means in the space of the k leading eigenvectors; no cluster is empty, the largest is first.

    The restarts of k-means run at once, and the one with the smallest inertia is kept.
    """
    n = len(kernel)
    if not 1 <= k <= n:
        raise InputError(f"{n} points cannot form {k} clusters; ask for 1 to {n}.")
    check_parameter("restarts", restarts, Integer(1))
    x = spectral_embedding(kernel, k)
    centres = k_means_start(x, restarts, k, generator)
    for _ in range(_LLOYD_ROUNDS):
        before, centres = centres, lloyd(x, centres)
        if torch.equal(before, centres):
            break
    # (R, N, K), from differences: rounding must not hide distances between points that are close together.
    distances = torch.cdist(x.expand(restarts, -1, -1), centres, compute_mode="donot_use_mm_for_euclid_dist").square()
    best = distances.amin(dim=2).sum(dim=1).argmin()
    return relabel_by_size(_fill_empty(distances[best]))


def _degrees(kernel: Float[Tensor, "N N"]) -> Float[Tensor, " N"]:
    """Compute row sums in double precision; one for isolated points."""
    degrees = kernel.detach().double().sum(dim=1)
    return torch.where(degrees > 0, degrees, 1.0)


def _is_small(affinity: Float[Tensor, "N N"], count: int) -> bool:
    """Return whether a full decomposition is no slower: few points, or most eigenvalues wanted."""
    return len(affinity) <= EXACT_UP_TO or 2 * count >= len(affinity)


def _lanczos(affinity: Float[Tensor, "N N"], count: int) -> tuple[Float[Tensor, " count"], Float[Tensor, "N count"]]:
    """Compute the largest eigenvalues and their vectors, largest first, from a fixed start."""
    start = np.random.default_rng(0).uniform(0.5, 1.5, len(affinity))
    # With equal eigenvalues scipy restarts from its own random numbers: this makes them distinct.
    distinct = affinity.cpu().numpy() + np.diag(_LANCZOS_TOLERANCE * start)
    values, vectors = eigsh(distinct, count, which="LA", v0=start, tol=_LANCZOS_TOLERANCE)
    order = np.argsort(-values, kind="stable")
    return (
        torch.from_numpy(values[order]).to(affinity.device),
        torch.from_numpy(vectors[:, order]).to(affinity.device),
    )


def _fill_empty(distances: Float[Tensor, "N K"]) -> Int[Tensor, " N"]:
    """Return the nearest centre of each point; an empty one gets the point farthest from its own centre."""
    nearest = distances.min(dim=1)
    labels, far = nearest.indices, nearest.values.clone()
    sizes = labels.bincount(minlength=distances.shape[1])
    for empty in (sizes == 0).nonzero().flatten().tolist():
        spare = torch.where(sizes[labels] > 1, far, -1.0).argmax()
        sizes[labels[spare]] -= 1
        labels[spare], far[spare] = empty, -1.0
        sizes[empty] = 1
    return labels


BLOCK_ROWS = 2048  # points whose memberships are computed at once
SAME_POINT = 1e-4  # distance, per square root of the width, below which a point is one of the kernel's
NEAREST = 4  # points of the kernel that are compared with a point to see whether it is one of them
SORT_FEATURES = 8  # encoded features by which points are sorted
OWN_CLUSTER_LEAD = 1.001
"""Factor by which the own cluster of a point of the kernel leads the others, where it would not."""


@final
class AttentionBasedModel(SetModel):
    """The kernel network, and the decoding of its kernel."""

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
        self.bend = additive_weight(config.width) if config.compatibility == "additive" else None
        self.offset = nn.Parameter(torch.zeros(())) if config.offset else None

    def encode(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N H"]:
        """Encode each element by itself, the costliest step for images; other sets of them can reuse it."""
        encoded: Tensor = self.embed(self.encoder(x, valid))
        return encoded

    def layers(
        self,
        encoded: Float[Tensor, "B N H"],
        valid: Bool[Tensor, "B N"] | None = None,
        adjacency: Float[Tensor, "B N N"] | None = None,
    ) -> list[Float[Tensor, "B N H"]]:
        """Return the points before each attention block and after the last."""
        points = [encoded]
        for block in self.blocks:
            points.append(block(points[-1], points[-1], valid, adjacency))
        return points

    def logits(
        self, one: Float[Tensor, "B N H"], other: Float[Tensor, "B M H"]
    ) -> tuple[Float[Tensor, "B N M"], Float[Tensor, "B N M"]]:
        """Compute the kernel's logits between two lists of points, in both directions (transposed to match)."""
        forth = self._compatibility(self.query(one), self.key(other))
        back = self._compatibility(self.query(other), self.key(one)).mT
        return forth, back

    def log_probabilities(
        self, one: Float[Tensor, "B N H"], other: Float[Tensor, "B M H"]
    ) -> tuple[Float[Tensor, "B N M"], Float[Tensor, "B N M"]]:
        """Compute the log-probabilities of pairs to be in one cluster, and not to be."""
        forth, back = self.logits(one, other)
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
        """Compute the probability of each pair to be in one cluster; an adjacency restricts attention."""
        return self.kernel_from_encoded(self.encode(x, valid), valid, adjacency)

    def kernel_from_encoded(
        self,
        encoded: Float[Tensor, "B N H"],
        valid: Bool[Tensor, "B N"] | None = None,
        adjacency: Float[Tensor, "B N N"] | None = None,
    ) -> Float[Tensor, "B N N"]:
        """Compute the kernel of encoded elements."""
        last = self.layers(encoded, valid, adjacency)[-1]
        return self.log_probabilities(last, last)[0].exp()

    def loss(self, batch: TaskBatch, generator: Generator) -> Loss:  # noqa: ARG002  (nothing is random)
        """Compute the cross-entropy of all pairs of points, including each with itself."""
        last = self.layers(self.encode(batch.x, batch.valid), batch.valid)[-1]
        together, apart = self.log_probabilities(last, last)
        same = batch.labels.unsqueeze(2) == batch.labels.unsqueeze(1)
        cross_entropy = -torch.where(same, self.config.pos_weight * together, apart)
        pairs = batch.valid.unsqueeze(2) & batch.valid.unsqueeze(1)
        count = pairs.sum(dim=(1, 2)).clamp(min=1)
        right = (((together > apart) == same) & pairs).sum(dim=(1, 2)) / count
        cross_entropy = torch.where(pairs, cross_entropy, 0.0).sum(dim=(1, 2)) / count
        return Loss(cross_entropy.mean(), {"right_pairs": float(right.mean())})

    def calibrate(self, batches: Sequence[TaskBatch], score: Score) -> AttentionBasedConfig:
        """Return the configuration with the linkage settings that score best."""
        kernels, true = [], []
        for batch in batches:
            for kernel, labels, valid in zip(self.kernel(batch.x, batch.valid), batch.labels, batch.valid, strict=True):
                kernels.append(kernel[valid][:, valid])
                true.append(labels[valid])
        return replace(self.config, **calibrate_linkage(kernels, true, score)._asdict())

    @torch.no_grad()
    def cluster_sets(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> list[Clustering]:
        """Compute and decode the kernel of each set."""
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        clusterings = []
        for points, mask in zip(x, valid, strict=True):
            # Each set continues from the same seed, so that none depends on those before it.
            source = Generator(device=generator.device).manual_seed(seed)
            labels = torch.full_like(mask, -1, dtype=torch.int64)
            if not bool(mask.any()):
                clusterings.append(Clustering(labels, 0))
                continue
            own = self.cluster_encoded(self._encode_rows(points[mask]), source)
            labels[mask] = own.labels
            clusterings.append(Clustering(labels, own.n_clusters, extras=own.extras))
        return clusterings

    @torch.no_grad()
    def cluster_encoded(self, encoded: Float[Tensor, "N H"], generator: Generator) -> Clustering:
        """Cluster one encoded set, the largest cluster first."""
        # Sorted, so that neither the sample nor the order of equally large clusters depends on the order of the points.
        all_valid = torch.ones((1, len(encoded)), dtype=torch.bool, device=encoded.device)
        order = lexicographic_order(encoded.unsqueeze(0)[:, :, :SORT_FEATURES], all_valid)[0]
        kept = order[subsample(self.config.max_points, all_valid, generator)[0]]
        layers = torch.cat(self.layers(encoded[kept].unsqueeze(0)))
        kernel = self.log_probabilities(layers[-1:], layers[-1:])[0].exp()[0]
        extras = {"layers": layers, "cluster": self.decode_kernel(kernel, generator), "kept": kept}
        memberships = self._memberships(encoded, extras)
        sizes = memberships.argmax(dim=1).bincount(minlength=memberships.shape[1])
        order = sizes.argsort(descending=True, stable=True)
        n_clusters = int((sizes > 0).sum())
        rank = order.argsort()
        extras["cluster"] = torch.where(rank < n_clusters, rank, -1)[extras["cluster"]]
        return Clustering(self._memberships(encoded, extras).argmax(dim=1), n_clusters, extras=extras)

    @torch.no_grad()
    def memberships(self, x: Float[Tensor, "N D"], clustering: Clustering) -> Float[Tensor, "N K"]:
        """Compute the mean probability with the points of each cluster, normalised over clusters.

        New points attend to those of the kernel, but not vice versa: no row depends on the others.
        """
        if clustering.n_clusters == 0 or len(x) == 0:
            return x.new_zeros((len(x), clustering.n_clusters))
        return self._memberships(self._encode_rows(x), clustering.extras)

    def decode_kernel(self, kernel: Float[Tensor, "M M"], generator: Generator) -> Int[Tensor, " M"]:
        """Decode a kernel into clusters."""
        config = self.config
        n_clusters = None if config.n_clusters is None else min(config.n_clusters, len(kernel))
        if config.decoding == "eigengap":
            n_clusters = eigengap(kernel) if n_clusters is None else n_clusters
            return spectral_labels(kernel, n_clusters, generator)
        if n_clusters is None and config.decoding == "contraction":
            return contract_edges(kernel)
        if n_clusters is None:
            return cluster_by_linkage(kernel, Linkage(config.threshold, config.min_cluster_size, config.local_moves))
        return cut_into(average_linkage(kernel), n_clusters)

    def _encode_rows(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N H"]:
        return torch.cat([self.encode(part.unsqueeze(0))[0] for part in torch.split(x, BLOCK_ROWS)])

    def _memberships(self, encoded: Float[Tensor, "N H"], extras: Mapping[str, Tensor]) -> Float[Tensor, "N K"]:
        """Compute memberships in the clusters of the kernel's points, in blocks; such a point stays in its own."""
        return torch.cat([self._block_memberships(part, extras) for part in torch.split(encoded, BLOCK_ROWS)])

    def _block_memberships(self, encoded: Float[Tensor, "R H"], extras: Mapping[str, Tensor]) -> Float[Tensor, "R K"]:
        layers, cluster = extras["layers"], extras["cluster"]
        new = encoded.unsqueeze(0)
        for block, kept in zip(self.blocks, layers[:-1], strict=True):
            new = block(new, kept.unsqueeze(0))
        together = self.log_probabilities(new, layers[-1:])[0][0].exp()
        members = one_hot(cluster.clamp(min=0)).to(together.dtype) * (cluster >= 0).unsqueeze(1)
        memberships = together @ members / members.sum(dim=0).clamp(min=1) + torch.finfo(together.dtype).tiny
        # Rounded products show which points may be the same; differences decide.
        near = torch.cdist(encoded, layers[0]).topk(min(NEAREST, len(cluster)), largest=False).indices
        distance, position = (encoded.unsqueeze(1) - layers[0][near]).norm(dim=2).min(dim=1)
        own = cluster[near.gather(1, position.unsqueeze(1)).squeeze(1)]
        is_kept = (distance <= SAME_POINT * math.sqrt(encoded.shape[1])) & (own >= 0)
        raised = memberships.scatter(
            1, own.clamp(min=0).unsqueeze(1), OWN_CLUSTER_LEAD * memberships.amax(dim=1, keepdim=True)
        )
        memberships = torch.where(is_kept.unsqueeze(1), torch.maximum(raised, memberships), memberships)
        return memberships / memberships.sum(dim=1, keepdim=True)

    def _compatibility(self, query: Tensor, key: Tensor) -> Tensor:
        logits = query @ key.mT if self.bend is None else additive_compatibility(query, key, self.bend)
        return logits if self.offset is None else logits + self.offset
