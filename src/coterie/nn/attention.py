"""Attention between the members of sets: MAB, SAB, ISAB and PMA (Set Transformer; DAC, Eq. 1 and 2).

The published variants differ in the residual branch, the normalisation and the feed-forward layer; ``AttentionConfig``
names each difference. Only attention mixes points, so a masked key has the same effect as an absent one.
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

BLOCK_ELEMENTS = 1 << 21  # sums q + k in memory at once: 8 MB, which fit into caches


def additive_compatibility(
    query: Float[Tensor, "*B N W"], key: Float[Tensor, "*B L W"], weight: Float[Tensor, " W"]
) -> Float[Tensor, "*B N L"]:
    """Compute the additive compatibility of every query with every key (Bahdanau et al., 2015), differentiably.

    Queries are processed in blocks, in the backward pass too: memory grows with N L and N W, but not with N L W.
    """
    compatibility: Tensor = _Additive.apply(query, key, weight)  # type: ignore[no-untyped-call]  # torch leaves it so
    return compatibility


def additive_weight(width: int) -> nn.Parameter:
    """Initialise the weight of an additive compatibility."""
    return nn.Parameter(nn.init.uniform_(torch.empty(width), -(width**-0.5), width**-0.5))


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
            tanh = _tanh(part, key)
            for_weight += gradient.reshape(-1) @ tanh.reshape(-1, len(weight))
            slope = tanh.square_().neg_().add_(1.0).mul_(gradient.unsqueeze(-1))
            for_query.append(slope.sum(dim=-2) * weight)
            for_key += slope.sum(dim=-3) * weight
        return torch.cat(for_query, dim=-2), for_key, for_weight


def _tanh(query: Tensor, key: Tensor) -> Tensor:
    return (query.unsqueeze(-2) + key.unsqueeze(-3)).tanh_()


def _rows_at_once(query: Tensor, key: Tensor) -> int:
    others = query[..., 0, 0].numel() if query.shape[-2] else 1
    return max(1, BLOCK_ELEMENTS // max(1, others * key.shape[-2] * key.shape[-1]))


GROUP_WIDTH = 8  # features per product in ``Comparison``


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """Configuration of attention blocks.

    The defaults are the blocks of the Set Transformer with layer normalisation; ``layer_norm=False, scale="model"`` are
    those of DAC, and ``residual="input", feed_forward="linear", output_map=True, scale="model"`` those of
    attention-based clustering.
    """

    width: int = 64  # width of a point inside the network
    heads: int = 4  # attention heads
    inducing: int = 32  # inducing points of an ISAB
    layer_norm: bool = True  # whether to normalise after attention and after the feed-forward layer
    scale: Literal["head", "model", "none"] = "head"
    """Width whose square root divides the logits: that of one head, of all heads, or none."""
    compatibility: Literal["multiplicative", "additive"] = "multiplicative"
    """Whether a logit is the product of query and key, or a weighted sum of tanh(query + key)."""
    residual: Literal["projected", "input", "gated"] = "projected"
    """Whether attention is added to the projected query, or to the query itself, or is mixed with the query in
    proportions that the query decides, as in highway networks."""
    feed_forward: Literal["relu", "linear"] = "relu"  # activation after the linear map of the feed-forward layer
    output_map: bool = False  # whether the concatenated heads pass a linear map

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
                f"residual={config.residual!r} cannot add attention of width {config.width} to queries of width "
                f"{query_width}; embed the queries first."
            )
        self.config = config
        self.query = nn.Linear(query_width, config.width)
        self.key = nn.Linear(key_width, config.width)
        self.value = nn.Linear(key_width, config.width)
        self.mix = nn.Linear(config.width, config.width) if config.output_map else nn.Identity()
        self.bend = additive_weight(config.width // config.heads) if config.compatibility == "additive" else None
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
        """Let x attend to the valid rows of y; where none is valid, attention adds nothing.

        An adjacency multiplies the attention weights before they are normalised: attention over a graph.
        """
        query = self.query(x)
        attended, has_key = self._attend(query, self.key(y), self.value(y), valid, adjacency)
        start = query if self.config.residual == "projected" else x
        added = attended if self.gate is None else torch.sigmoid(self.gate(x)) * (attended - x)
        hidden = self.after_attention(start + (added if has_key is None else added * has_key))
        change = self.forward_map(hidden)
        if self.config.feed_forward == "relu":
            change = torch.relu(change)
        normalised: Tensor = self.after_forward(hidden + change)
        return normalised

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, valid: Tensor | None, adjacency: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the attention output, and which queries have a key at all; None if all have."""
        config = self.config
        head_width = config.width // config.heads
        scale_width = {"model": config.width, "head": head_width, "none": 1}[config.scale]
        allowed = has_key = None
        if valid is not None:
            # A set without a valid key would divide zero by zero: it attends to all keys, and the result is dropped.
            has_key = valid.any(dim=1, keepdim=True).unsqueeze(1)
            allowed = valid.unsqueeze(1) | ~has_key
        if adjacency is not None:
            edges = (adjacency > 0) if allowed is None else (adjacency > 0) & allowed
            has_key = edges.any(dim=2, keepdim=True)
            allowed = edges | ~has_key
        query, key, value = (
            part.reshape(*part.shape[:2], config.heads, head_width).transpose(1, 2) for part in (query, key, value)
        )
        if self.bend is None and adjacency is None:
            mask = None if allowed is None else allowed.unsqueeze(1)
            attended = scaled_dot_product_attention(
                query, key, value, attn_mask=mask, scale=1.0 / math.sqrt(scale_width)
            )
        else:
            logits = query @ key.mT if self.bend is None else additive_compatibility(query, key, self.bend)
            logits = logits / math.sqrt(scale_width)
            if adjacency is not None:
                logits = logits + adjacency.clamp(min=torch.finfo(logits.dtype).tiny).log().unsqueeze(1)
            if allowed is not None:
                logits = logits.masked_fill(~allowed.unsqueeze(1), -torch.inf)
            attended = logits.softmax(dim=3) @ value
        mixed: Tensor = self.mix(attended.transpose(1, 2).flatten(2))
        return mixed, has_key


class Comparison(nn.Module):
    """Compare the points of a set with one other point by grouped products of their features.

    Attention to a single key adds the same to all queries, which leaves the comparison to later layers.
    """

    def __init__(self, in_width: int, width: int) -> None:
        super().__init__()
        groups = max(1, width // GROUP_WIDTH)
        self.point = nn.Linear(in_width, width // groups * groups)
        self.other = nn.Linear(in_width, width // groups * groups)
        # Equal at first, so that similar points have large products from the first step on.
        self.other.load_state_dict(self.point.state_dict())
        self.mix = nn.Linear(groups, width)

    def forward(self, x: Float[Tensor, "B N X"], y: Float[Tensor, "B 1 X"]) -> Float[Tensor, "B N H"]:
        """Compare all points of each set with the one given."""
        products = (self.point(x) * self.other(y)).unflatten(2, (self.mix.in_features, -1))
        compared: Tensor = self.mix(products.sum(dim=3) / math.sqrt(products.shape[3]))
        return compared


class SAB(nn.Module):
    """Set attention block: every point attends to every point, in quadratic time."""

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
    """Pooling by multihead attention: a few learned seeds attend to the set."""

    def __init__(self, in_width: int, n_seeds: int, config: AttentionConfig) -> None:
        super().__init__()
        self.seeds = nn.Parameter(nn.init.xavier_uniform_(torch.empty(n_seeds, config.width)))
        self.block = MAB(config.width, in_width, config)

    def forward(self, x: Float[Tensor, "B N X"], valid: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B S H"]:
        """Summarise the valid points."""
        pooled: Tensor = self.block(self.seeds.expand(len(x), -1, -1), x, valid)
        return pooled


class ISAB(nn.Module):
    """Induced set attention block: points attend to a summary of the set, in linear time."""

    def __init__(self, in_width: int, config: AttentionConfig) -> None:
        super().__init__()
        self.pool = PMA(in_width, config.inducing, config)
        self.block = MAB(in_width, config.width, config)

    def forward(self, x: Float[Tensor, "B N X"], summary: Float[Tensor, "B M H"]) -> Float[Tensor, "B N H"]:
        """Let points, of the set or new ones, attend to the summary that ``pool`` made."""
        attended: Tensor = self.block(x, summary)
        return attended


class ISABStack(nn.Module):
    """A stack of ISABs, possibly empty; ``tied`` shares one block among all but the first."""

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
        """Encode points; also return the summary that each layer made of the valid ones."""
        summaries = []
        for block in self._layers():
            summaries.append(block.pool(x, valid))
            x = block(x, summaries[-1])
        return x, summaries

    def attend(self, x: Float[Tensor, "B N X"], summaries: Sequence[Float[Tensor, "B M H"]]) -> Float[Tensor, "B N H"]:
        """Encode new points as members of the summarised set, without changing the summaries."""
        for block, summary in zip(self._layers(), summaries, strict=True):
            x = block(x, summary)
        return x

    def _layers(self) -> list[ISAB]:
        blocks = [block for block in self.blocks if isinstance(block, ISAB)]
        return blocks + blocks[-1:] * (self.depth - len(blocks))
