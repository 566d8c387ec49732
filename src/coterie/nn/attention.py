"""Attention between the members of sets: MAB, SAB, ISAB and PMA.

Two published flavours differ in where the residual branch starts, in the normalisation and in the feed-forward layer;
``AttentionConfig`` names each difference. Nothing but attention mixes points, so that a key that is masked has the
same effect as one that is absent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from coterie.errors import ConfigError

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


RESPECT = 8
"""Numbers by which points are compared in one respect."""


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """What all attention blocks of a network have in common.

    The defaults are the Set Transformer's blocks with layer norm; ``layer_norm=False, scale="model"`` are those that
    DAC was published with, ``residual="input", feed_forward="linear", output_map=True, scale="model"`` those of
    attention-based clustering.
    """

    width: int = 64
    """Numbers that describe a point."""
    heads: int = 4
    """Parts that the width is split into."""
    inducing: int = 32
    """Seeds that an ISAB summarises a set by."""
    layer_norm: bool = True
    """Whether to normalise after attention and after the feed-forward layer."""
    scale: Literal["head", "model", "none"] = "head"
    """Whether logits are divided by the root of the width of one head, or of all, or not at all."""
    compatibility: Literal["multiplicative", "additive"] = "multiplicative"
    """Whether a logit is the product of query and key, or a weighted sum of tanh(query + key)."""
    residual: Literal["projected", "input", "gated"] = "projected"
    """Whether attention is added to the projected query, or to the query itself, or is mixed with the query in
    proportions that the query decides, as in highway networks."""
    feed_forward: Literal["relu", "linear"] = "relu"
    """What follows the feed-forward layer's one linear map."""
    output_map: bool = False
    """Whether the heads' results pass a linear map before they are added."""

    def __post_init__(self) -> None:
        if min(self.width, self.heads, self.inducing) < 1:
            raise ConfigError(
                f"width={self.width}, heads={self.heads} and inducing={self.inducing} must all be at least 1."
            )
        if self.width % self.heads:
            raise ConfigError(f"width={self.width} must be a multiple of heads={self.heads}.")


class MAB(nn.Module):
    """Multihead attention block: queries attend to keys, then pass a feed-forward layer (DAC, Eq. 1)."""

    def __init__(self, query_width: int, key_width: int, config: AttentionConfig) -> None:
        super().__init__()
        if config.residual != "projected" and query_width != config.width:
            raise ConfigError(
                f"residual={config.residual!r} adds attention of width {config.width} to queries of width "
                f"{query_width}; embed the queries first."
            )
        self.config = config
        self.query = nn.Linear(query_width, config.width)
        self.key = nn.Linear(key_width, config.width)
        self.value = nn.Linear(key_width, config.width)
        self.mix = nn.Linear(config.width, config.width) if config.output_map else nn.Identity()
        head_width = config.width // config.heads
        self.bend = (
            nn.Parameter(nn.init.uniform_(torch.empty(head_width), -(head_width**-0.5), head_width**-0.5))
            if config.compatibility == "additive"
            else None
        )
        self.gate = nn.Linear(config.width, config.width) if config.residual == "gated" else None
        self.forward_map = nn.Linear(config.width, config.width)
        self.after_attention = nn.LayerNorm(config.width) if config.layer_norm else nn.Identity()
        self.after_forward = nn.LayerNorm(config.width) if config.layer_norm else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "B N X"],
        y: Float[Tensor, "B L Y"],
        valid: Bool[Tensor, "B L"] | None = None,
        adjacency: Float[Tensor, "B N L"] | None = None,
    ) -> Float[Tensor, "B N H"]:
        """Let x attend to the valid ones among y; where none is valid, attention adds nothing.

        An adjacency multiplies the weights that keys have, before these are made to sum to one: attention over a graph.
        """
        query = self.query(x)
        attended, some = self._attend(query, self.key(y), self.value(y), valid, adjacency)
        start = query if self.config.residual == "projected" else x
        added = attended if self.gate is None else torch.sigmoid(self.gate(x)) * (attended - x)
        hidden = self.after_attention(start + (added if some is None else added * some))
        change = self.forward_map(hidden)
        if self.config.feed_forward == "relu":
            change = torch.relu(change)
        normalised: Tensor = self.after_forward(hidden + change)
        return normalised

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, valid: Tensor | None, adjacency: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """What attention gives each query, and which queries have a key at all; None if all have."""
        config = self.config
        head_width = config.width // config.heads
        divided = {"model": config.width, "head": head_width, "none": 1}[config.scale]
        allowed = some = None
        if valid is not None:
            # A set without a valid key would divide zero by zero: it attends to all, and the result is dropped.
            some = valid.any(dim=1, keepdim=True).unsqueeze(1)
            allowed = valid.unsqueeze(1) | ~some
        if adjacency is not None:
            edges = (adjacency > 0) if allowed is None else (adjacency > 0) & allowed
            some = edges.any(dim=2, keepdim=True)
            allowed = edges | ~some
        query, key, value = (
            part.reshape(*part.shape[:2], config.heads, head_width).transpose(1, 2) for part in (query, key, value)
        )
        if self.bend is None and adjacency is None:
            mask = None if allowed is None else allowed.unsqueeze(1)
            attended = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0 / math.sqrt(divided))
        else:
            logits = query @ key.mT if self.bend is None else additive_compatibility(query, key, self.bend)
            logits = logits / math.sqrt(divided)
            if adjacency is not None:
                logits = logits + adjacency.clamp(min=torch.finfo(logits.dtype).tiny).log().unsqueeze(1)
            if allowed is not None:
                logits = logits.masked_fill(~allowed.unsqueeze(1), -torch.inf)
            attended = logits.softmax(dim=3) @ value
        mixed: Tensor = self.mix(attended.transpose(1, 2).flatten(2))
        return mixed, some


class Comparison(nn.Module):
    """How like one point the points of a set are, in several respects: products of parts of both, mixed.

    Attention to a single key adds the same to all queries, so that telling like from unlike is left to what follows.
    """

    def __init__(self, in_width: int, width: int) -> None:
        super().__init__()
        respects = max(1, width // RESPECT)
        self.point = nn.Linear(in_width, width // respects * respects)
        self.other = nn.Linear(in_width, width // respects * respects)
        # Alike at first, so that from the first step on points have the larger products the more alike they are.
        self.other.load_state_dict(self.point.state_dict())
        self.mix = nn.Linear(respects, width)

    def forward(self, x: Float[Tensor, "B N X"], y: Float[Tensor, "B 1 X"]) -> Float[Tensor, "B N H"]:
        """Compare all points of a set with the one that it is given."""
        products = (self.point(x) * self.other(y)).unflatten(2, (self.mix.in_features, -1))
        compared: Tensor = self.mix(products.sum(dim=3) / math.sqrt(products.shape[3]))
        return compared


class SAB(nn.Module):
    """Set attention block: every point attends to every point; quadratic in their number."""

    def __init__(self, in_width: int, config: AttentionConfig) -> None:
        super().__init__()
        self.block = MAB(in_width, in_width, config)

    def forward(
        self,
        x: Float[Tensor, "B N X"],
        valid: Bool[Tensor, "B N"] | None = None,
        adjacency: Float[Tensor, "B N N"] | None = None,
    ) -> Float[Tensor, "B N H"]:
        """Let all points attend to the valid ones."""
        attended: Tensor = self.block(x, x, valid, adjacency)
        return attended


class PMA(nn.Module):
    """Pooling by attention: a few learned seeds attend to the set."""

    def __init__(self, in_width: int, n_seeds: int, config: AttentionConfig) -> None:
        super().__init__()
        self.seeds = nn.Parameter(nn.init.xavier_uniform_(torch.empty(n_seeds, config.width)))
        self.block = MAB(config.width, in_width, config)

    def forward(self, x: Float[Tensor, "B N X"], valid: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B S H"]:
        """Summaries of the valid points."""
        pooled: Tensor = self.block(self.seeds.expand(len(x), -1, -1), x, valid)
        return pooled


class ISAB(nn.Module):
    """Induced set attention: points attend to a summary of the set; linear in their number."""

    def __init__(self, in_width: int, config: AttentionConfig) -> None:
        super().__init__()
        self.pool = PMA(in_width, config.inducing, config)
        self.block = MAB(in_width, config.width, config)

    def forward(self, x: Float[Tensor, "B N X"], summary: Float[Tensor, "B M H"]) -> Float[Tensor, "B N H"]:
        """Let points, those of the set or new ones, attend to the summary that ``pool`` made of a set."""
        attended: Tensor = self.block(x, summary)
        return attended


class ISABStack(nn.Module):
    """Several ISABs in a row, or none; ``tied`` makes all but the first one and the same block."""

    def __init__(self, in_width: int, depth: int, config: AttentionConfig, *, tied: bool = False) -> None:
        super().__init__()
        if depth < 0:
            raise ConfigError(f"depth={depth} must be at least 0.")
        self.depth = depth
        distinct = min(depth, 2) if tied else depth
        self.blocks = nn.ModuleList(ISAB(in_width if i == 0 else config.width, config) for i in range(distinct))

    def forward(
        self, x: Float[Tensor, "B N X"], valid: Bool[Tensor, "B N"] | None = None
    ) -> tuple[Float[Tensor, "B N H"], list[Float[Tensor, "B M H"]]]:
        """Encoded points, and the summary that each layer made of the valid ones."""
        summaries = []
        for block in self._layers():
            summaries.append(block.pool(x, valid))
            x = block(x, summaries[-1])
        return x, summaries

    def attend(self, x: Float[Tensor, "B N X"], summaries: Sequence[Float[Tensor, "B M H"]]) -> Float[Tensor, "B N H"]:
        """Encode new points as members of the set that the summaries are of, without changing them."""
        for block, summary in zip(self._layers(), summaries, strict=True):
            x = block(x, summary)
        return x

    def _layers(self) -> list[ISAB]:
        blocks = [block for block in self.blocks if isinstance(block, ISAB)]
        return blocks + blocks[-1:] * (self.depth - len(blocks))
