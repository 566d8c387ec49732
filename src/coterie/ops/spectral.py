"""Spectral clustering of a kernel: how many clusters there are, and which point is in which."""

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse.linalg import eigsh
from torch import Generator, Tensor

from coterie.errors import InputError
from coterie.ops.partition import by_size
from coterie.ops.starts import k_means_start, lloyd

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
