"""One step of a block, forward and backward, written out by hand: what `fused` repeats T times.

Both functions read and write slices of buffers that were allocated before the loop, and touch no autograd tape. The
weights come folded (see `folding.fold`), so that under pre-norm a norm is only (x - mean) / std in here:

    q  = norm(x) Wq + cq                      z = x + o Wo                      (pre-norm)
    a  = softmax(q . k_j + q . p_j + b_j)     u = relu(norm(z) W1 + c1)
    o  = sum_j dropout(a)_j v_j               y = z + u W2 + c2

With adaptive spans a_j = m_j e_j, where e_j = exp(s_j) / sum_i m_i exp(s_i) and m is the mask. What is kept of the
attention is e, from which both gradients follow: with D_j = e_j (da_j - sum_i a_i da_i), ds_j = m_j D_j and dm_j = D_j.

G is the number of layers that read one pair of keys and values: L when they are shared (P = 1), else 1 (P = L).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from feedback_transformer.kernels.contract import out_of_span
from feedback_transformer.kernels.norms import Norm, ResidualSum, norm_backward, normalise
from feedback_transformer.kernels.source_steps import SourceStep, SourceUndone, read_source, source_backward
from feedback_transformer.kernels.windowed import lowest

aten = torch.ops.aten


class Layer(NamedTuple):
    """Folded weights of one layer; gains and shifts are None under pre-norm."""

    query: Tensor  # [H*K, D]
    query_shift: Tensor  # [H*K]
    output: Tensor  # [D, H*K]
    expand: Tensor  # [F, D]
    expand_shift: Tensor  # [F]
    contract: Tensor  # [D, F]
    contract_shift: Tensor  # [D]
    attention_gain: Tensor | None = None  # [D]
    attention_shift: Tensor | None = None  # [D]
    feed_forward_gain: Tensor | None = None  # [D]
    feed_forward_shift: Tensor | None = None  # [D]


class Shared(NamedTuple):
    """Folded weights that belong to no layer, and the columns of this step's window."""

    key_value: Tensor  # [P*2*H*K, D]
    key_value_shift: Tensor  # [P*2*H*K]
    mixing: Tensor  # [L+1]
    position: Tensor  # [K, n]
    span: Tensor | None  # [L, H, n]


class Trace(NamedTuple):
    """What the backward needs from the forward: [L, T, ..] for a block, [L, ..] for one step."""

    layers: Tensor  # [L+1, B, D]   x^0..x^L
    sums: Tensor  # [L, B, D]       x + attention: z, or under post-norm the input of z's norm
    outputs: Tensor  # [L, B, D]    post-norm only: z + feed-forward, the input of x^{l+1}'s norm
    query: Tensor  # [L, B, H*K]
    mixed: Tensor  # [L, B, H*K]    o
    hidden: Tensor  # [L, B, F]     u after dropout: positive exactly where the gradient passes
    memory: Tensor  # [1, B, D]

    def at(self, t: int) -> Trace:
        return Trace(*(buffer[:, t] for buffer in self))


class Norms(NamedTuple):
    """Recomputed for a whole block at once: before the query, after the attention's sum, before key_value."""

    attention: Norm
    sums: Norm
    memory: Norm

    def at(self, t: int) -> Norms:
        return Norms(*(norm.at(t) for norm in self))


class Gradients(NamedTuple):
    """The gradients that the weight products after the loop need, laid out like `Trace`."""

    query: Tensor  # [L, B, H*K]
    sums: Tensor  # [L, B, D]
    hidden: Tensor  # [L, B, F]
    outputs: Tensor  # [L, B, D]
    normed_sums: Tensor  # [L, B, D]     post-norm only: at the output of the attention's norm
    normed_outputs: Tensor  # [L, B, D]  post-norm only: at the output of the feed-forward's norm
    key_value: Tensor  # [1, B, P*2*H*K]
    memory: Tensor  # [1, B, D]
    input: Tensor  # [1, B, D]

    def at(self, t: int) -> Gradients:
        return Gradients(*(buffer[:, t] for buffer in self))


class Window(NamedTuple):
    """Keys and values, or their gradients: the n slots that the step reads and, last, the one that it writes."""

    keys: Tensor  # [P, B*H, n+1, K]
    values: Tensor  # [P, B*H, n+1, K]

    def slots(self, first: int, last: int) -> Window:
        return Window(self.keys[:, :, first:last], self.values[:, :, first:last])


class Noise(NamedTuple):
    """Numbers that are negative where dropout drops."""

    attention: Tensor  # [L, B*H, n]
    hidden: Tensor  # [L, B, F]
    source: Tensor  # flat: [L, B*H, N], if there is a source


def forward_step(
    trace: Trace,
    attention: Tensor,
    window: Window,
    layers: Sequence[Layer],
    shared: Shared,
    offsets: Tensor | None,
    alive: Tensor | None,
    sharp: Tensor | None,
    noise: Noise | None,
    pre_norm: bool,
    source: SourceStep | None = None,
) -> None:
    """From trace.layers[0], compute all of `trace`, `attention` [L, B*H, n] and the window's last slot.

    offsets [B*H, n] are added to the scores; alive [B*H, 1] is zero for rows that see nothing; queries are multiplied
    by sharp [B, 1]. A dropped probability is stored negated, so that a number and its mask share one place.
    """
    for index, layer in enumerate(layers):
        x = trace.layers[index]
        query = trace.query[index]
        torch.addmm(layer.query_shift, normalise(x)[0] if pre_norm else x, layer.query.t(), out=query)
        if sharp is not None:
            query.mul_(sharp)
        drop = None if noise is None else noise.attention[index]
        _attend(
            query, trace.mixed[index], attention[index], _pick(window, index), shared.position, offsets, alive, drop,
            None if shared.span is None else shared.span[index],
        )  # fmt: skip

        z = torch.addmm(x, trace.mixed[index], layer.output.t(), out=trace.sums[index])
        normed = normalise(z, layer.attention_gain, layer.attention_shift)[0]
        if source is not None:
            z = read_source(index, z if pre_norm else normed, normed, source)
            normed = normalise(z, *source.folded.norm(index))[0]
        hidden = torch.addmm(layer.expand_shift, normed, layer.expand.t(), out=trace.hidden[index]).relu_()
        if noise is not None:
            hidden.copysign_(noise.hidden[index]).relu_()

        residual = (z if pre_norm else normed) + layer.contract_shift
        y = trace.layers[index + 1] if pre_norm else trace.outputs[index]
        torch.addmm(residual, hidden, layer.contract.t(), out=y)
        if not pre_norm:
            trace.layers[index + 1].copy_(normalise(y, layer.feed_forward_gain, layer.feed_forward_shift)[0])

    memory = trace.memory[0]
    torch.mv(trace.layers.flatten(1).t(), shared.mixing, out=memory.view(-1))
    remembered = normalise(memory)[0] if pre_norm else memory
    projected = torch.addmm(shared.key_value_shift, remembered, shared.key_value.t())
    new_keys, new_values = _by_slot(projected, window.keys)
    window.keys[:, :, -1] = new_keys
    window.values[:, :, -1] = new_values


def _attend(
    query: Tensor,
    mixed: Tensor,
    attention: Tensor,
    window: tuple[Tensor, Tensor],
    position: Tensor,
    offsets: Tensor | None,
    alive: Tensor | None,
    drop: Tensor | None,
    span: Tensor | None,
) -> None:
    """One query per row and head: two batched products, which beat fused attention kernels here."""
    keys, values = window  # [B*H, n, K]
    heads = query.view(len(keys), -1)
    scores = torch.mm(heads, position) if offsets is None else torch.addmm(offsets, heads, position)
    scores = torch.baddbmm(scores.unsqueeze(1), heads.unsqueeze(1), keys.transpose(1, 2)).squeeze(1)
    if span is not None:
        scores.view(len(scores) // len(span), *span.shape).masked_fill_(out_of_span(span), lowest(scores))
    torch.softmax(scores, -1, out=attention)
    if alive is not None:
        attention.mul_(alive)
    if span is not None:
        total = _masked(attention, span).sum(-1, keepdim=True)
        attention.div_(total + (total == 0))
    kept = attention if drop is None else torch.relu(attention.copysign_(drop))
    if span is not None:
        kept = _masked(kept, span)
    torch.bmm(kept.unsqueeze(1), values, out=mixed.view(len(keys), 1, -1))


def backward_step(
    grads: Gradients,
    grad_window: Window,
    grad_position: Tensor,
    grad_bias: Tensor | None,
    grad_span: Tensor | None,
    trace: Trace,
    norms: Norms,
    attention: Tensor,
    window: Window,
    layers: Sequence[Layer],
    shared: Shared,
    sharp: Tensor | None,
    dropout: bool,
    pre_norm: bool,
    source: SourceUndone | None = None,
) -> None:
    """The backward of `forward_step`, from the top layer down.

    On entry grads.input holds the gradient of y, grads.memory that of the memory as an output of the block, and the
    grad_window's last slot the gradients of this step's key and value from later steps. On return grads.input holds the
    gradient of x, and this step's share has been added to the gradients of the older slots and of the position table.
    """
    own = _by_row(grad_window, grads.key_value[0])
    grad_memory = grads.memory[0]
    if pre_norm:
        _, mean, inverse = norms.memory
        grad_memory += norm_backward(own @ shared.key_value, trace.memory[0], mean[0], inverse[0])
    else:
        grad_memory.addmm_(own, shared.key_value)
    grad = torch.addcmul(grads.input[0], grad_memory, shared.mixing[-1])  # of x^L

    scores = torch.empty_like(attention)
    passed = torch.relu(attention) if dropout else attention
    grad_mixed = torch.empty_like(trace.mixed, memory_format=torch.contiguous_format)
    for index in range(len(layers) - 1, -1, -1):
        layer = layers[index]
        sums = ResidualSum.of(index, trace.sums, norms.sums, layer.attention_gain, grads.sums, grads.normed_sums)
        if source is None:
            grad_sum = _feed_forward_backward(index, grad, grads, trace, sums, layer, pre_norm)
        else:
            gain, _ = source.folded.norm(index)
            read = ResidualSum.of(
                index, source.trace.sums, source.norm, gain, source.grads.sums, source.grads.normed_sums
            )
            grad_read = _feed_forward_backward(index, grad, grads, trace, read, layer, pre_norm)
            grad_sum = source_backward(index, grad_read, source, dropout, sums)
        torch.mm(grad_sum, layer.output, out=grad_mixed[index])
        _attend_backward(
            grads.query[index], scores[index], grad_mixed[index], trace.mixed[index],
            attention[index], passed[index], _pick(window, index), shared.position, dropout,
            None if shared.span is None else shared.span[index], None if grad_span is None else grad_span[index],
        )  # fmt: skip
        if sharp is not None:
            grads.query[index].mul_(sharp)
        if pre_norm:
            _, mean, inverse = norms.attention
            grad_normed = grads.query[index] @ layer.query
            grad = grad_sum + norm_backward(grad_normed, trace.layers[index], mean[index], inverse[index])
        else:
            grad = torch.addmm(grad_sum, grads.query[index], layer.query)
        grad.addcmul_(grad_memory, shared.mixing[index])
    grads.input[0].copy_(grad)
    kept = passed if shared.span is None else _masked(passed, shared.span.unsqueeze(1))
    _window_backward(grad_window, scores, kept, trace.query, grad_mixed)
    heads = trace.query.view(len(layers), scores.shape[1], -1)
    grad_position.addbmm_(heads.transpose(1, 2), scores)
    if grad_bias is not None:
        heads_first = scores.view(len(layers) * len(trace.memory[0]), *grad_bias.shape)
        grad_bias += heads_first.sum(0)


def _feed_forward_backward(
    index: int, grad: Tensor, grads: Gradients, trace: Trace, below: ResidualSum, layer: Layer, pre_norm: bool
) -> Tensor:
    """From the gradient of x^{l+1} to that of the sum below, which is returned and, like those between, stored."""
    if not pre_norm:
        grads.normed_outputs[index].copy_(grad)
        y = trace.outputs[index]
        _, mean, inverse = normalise(y)
        grad = norm_backward(grad, y, mean, inverse, layer.feed_forward_gain)
    grads.outputs[index].copy_(grad)
    aten.threshold_backward.grad_input(grad @ layer.contract, trace.hidden[index], 0, grad_input=grads.hidden[index])
    return below.backward(grad, grads.hidden[index], layer.expand)


def _attend_backward(
    grad_query: Tensor,
    grad_scores: Tensor,
    grad_mixed: Tensor,
    mixed: Tensor,
    attention: Tensor,
    passed: Tensor,
    window: tuple[Tensor, Tensor],
    position: Tensor,
    dropout: bool,
    span: Tensor | None,
    grad_span: Tensor | None,
) -> None:
    """ds_j = a_j (da_j - sum_i a_i da_i), and that sum is grad_o . o: a product of K numbers per head, not n."""
    keys, values = window
    rows = len(keys)
    grad_heads = grad_mixed.view(rows, -1)
    total = (grad_heads * mixed.view(rows, -1)).sum(-1, keepdim=True)
    grad_kept = torch.bmm(grad_heads.unsqueeze(1), values.transpose(1, 2)).squeeze(1)
    if dropout:
        torch.mul(passed, grad_kept, out=grad_scores).addcmul_(attention.abs(), total, value=-1)
    else:
        torch.sub(grad_kept, total, out=grad_scores).mul_(attention)
    if span is not None and grad_span is not None:
        by_row = grad_scores.view(rows // len(span), *span.shape)
        grad_span += by_row.sum(0)
        by_row.mul_(span)
    by_position = torch.mm(grad_scores, position.t()).unsqueeze(1)
    torch.baddbmm(by_position, grad_scores.unsqueeze(1), keys, out=grad_query.view(rows, 1, -1))


def _window_backward(grad_window: Window, scores: Tensor, kept: Tensor, query: Tensor, grad_mixed: Tensor) -> None:
    """dk_j += sum_l ds_j q and dv_j += sum_l a_j do: an update of rank G for each row, head and projection."""
    pairs, rows, _, width = grad_window.keys.shape
    readers, slots = len(scores) // pairs, scores.shape[-1]

    def update(grad: Tensor, weight: Tensor, vectors: Tensor) -> None:
        weight = weight.view(pairs, readers, rows, slots).permute(0, 2, 3, 1).reshape(pairs * rows, slots, readers)
        vectors = vectors.view(pairs, readers, rows, width).transpose(1, 2).flatten(0, 1)
        grad[:, :, :-1].view(pairs * rows, slots, width).baddbmm_(weight, vectors)

    update(grad_window.keys, scores, query)
    update(grad_window.values, kept, grad_mixed)


def _masked(weights: Tensor, span: Tensor) -> Tensor:
    """weights [.., B*H, n] times span [H, n], or one per layer: [L, B*H, n] times [L, 1, H, n]"""
    *layers, rows, _ = weights.shape
    return (weights.view(*layers, rows // span.shape[-2], *span.shape[-2:]) * span).view(weights.shape)


def _pick(window: Window, layer: int) -> tuple[Tensor, Tensor]:
    """The n slots of keys and values that this layer reads."""
    pair = layer if len(window.keys) > 1 else 0
    return window.keys[pair, :, :-1], window.values[pair, :, :-1]


def _by_slot(projected: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """[B, P*2*H*K] -> keys and values [P, B*H, K]"""
    pairs, rows, _, width = keys.shape
    batch = len(projected)
    split = projected.view(batch, pairs, 2, rows // batch, width).permute(2, 1, 0, 3, 4)
    return split[0].reshape(pairs, rows, width), split[1].reshape(pairs, rows, width)


def _by_row(grad_window: Window, out: Tensor) -> Tensor:
    """The reverse, from the last slot of keys and values into `out` [B, P*2*H*K]."""
    pairs, rows, _, width = grad_window.keys.shape
    batch = len(out)
    split = out.view(batch, pairs, 2, rows // batch, width).permute(2, 1, 0, 3, 4)
    for half, grad in zip(split, grad_window, strict=True):
        half.copy_(grad[:, :, -1].view(pairs, batch, -1, width))
    return out
