"""Single steps by the native engine for a core that keeps its state in tensors: the layer between the two.

    stream = begin_stream(core, memory, length, weights)
    y, stream = next_step(core, x, stream, weights)

A `Stream` is one moment of B streams, immutable like every state. A core's weights are packed again when a stream
begins and when a parameter has changed since, by torch's version counter or an optimizer step; a change through
`.data`, which torch does not count, is noticed when the next stream begins.
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
    core: ReferenceType[nn.Module]  # the core that made these keys and values

    @property
    def memory(self) -> Tensor:
        """[B, M, D], read-only"""
        return self.state.memory

    @property
    def length(self) -> Tensor:
        return self.state.length

    def reset(self, rows: Tensor) -> Stream:
        return self._replace(state=self.state.reset(rows))

    def reorder(self, index: Tensor) -> Stream:
        return self._replace(state=self.state.reorder(index, self.packed))


class _Pack:
    """A core's packed weights, and its parameters' places, so that a replaced one is noticed."""

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
    """x [B, D] -> y [B, D] before the final norm, and the stream one step later.

    Keys and values of another core or dtype cannot be used; the stream then begins again from the memories.
    """
    known = _packs.get(core)
    if known is None or stream.core() is not core or stream.memory.dtype != x.dtype:
        stream = begin_stream(core, stream.memory.to(x.dtype), stream.length, weights)
        packed = stream.packed
    else:
        packed = known.get(weights)
    y, state = native_step(x, stream.state, packed, source)
    return y, Stream(state, packed, stream.core)
