"""What a core is: one step, or a block that equals that many steps. The state goes in and comes out.

FeedbackTransformer, Transformer and LSTM are cores, and so is any module of yours with these two methods. Nothing about
a sequence is kept on the module, so one core can serve any number of streams.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

Own = TypeVar("Own", bound="State")


class State(Protocol):
    """All that a core knows of the past of B streams. It never changes; every method returns another one."""

    def detach(self: Own) -> Own:
        """The same state without gradients: what came before it is not trained any further."""
        ...

    def reset(self: Own, rows: Tensor) -> Own:
        """Rows where `rows` [B] is true begin a new stream; the others are unaffected."""
        ...

    def reorder(self: Own, index: Tensor) -> Own:
        """Row i becomes what row index[i] was; a row may be taken more than once (beam search)."""
        ...

    def to(self: Own, device: torch.device | str) -> Own: ...

    def tensors(self) -> dict[str, Tensor]:
        """What to save; the class method `from_tensors` restores the state."""
        ...


class Core(Protocol):
    """`forward` means `step`, T times: it may be faster, never different. A state of None is an empty one."""

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """One step: x [B, D] -> [B, D]"""
        ...

    def forward(self, x: Tensor, state: Any = None, reset: Tensor | None = None) -> tuple[Tensor, Any]:
        """A block: x [B, T, D] -> [B, T, D]. Rows where reset [B, T] is true begin a new stream before that step."""
        ...


def check_step(x: Tensor, width: int) -> None:
    """An error that says what the input of a step should be."""
    if x.ndim != 2 or x.shape[1] != width or not x.shape[0]:
        raise ValueError(f"x must be [B, {width}] with at least one row; it is {tuple(x.shape)}")


def check_block(x: Tensor, width: int, reset: Tensor | None = None) -> None:
    """The same for a block."""
    if x.ndim != 3 or x.shape[2] != width or not x.shape[0] or not x.shape[1]:
        raise ValueError(f"x must be [B, T, {width}] with at least one row and one step; it is {tuple(x.shape)}")
    if reset is not None and (reset.shape != x.shape[:2] or reset.dtype != torch.bool):
        raise ValueError(
            f"reset must be {tuple(x.shape[:2])} of torch.bool, one for each row and step; it is "
            f"{tuple(reset.shape)} of {reset.dtype}"
        )


def check_reset(rows: Tensor, count: int) -> None:
    """An error unless there is one truth value for each of a state's rows."""
    if not isinstance(rows, Tensor) or rows.shape != (count,) or rows.dtype != torch.bool:
        found = f"{tuple(rows.shape)} of {rows.dtype}" if isinstance(rows, Tensor) else type(rows).__name__
        raise ValueError(f"rows to reset must be a tensor ({count},) of torch.bool, one for each row; it is {found}")


def check_kind(state: object, kind: type) -> None:
    """An error if a state is of another core."""
    if not isinstance(state, kind):
        raise ValueError(
            f"the state is a {type(state).__name__}, of another core; this one goes on from a {kind.__name__}"
        )


def check_rows(rows: int, x: Tensor) -> None:
    """An error if a state is of other streams than the input."""
    if rows != len(x):
        raise ValueError(f"the state has {rows} rows and x has {len(x)}; continue with as many, or reorder the state")
