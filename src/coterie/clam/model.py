"""ClAM: clustering with associative memories (Saha, Krotov, Zaki & Ram, 2023).

Prototypes are the memories of an associative network; a point is pulled towards them step by step, and its cluster is
the prototype that it ends nearest to. The prototypes are learned by hiding features and letting the pull complete them.
Every tensor has a leading axis of runs: restarts and hyper-parameters are trained together, as one program.

Letters: R runs, K prototypes, D features, N points, G groups of points that share a mask, P distinct mask rates.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import normalize

from coterie.nn.model import ClusterModel, Loss, PointBatch
from coterie.ops.partitions import Clustering


def fade(steps: int) -> float:
    """Share of the starting point that is left after all steps: (1 - 1/T)^T."""
    return float((1.0 - 1.0 / steps) ** steps)


class _Attract(torch.autograd.Function):
    """Softmax recursion on prototype coefficients; autograd alone would keep five tensors a step where two do."""

    @staticmethod
    def forward(ctx: Any, fixed: Tensor, fading: Tensor | None, gram: Tensor, steps: int) -> Tensor:
        shape = fixed.shape if fading is None else (fixed + fading).shape
        rate = 1.0 / steps
        kept = 1.0
        negligible = torch.finfo(fixed.dtype).eps ** 2
        coefficients = fixed.new_zeros(shape)
        flat_gram = gram.flatten(0, 1)
        path, softmaxes = [], []
        for step in range(steps):
            logits = fixed if fading is None else torch.add(fixed, fading, alpha=kept)
            if step > 0:  # the coefficients start at zero
                logits = torch.baddbmm(logits.expand(shape).flatten(0, 1), flat_gram, coefficients.flatten(0, 1)).view(
                    shape
                )
            weights = torch.softmax(logits.expand(shape), dim=2)
            # What no sum can notice is made zero: denormal numbers would slow the products down tenfold.
            torch.threshold_(weights, negligible, 0.0)
            path.append(coefficients)
            softmaxes.append(weights)
            coefficients = torch.lerp(coefficients, weights, rate)
            kept *= 1.0 - rate
        ctx.save_for_backward(gram, *path, *softmaxes)
        ctx.steps = steps
        ctx.fixed_shape = fixed.shape
        ctx.fading_shape = None if fading is None else fading.shape
        return coefficients

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (grad,) = grad_outputs
        gram, *saved = ctx.saved_tensors
        steps: int = ctx.steps
        path, softmaxes = saved[:steps], saved[steps:]
        rate = 1.0 / steps
        flat_gram_t = gram.flatten(0, 1).transpose(1, 2)
        grad_fixed = torch.zeros_like(grad)
        grad_fading = None if ctx.fading_shape is None else torch.zeros_like(grad)
        grad_gram = torch.zeros_like(gram.flatten(0, 1))
        kept = (1.0 - rate) ** steps
        for step in reversed(range(steps)):
            kept /= (1.0 - rate) if steps > 1 else 1.0
            weights = softmaxes[step]
            grad_logits = grad * weights
            grad_logits.addcmul_(weights, grad_logits.sum(dim=2, keepdim=True), value=-1.0)
            # The factor 1/T of the update goes into the sums below, which saves a pass over the tensor.
            grad_fixed.add_(grad_logits, alpha=rate)
            if grad_fading is not None:
                grad_fading.add_(grad_logits, alpha=rate * kept if step > 0 else rate)
            if step > 0:
                flat_logits = grad_logits.flatten(0, 1)
                grad_gram.baddbmm_(flat_logits, path[step].flatten(0, 1).transpose(1, 2), alpha=rate)
                grad = torch.baddbmm(grad.flatten(0, 1), flat_gram_t, flat_logits, beta=1.0 - rate, alpha=rate).view_as(
                    grad
                )
        return (
            grad_fixed.sum_to_size(ctx.fixed_shape),
            None if grad_fading is None else grad_fading.sum_to_size(ctx.fading_shape),
            grad_gram.view_as(gram),
            None,
        )


def attract(fixed: Tensor, fading: Tensor | None, gram: Tensor, steps: int) -> Tensor:
    """Prototype coefficients after ``steps`` updates, from ``softmax_K(fixed + fade_t fading + gram c)``.

    Parameters
    ----------
    fixed : Tensor (R, G, K, N), broadcastable
        Part of the logits that does not move: prototype norms, log weights, visible features.
    fading : Tensor (R, G, K, N), broadcastable, or None
        Logits of the starting values of the moving features, which fade as the prototypes take over.
    gram : Tensor (R, G, K, K)
        Inner products of the prototypes over the moving features, times 2 beta.
    steps : int
        The number T of updates, each of rate 1/T.

    Returns
    -------
    Tensor (R, G, K, N)
        Coefficients; together with ``fade(steps)`` they sum to one.
    """
    coefficients: Tensor = _Attract.apply(fixed, fading, gram, steps)  # type: ignore[no-untyped-call]  # torch's own
    return coefficients


def descend(
    start: Tensor,
    prototypes: Tensor,
    logits: Callable[[Tensor], Tensor],
    steps: int,
    *,
    moving: Tensor | None = None,
    normalise: bool = False,
) -> list[Tensor]:
    """All iterates of the literal recursion in feature space, the start first.

    Parameters
    ----------
    start : Tensor (R, N, D)
        Where the points begin.
    prototypes : Tensor (R, K, D)
        What attracts them.
    logits : callable (R, N, D) -> (R, N, K)
        How strongly each prototype attracts.
    steps : int
        The number T of updates, each of rate 1/T.
    moving : Tensor (N, D), optional
        One where a coordinate moves, zero where it is held; all move if not given.
    normalise : bool
        Put every iterate back on the unit sphere, and add the pull without subtracting the point (Eq. 12).
    """
    rate = 1.0 / steps
    iterates = [start]
    for _ in range(steps):
        here = iterates[-1]
        pull = torch.softmax(logits(here), dim=-1) @ prototypes
        change = rate * (pull if normalise else pull - here)
        there = here + (change if moving is None else change * moving)
        iterates.append(torch.nn.functional.normalize(there, dim=-1) if normalise else there)
    return iterates


Metric = Literal["euclidean", "manhattan", "cosine", "mahalanobis"]
Objective = Literal["masked", "unmasked"]
Weighting = Literal["equal", "given", "learned"]

BLOCK_ELEMENTS = 1 << 19
"""Largest number of (run, prototype, point) cells that inference holds at once: two megabytes a tensor."""


@dataclass(frozen=True, slots=True)
class ClamConfig:
    """Shape and variant of a ClAM model."""

    n_features: int
    """D."""
    n_prototypes: int
    """K; runs with fewer prototypes leave the last ones unused."""
    n_runs: int = 1
    """R."""
    steps: int = 5
    """T, the number of updates of a point, each of rate 1/T."""
    metric: Metric = "euclidean"
    """What the prototypes attract by: squared Euclidean distance (Eq. 1), Manhattan, cosine (Eq. 12), or squared
    Mahalanobis distance, which is Euclidean after ``whitening``."""
    objective: Objective = "masked"
    """Complete hidden features (Eq. 9), or move whole points (Eq. 8, the ablation)."""
    weighting: Weighting = "equal"
    """Whether prototypes differ in strength (Eq. 10), by given or by learned weights."""
    rows_per_mask: int = 32
    """How many rows of a batch share one mask; 1 gives each its own."""
    legacy_mask: bool = False
    """Draw masks as the authors' code does: int(D p) draws with replacement, never the first feature, and every
    third epoch one mask for a whole batch."""
    plateau: bool = False
    """Authors' rule: cut a run's rate by 0.8 when its loss stalls, and keep the epoch of the smallest loss."""


@final
class ClamModel(ClusterModel[PointBatch]):
    """R sets of K prototypes, each with its own inverse temperature, rate, mask rate and fill values."""

    Config: ClassVar[type[ClamConfig]] = ClamConfig
    config: ClamConfig
    present: Bool[Tensor, "R K"]
    occupied: Bool[Tensor, "R K"]
    beta: Float[Tensor, " R"]
    rate: Float[Tensor, " R"]
    mask_rate: Float[Tensor, " R"]
    fill: Float[Tensor, "R D"]
    centre: Float[Tensor, " D"]
    whitening: Float[Tensor, "D D"]

    def __init__(self, config: ClamConfig) -> None:
        super().__init__()
        self.config = config
        runs, clusters, features = config.n_runs, config.n_prototypes, config.n_features
        self.prototypes = nn.Parameter(torch.zeros(runs, clusters, features))
        self.log_weights = nn.Parameter(torch.zeros(runs, clusters), requires_grad=config.weighting == "learned")
        self.register_buffer("present", torch.ones(runs, clusters, dtype=torch.bool))
        self.register_buffer("occupied", torch.ones(runs, clusters, dtype=torch.bool))
        self.register_buffer("beta", torch.ones(runs))
        self.register_buffer("rate", torch.full((runs,), 0.1))
        self.register_buffer("mask_rate", torch.full((runs,), 0.15))
        self.register_buffer("fill", torch.zeros(runs, features))
        self.register_buffer("centre", torch.zeros(features))  # else squares of far values would drown distances
        if config.metric == "mahalanobis":
            self.register_buffer("whitening", torch.eye(features))
        self.history: list[Tensor] = []
        """Loss of each run, summed over the batches of an epoch; one entry an epoch."""
        self._before_step: list[Tensor] = []
        self._batch_loss = torch.zeros(runs)
        self._epoch_loss = torch.zeros(runs)
        self._ends_epoch = False
        self._best: list[Tensor] = []
        self._least = torch.full((runs,), torch.inf)
        self._stalled = torch.zeros(runs)

    def loss(self, batch: PointBatch, generator: Generator) -> Loss:
        """Eq. 9 (or Eq. 8) of all runs, summed: no run's gradient depends on another's."""
        x = self.enter(batch.x)
        weight = torch.ones_like(x[:, 0]) if batch.weight is None else batch.weight
        per_run = self.row_losses(x, generator) @ weight / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)
        self._batch_loss = per_run.detach()
        self._ends_epoch = batch.ends_epoch
        self._before_step = [value.detach().clone() for value in self._learned()]
        return Loss(per_run.sum(), {"loss": float(self._batch_loss.mean())})

    def row_losses(self, x: Float[Tensor, "N D"], generator: Generator) -> Float[Tensor, "R N"]:
        """Mean over features of the squared error of what each point's features became (absolute, for Manhattan)."""
        if self.config.objective == "unmasked":
            return self._unmasked_losses(x)
        hidden = self._draw_masks(len(x), generator)
        if self._in_span:
            return self._masked_losses(x, hidden)
        moving = hidden.repeat_interleave(self._rows_per_mask(len(x)), dim=1)[:, : len(x)][self._rate_index()]
        start = torch.where(moving.bool(), self.fill.unsqueeze(1), x)
        return self._errors((x - self._iterates(start, moving)[-1]) * moving)

    def after_step(self) -> None:
        """Shorten the optimiser's unit step to each run's own rate, and close the epoch after its last batch."""
        rate = self.rate.clone()
        with torch.no_grad():
            for value, before in zip(self._learned(), self._before_step, strict=True):
                value.copy_(torch.lerp(before, value, rate.view(-1, *[1] * (value.dim() - 1))))
        self._epoch_loss = self._epoch_loss + self._batch_loss
        if self._ends_epoch:
            self.history.append(self._epoch_loss)
            self._epoch_loss = torch.zeros_like(self._epoch_loss)
            if self.config.plateau:
                self._keep_best()
                self._slow_down_stalled_runs()

    def restore_best(self) -> None:
        """Go back to the prototypes of each run's epoch of smallest loss, where these were kept."""
        with torch.no_grad():
            for value, best in zip(self._learned(), self._best, strict=False):
                value.copy_(best)

    def final_loss(self) -> Float[Tensor, " R"]:
        """Loss of each run's prototypes as they are: of the last epoch, or of the best where that was kept."""
        return self._least if self.config.plateau else self.history[-1]

    def _learned(self) -> list[nn.Parameter]:
        return [value for value in (self.prototypes, self.log_weights) if value.requires_grad]

    def _keep_best(self) -> None:
        if not self._best:
            self._best = [value.detach().clone() for value in self._learned()]
        improved = self.history[-1] < self._least
        self._least = torch.minimum(self._least, self.history[-1])
        for value, best in zip(self._learned(), self._best, strict=True):
            best[improved] = value.detach()[improved]

    def _slow_down_stalled_runs(self) -> None:
        window = 10
        if len(self.history) <= window:
            return
        recent = torch.stack(self.history[-window - 1 :])
        gain = recent[:-1].mean(dim=0) - recent[1:].mean(dim=0)
        self._stalled = torch.where(gain < 1e-3, self._stalled + 1, torch.zeros_like(self._stalled))
        slow = self._stalled >= 5
        self._stalled[slow] = 0
        self.rate[slow] *= 0.8
        self.rate[self.rate < 1e-6] = 0.0  # the run has stopped

    def _rows_per_mask(self, rows: int) -> int:
        shared = self.config.legacy_mask and len(self.history) % 3 == 2
        return rows if shared else min(rows, self.config.rows_per_mask)

    def _rate_index(self) -> Int[Tensor, " R"]:
        index: Tensor = torch.unique(self.mask_rate, return_inverse=True)[1]
        return index

    def _draw_masks(self, rows: int, generator: Generator) -> Float[Tensor, "P G D"]:
        """One where a feature is hidden. Rates share their random numbers: runs differ in nothing but the rate."""
        rates = torch.unique(self.mask_rate)
        features = self.config.n_features
        shape = (-(-rows // self._rows_per_mask(rows)), features)
        device = self.prototypes.device
        hidden = torch.zeros(len(rates), *shape, device=device, dtype=self.prototypes.dtype)
        if self.config.legacy_mask and features > 1:
            draws = torch.randint(1, features, shape, generator=generator, device=device)
            for mask, rate in zip(hidden, rates.tolist(), strict=True):
                mask.scatter_(1, draws[:, : int(features * rate)], 1.0)
            return hidden
        noise = torch.rand(shape, generator=generator, device=device)
        # At least one feature is hidden, or narrow tables would teach nothing in most steps.
        least = noise.amin(dim=1, keepdim=True)
        return torch.logical_or(noise < rates.view(-1, 1, 1), noise == least).to(hidden.dtype)

    def _masked_losses(self, x: Tensor, hidden: Float[Tensor, "P G D"]) -> Tensor:
        """Eq. 9 on prototype coefficients: the visible part of x is fixed, the fill value fades."""
        rows, rows_per_mask = len(x), self._rows_per_mask(len(x))
        padded = torch.nn.functional.pad(x, (0, 0, 0, hidden.shape[1] * rows_per_mask - rows))
        points = padded.view(hidden.shape[1], rows_per_mask, -1)
        hidden_part = points * hidden.unsqueeze(2)  # (P, G, N, D)
        visible = self._products(points - hidden_part)
        target = self._products(hidden_part)
        masked = self.prototypes.unsqueeze(1) * hidden[self._rate_index()].unsqueeze(2)  # (R, G, K, D)
        gram = (masked.flatten(1, 2) @ self.prototypes.transpose(1, 2)).view(*masked.shape[:3], -1)
        twice_beta = 2.0 * self.beta.view(-1, 1, 1, 1)
        filled = bool(self.fill.any())
        filling = (masked @ self.fill.view(len(self.fill), 1, -1, 1)) if filled else None  # (R, G, K, 1)
        moved = attract(
            visible * twice_beta + self._offsets(),
            None if filling is None else filling * twice_beta,
            gram * twice_beta,
            self.config.steps,
        )
        squares = hidden_part.square().sum(dim=3)[self._rate_index()]
        error = squares + (moved * (gram @ moved - 2.0 * target)).sum(dim=2)
        if filling is not None:
            kept = fade(self.config.steps)
            fill = self.fill.view(len(self.fill), 1, -1, 1)
            cross = (hidden_part[self._rate_index()] @ fill).squeeze(3)
            fill_squares = (hidden[self._rate_index()] @ self.fill.square().unsqueeze(2)).expand(-1, -1, 1)
            error = error - 2.0 * kept * cross + kept**2 * fill_squares
            error = error + 2.0 * kept * (moved * filling).sum(dim=2)
        losses: Tensor = error.flatten(1)[:, :rows] / self.config.n_features
        return losses

    def _unmasked_losses(self, x: Tensor) -> Tensor:
        """Eq. 8: how far whole points are from where the pull takes them."""
        if not self._in_span:
            start = x.expand(self.config.n_runs, *x.shape)
            return self._errors(x - self._iterates(start)[-1])
        products = self._products(x.expand(1, 1, *x.shape))
        gram = self._gram()
        moved = self._pull(products, gram)
        travelled = 1.0 - fade(self.config.steps)
        error = travelled**2 * x.square().sum(dim=1)
        error = error + (moved * (gram @ moved - 2.0 * travelled * products)).sum(dim=2).squeeze(1)
        return error / self.config.n_features

    def _errors(self, difference: Tensor) -> Tensor:
        size = difference.abs() if self.config.metric == "manhattan" else difference.square()
        return size.mean(dim=2)

    @property
    def _in_span(self) -> bool:
        """Whether the recursion can be run on prototype coefficients."""
        return self.config.metric in {"euclidean", "mahalanobis"}

    def enter(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Take rows to the space in which the prototypes live."""
        if self.config.metric == "cosine":
            return normalize(x, dim=1)
        centred = x - self.centre
        return centred @ self.whitening if self.config.metric == "mahalanobis" else centred

    def leave(self, v: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Take positions in that space back; the lengths that "cosine" forgets stay one."""
        if self.config.metric == "mahalanobis":
            v = torch.linalg.solve(self.whitening, v, left=False)
        return v + self.centre

    def memories(self) -> Float[Tensor, "R K D"]:
        """Prototypes as they attract: on the unit sphere, for "cosine"."""
        return normalize(self.prototypes, dim=2) if self.config.metric == "cosine" else self.prototypes

    def _products(self, points: Float[Tensor, "P G N D"]) -> Float[Tensor, "R G K N"]:
        """Inner products of prototypes and points; one large matrix product where all runs see the same points."""
        runs, clusters, features = self.prototypes.shape
        groups, rows = points.shape[1:3]
        if len(points) == 1:
            flat = self.prototypes.reshape(-1, features) @ points.reshape(-1, features).T
            return flat.view(runs, clusters, groups, rows).transpose(1, 2)
        own = points[self._rate_index()].flatten(1, 2)
        return (self.prototypes @ own.transpose(1, 2)).view(runs, clusters, groups, rows).transpose(1, 2)

    def _gram(self) -> Float[Tensor, "R 1 K K"]:
        return (self.prototypes @ self.prototypes.transpose(1, 2)).unsqueeze(1)

    def _offsets(self) -> Float[Tensor, "R 1 K 1"]:
        """Logits that no point changes: -beta |rho|^2 + log eps; |x|^2 cancels in the softmax."""
        norms = self.prototypes.square().sum(dim=2)
        offsets = self.log_weights - self.beta.unsqueeze(1) * norms
        return offsets.masked_fill(~self.present, -torch.inf).unsqueeze(1).unsqueeze(3)

    def _pull(self, products: Tensor, gram: Tensor) -> Float[Tensor, "R 1 K N"]:
        twice_beta = 2.0 * self.beta.view(-1, 1, 1, 1)
        return attract(self._offsets(), products * twice_beta, gram * twice_beta, self.config.steps)

    def _distances(self, v: Float[Tensor, "R N D"]) -> Float[Tensor, "R N K"]:
        """What the energy holds: |rho - v|^2, |rho - v|_1, or -<rho, v>."""
        memories = self.memories()
        if self.config.metric == "manhattan":
            return torch.cdist(v, memories, p=1.0)
        products = v @ memories.transpose(1, 2)
        if self.config.metric == "cosine":
            return -products
        squares = v.square().sum(dim=2, keepdim=True) + memories.square().sum(dim=2).unsqueeze(1)
        return (squares - 2.0 * products).clamp_min(0.0)

    def _logits(self, v: Tensor) -> Tensor:
        logits = self.log_weights.unsqueeze(1) - self.beta.view(-1, 1, 1) * self._distances(v)
        return logits.masked_fill(~self.present.unsqueeze(1), -torch.inf)

    def _iterates(self, start: Tensor, moving: Tensor | None = None) -> list[Tensor]:
        return descend(
            start,
            self.memories(),
            self._logits,
            self.config.steps,
            moving=moving,
            normalise=self.config.metric == "cosine",
        )

    @torch.no_grad()
    def final_distances(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "R N K"]:
        """Distances of the prototypes from where each point ends; infinite for those that own no cluster."""
        x = self.enter(x)
        if self._in_span:
            products = self._products(x.expand(1, 1, *x.shape))
            gram = self._gram()
            moved = self._pull(products, gram)
            kept = fade(self.config.steps)
            ends = kept * products + gram @ moved  # <rho, v_T>
            squares = kept**2 * x.square().sum(dim=1) + (moved * (ends + kept * products)).sum(dim=2, keepdim=True)
            norms = self.prototypes.square().sum(dim=2)[:, None, :, None]
            distances = (squares + norms - 2.0 * ends).clamp_min(0.0).squeeze(1).transpose(1, 2)
        else:
            distances = self._distances(self._iterates(x.expand(self.config.n_runs, *x.shape))[-1])
        return distances.masked_fill(~(self.present & self.occupied).unsqueeze(1), torch.inf)

    def assign(self, x: Float[Tensor, "N D"]) -> Int[Tensor, "R N"]:
        """Labels of all rows under every run (InferClAM), in blocks of bounded memory."""
        # min() is several times faster than argmin().
        blocks = [self.final_distances(block).min(dim=2).indices for block in self.blocks(x)]
        return torch.cat(blocks, dim=1)

    def cluster(self, x: Tensor, generator: Generator) -> Clustering:  # noqa: ARG002  (nothing is drawn)
        """Clusters of the rows under the first run, with memberships softmax(-beta distance) where points end."""
        labels, memberships = [], []
        for block in self.blocks(x):
            distances = self.final_distances(block)[0]
            labels.append(distances.min(dim=1).indices)
            memberships.append(torch.softmax(-self.beta[0] * distances, dim=1))
        clusters = int((self.present & self.occupied)[0].sum())
        return Clustering(
            torch.cat(labels),
            clusters,
            torch.cat(memberships)[:, :clusters],
            {"prototypes": self.leave(self.memories()[0, :clusters].detach())},
        )

    @torch.no_grad()
    def energy(self, v: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        """Eq. 1, 10 or 12 at each point, under the first run."""
        v = self.enter(v)
        logits = self._logits(v.expand(self.config.n_runs, *v.shape))[0]
        return -torch.logsumexp(logits, dim=1) / self.beta[0]

    @torch.no_grad()
    def entropy(self, x: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        """Eq. 13 at each point, under the first run: how undecided the pull on it is."""
        x = self.enter(x)
        pull = torch.softmax(self._logits(x.expand(self.config.n_runs, *x.shape))[0], dim=1)
        entropies: Tensor = torch.special.entr(pull).sum(dim=1)
        return entropies

    @torch.no_grad()
    def trajectories(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "T N D"]:
        """Every position that the points take, under the first run; T + 1 of them."""
        x = self.enter(x)
        return torch.stack([self.leave(v[0]) for v in self._iterates(x.expand(self.config.n_runs, *x.shape))])

    def blocks(self, x: Tensor) -> tuple[Tensor, ...]:
        """Rows in blocks that bound the memory of inference, whatever N."""
        cells = self.config.n_runs * max(self.config.n_prototypes, self.config.n_features)
        return torch.split(x, max(16, BLOCK_ELEMENTS // cells))

    def take(self, runs: Int[Tensor, " r"], order: Int[Tensor, "r K"] | None = None) -> "ClamModel":
        """Return a new model of some of the runs, each with its prototypes in the given order."""
        taken = ClamModel(replace(self.config, n_runs=len(runs)))
        state = {
            name: value if name in {"centre", "whitening"} else value[runs] for name, value in self.state_dict().items()
        }
        if order is not None:
            for name in ("prototypes", "log_weights", "present", "occupied"):
                index = order.unsqueeze(2).expand_as(state[name]) if name == "prototypes" else order
                state[name] = state[name].gather(1, index)
        taken.load_state_dict(state)
        taken.history = [entry[runs] for entry in self.history]
        return taken.to(self.prototypes.device)
