"""What an engine computes: a block of T Feedback Transformer steps, from tensors to tensors.

    y, memories = engine(x, memory, length, reset, weights, options)

    x         [B, T, D]     the block's inputs, x_t^0
    memory    [B, M, D]     carried memories, oldest first, M <= S; they may require gradient
    length    [B]           how many of the newest carried slots exist for a row
    reset     [B, T] bool   or None: a row begins anew (sees nothing older) before that step
    y         [B, T, D]     x_t^L, before the final norm
    memories  [B, T, D]     m_t of every step; differentiable like y

It must equal the step loop of `model/feedback.py` in outputs and in the gradient of x, memory and every weight.
P is 1 when all layers share keys and values, else L; F is the feed-forward width, S the memory window, or the part of
it that adaptive spans reach.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class BlockWeights(NamedTuple):
    """The parameters of a core, stacked over layers, each as `nn.Linear` and `nn.LayerNorm` hold them."""

    query: Tensor  # [L, H*K, D]
    output: Tensor  # [L, D, H*K]
    expand: Tensor  # [L, F, D]
    expand_bias: Tensor  # [L, F]
    contract: Tensor  # [L, D, F]
    contract_bias: Tensor  # [L, D]
    attention_gain: Tensor  # [L, D]
    attention_shift: Tensor  # [L, D]
    feed_forward_gain: Tensor  # [L, D]
    feed_forward_shift: Tensor  # [L, D]
    key: Tensor  # [P, H*K, D]
    value: Tensor  # [P, H*K, D]
    memory_gain: Tensor | None  # [P, D], pre-norm only
    memory_shift: Tensor | None  # [P, D], pre-norm only
    mixing: Tensor  # [L+1]
    position: Tensor  # [K, S], column S - d for a memory d steps back
    position_bias: Tensor | None  # [H, S]
    span: Tensor | None = None  # [L, H, S], what e^score is multiplied with before the softmax divides by the sum


class BlockOptions(NamedTuple):
    """What is not a tensor."""

    num_heads: int
    pre_norm: bool
    dropout: float = 0.0  # on attention probabilities and on the ReLU, zero outside training
    seed: int = 0  # of the dropout masks: the same seed gives the same masks


def history_of_block(length: Tensor, steps: int, reset: Tensor | None, window: int) -> Tensor:
    """[B, T]: how many memories exist for row b just before step t of a block that starts with length [B]."""
    time = torch.arange(steps, device=length.device)
    history = length[:, None] + time
    if reset is not None:
        last_reset = torch.where(reset, time, -1).cummax(dim=1).values
        history = torch.where(last_reset >= 0, time - last_reset, history)
    return history.clamp(max=window)
