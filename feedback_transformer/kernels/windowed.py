"""Attention of a block of queries, each to its own window of the past: the weights, with a hand-written backward.

    P[t, j] = softmax_j(q_t . (k_j + p_d) + b_d)        d = M - T + 1 + t - j, how far key j lies behind query t

Under autograd the shift from distances d to keys j costs more than the products: every view of it fills and copies all
scores once more. Here it is one strided view of a padded product, there and back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def lowest(scores: Tensor) -> float:
    """A score that hides: its exponential is zero, and no sum with a score overflows."""
    return torch.finfo(scores.dtype).min / 2


def windowed_weights(
    query: Tensor, keys: Tensor, position: Tensor, bias: Tensor | None, skip: int, hidden: Tensor | None
) -> Tensor:
    """query [B, H, T, K], keys [B, H, M, K] -> P [B, H, T, M]

    position [K, C] and bias [H, C] belong to the C newest distances, the farthest first; column skip - t + j is query
    t's for key j, and keys without a column are hidden. So are those where hidden [B, 1, T, M] is true.
    """
    position, bias = position.to(query.dtype), None if bias is None else bias.to(query.dtype)
    result: Tensor = _Weights.apply(query, keys, position, bias, skip, hidden)  # type: ignore[no-untyped-call]
    return result


def _shifted(padded: Tensor, skip: int, num_keys: int) -> Tensor:
    """[N, T, C + T] -> [N, T, M], entry (t, j) being (t, skip - t + j), which may lie in the padding of row t - 1"""
    rows, steps, columns = padded.shape
    return padded.as_strided((rows, steps, num_keys), (steps * columns, columns - 1, 1), skip)


class _Weights(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, position: Tensor, bias: Tensor | None, skip: int, hidden: Tensor | None
    ) -> Tensor:
        batch, heads, steps, _ = query.shape
        num_keys, columns = keys.shape[-2], position.shape[1]
        q, k = query.flatten(0, 1), keys.flatten(0, 1)
        # Behind every row of distances, room for as many as there are steps, in which nothing can be seen.
        room = torch.cat([position, position.new_zeros(len(position), steps)], dim=1)
        padded = (q.reshape(-1, len(position)) @ room).view(batch, heads, steps, columns + steps)
        padded[..., columns:] = lowest(q)
        if bias is not None:
            padded[..., :columns] += bias.unsqueeze(1)
        padded = padded.flatten(0, 1)
        scores = torch.baddbmm(_shifted(padded, skip, num_keys), q, k.transpose(1, 2)).view(batch, heads, steps, -1)
        if hidden is not None:
            scores.masked_fill_(hidden, lowest(scores))
        weights = torch.softmax(scores, dim=-1, out=scores)  # row by row: memory that is new would be slower
        ctx.save_for_backward(query, keys, position, weights)
        ctx.skip, ctx.biased = skip, bias is not None
        return weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, position, weights = ctx.saved_tensors
        (batch, heads, steps, _), columns = query.shape, position.shape[1]
        q, k = query.flatten(0, 1), keys.flatten(0, 1)
        dscores = torch._softmax_backward_data(grad, weights, -1, weights.dtype).flatten(0, 1)
        dkeys = (dscores.transpose(1, 2) @ q).view_as(keys)
        padded = dscores.new_zeros(len(q), steps, columns + steps)
        _shifted(padded, ctx.skip, keys.shape[-2]).copy_(dscores)
        rows = padded[..., :columns].reshape(-1, columns)
        dquery = torch.baddbmm((rows @ position.t()).view_as(q), dscores, k).view_as(query)
        dposition = q.reshape(-1, q.shape[-1]).t() @ rows
        dbias = rows.view(batch, heads, steps, columns).sum(dim=(0, 2)) if ctx.biased else None
        return dquery, dkeys, dposition, dbias, None, None
