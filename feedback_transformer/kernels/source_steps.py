"""Attention to a source, a decoder's sublayer between the other two, for the steps of `steps.py`:

    q = norm(z) Wq + cq,    a = softmax(q . k_j + mask_j),    o = sum_j dropout(a)_j v_j,    z' = z + o Wo    (pre-norm)

The source does not grow, so the gradients of its keys and values are computed after the loop, as one product over all
steps.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from feedback_transformer.kernels.norms import Norm, ResidualSum


class FoldedSource(NamedTuple):
    """Weights as the loop needs them, and the source they read. Gain and shift are None under pre-norm."""

    query: Tensor  # [L, H*K, D]
    query_shift: Tensor  # [L, H*K]
    output: Tensor  # [L, D, H*K]
    gain: Tensor | None  # [L, D]
    shift: Tensor | None  # [L, D]
    keys: Tensor  # [L, B*H, N, K]
    values: Tensor  # [L, B*H, N, K]
    mask: Tensor  # [B*H, 1, N]

    def norm(self, index: int) -> tuple[Tensor | None, Tensor | None]:
        """Gain and shift of a layer's norm."""
        return (None, None) if self.gain is None or self.shift is None else (self.gain[index], self.shift[index])


class SourceTrace(NamedTuple):
    """What the backward needs: [L, T, ..] for a block, [L, ..] for one step."""

    sums: Tensor  # [L, B, D]         z + attention, before its norm under post-norm
    query: Tensor  # [L, B, H*K]
    mixed: Tensor  # [L, B, H*K]
    attention: Tensor  # [L, B*H, N]  negative where dropped

    @classmethod
    def new(cls, folded: FoldedSource, steps: int, batch: int) -> SourceTrace:
        layers, inner, width = folded.query.shape

        def empty(rows: int, size: int) -> Tensor:
            return folded.query.new_empty(layers, steps, rows, size)

        queries, mixed = empty(batch, inner), empty(batch, inner)
        return cls(empty(batch, width), queries, mixed, empty(folded.mask.shape[0], folded.mask.shape[2]))

    def at(self, t: int) -> SourceTrace:
        return SourceTrace(*(buffer[:, t] for buffer in self))


class SourceGradients(NamedTuple):
    """Laid out like `SourceTrace`."""

    sums: Tensor  # [L, B, D]
    query: Tensor  # [L, B, H*K]
    mixed: Tensor  # [L, B, H*K]
    scores: Tensor  # [L, B*H, N]
    normed_sums: Tensor  # [L, B, D], post-norm only

    @classmethod
    def like(cls, trace: SourceTrace, post_norm: bool) -> SourceGradients:
        sums, query, mixed, scores = map(torch.empty_like, trace)
        return cls(sums, query, mixed, scores, torch.empty_like(sums if post_norm else sums[:0]))

    def at(self, t: int) -> SourceGradients:
        return SourceGradients(*(buffer[:, t] for buffer in self))


class SourceStep(NamedTuple):
    """The source as one step reads it."""

    folded: FoldedSource
    trace: SourceTrace
    noise: Tensor | None = None  # [L, B*H, N], negative where dropout drops


class SourceUndone(NamedTuple):
    """The same for the backward."""

    folded: FoldedSource
    trace: SourceTrace
    grads: SourceGradients
    norm: Norm  # after the sums

    def at(self, t: int) -> SourceUndone:
        return SourceUndone(self.folded, self.trace.at(t), self.grads.at(t), self.norm.at(t))


def read_source(index: int, residual: Tensor, normed: Tensor, step: SourceStep) -> Tensor:
    """The next residual sum [B, D] of layer `index`."""
    folded, trace = step.folded, step.trace
    keys, attention, mixed = folded.keys[index], trace.attention[index], trace.mixed[index]
    query = torch.addmm(folded.query_shift[index], normed, folded.query[index].t(), out=trace.query[index])
    scores = torch.baddbmm(folded.mask, query.view(len(keys), 1, -1), keys.transpose(1, 2))
    torch.softmax(scores.squeeze(1), -1, out=attention)
    kept = attention if step.noise is None else torch.relu(attention.copysign_(step.noise[index]))
    torch.bmm(kept.unsqueeze(1), folded.values[index], out=mixed.view(len(keys), 1, -1))
    return torch.addmm(residual, mixed, folded.output[index].t(), out=trace.sums[index])


def source_backward(index: int, grad: Tensor, undone: SourceUndone, dropout: bool, below: ResidualSum) -> Tensor:
    """From the gradient of this sublayer's sum to that of the sum below it."""
    folded, trace, grads = undone.folded, undone.trace, undone.grads
    keys, attention, scores = folded.keys[index], trace.attention[index], grads.scores[index]
    grad_mixed = torch.mm(grad, folded.output[index], out=grads.mixed[index]).view(len(keys), -1)
    total = (grad_mixed * trace.mixed[index].view(len(keys), -1)).sum(-1, keepdim=True)
    grad_kept = torch.bmm(grad_mixed.unsqueeze(1), folded.values[index].transpose(1, 2)).squeeze(1)
    if dropout:
        torch.mul(torch.relu(attention), grad_kept, out=scores).addcmul_(attention.abs(), total, value=-1)
    else:
        torch.sub(grad_kept, total, out=scores).mul_(attention)
    torch.bmm(scores.unsqueeze(1), keys, out=grads.query[index].view(len(keys), 1, -1))
    return below.backward(grad, grads.query[index], folded.query[index])


def key_value_gradients(trace: SourceTrace, grads: SourceGradients) -> tuple[Tensor, Tensor]:
    """dk_j = sum_t ds_j q and dv_j = sum_t a_j do, [L, B*H, N, K] each"""

    def product(weights: Tensor, vectors: Tensor) -> Tensor:  # [L, T, B*H, N], [L, T, B, H*K]
        by_row = [
            torch.bmm(weight.permute(1, 2, 0), vector.view(*weight.shape[:2], -1).transpose(0, 1))
            for weight, vector in zip(weights, vectors, strict=True)
        ]
        return torch.stack(by_row)

    return product(grads.scores, trace.query), product(torch.relu(trace.attention), grads.mixed)
