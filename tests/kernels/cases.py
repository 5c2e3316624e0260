"""Blocks to compute by every engine, and what is compared with the step loop: outputs, and every gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from feedback_transformer import FeedbackTransformer, ModelConfig
from feedback_transformer.kernels import Source
from feedback_transformer.model.memory import MemoryState
from feedback_transformer.model.source import padding_mask

# Largest difference from the loop, over 1 + the largest number of the tensor.
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-3}

SMALL = ModelConfig(num_layers=3, model_dim=10, num_heads=2, head_dim=3, ff_dim=14, memory_size=5)
SPANS = ModelConfig(**{**vars(SMALL), "memory_size": 40, "adaptive_span": True, "span_ramp": 3})
# z of every layer's heads: none, some that see all, one long among short, all at the start, beyond what is allowed
EXTENTS = {
    "mixed": ((0.0, 0.3), (0.52, 0.11), (0.2, 0.05)),
    "whole": ((1.0, 1.0), (1.0, 0.4), (1.0, 0.7)),
    "one long": ((0.0, 0.0), (0.0, 0.66), (0.0, 0.01)),
    "start": ((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)),
    "none left": ((-0.5, 0.1), (-0.5, -0.5), (1.5, -0.04)),
}


def changed(config: ModelConfig, **changes: object) -> ModelConfig:
    return ModelConfig(**{**vars(config), **changes})  # type: ignore[arg-type]


class Case(NamedTuple):
    """Inputs of a block, and the vectors that its outputs are multiplied with to get a scalar."""

    x: Tensor
    memory: Tensor
    length: Tensor
    reset: Tensor | None
    y_weight: Tensor
    memory_weight: Tensor
    source: Source | None  # of a decoder


def new_core(config: ModelConfig, dtype: torch.dtype = torch.float64, seed: int = 0) -> FeedbackTransformer:
    """A core whose every parameter, gains, shifts and mixing included, is away from its starting value."""
    torch.manual_seed(seed)
    core = FeedbackTransformer(config).to(dtype)
    with torch.no_grad():
        for parameter in core.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return core


def with_spans(core: FeedbackTransformer, extents: tuple[tuple[float, ...], ...]) -> FeedbackTransformer:
    with torch.no_grad():
        for span, extent in zip(core.stack.spans(), extents, strict=True):
            span.extent.copy_(torch.tensor(extent))
    return core


def new_case(
    config: ModelConfig,
    batch: int = 3,
    steps: int = 7,
    slots: int = 5,
    ragged: bool = True,
    resets: bool = False,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Case:
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64).to(dtype)

    length = torch.full((batch,), slots)
    if ragged:
        length = torch.randint(0, slots + 1, (batch,), generator=random)
    return Case(
        normal(batch, steps, config.model_dim),
        normal(batch, slots, config.model_dim),
        length,
        torch.rand(batch, steps, generator=random) < 0.25 if resets else None,
        normal(batch, steps, config.model_dim),
        normal(batch, 1, config.memory_size, config.model_dim),
        new_source(config, batch, normal) if config.encoder_layers else None,
    )


def new_source(config: ModelConfig, batch: int, normal: Callable[..., Tensor], positions: int = 6) -> Source:
    """The first row is whole; of the others less and less is left, and the last has a hole."""
    shape = (config.num_layers, batch, config.num_heads, positions, config.head_dim)
    padding = torch.arange(positions) >= positions - torch.arange(batch)[:, None] % positions
    padding[-1, 1] = batch > 1
    keys, values = normal(*shape), normal(*shape)
    length = (~padding * torch.arange(1, positions + 1)).amax(dim=1)
    return Source(keys, values, padding_mask(padding, keys)[:, 0, 0], length)


def results(core: FeedbackTransformer, engine: str, case: Case, cut: int | None = None) -> dict[str, Tensor]:
    """y, the state that is left, and every gradient; with `cut`, in two blocks joined under autograd."""
    core.engine = engine
    core.zero_grad()
    x, memory = case.x.detach().requires_grad_(), case.memory.detach().requires_grad_()
    state = MemoryState(memory[:, None], case.length)
    outputs, source = [], case.source
    if source is not None:
        source = source._replace(keys=source.keys.requires_grad_(), values=source.values.requires_grad_())
        source.keys.grad = source.values.grad = None
    for part in (slice(0, cut), slice(cut, None)) if cut else (slice(None),):
        y, state = core(x[:, part], state, None if case.reset is None else case.reset[:, part], source)
        outputs.append(y)
    y = torch.cat(outputs, dim=1)
    slots = state.memory.shape[2]
    exists = torch.arange(slots, 0, -1) <= state.length[:, None]  # what does not exist may hold any number
    left = state.memory * exists[:, None, :, None]
    ((y * case.y_weight).sum() + (left * case.memory_weight[:, :, -slots:]).sum()).backward()
    gradients = {name: parameter.grad for name, parameter in core.named_parameters() if parameter.requires_grad}
    gradients |= {"x": x.grad, "memory": memory.grad}
    if source is not None:
        gradients |= {"source keys": source.keys.grad, "source values": source.values.grad}
    found = {f"gradient of {name}": torch.zeros(1) if grad is None else grad for name, grad in gradients.items()}
    return found | {"y": y.detach(), "left": left.detach(), "length": state.length}


def assert_same(ours: dict[str, Tensor], loop: dict[str, Tensor], dtype: torch.dtype = torch.float64) -> None:
    assert ours.keys() == loop.keys()
    for name, expected in loop.items():
        difference = (ours[name] - expected).abs().max() if expected.numel() else torch.zeros(())
        scale = 1 + expected.abs().max() if expected.numel() else torch.ones(())
        assert difference / scale <= TOLERANCE[dtype], f"{name} differs by {difference:.3g}"
