"""Numbers too small to be normal, which some processors compute with a hundred times slower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def tiny_is_zero() -> Iterator[None]:
    """This thread takes floats below 1.2e-38 for zero meanwhile, as GPUs and the native engine do.

    Attention that falls off with distance makes many of them: exp(-90) already is one.

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
