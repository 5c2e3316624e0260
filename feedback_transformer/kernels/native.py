"""The native engine: a block of steps in C++ on the CPU, forward and backward, behind one autograd function.

The maths and the memory layout are described in `csrc/layout.h`, the contract in `contract.py`. This file has checks,
pointers and ownership. Decoding one step at a time is in `native_decoding.py`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from feedback_transformer.kernels.contract import BlockOptions, BlockWeights, Source
from feedback_transformer.kernels.native_build import library

__all__ = ["native_block"]

LARGE_PAGE = 2 << 20
SUFFIXES = {torch.float32: "f32", torch.float64: "f64"}
# The order of struct Weights and struct Gradients in csrc/layout.h; those from memory_gain on are optional.
POINTER_ORDER = (
    *("query", "output", "expand", "expand_bias", "contract", "contract_bias"),
    *("attention_gain", "attention_shift", "feed_forward_gain", "feed_forward_shift"),
    *("key", "value", "mixing", "position", "memory_gain", "memory_shift", "position_bias", "span"),
    *("source_query", "source_output", "source_gain", "source_shift"),
)
SOURCE_ORDER = ("source_keys", "source_values", "source_mask", "source_length")  # struct SourceKeys
WeightPointers = ctypes.c_void_p * len(POINTER_ORDER)


class Shape(ctypes.Structure):
    """struct Shape of csrc/layout.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "steps", "carried", "layers", "width", "heads", "head")),
        *((name, ctypes.c_int64) for name in ("inner", "pairs", "window", "reach", "slots", "pre_norm", "save")),
        *((name, ctypes.c_int64) for name in ("threads", "seed", "source", "source_rows", "log_scale")),
        ("windows", ctypes.c_void_p),
        ("dropout", ctypes.c_double),
    )


class ForwardIO(ctypes.Structure):
    """struct ForwardIO of csrc/forward.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "memory", "length", "reset", "y", "memories")),
        ("memories_stride", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("keys", "values", *SOURCE_ORDER)),
    )


class BackwardIO(ctypes.Structure):
    """struct BackwardIO of csrc/backward.h."""

    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in (
            *("y_gradient", "memories_gradient", "memory", "length", "reset"),
            *("keys", "values", "x_gradient", "memory_gradient"),
            *(*SOURCE_ORDER, "source_keys_gradient", "source_values_gradient"),
        )
    )


def native_block(
    x: Tensor,
    memory: Tensor,
    length: Tensor,
    reset: Tensor | None,
    weights: BlockWeights,
    options: BlockOptions,
    source: Source | None = None,
) -> tuple[Tensor, Tensor]:
    """Follows `contract.py`, on the CPU in float32 or float64, with torch.get_num_threads() threads."""
    check_block(x, memory, length, reset, weights, options)
    check_source(x, weights, options, source)
    shape = block_shape(x, memory, weights, options, source)
    # Copies, since backward reads them again and their owner may have reused them.
    length = length.to(torch.int64, copy=True).contiguous()
    reset = None if reset is None else reset.to(torch.bool, copy=True).contiguous()
    parts = source or (None,) * len(Source._fields)
    inputs = (x, memory, *parts, *weights)
    if not (torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)):
        shape.save = 0
        y, memories, _ = run_forward(shape, x.detach(), memory.detach(), length, reset, weights, source)
        return y, memories
    return _Block.apply(shape, length, reset, *inputs)  # type: ignore[no-untyped-call]


class Loan(ctypes.Structure):
    """Working memory from the library's pool (struct Stretch of csrc/memory.h), returned when this object dies."""

    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_int64))
    asked: int

    @classmethod
    def of(cls, count: int, dtype: torch.dtype) -> Loan:
        loan, size = cls(), count * dtype.itemsize
        loan.asked = size
        if library().borrow(ctypes.c_int64(size), ctypes.byref(loan)):
            raise MemoryError(f"the native engine could not allocate {size / 2**20:.0f} MB")
        return loan

    @classmethod
    def new(cls, dtype: torch.dtype, *shape: int) -> Tensor:
        """An uninitialised tensor on loan."""
        count = math.prod(shape)
        return cls.of(count, dtype).tensor()[: count * dtype.itemsize].view(dtype).view(shape)

    def tensor(self) -> Tensor:
        """The memory as bytes, as many as were asked for; the loan lasts as long as this tensor."""
        memory = (ctypes.c_char * max(1, self.asked)).from_address(self.data)
        memory.loan = self  # type: ignore[attr-defined]
        return torch.frombuffer(memory, dtype=torch.uint8)

    def __del__(self) -> None:
        if self.data:
            library().give_back(ctypes.byref(self))


class _Block(torch.autograd.Function):
    """Forward keeps its intermediate results (the tape) in one tensor; backward only reads it."""

    @staticmethod
    def forward(
        ctx: Any, shape: Shape, length: Tensor, reset: Tensor | None, x: Tensor, memory: Tensor, *rest: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        memory = memory.contiguous()
        source, weights = _sorted(rest)
        y, memories, tape = run_forward(shape, x, memory, length, reset, weights, source)
        # A saved tensor, because autograd frees those after backward even while the loss is still referenced.
        ctx.save_for_backward(tape.tensor(), memory, *rest)
        ctx.shape, ctx.length, ctx.reset = shape, length, reset
        return y, memories

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y_gradient: Tensor, memories_gradient: Tensor) -> tuple[Tensor | None, ...]:
        tape, memory, *rest = ctx.saved_tensors
        source, weights = _sorted(rest)
        weights, shape = contiguous(weights), ctx.shape
        gradients = BlockWeights(
            *(  # weight matrices are written whole, the others in part or added to
                None
                if w is None
                else torch.empty_like(w)
                if w.ndim == 3 and w is not weights.span
                else torch.zeros_like(w)  # type: ignore[arg-type]
                for w in weights
            )
        )
        y_gradient, memories_gradient = y_gradient.contiguous(), memories_gradient.contiguous()
        x_gradient = torch.empty_like(y_gradient)
        memory_gradient = torch.empty_like(memory) if ctx.needs_input_grad[4] else None
        source_gradients = [] if source is None else [torch.zeros_like(part) for part in source[:2]]
        io = BackwardIO(
            *(pointer(t) for t in (y_gradient, memories_gradient, memory, ctx.length, ctx.reset)),
            *cache_pointers(tape.data_ptr(), x_gradient.dtype, shape),
            *(pointer(t) for t in (x_gradient, memory_gradient, *(source or (None,) * 4), *source_gradients)),
        )
        call("backward", x_gradient.dtype, shape, pointers(weights), tape.data_ptr(), io, pointers(gradients))
        by_source = (*source_gradients, None, None) if source_gradients else (None,) * 4
        return (None, None, None, x_gradient, memory_gradient, *by_source, *gradients)


def _sorted(parts: Sequence[Tensor | None]) -> tuple[Source | None, BlockWeights]:
    """Unpack what follows x and memory: a contiguous source or four times None, then the weights."""
    source = None if parts[0] is None else Source(*(part.contiguous() for part in parts[:4]))  # type: ignore[union-attr]
    return source, BlockWeights(*parts[4:])  # type: ignore[arg-type]


def run_forward(
    shape: Shape,
    x: Tensor,
    memory: Tensor,
    length: Tensor,
    reset: Tensor | None,
    weights: BlockWeights,
    source: Source | None,
) -> tuple[Tensor, Tensor, Loan]:
    """y, memories, and the tape, which ends with the keys and values."""
    x, memory, weights = x.contiguous(), memory.contiguous(), contiguous(weights)
    source = None if source is None else Source(*(part.contiguous() for part in source))
    packed = Loan.of(size_of("pack", x.dtype, shape), x.dtype)
    call("pack", x.dtype, shape, pointers(weights), packed.data)
    tape = Loan.of(size_of("tape", x.dtype, shape) + 2 * _cache_size(shape), x.dtype)
    y, memories = torch.empty_like(x), torch.empty_like(x)
    io = ForwardIO(
        *(pointer(t) for t in (x, memory, length, reset, y, memories)),
        shape.steps * shape.width,
        *cache_pointers(tape.data, x.dtype, shape),
        *(pointer(t) for t in (source or ())),
    )
    biased = ctypes.c_int64(weights.position_bias is not None)
    call("forward", x.dtype, shape, packed.data, biased, tape.data, io)
    return y, memories, tape


def cache_pointers(tape: int, dtype: torch.dtype, shape: Shape) -> tuple[int, int]:
    """Pointers to keys and values [B, P, H, M + T, K] at the end of the tape."""
    keys = tape + size_of("tape", dtype, shape) * dtype.itemsize
    return keys, keys + _cache_size(shape) * dtype.itemsize


def _cache_size(shape: Shape) -> int:
    return int(shape.batch * shape.pairs * shape.heads * shape.slots * shape.head + 64)


def block_shape(
    x: Tensor, memory: Tensor, weights: BlockWeights, options: BlockOptions, source: Source | None = None
) -> Shape:
    batch, steps, width = x.shape
    layers, inside, _ = weights.query.shape
    carried, window = memory.shape[1], weights.position.shape[1]
    shape = Shape(
        batch=batch,
        steps=steps,
        carried=carried,
        layers=layers,
        width=width,
        heads=options.num_heads,
        head=inside // options.num_heads,
        inner=weights.expand.shape[1],
        pairs=weights.key.shape[0],
        window=window,
        reach=min(window, carried + steps),
        slots=carried + steps,
        pre_norm=options.pre_norm,
        save=1,
        threads=torch.get_num_threads(),
        seed=options.seed & (2**63 - 1),
        source=0 if source is None else source.mask.shape[1],
        source_rows=0 if source is None else len(source.mask),
        log_scale=options.log_scale,
        dropout=options.dropout,
    )
    if weights.span is not None:
        shape.held = windows = head_windows(weights.span)  # kept alive by the shape that points there
        shape.windows = windows.data_ptr()
    return shape


def head_windows(span: Tensor) -> Tensor:
    """[L, H, S] -> [L, H]: how many slots a head must read: those with a nonzero mask, and one more.

    There the mask is zero, but it has a gradient if it is at the foot of the ramp.
    """
    first = (span.detach() != 0).to(torch.uint8).argmax(dim=-1)
    return (span.shape[-1] - first + 1).clamp(max=span.shape[-1])


# ------------------------------------------------------------------------------------------------- checks


def check_block(
    x: Tensor, memory: Tensor, length: Tensor, reset: Tensor | None, weights: BlockWeights, options: BlockOptions
) -> None:
    """Raise a ValueError that names the tensor, what it is and what it should be."""
    if x.dtype not in SUFFIXES or x.device.type != "cpu":
        raise ValueError(f"the native engine computes in float32 or float64 on the CPU; x is {x.dtype} on {x.device}")
    if x.ndim != 3 or 0 in x.shape:
        raise ValueError(f"x must be [B, T, D] with at least one step; it is {tuple(x.shape)}")
    check_weights(x, weights, options)
    batch, steps, width = x.shape
    window = weights.position.shape[1]
    if memory.ndim != 3 or (memory.shape[0], memory.shape[2]) != (batch, width) or memory.shape[1] > window:
        raise ValueError(f"memory must be [{batch}, M <= {window}, {width}]; it is {tuple(memory.shape)}")
    if memory.dtype != x.dtype:
        raise ValueError(f"memory is {memory.dtype} but x is {x.dtype}")
    for name, part in (("x", x), ("memory", memory), ("length", length), ("reset", reset)):
        check_device(name, part)
    if tuple(length.shape) != (batch,) or length.dtype.is_floating_point:
        raise ValueError(f"length must be integers [{batch}]; it is {length.dtype} {tuple(length.shape)}")
    if reset is not None and tuple(reset.shape) != (batch, steps):
        raise ValueError(f"reset must be [{batch}, {steps}]; it is {tuple(reset.shape)}")


def check_device(name: str, part: Tensor | None) -> None:
    """The library reads addresses: one of another device would end the process."""
    if part is None:
        return
    if part.device.type != "cpu":
        raise ValueError(
            f"x is on the CPU, but {name} is on {part.device}; move x, the model and its state to one device"
        )
    if not in_memory(part):
        raise ValueError(f"{name} is a fake tensor, which has no memory; set the engine to 'loop'")


def in_memory(tensor: Tensor) -> bool:
    """Whether it can be read at its address: a FakeTensor says that it is on the CPU and is nowhere."""
    return tensor.untyped_storage().device.type == "cpu"


def check_weights(x: Tensor, weights: BlockWeights, options: BlockOptions) -> None:
    width = x.shape[-1]
    layers, inside = weights.query.shape[:2]
    inner, pairs, window = weights.expand.shape[1], weights.key.shape[0], weights.position.shape[-1]
    heads = options.num_heads
    if heads < 1 or inside % heads or pairs not in (1, layers):
        raise ValueError(f"query is {tuple(weights.query.shape)} and key {tuple(weights.key.shape)} for {heads} heads")
    if not 0 <= options.dropout < 1:
        raise ValueError(f"dropout = {options.dropout} must be from 0 up to, but not including, 1")
    if options.pre_norm == (weights.memory_gain is None) or options.pre_norm == (weights.memory_shift is None):
        raise ValueError("memory_gain and memory_shift belong to pre-norm, and to pre-norm only")
    vector, pair = (layers, width), (pairs, width)
    wanted: tuple[tuple[int, ...], ...] = (  # in the order of BlockWeights
        *((layers, inside, width), (layers, width, inside), (layers, inner, width), (layers, inner)),
        *((layers, width, inner), vector, vector, vector, vector, vector),
        *((pairs, inside, width), (pairs, inside, width), pair, pair),
        *((layers + 1,), (inside // heads, window), (heads, window), (layers, heads, window)),
        *((layers, inside, width), (layers, width, inside), vector, vector),
    )
    for name, weight, shape in zip(BlockWeights._fields, weights, wanted, strict=True):
        check_device(name, weight)
        if weight is not None and weight.dtype != x.dtype:
            raise ValueError(f"x is {x.dtype}, but the weights ({name}) are {weight.dtype}; convert one of them")
        if weight is not None and tuple(weight.shape) != shape:
            raise ValueError(f"{name} must be {shape}; it is {tuple(weight.shape)}")


def check_source(x: Tensor, weights: BlockWeights, options: BlockOptions, source: Source | None) -> None:
    """Check that a source comes with the weights that read it, and has one row per row or group of rows of x."""
    if (source is None) != any(w is None for w in weights[-4:]):
        raise ValueError("a source and the four weights that read it (source_query, ..) belong together")
    if source is None:
        return
    layers, inside = weights.query.shape[:2]
    rows, positions = source.mask.shape
    keys = (layers, rows, options.num_heads, positions, inside // options.num_heads)
    wanted = (keys, keys, (rows, positions), (rows,))
    for name, part, shape in zip(Source._fields, source, wanted, strict=True):
        dtype = torch.int64 if name == "length" else x.dtype
        check_device(f"source.{name}", part)
        if tuple(part.shape) != shape or part.dtype != dtype:
            raise ValueError(f"source.{name} must be {shape} in {dtype}; it is {tuple(part.shape)} in {part.dtype}")
    if not rows or len(x) % rows or not positions:
        raise ValueError(f"a source of {rows} rows of {positions} positions cannot be read by a batch of {len(x)}")


# ------------------------------------------------------------------------------------------------- the library


def call(function: str, dtype: torch.dtype, shape: Shape, *arguments: Any) -> None:
    """Call the library's function for this dtype; structures are passed by reference, numbers as pointers."""
    converted = [
        ctypes.byref(a)
        if isinstance(a, (ctypes.Structure, ctypes.Array))
        else a
        if isinstance(a, ctypes.c_int64)
        else ctypes.c_void_p(a)
        for a in arguments
    ]
    if library()[f"{function}_{SUFFIXES[dtype]}"](ctypes.byref(shape), *converted):
        raise MemoryError(f"the native engine's {function} ran out of memory for a batch of {shape.batch}")


def size_of(what: str, dtype: torch.dtype, shape: Shape) -> int:
    function = library()[f"{what}_size_{SUFFIXES[dtype]}"]
    function.restype = ctypes.c_int64
    return int(function(ctypes.byref(shape)))


def large(tensor: Tensor) -> Tensor:
    """The same tensor, on huge pages if the system has them. Call it before the first write."""
    if tensor.nbytes > LARGE_PAGE:
        library().large_pages(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_int64(tensor.nbytes))
    return tensor


def pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def pointers(weights: BlockWeights) -> Any:
    return WeightPointers(*(pointer(getattr(weights, name)) for name in POINTER_ORDER))


def contiguous(weights: BlockWeights) -> BlockWeights:
    return BlockWeights(*(None if w is None else w.detach().contiguous() for w in weights))  # type: ignore[arg-type]
