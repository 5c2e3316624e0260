"""One layer (attention, feed-forward, norms), and the stack of layers that both attention cores are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress
from operator import attrgetter

import torch
from torch import Tensor, nn

from feedback_transformer.config import ConfigError, ModelConfig
from feedback_transformer.kernels import BlockOptions, BlockWeights, Source
from feedback_transformer.kernels.decoding import EVERY_MODULES_HOOKS, Stream, hooks_of
from feedback_transformer.model.adaptive_span import AdaptiveSpan
from feedback_transformer.model.attention import Attention, Dropout, KeyValue, RelativePosition
from feedback_transformer.model.memory import MemoryState, Projection
from feedback_transformer.model.source import SourceAttention, SourceLayer, padding_mask, source_sharpness

SOURCE_WEIGHTS = (
    "source_attention.to_query.weight", "source_attention.to_output.weight", "source_norm.weight", "source_norm.bias",
)  # fmt: skip


class FeedForward(nn.Module):
    """W2 relu(W1 x + b1) + b2, with dropout after the ReLU."""

    def __init__(self, model_dim: int, ff_dim: int, dropout: float) -> None:
        super().__init__()
        self.expand = nn.Linear(model_dim, ff_dim)
        self.contract = nn.Linear(ff_dim, model_dim)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.contract(self.dropout(torch.relu(self.expand(x))))


class Block(nn.Module):
    """x^l -> x^{l+1}: attention to the memory, then feed-forward, each with a residual and a norm.

    pre-norm:   z = x + Attn(LN(x)),    y = z + FF(LN(z))
    post-norm:  z = LN(x + Attn(x)),    y = LN(z + FF(z))

    A decoder's block also attends to a source in between, in the same way.
    """

    def __init__(
        self,
        attention: Attention,
        feed_forward: FeedForward,
        model_dim: int,
        pre_norm: bool,
        source_attention: SourceAttention | None = None,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = feed_forward
        self.attention_norm = nn.LayerNorm(model_dim)
        self.feed_forward_norm = nn.LayerNorm(model_dim)
        self.pre_norm = pre_norm
        self.source_attention = source_attention
        self.source_norm = None if source_attention is None else nn.LayerNorm(model_dim)

    def forward(
        self,
        x: Tensor,
        memory: Projection,
        position: RelativePosition,
        history: Tensor | None,
        source: SourceLayer | None = None,
    ) -> Tensor:
        """x [B, T, D] -> [B, T, D]"""
        if self.pre_norm:
            z = x + self.attention(self.attention_norm(x), memory, position, history)
            if source is not None:
                z = z + self.source_attention(self.source_norm(z), source)  # type: ignore[misc]
            return z + self.feed_forward(self.feed_forward_norm(z))
        z = self.attention_norm(x + self.attention(x, memory, position, history))
        if source is not None:
            z = self.source_norm(z + self.source_attention(z, source))  # type: ignore[misc]
        return self.feed_forward_norm(z + self.feed_forward(z))


class Stack(nn.Module):
    """The parameters of an attention core: L blocks, their key/value projections, positions, the final norm.

    The two attention cores differ only in the order of computation: step by step, or layer by layer over a block.
    """

    def __init__(self, config: ModelConfig, num_memories: int) -> None:
        super().__init__()
        dims = (config.model_dim, config.num_heads, config.head_dim)
        self.pre_norm = pre_norm = config.norm == "pre"
        self.num_heads, self.dropout = config.num_heads, config.dropout
        self.num_memories, self.memory_size = num_memories, config.memory_size
        self.num_layers, self.adaptive_span = config.num_layers, config.adaptive_span
        self.log_scale = config.log_scale
        self.blocks = nn.ModuleList(
            Block(
                Attention(*dims, config.dropout, self._span(config), config.log_scale),
                FeedForward(config.model_dim, config.ff_dim, config.dropout),
                config.model_dim,
                pre_norm,
                SourceAttention(*dims, dropout=config.dropout) if config.encoder_layers else None,
            )
            for _ in range(config.num_layers)
        )
        pairs = 1 if config.shared_kv else config.num_layers
        self.key_values = nn.ModuleList(KeyValue(*dims, pre_norm=pre_norm) for _ in range(pairs))
        self.layer_drop = config.layer_drop
        readers = config.num_layers if config.encoder_layers else 0  # the encoder has normed what they read
        self.source_key_values = nn.ModuleList(KeyValue(*dims, pre_norm=False) for _ in range(readers))
        self.position = RelativePosition(
            config.head_dim,
            config.memory_size,
            config.position_std,
            config.position_slopes,
            config.position_peaks,
            config.position_reach,
        )
        self.final_norm = nn.LayerNorm(config.model_dim) if pre_norm else nn.Identity()
        if pre_norm and config.scale_residuals:
            self._scale_residuals()

    @staticmethod
    def _span(config: ModelConfig) -> AdaptiveSpan | None:
        if not config.adaptive_span:
            return None
        return AdaptiveSpan(config.num_heads, config.memory_size, config.span_ramp)

    def spans(self) -> list[AdaptiveSpan]:
        """The adaptive spans of all layers; empty if there are none."""
        return [block.attention.span for block in self.blocks if block.attention.span is not None]  # type: ignore[union-attr, misc]

    def reach(self, layer: int | None = None) -> int:
        """How far back a layer, or any layer, looks: the window, or the longest adaptive span."""
        if not self.adaptive_span:
            return self.memory_size
        return max(span.reach() for span in (self.spans() if layer is None else self.spans()[layer : layer + 1]))

    @torch.no_grad()
    def _scale_residuals(self) -> None:
        """Each layer adds two or three terms to the residual stream; keep its variance from growing with depth."""
        for block in self.blocks:
            terms = [block.attention.to_output, block.feed_forward.contract]  # type: ignore[union-attr]
            if block.source_attention is not None:
                terms.append(block.source_attention.to_output)  # type: ignore[union-attr]
            for last in terms:
                for parameter in last.parameters():  # type: ignore[union-attr]
                    parameter.div_(math.sqrt(len(terms) * self.num_layers))

    def read(self, encoded: Tensor, padding: Tensor) -> Source:
        """encoded [B, N, D], padding [B, N] -> the source as the layers read it, projected for each layer"""
        keys, values = map(torch.stack, zip(*(pair(encoded) for pair in self.source_key_values), strict=True))
        if self.log_scale:
            keys = keys * source_sharpness(padding, encoded)
        positions = torch.arange(1, padding.shape[1] + 1, device=padding.device)
        length = (positions * ~padding).amax(dim=1)
        length = torch.where(length == 0, padding.shape[1], length)  # a row of padding only is read as a whole
        return Source(keys, values, padding_mask(padding, encoded)[:, 0, 0], length)

    def check_source(self, source: Source | None) -> None:
        if (source is None) != (not self.source_key_values):
            raise ConfigError(
                "this core reads a source (encoder_layers > 0): give it one, source=..."
                if source is None
                else "this core reads no source: leave out source, or set encoder_layers"
            )

    def kept_layers(self) -> list[bool]:
        """Which layers LayerDrop keeps, drawn once per block."""
        return kept_layers(self.num_layers, self.layer_drop if self.training else 0.0)

    def project(self, memory: Tensor, existing: Tensor | None = None) -> tuple[Projection, ...]:
        """memory [B, N, M, D] -> the keys and values that the layers read: one pair for all, or one per layer.

        Where only some slots exist [B, M], only those are projected: the others are never read.
        """
        distinct = max(len(self.key_values), self.num_memories)
        reaches = [self.reach()] if distinct == 1 else [self.reach(layer) for layer in range(distinct)]
        return tuple(
            self.project_layer(
                memory[:, pick(layer, self.num_memories), -reach:],
                layer,
                None if existing is None else existing[:, -reach:],
            )
            for layer, reach in enumerate(reaches)
        )

    def project_layer(self, memory: Tensor, layer: int, existing: Tensor | None = None) -> Projection:
        """memory [B, M, D] -> keys and values [B, H, M, K] for this layer"""
        key_value = self.key_values[pick(layer, len(self.key_values))]
        if existing is None:
            return key_value(memory)
        keys, values = (x[0].transpose(0, 1) for x in key_value(memory[existing].unsqueeze(0)))  # [slots, H, K]
        empty = keys.new_zeros(*existing.shape, *keys.shape[1:])
        return tuple(empty.index_put((existing,), x).transpose(1, 2) for x in (keys, values))

    def prepare(self, x: Tensor, state: MemoryState | None) -> tuple[MemoryState, tuple[Projection, ...]]:
        """The state to start from (empty if there is none), with its keys and values as autocast has them now."""
        state = MemoryState.begin(state, self.num_memories, x)
        if isinstance(state.room, Stream):  # which leaves in place what a reset row has forgotten
            state = state.cleared()
        device = x.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        if state.projected is None or state.projected[0][0].dtype != dtype:
            state = MemoryState(state.memory, state.length, self.project(state.memory, state.existing()))
        assert state.projected is not None
        return state, state.projected

    def layer(
        self,
        index: int,
        x: Tensor,
        projected: tuple[Projection, ...],
        history: Tensor | None,
        source: Source | None = None,
    ) -> Tensor:
        """Block `index` applied to x [B, T, D] with its keys and values, as far back as its heads see."""
        block = self.blocks[index]
        keys, values = projected[pick(index, len(projected))]
        if self.adaptive_span:
            seen = self.reach(index) + x.shape[1] - 1
            keys, values = keys[:, :, -seen:], values[:, :, -seen:]
        return block(x, (keys, values), self.position, history, None if source is None else source.layer(index))

    def weights(self, mixing: Tensor, reach: int, kept: Sequence[bool]) -> BlockWeights:
        """The parameters as the engines take them, stacked over the kept layers; mixing [L+1] is the composition's.

        Parameters per distance have only the nearest `reach` columns, for a block that is given no older memories.
        """
        position_keys, position_bias = self.position.table(reach)
        blocks, key_values = list(compress(self.blocks, kept)), list(self.key_values)
        spans = list(compress(self.spans(), kept))
        if not all(kept):  # a dropped layer passes its input on, so its share of the memory goes to the layer below
            given = torch.tensor([0, *accumulate(kept)], device=mixing.device)
            mixing = mixing.new_zeros(len(blocks) + 1).index_add(0, given, mixing)
            key_values = key_values if len(key_values) == 1 else list(compress(key_values, kept))
        distance = torch.arange(reach, 0, -1, device=mixing.device)

        def stacked(modules: Iterable[nn.Module], name: str) -> Tensor:
            return torch.stack([attrgetter(name)(module) for module in modules])

        return BlockWeights(
            stacked(blocks, "attention.to_query.weight"),
            stacked(blocks, "attention.to_output.weight"),
            stacked(blocks, "feed_forward.expand.weight"),
            stacked(blocks, "feed_forward.expand.bias"),
            stacked(blocks, "feed_forward.contract.weight"),
            stacked(blocks, "feed_forward.contract.bias"),
            stacked(blocks, "attention_norm.weight"),
            stacked(blocks, "attention_norm.bias"),
            stacked(blocks, "feed_forward_norm.weight"),
            stacked(blocks, "feed_forward_norm.bias"),
            stacked(key_values, "to_key.weight"),
            stacked(key_values, "to_value.weight"),
            stacked(key_values, "norm.weight") if self.pre_norm else None,
            stacked(key_values, "norm.bias") if self.pre_norm else None,
            mixing,
            position_keys,
            position_bias,
            torch.stack([span.mask(distance) for span in spans]) if spans else None,
            *(stacked(blocks, name) for name in SOURCE_WEIGHTS if self.source_key_values),
        )

    def is_plain(self) -> bool:
        """Whether no part has hooks or has been replaced, so that an engine may compute in its place."""
        return all(self._as_built(module) for module in self.modules())

    def _as_built(self, module: nn.Module) -> bool:
        if isinstance(module, Dropout) and (module.p != self.dropout or module.training != self.training):
            return False
        if isinstance(module, nn.LayerNorm) and (module.eps != 1e-5 or module.weight is None or module.bias is None):
            return False
        biased = isinstance(module, FeedForward)
        if any((linear.bias is not None) != biased for linear in module.children() if isinstance(linear, nn.Linear)):
            return False
        return type(module) in PLAIN and is_untouched(module)

    def options(self) -> BlockOptions:
        """Options for an engine. The dropout masks' seed is drawn here, so a restored random state repeats them."""
        dropout = self.dropout if self.training else 0.0
        seed = int(torch.randint(2**62, ())) if dropout else 0
        return BlockOptions(self.num_heads, self.pre_norm, dropout, seed, self.log_scale)


def is_untouched(module: nn.Module) -> bool:
    """Whether it has no hooks and the `forward` of its class."""
    return not any(hooks_of(module)) and not any(EVERY_MODULES_HOOKS) and "forward" not in vars(module)


def kept_layers(num_layers: int, drop: float) -> list[bool]:
    """LayerDrop (Fan et al. 2019): each layer is left out with this probability."""
    return (torch.rand(num_layers) >= drop).tolist() if drop else [True] * num_layers


def pick(layer: int, available: int) -> int:
    """The index of a layer's item when there is one for all layers, or one per layer."""
    return layer if available > 1 else 0


PLAIN = {Stack, Block, FeedForward, Attention, KeyValue, RelativePosition, AdaptiveSpan, Dropout}
PLAIN |= {SourceAttention, nn.Linear, nn.LayerNorm, nn.Identity, nn.ModuleList}
