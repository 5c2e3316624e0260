"""What a decoder reads besides its own past: a source, such as the sentence to translate, encoded once.

A decoder's block attends to the memory, then to the source, then applies the feed-forward sublayer. The source is
passed beside the state and never changes, so a decoder's state is the same kind of thing as a language model's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from feedback_transformer.kernels import Source
from feedback_transformer.kernels.contract import sharpness
from feedback_transformer.kernels.windowed import lowest
from feedback_transformer.model.attention import Dropout, split_heads

__all__ = ["Source", "SourceAttention", "SourceLayer", "padding_mask", "source_sharpness"]

SourceLayer = tuple[Tensor, Tensor, Tensor]  # keys and values [B, H, S, K], mask [B, 1, 1, S]


def padding_mask(padding: Tensor, like: Tensor) -> Tensor:
    """padding [B, S] bool -> what is added to scores [B, 1, 1, S], with the dtype of `like`"""
    zeros = torch.zeros(padding.shape, dtype=like.dtype, device=padding.device)
    return zeros.masked_fill(padding, lowest(like))[:, None, None]


def source_sharpness(padding: Tensor, like: Tensor) -> Tensor:
    """padding [B, S] bool -> what keys are multiplied by under `log_scale` [B, 1, 1, 1]"""
    return sharpness((~padding).sum(dim=1), like.dtype)[:, None, None, None]


class SourceAttention(nn.Module):
    """softmax(q . k_j / sqrt(K) + mask_j) v_j over all positions j of a source."""

    def __init__(self, model_dim: int, num_heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = head_dim**-0.5
        self.to_query = nn.Linear(model_dim, num_heads * head_dim, bias=False)
        self.to_output = nn.Linear(num_heads * head_dim, model_dim, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, source: SourceLayer) -> Tensor:
        """x [B * n, T, D] -> [B * n, T, D]: n consecutive rows read the same row of the source (beams)."""
        keys, values, mask = source
        folded = x.reshape(len(keys), -1, x.shape[-1])  # [B, n * T, D]
        query = split_heads(self.to_query(folded) * self.scale, self.num_heads)
        probabilities = torch.softmax(query @ keys.transpose(-1, -2) + mask, dim=-1)
        mixed = self.dropout(probabilities) @ values
        return self.to_output(mixed.transpose(1, 2).flatten(-2)).view(x.shape)
