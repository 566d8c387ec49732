"""Attractor dynamics of associative memories: how a point moves towards its prototypes.

The update of ClAM (Eq. 4), ``v <- v + (1/T) (sum_k w_k rho_k - v)`` with ``w = softmax(-beta |rho - v|^2)``, only ever
adds prototypes to ``v``. So the moving coordinates stay in a space of K + 1 dimensions,

    v_t = fade_t * v_0 + sum_k c_tk rho_k,        fade_t = (1 - 1/T)^t,

and the recursion can be run on the K coefficients ``c`` alone, with the Gram matrix of the prototypes in place of the
D features: T steps cost one pass over the data instead of T. ``attract`` does that, exactly and with its own backward
pass; ``descend`` is the literal recursion in feature space, for attractions that have no Gram matrix.

Shapes: R runs, G groups of points that share a mask, K prototypes, N points of a group, D features.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


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
