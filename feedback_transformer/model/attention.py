"""Queries attending to a memory of past steps, by content and by distance."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from feedback_transformer.kernels.contract import out_of_span, sharpness
from feedback_transformer.kernels.dropout import keep_mask
from feedback_transformer.kernels.windowed import (
    Positions,
    distances,
    lowest,
    visible,
    windowed_attention,
    windowed_weights,
)
from feedback_transformer.model.adaptive_span import AdaptiveSpan, weigh
from feedback_transformer.model.memory import Projection


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, T, H*K] -> [B, H, T, K]"""
    return x.view(*x.shape[:-1], num_heads, x.shape[-1] // num_heads).transpose(1, 2)


class RelativePosition(nn.Module):
    """What a distance alone adds to the score: q . p_d, and optionally a learned bias b_{h,d}.

    One table for all heads and layers. Columns are in slot order: column S - d belongs to a memory d steps back. With a
    reach, distances beyond it share one column.
    """

    def __init__(
        self,
        head_dim: int,
        memory_size: int,
        std: float = 1.0,
        slopes: Sequence[float] = (),
        peaks: Sequence[int] = (),
        reach: int = 0,
    ) -> None:
        super().__init__()
        self.window, reach = memory_size, min(reach or memory_size, memory_size)
        self.keys = nn.Parameter(torch.randn(head_dim, reach) * std)
        self.bias: nn.Parameter | None = None
        if slopes:
            from_peak = torch.arange(reach, 0, -1) - torch.tensor(peaks or [0] * len(slopes))[:, None]
            self.bias = nn.Parameter(-torch.tensor(slopes)[:, None] * from_peak.abs())  # [H, reach]

    def table(self, columns: int) -> tuple[Tensor, Tensor | None]:
        """The part for the nearest `columns` distances: keys [K, columns] and bias [H, columns]."""
        return _newest(self.keys, columns), None if self.bias is None else _newest(self.bias, columns)

    def positions(self, steps: int, num_keys: int) -> Positions:
        """The table for a block whose last key is one step before its last query.

        Where distances beyond the reach share the farthest position, scores relative to it differ by the near ones.
        """
        (near, bias), distance = self.table(self.keys.shape[1]), num_keys - steps + 1
        if 1 < near.shape[1] < self.window and steps > 1 and near.shape[1] <= distance + 1:
            relative = near[:, 1:] - near[:, :1], None if bias is None else bias[:, 1:] - bias[:, :1]
            return Positions(*relative, near.shape[1] - 1 - distance, near=True)
        skip = self.window - distance
        first = max(0, skip - (steps - 1))
        return Positions(*self.table(self.window - first), skip - first)


def _newest(own: Tensor, columns: int) -> Tensor:
    """The last columns of `own`, with its first one repeated if there are fewer."""
    missing = columns - own.shape[1]
    return torch.cat([own[:, :1].expand(-1, missing), own], dim=1) if missing > 0 else own[:, -missing:]


class KeyValue(nn.Module):
    """Projects memories to keys and values. Under pre-norm the memory is normed first."""

    def __init__(self, model_dim: int, num_heads: int, head_dim: int, pre_norm: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(model_dim) if pre_norm else nn.Identity()
        self.to_key = nn.Linear(model_dim, num_heads * head_dim, bias=False)
        self.to_value = nn.Linear(model_dim, num_heads * head_dim, bias=False)

    def forward(self, memory: Tensor) -> Projection:
        """[B, M, D] -> keys and values [B, H, M, K]"""
        memory = self.norm(memory)
        return split_heads(self.to_key(memory), self.num_heads), split_heads(self.to_value(memory), self.num_heads)


class Attention(nn.Module):
    """softmax((q . (k_j + p_j)) / sqrt(K) + b_j) v_j over the memories j that exist; zero where none does.

    With `log_scale`, q is multiplied by ln(n + 1) / 3, where n memories exist.
    """

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        head_dim: int,
        dropout: float,
        span: AdaptiveSpan | None = None,
        log_scale: bool = False,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = head_dim**-0.5
        self.to_query = nn.Linear(model_dim, num_heads * head_dim, bias=False)
        self.to_output = nn.Linear(num_heads * head_dim, model_dim, bias=False)
        self.dropout = Dropout(dropout)
        self.span = span
        self.log_scale = log_scale

    def forward(self, x: Tensor, memory: Projection, position: RelativePosition, history: Tensor | None) -> Tensor:
        """x [B, T, D], keys and values [B, H, M, K], history [B, T] -> [B, T, D]

        history is how many memories exist before each query; None if all in the window do.
        """
        keys, values = memory
        steps, num_keys = x.shape[1], keys.shape[-2]
        positions = position.positions(steps, num_keys)
        seen = history
        if seen is None and (positions.near or self.log_scale):
            seen = distances(steps, num_keys, x.device)[:, 0].clamp(max=position.window).expand(x.shape[:2])
        if positions.near:
            history = seen
        query = self.to_query(x) * self.scale
        if self.log_scale and seen is not None:
            query = query * sharpness(seen.unsqueeze(-1), x.dtype)
        query = split_heads(query, self.num_heads)
        if steps > 1 and self.span is None and not (self.dropout.training and self.dropout.p):
            mixed = windowed_attention(query, keys, values, positions, history)
        else:
            weights = windowed_weights if steps > 1 else single_weights
            if self.span is None:
                probabilities = weights(query, keys, positions, history)
            else:
                mask = self.span.mask(distances(steps, num_keys, x.device)).to(x.dtype)
                probabilities = weigh(weights(query, keys, positions, history, out_of_span(mask)), mask)
            mixed = self.dropout(probabilities) @ values
        if history is not None:
            # A row that sees nothing has attended to hidden slots: set its output to zero.
            mixed = mixed * (history > 0)[:, None, :, None]
        return self.to_output(mixed.transpose(1, 2).flatten(-2))


def single_weights(
    query: Tensor, keys: Tensor, positions: Positions, history: Tensor | None, hidden: Tensor | None = None
) -> Tensor:
    """`windowed_weights` [B, H, 1, M] of one query [B, H, 1, K] over keys [B, H, M, K]; no shift is needed."""
    scores = query @ keys.transpose(-1, -2) + query @ positions.keys
    if positions.bias is not None:
        scores = scores + positions.bias[:, None]
    if history is not None:
        scores = scores.masked_fill(~visible(history, keys.shape[-2]), lowest(scores))
    if hidden is not None:
        scores = scores.masked_fill(hidden, lowest(scores))
    return torch.softmax(scores, dim=-1)


class Dropout(nn.Dropout):
    """nn.Dropout, with masks that cost an eighth as much on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0 or x.device.type != "cpu":
            return super().forward(x)
        return x * keep_mask(x, self.p)
