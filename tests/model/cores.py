"""Small cores in float64, over all the options, for tests of exactness."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import torch
from torch import Tensor, nn

from feedback_transformer import ModelConfig
from feedback_transformer.model.adaptive_span import AdaptiveSpan
from feedback_transformer.model.cores import CORES

BASE = ModelConfig(num_layers=3, model_dim=12, num_heads=2, memory_size=5)

EXACT = {"atol": 1e-10, "rtol": 1e-10}

VARIANTS = {
    f"{core}-{norm}-{'shared' if shared else 'per-layer'}-{extra or 'plain'}": dict(
        core=core, norm=norm, shared_kv=shared, **fields
    )
    for core, norm, shared, (extra, fields) in itertools.product(
        ("feedback", "transformer"),
        ("pre", "post"),
        (True, False),
        (("", {}), ("wide-heads", {"head_dim": 8}), ("bias", {"position_slopes": (2.0, 0.1)})),
    )
} | {
    f"feedback-{memory}": {"core": "feedback", "memory": memory}
    for memory in ("top", "layer:0", "layer:1", "average", "recurrent", "previous-layer")
}
# Spans that have been learned: some heads look near, some far, and less far than the window.
VARIANTS["feedback-spans"] = {"core": "feedback", "adaptive_span": True, "span_ramp": 2}
VARIANTS["transformer-spans"] = {"core": "transformer", "adaptive_span": True, "span_ramp": 2}
# Distances told apart only when near.
for core in ("feedback", "transformer"):
    VARIANTS[f"{core}-near"] = {"core": core, "position_reach": 2, "position_slopes": (2.0, 0.1), "log_scale": True}
VARIANTS["lstm"] = {"core": "lstm"}


def make_core(device: torch.device, **fields: Any) -> nn.Module:
    """A core in float64 whose every parameter is random, so that nothing hides behind a zero or a one."""
    config = dataclasses.replace(BASE, **{"head_dim": 0, "ff_dim": 0, **fields})
    core = CORES[config.core](config).double().to(device)
    randomize(core)
    return core.eval()


@torch.no_grad()
def randomize(module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    for part in module.modules():
        if isinstance(part, AdaptiveSpan):
            part.extent.uniform_(0, 0.6)


def inputs(device: torch.device, batch: int = 3, steps: int = 13, dim: int = 12) -> Tensor:
    return torch.randn(batch, steps, dim, dtype=torch.float64, device=device)


def gradients(module: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """The gradient of every parameter, zeros where none arrives."""
    names, parameters = zip(*module.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    pairs = zip(names, parameters, found, strict=True)
    return {name: torch.zeros_like(p) if g is None else g for name, p, g in pairs}
