"""Attention of a block of queries, each to its own window of the past: the weights, with a hand-written backward.

    P[t, j] = softmax_j(q_t . (k_j + p_d) + b_d)        d = M - T + 1 + t - j, how far key j lies behind query t

Under autograd the shift from distances d to keys j costs more than the products: every view of it fills and copies all
scores once more. Here it is one strided view of a padded product, there and back, for some rows of the batch at a time.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

CACHE = 2**21  # bytes of scores at a time


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
        weights = query.new_empty(*query.shape[:3], keys.shape[-2])
        for some in _rows_at_a_time(weights):
            q, k, scores = (x[some].flatten(0, 1) for x in (query, keys, weights))
            padded, distances = _padded(q, position, lowest(q))
            torch.mm(q.reshape(-1, q.shape[-1]), position, out=distances)
            if bias is not None:
                distances.view(-1, *query.shape[1:3], len(bias[0])).add_(bias.unsqueeze(1))
            torch.baddbmm(_shifted(padded, skip, keys.shape[-2]), q, k.transpose(1, 2), out=scores)
            if hidden is not None:
                weights[some].masked_fill_(hidden[some], lowest(scores))
            torch.softmax(scores, dim=-1, out=scores)
        ctx.save_for_backward(query, keys, position, weights)
        ctx.skip, ctx.biased = skip, bias is not None
        return weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, position, weights = ctx.saved_tensors
        dquery, dkeys, dposition = torch.empty_like(query), torch.empty_like(keys), torch.zeros_like(position)
        dbias = position.new_zeros(query.shape[1], position.shape[1]) if ctx.biased else None
        for some in _rows_at_a_time(weights):
            q, k = query[some].flatten(0, 1), keys[some].flatten(0, 1)
            dscores = torch._softmax_backward_data(grad[some], weights[some], -1, weights.dtype).flatten(0, 1)
            padded, distances = _padded(q, position, 0.0)
            _shifted(padded, ctx.skip, keys.shape[-2]).copy_(dscores)
            dkeys[some] = (dscores.transpose(1, 2) @ q).view_as(keys[some])
            dquery[some] = torch.baddbmm((distances @ position.t()).view_as(q), dscores, k).view_as(query[some])
            dposition.addmm_(q.reshape(-1, q.shape[-1]).t(), distances)
            if dbias is not None:
                dbias += distances.view(-1, *query.shape[1:3], position.shape[1]).sum(dim=(0, 2))
        return dquery, dkeys, dposition, dbias, None, None


def _padded(q: Tensor, position: Tensor, filling: float) -> tuple[Tensor, Tensor]:
    """Room for what belongs to each of C distances, and as many more as there are steps, in which nothing can be seen:
    [N, T, C + T], filled, and its first C columns [N T, C]."""
    rows, steps, _ = q.shape
    padded = q.new_full((rows, steps, position.shape[1] + steps), filling)
    return padded, padded.view(rows * steps, -1)[:, : position.shape[1]]


def _rows_at_a_time(weights: Tensor) -> list[slice]:
    """Rows of the batch whose scores fit into a processor's cache: through memory they would go a dozen times."""
    batch, row = len(weights), math.prod(weights.shape[1:]) * weights.element_size()
    count = max(1, CACHE // max(1, row)) if weights.device.type == "cpu" else max(1, batch)
    return [slice(at, at + count) for at in range(0, batch, count)]
