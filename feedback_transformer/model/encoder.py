"""A standard Transformer encoder: every position of a source attends to every other, in parallel.

Only the decoder of the paper's translation models is a Feedback Transformer: a source is known as a whole, so there is
no past whose higher layers could be read.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from feedback_transformer.config import ModelConfig
from feedback_transformer.model.attention import KeyValue
from feedback_transformer.model.block import FeedForward, kept_layers
from feedback_transformer.model.source import SourceAttention, padding_mask, source_sharpness


def sinusoids(length: int, dim: int, like: Tensor) -> Tensor:
    """[length, dim]: sine and cosine of the position at wavelengths from 2 pi to 10000 * 2 pi (Vaswani et al. 2017)."""
    half = (dim + 1) // 2
    rates = torch.exp(-math.log(10_000) * torch.arange(half, dtype=like.dtype, device=like.device) / max(1, half - 1))
    angles = torch.arange(length, dtype=like.dtype, device=like.device)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)[:, :dim]


class DistanceBias(nn.Module):
    """A learned bias per head and signed distance, the same for all distances beyond `reach`."""

    def __init__(self, num_heads: int, reach: int) -> None:
        super().__init__()
        self.reach = reach
        self.bias = nn.Parameter(torch.zeros(num_heads, 2 * reach + 1))

    def forward(self, length: int) -> Tensor:
        """[H, length, length]"""
        position = torch.arange(length, device=self.bias.device)
        distance = (position - position[:, None]).clamp(-self.reach, self.reach) + self.reach
        return self.bias[:, distance]


class EncoderLayer(nn.Module):
    """Attention to all positions, then feed-forward, each with a residual and a norm, before (pre) or after (post)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dims = (config.model_dim, config.num_heads, config.head_dim)
        self.key_value = KeyValue(*dims, pre_norm=False)
        self.attention = SourceAttention(*dims, dropout=config.dropout)
        self.feed_forward = FeedForward(config.model_dim, config.ff_dim, config.dropout)
        self.attention_norm = nn.LayerNorm(config.model_dim)
        self.feed_forward_norm = nn.LayerNorm(config.model_dim)
        self.pre_norm = config.norm == "pre"

    def forward(self, x: Tensor, mask: Tensor, sharp: Tensor | None = None) -> Tensor:
        """x [B, S, D], mask [B, 1 or H, 1 or S, S], keys times sharp [B, 1, 1, 1] -> [B, S, D]"""
        if self.pre_norm:
            x = x + self._attend(self.attention_norm(x), mask, sharp)
            return x + self.feed_forward(self.feed_forward_norm(x))
        x = self.attention_norm(x + self._attend(x, mask, sharp))
        return self.feed_forward_norm(x + self.feed_forward(x))

    def _attend(self, x: Tensor, mask: Tensor, sharp: Tensor | None) -> Tensor:
        keys, values = self.key_value(x)
        return self.attention(x, (keys if sharp is None else keys * sharp, values, mask))


class NeighbourLayer(nn.Module):
    """Like an encoder layer, but with a convolution over `source_reach` neighbours to each side instead of attention.

    Its output at a position does not depend on the length of the string.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim, reach = config.model_dim, config.source_reach
        self.neighbours = nn.Conv1d(dim, dim, 2 * reach + 1, padding=reach)
        self.feed_forward = FeedForward(dim, config.ff_dim, config.dropout)
        self.neighbours_norm, self.feed_forward_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.pre_norm = config.norm == "pre"

    def forward(self, x: Tensor, exists: Tensor) -> Tensor:
        """x [B, S, D], exists [B, S, 1], zero at padding -> [B, S, D]"""
        if self.pre_norm:
            x = x + self._look(self.neighbours_norm(x), exists)
            return x + self.feed_forward(self.feed_forward_norm(x))
        x = self.neighbours_norm(x + self._look(x, exists))
        return self.feed_forward_norm(x + self.feed_forward(x))

    def _look(self, x: Tensor, exists: Tensor) -> Tensor:
        return self.neighbours((x * exists).transpose(1, 2)).transpose(1, 2)


class Encoder(nn.Module):
    """`encoder_layers` layers over embedded tokens, with positions as set by `source_positions`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layer_drop, self.log_scale = config.layer_drop, config.log_scale
        self.attends = config.source_positions != "neighbours"
        kind = EncoderLayer if self.attends else NeighbourLayer
        self.layers = nn.ModuleList(kind(config) for _ in range(config.encoder_layers))
        self.distance: DistanceBias | None = None
        if config.source_positions == "relative":
            self.distance = DistanceBias(config.num_heads, config.source_reach)
        self.final_norm = nn.LayerNorm(config.model_dim) if config.norm == "pre" else nn.Identity()
        if config.norm == "pre" and config.scale_residuals:
            self._scale_residuals()

    @torch.no_grad()
    def _scale_residuals(self) -> None:
        for layer in self.layers:
            first = layer.attention.to_output if self.attends else layer.neighbours  # type: ignore[union-attr]
            for last in (first, layer.feed_forward.contract):  # type: ignore[union-attr]
                for parameter in last.parameters():  # type: ignore[union-attr]
                    parameter.div_(math.sqrt(2 * len(self.layers)))

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """x [B, S, D], padding [B, S] (true where there is no token) -> [B, S, D], meaningless at padding"""
        reads = self._all_positions(x, padding) if self.attends else ((~padding).unsqueeze(-1).to(x.dtype),)
        if self.attends and self.distance is None:
            x = x + sinusoids(x.shape[1], x.shape[2], x)
        kept = kept_layers(len(self.layers), self.layer_drop if self.training else 0.0)
        for layer, stays in zip(self.layers, kept, strict=True):
            x = layer(x, *reads) if stays else x
        return self.final_norm(x)

    def _all_positions(self, x: Tensor, padding: Tensor) -> tuple[Tensor, Tensor | None]:
        """For layers with attention: a mask to add to the scores, and the factor of the keys."""
        mask = padding_mask(padding, x)
        if self.distance is not None:
            mask = mask + self.distance(x.shape[1])
        return mask, source_sharpness(padding, x) if self.log_scale else None
