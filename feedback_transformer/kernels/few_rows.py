"""A large weight for a few rows: the output layer of a step of decoding.

The cost is reading the weight from memory; for a few rows torch does so at a fraction of the memory's bandwidth. The
maths is in `csrc/few_rows.h`.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor
from torch.nn import functional as F

from feedback_transformer.kernels import Needs, choose, transforming
from feedback_transformer.kernels.native import SUFFIXES, in_memory, pointer
from feedback_transformer.kernels.native_build import library

MOST_ROWS = 24  # with more, multiplying dominates, at which torch is as good
LARGE = 1 << 18  # numbers in a weight; with fewer there is nothing to gain
A_THREADS_SHARE = 1 << 21  # numbers of a weight per thread; fewer are not worth waking a thread for


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`, x [.., D] -> [.., V]; faster for a few rows [R, D] without gradients."""
    if torch.compiler.is_compiling() or not _suits(x, weight, bias):
        return F.linear(x, weight, bias)
    x, y = x.contiguous(), x.new_empty(len(x), len(weight))
    threads = max(1, min(torch.get_num_threads(), weight.numel() // A_THREADS_SHARE))
    sizes = (ctypes.c_int64 * 4)(len(x), *weight.shape, threads)
    multiply = library()[f"few_rows_{SUFFIXES[x.dtype]}"]
    if multiply(sizes, *(ctypes.c_void_p(pointer(t)) for t in (x, weight, bias, y))):
        raise MemoryError("an output layer ran out of memory")
    return y


def _suits(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    if torch.is_grad_enabled() or x.ndim != 2 or not 0 < len(x) <= MOST_ROWS or weight.numel() < LARGE:
        return False
    if weight.ndim != 2 or x.shape[1] != weight.shape[1] or (bias is not None and bias.shape != weight.shape[:1]):
        return False  # torch says what is wrong
    for own in (weight,) if bias is None else (weight, bias):
        if own.dtype != x.dtype or own.device != x.device or not own.is_contiguous():
            return False
    device = x.device.type
    needs = Needs(device, x.dtype, autocast=torch.is_autocast_enabled(device), transformed=transforming())
    return choose("auto", needs).name == "native" and in_memory(x)
