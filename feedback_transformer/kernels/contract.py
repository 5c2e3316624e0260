"""What an engine computes: a block of T Feedback Transformer steps, from tensors to tensors.

    y, memories = engine(x, memory, length, reset, weights, options, source)

    x         [B, T, D]     the block's inputs, x_t^0
    memory    [B, M, D]     carried memories, oldest first, M <= S; they may require gradient
    length    [B]           how many of the newest carried slots exist for a row
    reset     [B, T] bool   or None: where true, the row sees nothing older from that step on
    source    a `Source`    or None: what a decoder's layers read between attention and feed-forward; differentiable
    y         [B, T, D]     x_t^L, before the final norm
    memories  [B, T, D]     m_t of every step; differentiable like y

It must equal the step loop of `model/feedback.py` in outputs and in the gradient of x, memory, source and every weight.
P is 1 when all layers share keys and values, else L; F is the feed-forward width, S the memory window, or the part of
it that adaptive spans reach.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    span: Tensor | None = None  # [L, H, S], multiplies e^score before the softmax divides by the sum
    source_query: Tensor | None = None  # [L, H*K, D], decoders only, like the next three
    source_output: Tensor | None = None  # [L, D, H*K]
    source_gain: Tensor | None = None  # [L, D]
    source_shift: Tensor | None = None  # [L, D]


class BlockOptions(NamedTuple):
    """What is not a tensor."""

    num_heads: int
    pre_norm: bool
    dropout: float = 0.0  # on attention probabilities and on the ReLU, zero outside training
    seed: int = 0  # of the dropout masks: the same seed gives the same masks
    log_scale: bool = False  # multiply queries by the `sharpness` for the memories that they see


class Source(NamedTuple):
    """What a decoder reads besides its own past, such as the sentence to translate: N positions, projected once."""

    keys: Tensor  # [L, B, H, N, K], of every layer of the decoder
    values: Tensor  # [L, B, H, N, K]
    mask: Tensor  # [B, N], added to the scores: zero at a position that exists, very low at padding
    length: Tensor  # [B]: the number of positions before the padding

    def layer(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values [B, H, N, K], mask [B, 1, 1, N]"""
        return self.keys[index], self.values[index], self.mask[:, None, None]

    def layers(self, kept: Sequence[bool]) -> Source:
        """Without the layers that LayerDrop leaves out."""
        return self if all(kept) else self._replace(keys=self.keys[list(kept)], values=self.values[list(kept)])

    def reorder(self, index: Tensor) -> Source:
        """Row i becomes what row index[i] was."""
        keys, values = (part.index_select(1, index) for part in self[:2])
        return Source(keys, values, self.mask[index], self.length[index])

    def for_rows(self, rows: int) -> Source:
        """A row of the source for each of `rows` rows; rows / B consecutive ones read the same (beams)."""
        count = len(self.mask)
        if rows == count:
            return self
        return self.reorder(torch.arange(count, device=self.mask.device).repeat_interleave(rows // count))


def out_of_span(mask: Tensor) -> Tensor:
    """mask [.., M], oldest first -> which memories a head with this span does not see: those of weight zero, but for
    the nearest of them, whose mask has a gradient if it is at the foot of the ramp.

    Their scores are left out of the softmax: one that is far above the others' would leave nothing for these.
    """
    zero = mask.detach() == 0
    return zero & torch.cat([zero[..., 1:], torch.zeros_like(zero[..., :1])], dim=-1)


def sharpness(history: Tensor, dtype: torch.dtype) -> Tensor:
    """The factor of a query that sees `history` memories; it offsets that attention thins out over more of them."""
    return torch.log1p(history.to(dtype)) / 3


def history_of_block(length: Tensor, steps: int, reset: Tensor | None, window: int) -> Tensor:
    """[B, T]: how many memories exist for row b just before step t of a block that starts with length [B]."""
    time = torch.arange(steps, device=length.device)
    history = length[:, None] + time
    if reset is not None:
        last_reset = torch.where(reset, time, -1).cummax(dim=1).values
        history = torch.where(last_reset >= 0, time - last_reset, history)
    return history.clamp(max=window)
