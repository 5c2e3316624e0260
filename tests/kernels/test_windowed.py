"""The weights of a block's windowed attention equal the formula, query by query, and so do their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from feedback_transformer.kernels import windowed
from feedback_transformer.kernels.windowed import windowed_weights


def by_the_formula(query: Tensor, keys: Tensor, table: Tensor, bias: Tensor | None, hidden: Tensor | None) -> Tensor:
    """table [K, S]: column S - d belongs to a key d steps back; beyond S and before 1 nothing is seen."""
    steps, num_keys, window = query.shape[2], keys.shape[2], table.shape[1]
    rows = []
    for t in range(steps):
        scores = []
        for j in range(num_keys):
            back = num_keys - steps + 1 + t - j
            score = (query[:, :, t] * keys[:, :, j]).sum(-1)
            if 1 <= back <= window:
                score = score + query[:, :, t] @ table[:, window - back]
                score = score if bias is None else score + bias[:, window - back]
            seen = 1 <= back <= window
            unseen = torch.full_like(score, -torch.inf)
            score = score if seen else unseen
            scores.append(score if hidden is None else torch.where(hidden[:, :, t, j], unseen, score))
        rows.append(torch.stack(scores, dim=-1).softmax(-1))
    return torch.stack(rows, dim=2)


@pytest.mark.parametrize(("window", "num_keys"), [(4, 8), (4, 6), (9, 9), (7, 5), (20, 12)])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("cache", [1, windowed.CACHE])  # a row of the batch at a time, or all at once
def test_weights_and_gradients_are_those_of_the_formula(
    window: int, num_keys: int, biased: bool, masked: bool, cache: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windowed, "CACHE", cache)
    steps = 5
    torch.manual_seed(window)
    given = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in
             ((2, 3, steps, 4), (2, 3, num_keys, 4), (4, window), (3, window))]  # fmt: skip
    query, keys, table, bias = given
    hidden = torch.rand(2, 1, steps, num_keys) < 0.3 if masked else None
    if hidden is not None:
        near = num_keys - steps + torch.arange(steps)  # every query sees one key at least
        hidden[:, :, torch.arange(steps), near] = False
    skip = window - (num_keys - steps + 1)
    first = max(0, skip - (steps - 1))
    fast = windowed_weights(
        query, keys, table[:, first:], bias[:, first:] if biased else None, skip - first, hidden
    )  # fmt: skip
    slow = by_the_formula(query, keys, table, bias if biased else None, hidden)
    torch.testing.assert_close(fast, slow)
    weight = torch.randn_like(fast)
    used = given if biased else given[:-1]
    for a, b in zip(
        torch.autograd.grad((fast * weight).sum(), used), torch.autograd.grad((slow * weight).sum(), used), strict=True
    ):
        torch.testing.assert_close(a, b)
