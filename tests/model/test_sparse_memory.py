"""Rows whose memories are of unequal length: what does not exist costs little, and changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from feedback_transformer import ModelConfig
from feedback_transformer.model import memory
from feedback_transformer.model.cores import CORES
from tests.model.cores import EXACT, VARIANTS

LONG = {"num_layers": 2, "model_dim": 12, "num_heads": 2, "memory_size": 40}


@pytest.mark.parametrize("name", [name for name, fields in VARIANTS.items() if fields["core"] != "lstm"])
def test_only_slots_that_exist_are_projected_and_nothing_changes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    config = ModelConfig(**{**LONG, **VARIANTS[name]})
    core = CORES[config.core](config).double()
    core.engine = "loop"
    x = torch.randn(5, 30, config.model_dim, dtype=torch.double)
    reset = torch.zeros(5, 30, dtype=torch.bool)
    reset[1:, 25] = True  # one row has thirty memories, the others five
    with torch.no_grad():
        state = core(x, None, reset)[1].detach()
    assert state.existing() is not None

    def outputs_and_gradients() -> list[Tensor]:
        y, _ = core(x[:, :7], state)
        gradients = torch.autograd.grad(y.square().sum(), list(core.parameters()), materialize_grads=True)
        return [y, *gradients]

    packed = outputs_and_gradients()
    monkeypatch.setattr(memory, "SPARSE", 0.0)
    assert state.existing() is None
    for a, b in zip(packed, outputs_and_gradients(), strict=True):
        torch.testing.assert_close(a, b, **EXACT)
