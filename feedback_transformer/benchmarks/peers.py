"""Public implementations, measured when they are installed; none of them is a dependency.

pip install --no-deps feedback-transformer-pytorch einops labml-nn      (labml-nn's dependencies replace torch)
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from feedback_transformer.benchmarks.shapes import Shape


def lucidrains_unavailable() -> str | None:
    if importlib.util.find_spec("feedback_transformer_pytorch") is None or importlib.util.find_spec("einops") is None:
        return "pip install --no-deps feedback-transformer-pytorch einops"
    return None


def _lucidrains(shape: Shape, dropout: float) -> Any:
    package = importlib.import_module("feedback_transformer_pytorch")
    return package.FeedbackTransformer(
        num_tokens=16,
        dim=shape.model_dim,
        depth=shape.num_layers,
        seq_len=1,  # with its default of 2 it is another model
        mem_len=shape.memory_size,
        heads=shape.num_heads,
        dim_head=shape.model_dim // shape.num_heads,
        attn_dropout=dropout,
        ff_dropout=dropout,
    )


def _lucidrains_memory(shape: Shape, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    size = (batch, shape.memory_size, shape.model_dim)
    return torch.randn(size), torch.randn(size)


def lucidrains_training(shape: Shape, dropout: float, shared_kv: bool) -> Callable[[], None]:
    model = _lucidrains(shape, dropout)
    tokens = torch.randint(16, (shape.batch, shape.steps))
    memory = _lucidrains_memory(shape, shape.batch)

    def run() -> None:
        model.zero_grad(set_to_none=True)
        model(tokens, memory).sum().backward()

    return run


def lucidrains_generation(shape: Shape, batch: int) -> Callable[[], None]:
    model = _lucidrains(shape, 0.0).eval()
    tokens, memory = torch.zeros(batch, 1, dtype=torch.long), _lucidrains_memory(shape, batch)

    @torch.no_grad()
    def run() -> None:
        nonlocal tokens, memory
        logits, memory = model(tokens, memory, return_memory=True)
        tokens = logits.argmax(dim=-1)

    return run


def labml_unavailable() -> str | None:
    found = "labml_nn" in sys.modules or importlib.util.find_spec("labml_nn") is not None
    return None if found else "pip install --no-deps labml-nn"


@functools.cache
def _labml() -> ModuleType:
    """Its feedback module alone: the packages around it need dependencies that the module itself does not."""
    found = importlib.util.find_spec("labml_nn")
    assert found is not None
    assert found.submodule_search_locations is not None
    root = found.submodule_search_locations[0]
    for name in ("labml_nn", "labml_nn.transformers"):
        shell = ModuleType(name)
        shell.__path__ = ["/".join([root, *name.split(".")[1:]])]
        sys.modules.setdefault(name, shell)
    if importlib.util.find_spec("labml") is None:
        logger = ModuleType("labml")
        logger.tracker = None  # type: ignore[attr-defined]
        sys.modules["labml"] = logger
    return importlib.import_module("labml_nn.transformers.feedback")


def labml_training(shape: Shape, dropout: float, shared_kv: bool) -> Callable[[], None]:
    package = _labml()
    width, heads = shape.model_dim, shape.num_heads
    feed_forward = sys.modules["labml_nn.transformers.feed_forward"].FeedForward
    layer = package.FeedbackTransformerLayer(
        d_model=width,
        attn=package.FeedbackAttention(heads, width, dropout, is_kv_precomputed=True),
        feed_forward=feed_forward(width, 4 * width, dropout),
        dropout_prob=dropout,
    )
    model = package.FeedbackTransformerKV(layer, shape.num_layers, width, heads)
    x = torch.randn(shape.steps, shape.batch, width, requires_grad=True)

    def run() -> None:
        model.zero_grad(set_to_none=True)
        x.grad = None
        model(x).sum().backward()

    return run
