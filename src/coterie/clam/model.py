"""ClAM: clustering with associative memories (Saha, Krotov, Zaki & Ram, ICML 2023).

Prototypes rho are the memories of an associative memory (AM) network. The AM recursion (Eq. 4) moves a point v down the
energy (Eq. 1) for T steps; its cluster is the prototype nearest to the end. Prototypes are learned by masking features
and completing them with the same recursion (Eq. 9). Restarts and hyper-parameters are trained together, as one program.

Shapes: R runs, K prototypes, D features, N points, G groups of points that share a mask, P distinct mask rates.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import normalize, pad

from coterie.nn.model import ClusterModel, Loss, PointBatch
from coterie.ops.partitions import Clustering

Metric = Literal["euclidean", "manhattan", "cosine", "mahalanobis"]
Objective = Literal["masked", "unmasked"]
Weighting = Literal["equal", "given", "learned"]

BLOCK_ELEMENTS = 1 << 19  # most (run, prototype, point) cells that inference holds at once: 2 MB per tensor
# The authors' plateau rule: epochs averaged, smallest improvement, epochs without it before the rate is reduced.
PLATEAU_WINDOW, PLATEAU_GAIN, PLATEAU_PATIENCE = 10, 1e-3, 5
PLATEAU_FACTOR, SMALLEST_RATE = 0.8, 1e-6


def residual(steps: int) -> float:
    """Return the weight of the starting point after T steps, (1 - 1/T)^T."""
    return float((1.0 - 1.0 / steps) ** steps)


class _CoefficientRecursion(torch.autograd.Function):
    """The AM recursion on coefficients; its gradient stores two tensors per step where autograd would store five."""

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
                flat_logits = logits.expand(shape).flatten(0, 1)
                logits = torch.baddbmm(flat_logits, flat_gram, coefficients.flatten(0, 1)).view(shape)
            weights = torch.softmax(logits.expand(shape), dim=2)
            # Weights below rounding are set to zero: denormal numbers would slow the products down tenfold.
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
            # The factor 1/T of the update is applied in the sums below, which saves a pass over the tensor.
            grad_fixed.add_(grad_logits, alpha=rate)
            if grad_fading is not None:
                grad_fading.add_(grad_logits, alpha=rate * kept if step > 0 else rate)
            if step > 0:
                flat_logits = grad_logits.flatten(0, 1)
                grad_gram.baddbmm_(flat_logits, path[step].flatten(0, 1).transpose(1, 2), alpha=rate)
                flat_grad = grad.flatten(0, 1)
                grad = torch.baddbmm(flat_grad, flat_gram_t, flat_logits, beta=1.0 - rate, alpha=rate).view_as(grad)
        return (
            grad_fixed.sum_to_size(ctx.fixed_shape),
            None if grad_fading is None else grad_fading.sum_to_size(ctx.fading_shape),
            grad_gram.view_as(gram),
            None,
        )


def recursion_coefficients(fixed: Tensor, fading: Tensor | None, gram: Tensor, steps: int) -> Tensor:
    """Run the AM recursion (Eq. 4) on prototype coefficients c, where v^t = (1 - 1/T)^t v^0 + sum_mu c_mu rho_mu.

    The softmax of Eq. 4 depends on inner products only, so no step touches the features:
    c <- c + (1/T) (softmax_K(fixed + (1 - 1/T)^t fading + gram c) - c).

    The logits (R, G, K, N) are ``fixed`` (prototype norms, log weights, visible features) or ``fading`` (initial values
    of the moving features); ``gram`` (R, G, K, K) has the inner products of the prototypes over the moving features,
    times 2 beta. The coefficients (R, G, K, N) and ``residual(steps)`` sum to one.
    """
    coefficients: Tensor = _CoefficientRecursion.apply(fixed, fading, gram, steps)  # type: ignore[no-untyped-call]  # torch's own
    return coefficients


def am_recursion(
    start: Tensor,
    prototypes: Tensor,
    logits: Callable[[Tensor], Tensor],
    steps: int,
    *,
    moving: Tensor | None = None,
    spherical: bool = False,
) -> list[Tensor]:
    """Run the AM recursion (Eq. 4) in feature space and return all iterates v^0, ..., v^T, each (R, N, D).

    ``logits`` maps an iterate to the arguments (R, N, K) of the softmax. ``moving`` is one where a coordinate moves and
    zero where it is fixed; by default all move. ``spherical`` (below Eq. 12) normalises every iterate.
    """
    rate = 1.0 / steps  # dt/tau
    iterates = [start]
    for _ in range(steps):
        v = iterates[-1]
        attraction = torch.softmax(logits(v), dim=-1) @ prototypes
        delta = rate * (attraction if spherical else attraction - v)
        v = v + (delta if moving is None else delta * moving)
        iterates.append(normalize(v, dim=-1) if spherical else v)
    return iterates


@dataclass(frozen=True, slots=True)
class ClamConfig:
    """Shape and variant of a ClAM model."""

    n_features: int  # D
    n_prototypes: int  # K; runs with fewer prototypes leave the last ones unused
    n_runs: int = 1  # R
    steps: int = 5  # T, the recursion depth; dt/tau is 1/T
    metric: Metric = "euclidean"  # distance in the energy (Eq. 1, 12); Mahalanobis is Euclidean after ``whitening``
    objective: Objective = "masked"  # pattern completion (Eq. 9), or the ablation without masks (Eq. 8).
    weighting: Weighting = "equal"  # prototype weights epsilon (Eq. 10): all one, given, or learned.
    rows_per_mask: int = 32  # rows of a batch that share one mask
    # The authors' masks: int(D p) indices with replacement, never the first feature; one per batch every third epoch.
    legacy_mask: bool = False
    plateau: bool = False  # the authors' rule: reduce the rate when the loss stalls, and keep the best epoch


@final
class ClamModel(ClusterModel[PointBatch]):
    """R sets of K prototypes, each with its own beta, learning rate, mask rate and fill values."""

    Config: ClassVar[type[ClamConfig]] = ClamConfig
    config: ClamConfig
    present: Bool[Tensor, "R K"]  # which prototypes a run has
    occupied: Bool[Tensor, "R K"]  # which prototypes own at least one training row
    beta: Float[Tensor, " R"]
    rate: Float[Tensor, " R"]  # learning rates
    mask_rate: Float[Tensor, " R"]
    fill: Float[Tensor, "R D"]  # initial values of masked features
    centre: Float[Tensor, " D"]  # subtracted from all rows, so that squares of distant values do not lose precision
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
        self.register_buffer("centre", torch.zeros(features))
        if config.metric == "mahalanobis":
            self.register_buffer("whitening", torch.eye(features))
        self.history: list[Tensor] = []  # loss of each run, summed over the batches; one entry per epoch
        self._before_step: list[Tensor] = []
        self._batch_loss = self._epoch_loss = torch.zeros(runs)
        self._ends_epoch = False
        self._best: list[Tensor] = []
        self._best_loss = torch.full((runs,), torch.inf)
        self._stalled = torch.zeros(runs)

    def loss(self, batch: PointBatch, generator: Generator) -> Loss:
        """Sum Eq. 9 (or Eq. 8) over the runs, whose gradients do not depend on each other."""
        x = self.to_memory_space(batch.x)
        weight = torch.ones_like(x[:, 0]) if batch.weight is None else batch.weight
        per_run = self.pointwise_loss(x, generator) @ weight / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)
        self._batch_loss = per_run.detach()
        self._ends_epoch = batch.ends_epoch
        self._before_step = [value.detach().clone() for value in self._trained_parameters()]
        return Loss(per_run.sum(), {"loss": float(self._batch_loss.mean())})

    def pointwise_loss(self, x: Float[Tensor, "N D"], generator: Generator) -> Float[Tensor, "R N"]:
        """Compute each point's term of Eq. 9 (or Eq. 8), averaged over features; absolute errors for Manhattan."""
        if self.config.objective == "unmasked":
            return self._unmasked_loss(x)
        hidden = self._sample_masks(len(x), generator)
        if self._uses_coefficients:
            return self._masked_loss(x, hidden)
        moving = hidden.repeat_interleave(self._rows_per_mask(len(x)), dim=1)[:, : len(x)][self._mask_rate_index()]
        start = torch.where(moving.bool(), self.fill.unsqueeze(1), x)
        return self._mean_error((x - self._iterates(start, moving)[-1]) * moving)

    def after_step(self) -> None:
        """Scale the optimiser's step, taken at rate 1, by each run's rate; after the last batch, end the epoch."""
        rate = self.rate.clone()
        with torch.no_grad():
            for value, before in zip(self._trained_parameters(), self._before_step, strict=True):
                value.copy_(torch.lerp(before, value, rate.view(-1, *[1] * (value.dim() - 1))))
        self._epoch_loss = self._epoch_loss + self._batch_loss
        if self._ends_epoch:
            self.history.append(self._epoch_loss)
            self._epoch_loss = torch.zeros_like(self._epoch_loss)
            if self.config.plateau:
                self._track_best()
                self._reduce_rate_on_plateau()

    def restore_best(self) -> None:
        """Restore the prototypes of each run's best epoch, if ``plateau`` tracked them."""
        with torch.no_grad():
            for value, best in zip(self._trained_parameters(), self._best, strict=False):
                value.copy_(best)

    def final_loss(self) -> Float[Tensor, " R"]:
        """Return the loss of each run: of the best epoch with ``plateau``, otherwise of the last one."""
        return self._best_loss if self.config.plateau else self.history[-1]

    def _trained_parameters(self) -> list[nn.Parameter]:
        return [value for value in (self.prototypes, self.log_weights) if value.requires_grad]

    def _track_best(self) -> None:
        if not self._best:
            self._best = [value.detach().clone() for value in self._trained_parameters()]
        improved = self.history[-1] < self._best_loss
        self._best_loss = torch.minimum(self._best_loss, self.history[-1])
        for value, best in zip(self._trained_parameters(), self._best, strict=True):
            best[improved] = value.detach()[improved]

    def _reduce_rate_on_plateau(self) -> None:
        if len(self.history) <= PLATEAU_WINDOW:
            return
        recent = torch.stack(self.history[-PLATEAU_WINDOW - 1 :])
        gain = recent[:-1].mean(dim=0) - recent[1:].mean(dim=0)
        self._stalled = torch.where(gain < PLATEAU_GAIN, self._stalled + 1, torch.zeros_like(self._stalled))
        slow = self._stalled >= PLATEAU_PATIENCE
        self._stalled[slow] = 0
        self.rate[slow] *= PLATEAU_FACTOR
        self.rate[self.rate < SMALLEST_RATE] = 0.0  # the run has stopped

    def _rows_per_mask(self, rows: int) -> int:
        shared = self.config.legacy_mask and len(self.history) % 3 == 2
        return rows if shared else min(rows, self.config.rows_per_mask)

    def _mask_rate_index(self) -> Int[Tensor, " R"]:
        index: Tensor = torch.unique(self.mask_rate, return_inverse=True)[1]
        return index

    def _sample_masks(self, rows: int, generator: Generator) -> Float[Tensor, "P G D"]:
        """Sample the complement of the mask m: one where a feature is hidden. All rates use the same random numbers."""
        rates = torch.unique(self.mask_rate)
        features = self.config.n_features
        shape = (-(-rows // self._rows_per_mask(rows)), features)
        device = self.prototypes.device
        hidden = torch.zeros(len(rates), *shape, device=device, dtype=self.prototypes.dtype)
        if self.config.legacy_mask and features > 1:
            index = torch.randint(1, features, shape, generator=generator, device=device)
            for mask, rate in zip(hidden, rates.tolist(), strict=True):
                mask.scatter_(1, index[:, : int(features * rate)], 1.0)
            return hidden
        noise = torch.rand(shape, generator=generator, device=device)
        # Hide at least one feature: with few columns, most steps would otherwise have nothing to complete.
        smallest = noise == noise.amin(dim=1, keepdim=True)
        return torch.logical_or(noise < rates.view(-1, 1, 1), smallest).to(hidden.dtype)

    def _masked_loss(self, x: Tensor, hidden: Float[Tensor, "P G D"]) -> Tensor:
        """Compute Eq. 9 from prototype coefficients: visible features give fixed logits, fill values fading ones."""
        rows, rows_per_mask = len(x), self._rows_per_mask(len(x))
        padded = pad(x, (0, 0, 0, hidden.shape[1] * rows_per_mask - rows))
        points = padded.view(hidden.shape[1], rows_per_mask, -1)
        hidden_part = points * hidden.unsqueeze(2)  # (P, G, N, D)
        visible = self._inner_products(points - hidden_part)
        target = self._inner_products(hidden_part)
        masked = self.prototypes.unsqueeze(1) * hidden[self._mask_rate_index()].unsqueeze(2)  # (R, G, K, D)
        gram = (masked.flatten(1, 2) @ self.prototypes.transpose(1, 2)).view(*masked.shape[:3], -1)
        twice_beta = 2.0 * self.beta.view(-1, 1, 1, 1)
        fill = self.fill.view(len(self.fill), 1, -1, 1)
        filling = (masked @ fill) if bool(self.fill.any()) else None  # (R, G, K, 1)
        fixed = visible * twice_beta + self._prototype_logits()
        fading = None if filling is None else filling * twice_beta
        c = recursion_coefficients(fixed, fading, gram * twice_beta, self.config.steps)
        squares = hidden_part.square().sum(dim=3)[self._mask_rate_index()]
        error = squares + (c * (gram @ c - 2.0 * target)).sum(dim=2)
        if filling is not None:
            left = residual(self.config.steps)
            cross = (hidden_part[self._mask_rate_index()] @ fill).squeeze(3)
            fill_squares = (hidden[self._mask_rate_index()] @ self.fill.square().unsqueeze(2)).expand(-1, -1, 1)
            error = error - 2.0 * left * cross + left**2 * fill_squares
            error = error + 2.0 * left * (c * filling).sum(dim=2)
        losses: Tensor = error.flatten(1)[:, :rows] / self.config.n_features
        return losses

    def _unmasked_loss(self, x: Tensor) -> Tensor:
        """Compute Eq. 8, the distance between x and x^T."""
        if not self._uses_coefficients:
            return self._mean_error(x - self._iterates(x.expand(self.config.n_runs, *x.shape))[-1])
        products, gram, c = self._coefficients(x)
        covered = 1.0 - residual(self.config.steps)
        error = covered**2 * x.square().sum(dim=1)
        error = error + (c * (gram @ c - 2.0 * covered * products)).sum(dim=2).squeeze(1)
        return error / self.config.n_features

    def _mean_error(self, difference: Tensor) -> Tensor:
        return (difference.abs() if self.config.metric == "manhattan" else difference.square()).mean(dim=2)

    @property
    def _uses_coefficients(self) -> bool:
        """Whether the softmax of Eq. 4 depends on inner products only."""
        return self.config.metric in {"euclidean", "mahalanobis"}

    def to_memory_space(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Map rows to the space of the prototypes: centred, whitened (Mahalanobis) or on the unit sphere (cosine)."""
        if self.config.metric == "cosine":
            return normalize(x, dim=1)
        centred = x - self.centre
        return centred @ self.whitening if self.config.metric == "mahalanobis" else centred

    def from_memory_space(self, v: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Invert ``to_memory_space``, except for the norms that cosine discards."""
        if self.config.metric == "mahalanobis":
            v = torch.linalg.solve(self.whitening, v, left=False)
        return v + self.centre

    def memories(self) -> Float[Tensor, "R K D"]:
        """Return the prototypes as the energy uses them: normalised for cosine (Eq. 12)."""
        return normalize(self.prototypes, dim=2) if self.config.metric == "cosine" else self.prototypes

    def _inner_products(self, points: Float[Tensor, "P G N D"]) -> Float[Tensor, "R G K N"]:
        """Compute <rho, x>, as one matrix product if all runs have the same points."""
        runs, clusters, features = self.prototypes.shape
        groups, rows = points.shape[1:3]
        if len(points) == 1:
            flat = self.prototypes.reshape(-1, features) @ points.reshape(-1, features).T
            return flat.view(runs, clusters, groups, rows).transpose(1, 2)
        own = points[self._mask_rate_index()].flatten(1, 2)
        return (self.prototypes @ own.transpose(1, 2)).view(runs, clusters, groups, rows).transpose(1, 2)

    def _prototype_logits(self) -> Float[Tensor, "R 1 K 1"]:
        """Return log epsilon - beta |rho|^2, the logits that do not depend on v; |v|^2 cancels in the softmax."""
        logits = self.log_weights - self.beta.unsqueeze(1) * self.prototypes.square().sum(dim=2)
        return logits.masked_fill(~self.present, -torch.inf).unsqueeze(1).unsqueeze(3)

    def _coefficients(
        self, x: Float[Tensor, "N D"]
    ) -> tuple[Float[Tensor, "R 1 K N"], Float[Tensor, "R 1 K K"], Float[Tensor, "R 1 K N"]]:
        """Run the recursion on unmasked points; return <rho, x>, the Gram matrix of the prototypes, and c."""
        products = self._inner_products(x.expand(1, 1, *x.shape))
        gram = (self.prototypes @ self.prototypes.transpose(1, 2)).unsqueeze(1)
        twice_beta = 2.0 * self.beta.view(-1, 1, 1, 1)
        fading, steps = products * twice_beta, self.config.steps
        return products, gram, recursion_coefficients(self._prototype_logits(), fading, gram * twice_beta, steps)

    def _distances(self, v: Float[Tensor, "R N D"]) -> Float[Tensor, "R N K"]:
        """Compute the distances in the energy: |rho - v|^2 (Eq. 1), |rho - v|_1, or -<rho, v> (Eq. 12)."""
        memories = self.memories()
        if self.config.metric == "manhattan":
            return torch.cdist(v, memories, p=1.0)
        products = v @ memories.transpose(1, 2)
        if self.config.metric == "cosine":
            return -products
        squares = v.square().sum(dim=2, keepdim=True) + memories.square().sum(dim=2).unsqueeze(1)
        return (squares - 2.0 * products).clamp_min(0.0)

    def _logits(self, v: Tensor) -> Tensor:
        """Compute the arguments of the softmax in Eq. 4 and 11."""
        logits = self.log_weights.unsqueeze(1) - self.beta.view(-1, 1, 1) * self._distances(v)
        return logits.masked_fill(~self.present.unsqueeze(1), -torch.inf)

    def _iterates(self, start: Tensor, moving: Tensor | None = None) -> list[Tensor]:
        spherical = self.config.metric == "cosine"
        return am_recursion(start, self.memories(), self._logits, self.config.steps, moving=moving, spherical=spherical)

    @torch.no_grad()
    def final_distances(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "R N K"]:
        """Compute the distance of x^T from each prototype; infinite for prototypes without a cluster."""
        x = self.to_memory_space(x)
        if self._uses_coefficients:
            products, gram, c = self._coefficients(x)
            left = residual(self.config.steps)
            ends = left * products + gram @ c  # <rho, x^T>
            squares = left**2 * x.square().sum(dim=1) + (c * (ends + left * products)).sum(dim=2, keepdim=True)
            norms = self.prototypes.square().sum(dim=2)[:, None, :, None]
            distances = (squares + norms - 2.0 * ends).clamp_min(0.0).squeeze(1).transpose(1, 2)
        else:
            distances = self._distances(self._iterates(x.expand(self.config.n_runs, *x.shape))[-1])
        return distances.masked_fill(~(self.present & self.occupied).unsqueeze(1), torch.inf)

    def assign(self, x: Float[Tensor, "N D"]) -> Int[Tensor, "R N"]:
        """Assign all rows under every run (InferClAM of Algorithm 1), in blocks of bounded memory."""
        # min() is several times faster than argmin().
        return torch.cat([self.final_distances(block).min(dim=2).indices for block in self.blocks(x)], dim=1)

    def cluster(self, x: Tensor, generator: Generator) -> Clustering:  # noqa: ARG002  (deterministic)
        """Assign rows under the first run; probabilities are softmax(-beta distance) at x^T."""
        labels, probabilities = [], []
        for block in self.blocks(x):
            distances = self.final_distances(block)[0]
            labels.append(distances.min(dim=1).indices)
            probabilities.append(torch.softmax(-self.beta[0] * distances, dim=1))
        clusters = int((self.present & self.occupied)[0].sum())
        prototypes = self.from_memory_space(self.memories()[0, :clusters].detach())
        probability = torch.cat(probabilities)[:, :clusters]
        return Clustering(torch.cat(labels), clusters, probability, {"prototypes": prototypes})

    @torch.no_grad()
    def energy(self, v: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        """Compute the energy (Eq. 1, 10 or 12) of each point under the first run."""
        v = self.to_memory_space(v)
        logits = self._logits(v.expand(self.config.n_runs, *v.shape))[0]
        return -torch.logsumexp(logits, dim=1) / self.beta[0]

    @torch.no_grad()
    def entropy(self, x: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        """Compute the entropy of the softmax weights (Eq. 13) of each point under the first run."""
        x = self.to_memory_space(x)
        weights = torch.softmax(self._logits(x.expand(self.config.n_runs, *x.shape))[0], dim=1)
        entropies: Tensor = torch.special.entr(weights).sum(dim=1)
        return entropies

    @torch.no_grad()
    def trajectories(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "T N D"]:
        """Return the T + 1 iterates of each point under the first run."""
        x = self.to_memory_space(x)
        iterates = self._iterates(x.expand(self.config.n_runs, *x.shape))
        return torch.stack([self.from_memory_space(v[0]) for v in iterates])

    def blocks(self, x: Tensor) -> tuple[Tensor, ...]:
        """Split rows into blocks that bound the memory of inference."""
        cells = self.config.n_runs * max(self.config.n_prototypes, self.config.n_features)
        return torch.split(x, max(16, BLOCK_ELEMENTS // cells))

    def select_runs(self, runs: Int[Tensor, " r"], order: Int[Tensor, "r K"] | None = None) -> "ClamModel":
        """Return a new model with some of the runs, each with its prototypes in the given order."""
        selected = ClamModel(replace(self.config, n_runs=len(runs)))
        shared = {"centre", "whitening"}
        state = {name: value if name in shared else value[runs] for name, value in self.state_dict().items()}
        if order is not None:
            for name in ("prototypes", "log_weights", "present", "occupied"):
                index = order.unsqueeze(2).expand_as(state[name]) if name == "prototypes" else order
                state[name] = state[name].gather(1, index)
        selected.load_state_dict(state)
        selected.history = [entry[runs] for entry in self.history]
        return selected.to(self.prototypes.device)
