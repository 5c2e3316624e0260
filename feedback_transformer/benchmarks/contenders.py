"""What is compared. A contender makes two closures: a training step, and one step of generation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from feedback_transformer import kernels
from feedback_transformer.benchmarks import peers
from feedback_transformer.benchmarks.shapes import Shape
from feedback_transformer.config import ModelConfig
from feedback_transformer.model.feedback import FeedbackTransformer
from feedback_transformer.model.language_model import LanguageModel
from feedback_transformer.model.lstm import LSTM, LSTMState
from feedback_transformer.model.memory import MemoryState

Run = Callable[[], None]
VOCABULARY = 256  # of the language model that generates


@dataclass(frozen=True)
class Contender:
    name: str
    note: str
    train: Callable[[Shape, float, bool], Run]  # shape, dropout, shared keys and values
    generate: Callable[[Shape, int], Run] | None  # shape, batch
    unavailable: Callable[[], str | None] = lambda: None
    per_layer: bool = False  # also measured with keys and values per layer


def contenders() -> list[Contender]:
    """All contenders, installed or not."""
    return [
        _engine("native"),
        _engine("fused"),
        _engine("loop", generate=True),
        Contender(
            "transformer", "our Transformer with cached segments and the same options",
            lambda shape, dropout, _: _training("transformer", "auto", shape, dropout, False),
            lambda shape, batch: _generation("transformer", "auto", shape, batch),
        ),
        Contender(
            "lstm", "torch's LSTM of the same width and depth",
            lambda shape, dropout, _: _training("lstm", "auto", shape, dropout, False),
            lambda shape, batch: _generation("lstm", "auto", shape, batch),
        ),
        Contender(
            "lucidrains", "feedback-transformer-pytorch, one token at a time, gated feed-forward, no position keys",
            peers.lucidrains_training, peers.lucidrains_generation, peers.lucidrains_unavailable,
        ),
        Contender(
            "labml", "labml-nn, whose context never exceeds the block",
            peers.labml_training, None, peers.labml_unavailable,
        ),
    ]  # fmt: skip


def _engine(name: str, generate: bool | None = None) -> Contender:
    engine = kernels.find(name)
    generates = name == "native" if generate is None else generate  # fused has no steps of its own
    return Contender(
        name,
        f"Feedback Transformer, {engine.summary}",
        lambda shape, dropout, shared: _training("feedback", name, shape, dropout, shared),
        (lambda shape, batch: _generation("feedback", name, shape, batch)) if generates else None,
        engine.unavailable,
        per_layer=True,
    )


def _training(core_name: str, engine: str, shape: Shape, dropout: float, shared_kv: bool) -> Run:
    """Forward and backward of a core over a block with a full memory: gradients of its input and parameters."""
    model = LanguageModel(shape.config(core_name, dropout, shared_kv), vocab_size=2, engine=engine)
    core = model.core
    set_spans(model, shape)
    x = torch.randn(shape.batch, shape.steps, shape.model_dim, requires_grad=True)
    gradient = torch.randn(shape.batch, shape.steps, shape.model_dim)
    state = full_state(core, shape, shape.batch)

    def run() -> None:
        core.zero_grad(set_to_none=True)
        x.grad = None
        y, _ = core(x, state)
        y.backward(gradient)

    return run


def _generation(core_name: str, engine: str, shape: Shape, batch: int) -> Run:
    """One greedy token per row, starting from a full memory."""
    model = LanguageModel(shape.config(core_name), VOCABULARY, engine=engine).eval()
    tokens = torch.zeros(batch, dtype=torch.long)
    state = full_state(model.core, shape, batch)

    @torch.no_grad()
    def run() -> None:
        nonlocal tokens, state
        logits, state = model.step(tokens, state)
        tokens = logits.argmax(dim=-1)

    return run


@torch.no_grad()
def set_spans(model: LanguageModel, shape: Shape) -> None:
    """Set the spans to those of the shape, as if learned; a mask ends one ramp beyond z S."""
    for span in model.spans():
        span.extent.fill_((shape.span - span.ramp) / shape.memory_size)
    for span in model.spans()[-1:]:
        span.extent[: shape.long_heads] = (shape.memory_size - span.ramp) / shape.memory_size
    for span in model.spans():
        span.clamp_()


def full_state(core: nn.Module, shape: Shape | ModelConfig, batch: int) -> MemoryState | LSTMState:
    """A state in which every slot exists, with random memories."""

    def normal(*sizes: int) -> Tensor:
        return torch.randn(batch, *sizes, shape.model_dim)

    if isinstance(core, LSTM):
        return LSTMState(normal(shape.num_layers), normal(shape.num_layers))
    memories = 1 if isinstance(core, FeedbackTransformer) else shape.num_layers
    return MemoryState(normal(memories, shape.memory_size), torch.full((batch,), shape.memory_size))
