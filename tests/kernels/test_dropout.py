"""Masks from 16 bits a number are as random as they should be."""

from __future__ import annotations

import pytest
import torch

from feedback_transformer.kernels.dropout import keep_mask, keep_probability, random_signs
from feedback_transformer.model.attention import Dropout


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_a_mask_drops_its_share_and_scales_the_rest(dropout: float) -> None:
    torch.manual_seed(0)
    mask = keep_mask(torch.empty(501, 401), dropout)
    kept = keep_probability(dropout)
    assert abs(kept - (1 - dropout)) < 1e-5
    assert set(mask.unique().tolist()) == {0.0, torch.tensor(1 / kept).item()}
    assert abs((mask > 0).double().mean() - kept) < 5 * (kept * (1 - kept) / mask.numel()) ** 0.5
    rows = (mask > 0).double().mean(dim=0)  # no column of the four numbers in 64 bits is favoured
    assert abs(rows[0::4].mean() - rows[3::4].mean()) < 0.01


def test_signs_follow_their_generator() -> None:
    def draw(seed: int) -> torch.Tensor:
        return random_signs(1003, 0.25, torch.Generator().manual_seed(seed), torch.empty(()))

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert abs((random_signs(200_000, 0.25, None, torch.empty(())) < 0).double().mean() - 0.25) < 0.005
    assert (draw(1) != 0).all()  # a zero would have no sign


def test_the_models_dropout_is_silent_outside_training_and_repeats_with_the_random_state() -> None:
    dropout, x = Dropout(0.5), torch.ones(7, 9, requires_grad=True)
    torch.manual_seed(3)
    first = dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first)
    first.sum().backward()
    assert torch.equal(x.grad, first.detach())
    assert dropout.eval()(x) is x
