"""The memory: what a step leaves behind for every later step (Eq. 1), and the state that carries it.

Shapes everywhere: B batch, T time, M memory slots, L layers, D model width, H heads, K head width, V vocabulary.
N is the number of memories a step leaves: 1 when all layers read the same one, L when each reads its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from feedback_transformer.config import check_composition
from feedback_transformer.model.contract import check_kind, check_reset, check_rows

if TYPE_CHECKING:
    from feedback_transformer.kernels.decoding import Stream

SPARE_SLOTS = 64  # of a new buffer, more only if as many are copied: fresh memory is slow
SPARSE = 0.75  # if a smaller share of the slots exists, it pays to pick those
Projection = tuple[Tensor, Tensor]  # keys and values, each [B, H, M, K]


class Composition(nn.Module):
    """How the layers x^0..x^L of one step become its memories: each memory is a mix of layers.

    m_t^n = sum_l mixing[n, l] x_t^l

    With one row of `mixing`, all layers read the same memory; with L rows, layer n reads row n's.
    """

    def __init__(self, mixing: Tensor) -> None:
        super().__init__()
        self.register_buffer("fixed", mixing, persistent=False)
        self.num_memories = len(mixing)

    def mixing(self) -> Tensor:
        """[N, L+1]"""
        fixed: Tensor = self.fixed  # type: ignore[assignment]
        return fixed

    def forward(self, layers: Tensor) -> Tensor:
        """layers [B, L+1, D] -> memories [B, N, D]"""
        return self.mixing() @ layers


class LearnedComposition(Composition):
    """mixing = softmax(w) over the layers that a row may use; w starts at zero (their average) or at `start`."""

    def __init__(self, allowed: Tensor, start: Tensor | None = None) -> None:
        super().__init__(torch.zeros_like(allowed).masked_fill(allowed == 0, float("-inf")))
        self.logits = nn.Parameter(torch.zeros_like(allowed) if start is None else start)

    def mixing(self) -> Tensor:
        return torch.softmax(self.logits + super().mixing(), dim=-1)


COMPOSITIONS = {Composition, LearnedComposition}  # fully described by their `mixing`, so engines can compute them


def weighted_sum(num_layers: int, top: float = 0.0, bottom: float = 0.0) -> Composition:
    """The paper's Eq. 1: m_t = sum_{l=0..L} softmax(w)_l x_t^l, one memory for all layers.

    w starts at zero, but for w_L, which starts at `top`, and w_0, which starts at `bottom`.
    """
    start = torch.zeros(1, num_layers + 1)
    start[0, -1], start[0, 0] = top, bottom
    return LearnedComposition(torch.ones_like(start), start)


def one_layer(num_layers: int, layer: int) -> Composition:
    """m_t = x_t^layer, where 0 is the embedding and L the top layer."""
    return Composition(torch.eye(num_layers + 1)[layer : layer + 1])


def average(num_layers: int) -> Composition:
    """m_t = mean of x_t^0..x_t^L."""
    return Composition(torch.full((1, num_layers + 1), 1 / (num_layers + 1)))


def recurrent(num_layers: int) -> Composition:
    """Layer l reads its own past outputs and those below, like a deep RNN: a learned mix of x^0..x^l for each layer."""
    return LearnedComposition(torch.ones(num_layers, num_layers + 1).tril(diagonal=1))


def previous_layer(num_layers: int) -> Composition:
    """Layer l reads the past outputs of layer l-1: exactly the standard Transformer."""
    return Composition(torch.eye(num_layers, num_layers + 1))


def composition(name: str, num_layers: int, top: float = 0.0, bottom: float = 0.0) -> Composition:
    """The composition that `ModelConfig.memory` names; `top` and `bottom` are its `memory_top` and `memory_bottom`."""
    check_composition(name, num_layers)
    if name.startswith("layer:"):
        return one_layer(num_layers, int(name.removeprefix("layer:")))
    makers: dict[str, Callable[[int], Composition]] = {
        "weighted-sum": lambda n: weighted_sum(n, top, bottom),
        "top": lambda n: one_layer(n, n),
        "average": average,
        "recurrent": recurrent,
        "previous-layer": previous_layer,
    }
    return makers[name](num_layers)


class Room(NamedTuple):
    """Buffers with free slots after a state's windows, into which a step writes instead of copying a window.

    Slots before `end` belong to states and never change. Only the newest state of a room may write after them; an older
    one finds `written` ahead of its own end, and copies.
    """

    buffers: list[Tensor]
    end: int
    written: list[int]  # one number, shared by the states of a room

    def fits(self, new: list[Tensor]) -> bool:
        return (
            self.written[0] == self.end
            and len(self.buffers) == len(new)
            and self.end + new[0].shape[-2] <= self.buffers[0].shape[-2]
            and self.buffers[0].is_inference() == torch.is_inference_mode_enabled()
        )


@dataclass(frozen=True, eq=False)
class MemoryState:
    """All that an attention core knows of the past. Slots are in order of time, the newest last.

    `projected` are the keys and values of those memories, kept so that a step need not project them again. They depend
    on the memories and the current weights; `detach` drops them, so that each block projects them once, with its own
    weights.
    """

    memory: Tensor  # [B, N, M, D]
    length: Tensor  # [B] how many of the newest slots exist for this row
    projected: tuple[Projection, ...] | None = None
    room: Room | Stream | None = field(default=None, repr=False)  # to write the next steps into

    @classmethod
    def empty(cls, batch: int, num_memories: int, like: Tensor) -> MemoryState:
        memory = like.new_zeros(batch, num_memories, 0, like.shape[-1])
        return cls(memory, torch.zeros(batch, dtype=torch.long, device=like.device))

    @classmethod
    def begin(cls, state: MemoryState | None, num_memories: int, x: Tensor) -> MemoryState:
        """The state to continue from with inputs x, empty if there is none. It has their dtype; if that changes,
        projections are dropped."""
        if state is None:
            return cls.empty(len(x), num_memories, like=x)
        check_kind(state, cls)
        check_rows(len(state.length), x)
        if state.memory.shape[1] != num_memories:
            count = state.memory.shape[1]
            raise ValueError(f"the state has {count} memories per step, and this composition makes {num_memories}")
        return state if state.memory.dtype == x.dtype else cls(state.memory.to(x.dtype), state.length)

    @classmethod
    def of_stream(cls, stream: Stream) -> MemoryState:
        """The state of a stream of the native engine, which keeps the projections itself."""
        return cls(stream.memory.unsqueeze(1), stream.length, None, stream)

    def append(
        self, memory: Tensor, projected: tuple[Projection, ...] | None, window: int, reach: int | None = None
    ) -> MemoryState:
        """The state after T more steps: memory [B, N, T, D], projections [B, H, T, K]; the oldest are dropped.

        Only the newest `reach` projections are kept, if adaptive spans look no further.
        """
        past, new, windows = [self.memory], [memory], [window]
        if projected is not None and self.projected is not None:
            past, new = past + _flat(self.projected), new + _flat(projected)
            windows += [reach or window] * (len(past) - 1)
        length = (self.length + memory.shape[2]).clamp(max=window)
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            room, joined = None, [_join(*parts) for parts in zip(past, new, windows, strict=True)]
        else:
            room, joined = _join_in_place(self.room if isinstance(self.room, Room) else None, past, new, windows)
        pairs = tuple(zip(joined[1::2], joined[2::2], strict=True)) or None
        return MemoryState(joined[0], length, pairs, room)

    def forget(self, reset: Tensor) -> MemoryState:
        """The state to append a block to when rows are reset before the steps where reset [B, T] is true.

        The length of such a row is negative, so that after T steps only what came after its last reset exists.
        """
        time = torch.arange(reset.shape[1], device=reset.device)
        last_reset = torch.where(reset, time, -1).amax(dim=1)
        length = torch.where(last_reset >= 0, -last_reset, self.length)
        return MemoryState(self.memory, length, self.projected)

    def cleared(self) -> MemoryState:
        """The same with zeros in the slots that do not exist, as `reset` leaves them."""
        slots = self.memory.shape[2]
        gone = torch.arange(slots, device=self.length.device) < slots - self.length[:, None]
        return MemoryState(self.memory.masked_fill(gone[:, None, :, None], 0), self.length, self.projected)

    def known_full(self) -> bool:
        """Whether every slot exists for every row; False where that would mean waiting for a device."""
        slots = self.memory.shape[2]
        return slots > 0 and self.length.device.type == "cpu" and bool((self.length >= slots).all())

    def existing(self) -> Tensor | None:
        """[B, M]: which slots exist, if fewer than SPARSE of them do; else, or on an accelerator, None."""
        slots, told = self.memory.shape[2], self.length.device.type == "cpu" and not torch.compiler.is_compiling()
        if not told or int(self.length.sum()) >= SPARSE * len(self.length) * slots:
            return None
        return torch.arange(slots) >= slots - self.length[:, None]

    def detach(self) -> MemoryState:
        """Cut the graph here: the next block starts from these memories without gradients.

        Slots that exist for no row are dropped, if that can be checked without waiting for a device.
        """
        slots = self.memory.shape[2]
        spare = slots - int(self.length.max()) if self.length.device.type == "cpu" else 0
        return MemoryState(self.memory.detach()[:, :, spare:], self.length)

    def reset(self, rows: Tensor) -> MemoryState:
        """Rows where `rows` [B] is true begin a new stream; the others are unaffected."""
        check_reset(rows, len(self.length))
        if self.room is not None and not isinstance(self.room, Room):
            return MemoryState.of_stream(self.room.reset(rows))
        kept = self._map(lambda x: x.masked_fill(rows.view(-1, 1, 1, 1), 0))
        return MemoryState(kept.memory, self.length.masked_fill(rows, 0), kept.projected)

    def reorder(self, index: Tensor) -> MemoryState:
        """Row i becomes what row index[i] was; a row may be taken more than once (beam search)."""
        if self.room is not None and not isinstance(self.room, Room):
            return MemoryState.of_stream(self.room.reorder(index))
        return self._map(lambda x: x.index_select(0, index), also_length=True)

    def to(self, device: torch.device | str) -> MemoryState:
        return self._map(lambda x: x.to(torch.device(device)), also_length=True)

    def __reduce__(self) -> tuple[type[MemoryState], tuple[Tensor, Tensor]]:
        """For copying and pickling: the rest follows from these. A buffer that they are a part of is left behind."""
        whole = self.memory.untyped_storage().nbytes() == self.memory.nbytes
        return MemoryState, (self.memory if whole else self.memory.clone(), self.length)

    def tensors(self) -> dict[str, Tensor]:
        """What to save; `from_tensors` restores the state (projections follow from the weights)."""
        return {"memory": self.memory, "length": self.length}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> MemoryState:
        return cls(tensors["memory"], tensors["length"])

    def _map(self, change: Callable[[Tensor], Tensor], also_length: bool = False) -> MemoryState:
        projected = None
        if self.projected is not None:
            projected = tuple((change(keys), change(values)) for keys, values in self.projected)
        return MemoryState(change(self.memory), change(self.length) if also_length else self.length, projected)


def _flat(projected: tuple[Projection, ...]) -> list[Tensor]:
    return [tensor for pair in projected for tensor in pair]


def _join_in_place(
    room: Room | None, past: list[Tensor], new: list[Tensor], windows: list[int]
) -> tuple[Room, list[Tensor]]:
    """`_join` without gradients, which copies only once in a while."""
    slots, steps = past[0].shape[-2], new[0].shape[-2]
    if room is None or not room.fits(new):
        size = slots + steps + min(windows[0], max(SPARE_SLOTS, slots))
        buffers = [old.new_empty(*old.shape[:-2], size, old.shape[-1]) for old in past]
        for buffer, old in zip(buffers, past, strict=True):
            buffer[..., slots - old.shape[-2] : slots, :] = old
        room = Room(buffers, slots, [slots])
    end = room.end + steps
    room.written[0] = end
    joined = []
    for buffer, old, added, window in zip(room.buffers, past, new, windows, strict=True):
        # Bypasses autograd's version counter: what a graph may have saved of this buffer does not change.
        buffer.data[..., room.end : end, :] = added
        joined.append(buffer[..., end - min(window, old.shape[-2] + steps) : end, :])
    return Room(room.buffers, end, room.written), joined


def _join(past: Tensor, new: Tensor, window: int) -> Tensor:
    """The newest `window` slots of past and new; slots are the second to last dimension."""
    joined = torch.cat([past, new], dim=-2) if past.shape[-2] else new
    return joined[..., max(0, joined.shape[-2] - window) :, :]
