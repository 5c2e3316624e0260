"""Subnormal numbers, with which some processors compute a hundred times slower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def tiny_is_zero() -> Iterator[None]:
    """Within this context the thread treats floats below 1.2e-38 as zero, as GPUs and the native engine do.

    Attention that falls off with distance produces many of them: exp(-90) already is one.

    >>> with tiny_is_zero():
    ...     (torch.tensor(1e-30) * 1e-10).item()
    0.0
    >>> (torch.tensor(1e-30) * 1e-10).item() > 0
    True
    """
    before = (torch.tensor(1e-30) * 1e-10).item() == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
