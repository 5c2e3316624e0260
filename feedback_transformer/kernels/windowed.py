"""Attention of a block of queries, each to its own window of the past, with a hand-written backward.

    P[t, j] = softmax_j(q_t . (k_j + p_d) + b_d)        d = M - T + 1 + t - j, how far key j lies behind query t
    y_t     = sum_j P[t, j] v_j

Under autograd the shift from distances d to keys j costs more than the products, because every view of it fills and
copies all scores again. Here it is one strided view of a padded product, in forward and backward. Where all but a few
near distances share one position, which softmax does not see, only those few are computed and added.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CACHE = 2**21  # bytes of scores at a time


class Positions(NamedTuple):
    """Position keys [K, C] and bias [H, C] of the C nearest distances, the farthest first.

    Query t uses column skip - t + j for key j. A key without a column is hidden; if the columns are only `near` ones,
    nothing is added to its score, and what it is hidden by is the history.
    """

    keys: Tensor
    bias: Tensor | None
    skip: int
    near: bool = False

    def to(self, dtype: torch.dtype) -> Positions:
        return self._replace(keys=self.keys.to(dtype), bias=None if self.bias is None else self.bias.to(dtype))

    def columns_from(self, first: int, steps: int) -> int:
        """The first column that any query uses for a key from `first` on."""
        return max(0, self.skip + first - (steps - 1))

    def without(self, first: int, steps: int) -> Positions:
        """The positions for the keys from `first` on."""
        column = self.columns_from(first, steps)
        bias = None if self.bias is None else self.bias[:, column:]
        return self._replace(keys=self.keys[:, column:], bias=bias, skip=self.skip + first - column)


def lowest(scores: Tensor) -> float:
    """A score that hides a key: its exponential is zero, and no sum with a score overflows."""
    return torch.finfo(scores.dtype).min / 2


def distances(steps: int, num_keys: int, device: torch.device) -> Tensor:
    """[T, num_keys]: how many steps query t comes after key j, the last key being one before the last query."""
    query = torch.arange(steps, device=device)[:, None]
    return (num_keys - steps + 1) + query - torch.arange(num_keys, device=device)


def visible(history: Tensor, num_keys: int) -> Tensor:
    """[B, 1, T, num_keys]: query t of a row sees the `history` [B, T] memories that exist before it."""
    distance = distances(history.shape[1], num_keys, history.device)
    return ((distance >= 1) & (distance <= history[..., None])).unsqueeze(1)


def windowed_weights(
    query: Tensor, keys: Tensor, positions: Positions, history: Tensor | None, hidden: Tensor | None = None
) -> Tensor:
    """query [B, H, T, K], keys [B, H, M, K] -> P [B, H, T, M]

    history [B, T] is how many memories exist before each query; None if all do. Where none does, P is meaningless.
    hidden [H, T, M]: further memories that a head does not see.
    """
    given = (query, keys, *positions.to(query.dtype), history, hidden)
    result: Tensor = _Weights.apply(*given)  # type: ignore[no-untyped-call]
    return result


def windowed_attention(
    query: Tensor, keys: Tensor, values: Tensor, positions: Positions, history: Tensor | None
) -> Tensor:
    """The same with values [B, H, M, K] -> y [B, H, T, K]; faster on a CPU if there are many scores.

    Computes a few rows of the batch at a time, so that their scores stay in the cache instead of going through memory a
    dozen times, and only the keys that one of them sees.
    """
    scores = math.prod(query.shape[:3]) * keys.shape[2] * query.element_size()
    if query.device.type != "cpu" or scores <= 4 * CACHE:
        return windowed_weights(query, keys, positions, history) @ values
    given = (query, keys, values, *positions.to(query.dtype), history)
    result: Tensor = _Attention.apply(*given)  # type: ignore[no-untyped-call]
    return result


class _Weights(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        keys: Tensor,
        position: Tensor,
        bias: Tensor | None,
        skip: int,
        near: bool,
        history: Tensor | None,
        hidden: Tensor | None,
    ) -> Tensor:
        positions = Positions(position, bias, skip, near)
        weights = _weights(query, keys, positions, history, hidden)
        ctx.save_for_backward(query, keys, weights, position, bias)
        ctx.placed = skip, near
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, weights, position, bias = ctx.saved_tensors
        dscores = torch._softmax_backward_data(grad, weights, -1, weights.dtype)
        return *_score_gradients(dscores, query, keys, Positions(position, bias, *ctx.placed)), None, None, None, None


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        position: Tensor,
        bias: Tensor | None,
        skip: int,
        near: bool,
        history: Tensor | None,
    ) -> Tensor:
        positions, steps = Positions(position, bias, skip, near), query.shape[2]
        mixed = query.new_empty(*query.shape[:3], values.shape[-1])
        ctx.parts = []
        for rows, first in _parts(query, keys, positions, history):
            k, v = keys[rows, :, first:], values[rows, :, first:]
            seen = None if history is None else history[rows]
            weights = _weights(query[rows], k, positions.without(first, steps), seen)
            mixed[rows] = weights @ v
            if any(ctx.needs_input_grad):
                ctx.parts.append((rows, first, weights))
        ctx.save_for_backward(query, keys, values, position, bias)
        ctx.placed = skip, near
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, values, position, bias = ctx.saved_tensors
        positions, steps = Positions(position, bias, *ctx.placed), query.shape[2]
        dquery, dkeys, dvalues = torch.empty_like(query), torch.zeros_like(keys), torch.zeros_like(values)
        dposition, dbias = torch.zeros_like(position), None if bias is None else torch.zeros_like(bias)
        for rows, first, weights in ctx.parts:
            k, v, dy = keys[rows, :, first:], values[rows, :, first:], grad[rows]
            dscores = torch._softmax_backward_data(dy @ v.transpose(2, 3), weights, -1, weights.dtype)
            dvalues[rows, :, first:] = weights.transpose(2, 3) @ dy
            dq, dk, dp, db = _score_gradients(dscores, query[rows], k, positions.without(first, steps))
            dquery[rows], dkeys[rows, :, first:] = dq, dk
            column = positions.columns_from(first, steps)
            dposition[:, column:] += dp
            if dbias is not None and db is not None:
                dbias[:, column:] += db
        return dquery, dkeys, dvalues, dposition, dbias, None, None, None


def _parts(
    query: Tensor, keys: Tensor, positions: Positions, history: Tensor | None
) -> Iterator[tuple[Tensor | slice, int]]:
    """Rows to compute together, and the first key that any of them sees; those that see most come first."""
    (batch, heads, steps, _), num_keys = query.shape, keys.shape[2]
    row = heads * steps * query.element_size()  # bytes of scores per key
    first, order = torch.zeros(batch, dtype=torch.long), None
    if history is not None:
        last = -positions.skip if positions.near else num_keys - 1  # every near distance has a key
        first = (distances(steps, num_keys, query.device)[:, 0] - history).amin(dim=1).clamp(0, last)
        first, order = first.sort()
    at = 0
    while at < batch:
        begin = int(first[at])
        rows = slice(at, at + max(1, CACHE // (row * (num_keys - begin))))
        yield rows if order is None else order[rows], begin
        at = rows.stop


def _weights(
    query: Tensor, keys: Tensor, positions: Positions, history: Tensor | None, hidden: Tensor | None = None
) -> Tensor:
    """P [B, H, T, M]"""
    q, k = query.flatten(0, 1), keys.flatten(0, 1)
    if positions.near:
        scores = q @ k.transpose(1, 2)
        columns = q @ positions.keys
    else:
        padded, columns = _padded(q, positions.keys, lowest(q))
        torch.mm(q.reshape(-1, q.shape[-1]), positions.keys, out=columns)
    if positions.bias is not None:
        columns.view(*query.shape[:3], -1).add_(positions.bias.unsqueeze(1))
    if positions.near:
        _nearest(scores, positions).add_(columns)
    else:
        scores = torch.baddbmm(_shifted(padded, positions.skip, keys.shape[2]), q, k.transpose(1, 2))
    scores = scores.view(*query.shape[:3], -1)
    if history is not None:
        scores.masked_fill_(~visible(history, keys.shape[2]), lowest(scores))
    if hidden is not None:
        scores.masked_fill_(hidden, lowest(scores))
    return torch.softmax(scores, dim=-1, out=scores)  # in place, since softmax goes row by row: fresh memory is slower


def _score_gradients(
    dscores: Tensor, query: Tensor, keys: Tensor, positions: Positions
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """dscores [B, H, T, M] -> gradients of query, keys, position keys and bias"""
    q, k, d = query.flatten(0, 1), keys.flatten(0, 1), dscores.flatten(0, 1)
    if positions.near:
        columns = _nearest(d, positions).flatten(0, 1)
    else:
        padded, columns = _padded(q, positions.keys, 0.0)
        _shifted(padded, positions.skip, keys.shape[2]).copy_(d)
    dquery = torch.baddbmm((columns @ positions.keys.t()).view_as(q), d, k).view_as(query)
    dkeys = (d.transpose(1, 2) @ q).view_as(keys)
    dposition = q.reshape(-1, q.shape[-1]).t() @ columns
    dbias = None if positions.bias is None else columns.view(*query.shape[:3], -1).sum(dim=(0, 2))
    return dquery, dkeys, dposition, dbias


def _padded(q: Tensor, position: Tensor, filling: float) -> tuple[Tensor, Tensor]:
    """A buffer [N, T, C + T] for C distances and T more columns of padding that hide, filled, and its first C columns
    [N T, C]."""
    rows, steps, _ = q.shape
    padded = q.new_full((rows, steps, position.shape[1] + steps), filling)
    return padded, padded.view(rows * steps, -1)[:, : position.shape[1]]


def _shifted(padded: Tensor, skip: int, num_keys: int) -> Tensor:
    """[N, T, C + T] -> [N, T, M]; entry (t, j) is (t, skip - t + j), which may lie in the padding of row t - 1"""
    rows, steps, columns = padded.shape
    return padded.as_strided((rows, steps, num_keys), (steps * columns, columns - 1, 1), skip)


def _nearest(scores: Tensor, positions: Positions) -> Tensor:
    """[N, T, M] -> [N, T, C]; entry (t, c) is (t, c - skip + t), the key at the distance of column c"""
    (rows, steps, num_keys), columns = scores.shape, positions.keys.shape[1]
    return scores.as_strided((rows, steps, columns), (steps * num_keys, num_keys + 1, 1), -positions.skip)
