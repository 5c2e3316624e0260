"""One step at a time by the native engine, for a core that keeps its state in tensors: what stands between the two.

    stream = begin_stream(core, memory, length, weights)
    y, stream = next_step(core, x, stream, weights)

A `Stream` is a moment of B streams, as immutable as every state. A core's packed weights are made anew when a stream
begins and when a parameter has changed since, by torch's count of its changes and the steps of optimizers; a change
through `.data`, which torch does not count, is noticed when the next stream begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from weakref import ReferenceType, WeakKeyDictionary, ref

from torch import Tensor, nn

from feedback_transformer.kernels.contract import BlockOptions, BlockWeights, Source
from feedback_transformer.kernels.native_decoding import DecodingState, PackedOnce, PackedWeights, begin, native_step

Weights = Callable[[], tuple[BlockWeights, BlockOptions]]


class Stream(NamedTuple):
    """What the native engine remembers of B streams."""

    state: DecodingState
    packed: PackedWeights
    core: ReferenceType[nn.Module]  # whose keys and values these are

    @property
    def memory(self) -> Tensor:
        """[B, M, D], to be read only"""
        return self.state.memory

    @property
    def length(self) -> Tensor:
        return self.state.length

    def reset(self, rows: Tensor) -> Stream:
        return self._replace(state=self.state.reset(rows))

    def reorder(self, index: Tensor) -> Stream:
        return self._replace(state=self.state.reorder(index, self.packed))


class _Pack:
    """A core's packed weights, and where its parameters are kept, so that a replaced one is noticed."""

    def __init__(self, core: nn.Module) -> None:
        self.places = [(module._parameters, name) for module in core.modules() for name in module._parameters]
        self.once = PackedOnce()

    def get(self, weights: Weights) -> PackedWeights:
        parameters = [place[name] for place, name in self.places]
        return self.once.get([parameter for parameter in parameters if parameter is not None], weights)


_packs: WeakKeyDictionary[nn.Module, _Pack] = WeakKeyDictionary()


def begin_stream(core: nn.Module, memory: Tensor, length: Tensor, weights: Weights) -> Stream:
    """From carried memories [B, M, D] and length [B], with the weights as they are now."""
    _packs[core] = known = _Pack(core)
    packed = known.get(weights)
    return Stream(begin(memory, length, packed), packed, ref(core))


def next_step(
    core: nn.Module, x: Tensor, stream: Stream, weights: Weights, source: Source | None = None
) -> tuple[Tensor, Stream]:
    """x [B, D] -> y [B, D] before the final norm, and the stream one step on.

    The keys and values of another core, or in another number type, are of no use: then it begins from the memories.
    """
    known = _packs.get(core)
    if known is None or stream.core() is not core or stream.memory.dtype != x.dtype:
        stream = begin_stream(core, stream.memory.to(x.dtype), stream.length, weights)
        packed = stream.packed
    else:
        packed = known.get(weights)
    y, state = native_step(x, stream.state, packed, source)
    return y, Stream(state, packed, stream.core)
