"""How well queries go with keys: the sum of v·tanh(q + k), without a tensor of queries times keys times width."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

BLOCK_ELEMENTS = 1 << 21
"""Sums q + k that are held at once: 8 MB, which caches still hold."""


def additive_compatibility(
    query: Float[Tensor, "*B N W"], key: Float[Tensor, "*B L W"], weight: Float[Tensor, " W"]
) -> Float[Tensor, "*B N L"]:
    """Additive compatibility of every query with every key (Bahdanau et al., 2015), differentiable.

    Blocks of queries are taken one after the other, in the backward pass again: memory grows with N times L and with
    N times W, but not with all three.
    """
    compatibility: Tensor = _Additive.apply(query, key, weight)  # type: ignore[no-untyped-call]  # torch leaves it so
    return compatibility


class _Additive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, weight)
        rows = _rows_at_once(query, key)
        return torch.cat([_tanh(part, key) @ weight for part in torch.split(query, rows, dim=-2)], dim=-2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, weight = ctx.saved_tensors
        rows = _rows_at_once(query, key)
        for_query, for_key, for_weight = [], torch.zeros_like(key), torch.zeros_like(weight)
        for part, gradient in zip(
            torch.split(query, rows, dim=-2), torch.split(gradients[0], rows, dim=-2), strict=True
        ):
            bent = _tanh(part, key)
            for_weight += gradient.reshape(-1) @ bent.reshape(-1, len(weight))
            slope = bent.square_().neg_().add_(1.0).mul_(gradient.unsqueeze(-1))
            for_query.append(slope.sum(dim=-2) * weight)
            for_key += slope.sum(dim=-3) * weight
        return torch.cat(for_query, dim=-2), for_key, for_weight


def _tanh(query: Tensor, key: Tensor) -> Tensor:
    return (query.unsqueeze(-2) + key.unsqueeze(-3)).tanh_()


def _rows_at_once(query: Tensor, key: Tensor) -> int:
    others = query[..., 0, 0].numel() if query.shape[-2] else 1
    return max(1, BLOCK_ELEMENTS // max(1, others * key.shape[-2] * key.shape[-1]))
