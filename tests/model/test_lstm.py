"""An LSTM whose rows begin anew in the middle of a block is computed in one go; it must equal step by step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from feedback_transformer import LSTM, ModelConfig
from feedback_transformer.model.lstm import LSTMState


def step_by_step(core: LSTM, x: Tensor, state: LSTMState, reset: Tensor) -> tuple[Tensor, LSTMState]:
    outputs = []
    for t in range(x.shape[1]):
        y, state = core.step(x[:, t], state.reset(reset[:, t]))
        outputs.append(y)
    return torch.stack(outputs, dim=1), state


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("chance", [0.02, 0.2, 1.0])
def test_a_block_with_rows_that_begin_anew_equals_its_steps(layers: int, chance: float) -> None:
    torch.manual_seed(layers)
    core = LSTM(ModelConfig(core="lstm", num_layers=layers, model_dim=8)).double()
    x = torch.randn(6, 12, 8, dtype=torch.float64, requires_grad=True)
    state = LSTMState(*(torch.randn(6, layers, 8, dtype=torch.float64) for _ in range(2)))
    reset = torch.rand(6, 12) < chance
    reset[0] = False  # some rows go on, one begins anew at the first step and at the last
    reset[1] = False
    reset[1, [0, -1]] = True
    found = []
    for way in (core, lambda *given: step_by_step(core, *given)):
        y, after = way(x, state, reset)
        loss = (y * torch.arange(8)).sum() + after.cell.square().sum() + 3 * after.hidden.sum()
        gradients = torch.autograd.grad(loss, [x, *core.parameters()])
        found.append((y, after.hidden, after.cell, *gradients))
    for fast, slow in zip(*found, strict=True):
        torch.testing.assert_close(fast, slow, atol=1e-12, rtol=1e-10)


def test_rows_may_begin_anew_under_autocast() -> None:
    core, reset = LSTM(ModelConfig(core="lstm", num_layers=2, model_dim=8)), torch.zeros(3, 5, dtype=torch.bool)
    x = torch.randn(3, 5, 8)
    reset[1, 2] = True
    with torch.no_grad():
        expected, _ = core(x, None, reset)
        with torch.autocast("cpu", torch.bfloat16):
            y, _ = core(x, None, reset)
    torch.testing.assert_close(y.float(), expected, atol=0.03, rtol=0.03)
