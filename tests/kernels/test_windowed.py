"""Windowed attention of a block equals the formula, query by query, and so do its gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from feedback_transformer.kernels import windowed
from feedback_transformer.kernels.windowed import Positions, windowed_attention, windowed_weights
from feedback_transformer.model.attention import RelativePosition

BATCH, HEADS, STEPS, DIM = 4, 3, 5, 4


def by_the_formula(query: Tensor, keys: Tensor, table: Tensor, bias: Tensor | None, history: Tensor | None) -> Tensor:
    """table [K, S]: column S - d belongs to a key d steps back; beyond S and before 1 nothing is seen."""
    num_keys, window = keys.shape[2], table.shape[1]
    rows = []
    for t in range(STEPS):
        scores = []
        for j in range(num_keys):
            back = num_keys - STEPS + 1 + t - j
            score = (query[:, :, t] * keys[:, :, j]).sum(-1)
            unseen = torch.full_like(score, -torch.inf)
            if not 1 <= back <= window:
                scores.append(unseen)
                continue
            score = score + query[:, :, t] @ table[:, window - back]
            score = score if bias is None else score + bias[:, window - back]
            scores.append(score if history is None else torch.where((back <= history[:, t])[:, None], score, unseen))
        rows.append(torch.stack(scores, dim=-1).softmax(-1))
    return torch.stack(rows, dim=2)


def some_histories(num_keys: int) -> Tensor:
    """All that there is; as little as can be; a row that begins anew within the block; anything, of one at least."""
    every = num_keys - STEPS + 1 + torch.arange(STEPS)
    anew = torch.where(torch.arange(STEPS) < 3, every, torch.arange(STEPS) - 2)
    return torch.stack([every, every.clamp(max=1), anew, torch.randint(1, num_keys + 1, (STEPS,))])


@pytest.mark.parametrize(("window", "num_keys"), [(4, 8), (4, 6), (9, 9), (7, 5), (20, 12)])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("partly", [False, True])
@pytest.mark.parametrize(
    "cache", [1, 800, windowed.CACHE]
)  # a row of the batch at a time, two or three, or all at once
def test_outputs_and_gradients_are_those_of_the_formula(
    window: int, num_keys: int, biased: bool, partly: bool, cache: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windowed, "CACHE", cache)
    torch.manual_seed(window)
    shapes = ((BATCH, HEADS, STEPS, DIM), *2 * [(BATCH, HEADS, num_keys, DIM)], (DIM, window), (HEADS, window))
    given = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    query, keys, values, table, bias = given
    history = some_histories(num_keys) if partly else None
    skip = window - (num_keys - STEPS + 1)
    first = max(0, skip - (STEPS - 1))
    positions = Positions(table[:, first:], bias[:, first:] if biased else None, skip - first)
    slow = by_the_formula(query, keys, table, bias if biased else None, history)
    weights = windowed_weights(query, keys, positions, history)
    torch.testing.assert_close(weights, slow)
    used = [x for x in given if x is not bias or biased]
    wanted = torch.randn_like(query)
    true = torch.autograd.grad(((slow @ values) * wanted).sum(), used)
    for mixed in (weights @ values, windowed_attention(query, keys, values, positions, history)):
        torch.testing.assert_close(mixed, slow @ values)
        for ours, theirs in zip(torch.autograd.grad((mixed * wanted).sum(), used), true, strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("reach", "num_keys"), [(2, 9), (4, 9), (5, 9), (6, 9), (9, 14)])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("partly", [False, True])
@pytest.mark.parametrize("cache", [1, 800, windowed.CACHE])
def test_where_far_distances_share_a_position_only_near_ones_are_computed(
    reach: int, num_keys: int, biased: bool, partly: bool, cache: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windowed, "CACHE", cache)
    torch.manual_seed(reach)
    window = 11
    position = RelativePosition(DIM, window, slopes=(1.0,) * HEADS if biased else (), reach=reach).double()
    positions = position.positions(STEPS, num_keys)
    assert positions.near == (reach <= num_keys - STEPS + 2)
    assert positions.keys.shape[1] == reach - 1 if positions.near else min(window, num_keys)
    shapes = ((BATCH, HEADS, STEPS, DIM), *2 * [(BATCH, HEADS, num_keys, DIM)])
    query, keys, values = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    history = some_histories(num_keys).clamp(max=window)
    history = history if partly else history[:1].expand(BATCH, -1)
    table, bias = position.table(window)
    slow = by_the_formula(query, keys, table, bias, history)
    used, wanted = [query, keys, values, *position.parameters()], torch.randn_like(query)
    true = torch.autograd.grad(((slow @ values) * wanted).sum(), used)
    weights = windowed_weights(query, keys, positions, history)
    torch.testing.assert_close(weights, slow)
    for mixed in (weights @ values, windowed_attention(query, keys, values, positions, history)):
        torch.testing.assert_close(mixed, slow @ values)
        gradients = torch.autograd.grad((mixed * wanted).sum(), used, retain_graph=True)
        for ours, theirs in zip(gradients, true, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_a_gradient_of_a_gradient_is_refused() -> None:
    query, keys = torch.randn(1, 1, 3, 2, requires_grad=True), torch.randn(1, 1, 3, 2)
    y = windowed_attention(query, keys, keys, Positions(torch.randn(2, 5), None, 4), None)
    (slope,) = torch.autograd.grad(y.square().sum(), query, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()
