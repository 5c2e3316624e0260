"""One step at a time with the native engine, without gradients: generation, beam search, acting.

    packed = pack_weights(weights, options)             # once, or through `PackedOnce`
    state = begin(memory, length, packed)               # keys and values of the memories so far
    y, state = native_step(x, state, packed)            # x [B, D] -> y [B, D], before the final norm

A decoder passes its source with every step; it is not part of the state.

Like every state of the project, a state never changes, so an older one can be continued again. Underneath, the states
of one stream share a buffer that only grows: the newest state appends to it in place, an older one copies first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from feedback_transformer.kernels.contract import BlockOptions, BlockWeights, Source
from feedback_transformer.kernels.native import (
    SOURCE_ORDER,
    ForwardIO,
    Loan,
    Shape,
    block_shape,
    call,
    check_device,
    check_source,
    check_weights,
    contiguous,
    large,
    pointer,
    pointers,
    size_of,
)

ROWS_A_THREAD = 8  # fewer are not worth waking a thread for
SPARE_SLOTS = 64


@dataclass(frozen=True, eq=False)
class PackedWeights:
    """A core's weights as the step reads them; copies, so the parameters may change afterwards."""

    data: Tensor
    shape: Shape
    has_position_bias: bool
    weights: BlockWeights  # the originals, to check a source against
    options: BlockOptions

    def sized(self, batch: int, slots: int) -> Shape:
        shape = Shape.from_buffer_copy(self.shape)
        shape.batch, shape.slots = batch, slots
        return shape


def pack_weights(weights: BlockWeights, options: BlockOptions) -> PackedWeights:
    """Pack the weights; `options.dropout` must be zero, because decoding has none."""
    if options.dropout:
        raise ValueError(f"options.dropout = {options.dropout} must be 0: decoding has no dropout")
    width, window = weights.query.shape[2], weights.position.shape[1]
    one = weights.query.new_empty(1, 1, width)
    check_weights(one, weights, options)
    shape = block_shape(one, weights.query.new_empty(1, window, width), weights, options)
    shape.save, shape.reach, shape.threads = 0, window, 1
    shape.source = shape.source_rows = int(weights.source_query is not None)  # its size comes with the step
    data = large(one.new_empty(size_of("pack", one.dtype, shape)))
    weights = contiguous(weights)
    call("pack", one.dtype, shape, pointers(weights), data.data_ptr())
    return PackedWeights(data, shape, weights.position_bias is not None, weights, options)


_steps = [0]  # of optimizers; fused ones change parameters without torch's version counter
register_optimizer_step_post_hook(lambda *_: _steps.__setitem__(0, _steps[0] + 1))


class PackedOnce:
    """Packs at first use, and again only after a parameter has changed by an update, a load or a move."""

    def __init__(self) -> None:
        self._parameters: list[Tensor] = []  # kept, so that no other tensor can take their addresses
        self._seen: list[tuple[int, int]] = []  # and how often optimizers have stepped
        self._packed: PackedWeights | None = None

    def get(self, parameters: Sequence[Tensor], make: Callable[[], tuple[BlockWeights, BlockOptions]]) -> PackedWeights:
        """`parameters` are tracked by address and version; `make` returns what is to be packed."""
        seen = [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in parameters] + [(_steps[0], 0)]
        if self._packed is None or seen != self._seen:
            self._packed = pack_weights(*make())
            self._parameters, self._seen = list(parameters), seen
        return self._packed


class _Buffer:
    """Keys, values [B, P, H, slots, K] and memories [B, slots, D]; slots below `newest` are final."""

    def __init__(self, packed: PackedWeights, batch: int, slots: int) -> None:
        self.packed = packed  # whose windows the shape points to
        self.shape = shape = packed.sized(batch, slots)
        # From the pool: a search makes a buffer at every step, and fresh memory would cost more than the copy.
        self.keys = self._new(batch, shape.pairs, shape.heads, slots, shape.head)
        self.values = self._new(*self.keys.shape)
        self.memory = self._new(batch, slots, shape.width)
        self.scratch = self._new(size_of("tape", packed.data.dtype, shape))
        self.newest = 0

    def _new(self, *shape: int) -> Tensor:
        return Loan.new(self.packed.data.dtype, *shape)

    def read(self, source: Source) -> None:
        """Make room for attention to a source of this size."""
        size = (source.mask.shape[1], len(source.mask))
        if size != (self.shape.source, self.shape.source_rows):
            self.shape.source, self.shape.source_rows = size
            self.scratch = self._new(size_of("tape", self.scratch.dtype, self.shape))

    def put(self, memory: Tensor, keys: Tensor, values: Tensor) -> None:
        """Copy the content of another buffer to the front."""
        count = memory.shape[1]
        self.memory[:, :count], self.keys[..., :count, :], self.values[..., :count, :] = memory, keys, values
        self.newest = count


@dataclass(frozen=True, eq=False)
class DecodingState:
    """The memories of B streams at one moment."""

    buffer: _Buffer
    used: int  # slots of the buffer that belong to this state
    length: Tensor  # [B] how many of the newest of them exist for a row

    @property
    def slots(self) -> slice:
        """The newest S slots."""
        return slice(max(0, self.used - self.buffer.shape.window), self.used)

    @property
    def memory(self) -> Tensor:
        """[B, M, D], oldest first; shares storage with the state and must not be written to."""
        return self.buffer.memory[:, self.slots]

    def reset(self, rows: Tensor) -> DecodingState:
        """Rows where `rows` [B] is true begin a new stream."""
        return DecodingState(self.buffer, self.used, self.length.masked_fill(rows, 0))

    def reorder(self, index: Tensor, packed: PackedWeights) -> DecodingState:
        """Row i becomes what row index[i] was."""
        old = self.buffer
        if self.used == old.shape.slots:
            return _copied(self, packed, index)
        buffer, used = _Buffer(packed, len(index), old.shape.slots), slice(self.used)
        for name in ("keys", "values", "memory"):
            torch.index_select(getattr(old, name)[..., used, :], 0, index, out=getattr(buffer, name)[..., used, :])
        buffer.newest = self.used
        return DecodingState(buffer, self.used, self.length[index])


@torch.no_grad()
def begin(memory: Tensor, length: Tensor, packed: PackedWeights) -> DecodingState:
    """From memories [B, M, D] (M may be 0) and length [B]."""
    batch, carried, width = memory.shape
    check_device("memory", memory)
    if not batch:
        raise ValueError("a batch has at least one row; this one has none")
    if width != packed.shape.width or carried > packed.shape.window or memory.dtype != packed.data.dtype:
        raise ValueError(
            f"memory must be [B, M <= {packed.shape.window}, {packed.shape.width}] in {packed.data.dtype}; "
            f"it is {tuple(memory.shape)} in {memory.dtype}"
        )
    buffer = _Buffer(packed, batch, _room_for(carried))
    length = length.to(torch.int64).clone()
    if carried:
        buffer.memory[:, :carried] = memory
        shape = packed.sized(batch, buffer.shape.slots)
        shape.steps, shape.carried, shape.threads = 0, carried, _threads(batch)
        _forward(packed, shape, buffer, None, memory.contiguous(), length, None)
        buffer.newest = carried
    return DecodingState(buffer, carried, length)


@torch.no_grad()
def native_step(
    x: Tensor, state: DecodingState, packed: PackedWeights, source: Source | None = None
) -> tuple[Tensor, DecodingState]:
    """x [B, D] -> y [B, D] before the final norm, and the state after the step."""
    shape = state.buffer.shape
    if x.shape != (shape.batch, shape.width) or not x.dtype == packed.data.dtype == state.buffer.memory.dtype:
        raise ValueError(
            f"x must be [{shape.batch}, {shape.width}] in {packed.data.dtype}; it is {tuple(x.shape)} in {x.dtype}"
        )
    check_device("x", x)
    if state.used == shape.slots or state.used != state.buffer.newest or state.buffer.packed is not packed:
        state = _copied(state, packed)
    buffer, used = state.buffer, state.used
    check_source(x, packed.weights, packed.options, source)
    if source is not None:
        source = Source(*(part.contiguous() for part in source))
        buffer.read(source)
    buffer.newest = used + 1
    buffer.shape.carried, buffer.shape.threads = used, _threads(shape.batch)
    x = x.contiguous()
    y = torch.empty_like(x)
    _forward(packed, buffer.shape, buffer, x, None, state.length, y, source)
    length = (state.length + 1).clamp_(max=shape.window)
    return y, DecodingState(buffer, used + 1, length)


def _forward(
    packed: PackedWeights,
    shape: Shape,
    buffer: _Buffer,
    x: Tensor | None,
    memory: Tensor | None,
    length: Tensor,
    y: Tensor | None,
    source: Source | None = None,
) -> None:
    item = buffer.memory.element_size()
    io = ForwardIO(
        x=None if x is None else x.data_ptr(),
        memory=None if memory is None else memory.data_ptr(),
        length=length.data_ptr(),
        y=None if y is None else y.data_ptr(),
        memories=buffer.memory.data_ptr() + shape.carried * shape.width * item,
        memories_stride=shape.slots * shape.width,
        keys=buffer.keys.data_ptr(),
        values=buffer.values.data_ptr(),
        **{name: pointer(part) for name, part in zip(SOURCE_ORDER, source or (), strict=False)},
    )
    biased = ctypes.c_int64(packed.has_position_bias)
    call("forward", packed.data.dtype, shape, packed.data.data_ptr(), biased, buffer.scratch.data_ptr(), io)


def _copied(state: DecodingState, packed: PackedWeights, index: Tensor | None = None) -> DecodingState:
    """The same state in its own buffer with room to grow; only the window is copied."""
    old, kept = state.buffer, state.slots
    parts = [old.memory[:, kept], old.keys[..., kept, :], old.values[..., kept, :]]
    length = state.length
    if index is not None:
        parts, length = [part[index] for part in parts], length[index]
    count = kept.stop - kept.start
    buffer = _Buffer(packed, len(length), _room_for(count))
    buffer.put(*parts)
    return DecodingState(buffer, count, length)


def _room_for(count: int) -> int:
    return count + max(SPARE_SLOTS, count)


def _threads(batch: int) -> int:
    return max(1, min(torch.get_num_threads(), batch // ROWS_A_THREAD))
