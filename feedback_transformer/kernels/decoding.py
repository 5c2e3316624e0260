"""One step at a time by the native engine, for a core that keeps its state in tensors: what stands between the two.

    stream = begin_stream(core, memory, length, weights)
    y, stream = next_step(core, x, stream, weights)

A `Stream` is a moment of B streams, as immutable as every state; the packed weights are found by the core they
belong to and packed anew when a parameter changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from feedback_transformer.kernels.contract import BlockOptions, BlockWeights
from feedback_transformer.kernels.native_decoding import DecodingState, PackedOnce, PackedWeights, begin, native_step

Weights = Callable[[], tuple[BlockWeights, BlockOptions]]


class Stream(NamedTuple):
    """What the native engine remembers of B streams."""

    state: DecodingState
    packed: PackedWeights

    @property
    def memory(self) -> Tensor:
        """[B, M, D], to be read only"""
        return self.state.memory

    @property
    def length(self) -> Tensor:
        return self.state.length

    def reset(self, rows: Tensor) -> Stream:
        return Stream(self.state.reset(rows), self.packed)

    def reorder(self, index: Tensor) -> Stream:
        return Stream(self.state.reorder(index, self.packed), self.packed)


class _Pack(NamedTuple):
    parameters: list[Tensor]  # held, so that an address cannot come to mean another tensor
    once: PackedOnce


_packs: WeakKeyDictionary[nn.Module, _Pack] = WeakKeyDictionary()


def begin_stream(core: nn.Module, memory: Tensor, length: Tensor, weights: Weights) -> Stream:
    """From carried memories [B, M, D] and length [B]. Which tensors the core's parameters are is looked up here."""
    parameters: list[Tensor] = list(core.parameters())
    known = _packs.get(core)
    if known is None or not _same(known.parameters, parameters):
        _packs[core] = known = _Pack(parameters, PackedOnce())
    packed = known.once.get(parameters, weights)
    return Stream(begin(memory, length, packed), packed)


def next_step(core: nn.Module, x: Tensor, stream: Stream, weights: Weights) -> tuple[Tensor, Stream]:
    """x [B, D] -> y [B, D] before the final norm, and the stream one step on."""
    known = _packs.get(core)
    packed = stream.packed if known is None else known.once.get(known.parameters, weights)
    y, state = native_step(x, stream.state, packed)
    return y, Stream(state, packed)


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
