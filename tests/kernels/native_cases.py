"""Blocks for the native engine by itself, and the same by the step loop."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from feedback_transformer.config import ModelConfig
from feedback_transformer.kernels.contract import BlockOptions, BlockWeights
from feedback_transformer.kernels.native import native_block
from feedback_transformer.model.feedback import FeedbackTransformer
from feedback_transformer.model.memory import MemoryState

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-4}  # of |difference| / |expected|, as norms


def weights_of(core: FeedbackTransformer) -> BlockWeights:
    stack = core.stack

    def stacked(modules: nn.ModuleList, name: str) -> Tensor:
        return torch.stack([module.get_parameter(name) for module in modules])

    pre_norm = core.config.norm == "pre"
    return BlockWeights(
        query=stacked(stack.blocks, "attention.to_query.weight"),
        output=stacked(stack.blocks, "attention.to_output.weight"),
        expand=stacked(stack.blocks, "feed_forward.expand.weight"),
        expand_bias=stacked(stack.blocks, "feed_forward.expand.bias"),
        contract=stacked(stack.blocks, "feed_forward.contract.weight"),
        contract_bias=stacked(stack.blocks, "feed_forward.contract.bias"),
        attention_gain=stacked(stack.blocks, "attention_norm.weight"),
        attention_shift=stacked(stack.blocks, "attention_norm.bias"),
        feed_forward_gain=stacked(stack.blocks, "feed_forward_norm.weight"),
        feed_forward_shift=stacked(stack.blocks, "feed_forward_norm.bias"),
        key=stacked(stack.key_values, "to_key.weight"),
        value=stacked(stack.key_values, "to_value.weight"),
        memory_gain=stacked(stack.key_values, "norm.weight") if pre_norm else None,
        memory_shift=stacked(stack.key_values, "norm.bias") if pre_norm else None,
        mixing=core.composition.mixing()[0],
        position=stack.position.keys,
        position_bias=stack.position.bias,
    )


def options_of(core: FeedbackTransformer, **changes: float) -> BlockOptions:
    return BlockOptions(core.config.num_heads, core.config.norm == "pre")._replace(**changes)


@dataclasses.dataclass
class Case:
    """A core and a block for it, in float64 unless told otherwise."""

    core: FeedbackTransformer
    x: Tensor
    memory: Tensor
    length: Tensor
    reset: Tensor | None

    def inputs(self) -> dict[str, Tensor]:
        parameters = {name: p for name, p in self.core.named_parameters() if "final_norm" not in name}
        return {"x": self.x, "memory": self.memory, **parameters}

    def native(self, **options: float) -> tuple[Tensor, Tensor]:
        return native_block(
            self.x, self.memory, self.length, self.reset, weights_of(self.core), options_of(self.core, **options)
        )

    def loop(self) -> tuple[Tensor, Tensor]:
        """The step loop of model/feedback.py, without the final norm, with the memory of every step."""
        bare = self.core
        final_norm, bare.stack.final_norm = bare.stack.final_norm, nn.Identity()
        state = MemoryState(self.memory[:, None], self.length)
        outputs, memories = [], []
        for t in range(self.x.shape[1]):
            state = state if self.reset is None else state.reset(self.reset[:, t])
            y, state = bare.step(self.x[:, t], state)
            outputs.append(y)
            memories.append(state.memory[:, 0, -1])
        bare.stack.final_norm = final_norm
        return torch.stack(outputs, dim=1), torch.stack(memories, dim=1)


def make_case(
    batch: int = 3,
    steps: int = 6,
    fill: int | None = None,
    rows_differ: bool = False,
    resets: bool = False,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    **config: object,
) -> Case:
    torch.manual_seed(seed)
    defaults = {"num_layers": 2, "model_dim": 24, "num_heads": 3, "memory_size": 9, "ff_dim": 40}
    core = FeedbackTransformer(ModelConfig(**{**defaults, **config}))  # type: ignore[arg-type]
    core = core.to(dtype)
    with torch.no_grad():  # gains of exactly one and shifts of exactly zero would hide mistakes
        for parameter in core.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    fill = core.config.memory_size if fill is None else fill
    width = core.config.model_dim
    return Case(
        core,
        torch.randn(batch, steps, width, dtype=dtype, requires_grad=True),
        torch.randn(batch, fill, width, dtype=dtype, requires_grad=True),
        torch.randint(0, fill + 1, (batch,)) if rows_differ else torch.full((batch,), fill),
        torch.rand(batch, steps) < 0.2 if resets else None,
    )


def results(case: Case, outputs: tuple[Tensor, Tensor], seed: int = 1) -> dict[str, Tensor]:
    """Outputs, and the gradients of a random function of both."""
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype) for y in outputs]
    loss = sum((y * w).sum() for y, w in zip(outputs, weights, strict=True))
    inputs = case.inputs()
    gradients = torch.autograd.grad(loss, list(inputs.values()), allow_unused=True)
    named = {
        name: torch.zeros_like(inputs[name]) if g is None else g for name, g in zip(inputs, gradients, strict=True)
    }
    return {"y": outputs[0].detach(), "memories": outputs[1].detach(), **named}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    scale = max(float(e.norm()) for e in expected.values())
    for name, value in expected.items():
        error = float((found[name] - value).norm())
        # A gradient that is zero but for rounding is measured against the others.
        assert error <= tolerance * max(float(value.norm()), 1e-3 * scale), f"{name}: {error} of {float(value.norm())}"


def check(case: Case) -> None:
    assert_same(results(case, case.native()), results(case, case.loop()), TOLERANCE[case.x.dtype])
