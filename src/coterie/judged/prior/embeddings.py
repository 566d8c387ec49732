"""Tasks of embeddings: parts of labelled corpora, as they are or changed like another encoder, and synthetic sets.

Letters: N rows, D columns, E columns of another encoder, K classes, Q intrinsic dimensions.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final, final

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import fcluster, linkage
from torch import Generator, Tensor

from coterie.base import one_thread
from coterie.errors import ConfigError
from coterie.judged.prior.sampling import Rng
from coterie.judged.prior.task import SyntheticTask
from coterie.validation import Constraints, Integer, Number, check_parameters

MIN_CLASS_SIZE: Final = 4
_CONSTRAINTS: Final[Mapping[str, Constraints]] = {
    "min_points": Integer(50),
    "max_points": Integer(50),
    "max_clusters": Integer(2),
    "synthetic": Number(0.0, 1.0),
    "structureless": Number(0.0, 1.0),
    "broad": Number(0.0, 1.0),
}
_BISECTIONS = 12
_MIN_MERGED = 4  # classes from which they may be merged
_ORACLE_ROWS = 1000  # rows from which the accuracy of the class means is estimated


@final
@dataclass(frozen=True, slots=True)
class EmbeddingPrior:
    """Distribution of labelled sets of embeddings.

    Corpora are .npz files with the rows as array ``X``, ``Xq`` or ``images``, and the classes as ``y``.

    Examples
    --------
    >>> import torch
    >>> task = EmbeddingPrior(max_points=300).sample_task(torch.Generator().manual_seed(0))
    >>> task.x.shape[0] == task.labels.shape[0]
    True
    """

    metric: ClassVar[str] = "cosine"

    min_points: int = 200
    max_points: int = 4000  # largest number of rows; their number is log-uniform
    max_clusters: int = 300
    corpora: tuple[str, ...] = ()  # files of labelled embeddings, in the folder that COTERIE_DATA names
    synthetic: float = 0.25  # fraction of synthetic sets, if there are corpora
    structureless: float = 0.06  # fraction of sets without clusters
    broad: float = 0.0  # fraction of the other sets whose labels are broad: several similar classes each

    def __post_init__(self) -> None:
        check_parameters(self, _CONSTRAINTS, ConfigError)
        if self.min_points > self.max_points:
            raise ConfigError(f"min_points={self.min_points} must be at most max_points={self.max_points}.")

    def sample_task(self, generator: Generator) -> SyntheticTask:
        """Sample one set, the same for any number of threads."""
        with one_thread():
            rng = Rng(generator)
            if rng.bernoulli(self.structureless):
                return _sample_structureless(self, rng)
            if not self.corpora or rng.bernoulli(self.synthetic):
                task = _sample_synthetic(self, rng)
            else:
                task = _sample_corpus(self.corpora[rng.integer(0, len(self.corpora) - 1)], self, rng)
            is_broad = self.broad > 0.0 and rng.bernoulli(self.broad)
            return _merge_classes(task, rng) if is_broad and task.n_clusters > _MIN_MERGED else task

    def sample_n_points(self, rng: Rng, n_clusters: int) -> int:
        """Sample the number of rows, at least eight for each cluster on average."""
        low = min(max(self.min_points, 2 * MIN_CLASS_SIZE * n_clusters), self.max_points)
        return int(rng.log_scalar(low, self.max_points + 0.999))


@lru_cache(maxsize=16)
def load_corpus(name: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Load the rows (N, D), as they are stored, and the classes (N,) of a corpus."""
    root = os.environ.get("COTERIE_DATA")
    if root is None and not Path(name).is_absolute():
        raise ConfigError(
            f"The corpus {name!r} is read from the folder COTERIE_DATA, which is not set. Set it, or leave out the "
            "setting 'corpora'."
        )
    path = Path(root or "") / name
    if not path.is_file():
        raise ConfigError(f"There is no corpus {str(path)!r}. Check the setting 'corpora'.")
    with np.load(path, allow_pickle=False) as arrays:
        kind = next((kind for kind in ("X", "Xq", "images") if kind in arrays), None)
        if kind is None or "y" not in arrays:
            raise ConfigError(
                f"{str(path)!r} has the arrays {', '.join(arrays)}; a corpus needs X, Xq or images, and y."
            )
        rows = arrays[kind].reshape(len(arrays["y"]), -1)
        if rows.dtype == np.float16:
            rows = rows.astype(np.float32)
        return rows, np.unique(arrays["y"], return_inverse=True)[1].astype(np.int64)


def _sample_corpus(name: str, prior: EmbeddingPrior, rng: Rng) -> SyntheticTask:
    """Sample classes and rows of a corpus, and perhaps change the rows to what another encoder might give."""
    rows, classes = load_corpus(name)
    available = int(classes.max()) + 1
    most = min(available, prior.max_clusters)
    # Many corpora have few classes: all of them are as frequent as any other number.
    count = most if rng.bernoulli(0.2) else int(rng.log_scalar(2, most + 0.999))
    chosen = rng.permutation(available)[:count].numpy()
    sizes = _sample_sizes(count, prior.sample_n_points(rng, count), rng)
    taken = []
    for label, size in zip(chosen, sizes.tolist(), strict=True):
        own = torch.from_numpy(np.flatnonzero(classes == label))
        taken.append(own[rng.permutation(len(own))[: max(size, MIN_CLASS_SIZE)]])
    order = torch.cat(taken)
    labels = torch.repeat_interleave(torch.arange(count), torch.tensor([len(each) for each in taken]))
    shuffled = rng.permutation(len(order))
    x = torch.from_numpy(rows[order[shuffled].numpy()].astype(np.float32))
    return SyntheticTask(_change_encoder(x, rng), labels[shuffled], f"corpus/{Path(name).stem}", {"layout": name})


def _merge_classes(task: SyntheticTask, rng: Rng) -> SyntheticTask:
    """Merge classes with similar means into fewer, as topics have sub-topics."""
    means = torch.zeros(task.n_clusters, task.x.shape[1]).index_add(0, task.labels, task.x)
    means /= torch.bincount(task.labels).unsqueeze(1)
    merged = linkage(torch.nn.functional.normalize(means, dim=1).double().numpy(), "ward")
    count = int(rng.log_scalar(2, task.n_clusters / 2 + 0.999))
    broad = np.unique(fcluster(merged, count, "maxclust"), return_inverse=True)[1]
    labels = torch.from_numpy(broad.astype(np.int64))[task.labels]
    return replace(task, labels=labels, description={**task.description, "merged": float(task.n_clusters)})


def _sample_sizes(count: int, total: int, rng: Rng) -> Int[Tensor, " K"]:
    """Sample the sizes of classes: equal, or long-tailed in half of the sets."""
    exponent = rng.scalar(0.2, 1.2) if rng.bernoulli(0.5) else 0.0
    weights = torch.arange(1, count + 1, dtype=torch.float64) ** -exponent
    return (total * weights / weights.sum()).round().long()


def _change_encoder(x: Float[Tensor, "N D"], rng: Rng) -> Float[Tensor, "N E"]:
    """Leave out, mix, bend, or blur columns in some of the sets; scale rows to length one in half of them."""
    if rng.bernoulli(0.25):
        kept = int(rng.log_scalar(max(32, x.shape[1] // 8), x.shape[1] + 0.999))
        x = x[:, rng.permutation(x.shape[1])[:kept]]
    if rng.bernoulli(0.2):
        width = int(rng.log_scalar(48, 768))
        x = x @ rng.normal(x.shape[1], width) / np.sqrt(x.shape[1])
    if rng.bernoulli(0.15):
        x = x.sign() * x.abs().sqrt()
    if rng.bernoulli(0.25):
        x = x + rng.normal(*x.shape) * x.std() * rng.scalar(0.1, 0.8)
    if rng.bernoulli(0.15):
        x = x - x.mean(dim=0)
    if rng.bernoulli(0.5):
        x = x / x.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return x


def _sample_synthetic(prior: EmbeddingPrior, rng: Rng) -> SyntheticTask:
    """Sample clusters around directions that are themselves grouped, in few of many dimensions.

    The spread within clusters is adjusted until the means of the true clusters would classify a sampled fraction of
    the rows correctly, since labels that nothing reveals teach nothing.
    """
    count = int(rng.log_scalar(2, prior.max_clusters + 0.999))
    n_points = prior.sample_n_points(rng, count)
    count = min(count, n_points // MIN_CLASS_SIZE)
    intrinsic, width = int(rng.log_scalar(5, 60)), int(rng.log_scalar(64, 1024))
    groups = max(1, int(rng.log_scalar(1, count + 0.999)))
    spectrum = torch.arange(1, intrinsic + 1) ** -rng.scalar(0.0, 0.8)
    shared = rng.normal(groups, intrinsic) * rng.scalar(0.0, 1.5)
    means = (shared[rng.integers(0, groups - 1, count)] + rng.normal(count, intrinsic)) * spectrum
    sizes = _sample_sizes(count, n_points, rng).clamp_min(MIN_CLASS_SIZE)
    labels = torch.repeat_interleave(torch.arange(count), sizes)
    labels = labels[rng.permutation(len(labels))]
    # Every cluster is elongated along axes of its own.
    axes = rng.normal(count, intrinsic) * rng.scalar(0.0, 0.7)
    noise = rng.normal(len(labels), intrinsic) * (spectrum * axes.exp())[labels]
    if rng.bernoulli(0.4):
        noise = noise * rng.gamma(torch.full((len(labels), 1), 3.0)).rsqrt() * 1.7  # heavy tails
    noise = noise * (1.0 + rng.uniform(0.0, rng.scalar(0.0, 1.5), count))[labels].unsqueeze(1)
    wanted = rng.scalar(0.5, 1.0)
    low, high = 0.01, 10.0
    for _ in range(_BISECTIONS):
        middle = (low * high) ** 0.5
        right = _oracle_accuracy(means[labels] + middle * noise, means, labels)
        low, high = (middle, high) if right > wanted else (low, middle)
    latent = means[labels] + low * noise
    x = latent @ rng.normal(intrinsic, width) / np.sqrt(intrinsic)
    if rng.bernoulli(0.3):
        x = torch.tanh(x / x.std() * rng.scalar(0.3, 2.0))
    x = (
        x / x.std()
        + rng.normal(1, width) * rng.scalar(0.0, 2.0)
        + rng.normal(len(labels), width) * rng.scalar(0.0, 0.6)
    )
    x = x.clamp_min(0.0) if rng.bernoulli(0.2) else x
    if rng.bernoulli(0.6):
        x = x / x.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return SyntheticTask(x.float(), labels, "embedding/groups", {"layout": "groups", "target": wanted})


def _oracle_accuracy(x: Float[Tensor, "N Q"], means: Float[Tensor, "K Q"], labels: Int[Tensor, " N"]) -> float:
    """Return the fraction of rows whose nearest true mean is that of their cluster."""
    some = slice(_ORACLE_ROWS)
    return float((torch.cdist(x[some], means).argmin(dim=1) == labels[some]).double().mean())


def _sample_structureless(prior: EmbeddingPrior, rng: Rng) -> SyntheticTask:
    """Sample one Gaussian, or one class of a corpus, whose rows have no known groups."""
    if prior.corpora and rng.bernoulli(0.3):
        rows, classes = load_corpus(prior.corpora[rng.integer(0, len(prior.corpora) - 1)])
        own = np.flatnonzero(classes == rng.integer(0, int(classes.max())))
        if len(own) >= prior.min_points:
            x = torch.from_numpy(rows[own[: prior.max_points]].astype(np.float32))
            return SyntheticTask(x, torch.zeros(len(x), dtype=torch.int64), "embedding/one-class", {"layout": "class"})
    n_points, width = prior.sample_n_points(rng, 1), int(rng.log_scalar(64, 1024))
    intrinsic = int(rng.log_scalar(5, 200))
    spectrum = torch.arange(1, intrinsic + 1) ** -rng.scalar(0.0, 1.0)
    latent = rng.normal(n_points, intrinsic) * spectrum
    x = latent @ rng.normal(intrinsic, width) / np.sqrt(intrinsic) + rng.normal(1, width) * rng.scalar(0.0, 2.0)
    x = x + rng.normal(n_points, width) * rng.scalar(0.0, 0.3)
    labels = torch.zeros(n_points, dtype=torch.int64)
    return SyntheticTask(x.float(), labels, "embedding/structureless", {"layout": "gaussian"})
