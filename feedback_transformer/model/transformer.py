"""The baseline: a Transformer with cached segments, computed layer by layer and in parallel over the block.

Everything but the order of computation is shared with the Feedback Transformer: blocks, relative positions, window,
options. Layer l attends to the past outputs of layer l-1, which is the composition `previous-layer`; a test checks that
the two agree.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from feedback_transformer.config import ModelConfig
from feedback_transformer.kernels.contract import history_of_block
from feedback_transformer.model.block import Stack, pick
from feedback_transformer.model.contract import check_block
from feedback_transformer.model.memory import MemoryState
from feedback_transformer.model.source import Source


class Transformer(nn.Module):
    """A core: `step` [B, D] -> [B, D], `forward` [B, T, D] -> [B, T, D], with the state going in and coming out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.stack = Stack(config, num_memories=config.num_layers)

    def step(
        self, x: Tensor, state: MemoryState | None = None, source: Source | None = None
    ) -> tuple[Tensor, MemoryState]:
        """One step: x [B, D] -> [B, D], a block of length one. A decoder reads a source."""
        y, state = self.forward(x[:, None], state, None, source)
        return y.squeeze(1), state

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
        state, carried = self.stack.prepare(x, state)
        steps = x.shape[1]
        history = None
        if reset is not None or not state.known_full():
            history = history_of_block(state.length, steps, reset, self.config.memory_size)
        inputs, projected = [], []
        for index, stays in enumerate(self.stack.kept_layers()):
            inputs.append(x)
            new = self.stack.project_layer(x, index)
            projected.append(new)
            # The last step of the block is a memory for later blocks only.
            keys, values = carried[pick(index, len(carried))]
            if steps > 1:
                keys = torch.cat([keys, new[0][:, :, :-1]], dim=2)
                values = torch.cat([values, new[1][:, :, :-1]], dim=2)
            x = self.stack.layer(index, x, ((keys, values),), history, source) if stays else x
        if reset is not None:
            state = state.forget(reset)
        # Further steps reuse these keys and values; the next block computes its own, with its current weights.
        kept = tuple(projected) if steps == 1 else None
        state = state.append(torch.stack(inputs, dim=1), kept, self.config.memory_size, self.stack.reach())
        return self.stack.final_norm(x), state if reset is None else state.cleared()
