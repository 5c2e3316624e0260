"""The weights as the fused engine's loop needs them: constants multiplied in, once per block, under autograd."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor

from feedback_transformer.kernels.contract import BlockOptions, BlockWeights, Source
from feedback_transformer.kernels.dropout import keep_probability
from feedback_transformer.kernels.source_steps import FoldedSource
from feedback_transformer.kernels.steps import Layer, Shared


class Folded(NamedTuple):
    """The weights as the loop needs them, each a differentiable function of the contract's."""

    query: Tensor  # [L, H*K, D]
    query_shift: Tensor  # [L, H*K]
    output: Tensor  # [L, D, H*K]
    expand: Tensor  # [L, F, D]
    expand_shift: Tensor  # [L, F]
    contract: Tensor  # [L, D, F]
    contract_shift: Tensor  # [L, D]
    attention_gain: Tensor | None  # [L, D], post-norm only, like the next three
    attention_shift: Tensor | None
    feed_forward_gain: Tensor | None
    feed_forward_shift: Tensor | None
    key_value: Tensor  # [P*2*H*K, D]
    key_value_shift: Tensor  # [P*2*H*K]
    mixing: Tensor  # [L+1]
    position: Tensor  # [K, S]
    position_bias: Tensor | None  # [H, S]
    span: Tensor | None  # [L, H, S]

    def layers(self) -> list[Layer]:
        per_layer = self[: len(Layer._fields)]
        return [
            Layer(*(cast(Tensor, None if part is None else part[index]) for part in per_layer))
            for index in range(len(self.query))
        ]

    def shared(self, slots: int) -> Shared:
        first = self.position.shape[1] - slots
        span = None if self.span is None else self.span[..., first:]
        return Shared(self.key_value, self.key_value_shift, self.mixing, self.position[:, first:], span)


def fold(weights: BlockWeights, options: BlockOptions) -> Folded:
    """Multiply constants of a block into the weights, outside the loop, where autograd handles them.

    1/sqrt(K) goes into the query, dropout's 1/keep into the projection after it, and under pre-norm each norm's gain
    and shift into the projection that follows: W (g n + c) = (W g) n + W c. All norms of one memory are then the same.
    """
    w = weights
    kept = 1 / keep_probability(options.dropout)
    scale = (w.query.shape[1] // options.num_heads) ** -0.5
    key_value = torch.cat([w.key, w.value], dim=1)  # [P, 2*H*K, D]
    query, expand, expand_shift = w.query * scale, w.expand, w.expand_bias
    query_shift, key_value_shift = query.new_zeros(query.shape[:2]), key_value.new_zeros(key_value.shape[:2])
    if options.pre_norm:
        assert w.memory_gain is not None
        assert w.memory_shift is not None
        query, query_shift = _absorb(query, w.attention_gain, w.attention_shift)
        expand, shift = _absorb(expand, w.feed_forward_gain, w.feed_forward_shift)
        expand_shift = expand_shift + shift
        key_value, key_value_shift = _absorb(key_value, w.memory_gain, w.memory_shift)
    post = not options.pre_norm
    return Folded(
        query=query,
        query_shift=query_shift,
        output=w.output * kept,
        expand=expand,
        expand_shift=expand_shift,
        contract=w.contract * kept,
        contract_shift=w.contract_bias,
        attention_gain=w.attention_gain if post else None,
        attention_shift=w.attention_shift if post else None,
        feed_forward_gain=w.feed_forward_gain if post else None,
        feed_forward_shift=w.feed_forward_shift if post else None,
        key_value=key_value.flatten(0, 1),
        key_value_shift=key_value_shift.flatten(),
        mixing=w.mixing,
        position=w.position,
        position_bias=w.position_bias,
        span=w.span,
    )


def fold_source(source: Source, weights: BlockWeights, options: BlockOptions) -> FoldedSource:
    """The same for the weights that read a source."""
    query, output, gain, shift = weights.source_query, weights.source_output, weights.source_gain, weights.source_shift
    assert query is not None
    assert output is not None
    assert gain is not None
    assert shift is not None
    query = query * (query.shape[1] // options.num_heads) ** -0.5
    query_shift = query.new_zeros(query.shape[:2])
    if options.pre_norm:
        query, query_shift = _absorb(query, gain, shift)
    keys, values = source.keys.flatten(1, 2), source.values.flatten(1, 2)
    mask = source.mask.repeat_interleave(options.num_heads, dim=0).unsqueeze(1)
    output = output / keep_probability(options.dropout)
    if options.pre_norm:
        return FoldedSource(query, query_shift, output, None, None, keys, values, mask)
    return FoldedSource(query, query_shift, output, gain, shift, keys, values, mask)


def _absorb(weight: Tensor, gain: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    return weight * gain.unsqueeze(1), torch.bmm(weight, shift.unsqueeze(2)).squeeze(2)


def project(memory: Tensor, folded: Folded, options: BlockOptions) -> tuple[Tensor, Tensor]:
    """Carried memories [B, M, D] -> keys and values [P, B*H, M, K], under autograd, once per block."""
    batch, slots, width = memory.shape
    heads, head_dim = options.num_heads, folded.position.shape[0]
    normed = torch.nn.functional.layer_norm(memory, (width,)) if options.pre_norm else memory
    both = torch.nn.functional.linear(normed, folded.key_value, folded.key_value_shift)
    pairs = len(folded.key_value) // (2 * heads * head_dim)
    split = both.view(batch, slots, pairs, 2, heads, head_dim).permute(3, 2, 0, 4, 1, 5)
    keys, values = split.reshape(2, pairs, batch * heads, slots, head_dim)
    return keys, values
