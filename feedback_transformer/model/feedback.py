"""The Feedback Transformer. START READING HERE.

A Transformer computes a block of steps layer by layer, so a layer sees only lower layers of the past. Here a step
is computed through all its layers before the next one begins, and leaves behind one memory vector that mixes them:

    x_t^{l+1} = Block_l(x_t^l, {m_{t-S}, .., m_{t-1}})        every layer attends to the same past memories
    m_t       = sum_{l=0..L} softmax(w)_l x_t^l               Eq. 1; x_t^0 is the input of the step

so the lowest layer of the current step reads the highest layer of past steps, and each step can build on everything the
last one has computed, without limit. Keys and values depend on m_t alone, so all layers can share them.

`step` is the definition; `forward` is `step` repeated, computed faster by an engine of `kernels/` if one covers the
model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from feedback_transformer.config import ModelConfig
from feedback_transformer.kernels import BlockOptions, BlockWeights, Needs, Source, check_name, choose, transforming
from feedback_transformer.kernels.decoding import Stream, as_begun, begin_stream, next_step
from feedback_transformer.model.block import Stack, is_untouched
from feedback_transformer.model.contract import check_block, check_step
from feedback_transformer.model.memory import COMPOSITIONS, MemoryState, composition


class FeedbackTransformer(nn.Module):
    """A core: `step` [B, D] -> [B, D], `forward` [B, T, D] -> [B, T, D], with the state going in and coming out.

    >>> core = FeedbackTransformer(ModelConfig(num_layers=2, model_dim=16, num_heads=2, memory_size=8))
    >>> y, state = core(torch.randn(3, 5, 16))              # a block of five steps, from an empty memory
    >>> y, state = core.step(torch.randn(3, 16), state)     # and one more step
    >>> y.shape, state.memory.shape
    (torch.Size([3, 16]), torch.Size([3, 1, 6, 16]))
    """

    def __init__(self, config: ModelConfig, engine: str = "auto") -> None:
        super().__init__()
        check_name(engine)
        self.config = config
        self.engine = engine  # how `forward` computes a block; may be changed at any time
        self.composition = composition(config.memory, config.num_layers, config.memory_top, config.memory_bottom)
        self.stack = Stack(config, self.composition.num_memories)

    def step(
        self, x: Tensor, state: MemoryState | None = None, source: Source | None = None
    ) -> tuple[Tensor, MemoryState]:
        """One step: x [B, D] -> [B, D]. A decoder reads a source."""
        check_step(x, self.config.model_dim)
        self.stack.check_source(source)
        if not torch.is_grad_enabled() and self._steps_natively(x, state):
            return self._native_step(x, state, source)
        return self._step(x, state, source, self.stack.kept_layers())

    def _step(
        self, x: Tensor, state: MemoryState | None, source: Source | None, kept: Sequence[bool]
    ) -> tuple[Tensor, MemoryState]:
        """The definition of a step, through the layers that LayerDrop keeps."""
        state, projected = self.stack.prepare(x, state)
        history = state.length[:, None]
        layers = [x[:, None]]
        for index, stays in enumerate(kept):
            below = layers[-1]
            layers.append(self.stack.layer(index, below, projected, history, source) if stays else below)
        memory = self.composition(torch.cat(layers, dim=1)).unsqueeze(2).to(x.dtype)  # [B, N, 1, D]
        state = state.append(memory, self.stack.project(memory), self.config.memory_size, self.stack.reach())
        return self.stack.final_norm(layers[-1]).squeeze(1), state

    def forward(
        self,
        x: Tensor,
        state: MemoryState | None = None,
        reset: Tensor | None = None,
        source: Source | None = None,
    ) -> tuple[Tensor, MemoryState]:
        """A block: x [B, T, D] -> [B, T, D]. Rows where reset [B, T] is true start with an empty memory."""
        check_block(x, self.config.model_dim, reset)
        self.stack.check_source(source)
        kept = self.stack.kept_layers()
        by_engine = _unseen(self._by_engine) if torch.compiler.is_compiling() else self._by_engine
        faster = None if _exporting() else by_engine(x, state, reset, source, kept)
        if faster is not None:
            return faster
        outputs = []
        for t in range(x.shape[1]):
            if reset is not None and state is not None:
                state = state.reset(reset[:, t])
            y, state = self._step(x[:, t], state, source, kept)
            outputs.append(y)
        assert state is not None, "a block has at least one step"
        return torch.stack(outputs, dim=1), state

    # ------------------------------------------------------------------- the same, by the engines of kernels/

    def _steps_natively(self, x: Tensor, state: MemoryState | None) -> bool:
        if (self.training and (self.config.dropout or self.config.layer_drop)) or torch.compiler.is_compiling():
            return False
        going_on = state is not None and isinstance(state.room, Stream) and x.dtype == state.memory.dtype
        usual = x.device.type == "cpu" and not torch.is_autocast_enabled("cpu") and not transforming()
        if going_on and usual and as_begun(self):
            return self.engine in ("auto", "native")  # the rest was checked when the stream began
        return choose(self.engine, self._needs(x)).name == "native"

    def _native_step(self, x: Tensor, state: MemoryState | None, source: Source | None) -> tuple[Tensor, MemoryState]:
        state = MemoryState.begin(state, 1, x)
        stream = state.room
        if not isinstance(stream, Stream):
            stream = begin_stream(self, state.memory[:, 0], state.length, self._weights)
        y, stream = next_step(self, x, stream, self._weights, source)
        return self.stack.final_norm(y), MemoryState.of_stream(stream)

    def _weights(
        self, reach: int | None = None, kept: Sequence[bool] | None = None
    ) -> tuple[BlockWeights, BlockOptions]:
        mixing, kept = self.composition.mixing()[0], kept or [True] * self.config.num_layers
        return self.stack.weights(mixing, reach or self.config.memory_size, kept), self.stack.options()

    def _needs(self, x: Tensor) -> Needs:
        device = x.device.type
        one_memory, autocast = self.composition.num_memories == 1, torch.is_autocast_enabled(device)
        plain = type(self.composition) in COMPOSITIONS and is_untouched(self.composition) and self.stack.is_plain()
        return Needs(device, x.dtype, one_memory, autocast, plain, transforming())

    def _by_engine(
        self,
        x: Tensor,
        state: MemoryState | None,
        reset: Tensor | None,
        source: Source | None,
        kept: Sequence[bool],
    ) -> tuple[Tensor, MemoryState] | None:
        """A block by the chosen engine, or None if that is the loop. The next step or block recomputes projections."""
        engine = choose(self.engine, self._needs(x))
        if engine.block is None or not any(kept):
            return None
        state = MemoryState.begin(state, 1, x)
        # The state keeps all memories, since a span may grow again; the block is given those that a span reaches.
        reach = self.stack.reach()
        seen = state.memory[:, 0, max(0, state.memory.shape[2] - reach) :]
        weights, options = self._weights(reach, kept)
        if source is not None:
            source = source.layers(kept).for_rows(len(x))
        y, memories = engine.block(x, seen, state.length.clamp(max=reach), reset, weights, options, source)
        if reset is not None:
            state = state.forget(reset)
        state = state.append(memories[:, None], None, self.config.memory_size)
        return self.stack.final_norm(y), state if reset is None else state.cleared()


def _unseen(function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled model calls the engine unseen. Not as a decorator: that would import the compiler, for a second."""
    return torch.compiler.disable(function)  # type: ignore[no-untyped-call]


def _exporting() -> bool:
    """Whether torch is exporting, which needs standard operations only (before torch 2.7 this cannot be detected)."""
    return bool(getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)())
